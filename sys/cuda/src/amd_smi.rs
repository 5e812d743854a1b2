//! AMD SMI on NVML. Devices are listed as NVML lists them, in order of their PCI addresses, as AMD SMI does. A handle is NVML's.

mod queries;

use hip_provider::amd_smi::{put, put_handles, run};
use hip_provider::export;
use hipvit_sys::amd_smi::{
    amdsmi_link_type_t, amdsmi_processor_handle, amdsmi_socket_handle, amdsmi_status_t,
};

use crate::nvml::{self, device, nvml};

export! { amd_smi, amdsmi_status_t, run;
    fn amdsmi_init(_flags: u64) {
        nvml!(nvmlInit_v2())
    }

    fn amdsmi_shut_down() {
        nvml!(nvmlShutdown())
    }

    fn amdsmi_get_socket_handles(count: *mut u32, sockets: *mut amdsmi_socket_handle) {
        let devices: Vec<_> = nvml::devices()?.into_iter().map(<*mut _>::cast).collect();
        put_handles(&devices, count, sockets)
    }

    /// A device is the only processor of its socket.
    fn amdsmi_get_processor_handles(
        socket: amdsmi_socket_handle, count: *mut u32, processors: *mut amdsmi_processor_handle,
    ) {
        put_handles(&[device(socket)?.cast()], count, processors)
    }

    /// NVLink is reported as xGMI, AMD's link for the same purpose.
    fn amdsmi_topo_get_link_type(
        first: amdsmi_processor_handle, second: amdsmi_processor_handle, hops: *mut u64, kind: *mut amdsmi_link_type_t,
    ) {
        let found = nvml::link(device(first)?, device(second)?)?;
        put(kind, found.into())?;
        put(hops, found.hops().into())
    }

    fn amdsmi_is_P2P_accessible(
        first: amdsmi_processor_handle, second: amdsmi_processor_handle, accessible: *mut bool,
    ) {
        put(accessible, nvml::reads(device(first)?, device(second)?)?)
    }
}

hip_provider::shared_amd_smi!();
