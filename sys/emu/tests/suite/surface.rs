//! Exported functions, device properties, and a machine without a device.

use std::ffi::{CStr, c_char};
use std::ptr;

use hipvit_sys::Table as _;
use hipvit_sys::amd_smi::{
    amdsmi_asic_info_t, amdsmi_link_type_t, amdsmi_memory_type_t, amdsmi_power_info_t, amdsmi_status_t,
};
use hipvit_sys::hip::{
    hipDeviceAttribute_t, hipDeviceProp_tR0600, hipError_t, hipMemcpyKind, hipPointerAttribute_t,
};
use hipvit_sys::hiprtc::hiprtcResult;
use hipvit_sys::rccl::ncclResult_t;

use crate::{Buffer, has, hip, is, ok, provider, turn};

fn text(chars: &[c_char]) -> &str {
    unsafe { CStr::from_ptr(chars.as_ptr()) }.to_str().expect("UTF-8")
}

fn properties(device: i32) -> hipDeviceProp_tR0600 {
    let mut properties = hipDeviceProp_tR0600::default();
    ok(unsafe { hip().hipGetDevicePropertiesR0600(&mut properties, device) });
    properties
}

#[test]
fn every_function_of_every_table_is_exported() {
    let provider = provider();
    let missing = [
        provider.hip().expect("HIP").missing(),
        provider.hiprtc().expect("hipRTC").missing(),
        provider.rocblas().expect("rocBLAS").missing(),
        provider.hipblaslt().expect("hipBLASLt").missing(),
        provider.hipsparselt().expect("hipSPARSELt").missing(),
        provider.miopen().expect("MIOpen").missing(),
        provider.rccl().expect("RCCL").missing(),
        provider.amd_smi().expect("AMD SMI").missing(),
    ];
    assert_eq!(missing.concat(), Vec::<&str>::new());
}

#[test]
fn properties_of_an_mi300x() {
    let (mut count, mut value) = (0, 0);
    ok(unsafe { hip().hipGetDeviceCount(&mut count) });
    assert_eq!(count, 2);
    let p = properties(1);
    assert_eq!(text(&p.name), "AMD Instinct MI300X");
    assert_eq!(text(&p.gcnArchName), "gfx942:sramecc+:xnack-");
    assert_eq!(
        (p.warpSize, p.multiProcessorCount, p.maxThreadsPerBlock),
        (64, 304, 1024)
    );
    assert_eq!(
        (p.sharedMemPerBlock, p.maxThreadsPerMultiProcessor),
        (65536, 2048)
    );
    for (attribute, expected) in [
        (hipDeviceAttribute_t::hipDeviceAttributeWarpSize, 64),
        (hipDeviceAttribute_t::hipDeviceAttributeMultiprocessorCount, 304),
        (
            hipDeviceAttribute_t::hipDeviceAttributeMaxSharedMemoryPerBlock,
            65536,
        ),
        (hipDeviceAttribute_t::hipDeviceAttributeL2CacheSize, 4 << 20),
        (hipDeviceAttribute_t::hipDeviceAttributePciBusId, p.pciBusID),
    ] {
        ok(unsafe { hip().hipDeviceGetAttribute(&mut value, attribute, 1) });
        assert_eq!(value, expected, "{attribute:?}");
    }
    is(
        unsafe { hip().hipSetDevice(2) },
        hipError_t::hipErrorInvalidDevice,
    );
    let (mut id, mut device) = ([0; 32], 7);
    ok(unsafe { hip().hipDeviceGetPCIBusId(id.as_mut_ptr(), 32, 1) });
    ok(unsafe { hip().hipDeviceGetByPCIBusId(&mut device, id.as_ptr()) });
    assert_eq!((text(&id), device), ("0000:c2:00.0", 1));
}

