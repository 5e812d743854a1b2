//! Forward convolution, as a GEMM of the filters with the patches of the image (im2col).

mod descriptor;
mod forward;
mod work;

use hipvit_sys::miopen::{
    miopenConvFwdAlgorithm_t as Algorithm, miopenConvolutionDescriptor_t, miopenConvolutionFindMode_t,
    miopenConvolutionMode_t as Mode, miopenDataType_t, miopenStatus_t, miopenTensorDescriptor_t,
};

use super::tensor::{Tensor, tensor};
use super::{BAD, UNSUPPORTED, give};
use crate::compute::Objects;

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
            let extent = (image + 2 * self.padding[axis]).checked_sub(self.dilation[axis] * (filter - 1) + 1);
            lengths.push(extent.ok_or(BAD)? / self.stride[axis] + 1);
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

fn convolution(of: miopenConvolutionDescriptor_t) -> Result<Convolution, miopenStatus_t> {
    CONVOLUTIONS.get(of).ok_or(BAD)
}

/// Gives numbers to an array of C's.
///
/// # Safety
/// `to` is null or an array of at least as many elements as `values`.
unsafe fn give_all(to: *mut i32, values: &[usize]) -> Result<(), miopenStatus_t> {
    for (index, value) in values.iter().enumerate() {
        let value = i32::try_from(*value).map_err(|_| BAD)?;
        // SAFETY: as the caller says; null stays null.
        unsafe { give(if to.is_null() { to } else { to.add(index) }, value) }?;
    }
    Ok(())
}
