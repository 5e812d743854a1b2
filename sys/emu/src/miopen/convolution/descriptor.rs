//! Convolution descriptors.

use hipvit_sys::export;
use hipvit_sys::miopen::{
    miopenConvolutionAttrib_t, miopenConvolutionDescriptor_t, miopenConvolutionFindMode_t,
    miopenConvolutionMode_t as Mode, miopenStatus_t, miopenTensorDescriptor_t,
};

use super::super::tensor::tensor;
use super::super::{BAD, give, run};
use super::{CONVOLUTIONS, Convolution, convolution, give_all};

fn sizes(values: &[i32]) -> Result<Vec<usize>, miopenStatus_t> {
    values
        .iter()
        .map(|value| usize::try_from(*value).map_err(|_| BAD))
        .collect()
}

fn set(of: miopenConvolutionDescriptor_t, convolution: Convolution) -> Result<(), miopenStatus_t> {
    CONVOLUTIONS.change(of, |old| *old = convolution).ok_or(BAD)
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
        of: miopenConvolutionDescriptor_t, capacity: i32, axes: *mut i32, padding: *mut i32, stride: *mut i32,
        dilation: *mut i32, mode: *mut Mode,
    ) {
        let convolution = convolution(of)?;
        give_all(axes, &[convolution.padding.len()])?;
        give(mode, convolution.mode)?;
        let count = convolution.padding.len().min(usize::try_from(capacity).map_err(|_| BAD)?);
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
}