#[test]
fn properties_of_other_models() {
    let settings = [("HIP_EMU_ARCH", "gfx1100,gfx90a"), ("HIP_EMU_MEMORY", "256M")];
    if !has(&settings, "surface::properties_of_other_models") {
        return;
    }
    let (p, q) = (properties(0), properties(1));
    assert_eq!((text(&p.gcnArchName), p.warpSize, p.major), ("gfx1100", 32, 11));
    assert_eq!((text(&q.name), q.warpSize), ("AMD Instinct MI210", 64));
    let (mut free, mut total) = (0, 0);
    ok(unsafe { hip().hipMemGetInfo(&mut free, &mut total) });
    assert_eq!((free, total, p.totalGlobalMem), (256 << 20, 256 << 20, 256 << 20));
    let (mut kind, mut hops) = (0, 0);
    ok(unsafe { hip().hipExtGetLinkTypeAndHopCount(0, 1, &mut kind, &mut hops) });
    assert_eq!((kind, hops), (2, 2), "PCIe");
}

#[test]
fn with_an_invalid_setting_calls_fail() {
    let settings = [("HIP_EMU_ARCH", "sm_90")];
    if !has(&settings, "surface::with_an_invalid_setting_calls_fail") {
        return;
    }
    let mut count = 7;
    is(
        unsafe { hip().hipGetDeviceCount(&mut count) },
        hipError_t::hipErrorNotInitialized,
    );
    assert_eq!(count, 0);
}

