//! Finding and running forward convolutions.

use std::ffi::c_void;

use hip_provider::export;
use hip_provider::miopen::{BAD_PARAMETER as BAD, put, put_all, run, tensor};
use hipvit_sys::miopen::{
    miopenConvAlgoPerf_t, miopenConvAlgoPerf_t__bindgen_ty_1, miopenConvAlgorithm_t,
    miopenConvFwdAlgorithm_t as Algorithm, miopenConvSolution_t, miopenConvolutionDescriptor_t,
    miopenHandle_t, miopenStatus_t, miopenTensorDescriptor_t,
};

use super::super::pointwise::add_bias;
use super::super::tensor::DeviceMemory as _;
use super::super::{HANDLES, scalar, stream, submitted};
use super::work::Work;
use super::{ALGORITHMS, Problem};

/// A solution's number is its algorithm's plus one.
fn solution(number: u64) -> Result<Algorithm, miopenStatus_t> {
    ALGORITHMS
        .into_iter()
        .find(|algorithm| u64::from(algorithm.0) + 1 == number)
        .ok_or(BAD)
}

export! { miopen, miopenStatus_t, run;
    /// The maximum over all algorithms.
    fn miopenConvolutionForwardGetWorkSpaceSize(
        of: miopenHandle_t, w: miopenTensorDescriptor_t, x: miopenTensorDescriptor_t,
        convolution: miopenConvolutionDescriptor_t, y: miopenTensorDescriptor_t, size: *mut usize,
    ) {
        stream(of)?;
        let problem = Problem::new(x, w, convolution, y)?;
        let sizes: Result<Vec<_>, _> = ALGORITHMS.iter().map(|algorithm| problem.workspace(*algorithm)).collect();
        put(size, sizes?.into_iter().max().unwrap_or_default())
    }

    /// Runs the algorithms that fit the workspace and returns them, the fastest first. Times are host times in milliseconds.
    fn miopenFindConvolutionForwardAlgorithm(
        of: miopenHandle_t, x_desc: miopenTensorDescriptor_t, x: *const c_void, w_desc: miopenTensorDescriptor_t,
        w: *const c_void, convolution: miopenConvolutionDescriptor_t, y_desc: miopenTensorDescriptor_t,
        y: *mut c_void, wanted: i32, count: *mut i32, results: *mut miopenConvAlgoPerf_t, workspace: *mut c_void,
        size: usize, _exhaustive: bool,
    ) {
        let problem = Problem::new(x_desc, w_desc, convolution, y_desc)?;
        let capacity = usize::try_from(wanted).ok().filter(|capacity| *capacity > 0).ok_or(BAD)?;
        if results.is_null() {
            return Err(BAD);
        }
        let mut found = Vec::new();
        for algorithm in ALGORITHMS {
            let memory = problem.workspace(algorithm)?;
            if memory == 0 || size >= memory && !workspace.is_null() {
                let work = Work::new(problem.clone(), [x, w], y, algorithm, (workspace, size))?;
                found.push((work.timed(of)?, algorithm, memory));
            }
        }
        found.sort_by(|left, right| left.0.total_cmp(&right.0));
        let given = found.len().min(capacity);
        for (index, (time, fwd_algo, memory)) in found.into_iter().enumerate() {
            HANDLES.change(of, |handle| handle.found.insert((problem.clone(), fwd_algo))).ok_or(BAD)?;
            if index < given {
                let __bindgen_anon_1 = miopenConvAlgoPerf_t__bindgen_ty_1 { fwd_algo };
                results.add(index).write(miopenConvAlgoPerf_t { __bindgen_anon_1, time, memory });
            }
        }
        put_all(count, &[given])
    }

    /// Returns `miopenStatusUnknownError` if the handle did not find the convolution before, as MIOpen does.
    fn miopenConvolutionForward(
        of: miopenHandle_t, alpha: *const c_void, x_desc: miopenTensorDescriptor_t, x: *const c_void,
        w_desc: miopenTensorDescriptor_t, w: *const c_void, convolution: miopenConvolutionDescriptor_t,
        algorithm: Algorithm, beta: *const c_void, y_desc: miopenTensorDescriptor_t, y: *mut c_void,
        workspace: *mut c_void, size: usize,
    ) {
        let problem = Problem::new(x_desc, w_desc, convolution, y_desc)?;
        let key = (problem.clone(), algorithm);
        if !HANDLES.change(of, |handle| handle.found.contains(&key)).ok_or(BAD)? {
            return Err(miopenStatus_t::miopenStatusUnknownError);
        }
        let scale = problem.x.element()?;
        let (alpha, beta) = (scalar(alpha, scale)?, scalar(beta, scale)?);
        let mut work = Work::new(problem, [x, w], y, algorithm, (workspace, size))?;
        (work.alpha, work.beta) = (alpha, beta);
        submitted(of, "miopenConvolutionForward", move |memory| work.run(memory))
    }

    /// Adds one number per channel: `y = y + alpha·b + beta·y`; beta is 0 in MIOpen.
    fn miopenConvolutionForwardBias(
        of: miopenHandle_t, alpha: *const c_void, b_desc: miopenTensorDescriptor_t, b: *const c_void,
        beta: *const c_void, y_desc: miopenTensorDescriptor_t, y: *mut c_void,
    ) {
        let (bias, y) = (tensor(b_desc)?.at(b)?, tensor(y_desc)?.at(y)?);
        let factors = [scalar(alpha, y.element)?, scalar(beta, y.element)?];
        add_bias(of, factors, bias, y)
    }

    fn miopenConvolutionForwardGetSolutionCount(
        of: miopenHandle_t, w: miopenTensorDescriptor_t, x: miopenTensorDescriptor_t,
        convolution: miopenConvolutionDescriptor_t, y: miopenTensorDescriptor_t, count: *mut usize,
    ) {
        stream(of)?;
        Problem::new(x, w, convolution, y)?;
        put(count, ALGORITHMS.len())
    }

    /// Nothing is measured: the times are 0.
    fn miopenConvolutionForwardGetSolution(
        of: miopenHandle_t, w: miopenTensorDescriptor_t, x: miopenTensorDescriptor_t,
        convolution: miopenConvolutionDescriptor_t, y: miopenTensorDescriptor_t, capacity: usize, count: *mut usize,
        solutions: *mut miopenConvSolution_t,
    ) {
        stream(of)?;
        let problem = Problem::new(x, w, convolution, y)?;
        if solutions.is_null() {
            return Err(BAD);
        }
        for (index, algorithm) in ALGORITHMS.into_iter().take(capacity).enumerate() {
            solutions.add(index).write(miopenConvSolution_t {
                time: 0.0,
                workspace_size: problem.workspace(algorithm)?,
                solution_id: u64::from(algorithm.0) + 1,
                // The algorithms have the same numbers in both lists.
                algorithm: miopenConvAlgorithm_t(algorithm.0),
            });
        }
        put(count, ALGORITHMS.len().min(capacity))
    }

    fn miopenConvolutionForwardGetSolutionWorkspaceSize(
        of: miopenHandle_t, w: miopenTensorDescriptor_t, x: miopenTensorDescriptor_t,
        convolution: miopenConvolutionDescriptor_t, y: miopenTensorDescriptor_t, number: u64, size: *mut usize,
    ) {
        stream(of)?;
        put(size, Problem::new(x, w, convolution, y)?.workspace(solution(number)?)?)
    }

    /// No operation besides the checks.
    fn miopenConvolutionForwardCompileSolution(
        of: miopenHandle_t, w: miopenTensorDescriptor_t, x: miopenTensorDescriptor_t,
        convolution: miopenConvolutionDescriptor_t, y: miopenTensorDescriptor_t, number: u64,
    ) {
        stream(of)?;
        Problem::new(x, w, convolution, y)?;
        solution(number).map(drop)
    }

    fn miopenConvolutionForwardImmediate(
        of: miopenHandle_t, w_desc: miopenTensorDescriptor_t, w: *const c_void, x_desc: miopenTensorDescriptor_t,
        x: *const c_void, convolution: miopenConvolutionDescriptor_t, y_desc: miopenTensorDescriptor_t,
        y: *mut c_void, workspace: *mut c_void, size: usize, number: u64,
    ) {
        let problem = Problem::new(x_desc, w_desc, convolution, y_desc)?;
        let work = Work::new(problem, [x, w], y, solution(number)?, (workspace, size))?;
        submitted(of, "miopenConvolutionForwardImmediate", move |memory| work.run(memory))
    }
}
