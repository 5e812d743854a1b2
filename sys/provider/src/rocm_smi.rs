//! ROCm SMI: its status, and what no provider offers.

use hipvit_sys::Status as _;
use hipvit_sys::rocm_smi::rsmi_status_t;

crate::export::status! {
    rsmi_status_t, success: RSMI_STATUS_SUCCESS, panic: RSMI_STATUS_UNKNOWN_ERROR, null: RSMI_STATUS_INVALID_ARGS
}

/// Returns the name of a status as a static C string.
///
/// # Errors
/// `RSMI_STATUS_INVALID_ARGS` for a number that has no name.
pub fn status_text(status: rsmi_status_t) -> Result<*const std::ffi::c_char, rsmi_status_t> {
    let name = status.name().ok_or(rsmi_status_t::RSMI_STATUS_INVALID_ARGS)?;
    Ok(crate::export::c_name(name))
}

/// Exports the names of ROCm SMI's statuses. Exports the queries that no provider offers, too.
#[macro_export]
macro_rules! shared_rocm_smi {
    () => {
        $crate::export! { rocm_smi, $crate::sys::rocm_smi::rsmi_status_t, $crate::rocm_smi::run;
            fn rsmi_status_string(
                status: $crate::sys::rocm_smi::rsmi_status_t, text: *mut *const ::std::ffi::c_char,
            ) {
                $crate::rocm_smi::put(text, $crate::rocm_smi::status_text(status)?)
            }
        }

        $crate::not_offered! {
            rocm_smi, $crate::sys::rocm_smi::rsmi_status_t,
            $crate::sys::rocm_smi::rsmi_status_t::RSMI_STATUS_NOT_SUPPORTED;
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
    };
}
