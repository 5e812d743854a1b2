//! Forward convolution, as products of the filters with the patches that they meet.

use std::ffi::c_void;
use std::sync::mpsc;
use std::time::Instant;

use gcnrun::{FaultKind, Memory};
use hipvit_sys::export;
use hipvit_sys::miopen::{
    miopenConvAlgoPerf_t, miopenConvAlgoPerf_t__bindgen_ty_1, miopenConvAlgorithm_t,
    miopenConvFwdAlgorithm_t as Algorithm, miopenConvSolution_t, miopenConvolutionAttrib_t,
    miopenConvolutionDescriptor_t, miopenConvolutionFindMode_t, miopenConvolutionMode_t as Mode,
    miopenDataType_t, miopenHandle_t, miopenStatus_t, miopenTensorDescriptor_t,
};
use ndarray::ArrayView2;
use rayon::prelude::*;

use super::pointwise::add_bias;
use super::tensor::{Placed, Tensor, tensor};
use super::{BAD, HANDLES, UNSUPPORTED, give, run, scalar, stream, submitted, translate};
use crate::compute::{Element, Objects, Real, multiply, read, write};
use crate::hip;

static CONVOLUTIONS: Objects<Convolution> = Objects::new();

/// The ways to compute one: with the patches in the workspace, and without a workspace. MIOpen's other three are not
/// offered.
const ALGORITHMS: [Algorithm; 2] = [
    Algorithm::miopenConvolutionFwdAlgoGEMM,
    Algorithm::miopenConvolutionFwdAlgoDirect,
];

/// What a `miopenConvolutionDescriptor_t` stands for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Convolution {
    mode: Mode,
    padding: Vec<usize>,
    stride: Vec<usize>,
    dilation: Vec<usize>,
    groups: usize,
    find_mode: miopenConvolutionFindMode_t,
    /// FP16_ALT_IMPL, DETERMINISTIC and FP8_ROUNDING_MODE; they change nothing here.
    attributes: [i32; 3],
}

/// A convolution that was found: of these tensors, in this way.
pub(super) type Found = (Problem, Algorithm);

/// A convolution's shapes, which fit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Problem {
    x: Tensor,
    w: Tensor,
    convolution: Convolution,
    y: Tensor,
}

impl Convolution {
    fn new(
        mode: Mode,
        padding: Vec<usize>,
        stride: Vec<usize>,
        dilation: Vec<usize>,
    ) -> Result<Self, miopenStatus_t> {
        match mode {
            Mode::miopenConvolution | Mode::miopenGroupConv | Mode::miopenDepthwise => {}
            Mode::miopenTranspose => return Err(UNSUPPORTED),
            _ => return Err(BAD),
        }
        if padding.is_empty() || stride.contains(&0) || dilation.contains(&0) {
            return Err(BAD);
        }
        let find_mode = miopenConvolutionFindMode_t::miopenConvolutionFindModeDefault;
        Ok(Self {
            mode,
            padding,
            stride,
            dilation,
            groups: 1,
            find_mode,
            attributes: [-1, 0, 0],
        })
    }

    /// The lengths of the result: `(in + 2·padding − dilation·(filter − 1) − 1) / stride + 1` in space.
    fn output(&self, x: &Tensor, w: &Tensor) -> Result<Vec<usize>, miopenStatus_t> {
        let ([batch, channels, image @ ..], [features, of_group, filter @ ..]) =
            (&x.lengths[..], &w.lengths[..])
        else {
            return Err(BAD);
        };
        if [image.len(), filter.len()] != [self.padding.len(); 2]
            || *channels != of_group * self.groups
            || !features.is_multiple_of(self.groups)
        {
            return Err(BAD);
        }
        let mut lengths = vec![*batch, *features];
        for (axis, (image, filter)) in image.iter().zip(filter).enumerate() {
            let room = (image + 2 * self.padding[axis]).checked_sub(self.dilation[axis] * (filter - 1) + 1);
            lengths.push(room.ok_or(BAD)? / self.stride[axis] + 1);
        }
        Ok(lengths)
    }
}

