//! Queries about one device, in ROCm SMI's units: microwatts, thousandths of a degree, hertz, bytes.

use std::ffi::c_char;
use std::time::{SystemTime, UNIX_EPOCH};

use hip_provider::export;
use hip_provider::export::copy_text;
use hip_provider::rocm_smi::run;
use hipvit_sys::rocm_smi::{
    RSMI_POWER_TYPE, rsmi_clk_type_t, rsmi_frequencies_t, rsmi_memory_type_t, rsmi_pcie_bandwidth_t,
    rsmi_status_t, rsmi_temperature_metric_t,
};
use nvml_wrapper_sys::bindings::{
    nvmlClockType_enum_NVML_CLOCK_MEM as CLOCK_MEMORY, nvmlClockType_enum_NVML_CLOCK_SM as CLOCK_SM,
    nvmlMemory_t, nvmlPciInfo_t, nvmlTemperatureSensors_enum_NVML_TEMPERATURE_GPU as SENSOR,
    nvmlTemperatureThresholds_enum_NVML_TEMPERATURE_THRESHOLD_SHUTDOWN as SHUTDOWN,
    nvmlTemperatureThresholds_enum_NVML_TEMPERATURE_THRESHOLD_SLOWDOWN as SLOWDOWN, nvmlUtilization_t,
};

use crate::nvml::{device, nvml};

/// ROCm SMI's edge and junction sensors; NVML has one sensor for the chip.
const EDGE_OR_JUNCTION: std::ops::RangeInclusive<u32> = 0..=1;

fn pci(index: u32) -> Result<nvmlPciInfo_t, rsmi_status_t> {
    let device = device(index)?;
    let mut info = std::mem::MaybeUninit::<nvmlPciInfo_t>::zeroed();
    // SAFETY: the structure may be written, and is numbers and characters that may all be zero.
    unsafe {
        nvml!(nvmlDeviceGetPciInfo_v3(device, info.as_mut_ptr()))?;
        Ok(info.assume_init())
    }
}

fn utilization(index: u32) -> Result<nvmlUtilization_t, rsmi_status_t> {
    let device = device(index)?;
    let mut found = std::mem::MaybeUninit::<nvmlUtilization_t>::zeroed();
    // SAFETY: the structure may be written, and is two numbers.
    unsafe {
        nvml!(nvmlDeviceGetUtilizationRates(device, found.as_mut_ptr()))?;
        Ok(found.assume_init())
    }
}

fn memory(index: u32, kind: rsmi_memory_type_t) -> Result<nvmlMemory_t, rsmi_status_t> {
    if kind != rsmi_memory_type_t::RSMI_MEM_TYPE_VRAM {
        return Err(rsmi_status_t::RSMI_STATUS_NOT_SUPPORTED);
    }
    let device = device(index)?;
    let mut found = std::mem::MaybeUninit::<nvmlMemory_t>::zeroed();
    // SAFETY: the structure may be written, and is three numbers.
    unsafe {
        nvml!(nvmlDeviceGetMemoryInfo(device, found.as_mut_ptr()))?;
        Ok(found.assume_init())
    }
}

/// Milliwatts to microwatts; degrees to thousandths of a degree.
fn thousand(value: u32) -> u64 {
    u64::from(value) * 1000
}

/// Transfers per second of one PCIe lane, by generation.
fn transfers(generation: u32) -> Option<u64> {
    Some(match generation {
        1 => 2_500_000_000,
        2 => 5_000_000_000,
        3 => 8_000_000_000,
        4 => 16_000_000_000,
        5 => 32_000_000_000,
        6 => 64_000_000_000,
        _ => return None,
    })
}

/// A PCI address: the domain in the upper half, then bus, device and function.
fn bdf(info: &nvmlPciInfo_t) -> u64 {
    u64::from(info.domain) << 32 | u64::from(info.bus) << 8 | u64::from(info.device) << 3
}

