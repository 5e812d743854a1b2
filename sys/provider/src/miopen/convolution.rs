//! Convolution descriptors.

use hipvit_sys::miopen::{
    miopenConvolutionDescriptor_t, miopenConvolutionFindMode_t, miopenConvolutionMode_t as Mode,
    miopenStatus_t,
};

use super::status::{BAD_PARAMETER as BAD, UNSUPPORTED, put};
use super::tensor::TensorDescriptor;
use crate::Objects;

static CONVOLUTIONS: Objects<Convolution> = Objects::new();

/// The object behind a `miopenConvolutionDescriptor_t`: a forward convolution.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Convolution {
    /// Plain, grouped or depthwise.
    pub mode: Mode,
    /// Zeros before and behind the image, for each spatial dimension.
    pub padding: Vec<usize>,
    /// The filter's step, for each spatial dimension. None is 0.
    pub stride: Vec<usize>,
    /// The distance between the filter's values, for each spatial dimension. None is 0.
    pub dilation: Vec<usize>,
    /// Number of groups of channels.
    pub groups: usize,
    /// The mode in which MIOpen would search for a kernel.
    pub find_mode: miopenConvolutionFindMode_t,
    /// The attributes `FP16_ALT_IMPL`, `DETERMINISTIC` and `FP8_ROUNDING_MODE`.
    pub attributes: [i32; 3],
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
        Ok(Self {
            mode,
            padding,
            stride,
            dilation,
            groups: 1,
            find_mode: miopenConvolutionFindMode_t::miopenConvolutionFindModeDefault,
            attributes: [-1, 0, 0],
        })
    }

    /// Returns the lengths of the result: `(in + 2·padding − dilation·(filter − 1) − 1) / stride + 1` in the spatial dimensions.
    ///
    /// # Errors
    /// `miopenStatusBadParm` if the tensors do not fit the convolution or each other.
    pub fn output(&self, x: &TensorDescriptor, w: &TensorDescriptor) -> Result<Vec<usize>, miopenStatus_t> {
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

fn sizes(values: &[i32]) -> Result<Vec<usize>, miopenStatus_t> {
    values
        .iter()
        .map(|value| usize::try_from(*value).map_err(|_| BAD))
        .collect()
}

/// Returns one number for each axis from a C array.
///
/// # Errors
/// `miopenStatusBadParm` if the array is null or the number of axes negative.
///
/// # Safety
/// `from` is null or has `axes` elements, which stay unchanged while the result is used.
pub unsafe fn read_axes<'a>(from: *const i32, axes: i32) -> Result<&'a [i32], miopenStatus_t> {
    let axes = usize::try_from(axes).map_err(|_| BAD)?;
    if from.is_null() {
        return Err(BAD);
    }
    // SAFETY: the caller's array has as many elements.
    Ok(unsafe { std::slice::from_raw_parts(from, axes) })
}

/// Returns a copy of a convolution descriptor.
///
/// # Errors
/// `miopenStatusBadParm` if the handle is invalid.
pub fn convolution(of: miopenConvolutionDescriptor_t) -> Result<Convolution, miopenStatus_t> {
    CONVOLUTIONS.get(of).ok_or(BAD)
}

/// Creates the descriptor of a plain two-dimensional convolution.
///
/// # Errors
/// `miopenStatusBadParm` if `to` is null.
///
/// # Safety
/// `to` is null or may be written.
pub unsafe fn create_convolution(to: *mut miopenConvolutionDescriptor_t) -> Result<(), miopenStatus_t> {
    if to.is_null() {
        return Err(BAD);
    }
    let plain = Convolution::new(Mode::miopenConvolution, vec![0; 2], vec![1; 2], vec![1; 2])?;
    // SAFETY: the caller says that `to` may be written.
    unsafe { put(to, CONVOLUTIONS.add(plain)) }
}

/// Destroys a convolution descriptor.
///
/// # Errors
/// `miopenStatusBadParm` if the handle is invalid.
pub fn destroy_convolution(of: miopenConvolutionDescriptor_t) -> Result<(), miopenStatus_t> {
    CONVOLUTIONS.remove(of).map(drop).ok_or(BAD)
}

/// Sets a convolution descriptor. The number of groups becomes 1.
///
/// # Errors
/// `miopenStatusUnsupportedOp` for transposed convolution; `miopenStatusBadParm` for an invalid handle, no axes, negative numbers, and
/// strides or dilations of 0.
pub fn set_convolution(
    of: miopenConvolutionDescriptor_t,
    mode: Mode,
    padding: &[i32],
    stride: &[i32],
    dilation: &[i32],
) -> Result<(), miopenStatus_t> {
    let convolution = Convolution::new(mode, sizes(padding)?, sizes(stride)?, sizes(dilation)?)?;
    change_convolution(of, |old| *old = convolution)
}

/// Changes a convolution descriptor in place. Returns what `change` returns.
///
/// # Errors
/// `miopenStatusBadParm` if the handle is invalid.
pub fn change_convolution<R>(
    of: miopenConvolutionDescriptor_t,
    change: impl FnOnce(&mut Convolution) -> R,
) -> Result<R, miopenStatus_t> {
    CONVOLUTIONS.change(of, change).ok_or(BAD)
}