impl Problem {
    fn new(
        x: miopenTensorDescriptor_t,
        w: miopenTensorDescriptor_t,
        of: miopenConvolutionDescriptor_t,
        y: miopenTensorDescriptor_t,
    ) -> Result<Self, miopenStatus_t> {
        let convolution = CONVOLUTIONS.get(of).ok_or(BAD)?;
        let (x, w, y) = (tensor(x)?, tensor(w)?, tensor(y)?);
        if convolution.output(&x, &w)? != y.lengths {
            return Err(BAD);
        }
        let of_int8 = [
            miopenDataType_t::miopenInt8,
            miopenDataType_t::miopenInt32,
            miopenDataType_t::miopenFloat,
        ];
        let types_fit = match x.kind {
            miopenDataType_t::miopenInt8 => of_int8.contains(&y.kind),
            miopenDataType_t::miopenInt32 | miopenDataType_t::miopenInt64 => false,
            kind => y.kind == kind,
        };
        if x.kind != w.kind || !types_fit {
            return Err(UNSUPPORTED);
        }
        x.element()?;
        Ok(Self { x, w, convolution, y })
    }

    /// Of one group: features, values that meet in a filter, and places.
    fn sizes(&self) -> [usize; 3] {
        [
            self.w.lengths[0] / self.convolution.groups,
            self.w.lengths[1..].iter().product(),
            self.y.lengths[2..].iter().product(),
        ]
    }

    /// Bytes: the patches of one group of one image.
    fn workspace(&self, algorithm: Algorithm) -> Result<usize, miopenStatus_t> {
        let [_, taps, places] = self.sizes();
        Ok(match algorithm {
            Algorithm::miopenConvolutionFwdAlgoGEMM => taps * places * self.x.element()?.size(),
            _ => 0,
        })
    }

    /// What each filter's value meets at each place: its index in an image of one group, `None` in the padding.
    /// A row for each value of a filter, in rows of places.
    fn patches(&self) -> Vec<Option<usize>> {
        let Convolution {
            padding,
            stride,
            dilation,
            ..
        } = &self.convolution;
        let (image, filter, places) = (&self.x.lengths[2..], &self.w.lengths[2..], &self.y.lengths[2..]);
        let mut met = Vec::new();
        for tap in Places::new(&self.w.lengths[1..]) {
            for place in Places::new(places) {
                let along = |axis: usize| {
                    let at = place[axis] * stride[axis] + tap[axis + 1] * dilation[axis];
                    at.checked_sub(padding[axis]).filter(|at| *at < image[axis])
                };
                let index = (0..filter.len())
                    .try_fold(tap[0], |index, axis| Some(index * image[axis] + along(axis)?));
                met.push(index);
            }
        }
        met
    }
}

/// All places of a grid, the last axis fastest.
struct Places<'a> {
    lengths: &'a [usize],
    next: Option<Vec<usize>>,
}

impl<'a> Places<'a> {
    fn new(lengths: &'a [usize]) -> Self {
        Self {
            lengths,
            next: Some(vec![0; lengths.len()]),
        }
    }
}

impl Iterator for Places<'_> {
    type Item = Vec<usize>;

    fn next(&mut self) -> Option<Vec<usize>> {
        let place = self.next.take()?;
        let mut next = place.clone();
        for axis in (0..next.len()).rev() {
            next[axis] += 1;
            if next[axis] < self.lengths[axis] {
                self.next = Some(next);
                break;
            }
            next[axis] = 0;
        }
        Some(place)
    }
}

/// A convolution to be done.
#[derive(Clone)]
struct Work {
    problem: Problem,
    x: Placed,
    w: Placed,
    y: Placed,
    alpha: f64,
    beta: f64,
    algorithm: Algorithm,
    workspace: u64,
}

