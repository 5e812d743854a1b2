//! The library on a machine without NVIDIA's driver: every function is exported, returns the status for that, and none
//! aborts. With a driver, the tests about its absence return at once.
#![allow(clippy::expect_used, reason = "a test")]

use std::ffi::{CStr, c_char};
use std::path::PathBuf;
use std::ptr;

use hipvit_sys::amd_smi::amdsmi_status_t;
use hipvit_sys::hip::{hipDeviceProp_tR0600, hipError_t, hipMemcpyKind, hipPointerAttribute_t};
use hipvit_sys::hipblaslt::hipblasStatus_t;
use hipvit_sys::hiprtc::hiprtcResult;
use hipvit_sys::miopen::{miopenConvolutionMode_t, miopenDataType_t, miopenStatus_t};
use hipvit_sys::rccl::ncclResult_t;
use hipvit_sys::rocblas::rocblas_status_;
use hipvit_sys::{Provider, Table};

/// The library as Cargo built it for this test: in the same folder, or one folder up.
fn provider() -> Provider {
    let test = std::env::current_exe().expect("this program's path");
    let folders = test.ancestors().skip(1).take(2);
    let file = folders
        .map(|folder| folder.join("libhip_on_cuda.so"))
        .find(|file: &PathBuf| file.exists())
        .expect("Cargo builds the library for its tests");
    Provider::named(file.to_str().expect("a path in UTF-8")).expect("the library's path")
}

