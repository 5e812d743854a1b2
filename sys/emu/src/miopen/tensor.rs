//! Tensor descriptors, and tensors in device memory.

use gcnrun::{FaultKind, Memory};
use hipvit_sys::export;
use hipvit_sys::miopen::{miopenDataType_t, miopenStatus_t, miopenTensorDescriptor_t, miopenTensorLayout_t};

use super::{BAD, UNSUPPORTED, put_value, run};
use crate::compute::{Element, Objects, Real, read, taint, write};

pub(super) static TENSORS: Objects<Tensor> = Objects::new();

/// The object behind a `miopenTensorDescriptor_t`: lengths in the order N, C, spatial dimensions, and strides in elements.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Tensor {
    pub(super) kind: miopenDataType_t,
    pub(super) lengths: Vec<usize>,
    strides: Vec<usize>,
}

/// The tensor of a descriptor.
pub(super) fn tensor(of: miopenTensorDescriptor_t) -> Result<Tensor, miopenStatus_t> {
    TENSORS
        .get(of)
        .filter(|tensor| !tensor.lengths.is_empty())
        .ok_or(BAD)
}

impl Tensor {
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

    /// Strides without gaps for these lengths, with the dimensions in `order` in memory, the slowest first.
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

    /// Whether it has no gaps, the last dimension contiguous.
    pub(super) fn is_packed(&self) -> bool {
        Self::channels_first(&self.lengths).is_ok_and(|packed| packed == self.strides)
    }

    pub(super) fn element(&self) -> Result<Element, miopenStatus_t> {
        Ok(match self.kind {
            miopenDataType_t::miopenHalf => Element::F16,
            miopenDataType_t::miopenBFloat16 => Element::Bf16,
            miopenDataType_t::miopenFloat => Element::F32,
            miopenDataType_t::miopenDouble => Element::F64,
            miopenDataType_t::miopenInt8 => Element::I8,
            miopenDataType_t::miopenInt32 => Element::I32,
            miopenDataType_t::miopenInt64 => Element::I64,
            _ => return Err(UNSUPPORTED),
        })
    }

    pub(super) fn count(&self) -> usize {
        self.lengths.iter().product()
    }

    /// Elements from the first to the last, gaps included.
    fn span(&self) -> usize {
        let last: usize = self
            .lengths
            .iter()
            .zip(&self.strides)
            .map(|(length, stride)| (length - 1) * stride)
            .sum();
        last + 1
    }

    /// Where each element lies, in the order of the dimensions.
    fn offsets(&self) -> Vec<usize> {
        let mut offsets = vec![0];
        for (length, stride) in self.lengths.iter().zip(&self.strides) {
            let along = |offset: usize| (0..*length).map(move |index| offset + index * stride);
            offsets = offsets.into_iter().flat_map(along).collect();
        }
        offsets
    }

    /// A tensor in device memory.
    pub(super) fn at(self, address: *const std::ffi::c_void) -> Result<DeviceTensor, miopenStatus_t> {
        if address.is_null() {
            return Err(BAD);
        }
        Ok(DeviceTensor {
            element: self.element()?,
            tensor: self,
            address: address.expose_provenance() as u64,
        })
    }
}

/// A tensor in device memory.
#[derive(Clone, Debug)]
pub(super) struct DeviceTensor {
    pub(super) tensor: Tensor,
    pub(super) element: Element,
    pub(super) address: u64,
}

impl DeviceTensor {
    /// Its numbers in the order of the dimensions, whatever their order in memory. Gaps are not read.
    pub(super) fn load<T: Real>(&self, memory: &Memory) -> Result<Vec<T>, FaultKind> {
        let size = self.element.size();
        let offsets = self.tensor.offsets();
        if self.tensor.span() == offsets.len() {
            let values = T::decode(self.element, &read(memory, self.address, size * offsets.len())?);
            return Ok(offsets.into_iter().map(|offset| values[offset]).collect());
        }
        let mut bytes = Vec::with_capacity(size * offsets.len());
        for (first, length) in runs(&offsets) {
            bytes.extend(read(memory, self.address + (first * size) as u64, length * size)?);
        }
        Ok(T::decode(self.element, &bytes))
    }