impl Work {
    fn new(
        problem: Problem,
        [x, w]: [*const c_void; 2],
        y: *mut c_void,
        algorithm: Algorithm,
        (workspace, size): (*mut c_void, usize),
    ) -> Result<Self, miopenStatus_t> {
        let needed = problem.workspace(algorithm)?;
        if needed > 0 && (workspace.is_null() || size < needed) {
            return Err(BAD);
        }
        Ok(Self {
            x: problem.x.clone().at(x)?,
            w: problem.w.clone().at(w)?,
            y: problem.y.clone().at(y)?,
            problem,
            alpha: 1.0,
            beta: 0.0,
            algorithm,
            workspace: workspace.expose_provenance() as u64,
        })
    }

    /// In f32, but f64 exactly so, and integers exactly.
    fn run(&self, memory: &Memory) -> Result<(), FaultKind> {
        match self.x.element {
            Element::F64 | Element::I8 => self.run_in::<f64>(memory),
            _ => self.run_in::<f32>(memory),
        }
    }

    fn run_in<T: Real>(&self, memory: &Memory) -> Result<(), FaultKind> {
        let (x, w) = (self.x.load::<T>(memory)?, self.w.load::<T>(memory)?);
        let groups = self.problem.convolution.groups;
        let [features, taps, places] = self.problem.sizes();
        let met = self.problem.patches();
        let image = x.len() / (self.problem.x.lengths[0] * groups);
        let one = |(index, image): (usize, &[T])| {
            let patches: Vec<T> = met
                .iter()
                .map(|at| at.map_or(T::zero(), |at| image[at]))
                .collect();
            let patches = self.through_workspace(memory, patches)?;
            let filters = &w[index % groups * features * taps..][..features * taps];
            // In columns it is the transpose: places by features.
            let product = ArrayView2::from_shape((taps, places), &patches)
                .ok()
                .zip(ArrayView2::from_shape((features, taps), filters).ok())
                .and_then(|(patches, filters)| multiply(&patches.t(), &filters.t(), places, features));
            product.ok_or_else(|| FaultKind::Configuration {
                what: "a convolution of other shapes".into(),
            })
        };
        let images = x.par_chunks(image).enumerate();
        let results: Result<Vec<Vec<T>>, FaultKind> = match self.algorithm {
            // One workspace serves one image after the other.
            Algorithm::miopenConvolutionFwdAlgoGEMM => x.chunks(image).enumerate().map(one).collect(),
            _ => images.map(one).collect(),
        };
        self.y.blend(memory, self.alpha, results?.concat(), self.beta)
    }

    /// The patches, after the workspace has held them where the algorithm has one.
    fn through_workspace<T: Real>(&self, memory: &Memory, patches: Vec<T>) -> Result<Vec<T>, FaultKind> {
        if self.algorithm != Algorithm::miopenConvolutionFwdAlgoGEMM {
            return Ok(patches);
        }
        let bytes = T::encode(self.x.element, &patches);
        write(memory, self.workspace, &bytes)?;
        Ok(T::decode(
            self.x.element,
            &read(memory, self.workspace, bytes.len())?,
        ))
    }

    /// Does it, waits, and gives the milliseconds that it took.
    fn timed(self, of: miopenHandle_t) -> Result<f32, miopenStatus_t> {
        let (sender, receiver) = mpsc::channel();
        submitted(of, "miopenFindConvolutionForwardAlgorithm", move |memory| {
            let start = Instant::now();
            self.run(memory)?;
            // Should nobody wait any more, nobody needs it.
            let _ = sender.send(start.elapsed().as_secs_f32() * 1e3);
            Ok(())
        })?;
        hip::synchronize(stream(of)?).map_err(translate)?;
        receiver
            .recv()
            .map_err(|_| miopenStatus_t::miopenStatusInternalError)
    }
}

