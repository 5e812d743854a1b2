//! ROCm SMI on NVML. Devices are counted as NVML counts them, in order of their PCI addresses, as ROCm SMI does.

mod queries;

use std::ffi::c_char;

use hip_provider::rocm_smi::run;
use hip_provider::{export, not_offered};
use hipvit_sys::rocm_smi::{RSMI_IO_LINK_TYPE, rsmi_status_t, rsmi_sw_component_t};

use crate::nvml::{self, device, nvml};

export! { rocm_smi, rsmi_status_t, run;
    fn rsmi_init(_flags: u64) {
        nvml!(nvmlInit_v2())
    }

    fn rsmi_shut_down() {
        nvml!(nvmlShutdown())
    }

    fn rsmi_num_monitor_devices(count: *mut u32) {
        count.write(0);
        nvml!(nvmlDeviceGetCount_v2(count))
    }

    fn rsmi_version_str_get(_component: rsmi_sw_component_t, text: *mut c_char, len: u32) {
        nvml!(nvmlSystemGetDriverVersion(text, len))
    }

    /// NVLink is reported as xGMI, AMD's link for the same purpose.
    fn rsmi_topo_get_link_type(first: u32, second: u32, hops: *mut u64, kind: *mut RSMI_IO_LINK_TYPE) {
        let found = nvml::link(device(first)?, device(second)?)?;
        kind.write(found.into());
        hops.write(found.hops().into());
        Ok(())
    }

    fn rsmi_is_P2P_accessible(first: u32, second: u32, accessible: *mut bool) {
        accessible.write(nvml::reads(device(first)?, device(second)?)?);
        Ok(())
    }
}

hip_provider::shared_rocm_smi!();

// AMD GPUs only.
not_offered! { rocm_smi, rsmi_status_t, rsmi_status_t::RSMI_STATUS_NOT_SUPPORTED;
    rsmi_dev_target_graphics_version_get
}
