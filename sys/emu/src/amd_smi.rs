//! AMD SMI for emulated devices: identity, memory and topology. Temperature, power and clocks are not supported.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::Ordering;

use hip_provider::amd_smi::{put, put_handles, put_text, run};
use hip_provider::{export, not_offered};
use hipvit_sys::amd_smi::{
    amdsmi_asic_info_t, amdsmi_driver_info_t, amdsmi_link_type_t, amdsmi_memory_type_t,
    amdsmi_processor_handle, amdsmi_socket_handle, amdsmi_status_t,
};

use crate::hip::machine::{self, Device, Machine};
use crate::hip::{bus, link};

fn machine() -> Result<&'static Machine, amdsmi_status_t> {
    machine::machine().map_err(|_| amdsmi_status_t::AMDSMI_STATUS_INIT_ERROR)
}

/// Returns the handles of all devices. A device is also the only processor of its socket, so that both handles are the same.
fn handles() -> Result<Vec<*mut c_void>, amdsmi_status_t> {
    machine::count().map_err(|_| amdsmi_status_t::AMDSMI_STATUS_INIT_ERROR)?;
    let devices = &machine()?.devices;
    Ok(devices
        .iter()
        .map(|device| ptr::from_ref(device).cast_mut().cast())
        .collect())
}

fn device(handle: *mut c_void) -> Result<&'static Device, amdsmi_status_t> {
    let mut devices = machine()?.devices.iter();
    let found = devices.find(|&device| ptr::eq(device, handle.cast()));
    found.ok_or(amdsmi_status_t::AMDSMI_STATUS_INVAL)
}

fn is_device_memory(kind: amdsmi_memory_type_t) -> Result<(), amdsmi_status_t> {
    match kind {
        amdsmi_memory_type_t::AMDSMI_MEM_TYPE_VRAM => Ok(()),
        _ => Err(amdsmi_status_t::AMDSMI_STATUS_NOT_SUPPORTED),
    }
}

export! { amd_smi, amdsmi_status_t, run;
    fn amdsmi_init(_flags: u64) {
        machine::count().map(drop).map_err(|_| amdsmi_status_t::AMDSMI_STATUS_INIT_ERROR)
    }

    fn amdsmi_shut_down() {
        Ok(())
    }

    fn amdsmi_get_socket_handles(count: *mut u32, sockets: *mut amdsmi_socket_handle) {
        put_handles(&handles()?, count, sockets)
    }

    fn amdsmi_get_processor_handles(
        socket: amdsmi_socket_handle, count: *mut u32, processors: *mut amdsmi_processor_handle,
    ) {
        device(socket)?;
        put_handles(&[socket], count, processors)
    }

    fn amdsmi_get_gpu_id(processor: amdsmi_processor_handle, id: *mut u16) {
        put(id, device(processor)?.part.pci_id as u16)
    }

    fn amdsmi_get_gpu_asic_info(processor: amdsmi_processor_handle, to: *mut amdsmi_asic_info_t) {
        let part = device(processor)?.part;
        let mut info = amdsmi_asic_info_t {
            vendor_id: 0x1002,
            device_id: u64::from(part.pci_id),
            target_graphics_version: u64::from_str_radix(part.arch.trim_start_matches("gfx"), 16)
                .map_err(|_| amdsmi_status_t::AMDSMI_STATUS_UNEXPECTED_DATA)?,
            ..Default::default()
        };
        put_text(&mut info.market_name, part.name);
        put_text(&mut info.vendor_name, "Advanced Micro Devices, Inc. [AMD/ATI]");
        put(to, info)
    }

    fn amdsmi_get_gpu_driver_info(processor: amdsmi_processor_handle, to: *mut amdsmi_driver_info_t) {
        device(processor)?;
        let mut info = amdsmi_driver_info_t::default();
        put_text(&mut info.driver_version, env!("CARGO_PKG_VERSION"));
        put_text(&mut info.driver_name, "hip-emu");
        put(to, info)
    }

    /// The PCI domain in the upper half, then bus, device and function.
    fn amdsmi_get_gpu_bdf_id(processor: amdsmi_processor_handle, id: *mut u64) {
        put(id, u64::from(bus(device(processor)?)) << 8)
    }

    fn amdsmi_get_gpu_memory_total(
        processor: amdsmi_processor_handle, kind: amdsmi_memory_type_t, total: *mut u64,
    ) {
        device(processor)?;
        is_device_memory(kind)?;
        put(total, machine()?.settings.memory)
    }

    fn amdsmi_get_gpu_memory_usage(
        processor: amdsmi_processor_handle, kind: amdsmi_memory_type_t, used: *mut u64,
    ) {
        let device = device(processor)?;
        is_device_memory(kind)?;
        put(used, device.used.load(Ordering::Relaxed))
    }

    fn amdsmi_topo_get_link_type(
        first: amdsmi_processor_handle, second: amdsmi_processor_handle, hops: *mut u64, kind: *mut amdsmi_link_type_t,
    ) {
        let (first, second) = (device(first)?, device(second)?);
        if first.ordinal == second.ordinal {
            return Err(amdsmi_status_t::AMDSMI_STATUS_INVAL);
        }
        let (found, count) = link(first, second);
        put(kind, found.into())?;
        put(hops, count.into())
    }

    fn amdsmi_is_P2P_accessible(
        first: amdsmi_processor_handle, second: amdsmi_processor_handle, accessible: *mut bool,
    ) {
        device(first)?;
        device(second)?;
        put(accessible, true)
    }
}

hip_provider::shared_amd_smi!();

not_offered! { amd_smi, amdsmi_status_t, amdsmi_status_t::AMDSMI_STATUS_NOT_SUPPORTED;
    amdsmi_get_gpu_pci_bandwidth
    amdsmi_get_gpu_pci_replay_counter
    amdsmi_get_power_info
    amdsmi_get_energy_count
    amdsmi_get_temp_metric
    amdsmi_get_clk_freq
    amdsmi_get_gpu_activity
    amdsmi_get_gpu_busy_percent
}