/// A solution's number is its algorithm's, and one.
fn solution(number: u64) -> Result<Algorithm, miopenStatus_t> {
    ALGORITHMS
        .into_iter()
        .find(|algorithm| u64::from(algorithm.0) + 1 == number)
        .ok_or(BAD)
}

fn sizes(values: &[i32]) -> Result<Vec<usize>, miopenStatus_t> {
    values
        .iter()
        .map(|value| usize::try_from(*value).map_err(|_| BAD))
        .collect()
}

fn set(of: miopenConvolutionDescriptor_t, convolution: Convolution) -> Result<(), miopenStatus_t> {
    CONVOLUTIONS.change(of, |old| *old = convolution).ok_or(BAD)
}

fn convolution(of: miopenConvolutionDescriptor_t) -> Result<Convolution, miopenStatus_t> {
    CONVOLUTIONS.get(of).ok_or(BAD)
}

/// Gives numbers to an array of C's.
///
/// # Safety
/// `to` is null or has room.
unsafe fn give_all(to: *mut i32, values: &[usize]) -> Result<(), miopenStatus_t> {
    for (index, value) in values.iter().enumerate() {
        let value = i32::try_from(*value).map_err(|_| BAD)?;
        // SAFETY: as the caller says; null stays null.
        unsafe { give(if to.is_null() { to } else { to.add(index) }, value) }?;
    }
    Ok(())
}