export! { rocm_smi, rsmi_status_t, run;
    fn rsmi_dev_id_get(index: u32, id: *mut u16) {
        id.write((pci(index)?.pciDeviceId >> 16) as u16);
        Ok(())
    }

    fn rsmi_dev_subsystem_id_get(index: u32, id: *mut u16) {
        id.write((pci(index)?.pciSubSystemId >> 16) as u16);
        Ok(())
    }

    fn rsmi_dev_name_get(index: u32, name: *mut c_char, len: usize) {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        nvml!(nvmlDeviceGetName(device(index)?, name, len))
    }

    fn rsmi_dev_market_name_get(index: u32, name: *mut c_char, len: u32) {
        nvml!(nvmlDeviceGetName(device(index)?, name, len))
    }

    fn rsmi_dev_vendor_name_get(index: u32, name: *mut c_char, len: usize) {
        device(index)?;
        copy_text(b"NVIDIA Corporation", name, len);
        Ok(())
    }

    fn rsmi_dev_serial_number_get(index: u32, serial: *mut c_char, len: u32) {
        nvml!(nvmlDeviceGetSerial(device(index)?, serial, len))
    }

    fn rsmi_dev_vbios_version_get(index: u32, version: *mut c_char, len: u32) {
        nvml!(nvmlDeviceGetVbiosVersion(device(index)?, version, len))
    }

    fn rsmi_dev_pci_id_get(index: u32, id: *mut u64) {
        id.write(bdf(&pci(index)?));
        Ok(())
    }

    /// The link's current speed, which is lower at idle; NVML does not list the other speeds.
    fn rsmi_dev_pci_bandwidth_get(index: u32, bandwidth: *mut rsmi_pcie_bandwidth_t) {
        let device = device(index)?;
        let (mut generation, mut lanes) = (0, 0);
        nvml!(nvmlDeviceGetCurrPcieLinkGeneration(device, &mut generation))?;
        nvml!(nvmlDeviceGetCurrPcieLinkWidth(device, &mut lanes))?;
        let mut found = rsmi_pcie_bandwidth_t::default();
        found.transfer_rate.num_supported = 1;
        found.transfer_rate.frequency[0] = transfers(generation).ok_or(rsmi_status_t::RSMI_STATUS_UNEXPECTED_DATA)?;
        found.lanes[0] = lanes;
        bandwidth.write(found);
        Ok(())
    }

    fn rsmi_dev_pci_replay_counter_get(index: u32, counter: *mut u64) {
        let mut found = 0;
        nvml!(nvmlDeviceGetPcieReplayCounter(device(index)?, &mut found))?;
        counter.write(found.into());
        Ok(())
    }

    /// The average over the last second, on Ampere and later.
    fn rsmi_dev_power_ave_get(index: u32, _sensor: u32, power: *mut u64) {
        let mut found = 0;
        nvml!(nvmlDeviceGetPowerUsage(device(index)?, &mut found))?;
        power.write(thousand(found));
        Ok(())
    }

    fn rsmi_dev_power_get(index: u32, power: *mut u64, kind: *mut RSMI_POWER_TYPE) {
        let mut found = 0;
        nvml!(nvmlDeviceGetPowerUsage(device(index)?, &mut found))?;
        power.write(thousand(found));
        kind.write(RSMI_POWER_TYPE::RSMI_AVERAGE_POWER);
        Ok(())
    }

    /// NVML counts millijoules, so one count is 1000 microjoules.
    fn rsmi_dev_energy_count_get(index: u32, count: *mut u64, resolution: *mut f32, timestamp: *mut u64) {
        let mut found = 0;
        nvml!(nvmlDeviceGetTotalEnergyConsumption(device(index)?, &mut found))?;
        count.write(found);
        if !resolution.is_null() {
            resolution.write(1000.0);
        }
        if !timestamp.is_null() {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            timestamp.write(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
        }
        Ok(())
    }

    fn rsmi_dev_power_cap_get(index: u32, _sensor: u32, cap: *mut u64) {
        let mut found = 0;
        nvml!(nvmlDeviceGetPowerManagementLimit(device(index)?, &mut found))?;
        cap.write(thousand(found));
        Ok(())
    }

    fn rsmi_dev_power_cap_default_get(index: u32, cap: *mut u64) {
        let mut found = 0;
        nvml!(nvmlDeviceGetPowerManagementDefaultLimit(device(index)?, &mut found))?;
        cap.write(thousand(found));
        Ok(())
    }

    fn rsmi_dev_power_cap_range_get(index: u32, _sensor: u32, most: *mut u64, least: *mut u64) {
        let (mut lower, mut upper) = (0, 0);
        nvml!(nvmlDeviceGetPowerManagementLimitConstraints(device(index)?, &mut lower, &mut upper))?;
        most.write(thousand(upper));
        least.write(thousand(lower));
        Ok(())
    }

    fn rsmi_dev_memory_total_get(index: u32, kind: rsmi_memory_type_t, total: *mut u64) {
        total.write(memory(index, kind)?.total);
        Ok(())
    }

    fn rsmi_dev_memory_usage_get(index: u32, kind: rsmi_memory_type_t, used: *mut u64) {
        used.write(memory(index, kind)?.used);
        Ok(())
    }

    fn rsmi_dev_memory_busy_percent_get(index: u32, percent: *mut u32) {
        percent.write(utilization(index)?.memory);
        Ok(())
    }

    fn rsmi_dev_busy_percent_get(index: u32, percent: *mut u32) {
        percent.write(utilization(index)?.gpu);
        Ok(())
    }

    /// The chip's temperature now, where it slows down (critical) and where it shuts down (emergency).
    fn rsmi_dev_temp_metric_get(index: u32, sensor: u32, metric: rsmi_temperature_metric_t, temperature: *mut i64) {
        if !EDGE_OR_JUNCTION.contains(&sensor) {
            return Err(rsmi_status_t::RSMI_STATUS_NOT_SUPPORTED);
        }
        let device = device(index)?;
        let mut found = 0;
        match metric {
            rsmi_temperature_metric_t::RSMI_TEMP_CURRENT => {
                nvml!(nvmlDeviceGetTemperature(device, SENSOR, &mut found))?;
            }
            rsmi_temperature_metric_t::RSMI_TEMP_CRITICAL => {
                nvml!(nvmlDeviceGetTemperatureThreshold(device, SLOWDOWN, &mut found))?;
            }
            rsmi_temperature_metric_t::RSMI_TEMP_EMERGENCY => {
                nvml!(nvmlDeviceGetTemperatureThreshold(device, SHUTDOWN, &mut found))?;
            }
            _ => return Err(rsmi_status_t::RSMI_STATUS_NOT_SUPPORTED),
        }
        temperature.write(i64::from(found) * 1000);
        Ok(())
    }

    /// The current and the highest clock; NVML does not list those between.
    fn rsmi_dev_gpu_clk_freq_get(index: u32, kind: rsmi_clk_type_t, frequencies: *mut rsmi_frequencies_t) {
        let clock = match kind {
            rsmi_clk_type_t::RSMI_CLK_TYPE_SYS => CLOCK_SM,
            rsmi_clk_type_t::RSMI_CLK_TYPE_MEM => CLOCK_MEMORY,
            _ => return Err(rsmi_status_t::RSMI_STATUS_NOT_SUPPORTED),
        };
        let device = device(index)?;
        let (mut now, mut highest) = (0, 0);
        nvml!(nvmlDeviceGetClockInfo(device, clock, &mut now))?;
        nvml!(nvmlDeviceGetMaxClockInfo(device, clock, &mut highest))?;
        let mut found = rsmi_frequencies_t { num_supported: 1, ..Default::default() };
        found.frequency[0] = thousand(now) * 1000;
        if highest > now {
            found.num_supported = 2;
            found.frequency[1] = thousand(highest) * 1000;
        }
        frequencies.write(found);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pci_address_is_packed_as_rocm_smi_packs_it() {
        let info = nvmlPciInfo_t {
            busIdLegacy: [0; 16],
            domain: 1,
            bus: 0xab,
            device: 0x1f,
            pciDeviceId: 0,
            pciSubSystemId: 0,
            busId: [0; 32],
        };
        assert_eq!(bdf(&info), 0x1_0000_abf8);
    }
}
