//! AMD's own libraries, with or without a GPU. They export the bound functions, answer without a GPU, and work on the host where
//! no GPU is needed. Skipped without ROCm, unless `HIPVIT_TEST_ROCM` says that it is installed.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "an expectation that fails is the test that fails"
)]

use std::io::Write as _;
use std::ptr;
use std::sync::Once;

use hipvit_sys::hip::{hipDataType, hipError_t};
use hipvit_sys::hipblaslt::{
    hipblasComputeType_t, hipblasLtEpilogue_t, hipblasLtMatmulDescAttributes_t, hipblasOperation_t,
};
use hipvit_sys::miopen::{
    miopenConvolutionDescriptor_t, miopenConvolutionMode_t, miopenDataType_t, miopenProblemDirection_t,
    miopenSoftmaxAlgorithm_t, miopenSoftmaxMode_t, miopenTensorArgumentId_t, miopenTensorDescriptor_t,
};
use hipvit_sys::{Error, Miopen, Provider, Status, Table};

/// Functions that a release before 7 lacks.
const SINCE_7: &[&str] = &[
    "hipDrvLaunchKernelEx",
    "hipModuleGetFunctionCount",
    "hipStreamGetId",
    "miopenExecuteFusionPlan_v2",
    "miopenGetTuningPolicy",
    "miopenSetTuningPolicy",
];

fn rocm() -> Option<Provider> {
    let provider = Provider::named("rocm").expect("a name that is known");
    match provider.hip() {
        Ok(_) => Some(provider),
        Err(error) if std::env::var_os("HIPVIT_TEST_ROCM").is_some() => {
            panic!("HIPVIT_TEST_ROCM is set: {error}")
        }
        Err(_) => {
            static SAID: Once = Once::new();
            // Past the test harness, which keeps what passing tests print.
            SAID.call_once(|| _ = writeln!(std::io::stderr(), "skipped: ROCm is not installed"));
            None
        }
    }
}

fn done<S: Status>(returned: Result<S, Error>) {
    returned
        .expect("the library has the function")
        .ok()
        .expect("success");
}

fn devices(provider: &Provider) -> i32 {
    let mut count = 0;
    let hip = provider.hip().expect("opened before");
    // SAFETY: one int is written.
    match unsafe { hip.hipGetDeviceCount(&mut count) }.expect("exported") {
        hipError_t::hipErrorNoDevice => 0,
        status => {
            status.ok().expect("the devices are counted");
            count
        }
    }
}

#[test]
fn every_bound_function_is_exported() {
    let Some(rocm) = rocm() else { return };
    let mut version = 0;
    // SAFETY: one int is written.
    done(unsafe {
        rocm.hip()
            .expect("opened before")
            .hipRuntimeGetVersion(&mut version)
    });
    let before_7 = version / 10_000_000 < 7;
    let check = |library: &str, functions: usize, missing: Vec<&str>| {
        let wrong: Vec<_> = missing
            .iter()
            .filter(|name| !(before_7 && SINCE_7.contains(name)))
            .collect();
        assert!(wrong.is_empty(), "{library} lacks {wrong:?}");
        assert!(missing.len() < functions, "{library} has nothing");
    };
    fn table<T: Table>(opened: Result<&T, Error>, check: impl Fn(&str, usize, Vec<&str>)) {
        let table = opened.expect("the library opens");
        check(T::LIBRARY, T::FUNCTIONS.len(), table.missing());
    }
    table(rocm.hip(), check);
    table(rocm.hiprtc(), check);
    table(rocm.rocblas(), check);
    table(rocm.hipblaslt(), check);
    table(rocm.miopen(), check);
    table(rocm.amd_smi(), check);
    // A container that runs one GPU, or no 2:4 sparse model, does without these.
    let all = std::env::var_os("HIPVIT_TEST_ROCM").is_some();
    if all || rocm.rccl().is_ok() {
        table(rocm.rccl(), check);
    }
    if all || rocm.hipsparselt().is_ok() {
        table(rocm.hipsparselt(), check);
    }
}

