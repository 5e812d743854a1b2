//! Tensor descriptors.

use hipvit_sys::miopen::{miopenDataType_t, miopenStatus_t, miopenTensorDescriptor_t, miopenTensorLayout_t};

use super::status::{BAD_PARAMETER as BAD, UNSUPPORTED, put};
use crate::Objects;

static TENSORS: Objects<TensorDescriptor> = Objects::new();

/// The object behind a `miopenTensorDescriptor_t`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TensorDescriptor {
    /// The element type.
    pub kind: miopenDataType_t,
    /// The lengths in the order N, C, spatial dimensions. None is 0.
    pub lengths: Vec<usize>,
    /// The strides of these dimensions, in elements.
    pub strides: Vec<usize>,
}

impl TensorDescriptor {
    fn new(kind: miopenDataType_t, lengths: Vec<usize>, strides: Vec<usize>) -> Result<Self, miopenStatus_t> {
        let largest = i32::MAX as usize;
        let wrong = |value: &usize| *value == 0 || *value > largest;
        if lengths.is_empty() || lengths.len() != strides.len() || lengths.iter().chain(&strides).any(wrong) {
            return Err(BAD);
        }
        Ok(Self {
            kind,
            lengths,
            strides,
        })
    }

    /// Strides without gaps for these lengths. `order` lists the dimensions as they are in memory, the slowest first.
    fn packed(
        lengths: &[usize],
        order: impl DoubleEndedIterator<Item = usize>,
    ) -> Result<Vec<usize>, miopenStatus_t> {
        let mut strides = vec![1; lengths.len()];
        let mut stride = 1_usize;
        for dimension in order.rev() {
            strides[dimension] = stride;
            stride = stride.checked_mul(lengths[dimension]).ok_or(BAD)?;
        }
        Ok(strides)
    }

    fn channels_first(lengths: &[usize]) -> Result<Vec<usize>, miopenStatus_t> {
        Self::packed(lengths, 0..lengths.len())
    }

    fn channels_last(lengths: &[usize]) -> Result<Vec<usize>, miopenStatus_t> {
        if lengths.len() < 3 {
            return Err(BAD);
        }
        let order: Vec<_> = [0].into_iter().chain(2..lengths.len()).chain([1]).collect();
        Self::packed(lengths, order.into_iter())
    }

    /// Returns the strides of a layout without gaps.
    ///
    /// # Errors
    /// `miopenStatusUnsupportedOp` for layouts with vectors of channels; `miopenStatusBadParm` for lengths that do not fit the layout.
    pub fn strides_of(layout: miopenTensorLayout_t, lengths: &[usize]) -> Result<Vec<usize>, miopenStatus_t> {
        match layout {
            miopenTensorLayout_t::miopenTensorNCHW | miopenTensorLayout_t::miopenTensorNCDHW => {
                Self::channels_first(lengths)
            }
            miopenTensorLayout_t::miopenTensorNHWC | miopenTensorLayout_t::miopenTensorNDHWC => {
                Self::channels_last(lengths)
            }
            _ => Err(UNSUPPORTED),
        }
    }

    /// True if the tensor has no gaps and the last dimension is contiguous.
    pub fn is_packed(&self) -> bool {
        Self::channels_first(&self.lengths).is_ok_and(|packed| packed == self.strides)
    }

    /// True if the tensor has no gaps and the channels are contiguous.
    pub fn is_channels_last(&self) -> bool {
        Self::channels_last(&self.lengths).is_ok_and(|packed| packed == self.strides)
    }

    /// Number of elements.
    pub fn count(&self) -> usize {
        self.lengths.iter().product()
    }

    /// Number of elements from the first to the last, gaps included.
    pub fn span(&self) -> usize {
        let last: usize = self
            .lengths
            .iter()
            .zip(&self.strides)
            .map(|(length, stride)| (length - 1) * stride)
            .sum();
        last + 1
    }

    /// Number of bytes from the first element to the last, gaps included.
    ///
    /// # Errors
    /// `miopenStatusUnsupportedOp` for element types whose size is not known.
    pub fn bytes(&self) -> Result<usize, miopenStatus_t> {
        Ok(self.span() * element_size(self.kind)?)
    }
}

