//! Queries about one device, in AMD SMI's units: watts, degrees, hertz, bytes.

use std::time::{SystemTime, UNIX_EPOCH};

use hip_provider::amd_smi::{put, run};
use hip_provider::export;
use hipvit_sys::amd_smi::{
    amdsmi_asic_info_t, amdsmi_clk_type_t, amdsmi_driver_info_t, amdsmi_engine_usage_t, amdsmi_frequencies_t,
    amdsmi_memory_type_t, amdsmi_pcie_bandwidth_t, amdsmi_power_info_t, amdsmi_processor_handle,
    amdsmi_status_t, amdsmi_temperature_metric_t, amdsmi_temperature_type_t,
};
use nvml_wrapper_sys::bindings::{
    nvmlClockType_enum_NVML_CLOCK_MEM as CLOCK_MEMORY, nvmlClockType_enum_NVML_CLOCK_SM as CLOCK_SM,
    nvmlMemory_t, nvmlPciInfo_t, nvmlTemperatureSensors_enum_NVML_TEMPERATURE_GPU as SENSOR,
    nvmlTemperatureThresholds_enum_NVML_TEMPERATURE_THRESHOLD_SHUTDOWN as SHUTDOWN,
    nvmlTemperatureThresholds_enum_NVML_TEMPERATURE_THRESHOLD_SLOWDOWN as SLOWDOWN, nvmlUtilization_t,
};

use crate::nvml::{device, nvml};

fn pci(processor: amdsmi_processor_handle) -> Result<nvmlPciInfo_t, amdsmi_status_t> {
    let device = device(processor)?;
    let mut info = std::mem::MaybeUninit::<nvmlPciInfo_t>::zeroed();
    // SAFETY: the structure may be written, and is numbers and characters that may all be zero.
    unsafe {
        nvml!(nvmlDeviceGetPciInfo_v3(device, info.as_mut_ptr()))?;
        Ok(info.assume_init())
    }
}

fn utilization(processor: amdsmi_processor_handle) -> Result<nvmlUtilization_t, amdsmi_status_t> {
    let device = device(processor)?;
    let mut found = std::mem::MaybeUninit::<nvmlUtilization_t>::zeroed();
    // SAFETY: the structure may be written, and is two numbers.
    unsafe {
        nvml!(nvmlDeviceGetUtilizationRates(device, found.as_mut_ptr()))?;
        Ok(found.assume_init())
    }
}