#[test]
fn without_a_gpu_every_library_answers() {
    let Some(rocm) = rocm() else { return };
    if devices(&rocm) > 0 {
        return;
    }
    let hip = rocm.hip().expect("opened before");
    let mut memory = ptr::null_mut();
    // SAFETY: one pointer is written.
    let status = unsafe { hip.hipMalloc(&mut memory, 64) }.expect("exported");
    assert_eq!(status, hipError_t::hipErrorNoDevice);
    let mut handle = ptr::null_mut();
    // SAFETY: one handle is written.
    let status = unsafe { rocm.rocblas().expect("opens").rocblas_create_handle(&mut handle) };
    assert!(status.expect("exported").ok().is_err());
    let mut handle = ptr::null_mut();
    // SAFETY: one handle is written.
    let status = unsafe { rocm.miopen().expect("opens").miopenCreate(&mut handle) };
    assert!(status.expect("exported").ok().is_err());
    // As above, a container may do without it.
    if let Ok(rccl) = rocm.rccl() {
        let (mut version, mut communicator) = (0, ptr::null_mut());
        // SAFETY: one int is written.
        done(unsafe { rccl.ncclGetVersion(&mut version) });
        assert!(version >= 20_000, "RCCL says that its version is {version}");
        // SAFETY: one handle is written; no list of devices means the first ones.
        let status = unsafe { rccl.ncclCommInitAll(&mut communicator, 1, ptr::null()) };
        assert!(status.expect("exported").ok().is_err());
    }
    let smi = rocm.amd_smi().expect("opens");
    let mut monitored = 0;
    // SAFETY: one number is written, if the first call succeeds, which the last one then ends.
    unsafe {
        if smi.amdsmi_init(2).expect("exported").ok().is_ok() {
            done(smi.amdsmi_get_socket_handles(&mut monitored, ptr::null_mut()));
            done(smi.amdsmi_shut_down());
        }
    }
    assert_eq!(monitored, 0);
}

#[test]
fn miopen_describes_tensors() {
    let Some(rocm) = rocm() else { return };
    let miopen = rocm.miopen().expect("opens");
    let tensor = tensor(miopen, miopenDataType_t::miopenHalf, &[3, 5, 7, 9]);
    let mut data_type = miopenDataType_t::miopenFloat;
    let (mut sizes, mut strides, mut bytes) = ([0; 4], [0; 4], 0);
    // SAFETY: the tensor lives; as many sizes and strides are written as it has axes, and one size.
    unsafe {
        done(miopen.miopenGetTensorDescriptor(
            tensor,
            &mut data_type,
            sizes.as_mut_ptr(),
            strides.as_mut_ptr(),
        ));
        done(miopen.miopenGetTensorNumBytes(tensor, &mut bytes));
        done(miopen.miopenDestroyTensorDescriptor(tensor));
    }
    assert_eq!(data_type, miopenDataType_t::miopenHalf);
    assert_eq!((sizes, strides), ([3, 5, 7, 9], [315, 63, 9, 1]));
    assert_eq!(bytes, 2 * 3 * 5 * 7 * 9);
}

#[test]
fn miopen_plans_the_patch_embedding() {
    let Some(rocm) = rocm() else { return };
    let miopen = rocm.miopen().expect("opens");
    let input = tensor(miopen, miopenDataType_t::miopenFloat, &[2, 3, 224, 224]);
    let filter = tensor(miopen, miopenDataType_t::miopenFloat, &[192, 3, 16, 16]);
    let output = tensor(miopen, miopenDataType_t::miopenFloat, &[2, 192, 14, 14]);
    let mut convolution: miopenConvolutionDescriptor_t = ptr::null_mut();
    let (mut n, mut c, mut h, mut w) = (0, 0, 0, 0);
    let mut problem = ptr::null_mut();
    // SAFETY: what is written is one handle or one int each; what is passed on lives until the last lines destroy it.
    unsafe {
        done(miopen.miopenCreateConvolutionDescriptor(&mut convolution));
        done(miopen.miopenInitConvolutionDescriptor(
            convolution,
            miopenConvolutionMode_t::miopenConvolution,
            0,
            0,
            16,
            16,
            1,
            1,
        ));
        done(miopen.miopenGetConvolutionForwardOutputDim(
            convolution,
            input,
            filter,
            &mut n,
            &mut c,
            &mut h,
            &mut w,
        ));
        assert_eq!([n, c, h, w], [2, 192, 14, 14]);
        done(miopen.miopenCreateConvProblem(
            &mut problem,
            convolution,
            miopenProblemDirection_t::miopenProblemDirectionForward,
        ));
        for (id, tensor) in [
            (miopenTensorArgumentId_t::miopenTensorConvolutionX, input),
            (miopenTensorArgumentId_t::miopenTensorConvolutionW, filter),
            (miopenTensorArgumentId_t::miopenTensorConvolutionY, output),
        ] {
            done(miopen.miopenSetProblemTensorDescriptor(problem, id, tensor));
        }
        done(miopen.miopenDestroyProblem(problem));
        done(miopen.miopenDestroyConvolutionDescriptor(convolution));
        for tensor in [input, filter, output] {
            done(miopen.miopenDestroyTensorDescriptor(tensor));
        }
    }
}