/// Returns the bytes of an element.
///
/// # Errors
/// `miopenStatusUnsupportedOp` for element types whose size is not known.
pub fn element_size(kind: miopenDataType_t) -> Result<usize, miopenStatus_t> {
    Ok(match kind {
        miopenDataType_t::miopenDouble | miopenDataType_t::miopenInt64 => 8,
        miopenDataType_t::miopenFloat | miopenDataType_t::miopenInt32 => 4,
        miopenDataType_t::miopenHalf | miopenDataType_t::miopenBFloat16 => 2,
        miopenDataType_t::miopenInt8
        | miopenDataType_t::miopenFloat8_fnuz
        | miopenDataType_t::miopenBFloat8_fnuz => 1,
        _ => return Err(UNSUPPORTED),
    })
}

/// Reads `count` numbers from a C array.
///
/// # Errors
/// `miopenStatusBadParm` if the array is null, or a number or the count is negative.
///
/// # Safety
/// `from` is null or has `count` elements.
pub unsafe fn read_numbers<T: Copy + TryInto<usize>>(
    from: *const T,
    count: i32,
) -> Result<Vec<usize>, miopenStatus_t> {
    let count = usize::try_from(count).map_err(|_| BAD)?;
    if from.is_null() {
        return Err(BAD);
    }
    (0..count)
        // SAFETY: the caller's array has `count` elements.
        .map(|index| unsafe { *from.add(index) }.try_into().map_err(|_| BAD))
        .collect()
}

/// Returns a copy of a tensor descriptor that has been set.
///
/// # Errors
/// `miopenStatusBadParm` if the handle is invalid or the descriptor is not set.
pub fn tensor(of: miopenTensorDescriptor_t) -> Result<TensorDescriptor, miopenStatus_t> {
    let found = TENSORS.get(of).filter(|tensor| !tensor.lengths.is_empty());
    found.ok_or(BAD)
}

/// Creates a tensor descriptor that is not set.
///
/// # Errors
/// `miopenStatusBadParm` if `to` is null.
///
/// # Safety
/// `to` is null or may be written.
pub unsafe fn create_tensor(to: *mut miopenTensorDescriptor_t) -> Result<(), miopenStatus_t> {
    if to.is_null() {
        return Err(BAD);
    }
    let unset = TensorDescriptor {
        kind: miopenDataType_t::miopenFloat,
        lengths: Vec::new(),
        strides: Vec::new(),
    };
    // SAFETY: the caller says that `to` may be written.
    unsafe { put(to, TENSORS.add(unset)) }
}

/// Destroys a tensor descriptor.
///
/// # Errors
/// `miopenStatusBadParm` if the handle is invalid.
pub fn destroy_tensor(of: miopenTensorDescriptor_t) -> Result<(), miopenStatus_t> {
    TENSORS.remove(of).map(drop).ok_or(BAD)
}

/// Sets a tensor descriptor; without strides, to a tensor without gaps whose last dimension is contiguous.
///
/// # Errors
/// `miopenStatusBadParm` if the handle is invalid, the numbers of strides and lengths differ, or one of them is not in 1 …
/// `i32::MAX`.
pub fn set_tensor<T: Copy + TryInto<usize>>(
    of: miopenTensorDescriptor_t,
    kind: miopenDataType_t,
    lengths: &[T],
    strides: Option<&[T]>,
) -> Result<(), miopenStatus_t> {
    let sizes = |values: &[T]| -> Result<Vec<usize>, miopenStatus_t> {
        values
            .iter()
            .map(|value| (*value).try_into().map_err(|_| BAD))
            .collect()
    };
    let lengths = sizes(lengths)?;
    let strides = match strides {
        Some(strides) => sizes(strides)?,
        None => TensorDescriptor::channels_first(&lengths)?,
    };
    let tensor = TensorDescriptor::new(kind, lengths, strides)?;
    TENSORS.change(of, |old| *old = tensor).ok_or(BAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_follow_the_layout() {
        assert_eq!(
            TensorDescriptor::channels_first(&[2, 3, 4, 5]),
            Ok(vec![60, 20, 5, 1])
        );
        assert_eq!(
            TensorDescriptor::channels_last(&[2, 3, 4, 5]),
            Ok(vec![60, 1, 15, 3])
        );
        assert_eq!(TensorDescriptor::channels_first(&[1 << 40, 1 << 40, 1]), Err(BAD));
    }

    #[test]
    fn bytes_reach_to_the_last_element() {
        let tensor = TensorDescriptor::new(miopenDataType_t::miopenHalf, vec![2, 3], vec![8, 1]);
        assert_eq!(tensor.and_then(|tensor| tensor.bytes()), Ok(22));
    }
}
