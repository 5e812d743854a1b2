//! Vectors in device memory.

use gcnrun::{FaultKind, Memory};

use super::{Element, Real, read, taint, write};

/// A vector: numbers `increment` elements apart. A negative increment starts at the end, as in BLAS.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vector {
    pub(crate) address: u64,
    pub(crate) element: Element,
    pub(crate) len: usize,
    pub(crate) increment: i64,
}

impl Vector {
    pub(crate) fn load<T: Real>(&self, memory: &Memory) -> Result<Vec<T>, FaultKind> {
        let size = self.element.size();
        if self.increment == 1 {
            return Ok(T::decode(
                self.element,
                &read(memory, self.address, size * self.len)?,
            ));
        }
        let mut bytes = Vec::with_capacity(size * self.len);
        for index in 0..self.len {
            bytes.extend(read(memory, self.at(index), size)?);
        }
        Ok(T::decode(self.element, &bytes))
    }

    pub(crate) fn store<T: Real>(&self, memory: &Memory, values: &[T]) -> Result<(), FaultKind> {
        if taint::is_probe() {
            for (index, value) in values.iter().enumerate() {
                taint::keep(self.at(index), self.element, std::slice::from_ref(value));
            }
            return Ok(());
        }
        let bytes = T::encode(self.element, values);
        if self.increment == 1 {
            return write(memory, self.address, &bytes);
        }
        let elements = bytes.chunks(self.element.size()).enumerate();
        elements
            .into_iter()
            .try_for_each(|(index, bytes)| write(memory, self.at(index), bytes))
    }

    fn at(&self, index: usize) -> u64 {
        let step = if self.increment < 0 {
            // The first element is the farthest.
            (index as i64 + 1 - self.len as i64) * self.increment
        } else {
            index as i64 * self.increment
        };
        self.address
            .wrapping_add_signed(step * self.element.size() as i64)
    }
}

#[cfg(test)]
mod tests {
    use gcnrun::{Kind, Memory};

    use super::*;

    #[test]
    fn elements_between_increments_are_unchanged() {
        let memory = Memory::new();
        let address = memory.allocate(7 * 4, Kind::Device(0), 256).unwrap();
        memory
            .write(address, &f32::encode(Element::F32, &[9.0; 7]))
            .unwrap();
        let mut vector = Vector {
            address,
            element: Element::F32,
            len: 3,
            increment: 3,
        };
        vector.store(&memory, &[1.0_f32, 2.0, 3.0]).unwrap();
        let all = Vector {
            len: 7,
            increment: 1,
            ..vector
        };
        assert_eq!(
            all.load::<f32>(&memory),
            Ok(vec![1.0, 9.0, 9.0, 2.0, 9.0, 9.0, 3.0])
        );
        vector.increment = -3;
        assert_eq!(vector.load::<f32>(&memory), Ok(vec![3.0, 2.0, 1.0]));
    }

    #[test]
    fn unwritten_and_missing_elements_are_faults() {
        let memory = Memory::new();
        let address = memory.allocate(8, Kind::Device(0), 256).unwrap();
        memory.write(address, &[0; 4]).unwrap();
        let vector = |len| Vector {
            address,
            element: Element::F32,
            len,
            increment: 1,
        };
        assert!(matches!(
            vector(2).load::<f32>(&memory),
            Err(FaultKind::Uninitialised { .. })
        ));
        assert!(matches!(
            vector(3).load::<f32>(&memory),
            Err(FaultKind::OutOfBounds { .. })
        ));
        assert!(matches!(
            vector(3).store(&memory, &[0.0_f32; 3]),
            Err(FaultKind::OutOfBounds { .. })
        ));
        memory.free(address).unwrap();
        assert!(matches!(
            vector(1).load::<f32>(&memory),
            Err(FaultKind::UseAfterFree { .. })
        ));
    }
}
