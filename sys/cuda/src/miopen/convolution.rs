//! Forward convolution. MIOpen has five algorithms, so five of cuDNN's eight are supported.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;

use cudarc::cudnn::sys::{
    cudnnConvolutionDescriptor_t, cudnnConvolutionFwdAlgo_t as Cudnn, cudnnConvolutionFwdAlgoPerf_t,
    cudnnConvolutionMode_t, cudnnDataType_t, cudnnMathType_t,
};
use hip_provider::export;
use hip_provider::miopen::{BAD_PARAMETER, Convolution, convolution, tensor};
use hipvit_sys::miopen::{
    miopenConvAlgoPerf_t, miopenConvAlgoPerf_t__bindgen_ty_1, miopenConvFwdAlgorithm_t,
    miopenConvolutionDescriptor_t, miopenDataType_t, miopenHandle_t, miopenStatus_t,
    miopenTensorDescriptor_t,
};

use super::tensor::{Described, DescribedFilter, ints};
use super::{Handle, cudnn, handle, on_device};

/// MIOpen's algorithms and cuDNN's. MIOpen's direct algorithm needs no workspace, like cuDNN's implicit GEMM without
/// precomputed indices; cuDNN's own direct algorithm was never implemented.
const ALGORITHMS: [(miopenConvFwdAlgorithm_t, u32); 5] = [
    (
        miopenConvFwdAlgorithm_t::miopenConvolutionFwdAlgoGEMM,
        Cudnn::CUDNN_CONVOLUTION_FWD_ALGO_GEMM as u32,
    ),
    (
        miopenConvFwdAlgorithm_t::miopenConvolutionFwdAlgoDirect,
        Cudnn::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM as u32,
    ),
    (
        miopenConvFwdAlgorithm_t::miopenConvolutionFwdAlgoFFT,
        Cudnn::CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING as u32,
    ),
    (
        miopenConvFwdAlgorithm_t::miopenConvolutionFwdAlgoWinograd,
        Cudnn::CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED as u32,
    ),
    (
        miopenConvFwdAlgorithm_t::miopenConvolutionFwdAlgoImplicitGEMM,
        Cudnn::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM as u32,
    ),
];

/// cuDNN's convolution descriptor, destroyed on drop.
struct DescribedConvolution(cudnnConvolutionDescriptor_t);

impl DescribedConvolution {
    /// Describes MIOpen's convolution for an input type. Accumulators are f32, f64 or i32; f32 is not rounded to TF32.
    fn new(convolution: &Convolution, kind: miopenDataType_t) -> Result<Self, miopenStatus_t> {
        let (compute, math) = match kind {
            miopenDataType_t::miopenDouble => (
                cudnnDataType_t::CUDNN_DATA_DOUBLE,
                cudnnMathType_t::CUDNN_FMA_MATH,
            ),
            miopenDataType_t::miopenInt8 => (
                cudnnDataType_t::CUDNN_DATA_INT32,
                cudnnMathType_t::CUDNN_DEFAULT_MATH,
            ),
            miopenDataType_t::miopenFloat => {
                (cudnnDataType_t::CUDNN_DATA_FLOAT, cudnnMathType_t::CUDNN_FMA_MATH)
            }
            _ => (
                cudnnDataType_t::CUDNN_DATA_FLOAT,
                cudnnMathType_t::CUDNN_TENSOR_OP_MATH,
            ),
        };
        let mut descriptor = ptr::null_mut();
        // SAFETY: `descriptor` is a handle that the call may write.
        unsafe { cudnn!(cudnnCreateConvolutionDescriptor(&mut descriptor))? };
        let described = Self(descriptor);
        let (padding, stride) = (ints(&convolution.padding)?, ints(&convolution.stride)?);
        let dilation = ints(&convolution.dilation)?;
        let groups = i32::try_from(convolution.groups).map_err(|_| BAD_PARAMETER)?;
        let mode = cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION as u32;
        // SAFETY: the arrays have a number for each axis.
        unsafe {
            cudnn!(cudnnSetConvolutionNdDescriptor(
                descriptor,
                padding.len() as i32,
                padding.as_ptr(),
                stride.as_ptr(),
                dilation.as_ptr(),
                mode,
                compute as u32,
            ))?;
            cudnn!(cudnnSetConvolutionGroupCount(descriptor, groups))?;
            cudnn!(cudnnSetConvolutionMathType(descriptor, math as u32))?;
        }
        Ok(described)
    }
}

impl Drop for DescribedConvolution {
    fn drop(&mut self) {
        // SAFETY: it was created, and nothing else has it. Whether that worked changes nothing.
        let _ = unsafe { cudnn!(cudnnDestroyConvolutionDescriptor(self.0)) };
    }
}

/// All descriptors that cuDNN needs for one convolution.
struct Problem {
    x: Described,
    w: DescribedFilter,
    convolution: DescribedConvolution,
    y: Described,
}

impl Problem {
    fn new(
        x: miopenTensorDescriptor_t,
        w: miopenTensorDescriptor_t,
        of: miopenConvolutionDescriptor_t,
        y: miopenTensorDescriptor_t,
    ) -> Result<Self, miopenStatus_t> {
        let (x, w, y) = (tensor(x)?, tensor(w)?, tensor(y)?);
        Ok(Self {
            convolution: DescribedConvolution::new(&convolution(of)?, x.kind)?,
            x: Described::new(&x)?,
            w: DescribedFilter::new(&w)?,
            y: Described::new(&y)?,
        })
    }