    /// Writes numbers in the order of the dimensions, and nothing into gaps.
    pub(super) fn store<T: Real>(&self, memory: &Memory, values: &[T]) -> Result<(), FaultKind> {
        let size = self.element.size();
        let offsets = self.tensor.offsets();
        if taint::is_probe() {
            for (offset, value) in offsets.into_iter().zip(values) {
                let address = self.address + (offset * size) as u64;
                taint::keep(address, self.element, std::slice::from_ref(value));
            }
            return Ok(());
        }
        if self.tensor.span() == offsets.len() {
            let mut in_memory = vec![T::zero(); values.len()];
            for (offset, value) in offsets.into_iter().zip(values) {
                in_memory[offset] = *value;
            }
            return write(memory, self.address, &T::encode(self.element, &in_memory));
        }
        let bytes = T::encode(self.element, values);
        let mut rest = &bytes[..];
        for (first, length) in runs(&offsets) {
            let (run, after) = rest.split_at(length * size);
            write(memory, self.address + (first * size) as u64, run)?;
            rest = after;
        }
        Ok(())
    }

    /// `alpha·values + beta·old`; the old values are only read if beta is not 0.
    pub(super) fn blend<T: Real>(
        &self,
        memory: &Memory,
        alpha: f64,
        mut values: Vec<T>,
        beta: f64,
    ) -> Result<(), FaultKind> {
        if alpha != 1.0 {
            values.iter_mut().for_each(|value| *value = T::of(alpha) * *value);
        }
        if beta != 0.0 {
            for (value, old) in values.iter_mut().zip(self.load::<T>(memory)?) {
                *value = *value + T::of(beta) * old;
            }
        }
        self.store(memory, &values)
    }
}

/// Ranges of consecutive elements: the first and how many.
fn runs(offsets: &[usize]) -> impl Iterator<Item = (usize, usize)> {
    offsets
        .chunk_by(|left, right| left + 1 == *right)
        .map(|run| (run[0], run.len()))
}

/// `count` numbers at `from`.
///
/// # Safety
/// `from` is null or has as many.
unsafe fn numbers<T: Copy + TryInto<usize>>(
    from: *const T,
    count: i32,
) -> Result<Vec<usize>, miopenStatus_t> {
    let count = usize::try_from(count).map_err(|_| BAD)?;
    if from.is_null() {
        return Err(BAD);
    }
    // SAFETY: the caller's array has as many.
    (0..count)
        .map(|index| unsafe { *from.add(index) }.try_into().map_err(|_| BAD))
        .collect()
}

fn set(of: miopenTensorDescriptor_t, tensor: Tensor) -> Result<(), miopenStatus_t> {
    TENSORS.change(of, |old| *old = tensor).ok_or(BAD)
}

/// Converts numbers to C's `int`.
fn int(value: usize) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

