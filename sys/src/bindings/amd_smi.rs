// Made by sys/scripts/regenerate from ROCm's headers; do not edit.

use crate::hip::*;

impl amdsmi_init_flags_t {
    pub const AMDSMI_INIT_ALL_PROCESSORS: amdsmi_init_flags_t = amdsmi_init_flags_t(
        4294967295,
    );
    pub const AMDSMI_INIT_AMD_CPUS: amdsmi_init_flags_t = amdsmi_init_flags_t(1);
    pub const AMDSMI_INIT_AMD_GPUS: amdsmi_init_flags_t = amdsmi_init_flags_t(2);
    pub const AMDSMI_INIT_NON_AMD_CPUS: amdsmi_init_flags_t = amdsmi_init_flags_t(4);
    pub const AMDSMI_INIT_NON_AMD_GPUS: amdsmi_init_flags_t = amdsmi_init_flags_t(8);
    pub const AMDSMI_INIT_AMD_APUS: amdsmi_init_flags_t = amdsmi_init_flags_t(3);
    pub const AMDSMI_INIT_AMD_NICS: amdsmi_init_flags_t = amdsmi_init_flags_t(16);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct amdsmi_init_flags_t(pub ::core::ffi::c_uint);
pub type amdsmi_processor_handle = *mut ::core::ffi::c_void;
pub type amdsmi_socket_handle = *mut ::core::ffi::c_void;
impl amdsmi_status_t {
    pub const AMDSMI_STATUS_SUCCESS: amdsmi_status_t = amdsmi_status_t(0);
    pub const AMDSMI_STATUS_INVAL: amdsmi_status_t = amdsmi_status_t(1);
    pub const AMDSMI_STATUS_NOT_SUPPORTED: amdsmi_status_t = amdsmi_status_t(2);
    pub const AMDSMI_STATUS_NOT_YET_IMPLEMENTED: amdsmi_status_t = amdsmi_status_t(3);
    pub const AMDSMI_STATUS_FAIL_LOAD_MODULE: amdsmi_status_t = amdsmi_status_t(4);
    pub const AMDSMI_STATUS_FAIL_LOAD_SYMBOL: amdsmi_status_t = amdsmi_status_t(5);
    pub const AMDSMI_STATUS_DRM_ERROR: amdsmi_status_t = amdsmi_status_t(6);
    pub const AMDSMI_STATUS_API_FAILED: amdsmi_status_t = amdsmi_status_t(7);
    pub const AMDSMI_STATUS_TIMEOUT: amdsmi_status_t = amdsmi_status_t(8);
    pub const AMDSMI_STATUS_RETRY: amdsmi_status_t = amdsmi_status_t(9);
    pub const AMDSMI_STATUS_NO_PERM: amdsmi_status_t = amdsmi_status_t(10);
    pub const AMDSMI_STATUS_INTERRUPT: amdsmi_status_t = amdsmi_status_t(11);
    pub const AMDSMI_STATUS_IO: amdsmi_status_t = amdsmi_status_t(12);
    pub const AMDSMI_STATUS_ADDRESS_FAULT: amdsmi_status_t = amdsmi_status_t(13);
    pub const AMDSMI_STATUS_FILE_ERROR: amdsmi_status_t = amdsmi_status_t(14);
    pub const AMDSMI_STATUS_OUT_OF_RESOURCES: amdsmi_status_t = amdsmi_status_t(15);
    pub const AMDSMI_STATUS_INTERNAL_EXCEPTION: amdsmi_status_t = amdsmi_status_t(16);
    pub const AMDSMI_STATUS_INPUT_OUT_OF_BOUNDS: amdsmi_status_t = amdsmi_status_t(17);
    pub const AMDSMI_STATUS_INIT_ERROR: amdsmi_status_t = amdsmi_status_t(18);
    pub const AMDSMI_STATUS_REFCOUNT_OVERFLOW: amdsmi_status_t = amdsmi_status_t(19);
    pub const AMDSMI_STATUS_DIRECTORY_NOT_FOUND: amdsmi_status_t = amdsmi_status_t(20);
    pub const AMDSMI_STATUS_IPC_ERROR: amdsmi_status_t = amdsmi_status_t(21);
    pub const AMDSMI_STATUS_BUSY: amdsmi_status_t = amdsmi_status_t(30);
    pub const AMDSMI_STATUS_NOT_FOUND: amdsmi_status_t = amdsmi_status_t(31);
    pub const AMDSMI_STATUS_NOT_INIT: amdsmi_status_t = amdsmi_status_t(32);
    pub const AMDSMI_STATUS_NO_SLOT: amdsmi_status_t = amdsmi_status_t(33);
    pub const AMDSMI_STATUS_DRIVER_NOT_LOADED: amdsmi_status_t = amdsmi_status_t(34);
    pub const AMDSMI_STATUS_MORE_DATA: amdsmi_status_t = amdsmi_status_t(39);
    pub const AMDSMI_STATUS_NO_DATA: amdsmi_status_t = amdsmi_status_t(40);
    pub const AMDSMI_STATUS_INSUFFICIENT_SIZE: amdsmi_status_t = amdsmi_status_t(41);
    pub const AMDSMI_STATUS_UNEXPECTED_SIZE: amdsmi_status_t = amdsmi_status_t(42);
    pub const AMDSMI_STATUS_UNEXPECTED_DATA: amdsmi_status_t = amdsmi_status_t(43);
    pub const AMDSMI_STATUS_NON_AMD_CPU: amdsmi_status_t = amdsmi_status_t(44);
    pub const AMDSMI_STATUS_NO_ENERGY_DRV: amdsmi_status_t = amdsmi_status_t(45);
    pub const AMDSMI_STATUS_NO_MSR_DRV: amdsmi_status_t = amdsmi_status_t(46);
    pub const AMDSMI_STATUS_NO_HSMP_DRV: amdsmi_status_t = amdsmi_status_t(47);
    pub const AMDSMI_STATUS_NO_HSMP_SUP: amdsmi_status_t = amdsmi_status_t(48);
    pub const AMDSMI_STATUS_NO_HSMP_MSG_SUP: amdsmi_status_t = amdsmi_status_t(49);
    pub const AMDSMI_STATUS_HSMP_TIMEOUT: amdsmi_status_t = amdsmi_status_t(50);
    pub const AMDSMI_STATUS_NO_DRV: amdsmi_status_t = amdsmi_status_t(51);
    pub const AMDSMI_STATUS_FILE_NOT_FOUND: amdsmi_status_t = amdsmi_status_t(52);
    pub const AMDSMI_STATUS_ARG_PTR_NULL: amdsmi_status_t = amdsmi_status_t(53);
    pub const AMDSMI_STATUS_AMDGPU_RESTART_ERR: amdsmi_status_t = amdsmi_status_t(54);
    pub const AMDSMI_STATUS_SETTING_UNAVAILABLE: amdsmi_status_t = amdsmi_status_t(55);
    pub const AMDSMI_STATUS_CORRUPTED_EEPROM: amdsmi_status_t = amdsmi_status_t(56);
    pub const AMDSMI_STATUS_MAP_ERROR: amdsmi_status_t = amdsmi_status_t(4294967294);
    pub const AMDSMI_STATUS_UNKNOWN_ERROR: amdsmi_status_t = amdsmi_status_t(4294967295);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct amdsmi_status_t(pub ::core::ffi::c_uint);
impl amdsmi_clk_type_t {
    pub const AMDSMI_CLK_TYPE_SYS: amdsmi_clk_type_t = amdsmi_clk_type_t(0);
    pub const AMDSMI_CLK_TYPE_FIRST: amdsmi_clk_type_t = amdsmi_clk_type_t(0);
    pub const AMDSMI_CLK_TYPE_GFX: amdsmi_clk_type_t = amdsmi_clk_type_t(0);
    pub const AMDSMI_CLK_TYPE_DF: amdsmi_clk_type_t = amdsmi_clk_type_t(1);
    pub const AMDSMI_CLK_TYPE_DCEF: amdsmi_clk_type_t = amdsmi_clk_type_t(2);
    pub const AMDSMI_CLK_TYPE_SOC: amdsmi_clk_type_t = amdsmi_clk_type_t(3);
    pub const AMDSMI_CLK_TYPE_MEM: amdsmi_clk_type_t = amdsmi_clk_type_t(4);
    pub const AMDSMI_CLK_TYPE_PCIE: amdsmi_clk_type_t = amdsmi_clk_type_t(5);
    pub const AMDSMI_CLK_TYPE_VCLK0: amdsmi_clk_type_t = amdsmi_clk_type_t(6);
    pub const AMDSMI_CLK_TYPE_VCLK1: amdsmi_clk_type_t = amdsmi_clk_type_t(7);
    pub const AMDSMI_CLK_TYPE_DCLK0: amdsmi_clk_type_t = amdsmi_clk_type_t(8);
    pub const AMDSMI_CLK_TYPE_DCLK1: amdsmi_clk_type_t = amdsmi_clk_type_t(9);
    pub const AMDSMI_CLK_TYPE__MAX: amdsmi_clk_type_t = amdsmi_clk_type_t(9);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct amdsmi_clk_type_t(pub ::core::ffi::c_uint);
impl amdsmi_temperature_type_t {
    pub const AMDSMI_TEMPERATURE_TYPE_EDGE: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        0,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_FIRST: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        0,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_HOTSPOT: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        1,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_JUNCTION: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        1,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_VRAM: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        2,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_HBM_0: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        3,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_HBM_1: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        4,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_HBM_2: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        5,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_HBM_3: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        6,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_PLX: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        7,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_NODE_FIRST: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        100,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_NODE_RETIMER_X: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        100,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_NODE_OAM_X_IBC: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        101,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_NODE_OAM_X_IBC_2: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        102,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_NODE_OAM_X_VDD18_VR: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        103,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_NODE_OAM_X_04_HBM_B_VR: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        104,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_NODE_OAM_X_04_HBM_D_VR: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        105,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_NODE_LAST: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        149,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VR_FIRST: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        150,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDCR_VDD0: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        150,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDCR_VDD1: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        151,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDCR_VDD2: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        152,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDCR_VDD3: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        153,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDCR_SOC_A: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        154,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDCR_SOC_C: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        155,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDCR_SOCIO_A: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        156,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDCR_SOCIO_C: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        157,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDD_085_HBM: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        158,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDCR_11_HBM_B: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        159,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDCR_11_HBM_D: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        160,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDD_USR: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        161,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDIO_11_E32: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        162,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDIO_04_HBM_B: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        163,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDIO_04_HBM_D: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        164,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDCR_075_HBM_B: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        165,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDCR_075_HBM_D: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        166,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDIO_11_GTA_A: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        167,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDIO_11_GTA_C: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        168,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDAN_075_GTA_A: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        169,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDAN_075_GTA_C: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        170,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDCR_075_UCIE: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        171,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDIO_065_UCIEAA: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        172,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDIO_065_UCIEAM_A: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        173,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDIO_065_UCIEAM_C: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        174,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDAN_075: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        175,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VR_LAST: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        199,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_LAST: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        175,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_FIRST: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        200,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_UBB_FPGA: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        200,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_UBB_FRONT: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        201,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_UBB_BACK: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        202,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_UBB_OAM7: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        203,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_UBB_IBC: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        204,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_UBB_UFPGA: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        205,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_UBB_OAM1: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        206,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_OAM_0_1_HSC: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        207,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_OAM_2_3_HSC: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        208,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_OAM_4_5_HSC: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        209,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_OAM_6_7_HSC: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        210,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_UBB_FPGA_0V72_VR: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        211,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_UBB_FPGA_3V3_VR: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        212,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_RETIMER_0_1_2_3_1V2_VR: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        213,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_RETIMER_4_5_6_7_1V2_VR: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        214,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_RETIMER_0_1_0V9_VR: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        215,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_RETIMER_4_5_0V9_VR: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        216,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_RETIMER_2_3_0V9_VR: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        217,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_RETIMER_6_7_0V9_VR: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        218,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_OAM_0_1_2_3_3V3_VR: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        219,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_OAM_4_5_6_7_3V3_VR: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        220,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_IBC_HSC: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        221,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_IBC: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        222,
    );
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_LAST: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        249,
    );
    pub const AMDSMI_TEMPERATURE_TYPE__MAX: amdsmi_temperature_type_t = amdsmi_temperature_type_t(
        249,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct amdsmi_temperature_type_t(pub ::core::ffi::c_uint);
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct amdsmi_xgmi_info_t {
    pub xgmi_lanes: u8,
    pub xgmi_hive_id: u64,
    pub xgmi_node_id: u64,
    pub index: u32,
    pub reserved: [u32; 9usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of amdsmi_xgmi_info_t",
    ][::core::mem::size_of::<amdsmi_xgmi_info_t>() - 64usize];
    [
        "Alignment of amdsmi_xgmi_info_t",
    ][::core::mem::align_of::<amdsmi_xgmi_info_t>() - 8usize];
    [
        "Offset of field: amdsmi_xgmi_info_t::xgmi_lanes",
    ][::core::mem::offset_of!(amdsmi_xgmi_info_t, xgmi_lanes) - 0usize];
    [
        "Offset of field: amdsmi_xgmi_info_t::xgmi_hive_id",
    ][::core::mem::offset_of!(amdsmi_xgmi_info_t, xgmi_hive_id) - 8usize];
    [
        "Offset of field: amdsmi_xgmi_info_t::xgmi_node_id",
    ][::core::mem::offset_of!(amdsmi_xgmi_info_t, xgmi_node_id) - 16usize];
    [
        "Offset of field: amdsmi_xgmi_info_t::index",
    ][::core::mem::offset_of!(amdsmi_xgmi_info_t, index) - 24usize];
    [
        "Offset of field: amdsmi_xgmi_info_t::reserved",
    ][::core::mem::offset_of!(amdsmi_xgmi_info_t, reserved) - 28usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct amdsmi_asic_info_t {
    pub market_name: [::core::ffi::c_char; 256usize],
    pub vendor_id: u32,
    pub vendor_name: [::core::ffi::c_char; 256usize],
    pub subvendor_id: u32,
    pub device_id: u64,
    pub rev_id: u32,
    pub asic_serial: [::core::ffi::c_char; 256usize],
    pub oam_id: u32,
    pub num_of_compute_units: u32,
    pub target_graphics_version: u64,
    pub subsystem_id: u32,
    pub flags: u64,
    pub physical_acc_id: u32,
    pub chip_rev_id: u32,
    pub external_rev_id: u32,
    pub reserved: [u32; 15usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of amdsmi_asic_info_t",
    ][::core::mem::size_of::<amdsmi_asic_info_t>() - 896usize];
    [
        "Alignment of amdsmi_asic_info_t",
    ][::core::mem::align_of::<amdsmi_asic_info_t>() - 8usize];
    [
        "Offset of field: amdsmi_asic_info_t::market_name",
    ][::core::mem::offset_of!(amdsmi_asic_info_t, market_name) - 0usize];
    [
        "Offset of field: amdsmi_asic_info_t::vendor_id",
    ][::core::mem::offset_of!(amdsmi_asic_info_t, vendor_id) - 256usize];
    [
        "Offset of field: amdsmi_asic_info_t::vendor_name",
    ][::core::mem::offset_of!(amdsmi_asic_info_t, vendor_name) - 260usize];
    [
        "Offset of field: amdsmi_asic_info_t::subvendor_id",
    ][::core::mem::offset_of!(amdsmi_asic_info_t, subvendor_id) - 516usize];
    [
        "Offset of field: amdsmi_asic_info_t::device_id",
    ][::core::mem::offset_of!(amdsmi_asic_info_t, device_id) - 520usize];
    [
        "Offset of field: amdsmi_asic_info_t::rev_id",
    ][::core::mem::offset_of!(amdsmi_asic_info_t, rev_id) - 528usize];
    [
        "Offset of field: amdsmi_asic_info_t::asic_serial",
    ][::core::mem::offset_of!(amdsmi_asic_info_t, asic_serial) - 532usize];
    [
        "Offset of field: amdsmi_asic_info_t::oam_id",
    ][::core::mem::offset_of!(amdsmi_asic_info_t, oam_id) - 788usize];
    [
        "Offset of field: amdsmi_asic_info_t::num_of_compute_units",
    ][::core::mem::offset_of!(amdsmi_asic_info_t, num_of_compute_units) - 792usize];
    [
        "Offset of field: amdsmi_asic_info_t::target_graphics_version",
    ][::core::mem::offset_of!(amdsmi_asic_info_t, target_graphics_version) - 800usize];
    [
        "Offset of field: amdsmi_asic_info_t::subsystem_id",
    ][::core::mem::offset_of!(amdsmi_asic_info_t, subsystem_id) - 808usize];
    [
        "Offset of field: amdsmi_asic_info_t::flags",
    ][::core::mem::offset_of!(amdsmi_asic_info_t, flags) - 816usize];
    [
        "Offset of field: amdsmi_asic_info_t::physical_acc_id",
    ][::core::mem::offset_of!(amdsmi_asic_info_t, physical_acc_id) - 824usize];
    [
        "Offset of field: amdsmi_asic_info_t::chip_rev_id",
    ][::core::mem::offset_of!(amdsmi_asic_info_t, chip_rev_id) - 828usize];
    [
        "Offset of field: amdsmi_asic_info_t::external_rev_id",
    ][::core::mem::offset_of!(amdsmi_asic_info_t, external_rev_id) - 832usize];
    [
        "Offset of field: amdsmi_asic_info_t::reserved",
    ][::core::mem::offset_of!(amdsmi_asic_info_t, reserved) - 836usize];
};
impl Default for amdsmi_asic_info_t {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
impl amdsmi_link_type_t {
    pub const AMDSMI_LINK_TYPE_INTERNAL: amdsmi_link_type_t = amdsmi_link_type_t(0);
    pub const AMDSMI_LINK_TYPE_PCIE: amdsmi_link_type_t = amdsmi_link_type_t(1);
    pub const AMDSMI_LINK_TYPE_XGMI: amdsmi_link_type_t = amdsmi_link_type_t(2);
    pub const AMDSMI_LINK_TYPE_NOT_APPLICABLE: amdsmi_link_type_t = amdsmi_link_type_t(
        3,
    );
    pub const AMDSMI_LINK_TYPE_UNKNOWN: amdsmi_link_type_t = amdsmi_link_type_t(4);
    pub const AMDSMI_LINK_TYPE_NUMA: amdsmi_link_type_t = amdsmi_link_type_t(5);
    pub const AMDSMI_LINK_TYPE_XNUMA: amdsmi_link_type_t = amdsmi_link_type_t(6);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct amdsmi_link_type_t(pub ::core::ffi::c_uint);
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct amdsmi_driver_info_t {
    pub driver_version: [::core::ffi::c_char; 256usize],
    pub driver_date: [::core::ffi::c_char; 256usize],
    pub driver_name: [::core::ffi::c_char; 256usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of amdsmi_driver_info_t",
    ][::core::mem::size_of::<amdsmi_driver_info_t>() - 768usize];
    [
        "Alignment of amdsmi_driver_info_t",
    ][::core::mem::align_of::<amdsmi_driver_info_t>() - 1usize];
    [
        "Offset of field: amdsmi_driver_info_t::driver_version",
    ][::core::mem::offset_of!(amdsmi_driver_info_t, driver_version) - 0usize];
    [
        "Offset of field: amdsmi_driver_info_t::driver_date",
    ][::core::mem::offset_of!(amdsmi_driver_info_t, driver_date) - 256usize];
    [
        "Offset of field: amdsmi_driver_info_t::driver_name",
    ][::core::mem::offset_of!(amdsmi_driver_info_t, driver_name) - 512usize];
};
impl Default for amdsmi_driver_info_t {
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
pub struct amdsmi_power_info_t {
    pub socket_power: u64,
    pub current_socket_power: u32,
    pub average_socket_power: u32,
    pub gfx_voltage: u64,
    pub soc_voltage: u64,
    pub mem_voltage: u64,
    pub power_limit: u32,
    pub ubb_power: u32,
    pub reserved: [u64; 18usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of amdsmi_power_info_t",
    ][::core::mem::size_of::<amdsmi_power_info_t>() - 192usize];
    [
        "Alignment of amdsmi_power_info_t",
    ][::core::mem::align_of::<amdsmi_power_info_t>() - 8usize];
    [
        "Offset of field: amdsmi_power_info_t::socket_power",
    ][::core::mem::offset_of!(amdsmi_power_info_t, socket_power) - 0usize];
    [
        "Offset of field: amdsmi_power_info_t::current_socket_power",
    ][::core::mem::offset_of!(amdsmi_power_info_t, current_socket_power) - 8usize];
    [
        "Offset of field: amdsmi_power_info_t::average_socket_power",
    ][::core::mem::offset_of!(amdsmi_power_info_t, average_socket_power) - 12usize];
    [
        "Offset of field: amdsmi_power_info_t::gfx_voltage",
    ][::core::mem::offset_of!(amdsmi_power_info_t, gfx_voltage) - 16usize];
    [
        "Offset of field: amdsmi_power_info_t::soc_voltage",
    ][::core::mem::offset_of!(amdsmi_power_info_t, soc_voltage) - 24usize];
    [
        "Offset of field: amdsmi_power_info_t::mem_voltage",
    ][::core::mem::offset_of!(amdsmi_power_info_t, mem_voltage) - 32usize];
    [
        "Offset of field: amdsmi_power_info_t::power_limit",
    ][::core::mem::offset_of!(amdsmi_power_info_t, power_limit) - 40usize];
    [
        "Offset of field: amdsmi_power_info_t::ubb_power",
    ][::core::mem::offset_of!(amdsmi_power_info_t, ubb_power) - 44usize];
    [
        "Offset of field: amdsmi_power_info_t::reserved",
    ][::core::mem::offset_of!(amdsmi_power_info_t, reserved) - 48usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct amdsmi_engine_usage_t {
    pub gfx_activity: u32,
    pub umc_activity: u32,
    pub mm_activity: u32,
    pub reserved: [u32; 13usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of amdsmi_engine_usage_t",
    ][::core::mem::size_of::<amdsmi_engine_usage_t>() - 64usize];
    [
        "Alignment of amdsmi_engine_usage_t",
    ][::core::mem::align_of::<amdsmi_engine_usage_t>() - 4usize];
    [
        "Offset of field: amdsmi_engine_usage_t::gfx_activity",
    ][::core::mem::offset_of!(amdsmi_engine_usage_t, gfx_activity) - 0usize];
    [
        "Offset of field: amdsmi_engine_usage_t::umc_activity",
    ][::core::mem::offset_of!(amdsmi_engine_usage_t, umc_activity) - 4usize];
    [
        "Offset of field: amdsmi_engine_usage_t::mm_activity",
    ][::core::mem::offset_of!(amdsmi_engine_usage_t, mm_activity) - 8usize];
    [
        "Offset of field: amdsmi_engine_usage_t::reserved",
    ][::core::mem::offset_of!(amdsmi_engine_usage_t, reserved) - 12usize];
};
impl amdsmi_temperature_metric_t {
    pub const AMDSMI_TEMP_CURRENT: amdsmi_temperature_metric_t = amdsmi_temperature_metric_t(
        0,
    );
    pub const AMDSMI_TEMP_FIRST: amdsmi_temperature_metric_t = amdsmi_temperature_metric_t(
        0,
    );
    pub const AMDSMI_TEMP_MAX: amdsmi_temperature_metric_t = amdsmi_temperature_metric_t(
        1,
    );
    pub const AMDSMI_TEMP_MIN: amdsmi_temperature_metric_t = amdsmi_temperature_metric_t(
        2,
    );
    pub const AMDSMI_TEMP_MAX_HYST: amdsmi_temperature_metric_t = amdsmi_temperature_metric_t(
        3,
    );
    pub const AMDSMI_TEMP_MIN_HYST: amdsmi_temperature_metric_t = amdsmi_temperature_metric_t(
        4,
    );
    pub const AMDSMI_TEMP_CRITICAL: amdsmi_temperature_metric_t = amdsmi_temperature_metric_t(
        5,
    );
    pub const AMDSMI_TEMP_CRITICAL_HYST: amdsmi_temperature_metric_t = amdsmi_temperature_metric_t(
        6,
    );
    pub const AMDSMI_TEMP_EMERGENCY: amdsmi_temperature_metric_t = amdsmi_temperature_metric_t(
        7,
    );
    pub const AMDSMI_TEMP_EMERGENCY_HYST: amdsmi_temperature_metric_t = amdsmi_temperature_metric_t(
        8,
    );
    pub const AMDSMI_TEMP_CRIT_MIN: amdsmi_temperature_metric_t = amdsmi_temperature_metric_t(
        9,
    );
    pub const AMDSMI_TEMP_CRIT_MIN_HYST: amdsmi_temperature_metric_t = amdsmi_temperature_metric_t(
        10,
    );
    pub const AMDSMI_TEMP_OFFSET: amdsmi_temperature_metric_t = amdsmi_temperature_metric_t(
        11,
    );
    pub const AMDSMI_TEMP_LOWEST: amdsmi_temperature_metric_t = amdsmi_temperature_metric_t(
        12,
    );
    pub const AMDSMI_TEMP_HIGHEST: amdsmi_temperature_metric_t = amdsmi_temperature_metric_t(
        13,
    );
    pub const AMDSMI_TEMP_SHUTDOWN: amdsmi_temperature_metric_t = amdsmi_temperature_metric_t(
        14,
    );
    pub const AMDSMI_TEMP_LAST: amdsmi_temperature_metric_t = amdsmi_temperature_metric_t(
        14,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct amdsmi_temperature_metric_t(pub ::core::ffi::c_uint);
impl amdsmi_memory_type_t {
    pub const AMDSMI_MEM_TYPE_FIRST: amdsmi_memory_type_t = amdsmi_memory_type_t(0);
    pub const AMDSMI_MEM_TYPE_VRAM: amdsmi_memory_type_t = amdsmi_memory_type_t(0);
    pub const AMDSMI_MEM_TYPE_VIS_VRAM: amdsmi_memory_type_t = amdsmi_memory_type_t(1);
    pub const AMDSMI_MEM_TYPE_GTT: amdsmi_memory_type_t = amdsmi_memory_type_t(2);
    pub const AMDSMI_MEM_TYPE_LAST: amdsmi_memory_type_t = amdsmi_memory_type_t(2);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct amdsmi_memory_type_t(pub ::core::ffi::c_uint);
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct amdsmi_frequencies_t {
    pub has_deep_sleep: bool,
    pub num_supported: u32,
    pub current: u32,
    pub frequency: [u64; 33usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of amdsmi_frequencies_t",
    ][::core::mem::size_of::<amdsmi_frequencies_t>() - 280usize];
    [
        "Alignment of amdsmi_frequencies_t",
    ][::core::mem::align_of::<amdsmi_frequencies_t>() - 8usize];
    [
        "Offset of field: amdsmi_frequencies_t::has_deep_sleep",
    ][::core::mem::offset_of!(amdsmi_frequencies_t, has_deep_sleep) - 0usize];
    [
        "Offset of field: amdsmi_frequencies_t::num_supported",
    ][::core::mem::offset_of!(amdsmi_frequencies_t, num_supported) - 4usize];
    [
        "Offset of field: amdsmi_frequencies_t::current",
    ][::core::mem::offset_of!(amdsmi_frequencies_t, current) - 8usize];
    [
        "Offset of field: amdsmi_frequencies_t::frequency",
    ][::core::mem::offset_of!(amdsmi_frequencies_t, frequency) - 16usize];
};
impl Default for amdsmi_frequencies_t {
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
pub struct amdsmi_pcie_bandwidth_t {
    pub transfer_rate: amdsmi_frequencies_t,
    pub lanes: [u32; 33usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of amdsmi_pcie_bandwidth_t",
    ][::core::mem::size_of::<amdsmi_pcie_bandwidth_t>() - 416usize];
    [
        "Alignment of amdsmi_pcie_bandwidth_t",
    ][::core::mem::align_of::<amdsmi_pcie_bandwidth_t>() - 8usize];
    [
        "Offset of field: amdsmi_pcie_bandwidth_t::transfer_rate",
    ][::core::mem::offset_of!(amdsmi_pcie_bandwidth_t, transfer_rate) - 0usize];
    [
        "Offset of field: amdsmi_pcie_bandwidth_t::lanes",
    ][::core::mem::offset_of!(amdsmi_pcie_bandwidth_t, lanes) - 280usize];
};
impl Default for amdsmi_pcie_bandwidth_t {
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
pub struct amdsmi_version_t {
    pub major: u32,
    pub minor: u32,
    pub release: u32,
    pub build: *const ::core::ffi::c_char,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of amdsmi_version_t"][::core::mem::size_of::<amdsmi_version_t>() - 24usize];
    [
        "Alignment of amdsmi_version_t",
    ][::core::mem::align_of::<amdsmi_version_t>() - 8usize];
    [
        "Offset of field: amdsmi_version_t::major",
    ][::core::mem::offset_of!(amdsmi_version_t, major) - 0usize];
    [
        "Offset of field: amdsmi_version_t::minor",
    ][::core::mem::offset_of!(amdsmi_version_t, minor) - 4usize];
    [
        "Offset of field: amdsmi_version_t::release",
    ][::core::mem::offset_of!(amdsmi_version_t, release) - 8usize];
    [
        "Offset of field: amdsmi_version_t::build",
    ][::core::mem::offset_of!(amdsmi_version_t, build) - 16usize];
};
impl Default for amdsmi_version_t {
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
pub struct amdsmi_error_count_t {
    pub correctable_count: u64,
    pub uncorrectable_count: u64,
    pub deferred_count: u64,
    pub reserved: [u64; 5usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of amdsmi_error_count_t",
    ][::core::mem::size_of::<amdsmi_error_count_t>() - 64usize];
    [
        "Alignment of amdsmi_error_count_t",
    ][::core::mem::align_of::<amdsmi_error_count_t>() - 8usize];
    [
        "Offset of field: amdsmi_error_count_t::correctable_count",
    ][::core::mem::offset_of!(amdsmi_error_count_t, correctable_count) - 0usize];
    [
        "Offset of field: amdsmi_error_count_t::uncorrectable_count",
    ][::core::mem::offset_of!(amdsmi_error_count_t, uncorrectable_count) - 8usize];
    [
        "Offset of field: amdsmi_error_count_t::deferred_count",
    ][::core::mem::offset_of!(amdsmi_error_count_t, deferred_count) - 16usize];
    [
        "Offset of field: amdsmi_error_count_t::reserved",
    ][::core::mem::offset_of!(amdsmi_error_count_t, reserved) - 24usize];
};
crate::table::table! {
    AmdSmi;
    pub fn amdsmi_init(init_flags: u64) -> amdsmi_status_t;
    pub fn amdsmi_shut_down() -> amdsmi_status_t;
    pub fn amdsmi_get_socket_handles(
        socket_count: *mut u32,
        socket_handles: *mut amdsmi_socket_handle,
    ) -> amdsmi_status_t;
    pub fn amdsmi_get_processor_handles(
        socket_handle: amdsmi_socket_handle,
        processor_count: *mut u32,
        processor_handles: *mut amdsmi_processor_handle,
    ) -> amdsmi_status_t;
    pub fn amdsmi_get_gpu_id(
        processor_handle: amdsmi_processor_handle,
        id: *mut u16,
    ) -> amdsmi_status_t;
    pub fn amdsmi_get_gpu_pci_bandwidth(
        processor_handle: amdsmi_processor_handle,
        bandwidth: *mut amdsmi_pcie_bandwidth_t,
    ) -> amdsmi_status_t;
    pub fn amdsmi_get_gpu_bdf_id(
        processor_handle: amdsmi_processor_handle,
        bdfid: *mut u64,
    ) -> amdsmi_status_t;
    pub fn amdsmi_get_gpu_pci_replay_counter(
        processor_handle: amdsmi_processor_handle,
        counter: *mut u64,
    ) -> amdsmi_status_t;
    pub fn amdsmi_get_energy_count(
        processor_handle: amdsmi_processor_handle,
        energy_accumulator: *mut u64,
        counter_resolution: *mut f32,
        timestamp: *mut u64,
    ) -> amdsmi_status_t;
    pub fn amdsmi_get_gpu_memory_total(
        processor_handle: amdsmi_processor_handle,
        mem_type: amdsmi_memory_type_t,
        total: *mut u64,
    ) -> amdsmi_status_t;
    pub fn amdsmi_get_gpu_memory_usage(
        processor_handle: amdsmi_processor_handle,
        mem_type: amdsmi_memory_type_t,
        used: *mut u64,
    ) -> amdsmi_status_t;
    pub fn amdsmi_get_gpu_busy_percent(
        processor_handle: amdsmi_processor_handle,
        gpu_busy_percent: *mut u32,
    ) -> amdsmi_status_t;
    pub fn amdsmi_get_clk_freq(
        processor_handle: amdsmi_processor_handle,
        clk_type: amdsmi_clk_type_t,
        f: *mut amdsmi_frequencies_t,
    ) -> amdsmi_status_t;
    pub fn amdsmi_get_lib_version(version: *mut amdsmi_version_t) -> amdsmi_status_t;
    pub fn amdsmi_get_gpu_total_ecc_count(
        processor_handle: amdsmi_processor_handle,
        ec: *mut amdsmi_error_count_t,
    ) -> amdsmi_status_t;
    pub fn amdsmi_status_code_to_string(
        status: amdsmi_status_t,
        status_string: *mut *const ::core::ffi::c_char,
    ) -> amdsmi_status_t;
    pub fn amdsmi_get_xgmi_info(
        processor_handle: amdsmi_processor_handle,
        info: *mut amdsmi_xgmi_info_t,
    ) -> amdsmi_status_t;
    pub fn amdsmi_topo_get_numa_node_number(
        processor_handle: amdsmi_processor_handle,
        numa_node: *mut u32,
    ) -> amdsmi_status_t;
    pub fn amdsmi_topo_get_link_weight(
        processor_handle_src: amdsmi_processor_handle,
        processor_handle_dst: amdsmi_processor_handle,
        weight: *mut u64,
    ) -> amdsmi_status_t;
    pub fn amdsmi_topo_get_link_type(
        processor_handle_src: amdsmi_processor_handle,
        processor_handle_dst: amdsmi_processor_handle,
        hops: *mut u64,
        type_: *mut amdsmi_link_type_t,
    ) -> amdsmi_status_t;
    pub fn amdsmi_is_P2P_accessible(
        processor_handle_src: amdsmi_processor_handle,
        processor_handle_dst: amdsmi_processor_handle,
        accessible: *mut bool,
    ) -> amdsmi_status_t;
    pub fn amdsmi_get_gpu_driver_info(
        processor_handle: amdsmi_processor_handle,
        info: *mut amdsmi_driver_info_t,
    ) -> amdsmi_status_t;
    pub fn amdsmi_get_gpu_asic_info(
        processor_handle: amdsmi_processor_handle,
        info: *mut amdsmi_asic_info_t,
    ) -> amdsmi_status_t;
    pub fn amdsmi_get_temp_metric(
        processor_handle: amdsmi_processor_handle,
        sensor_type: amdsmi_temperature_type_t,
        metric: amdsmi_temperature_metric_t,
        temperature: *mut i64,
    ) -> amdsmi_status_t;
    pub fn amdsmi_get_gpu_activity(
        processor_handle: amdsmi_processor_handle,
        info: *mut amdsmi_engine_usage_t,
    ) -> amdsmi_status_t;
    pub fn amdsmi_get_power_info(
        processor_handle: amdsmi_processor_handle,
        info: *mut amdsmi_power_info_t,
    ) -> amdsmi_status_t;
}
crate::status::status! {
    amdsmi_status_t, success: AMDSMI_STATUS_SUCCESS;
    AMDSMI_STATUS_SUCCESS,
    AMDSMI_STATUS_INVAL,
    AMDSMI_STATUS_NOT_SUPPORTED,
    AMDSMI_STATUS_NOT_YET_IMPLEMENTED,
    AMDSMI_STATUS_FAIL_LOAD_MODULE,
    AMDSMI_STATUS_FAIL_LOAD_SYMBOL,
    AMDSMI_STATUS_DRM_ERROR,
    AMDSMI_STATUS_API_FAILED,
    AMDSMI_STATUS_TIMEOUT,
    AMDSMI_STATUS_RETRY,
    AMDSMI_STATUS_NO_PERM,
    AMDSMI_STATUS_INTERRUPT,
    AMDSMI_STATUS_IO,
    AMDSMI_STATUS_ADDRESS_FAULT,
    AMDSMI_STATUS_FILE_ERROR,
    AMDSMI_STATUS_OUT_OF_RESOURCES,
    AMDSMI_STATUS_INTERNAL_EXCEPTION,
    AMDSMI_STATUS_INPUT_OUT_OF_BOUNDS,
    AMDSMI_STATUS_INIT_ERROR,
    AMDSMI_STATUS_REFCOUNT_OVERFLOW,
    AMDSMI_STATUS_DIRECTORY_NOT_FOUND,
    AMDSMI_STATUS_IPC_ERROR,
    AMDSMI_STATUS_BUSY,
    AMDSMI_STATUS_NOT_FOUND,
    AMDSMI_STATUS_NOT_INIT,
    AMDSMI_STATUS_NO_SLOT,
    AMDSMI_STATUS_DRIVER_NOT_LOADED,
    AMDSMI_STATUS_MORE_DATA,
    AMDSMI_STATUS_NO_DATA,
    AMDSMI_STATUS_INSUFFICIENT_SIZE,
    AMDSMI_STATUS_UNEXPECTED_SIZE,
    AMDSMI_STATUS_UNEXPECTED_DATA,
    AMDSMI_STATUS_NON_AMD_CPU,
    AMDSMI_STATUS_NO_ENERGY_DRV,
    AMDSMI_STATUS_NO_MSR_DRV,
    AMDSMI_STATUS_NO_HSMP_DRV,
    AMDSMI_STATUS_NO_HSMP_SUP,
    AMDSMI_STATUS_NO_HSMP_MSG_SUP,
    AMDSMI_STATUS_HSMP_TIMEOUT,
    AMDSMI_STATUS_NO_DRV,
    AMDSMI_STATUS_FILE_NOT_FOUND,
    AMDSMI_STATUS_ARG_PTR_NULL,
    AMDSMI_STATUS_AMDGPU_RESTART_ERR,
    AMDSMI_STATUS_SETTING_UNAVAILABLE,
    AMDSMI_STATUS_CORRUPTED_EEPROM,
    AMDSMI_STATUS_MAP_ERROR,
    AMDSMI_STATUS_UNKNOWN_ERROR,
}
