//! Tensors in device memory.

use gcnrun::{FaultKind, Memory};
use hip_provider::miopen::{BAD_PARAMETER, TensorDescriptor, UNSUPPORTED};
use hipvit_sys::miopen::{miopenDataType_t, miopenStatus_t};

use crate::compute::{Element, Real, read, taint, write};

/// Functions of a tensor descriptor for the emulated device.
pub(super) trait DeviceMemory: Sized {
    /// Returns the element type.
    fn element(&self) -> Result<Element, miopenStatus_t>;

    /// Places the tensor at an address of device memory.
    fn at(self, address: *const std::ffi::c_void) -> Result<DeviceTensor, miopenStatus_t>;
}

impl DeviceMemory for TensorDescriptor {
    fn element(&self) -> Result<Element, miopenStatus_t> {
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

    fn at(self, address: *const std::ffi::c_void) -> Result<DeviceTensor, miopenStatus_t> {
        if address.is_null() {
            return Err(BAD_PARAMETER);
        }
        Ok(DeviceTensor {
            element: self.element()?,
            tensor: self,
            address: address.expose_provenance() as u64,
        })
    }
}

/// Returns the offset of each element, in the order of the dimensions.
fn offsets(tensor: &TensorDescriptor) -> Vec<usize> {
    let mut offsets = vec![0];
    for (length, stride) in tensor.lengths.iter().zip(&tensor.strides) {
        let along = |offset: usize| (0..*length).map(move |index| offset + index * stride);
        offsets = offsets.into_iter().flat_map(along).collect();
    }
    offsets
}

/// A tensor in device memory.
#[derive(Clone, Debug)]
pub(super) struct DeviceTensor {
    pub(super) tensor: TensorDescriptor,
    pub(super) element: Element,
    pub(super) address: u64,
}

impl DeviceTensor {
    /// Loads the numbers in the order of the dimensions, whatever their order in memory. Gaps are not read.
    pub(super) fn load<T: Real>(&self, memory: &Memory) -> Result<Vec<T>, FaultKind> {
        let size = self.element.size();
        let offsets = offsets(&self.tensor);
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
        let offsets = offsets(&self.tensor);
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

#[cfg(test)]
mod tests {
    use gcnrun::Kind;

    use super::*;

    #[test]
    fn numbers_are_in_the_order_of_the_dimensions() {
        let memory = Memory::new();
        let kind = miopenDataType_t::miopenFloat;
        let last = vec![6, 1, 6, 2];
        let gaps = vec![20, 10, 5, 2];
        for strides in [last, gaps] {
            let tensor = TensorDescriptor {
                kind,
                lengths: vec![1, 2, 1, 3],
                strides,
            };
            let (span, offsets) = (tensor.span(), offsets(&tensor));
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
