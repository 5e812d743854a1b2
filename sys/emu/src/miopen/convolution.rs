//! Forward convolution, as a GEMM of the filters with the patches of the image (im2col).

mod forward;
mod work;

use hip_provider::miopen::{
    BAD_PARAMETER as BAD, Convolution, TensorDescriptor, UNSUPPORTED, convolution, tensor,
};
use hipvit_sys::miopen::{
    miopenConvFwdAlgorithm_t as Algorithm, miopenConvolutionDescriptor_t, miopenDataType_t, miopenStatus_t,
    miopenTensorDescriptor_t,
};

use super::tensor::DeviceMemory as _;

/// The algorithms: with the patches in the workspace, and without a workspace. MIOpen's other three are not supported.
const ALGORITHMS: [Algorithm; 2] = [
    Algorithm::miopenConvolutionFwdAlgoGEMM,
    Algorithm::miopenConvolutionFwdAlgoDirect,
];

/// The key of a convolution that was found: its problem and algorithm.
pub(super) type Found = (Problem, Algorithm);

/// A validated convolution: its tensors and parameters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Problem {
    x: TensorDescriptor,
    w: TensorDescriptor,
    convolution: Convolution,
    y: TensorDescriptor,
}

impl Problem {
    fn new(
        x: miopenTensorDescriptor_t,
        w: miopenTensorDescriptor_t,
        of: miopenConvolutionDescriptor_t,
        y: miopenTensorDescriptor_t,
    ) -> Result<Self, miopenStatus_t> {
        let convolution = convolution(of)?;
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

    /// Returns the features, the values of a filter, and the output positions of one group.
    fn sizes(&self) -> [usize; 3] {
        [
            self.w.lengths[0] / self.convolution.groups,
            self.w.lengths[1..].iter().product(),
            self.y.lengths[2..].iter().product(),
        ]
    }

    /// Bytes of workspace: the patches of one group of one image.
    fn workspace(&self, algorithm: Algorithm) -> Result<usize, miopenStatus_t> {
        let [_, taps, places] = self.sizes();
        Ok(match algorithm {
            Algorithm::miopenConvolutionFwdAlgoGEMM => taps * places * self.x.element()?.size(),
            _ => 0,
        })
    }

    /// im2col: for each value of a filter and each output position, the index in an image of one group, `None` in the padding.
    /// A row for each value of a filter, a column for each position.
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

/// All positions of a grid, the last axis fastest.
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