#[test]
fn without_a_device_every_library_returns_an_error() {
    let settings = [("HIP_EMU_ARCH", "none")];
    let test = "surface::without_a_device_every_library_returns_an_error";
    if !has(&settings, test) {
        return;
    }
    let (mut count, mut free, mut total, mut sockets) = (7, 0, 0, 0);
    let (mut memory, mut stream, mut event, mut module) =
        (ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    let mut attributes = hipPointerAttribute_t::default();
    let hip = hip();
    let byte = 0_u8;
    let at = ptr::from_ref(&byte).cast();
    unsafe {
        for status in [
            hip.hipInit(0),
            hip.hipGetDeviceCount(&mut count),
            hip.hipSetDevice(0),
            hip.hipMalloc(&mut memory, 1 << 20),
            hip.hipHostMalloc(&mut memory, 4096, 0),
            hip.hipMemGetInfo(&mut free, &mut total),
            hip.hipStreamCreate(&mut stream),
            hip.hipEventCreate(&mut event),
            hip.hipMemcpy(memory, at, 1, hipMemcpyKind::hipMemcpyHostToDevice),
            hip.hipDeviceSynchronize(),
            hip.hipModuleLoadData(&mut module, at),
        ] {
            is(status, hipError_t::hipErrorNoDevice);
        }
        assert_eq!(count, 0);
        ok(hip.hipPointerGetAttributes(&mut attributes, at));

        let provider = provider();
        let mut handle = ptr::null_mut();
        let rocblas = provider.rocblas().expect("rocBLAS");
        assert_ne!(rocblas.rocblas_create_handle(&mut handle).expect("exported").0, 0);
        rocblas.rocblas_initialize().expect("exported");
        let mut handle = ptr::null_mut();
        let hipblaslt = provider.hipblaslt().expect("hipBLASLt");
        assert_ne!(hipblaslt.hipblasLtCreate(&mut handle).expect("exported").0, 0);
        let mut handle = ptr::null_mut();
        let miopen = provider.miopen().expect("MIOpen");
        assert_ne!(miopen.miopenCreate(&mut handle).expect("exported").0, 0);
        let mut comm = ptr::null_mut();
        let rccl = provider.rccl().expect("RCCL");
        assert_eq!(
            rccl.ncclCommInitAll(&mut comm, 1, ptr::null()).expect("exported"),
            ncclResult_t::ncclUnhandledCudaError
        );
        let smi = provider.amd_smi().expect("AMD SMI");
        assert_eq!(
            smi.amdsmi_get_socket_handles(&mut sockets, ptr::null_mut())
                .expect("exported"),
            amdsmi_status_t::AMDSMI_STATUS_INIT_ERROR
        );
    }
}

#[test]
fn allocations_reduce_the_free_memory() {
    let _turn = turn();
    ok(unsafe { hip().hipSetDevice(1) });
    let info = || {
        let (mut free, mut total) = (0, 0);
        ok(unsafe { hip().hipMemGetInfo(&mut free, &mut total) });
        assert_eq!(total, 4 << 30);
        free
    };
    let before = info();
    let buffer = Buffer::new(1 << 18);
    assert_eq!(before - info(), 1 << 20);
    drop(buffer);
    assert_eq!(info(), before);
}

#[test]
fn functions_that_are_not_offered_return_not_supported() {
    let status = unsafe { hip().hipMemMap(ptr::null_mut(), 1, 2, ptr::null_mut(), 3) };
    is(status, hipError_t::hipErrorNotSupported);
    let rtc = provider().hiprtc().expect("hipRTC");
    assert_eq!(
        unsafe { rtc.hiprtcLinkDestroy(ptr::null_mut()) }.expect("exported"),
        hiprtcResult::HIPRTC_ERROR_BUILTIN_OPERATION_FAILURE
    );
}

#[test]
fn amd_smi_reports_the_devices() {
    let _turn = turn();
    let smi = provider().amd_smi().expect("AMD SMI");
    let vram = amdsmi_memory_type_t::AMDSMI_MEM_TYPE_VRAM;
    let (mut count, mut sockets, mut gpus) = (0, [ptr::null_mut(); 2], [ptr::null_mut(); 2]);
    let (mut used, mut total, mut id, mut info) = ([0; 2], 0, 0, amdsmi_asic_info_t::default());
    let (mut hops, mut kind, mut accessible) = (0, amdsmi_link_type_t(u32::MAX), false);
    let done = |status: Result<amdsmi_status_t, hipvit_sys::Error>| {
        assert_eq!(status.expect("exported"), amdsmi_status_t::AMDSMI_STATUS_SUCCESS);
    };
    unsafe {
        done(smi.amdsmi_init(0));
        done(smi.amdsmi_get_socket_handles(&mut count, ptr::null_mut()));
        assert_eq!(count, 2);
        done(smi.amdsmi_get_socket_handles(&mut count, sockets.as_mut_ptr()));
        for (socket, gpu) in sockets.into_iter().zip(&mut gpus) {
            count = 7;
            done(smi.amdsmi_get_processor_handles(socket, &mut count, gpu));
            assert_eq!(count, 1, "a socket has one GPU");
        }
        done(smi.amdsmi_get_gpu_asic_info(gpus[1], &mut info));
        done(smi.amdsmi_get_gpu_memory_total(gpus[0], vram, &mut total));
        done(smi.amdsmi_get_gpu_memory_usage(gpus[1], vram, &mut used[0]));
        ok(hip().hipSetDevice(1));
        let buffer = Buffer::new(1 << 18);
        done(smi.amdsmi_get_gpu_memory_usage(gpus[1], vram, &mut used[1]));
        drop(buffer);
        done(smi.amdsmi_get_gpu_bdf_id(gpus[1], &mut id));
        let mut power = amdsmi_power_info_t::default();
        assert_eq!(
            smi.amdsmi_get_power_info(gpus[0], &mut power).expect("exported"),
            amdsmi_status_t::AMDSMI_STATUS_NOT_SUPPORTED,
            "there is no power to measure"
        );
        let unknown = ptr::from_mut(&mut total).cast();
        assert_eq!(
            smi.amdsmi_get_gpu_bdf_id(unknown, &mut id).expect("exported"),
            amdsmi_status_t::AMDSMI_STATUS_INVAL,
            "not a handle"
        );
        done(smi.amdsmi_topo_get_link_type(gpus[0], gpus[1], &mut hops, &mut kind));
        done(smi.amdsmi_is_P2P_accessible(gpus[0], gpus[1], &mut accessible));
    }
    assert_eq!((text(&info.market_name), total), ("AMD Instinct MI300X", 4 << 30));
    assert_eq!(
        (hops, kind, accessible),
        (1, amdsmi_link_type_t::AMDSMI_LINK_TYPE_XGMI, true)
    );
    assert_eq!(used[1] - used[0], 1 << 20);
    assert_eq!((id, info.target_graphics_version), (0xc200, 0x942));
}

#[test]
fn settings_must_come_before_the_first_call() {
    ok(unsafe { hip().hipInit(0) });
    let other = hipvit_sys::Provider::emu(Some("gfx1100"));
    let error = other.hip().expect_err("others are emulated").to_string();
    assert!(error.contains("other devices are emulated"), "{error}");
    let wrong = hipvit_sys::Provider::emu(Some("gfx1"));
    let error = wrong.hip().expect_err("no such part").to_string();
    assert!(
        error.starts_with("provider `emu:gfx1`: no such devices"),
        "{error}"
    );
}
