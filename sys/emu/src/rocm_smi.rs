//! ROCm SMI for emulated devices: identity, memory and topology. Temperature, power and clocks are not supported.

use std::ffi::c_char;
use std::sync::atomic::Ordering;

use hip_provider::export::copy_text;
use hip_provider::rocm_smi::{put, run};
use hip_provider::{export, not_offered};
use hipvit_sys::rocm_smi::{RSMI_IO_LINK_TYPE, rsmi_memory_type_t, rsmi_status_t, rsmi_sw_component_t};

use crate::hip::machine::{self, Device};
use crate::hip::{bus, link};

fn device(index: u32) -> Result<&'static Device, rsmi_status_t> {
    let index = i32::try_from(index).map_err(|_| rsmi_status_t::RSMI_STATUS_INVALID_ARGS)?;
    machine::device(index).map_err(|_| rsmi_status_t::RSMI_STATUS_INVALID_ARGS)
}

/// # Safety
/// `to` is null or has `len` bytes that may be written.
unsafe fn put_text(to: *mut c_char, len: usize, text: &str) -> Result<(), rsmi_status_t> {
    if to.is_null() {
        return Err(rsmi_status_t::RSMI_STATUS_INVALID_ARGS);
    }
    // SAFETY: as the caller says.
    unsafe { copy_text(text.as_bytes(), to, len) };
    if text.len() < len {
        Ok(())
    } else {
        Err(rsmi_status_t::RSMI_STATUS_INSUFFICIENT_SIZE)
    }
}

fn is_device_memory(kind: rsmi_memory_type_t) -> Result<(), rsmi_status_t> {
    match kind {
        rsmi_memory_type_t::RSMI_MEM_TYPE_VRAM => Ok(()),
        _ => Err(rsmi_status_t::RSMI_STATUS_NOT_SUPPORTED),
    }
}

export! { rocm_smi, rsmi_status_t, run;
    fn rsmi_init(_flags: u64) {
        machine::count().map(drop).map_err(|_| rsmi_status_t::RSMI_STATUS_INIT_ERROR)
    }

    fn rsmi_shut_down() {
        Ok(())
    }

    fn rsmi_num_monitor_devices(to: *mut u32) {
        put(to, 0)?;
        put(to, machine::count().map_err(|_| rsmi_status_t::RSMI_STATUS_INIT_ERROR)? as u32)
    }

    fn rsmi_version_str_get(_component: rsmi_sw_component_t, text: *mut c_char, len: u32) {
        put_text(text, len as usize, concat!("hip-emu ", env!("CARGO_PKG_VERSION")))
    }

    fn rsmi_dev_id_get(index: u32, id: *mut u16) {
        put(id, device(index)?.part.pci_id as u16)
    }

    fn rsmi_dev_name_get(index: u32, name: *mut c_char, len: usize) {
        put_text(name, len, device(index)?.part.name)
    }

    fn rsmi_dev_market_name_get(index: u32, name: *mut c_char, len: u32) {
        put_text(name, len as usize, device(index)?.part.name)
    }

    fn rsmi_dev_vendor_name_get(index: u32, name: *mut c_char, len: usize) {
        device(index)?;
        put_text(name, len, "Advanced Micro Devices, Inc. [AMD/ATI]")
    }

    /// The PCI domain in the upper half, then bus, device and function.
    fn rsmi_dev_pci_id_get(index: u32, id: *mut u64) {
        put(id, u64::from(bus(device(index)?)) << 8)
    }

    fn rsmi_dev_target_graphics_version_get(index: u32, version: *mut u64) {
        let number = device(index)?.part.arch.trim_start_matches("gfx");
        let number = u64::from_str_radix(number, 16).map_err(|_| rsmi_status_t::RSMI_STATUS_UNEXPECTED_DATA)?;
        put(version, number)
    }

    fn rsmi_dev_memory_total_get(index: u32, kind: rsmi_memory_type_t, total: *mut u64) {
        device(index)?;
        is_device_memory(kind)?;
        let machine = machine::machine().map_err(|_| rsmi_status_t::RSMI_STATUS_INIT_ERROR)?;
        put(total, machine.settings.memory)
    }

    fn rsmi_dev_memory_usage_get(index: u32, kind: rsmi_memory_type_t, used: *mut u64) {
        let device = device(index)?;
        is_device_memory(kind)?;
        put(used, device.used.load(Ordering::Relaxed))
    }

    fn rsmi_topo_get_link_type(first: u32, second: u32, hops: *mut u64, kind: *mut RSMI_IO_LINK_TYPE) {
        let (first, second) = (device(first)?, device(second)?);
        if first.ordinal == second.ordinal {
            return Err(rsmi_status_t::RSMI_STATUS_INVALID_ARGS);
        }
        let (found, count) = link(first, second);
        put(kind, found.into())?;
        put(hops, count.into())
    }

    fn rsmi_is_P2P_accessible(first: u32, second: u32, accessible: *mut bool) {
        device(first)?;
        device(second)?;
        put(accessible, true)
    }
}

hip_provider::shared_rocm_smi!();

not_offered! { rocm_smi, rsmi_status_t, rsmi_status_t::RSMI_STATUS_NOT_SUPPORTED;
    rsmi_dev_serial_number_get
    rsmi_dev_subsystem_id_get
    rsmi_dev_pci_bandwidth_get
    rsmi_dev_pci_replay_counter_get
    rsmi_dev_power_ave_get
    rsmi_dev_power_get
    rsmi_dev_energy_count_get
    rsmi_dev_power_cap_get
    rsmi_dev_power_cap_default_get
    rsmi_dev_power_cap_range_get
    rsmi_dev_memory_busy_percent_get
    rsmi_dev_temp_metric_get
    rsmi_dev_busy_percent_get
    rsmi_dev_gpu_clk_freq_get
    rsmi_dev_vbios_version_get
}