export! { miopen, miopenStatus_t, run;
    fn miopenCreateTensorDescriptor(to: *mut miopenTensorDescriptor_t) {
        if to.is_null() {
            return Err(BAD);
        }
        let nothing = Tensor { kind: miopenDataType_t::miopenFloat, lengths: Vec::new(), strides: Vec::new() };
        put_value(to, TENSORS.add(nothing))
    }

    fn miopenDestroyTensorDescriptor(of: miopenTensorDescriptor_t) {
        TENSORS.remove(of).map(drop).ok_or(BAD)
    }

    fn miopenSet4dTensorDescriptor(
        of: miopenTensorDescriptor_t, kind: miopenDataType_t, n: i32, c: i32, h: i32, w: i32,
    ) {
        let lengths = numbers([n, c, h, w].as_ptr(), 4)?;
        let strides = Tensor::channels_first(&lengths)?;
        set(of, Tensor::new(kind, lengths, strides)?)
    }

    fn miopenSet4dTensorDescriptorEx(
        of: miopenTensorDescriptor_t, kind: miopenDataType_t, n: i32, c: i32, h: i32, w: i32, n_stride: i32,
        c_stride: i32, h_stride: i32, w_stride: i32,
    ) {
        let strides = numbers([n_stride, c_stride, h_stride, w_stride].as_ptr(), 4)?;
        set(of, Tensor::new(kind, numbers([n, c, h, w].as_ptr(), 4)?, strides)?)
    }

    fn miopenSetTensorDescriptor(
        of: miopenTensorDescriptor_t, kind: miopenDataType_t, count: i32, lengths: *const i32, strides: *const i32,
    ) {
        let lengths = numbers(lengths, count)?;
        let strides =
            if strides.is_null() { Tensor::channels_first(&lengths)? } else { numbers(strides, count)? };
        set(of, Tensor::new(kind, lengths, strides)?)
    }

    fn miopenSetTensorDescriptorV2(
        of: miopenTensorDescriptor_t, kind: miopenDataType_t, count: i32, lengths: *const usize,
        strides: *const usize,
    ) {
        let lengths = numbers(lengths, count)?;
        let strides =
            if strides.is_null() { Tensor::channels_first(&lengths)? } else { numbers(strides, count)? };
        set(of, Tensor::new(kind, lengths, strides)?)
    }

    /// Layouts with vectors of channels are not supported.
    fn miopenSetNdTensorDescriptorWithLayout(
        of: miopenTensorDescriptor_t, kind: miopenDataType_t, layout: miopenTensorLayout_t, lengths: *const i32,
        count: i32,
    ) {
        let lengths = numbers(lengths, count)?;
        let strides = match layout {
            miopenTensorLayout_t::miopenTensorNCHW | miopenTensorLayout_t::miopenTensorNCDHW => {
                Tensor::channels_first(&lengths)?
            }
            miopenTensorLayout_t::miopenTensorNHWC | miopenTensorLayout_t::miopenTensorNDHWC => {
                Tensor::channels_last(&lengths)?
            }
            _ => return Err(UNSUPPORTED),
        };
        set(of, Tensor::new(kind, lengths, strides)?)
    }

    fn miopenGetTensorDescriptorSize(of: miopenTensorDescriptor_t, count: *mut i32) {
        put_value(count, int(tensor(of)?.lengths.len()))
    }

    fn miopenGetTensorDescriptor(
        of: miopenTensorDescriptor_t, kind: *mut miopenDataType_t, lengths: *mut i32, strides: *mut i32,
    ) {
        let tensor = tensor(of)?;
        put_value(kind, tensor.kind)?;
        for (index, (length, stride)) in tensor.lengths.into_iter().zip(tensor.strides).enumerate() {
            put_value(lengths.wrapping_add(index), int(length))?;
            put_value(strides.wrapping_add(index), int(stride))?;
        }
        Ok(())
    }

    fn miopenGet4dTensorDescriptor(
        of: miopenTensorDescriptor_t, kind: *mut miopenDataType_t, n: *mut i32, c: *mut i32, h: *mut i32, w: *mut i32,
        n_stride: *mut i32, c_stride: *mut i32, h_stride: *mut i32, w_stride: *mut i32,
    ) {
        let tensor = tensor(of)?;
        if tensor.lengths.len() != 4 {
            return Err(BAD);
        }
        put_value(kind, tensor.kind)?;
        for (index, (length, stride)) in
            [(n, n_stride), (c, c_stride), (h, h_stride), (w, w_stride)].into_iter().enumerate()
        {
            put_value(length, int(tensor.lengths[index]))?;
            put_value(stride, int(tensor.strides[index]))?;
        }
        Ok(())
    }

    fn miopenGetTensorNumBytes(of: miopenTensorDescriptor_t, bytes: *mut usize) {
        let tensor = tensor(of)?;
        put_value(bytes, tensor.span() * tensor.element()?.size())
    }
}

#[cfg(test)]
mod tests {
    use gcnrun::Kind;

    use super::*;

    #[test]
    fn strides_follow_the_layout() {
        assert_eq!(Tensor::channels_first(&[2, 3, 4, 5]), Ok(vec![60, 20, 5, 1]));
        assert_eq!(Tensor::channels_last(&[2, 3, 4, 5]), Ok(vec![60, 1, 15, 3]));
        assert_eq!(Tensor::channels_first(&[1 << 40, 1 << 40, 1]), Err(BAD));
    }

    #[test]
    fn numbers_are_in_the_order_of_the_dimensions() {
        let memory = Memory::new();
        let kind = miopenDataType_t::miopenFloat;
        let last = Tensor::channels_last(&[1, 2, 1, 3]).unwrap();
        let gaps = vec![20, 10, 5, 2];
        for strides in [last, gaps] {
            let tensor = Tensor::new(kind, vec![1, 2, 1, 3], strides).unwrap();
            let (span, offsets) = (tensor.span(), tensor.offsets());
            let address = memory.allocate(4 * span as u64, Kind::Device(0), 256).unwrap();
            let placed = DeviceTensor {
                tensor,
                element: Element::F32,
                address,
            };
            let values = [1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0];
            placed.store(&memory, &values).unwrap();
            assert_eq!(placed.load::<f32>(&memory), Ok(values.to_vec()));
            placed.blend(&memory, 2.0, values.to_vec(), -1.0).unwrap();
            assert_eq!(placed.load::<f32>(&memory), Ok(values.to_vec()));
            for offset in 0..span {
                let written = memory
                    .first_unwritten(address + 4 * offset as u64, 4)
                    .unwrap()
                    .is_none();
                assert_eq!(written, offsets.contains(&offset));
            }
        }
    }
}