export! { miopen, miopenStatus_t, run;
    fn miopenCreateConvolutionDescriptor(to: *mut miopenConvolutionDescriptor_t) {
        if to.is_null() {
            return Err(BAD);
        }
        give(to, CONVOLUTIONS.add(Convolution::new(Mode::miopenConvolution, vec![0; 2], vec![1; 2], vec![1; 2])?))
    }

    fn miopenDestroyConvolutionDescriptor(of: miopenConvolutionDescriptor_t) {
        CONVOLUTIONS.remove(of).map(drop).ok_or(BAD)
    }

    fn miopenInitConvolutionDescriptor(
        of: miopenConvolutionDescriptor_t, mode: Mode, pad_h: i32, pad_w: i32, stride_h: i32, stride_w: i32,
        dilation_h: i32, dilation_w: i32,
    ) {
        let (padding, stride) = (sizes(&[pad_h, pad_w])?, sizes(&[stride_h, stride_w])?);
        set(of, Convolution::new(mode, padding, stride, sizes(&[dilation_h, dilation_w])?)?)
    }

    fn miopenInitConvolutionNdDescriptor(
        of: miopenConvolutionDescriptor_t, axes: i32, padding: *const i32, stride: *const i32, dilation: *const i32,
        mode: Mode,
    ) {
        let axes = usize::try_from(axes).map_err(|_| BAD)?;
        if padding.is_null() || stride.is_null() || dilation.is_null() {
            return Err(BAD);
        }
        let of_axes = |values: *const i32| sizes(std::slice::from_raw_parts(values, axes));
        set(of, Convolution::new(mode, of_axes(padding)?, of_axes(stride)?, of_axes(dilation)?)?)
    }

    fn miopenGetConvolutionDescriptor(
        of: miopenConvolutionDescriptor_t, mode: *mut Mode, pad_h: *mut i32, pad_w: *mut i32, stride_h: *mut i32,
        stride_w: *mut i32, dilation_h: *mut i32, dilation_w: *mut i32,
    ) {
        let convolution = convolution(of)?;
        let ([top, left], [down, right], [high, wide]) =
            (&convolution.padding[..], &convolution.stride[..], &convolution.dilation[..])
        else {
            return Err(BAD);
        };
        give(mode, convolution.mode)?;
        for (to, value) in [
            (pad_h, top), (pad_w, left), (stride_h, down), (stride_w, right), (dilation_h, high), (dilation_w, wide),
        ] {
            give_all(to, &[*value])?;
        }
        Ok(())
    }

    fn miopenGetConvolutionNdDescriptor(
        of: miopenConvolutionDescriptor_t, room: i32, axes: *mut i32, padding: *mut i32, stride: *mut i32,
        dilation: *mut i32, mode: *mut Mode,
    ) {
        let convolution = convolution(of)?;
        give_all(axes, &[convolution.padding.len()])?;
        give(mode, convolution.mode)?;
        let count = convolution.padding.len().min(usize::try_from(room).map_err(|_| BAD)?);
        give_all(padding, &convolution.padding[..count])?;
        give_all(stride, &convolution.stride[..count])?;
        give_all(dilation, &convolution.dilation[..count])
    }

    fn miopenSetConvolutionGroupCount(of: miopenConvolutionDescriptor_t, groups: i32) {
        let groups = usize::try_from(groups).ok().filter(|groups| *groups > 0).ok_or(BAD)?;
        CONVOLUTIONS.change(of, |convolution| convolution.groups = groups).ok_or(BAD)
    }

    fn miopenGetConvolutionGroupCount(of: miopenConvolutionDescriptor_t, groups: *mut i32) {
        give_all(groups, &[convolution(of)?.groups])
    }

    fn miopenGetConvolutionSpatialDim(of: miopenConvolutionDescriptor_t, count: *mut i32) {
        give_all(count, &[convolution(of)?.padding.len()])
    }

    /// Changes nothing: results are the same from run to run.
    fn miopenSetConvolutionAttribute(
        of: miopenConvolutionDescriptor_t, attribute: miopenConvolutionAttrib_t, value: i32,
    ) {
        let set = |convolution: &mut Convolution| {
            convolution.attributes.get_mut(attribute.0 as usize).map(|slot| *slot = value)
        };
        CONVOLUTIONS.change(of, set).flatten().ok_or(BAD)
    }

    fn miopenGetConvolutionAttribute(
        of: miopenConvolutionDescriptor_t, attribute: miopenConvolutionAttrib_t, value: *mut i32,
    ) {
        give(value, *convolution(of)?.attributes.get(attribute.0 as usize).ok_or(BAD)?)
    }

    /// Changes nothing: there is no database to ask, and little to search.
    fn miopenSetConvolutionFindMode(of: miopenConvolutionDescriptor_t, mode: miopenConvolutionFindMode_t) {
        CONVOLUTIONS.change(of, |convolution| convolution.find_mode = mode).ok_or(BAD)
    }

    fn miopenGetConvolutionFindMode(of: miopenConvolutionDescriptor_t, mode: *mut miopenConvolutionFindMode_t) {
        give(mode, convolution(of)?.find_mode)
    }

    fn miopenGetConvolutionForwardOutputDim(
        of: miopenConvolutionDescriptor_t, x: miopenTensorDescriptor_t, w: miopenTensorDescriptor_t, n: *mut i32,
        c: *mut i32, h: *mut i32, width: *mut i32,
    ) {
        let lengths = convolution(of)?.output(&tensor(x)?, &tensor(w)?)?;
        if lengths.len() != 4 {
            return Err(BAD);
        }
        for (to, length) in [n, c, h, width].into_iter().zip(lengths) {
            give_all(to, &[length])?;
        }
        Ok(())
    }

    fn miopenGetConvolutionNdForwardOutputDim(
        of: miopenConvolutionDescriptor_t, x: miopenTensorDescriptor_t, w: miopenTensorDescriptor_t, count: *mut i32,
        to: *mut i32,
    ) {
        let lengths = convolution(of)?.output(&tensor(x)?, &tensor(w)?)?;
        give_all(count, &[lengths.len()])?;
        give_all(to, &lengths)
    }

    /// As much as the algorithm needs that needs the most.
    fn miopenConvolutionForwardGetWorkSpaceSize(
        of: miopenHandle_t, w: miopenTensorDescriptor_t, x: miopenTensorDescriptor_t,
        convolution: miopenConvolutionDescriptor_t, y: miopenTensorDescriptor_t, size: *mut usize,
    ) {
        stream(of)?;
        let problem = Problem::new(x, w, convolution, y)?;
        let sizes: Result<Vec<_>, _> = ALGORITHMS.iter().map(|algorithm| problem.workspace(*algorithm)).collect();
        give(size, sizes?.into_iter().max().unwrap_or_default())
    }

    /// Runs the algorithms that fit the workspace and gives them out, the fastest first. Times are of this machine, in
    /// milliseconds.
    fn miopenFindConvolutionForwardAlgorithm(
        of: miopenHandle_t, x_desc: miopenTensorDescriptor_t, x: *const c_void, w_desc: miopenTensorDescriptor_t,
        w: *const c_void, convolution: miopenConvolutionDescriptor_t, y_desc: miopenTensorDescriptor_t,
        y: *mut c_void, wanted: i32, count: *mut i32, results: *mut miopenConvAlgoPerf_t, workspace: *mut c_void,
        size: usize, _exhaustive: bool,
    ) {
        let problem = Problem::new(x_desc, w_desc, convolution, y_desc)?;
        let room = usize::try_from(wanted).ok().filter(|room| *room > 0).ok_or(BAD)?;
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
        let given = found.len().min(room);
        for (index, (time, fwd_algo, memory)) in found.into_iter().enumerate() {
            HANDLES.change(of, |handle| handle.found.insert((problem.clone(), fwd_algo))).ok_or(BAD)?;
            if index < given {
                let __bindgen_anon_1 = miopenConvAlgoPerf_t__bindgen_ty_1 { fwd_algo };
                results.add(index).write(miopenConvAlgoPerf_t { __bindgen_anon_1, time, memory });
            }
        }
        give_all(count, &[given])
    }

    /// `miopenStatusUnknownError`, as MIOpen says, if the handle has not found it before.
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
        let work = Work::new(problem, [x, w], y, algorithm, (workspace, size))?;
        let work = Work { alpha, beta, ..work };
        submitted(of, "miopenConvolutionForward", move |memory| work.run(memory))
    }

    /// Adds one number per channel: `y = y + alpha·b`, and `beta·y`, which is 0 in MIOpen.
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
        give(count, ALGORITHMS.len())
    }

    /// Nothing is measured: the times are 0.
    fn miopenConvolutionForwardGetSolution(
        of: miopenHandle_t, w: miopenTensorDescriptor_t, x: miopenTensorDescriptor_t,
        convolution: miopenConvolutionDescriptor_t, y: miopenTensorDescriptor_t, room: usize, count: *mut usize,
        solutions: *mut miopenConvSolution_t,
    ) {
        stream(of)?;
        let problem = Problem::new(x, w, convolution, y)?;
        if solutions.is_null() {
            return Err(BAD);
        }
        for (index, algorithm) in ALGORITHMS.into_iter().take(room).enumerate() {
            solutions.add(index).write(miopenConvSolution_t {
                time: 0.0,
                workspace_size: problem.workspace(algorithm)?,
                solution_id: u64::from(algorithm.0) + 1,
                // The algorithms have the same numbers in both lists.
                algorithm: miopenConvAlgorithm_t(algorithm.0),
            });
        }
        give(count, ALGORITHMS.len().min(room))
    }

    fn miopenConvolutionForwardGetSolutionWorkspaceSize(
        of: miopenHandle_t, w: miopenTensorDescriptor_t, x: miopenTensorDescriptor_t,
        convolution: miopenConvolutionDescriptor_t, y: miopenTensorDescriptor_t, number: u64, size: *mut usize,
    ) {
        stream(of)?;
        give(size, Problem::new(x, w, convolution, y)?.workspace(solution(number)?)?)
    }

    /// There is nothing to compile.
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