fn has_driver(provider: &Provider) -> bool {
    let mut count = 0;
    // SAFETY: the call writes one int.
    let status = unsafe { provider.hip().expect("HIP").hipGetDeviceCount(&mut count) };
    status.expect("the function") != hipError_t::hipErrorNoDevice
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
fn hip_returns_no_device() {
    let provider = provider();
    if has_driver(&provider) {
        return;
    }
    let hip = provider.hip().expect("HIP");
    let mut count = 7;
    let (mut memory, mut host, mut stream, mut event) =
        (ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    let (mut module, mut free, mut total) = (ptr::null_mut(), 0, 0);
    let mut properties = hipDeviceProp_tR0600::default();
    let mut attributes = hipPointerAttribute_t::default();
    let byte = 0_u8;
    let at = ptr::from_ref(&byte).cast();
    // SAFETY: every call writes values of the types that it is given, or nothing; the one byte that is read is there.
    // Without a driver none gets further than to ask for it.
    let statuses = unsafe {
        [
            hip.hipInit(0),
            hip.hipGetDeviceCount(&mut count),
            hip.hipSetDevice(0),
            hip.hipGetDevicePropertiesR0600(&mut properties, 0),
            hip.hipMalloc(&mut memory, 1 << 20),
            hip.hipHostMalloc(&mut host, 4096, 0),
            hip.hipMemGetInfo(&mut free, &mut total),
            hip.hipStreamCreateWithFlags(&mut stream, 1),
            hip.hipEventCreate(&mut event),
            hip.hipDeviceSynchronize(),
            hip.hipMemcpy(ptr::null_mut(), at, 1, hipMemcpyKind::hipMemcpyHostToDevice),
            hip.hipModuleLoadData(&mut module, at),
            hip.hipPointerGetAttributes(&mut attributes, at),
            hip.hipStreamBeginCapture(stream, hipvit_sys::hip::hipStreamCaptureMode(0)),
        ]
    };
    for (index, status) in statuses.into_iter().enumerate() {
        assert_eq!(
            status.expect("exported"),
            hipError_t::hipErrorNoDevice,
            "call {index}"
        );
    }
    assert_eq!(count, 0);
    assert_eq!(
        // SAFETY: takes no arguments.
        unsafe { hip.hipPeekAtLastError() }.expect("exported"),
        hipError_t::hipErrorNoDevice
    );
    assert_eq!(
        // SAFETY: takes no arguments.
        unsafe { hip.hipGetLastError() }.expect("exported"),
        hipError_t::hipErrorNoDevice
    );
    assert_eq!(
        // SAFETY: takes no arguments.
        unsafe { hip.hipGetLastError() }.expect("exported"),
        hipError_t::hipSuccess
    );
}

#[test]
fn the_other_libraries_return_their_status_for_it() {
    let provider = provider();
    if has_driver(&provider) {
        return;
    }
    let mut sockets = 0;
    // SAFETY: every call writes values of the types that it is given, or nothing: without a driver there is nothing to
    // be made.
    unsafe {
        let mut handle = ptr::null_mut();
        let status = provider
            .rocblas()
            .expect("rocBLAS")
            .rocblas_create_handle(&mut handle);
        assert_eq!(
            status.expect("exported"),
            rocblas_status_::rocblas_status_internal_error
        );
        provider
            .rocblas()
            .expect("rocBLAS")
            .rocblas_initialize()
            .expect("exported");

        let mut handle = ptr::null_mut();
        let status = provider
            .hipblaslt()
            .expect("hipBLASLt")
            .hipblasLtCreate(&mut handle);
        assert_eq!(
            status.expect("exported"),
            hipblasStatus_t::HIPBLAS_STATUS_NOT_INITIALIZED
        );

        let mut handle = ptr::null_mut();
        let status = provider.miopen().expect("MIOpen").miopenCreate(&mut handle);
        assert_eq!(
            status.expect("exported"),
            miopenStatus_t::miopenStatusNotInitialized
        );

        let mut comm = ptr::null_mut();
        let status = provider
            .rccl()
            .expect("RCCL")
            .ncclCommInitAll(&mut comm, 1, ptr::null());
        assert_eq!(status.expect("exported"), ncclResult_t::ncclUnhandledCudaError);

        let smi = provider.amd_smi().expect("AMD SMI");
        assert_eq!(
            smi.amdsmi_init(0).expect("exported"),
            amdsmi_status_t::AMDSMI_STATUS_INIT_ERROR
        );
        assert_eq!(
            smi.amdsmi_get_socket_handles(&mut sockets, ptr::null_mut())
                .expect("exported"),
            amdsmi_status_t::AMDSMI_STATUS_INIT_ERROR
        );
    }
    assert_eq!(sockets, 0);
}

#[test]
fn unsupported_functions_return_a_status_whatever_their_arguments() {
    let provider = provider();
    // SAFETY: functions that are not offered look at no argument.
    unsafe {
        let status = provider
            .hip()
            .expect("HIP")
            .hipMemMap(ptr::null_mut(), 1, 2, ptr::null_mut(), 3);
        assert_eq!(status.expect("exported"), hipError_t::hipErrorNotSupported);
        let status = provider
            .hiprtc()
            .expect("hipRTC")
            .hiprtcLinkDestroy(ptr::null_mut());
        assert_eq!(
            status.expect("exported"),
            hiprtcResult::HIPRTC_ERROR_BUILTIN_OPERATION_FAILURE
        );
        let status = provider.miopen().expect("MIOpen").miopenGLUForward(
            ptr::null_mut(),
            ptr::null_mut(),
            ptr::null(),
            ptr::null_mut(),
            ptr::null_mut(),
            1,
        );
        assert_eq!(
            status.expect("exported"),
            miopenStatus_t::miopenStatusUnsupportedOp
        );
    }
}

#[test]
fn errors_have_names_without_a_driver() {
    let provider = provider();
    // SAFETY: the libraries' names are static and end in a zero.
    let text = |pointer: *const c_char| unsafe { CStr::from_ptr(pointer) }.to_str().expect("UTF-8");
    // SAFETY: takes numbers, and gives static names.
    unsafe {
        let hip = provider.hip().expect("HIP");
        let name = hip
            .hipGetErrorName(hipError_t::hipErrorOutOfMemory)
            .expect("exported");
        assert_eq!(text(name), "hipErrorOutOfMemory");
        let name = hip.hipGetErrorName(hipError_t(4242)).expect("exported");
        assert_eq!(text(name), "hipErrorUnknown");
        let rocblas = provider.rocblas().expect("rocBLAS");
        let name = rocblas.rocblas_status_to_string(rocblas_status_::rocblas_status_memory_error);
        assert_eq!(text(name.expect("exported")), "rocblas_status_memory_error");
    }
}

/// Patch embedding of a 224 px image in patches of 16: 14 by 14.
#[test]
fn convolutions_are_described_on_the_host() {
    let provider = provider();
    let miopen = provider.miopen().expect("MIOpen");
    let (mut input, mut filter, mut convolution) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    let [mut n, mut c, mut h, mut w] = [0; 4];
    let half = miopenDataType_t::miopenHalf;
    let done = |status: Result<miopenStatus_t, _>| {
        let status: Result<miopenStatus_t, hipvit_sys::Error> = status;
        assert_eq!(status.expect("exported"), miopenStatus_t::miopenStatusSuccess);
    };
    // SAFETY: the descriptors live on the host, until they are destroyed here; the calls write the ints that they are
    // given.
    unsafe {
        done(miopen.miopenCreateTensorDescriptor(&mut input));
        done(miopen.miopenSet4dTensorDescriptor(input, half, 8, 3, 224, 224));
        done(miopen.miopenCreateTensorDescriptor(&mut filter));
        done(miopen.miopenSet4dTensorDescriptor(filter, half, 192, 3, 16, 16));
        done(miopen.miopenCreateConvolutionDescriptor(&mut convolution));
        let mode = miopenConvolutionMode_t::miopenConvolution;
        done(miopen.miopenInitConvolutionDescriptor(convolution, mode, 0, 0, 16, 16, 1, 1));
        done(miopen.miopenGetConvolutionForwardOutputDim(
            convolution,
            input,
            filter,
            &mut n,
            &mut c,
            &mut h,
            &mut w,
        ));
        done(miopen.miopenDestroyConvolutionDescriptor(convolution));
        done(miopen.miopenDestroyTensorDescriptor(filter));
        done(miopen.miopenDestroyTensorDescriptor(input));
    }
    assert_eq!([n, c, h, w], [8, 192, 14, 14]);
}