#[test]
fn miopen_describes_softmax_and_attention() {
    let Some(rocm) = rocm() else { return };
    let miopen = rocm.miopen().expect("opens");
    let (mut softmax, mut attention) = (ptr::null_mut(), ptr::null_mut());
    let (mut alpha, mut beta, mut scale) = (0.0, 0.0, 0.0);
    let (mut algorithm, mut mode) = (
        miopenSoftmaxAlgorithm_t::MIOPEN_SOFTMAX_FAST,
        miopenSoftmaxMode_t::MIOPEN_SOFTMAX_MODE_CHANNEL,
    );
    // SAFETY: what is written is one handle or one number each, into handles that were just made. The library has no call
    // that destroys them but `miopenDestroy…` of a problem, so that these few bytes stay.
    unsafe {
        done(miopen.miopenCreateSoftmaxDescriptor(&mut softmax));
        done(miopen.miopenSetSoftmaxDescriptor(
            softmax,
            0.5,
            0.25,
            miopenSoftmaxAlgorithm_t::MIOPEN_SOFTMAX_ACCURATE,
            miopenSoftmaxMode_t::MIOPEN_SOFTMAX_MODE_INSTANCE,
        ));
        done(miopen.miopenGetSoftmaxDescriptor(softmax, &mut alpha, &mut beta, &mut algorithm, &mut mode));
        done(miopen.miopenCreateMhaDescriptor(&mut attention));
        done(miopen.miopenSetMhaDescriptor(attention, 0.125));
        done(miopen.miopenGetMhaDescriptor(attention, &mut scale));
        let mut problem = ptr::null_mut();
        done(miopen.miopenCreateMhaProblem(
            &mut problem,
            attention,
            miopenProblemDirection_t::miopenProblemDirectionForward,
        ));
        let one = tensor(miopen, miopenDataType_t::miopenFloat, &[1, 1, 1, 1]);
        let integer = tensor(miopen, miopenDataType_t::miopenInt64, &[1, 1, 1, 1]);
        let rows = tensor(miopen, miopenDataType_t::miopenFloat, &[2, 3, 50, 1]);
        let operand = tensor(miopen, miopenDataType_t::miopenHalf, &[2, 3, 50, 32]);
        for (id, tensor) in [
            (miopenTensorArgumentId_t::miopenTensorMhaQ, operand),
            (miopenTensorArgumentId_t::miopenTensorMhaK, operand),
            (miopenTensorArgumentId_t::miopenTensorMhaV, operand),
            (miopenTensorArgumentId_t::miopenTensorMhaO, operand),
            (miopenTensorArgumentId_t::miopenTensorMhaDescaleQ, one),
            (miopenTensorArgumentId_t::miopenTensorMhaDescaleK, one),
            (miopenTensorArgumentId_t::miopenTensorMhaDescaleV, one),
            (miopenTensorArgumentId_t::miopenTensorMhaDescaleS, one),
            (miopenTensorArgumentId_t::miopenTensorMhaScaleS, one),
            (miopenTensorArgumentId_t::miopenTensorMhaScaleO, one),
            (miopenTensorArgumentId_t::miopenTensorMhaDropoutProbability, one),
            (miopenTensorArgumentId_t::miopenTensorMhaDropoutSeed, integer),
            (miopenTensorArgumentId_t::miopenTensorMhaDropoutOffset, integer),
            (miopenTensorArgumentId_t::miopenTensorMhaAmaxO, one),
            (miopenTensorArgumentId_t::miopenTensorMhaAmaxS, one),
            (miopenTensorArgumentId_t::miopenTensorMhaM, rows),
            (miopenTensorArgumentId_t::miopenTensorMhaZInv, rows),
        ] {
            done(miopen.miopenSetProblemTensorDescriptor(problem, id, tensor));
        }
        done(miopen.miopenDestroyProblem(problem));
        for tensor in [one, integer, rows, operand] {
            done(miopen.miopenDestroyTensorDescriptor(tensor));
        }
    }
    assert_eq!((alpha, beta, scale), (0.5, 0.25, 0.125));
    assert_eq!(algorithm, miopenSoftmaxAlgorithm_t::MIOPEN_SOFTMAX_ACCURATE);
    assert_eq!(mode, miopenSoftmaxMode_t::MIOPEN_SOFTMAX_MODE_INSTANCE);
}