    /// The workspace size of an algorithm; `None` if it does not support this convolution.
    fn workspace(&self, of: Handle, algorithm: u32) -> Option<usize> {
        let mut size = 0;
        // SAFETY: the descriptors live, and `size` is a number that the call may write.
        let found = unsafe {
            cudnn!(cudnnGetConvolutionForwardWorkspaceSize(
                of,
                self.x.0,
                self.w.0,
                self.convolution.0,
                self.y.0,
                algorithm,
                &mut size,
            ))
        };
        found.is_ok().then_some(size)
    }
}

fn of_cudnn(algorithm: u32) -> Option<miopenConvFwdAlgorithm_t> {
    ALGORITHMS
        .iter()
        .find(|(_, cudnn)| *cudnn == algorithm)
        .map(|(miopen, _)| *miopen)
}

fn to_cudnn(algorithm: miopenConvFwdAlgorithm_t) -> Result<u32, miopenStatus_t> {
    ALGORITHMS
        .iter()
        .find(|(miopen, _)| *miopen == algorithm)
        .map(|(_, cudnn)| *cudnn)
        .ok_or(BAD_PARAMETER)
}

export! { miopen, miopenStatus_t, on_device;
    /// The largest workspace of any algorithm.
    fn miopenConvolutionForwardGetWorkSpaceSize(
        of: miopenHandle_t, w: miopenTensorDescriptor_t, x: miopenTensorDescriptor_t,
        convolution: miopenConvolutionDescriptor_t, y: miopenTensorDescriptor_t, size: *mut usize,
    ) {
        let of = handle(of)?;
        let problem = Problem::new(x, w, convolution, y)?;
        let sizes = ALGORITHMS.iter().filter_map(|(_, algorithm)| problem.workspace(of, *algorithm));
        size.write(sizes.max().ok_or(miopenStatus_t::miopenStatusUnsupportedOp)?);
        Ok(())
    }

    /// Times the algorithms that fit the workspace and returns them, fastest first. Times are in milliseconds.
    fn miopenFindConvolutionForwardAlgorithm(
        of: miopenHandle_t, x_desc: miopenTensorDescriptor_t, x: *const c_void, w_desc: miopenTensorDescriptor_t,
        w: *const c_void, convolution: miopenConvolutionDescriptor_t, y_desc: miopenTensorDescriptor_t,
        y: *mut c_void, wanted: i32, count: *mut i32, results: *mut miopenConvAlgoPerf_t, workspace: *mut c_void,
        size: usize, _exhaustive: bool,
    ) {
        const ALL: usize = Cudnn::CUDNN_CONVOLUTION_FWD_ALGO_COUNT as usize;
        let of = handle(of)?;
        let problem = Problem::new(x_desc, w_desc, convolution, y_desc)?;
        let mut found = [const { MaybeUninit::<cudnnConvolutionFwdAlgoPerf_t>::zeroed() }; ALL];
        let mut number = 0;
        cudnn!(cudnnFindConvolutionForwardAlgorithmEx(
            of, problem.x.0, x, problem.w.0, w, problem.convolution.0, problem.y.0, y, ALL as i32, &mut number,
            found.as_mut_ptr().cast(), workspace, size,
        ))?;
        let capacity = usize::try_from(wanted).unwrap_or_default();
        let number = usize::try_from(number).unwrap_or_default().min(ALL);
        let mut given = 0;
        for result in found.iter().take(number).map(MaybeUninit::as_ptr) {
            // Read as integers: a newer cuDNN may return values that the enumerations lack.
            let status = (&raw const (*result).status).cast::<u32>().read();
            let algorithm = of_cudnn((&raw const (*result).algo).cast::<u32>().read());
            if let (0, Some(fwd_algo), true) = (status, algorithm, given < capacity) {
                results.add(given).write(miopenConvAlgoPerf_t {
                    __bindgen_anon_1: miopenConvAlgoPerf_t__bindgen_ty_1 { fwd_algo },
                    time: (*result).time,
                    memory: (*result).memory,
                });
                given += 1;
            }
        }
        count.write(given as i32);
        if given == 0 { Err(miopenStatus_t::miopenStatusUnsupportedOp) } else { Ok(()) }
    }

    fn miopenConvolutionForward(
        of: miopenHandle_t, alpha: *const c_void, x_desc: miopenTensorDescriptor_t, x: *const c_void,
        w_desc: miopenTensorDescriptor_t, w: *const c_void, convolution: miopenConvolutionDescriptor_t,
        algorithm: miopenConvFwdAlgorithm_t, beta: *const c_void, y_desc: miopenTensorDescriptor_t, y: *mut c_void,
        workspace: *mut c_void, size: usize,
    ) {
        let of = handle(of)?;
        let problem = Problem::new(x_desc, w_desc, convolution, y_desc)?;
        cudnn!(cudnnConvolutionForward(
            of, alpha, problem.x.0, x, problem.w.0, w, problem.convolution.0, to_cudnn(algorithm)?, workspace, size,
            beta, problem.y.0, y,
        ))
    }

    /// Adds one number per channel: `y = alpha·b + beta·y`.
    fn miopenConvolutionForwardBias(
        of: miopenHandle_t, alpha: *const c_void, b_desc: miopenTensorDescriptor_t, b: *const c_void,
        beta: *const c_void, y_desc: miopenTensorDescriptor_t, y: *mut c_void,
    ) {
        let (bias, result) = (Described::of(b_desc)?, Described::of(y_desc)?);
        cudnn!(cudnnAddTensor(handle(of)?, alpha, bias.0, b, beta, result.0, y))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn algorithms_map_back_and_forth() {
        for (miopen, cudnn) in ALGORITHMS {
            assert_eq!(to_cudnn(miopen), Ok(cudnn));
            assert_eq!(of_cudnn(cudnn), Some(miopen));
        }
    }
}
