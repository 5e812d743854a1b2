// Made by sys/scripts/regenerate from ROCm's headers; do not edit.

use crate::hip::*;

impl rsmi_status_t {
    pub const RSMI_STATUS_SUCCESS: rsmi_status_t = rsmi_status_t(0);
    pub const RSMI_STATUS_INVALID_ARGS: rsmi_status_t = rsmi_status_t(1);
    pub const RSMI_STATUS_NOT_SUPPORTED: rsmi_status_t = rsmi_status_t(2);
    pub const RSMI_STATUS_FILE_ERROR: rsmi_status_t = rsmi_status_t(3);
    pub const RSMI_STATUS_PERMISSION: rsmi_status_t = rsmi_status_t(4);
    pub const RSMI_STATUS_OUT_OF_RESOURCES: rsmi_status_t = rsmi_status_t(5);
    pub const RSMI_STATUS_INTERNAL_EXCEPTION: rsmi_status_t = rsmi_status_t(6);
    pub const RSMI_STATUS_INPUT_OUT_OF_BOUNDS: rsmi_status_t = rsmi_status_t(7);
    pub const RSMI_STATUS_INIT_ERROR: rsmi_status_t = rsmi_status_t(8);
    pub const RSMI_INITIALIZATION_ERROR: rsmi_status_t = rsmi_status_t(8);
    pub const RSMI_STATUS_NOT_YET_IMPLEMENTED: rsmi_status_t = rsmi_status_t(9);
    pub const RSMI_STATUS_NOT_FOUND: rsmi_status_t = rsmi_status_t(10);
    pub const RSMI_STATUS_INSUFFICIENT_SIZE: rsmi_status_t = rsmi_status_t(11);
    pub const RSMI_STATUS_INTERRUPT: rsmi_status_t = rsmi_status_t(12);
    pub const RSMI_STATUS_UNEXPECTED_SIZE: rsmi_status_t = rsmi_status_t(13);
    pub const RSMI_STATUS_NO_DATA: rsmi_status_t = rsmi_status_t(14);
    pub const RSMI_STATUS_UNEXPECTED_DATA: rsmi_status_t = rsmi_status_t(15);
    pub const RSMI_STATUS_BUSY: rsmi_status_t = rsmi_status_t(16);
    pub const RSMI_STATUS_REFCOUNT_OVERFLOW: rsmi_status_t = rsmi_status_t(17);
    pub const RSMI_STATUS_SETTING_UNAVAILABLE: rsmi_status_t = rsmi_status_t(18);
    pub const RSMI_STATUS_AMDGPU_RESTART_ERR: rsmi_status_t = rsmi_status_t(19);
    pub const RSMI_STATUS_DRM_ERROR: rsmi_status_t = rsmi_status_t(20);
    pub const RSMI_STATUS_FAIL_LOAD_MODULE: rsmi_status_t = rsmi_status_t(21);
    pub const RSMI_STATUS_FAIL_LOAD_SYMBOL: rsmi_status_t = rsmi_status_t(22);
    pub const RSMI_STATUS_UNKNOWN_ERROR: rsmi_status_t = rsmi_status_t(4294967295);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct rsmi_status_t(pub ::core::ffi::c_uint);
impl rsmi_dev_perf_level_t {
    pub const RSMI_DEV_PERF_LEVEL_AUTO: rsmi_dev_perf_level_t = rsmi_dev_perf_level_t(0);
    pub const RSMI_DEV_PERF_LEVEL_FIRST: rsmi_dev_perf_level_t = rsmi_dev_perf_level_t(
        0,
    );
    pub const RSMI_DEV_PERF_LEVEL_LOW: rsmi_dev_perf_level_t = rsmi_dev_perf_level_t(1);
    pub const RSMI_DEV_PERF_LEVEL_HIGH: rsmi_dev_perf_level_t = rsmi_dev_perf_level_t(2);
    pub const RSMI_DEV_PERF_LEVEL_MANUAL: rsmi_dev_perf_level_t = rsmi_dev_perf_level_t(
        3,
    );
    pub const RSMI_DEV_PERF_LEVEL_STABLE_STD: rsmi_dev_perf_level_t = rsmi_dev_perf_level_t(
        4,
    );
    pub const RSMI_DEV_PERF_LEVEL_STABLE_PEAK: rsmi_dev_perf_level_t = rsmi_dev_perf_level_t(
        5,
    );
    pub const RSMI_DEV_PERF_LEVEL_STABLE_MIN_MCLK: rsmi_dev_perf_level_t = rsmi_dev_perf_level_t(
        6,
    );
    pub const RSMI_DEV_PERF_LEVEL_STABLE_MIN_SCLK: rsmi_dev_perf_level_t = rsmi_dev_perf_level_t(
        7,
    );
    pub const RSMI_DEV_PERF_LEVEL_DETERMINISM: rsmi_dev_perf_level_t = rsmi_dev_perf_level_t(
        8,
    );
    pub const RSMI_DEV_PERF_LEVEL_LAST: rsmi_dev_perf_level_t = rsmi_dev_perf_level_t(8);
    pub const RSMI_DEV_PERF_LEVEL_UNKNOWN: rsmi_dev_perf_level_t = rsmi_dev_perf_level_t(
        256,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct rsmi_dev_perf_level_t(pub ::core::ffi::c_uint);
impl rsmi_sw_component_t {
    pub const RSMI_SW_COMP_FIRST: rsmi_sw_component_t = rsmi_sw_component_t(0);
    pub const RSMI_SW_COMP_DRIVER: rsmi_sw_component_t = rsmi_sw_component_t(0);
    pub const RSMI_SW_COMP_LAST: rsmi_sw_component_t = rsmi_sw_component_t(0);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct rsmi_sw_component_t(pub ::core::ffi::c_uint);
impl rsmi_clk_type_t {
    pub const RSMI_CLK_TYPE_SYS: rsmi_clk_type_t = rsmi_clk_type_t(0);
    pub const RSMI_CLK_TYPE_FIRST: rsmi_clk_type_t = rsmi_clk_type_t(0);
    pub const RSMI_CLK_TYPE_DF: rsmi_clk_type_t = rsmi_clk_type_t(1);
    pub const RSMI_CLK_TYPE_DCEF: rsmi_clk_type_t = rsmi_clk_type_t(2);
    pub const RSMI_CLK_TYPE_SOC: rsmi_clk_type_t = rsmi_clk_type_t(3);
    pub const RSMI_CLK_TYPE_MEM: rsmi_clk_type_t = rsmi_clk_type_t(4);
    pub const RSMI_CLK_TYPE_PCIE: rsmi_clk_type_t = rsmi_clk_type_t(5);
    pub const RSMI_CLK_TYPE_LAST: rsmi_clk_type_t = rsmi_clk_type_t(4);
    pub const RSMI_CLK_INVALID: rsmi_clk_type_t = rsmi_clk_type_t(4294967295);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct rsmi_clk_type_t(pub ::core::ffi::c_uint);
impl rsmi_temperature_metric_t {
    pub const RSMI_TEMP_CURRENT: rsmi_temperature_metric_t = rsmi_temperature_metric_t(
        0,
    );
    pub const RSMI_TEMP_FIRST: rsmi_temperature_metric_t = rsmi_temperature_metric_t(0);
    pub const RSMI_TEMP_MAX: rsmi_temperature_metric_t = rsmi_temperature_metric_t(1);
    pub const RSMI_TEMP_MIN: rsmi_temperature_metric_t = rsmi_temperature_metric_t(2);
    pub const RSMI_TEMP_MAX_HYST: rsmi_temperature_metric_t = rsmi_temperature_metric_t(
        3,
    );
    pub const RSMI_TEMP_MIN_HYST: rsmi_temperature_metric_t = rsmi_temperature_metric_t(
        4,
    );
    pub const RSMI_TEMP_CRITICAL: rsmi_temperature_metric_t = rsmi_temperature_metric_t(
        5,
    );
    pub const RSMI_TEMP_CRITICAL_HYST: rsmi_temperature_metric_t = rsmi_temperature_metric_t(
        6,
    );
    pub const RSMI_TEMP_EMERGENCY: rsmi_temperature_metric_t = rsmi_temperature_metric_t(
        7,
    );
    pub const RSMI_TEMP_EMERGENCY_HYST: rsmi_temperature_metric_t = rsmi_temperature_metric_t(
        8,
    );
    pub const RSMI_TEMP_CRIT_MIN: rsmi_temperature_metric_t = rsmi_temperature_metric_t(
        9,
    );
    pub const RSMI_TEMP_CRIT_MIN_HYST: rsmi_temperature_metric_t = rsmi_temperature_metric_t(
        10,
    );
    pub const RSMI_TEMP_OFFSET: rsmi_temperature_metric_t = rsmi_temperature_metric_t(
        11,
    );
    pub const RSMI_TEMP_LOWEST: rsmi_temperature_metric_t = rsmi_temperature_metric_t(
        12,
    );
    pub const RSMI_TEMP_HIGHEST: rsmi_temperature_metric_t = rsmi_temperature_metric_t(
        13,
    );
    pub const RSMI_TEMP_LAST: rsmi_temperature_metric_t = rsmi_temperature_metric_t(13);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct rsmi_temperature_metric_t(pub ::core::ffi::c_uint);
impl rsmi_voltage_metric_t {
    pub const RSMI_VOLT_CURRENT: rsmi_voltage_metric_t = rsmi_voltage_metric_t(0);
    pub const RSMI_VOLT_FIRST: rsmi_voltage_metric_t = rsmi_voltage_metric_t(0);
    pub const RSMI_VOLT_MAX: rsmi_voltage_metric_t = rsmi_voltage_metric_t(1);
    pub const RSMI_VOLT_MIN_CRIT: rsmi_voltage_metric_t = rsmi_voltage_metric_t(2);
    pub const RSMI_VOLT_MIN: rsmi_voltage_metric_t = rsmi_voltage_metric_t(3);
    pub const RSMI_VOLT_MAX_CRIT: rsmi_voltage_metric_t = rsmi_voltage_metric_t(4);
    pub const RSMI_VOLT_AVERAGE: rsmi_voltage_metric_t = rsmi_voltage_metric_t(5);
    pub const RSMI_VOLT_LOWEST: rsmi_voltage_metric_t = rsmi_voltage_metric_t(6);
    pub const RSMI_VOLT_HIGHEST: rsmi_voltage_metric_t = rsmi_voltage_metric_t(7);
    pub const RSMI_VOLT_LAST: rsmi_voltage_metric_t = rsmi_voltage_metric_t(7);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct rsmi_voltage_metric_t(pub ::core::ffi::c_uint);
impl rsmi_voltage_type_t {
    pub const RSMI_VOLT_TYPE_FIRST: rsmi_voltage_type_t = rsmi_voltage_type_t(0);
    pub const RSMI_VOLT_TYPE_VDDGFX: rsmi_voltage_type_t = rsmi_voltage_type_t(0);
    pub const RSMI_VOLT_TYPE_VDDBOARD: rsmi_voltage_type_t = rsmi_voltage_type_t(1);
    pub const RSMI_VOLT_TYPE_LAST: rsmi_voltage_type_t = rsmi_voltage_type_t(1);
    pub const RSMI_VOLT_TYPE_INVALID: rsmi_voltage_type_t = rsmi_voltage_type_t(
        4294967295,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct rsmi_voltage_type_t(pub ::core::ffi::c_uint);
impl rsmi_gpu_block_t {
    pub const RSMI_GPU_BLOCK_INVALID: rsmi_gpu_block_t = rsmi_gpu_block_t(0);
    pub const RSMI_GPU_BLOCK_FIRST: rsmi_gpu_block_t = rsmi_gpu_block_t(1);
    pub const RSMI_GPU_BLOCK_UMC: rsmi_gpu_block_t = rsmi_gpu_block_t(1);
    pub const RSMI_GPU_BLOCK_SDMA: rsmi_gpu_block_t = rsmi_gpu_block_t(2);
    pub const RSMI_GPU_BLOCK_GFX: rsmi_gpu_block_t = rsmi_gpu_block_t(4);
    pub const RSMI_GPU_BLOCK_MMHUB: rsmi_gpu_block_t = rsmi_gpu_block_t(8);
    pub const RSMI_GPU_BLOCK_ATHUB: rsmi_gpu_block_t = rsmi_gpu_block_t(16);
    pub const RSMI_GPU_BLOCK_PCIE_BIF: rsmi_gpu_block_t = rsmi_gpu_block_t(32);
    pub const RSMI_GPU_BLOCK_HDP: rsmi_gpu_block_t = rsmi_gpu_block_t(64);
    pub const RSMI_GPU_BLOCK_XGMI_WAFL: rsmi_gpu_block_t = rsmi_gpu_block_t(128);
    pub const RSMI_GPU_BLOCK_DF: rsmi_gpu_block_t = rsmi_gpu_block_t(256);
    pub const RSMI_GPU_BLOCK_SMN: rsmi_gpu_block_t = rsmi_gpu_block_t(512);
    pub const RSMI_GPU_BLOCK_SEM: rsmi_gpu_block_t = rsmi_gpu_block_t(1024);
    pub const RSMI_GPU_BLOCK_MP0: rsmi_gpu_block_t = rsmi_gpu_block_t(2048);
    pub const RSMI_GPU_BLOCK_MP1: rsmi_gpu_block_t = rsmi_gpu_block_t(4096);
    pub const RSMI_GPU_BLOCK_FUSE: rsmi_gpu_block_t = rsmi_gpu_block_t(8192);
    pub const RSMI_GPU_BLOCK_LAST: rsmi_gpu_block_t = rsmi_gpu_block_t(8192);
    pub const RSMI_GPU_BLOCK_RESERVED: rsmi_gpu_block_t = rsmi_gpu_block_t(
        9223372036854775808,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct rsmi_gpu_block_t(pub u64);
impl rsmi_ras_err_state_t {
    pub const RSMI_RAS_ERR_STATE_NONE: rsmi_ras_err_state_t = rsmi_ras_err_state_t(0);
    pub const RSMI_RAS_ERR_STATE_DISABLED: rsmi_ras_err_state_t = rsmi_ras_err_state_t(
        1,
    );
    pub const RSMI_RAS_ERR_STATE_PARITY: rsmi_ras_err_state_t = rsmi_ras_err_state_t(2);
    pub const RSMI_RAS_ERR_STATE_SING_C: rsmi_ras_err_state_t = rsmi_ras_err_state_t(3);
    pub const RSMI_RAS_ERR_STATE_MULT_UC: rsmi_ras_err_state_t = rsmi_ras_err_state_t(4);
    pub const RSMI_RAS_ERR_STATE_POISON: rsmi_ras_err_state_t = rsmi_ras_err_state_t(5);
    pub const RSMI_RAS_ERR_STATE_ENABLED: rsmi_ras_err_state_t = rsmi_ras_err_state_t(6);
    pub const RSMI_RAS_ERR_STATE_LAST: rsmi_ras_err_state_t = rsmi_ras_err_state_t(6);
    pub const RSMI_RAS_ERR_STATE_INVALID: rsmi_ras_err_state_t = rsmi_ras_err_state_t(
        4294967295,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct rsmi_ras_err_state_t(pub ::core::ffi::c_uint);
impl rsmi_memory_type_t {
    pub const RSMI_MEM_TYPE_FIRST: rsmi_memory_type_t = rsmi_memory_type_t(0);
    pub const RSMI_MEM_TYPE_VRAM: rsmi_memory_type_t = rsmi_memory_type_t(0);
    pub const RSMI_MEM_TYPE_VIS_VRAM: rsmi_memory_type_t = rsmi_memory_type_t(1);
    pub const RSMI_MEM_TYPE_GTT: rsmi_memory_type_t = rsmi_memory_type_t(2);
    pub const RSMI_MEM_TYPE_LAST: rsmi_memory_type_t = rsmi_memory_type_t(2);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct rsmi_memory_type_t(pub ::core::ffi::c_uint);
impl rsmi_fw_block_t {
    pub const RSMI_FW_BLOCK_FIRST: rsmi_fw_block_t = rsmi_fw_block_t(0);
    pub const RSMI_FW_BLOCK_ASD: rsmi_fw_block_t = rsmi_fw_block_t(0);
    pub const RSMI_FW_BLOCK_CE: rsmi_fw_block_t = rsmi_fw_block_t(1);
    pub const RSMI_FW_BLOCK_DMCU: rsmi_fw_block_t = rsmi_fw_block_t(2);
    pub const RSMI_FW_BLOCK_MC: rsmi_fw_block_t = rsmi_fw_block_t(3);
    pub const RSMI_FW_BLOCK_ME: rsmi_fw_block_t = rsmi_fw_block_t(4);
    pub const RSMI_FW_BLOCK_MEC: rsmi_fw_block_t = rsmi_fw_block_t(5);
    pub const RSMI_FW_BLOCK_MEC2: rsmi_fw_block_t = rsmi_fw_block_t(6);
    pub const RSMI_FW_BLOCK_MES: rsmi_fw_block_t = rsmi_fw_block_t(7);
    pub const RSMI_FW_BLOCK_MES_KIQ: rsmi_fw_block_t = rsmi_fw_block_t(8);
    pub const RSMI_FW_BLOCK_PFP: rsmi_fw_block_t = rsmi_fw_block_t(9);
    pub const RSMI_FW_BLOCK_RLC: rsmi_fw_block_t = rsmi_fw_block_t(10);
    pub const RSMI_FW_BLOCK_RLC_SRLC: rsmi_fw_block_t = rsmi_fw_block_t(11);
    pub const RSMI_FW_BLOCK_RLC_SRLG: rsmi_fw_block_t = rsmi_fw_block_t(12);
    pub const RSMI_FW_BLOCK_RLC_SRLS: rsmi_fw_block_t = rsmi_fw_block_t(13);
    pub const RSMI_FW_BLOCK_SDMA: rsmi_fw_block_t = rsmi_fw_block_t(14);
    pub const RSMI_FW_BLOCK_SDMA2: rsmi_fw_block_t = rsmi_fw_block_t(15);
    pub const RSMI_FW_BLOCK_SMC: rsmi_fw_block_t = rsmi_fw_block_t(16);
    pub const RSMI_FW_BLOCK_SOS: rsmi_fw_block_t = rsmi_fw_block_t(17);
    pub const RSMI_FW_BLOCK_TA_RAS: rsmi_fw_block_t = rsmi_fw_block_t(18);
    pub const RSMI_FW_BLOCK_TA_XGMI: rsmi_fw_block_t = rsmi_fw_block_t(19);
    pub const RSMI_FW_BLOCK_UVD: rsmi_fw_block_t = rsmi_fw_block_t(20);
    pub const RSMI_FW_BLOCK_VCE: rsmi_fw_block_t = rsmi_fw_block_t(21);
    pub const RSMI_FW_BLOCK_VCN: rsmi_fw_block_t = rsmi_fw_block_t(22);
    pub const RSMI_FW_BLOCK_LAST: rsmi_fw_block_t = rsmi_fw_block_t(22);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct rsmi_fw_block_t(pub ::core::ffi::c_uint);
impl rsmi_xgmi_status_t {
    pub const RSMI_XGMI_STATUS_NO_ERRORS: rsmi_xgmi_status_t = rsmi_xgmi_status_t(0);
    pub const RSMI_XGMI_STATUS_ERROR: rsmi_xgmi_status_t = rsmi_xgmi_status_t(1);
    pub const RSMI_XGMI_STATUS_MULTIPLE_ERRORS: rsmi_xgmi_status_t = rsmi_xgmi_status_t(
        2,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct rsmi_xgmi_status_t(pub ::core::ffi::c_uint);
impl rsmi_memory_page_status_t {
    pub const RSMI_MEM_PAGE_STATUS_RESERVED: rsmi_memory_page_status_t = rsmi_memory_page_status_t(
        0,
    );
    pub const RSMI_MEM_PAGE_STATUS_PENDING: rsmi_memory_page_status_t = rsmi_memory_page_status_t(
        1,
    );
    pub const RSMI_MEM_PAGE_STATUS_UNRESERVABLE: rsmi_memory_page_status_t = rsmi_memory_page_status_t(
        2,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct rsmi_memory_page_status_t(pub ::core::ffi::c_uint);
impl _RSMI_IO_LINK_TYPE {
    pub const RSMI_IOLINK_TYPE_UNDEFINED: _RSMI_IO_LINK_TYPE = _RSMI_IO_LINK_TYPE(0);
    pub const RSMI_IOLINK_TYPE_PCIEXPRESS: _RSMI_IO_LINK_TYPE = _RSMI_IO_LINK_TYPE(1);
    pub const RSMI_IOLINK_TYPE_XGMI: _RSMI_IO_LINK_TYPE = _RSMI_IO_LINK_TYPE(2);
    pub const RSMI_IOLINK_TYPE_NUMIOLINKTYPES: _RSMI_IO_LINK_TYPE = _RSMI_IO_LINK_TYPE(
        3,
    );
    pub const RSMI_IOLINK_TYPE_SIZE: _RSMI_IO_LINK_TYPE = _RSMI_IO_LINK_TYPE(4294967295);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct _RSMI_IO_LINK_TYPE(pub ::core::ffi::c_uint);
pub use self::_RSMI_IO_LINK_TYPE as RSMI_IO_LINK_TYPE;
impl RSMI_UTILIZATION_COUNTER_TYPE {
    pub const RSMI_UTILIZATION_COUNTER_FIRST: RSMI_UTILIZATION_COUNTER_TYPE = RSMI_UTILIZATION_COUNTER_TYPE(
        0,
    );
    pub const RSMI_COARSE_GRAIN_GFX_ACTIVITY: RSMI_UTILIZATION_COUNTER_TYPE = RSMI_UTILIZATION_COUNTER_TYPE(
        0,
    );
    pub const RSMI_COARSE_GRAIN_MEM_ACTIVITY: RSMI_UTILIZATION_COUNTER_TYPE = RSMI_UTILIZATION_COUNTER_TYPE(
        1,
    );
    pub const RSMI_UTILIZATION_COUNTER_LAST: RSMI_UTILIZATION_COUNTER_TYPE = RSMI_UTILIZATION_COUNTER_TYPE(
        1,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct RSMI_UTILIZATION_COUNTER_TYPE(pub ::core::ffi::c_uint);
impl RSMI_POWER_TYPE {
    pub const RSMI_AVERAGE_POWER: RSMI_POWER_TYPE = RSMI_POWER_TYPE(0);
    pub const RSMI_CURRENT_POWER: RSMI_POWER_TYPE = RSMI_POWER_TYPE(1);
    pub const RSMI_INVALID_POWER: RSMI_POWER_TYPE = RSMI_POWER_TYPE(4294967295);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct RSMI_POWER_TYPE(pub ::core::ffi::c_uint);
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct rsmi_utilization_counter_t {
    pub type_: RSMI_UTILIZATION_COUNTER_TYPE,
    pub value: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of rsmi_utilization_counter_t",
    ][::core::mem::size_of::<rsmi_utilization_counter_t>() - 16usize];
    [
        "Alignment of rsmi_utilization_counter_t",
    ][::core::mem::align_of::<rsmi_utilization_counter_t>() - 8usize];
    [
        "Offset of field: rsmi_utilization_counter_t::type_",
    ][::core::mem::offset_of!(rsmi_utilization_counter_t, type_) - 0usize];
    [
        "Offset of field: rsmi_utilization_counter_t::value",
    ][::core::mem::offset_of!(rsmi_utilization_counter_t, value) - 8usize];
};
impl Default for rsmi_utilization_counter_t {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct rsmi_retired_page_record_t {
    pub page_address: u64,
    pub page_size: u64,
    pub status: rsmi_memory_page_status_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of rsmi_retired_page_record_t",
    ][::core::mem::size_of::<rsmi_retired_page_record_t>() - 24usize];
    [
        "Alignment of rsmi_retired_page_record_t",
    ][::core::mem::align_of::<rsmi_retired_page_record_t>() - 8usize];
    [
        "Offset of field: rsmi_retired_page_record_t::page_address",
    ][::core::mem::offset_of!(rsmi_retired_page_record_t, page_address) - 0usize];
    [
        "Offset of field: rsmi_retired_page_record_t::page_size",
    ][::core::mem::offset_of!(rsmi_retired_page_record_t, page_size) - 8usize];
    [
        "Offset of field: rsmi_retired_page_record_t::status",
    ][::core::mem::offset_of!(rsmi_retired_page_record_t, status) - 16usize];
};
impl Default for rsmi_retired_page_record_t {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct rsmi_frequencies_t {
    pub has_deep_sleep: bool,
    pub num_supported: u32,
    pub current: u32,
    pub frequency: [u64; 33usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of rsmi_frequencies_t",
    ][::core::mem::size_of::<rsmi_frequencies_t>() - 280usize];
    [
        "Alignment of rsmi_frequencies_t",
    ][::core::mem::align_of::<rsmi_frequencies_t>() - 8usize];
    [
        "Offset of field: rsmi_frequencies_t::has_deep_sleep",
    ][::core::mem::offset_of!(rsmi_frequencies_t, has_deep_sleep) - 0usize];
    [
        "Offset of field: rsmi_frequencies_t::num_supported",
    ][::core::mem::offset_of!(rsmi_frequencies_t, num_supported) - 4usize];
    [
        "Offset of field: rsmi_frequencies_t::current",
    ][::core::mem::offset_of!(rsmi_frequencies_t, current) - 8usize];
    [
        "Offset of field: rsmi_frequencies_t::frequency",
    ][::core::mem::offset_of!(rsmi_frequencies_t, frequency) - 16usize];
};
impl Default for rsmi_frequencies_t {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct rsmi_pcie_bandwidth_t {
    pub transfer_rate: rsmi_frequencies_t,
    pub lanes: [u32; 33usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of rsmi_pcie_bandwidth_t",
    ][::core::mem::size_of::<rsmi_pcie_bandwidth_t>() - 416usize];
    [
        "Alignment of rsmi_pcie_bandwidth_t",
    ][::core::mem::align_of::<rsmi_pcie_bandwidth_t>() - 8usize];
    [
        "Offset of field: rsmi_pcie_bandwidth_t::transfer_rate",
    ][::core::mem::offset_of!(rsmi_pcie_bandwidth_t, transfer_rate) - 0usize];
    [
        "Offset of field: rsmi_pcie_bandwidth_t::lanes",
    ][::core::mem::offset_of!(rsmi_pcie_bandwidth_t, lanes) - 280usize];
};
impl Default for rsmi_pcie_bandwidth_t {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct rsmi_version_t {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
    pub build: *const ::core::ffi::c_char,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of rsmi_version_t"][::core::mem::size_of::<rsmi_version_t>() - 24usize];
    ["Alignment of rsmi_version_t"][::core::mem::align_of::<rsmi_version_t>() - 8usize];
    [
        "Offset of field: rsmi_version_t::major",
    ][::core::mem::offset_of!(rsmi_version_t, major) - 0usize];
    [
        "Offset of field: rsmi_version_t::minor",
    ][::core::mem::offset_of!(rsmi_version_t, minor) - 4usize];
    [
        "Offset of field: rsmi_version_t::patch",
    ][::core::mem::offset_of!(rsmi_version_t, patch) - 8usize];
    [
        "Offset of field: rsmi_version_t::build",
    ][::core::mem::offset_of!(rsmi_version_t, build) - 16usize];
};
impl Default for rsmi_version_t {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct rsmi_error_count_t {
    pub correctable_err: u64,
    pub uncorrectable_err: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of rsmi_error_count_t",
    ][::core::mem::size_of::<rsmi_error_count_t>() - 16usize];
    [
        "Alignment of rsmi_error_count_t",
    ][::core::mem::align_of::<rsmi_error_count_t>() - 8usize];
    [
        "Offset of field: rsmi_error_count_t::correctable_err",
    ][::core::mem::offset_of!(rsmi_error_count_t, correctable_err) - 0usize];
    [
        "Offset of field: rsmi_error_count_t::uncorrectable_err",
    ][::core::mem::offset_of!(rsmi_error_count_t, uncorrectable_err) - 8usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct rsmi_process_info_t {
    pub process_id: u32,
    pub pasid: u32,
    pub vram_usage: u64,
    pub sdma_usage: u64,
    pub cu_occupancy: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of rsmi_process_info_t",
    ][::core::mem::size_of::<rsmi_process_info_t>() - 32usize];
    [
        "Alignment of rsmi_process_info_t",
    ][::core::mem::align_of::<rsmi_process_info_t>() - 8usize];
    [
        "Offset of field: rsmi_process_info_t::process_id",
    ][::core::mem::offset_of!(rsmi_process_info_t, process_id) - 0usize];
    [
        "Offset of field: rsmi_process_info_t::pasid",
    ][::core::mem::offset_of!(rsmi_process_info_t, pasid) - 4usize];
    [
        "Offset of field: rsmi_process_info_t::vram_usage",
    ][::core::mem::offset_of!(rsmi_process_info_t, vram_usage) - 8usize];
    [
        "Offset of field: rsmi_process_info_t::sdma_usage",
    ][::core::mem::offset_of!(rsmi_process_info_t, sdma_usage) - 16usize];
    [
        "Offset of field: rsmi_process_info_t::cu_occupancy",
    ][::core::mem::offset_of!(rsmi_process_info_t, cu_occupancy) - 24usize];
};
crate::table::table! {
    RocmSmi;
    pub fn rsmi_init(init_flags: u64) -> rsmi_status_t;
    pub fn rsmi_shut_down() -> rsmi_status_t;
    pub fn rsmi_num_monitor_devices(num_devices: *mut u32) -> rsmi_status_t;
    pub fn rsmi_dev_id_get(dv_ind: u32, id: *mut u16) -> rsmi_status_t;
    pub fn rsmi_dev_revision_get(dv_ind: u32, revision: *mut u16) -> rsmi_status_t;
    pub fn rsmi_dev_name_get(
        dv_ind: u32,
        name: *mut ::core::ffi::c_char,
        len: usize,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_brand_get(
        dv_ind: u32,
        brand: *mut ::core::ffi::c_char,
        len: u32,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_vendor_name_get(
        dv_ind: u32,
        name: *mut ::core::ffi::c_char,
        len: usize,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_market_name_get(
        dv_ind: u32,
        market_name: *mut ::core::ffi::c_char,
        len: u32,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_vram_vendor_get(
        dv_ind: u32,
        brand: *mut ::core::ffi::c_char,
        len: u32,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_serial_number_get(
        dv_ind: u32,
        serial_num: *mut ::core::ffi::c_char,
        len: u32,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_subsystem_id_get(dv_ind: u32, id: *mut u16) -> rsmi_status_t;
    pub fn rsmi_dev_subsystem_name_get(
        dv_ind: u32,
        name: *mut ::core::ffi::c_char,
        len: usize,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_drm_render_minor_get(dv_ind: u32, minor: *mut u32) -> rsmi_status_t;
    pub fn rsmi_dev_unique_id_get(dv_ind: u32, id: *mut u64) -> rsmi_status_t;
    pub fn rsmi_dev_xgmi_physical_id_get(dv_ind: u32, id: *mut u16) -> rsmi_status_t;
    pub fn rsmi_dev_guid_get(dv_ind: u32, guid: *mut u64) -> rsmi_status_t;
    pub fn rsmi_dev_node_id_get(dv_ind: u32, node_id: *mut u32) -> rsmi_status_t;
    pub fn rsmi_dev_pci_bandwidth_get(
        dv_ind: u32,
        bandwidth: *mut rsmi_pcie_bandwidth_t,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_pci_id_get(dv_ind: u32, bdfid: *mut u64) -> rsmi_status_t;
    pub fn rsmi_topo_numa_affinity_get(
        dv_ind: u32,
        numa_node: *mut i32,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_pci_throughput_get(
        dv_ind: u32,
        sent: *mut u64,
        received: *mut u64,
        max_pkt_sz: *mut u64,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_pci_replay_counter_get(
        dv_ind: u32,
        counter: *mut u64,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_power_ave_get(
        dv_ind: u32,
        sensor_ind: u32,
        power: *mut u64,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_current_socket_power_get(
        dv_ind: u32,
        socket_power: *mut u64,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_power_get(
        dv_ind: u32,
        power: *mut u64,
        type_: *mut RSMI_POWER_TYPE,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_energy_count_get(
        dv_ind: u32,
        power: *mut u64,
        counter_resolution: *mut f32,
        timestamp: *mut u64,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_power_cap_get(
        dv_ind: u32,
        sensor_ind: u32,
        cap: *mut u64,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_power_cap_default_get(
        dv_ind: u32,
        default_cap: *mut u64,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_power_cap_range_get(
        dv_ind: u32,
        sensor_ind: u32,
        max: *mut u64,
        min: *mut u64,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_memory_total_get(
        dv_ind: u32,
        mem_type: rsmi_memory_type_t,
        total: *mut u64,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_memory_usage_get(
        dv_ind: u32,
        mem_type: rsmi_memory_type_t,
        used: *mut u64,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_memory_busy_percent_get(
        dv_ind: u32,
        busy_percent: *mut u32,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_memory_reserved_pages_get(
        dv_ind: u32,
        num_pages: *mut u32,
        records: *mut rsmi_retired_page_record_t,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_fan_rpms_get(
        dv_ind: u32,
        sensor_ind: u32,
        speed: *mut i64,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_fan_speed_get(
        dv_ind: u32,
        sensor_ind: u32,
        speed: *mut i64,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_fan_speed_max_get(
        dv_ind: u32,
        sensor_ind: u32,
        max_speed: *mut u64,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_temp_metric_get(
        dv_ind: u32,
        sensor_type: u32,
        metric: rsmi_temperature_metric_t,
        temperature: *mut i64,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_volt_metric_get(
        dv_ind: u32,
        sensor_type: rsmi_voltage_type_t,
        metric: rsmi_voltage_metric_t,
        voltage: *mut i64,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_busy_percent_get(
        dv_ind: u32,
        busy_percent: *mut u32,
    ) -> rsmi_status_t;
    pub fn rsmi_utilization_count_get(
        dv_ind: u32,
        utilization_counters: *mut rsmi_utilization_counter_t,
        count: u32,
        timestamp: *mut u64,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_perf_level_get(
        dv_ind: u32,
        perf: *mut rsmi_dev_perf_level_t,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_gpu_clk_freq_get(
        dv_ind: u32,
        clk_type: rsmi_clk_type_t,
        f: *mut rsmi_frequencies_t,
    ) -> rsmi_status_t;
    pub fn rsmi_version_get(version: *mut rsmi_version_t) -> rsmi_status_t;
    pub fn rsmi_version_str_get(
        component: rsmi_sw_component_t,
        ver_str: *mut ::core::ffi::c_char,
        len: u32,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_vbios_version_get(
        dv_ind: u32,
        vbios: *mut ::core::ffi::c_char,
        len: u32,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_firmware_version_get(
        dv_ind: u32,
        block: rsmi_fw_block_t,
        fw_version: *mut u64,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_target_graphics_version_get(
        dv_ind: u32,
        gfx_version: *mut u64,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_ecc_count_get(
        dv_ind: u32,
        block: rsmi_gpu_block_t,
        ec: *mut rsmi_error_count_t,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_ecc_enabled_get(
        dv_ind: u32,
        enabled_blocks: *mut u64,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_ecc_status_get(
        dv_ind: u32,
        block: rsmi_gpu_block_t,
        state: *mut rsmi_ras_err_state_t,
    ) -> rsmi_status_t;
    pub fn rsmi_status_string(
        status: rsmi_status_t,
        status_string: *mut *const ::core::ffi::c_char,
    ) -> rsmi_status_t;
    pub fn rsmi_compute_process_info_get(
        procs: *mut rsmi_process_info_t,
        num_items: *mut u32,
    ) -> rsmi_status_t;
    pub fn rsmi_compute_process_info_by_pid_get(
        pid: u32,
        proc_: *mut rsmi_process_info_t,
    ) -> rsmi_status_t;
    pub fn rsmi_compute_process_gpus_get(
        pid: u32,
        dv_indices: *mut u32,
        num_devices: *mut u32,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_xgmi_error_status(
        dv_ind: u32,
        status: *mut rsmi_xgmi_status_t,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_xgmi_hive_id_get(dv_ind: u32, hive_id: *mut u64) -> rsmi_status_t;
    pub fn rsmi_topo_get_numa_node_number(
        dv_ind: u32,
        numa_node: *mut u32,
    ) -> rsmi_status_t;
    pub fn rsmi_topo_get_link_weight(
        dv_ind_src: u32,
        dv_ind_dst: u32,
        weight: *mut u64,
    ) -> rsmi_status_t;
    pub fn rsmi_minmax_bandwidth_get(
        dv_ind_src: u32,
        dv_ind_dst: u32,
        min_bandwidth: *mut u64,
        max_bandwidth: *mut u64,
    ) -> rsmi_status_t;
    pub fn rsmi_topo_get_link_type(
        dv_ind_src: u32,
        dv_ind_dst: u32,
        hops: *mut u64,
        type_: *mut RSMI_IO_LINK_TYPE,
    ) -> rsmi_status_t;
    pub fn rsmi_is_P2P_accessible(
        dv_ind_src: u32,
        dv_ind_dst: u32,
        accessible: *mut bool,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_compute_partition_get(
        dv_ind: u32,
        compute_partition: *mut ::core::ffi::c_char,
        len: u32,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_partition_id_get(
        dv_ind: u32,
        partition_id: *mut u32,
    ) -> rsmi_status_t;
    pub fn rsmi_dev_memory_partition_get(
        dv_ind: u32,
        memory_partition: *mut ::core::ffi::c_char,
        len: u32,
    ) -> rsmi_status_t;
}
crate::status::status! {
    rsmi_status_t, success: RSMI_STATUS_SUCCESS;
    RSMI_STATUS_SUCCESS,
    RSMI_STATUS_INVALID_ARGS,
    RSMI_STATUS_NOT_SUPPORTED,
    RSMI_STATUS_FILE_ERROR,
    RSMI_STATUS_PERMISSION,
    RSMI_STATUS_OUT_OF_RESOURCES,
    RSMI_STATUS_INTERNAL_EXCEPTION,
    RSMI_STATUS_INPUT_OUT_OF_BOUNDS,
    RSMI_STATUS_INIT_ERROR,
    RSMI_INITIALIZATION_ERROR,
    RSMI_STATUS_NOT_YET_IMPLEMENTED,
    RSMI_STATUS_NOT_FOUND,
    RSMI_STATUS_INSUFFICIENT_SIZE,
    RSMI_STATUS_INTERRUPT,
    RSMI_STATUS_UNEXPECTED_SIZE,
    RSMI_STATUS_NO_DATA,
    RSMI_STATUS_UNEXPECTED_DATA,
    RSMI_STATUS_BUSY,
    RSMI_STATUS_REFCOUNT_OVERFLOW,
    RSMI_STATUS_SETTING_UNAVAILABLE,
    RSMI_STATUS_AMDGPU_RESTART_ERR,
    RSMI_STATUS_DRM_ERROR,
    RSMI_STATUS_FAIL_LOAD_MODULE,
    RSMI_STATUS_FAIL_LOAD_SYMBOL,
    RSMI_STATUS_UNKNOWN_ERROR,
}