fn memory(
    processor: amdsmi_processor_handle,
    kind: amdsmi_memory_type_t,
) -> Result<nvmlMemory_t, amdsmi_status_t> {
    if kind != amdsmi_memory_type_t::AMDSMI_MEM_TYPE_VRAM {
        return Err(amdsmi_status_t::AMDSMI_STATUS_NOT_SUPPORTED);
    }
    let device = device(processor)?;
    let mut found = std::mem::MaybeUninit::<nvmlMemory_t>::zeroed();
    // SAFETY: the structure may be written, and is three numbers.
    unsafe {
        nvml!(nvmlDeviceGetMemoryInfo(device, found.as_mut_ptr()))?;
        Ok(found.assume_init())
    }
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

export! { amd_smi, amdsmi_status_t, run;
    fn amdsmi_get_gpu_id(processor: amdsmi_processor_handle, id: *mut u16) {
        put(id, (pci(processor)?.pciDeviceId >> 16) as u16)
    }

    fn amdsmi_get_gpu_bdf_id(processor: amdsmi_processor_handle, id: *mut u64) {
        put(id, bdf(&pci(processor)?))
    }

    fn amdsmi_get_gpu_asic_info(processor: amdsmi_processor_handle, to: *mut amdsmi_asic_info_t) {
        let device = device(processor)?;
        let pci = pci(processor)?;
        let mut info = amdsmi_asic_info_t {
            vendor_id: pci.pciDeviceId & 0xffff,
            subvendor_id: pci.pciSubSystemId & 0xffff,
            device_id: u64::from(pci.pciDeviceId >> 16),
            subsystem_id: pci.pciSubSystemId >> 16,
            ..Default::default()
        };
        let name = &mut info.market_name;
        nvml!(nvmlDeviceGetName(device, name.as_mut_ptr(), name.len() as u32))?;
        hip_provider::amd_smi::put_text(&mut info.vendor_name, "NVIDIA Corporation");
        let serial = &mut info.asic_serial;
        // Consumer cards have none.
        let _ = nvml!(nvmlDeviceGetSerial(device, serial.as_mut_ptr(), serial.len() as u32));
        put(to, info)
    }

    fn amdsmi_get_gpu_driver_info(processor: amdsmi_processor_handle, to: *mut amdsmi_driver_info_t) {
        device(processor)?;
        let mut info = amdsmi_driver_info_t::default();
        let version = &mut info.driver_version;
        nvml!(nvmlSystemGetDriverVersion(version.as_mut_ptr(), version.len() as u32))?;
        hip_provider::amd_smi::put_text(&mut info.driver_name, "nvidia");
        put(to, info)
    }

    /// The link's current speed, which is lower at idle; NVML does not list the other speeds.
    fn amdsmi_get_gpu_pci_bandwidth(processor: amdsmi_processor_handle, bandwidth: *mut amdsmi_pcie_bandwidth_t) {
        let device = device(processor)?;
        let (mut generation, mut lanes) = (0, 0);
        nvml!(nvmlDeviceGetCurrPcieLinkGeneration(device, &mut generation))?;
        nvml!(nvmlDeviceGetCurrPcieLinkWidth(device, &mut lanes))?;
        let mut found = amdsmi_pcie_bandwidth_t::default();
        found.transfer_rate.num_supported = 1;
        found.transfer_rate.frequency[0] = transfers(generation).ok_or(amdsmi_status_t::AMDSMI_STATUS_UNEXPECTED_DATA)?;
        found.lanes[0] = lanes;
        put(bandwidth, found)
    }

    fn amdsmi_get_gpu_pci_replay_counter(processor: amdsmi_processor_handle, counter: *mut u64) {
        let mut found = 0;
        nvml!(nvmlDeviceGetPcieReplayCounter(device(processor)?, &mut found))?;
        put(counter, found.into())
    }

    /// The average over the last second, on Ampere and later. NVML reports milliwatts.
    fn amdsmi_get_power_info(processor: amdsmi_processor_handle, to: *mut amdsmi_power_info_t) {
        let device = device(processor)?;
        let (mut now, mut limit) = (0, 0);
        nvml!(nvmlDeviceGetPowerUsage(device, &mut now))?;
        let watts = (now + 500) / 1000;
        let mut info = amdsmi_power_info_t {
            socket_power: watts.into(),
            current_socket_power: u32::MAX,
            average_socket_power: watts,
            ..Default::default()
        };
        if nvml!(nvmlDeviceGetPowerManagementLimit(device, &mut limit)).is_ok() {
            info.power_limit = limit.saturating_mul(1000);
        }
        put(to, info)
    }

    /// NVML counts millijoules, so one count is 1000 microjoules.
    fn amdsmi_get_energy_count(
        processor: amdsmi_processor_handle, count: *mut u64, resolution: *mut f32, timestamp: *mut u64,
    ) {
        let mut found = 0;
        nvml!(nvmlDeviceGetTotalEnergyConsumption(device(processor)?, &mut found))?;
        put(count, found)?;
        if !resolution.is_null() {
            resolution.write(1000.0);
        }
        if !timestamp.is_null() {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            timestamp.write(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
        }
        Ok(())
    }

    fn amdsmi_get_gpu_memory_total(
        processor: amdsmi_processor_handle, kind: amdsmi_memory_type_t, total: *mut u64,
    ) {
        put(total, memory(processor, kind)?.total)
    }

    fn amdsmi_get_gpu_memory_usage(
        processor: amdsmi_processor_handle, kind: amdsmi_memory_type_t, used: *mut u64,
    ) {
        put(used, memory(processor, kind)?.used)
    }

    fn amdsmi_get_gpu_busy_percent(processor: amdsmi_processor_handle, percent: *mut u32) {
        put(percent, utilization(processor)?.gpu)
    }

    fn amdsmi_get_gpu_activity(processor: amdsmi_processor_handle, to: *mut amdsmi_engine_usage_t) {
        let found = utilization(processor)?;
        let unknown = u32::from(u16::MAX);
        let info = amdsmi_engine_usage_t {
            gfx_activity: found.gpu,
            umc_activity: found.memory,
            mm_activity: unknown,
            ..Default::default()
        };
        put(to, info)
    }

    /// The chip's temperature now, where it slows down (critical) and where it shuts down (emergency).
    fn amdsmi_get_temp_metric(
        processor: amdsmi_processor_handle, sensor: amdsmi_temperature_type_t, metric: amdsmi_temperature_metric_t,
        temperature: *mut i64,
    ) {
        // NVML has one sensor for the chip.
        let chip = [
            amdsmi_temperature_type_t::AMDSMI_TEMPERATURE_TYPE_EDGE,
            amdsmi_temperature_type_t::AMDSMI_TEMPERATURE_TYPE_HOTSPOT,
        ];
        if !chip.contains(&sensor) {
            return Err(amdsmi_status_t::AMDSMI_STATUS_NOT_SUPPORTED);
        }
        let device = device(processor)?;
        let mut found = 0;
        match metric {
            amdsmi_temperature_metric_t::AMDSMI_TEMP_CURRENT => {
                nvml!(nvmlDeviceGetTemperature(device, SENSOR, &mut found))?;
            }
            amdsmi_temperature_metric_t::AMDSMI_TEMP_CRITICAL => {
                nvml!(nvmlDeviceGetTemperatureThreshold(device, SLOWDOWN, &mut found))?;
            }
            amdsmi_temperature_metric_t::AMDSMI_TEMP_EMERGENCY => {
                nvml!(nvmlDeviceGetTemperatureThreshold(device, SHUTDOWN, &mut found))?;
            }
            _ => return Err(amdsmi_status_t::AMDSMI_STATUS_NOT_SUPPORTED),
        }
        put(temperature, found.into())
    }

    /// The current and the highest clock; NVML does not list those between.
    fn amdsmi_get_clk_freq(
        processor: amdsmi_processor_handle, kind: amdsmi_clk_type_t, frequencies: *mut amdsmi_frequencies_t,
    ) {
        let clock = match kind {
            amdsmi_clk_type_t::AMDSMI_CLK_TYPE_SYS => CLOCK_SM,
            amdsmi_clk_type_t::AMDSMI_CLK_TYPE_MEM => CLOCK_MEMORY,
            _ => return Err(amdsmi_status_t::AMDSMI_STATUS_NOT_SUPPORTED),
        };
        let device = device(processor)?;
        let (mut now, mut highest) = (0, 0);
        nvml!(nvmlDeviceGetClockInfo(device, clock, &mut now))?;
        nvml!(nvmlDeviceGetMaxClockInfo(device, clock, &mut highest))?;
        let hertz = |megahertz: u32| u64::from(megahertz) * 1_000_000;
        let mut found = amdsmi_frequencies_t { num_supported: 1, ..Default::default() };
        found.frequency[0] = hertz(now);
        if highest > now {
            found.num_supported = 2;
            found.frequency[1] = hertz(highest);
        }
        put(frequencies, found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pci_address_is_packed_as_amd_smi_packs_it() {
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