#[test]
fn hipblaslt_describes_gemms() {
    let Some(rocm) = rocm() else { return };
    let lt = rocm.hipblaslt().expect("opens");
    let (mut matmul, mut matrix) = (ptr::null_mut(), ptr::null_mut());
    let transpose = hipblasOperation_t::HIPBLAS_OP_T;
    let epilogue = hipblasLtEpilogue_t::HIPBLASLT_EPILOGUE_GELU_BIAS;
    let (mut read, mut written) = (hipblasLtEpilogue_t::HIPBLASLT_EPILOGUE_DEFAULT, 0);
    // SAFETY: what is written is one handle each, or an attribute into a variable of its type and size.
    unsafe {
        done(lt.hipblasLtMatmulDescCreate(
            &mut matmul,
            hipblasComputeType_t::HIPBLAS_COMPUTE_32F,
            hipDataType::HIP_R_32F,
        ));
        done(lt.hipblasLtMatmulDescSetAttribute(
            matmul,
            hipblasLtMatmulDescAttributes_t::HIPBLASLT_MATMUL_DESC_TRANSA,
            ptr::from_ref(&transpose).cast(),
            size_of_val(&transpose),
        ));
        done(lt.hipblasLtMatmulDescSetAttribute(
            matmul,
            hipblasLtMatmulDescAttributes_t::HIPBLASLT_MATMUL_DESC_EPILOGUE,
            ptr::from_ref(&epilogue).cast(),
            size_of_val(&epilogue),
        ));
        done(lt.hipblasLtMatmulDescGetAttribute(
            matmul,
            hipblasLtMatmulDescAttributes_t::HIPBLASLT_MATMUL_DESC_EPILOGUE,
            ptr::from_mut(&mut read).cast(),
            size_of_val(&read),
            &mut written,
        ));
        done(lt.hipblasLtMatrixLayoutCreate(&mut matrix, hipDataType::HIP_R_16BF, 197, 768, 197));
        done(lt.hipblasLtMatrixLayoutDestroy(matrix));
        done(lt.hipblasLtMatmulDescDestroy(matmul));
    }
    assert_eq!((read, written), (epilogue, size_of_val(&epilogue)));
}

/// A packed tensor.
fn tensor(miopen: &Miopen, data_type: miopenDataType_t, sizes: &[i32]) -> miopenTensorDescriptor_t {
    let strides: Vec<i32> = (0..sizes.len())
        .map(|axis| sizes[axis + 1..].iter().product())
        .collect();
    let mut tensor = ptr::null_mut();
    // SAFETY: one handle is written; as many sizes and strides are read as `sizes` has.
    unsafe {
        done(miopen.miopenCreateTensorDescriptor(&mut tensor));
        done(miopen.miopenSetTensorDescriptor(
            tensor,
            data_type,
            sizes.len() as i32,
            sizes.as_ptr(),
            strides.as_ptr(),
        ));
    }
    tensor
}
