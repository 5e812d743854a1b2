//! ROCm SMI on NVML. Devices are counted as NVML counts them, in order of their PCI addresses, as ROCm SMI does.

mod queries;

use std::ffi::c_char;

use hipvit_sys::Status as _;
use hipvit_sys::rocm_smi::{RSMI_IO_LINK_TYPE, rsmi_status_t, rsmi_sw_component_t};

use crate::nvml::{self, LinkType, device, nvml};
use hipvit_sys::export::{c_name, caught};
use hipvit_sys::{export, not_offered};

fn run(body: impl FnOnce() -> Result<(), rsmi_status_t>) -> rsmi_status_t {
    caught(
        rsmi_status_t::RSMI_STATUS_SUCCESS,
        rsmi_status_t::RSMI_STATUS_UNKNOWN_ERROR,
        body,
    )
}

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

    fn rsmi_status_string(status: rsmi_status_t, text: *mut *const c_char) {
        text.write(c_name(status.name().ok_or(rsmi_status_t::RSMI_STATUS_INVALID_ARGS)?));
        Ok(())
    }

    fn rsmi_version_str_get(_component: rsmi_sw_component_t, text: *mut c_char, len: u32) {
        nvml!(nvmlSystemGetDriverVersion(text, len))
    }

    /// NVLink is reported as xGMI, AMD's link for the same purpose.
    fn rsmi_topo_get_link_type(first: u32, second: u32, hops: *mut u64, kind: *mut RSMI_IO_LINK_TYPE) {
        let found = nvml::link(device(first)?, device(second)?)?;
        kind.write(match found {
            LinkType::NvLink => RSMI_IO_LINK_TYPE::RSMI_IOLINK_TYPE_XGMI,
            LinkType::Pcie => RSMI_IO_LINK_TYPE::RSMI_IOLINK_TYPE_PCIEXPRESS,
        });
        hops.write(found.hops().into());
        Ok(())
    }

    fn rsmi_is_P2P_accessible(first: u32, second: u32, accessible: *mut bool) {
        accessible.write(nvml::reads(device(first)?, device(second)?)?);
        Ok(())
    }
}

// What NVML does not report, or in another form.
not_offered! { rocm_smi, rsmi_status_t, rsmi_status_t::RSMI_STATUS_NOT_SUPPORTED;
    rsmi_dev_brand_get
    rsmi_dev_revision_get
    rsmi_dev_vram_vendor_get
    rsmi_dev_subsystem_name_get
    rsmi_dev_drm_render_minor_get
    rsmi_dev_unique_id_get
    rsmi_dev_xgmi_physical_id_get
    rsmi_dev_guid_get
    rsmi_dev_node_id_get
    rsmi_topo_numa_affinity_get
    rsmi_dev_pci_throughput_get
    rsmi_dev_current_socket_power_get
    rsmi_dev_memory_reserved_pages_get
    rsmi_dev_fan_rpms_get
    rsmi_dev_fan_speed_get
    rsmi_dev_fan_speed_max_get
    rsmi_dev_volt_metric_get
    rsmi_utilization_count_get
    rsmi_dev_perf_level_get
    rsmi_version_get
    rsmi_dev_firmware_version_get
    rsmi_dev_target_graphics_version_get
    rsmi_dev_ecc_count_get
    rsmi_dev_ecc_enabled_get
    rsmi_dev_ecc_status_get
    rsmi_compute_process_info_get
    rsmi_compute_process_info_by_pid_get
    rsmi_compute_process_gpus_get
    rsmi_dev_xgmi_error_status
    rsmi_dev_xgmi_hive_id_get
    rsmi_topo_get_numa_node_number
    rsmi_topo_get_link_weight
    rsmi_minmax_bandwidth_get
    rsmi_dev_compute_partition_get
    rsmi_dev_partition_id_get
    rsmi_dev_memory_partition_get
}
