//! The binary tensor extension: little-endian elements; each element of BYTES follows its length as a u32.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::tensor_error::TensorError;
use super::{OutputData, OutputTensor};

/// Splits the elements of a BYTES tensor.
///
/// # Errors
///
/// A message if a length exceeds the data.
pub(crate) fn split_elements(mut data: Bytes) -> Result<Vec<Bytes>, TensorError> {
    let mut elements = Vec::new();
    while data.has_remaining() {
        let index = elements.len();
        let length = data
            .try_get_u32_le()
            .map_err(|_| format!("element {index} has no length: {} bytes are left", data.len()))?;
        let length = length as usize;
        if length > data.len() {
            let left = data.len();
            return Err(format!("element {index} declares {length} bytes, but {left} are left").into());
        }
        elements.push(data.split_to(length));
    }
    Ok(elements)
}

/// Counts the elements of a BYTES tensor without splitting it, up to the first error.
pub(crate) fn count_elements(mut data: &[u8]) -> usize {
    let mut count = 0;
    while let Some((length, rest)) = data.split_first_chunk() {
        count += 1;
        let length = u32::from_le_bytes(*length) as usize;
        data = rest.get(length..).unwrap_or_default();
    }
    count
}

/// Encodes a tensor's elements.
pub(crate) fn encode(tensor: &OutputTensor) -> Bytes {
    match &tensor.data {
        OutputData::Fp32(values) => {
            let mut bytes = BytesMut::with_capacity(4 * values.len());
            for value in values {
                bytes.put_f32_le(*value);
            }
            bytes.freeze()
        }
        OutputData::Int32(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        OutputData::Int64(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        OutputData::Uint8(values) => Bytes::copy_from_slice(values),
        OutputData::Bool(values) => values.iter().map(|&value| u8::from(value)).collect(),
        OutputData::Bytes(elements) => {
            let mut bytes = BytesMut::new();
            for element in elements {
                // A label of 4 GiB cannot come from a configuration file.
                bytes.put_u32_le(element.len() as u32);
                bytes.put_slice(element.as_bytes());
            }
            bytes.freeze()
        }
    }
}

/// Takes the binary tensors from the end of a request's body, one after the other.
#[derive(Debug)]
pub(crate) struct Tail {
    rest: Bytes,
}

impl Tail {
    pub(crate) fn new(rest: Bytes) -> Self {
        Self { rest }
    }

    /// Returns the next `size` bytes.
    ///
    /// # Errors
    ///
    /// A message if there are fewer.
    pub(crate) fn take(&mut self, size: u64) -> Result<Bytes, TensorError> {
        match usize::try_from(size) {
            Ok(size) if size <= self.rest.len() => Ok(self.rest.split_to(size)),
            _ => Err(format!(
                "`binary_data_size` is {size}, and the body has {} bytes left",
                self.rest.len()
            )
            .into()),
        }
    }

    /// Returns the number of bytes that no tensor has taken.
    pub(crate) fn len(&self) -> usize {
        self.rest.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn joined(elements: &[Vec<u8>]) -> Bytes {
        let mut bytes = BytesMut::new();
        for element in elements {
            bytes.put_u32_le(element.len() as u32);
            bytes.put_slice(element);
        }
        bytes.freeze()
    }

    proptest! {
        #[test]
        fn elements_come_back(elements: Vec<Vec<u8>>) {
            let split = split_elements(joined(&elements)).unwrap();
            prop_assert_eq!(count_elements(&joined(&elements)), elements.len());
            prop_assert_eq!(split.iter().map(|e| e.to_vec()).collect::<Vec<_>>(), elements);
        }

        #[test]
        fn any_bytes_are_elements_or_an_error(bytes: Vec<u8>) {
            if let Ok(elements) = split_elements(bytes.clone().into()) {
                let again: Vec<Vec<u8>> = elements.iter().map(|e| e.to_vec()).collect();
                prop_assert_eq!(&joined(&again)[..], &bytes[..]);
            }
        }
    }

    #[test]
    fn a_length_beyond_the_end_is_an_error() {
        let data = Bytes::from_static(&[1, 0, 0, 0, 7, 255, 255, 255, 255, 1]);
        assert_eq!(
            split_elements(data).unwrap_err().to_string(),
            "element 1 declares 4294967295 bytes, but 1 are left"
        );
        let data = Bytes::from_static(&[1, 0, 0]);
        assert_eq!(
            split_elements(data).unwrap_err().to_string(),
            "element 0 has no length: 3 bytes are left"
        );
    }

    #[test]
    fn a_tail_gives_its_tensors_in_order_and_no_more() {
        let mut tail = Tail::new(Bytes::from_static(b"abcdef"));
        assert_eq!(tail.take(2).unwrap(), "ab");
        assert_eq!(tail.take(3).unwrap(), "cde");
        assert_eq!(
            tail.take(u64::MAX).unwrap_err().to_string(),
            "`binary_data_size` is 18446744073709551615, and the body has 1 bytes left"
        );
        assert_eq!(tail.len(), 1);
    }

    #[test]
    fn floats_and_strings_are_little_endian() {
        let floats = OutputTensor {
            name: "logits".into(),
            shape: vec![2],
            data: OutputData::Fp32(vec![1.0, -2.5]),
        };
        assert_eq!(encode(&floats)[..], [0, 0, 128, 63, 0, 0, 32, 192]);
        let strings = OutputTensor {
            name: "top".into(),
            shape: vec![2],
            data: OutputData::Bytes(vec!["é".into(), String::new()]),
        };
        assert_eq!(encode(&strings)[..], [2, 0, 0, 0, 0xc3, 0xa9, 0, 0, 0, 0]);
    }
}
