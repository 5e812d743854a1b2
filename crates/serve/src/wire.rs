//! Bounds the memory of a decoded gRPC request. The message is walked before anything is allocated for it,
//! because two bytes can become a tensor of hundreds of bytes.

use super::failure::Failure;
use super::proto::InferParameter;
use super::proto::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use super::protocol::{ELEMENT_BYTES, MAX_DIMENSIONS, MAX_TENSORS, NUMBER_BYTES};

/// Maximum number of parameters of a request, an input or an output.
const MAX_PARAMETERS: usize = 64;

/// Maximum bytes of a parameter without its strings: in the decoded map, and in the request's map.
const PARAMETER_BYTES: usize = 4 * (size_of::<String>() + size_of::<InferParameter>()) + 128;

/// The value of a field.
enum Value<'a> {
    Varint,
    Fixed,
    Bytes(&'a [u8]),
}

fn malformed(what: &str) -> Failure {
    Failure::invalid(format!("the message is not a ModelInferRequest: {what}"))
}

fn varint(message: &mut &[u8]) -> Result<u64, Failure> {
    prost::encoding::decode_varint(message).map_err(|_| malformed("it ends within a number"))
}

fn take<'a>(message: &mut &'a [u8], length: u64) -> Result<&'a [u8], Failure> {
    let length = usize::try_from(length).ok();
    let split = length.and_then(|length| message.split_at_checked(length));
    let (taken, rest) = split.ok_or_else(|| malformed("a field is longer than the message"))?;
    *message = rest;
    Ok(taken)
}

/// Calls `field` with the number and the value of each field of a message.
fn walk<'a>(
    mut message: &'a [u8],
    mut field: impl FnMut(u64, Value<'a>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let message = &mut message;
    while !message.is_empty() {
        let key = varint(message)?;
        let value = match key & 7 {
            0 => {
                varint(message)?;
                Value::Varint
            }
            1 => {
                take(message, 8)?;
                Value::Fixed
            }
            2 => {
                let length = varint(message)?;
                Value::Bytes(take(message, length)?)
            }
            5 => {
                take(message, 4)?;
                Value::Fixed
            }
            _ => return Err(malformed("it has a field of an unknown kind")),
        };
        field(key >> 3, value)?;
    }
    Ok(())
}

/// A counter with a limit.
struct Count {
    what: &'static str,
    most: usize,
    count: usize,
}

impl Count {
    fn new(what: &'static str, most: usize) -> Self {
        Self { what, most, count: 0 }
    }

    fn add(&mut self, more: usize) -> Result<(), Failure> {
        self.count += more;
        if self.count <= self.most {
            return Ok(());
        }
        let Self { what, most, .. } = self;
        Err(Failure::invalid(format!(
            "the request has more than {most} {what}. Send fewer at once"
        )))
    }
}

/// Number of varints in packed bytes.
fn varints(packed: &[u8]) -> usize {
    packed.iter().filter(|&&byte| byte < 0x80).count()
}

/// Returns the maximum memory of a decoded `ModelInferRequest`, without the message itself.
///
/// # Errors
///
/// [`Failure`] if the message is malformed, or has more tensors, dimensions or parameters than any valid
/// request.
pub(super) fn decoded_size(message: &[u8]) -> Result<usize, Failure> {
    let mut size = 0;
    let mut inputs = Count::new("inputs", MAX_TENSORS);
    let mut outputs = Count::new("outputs", MAX_TENSORS);
    let mut raw = Count::new("`raw_input_contents`", MAX_TENSORS);
    let mut parameters = Count::new("parameters", MAX_PARAMETERS);
    walk(message, |number, value| {
        size += match (number, value) {
            (1..=3, Value::Bytes(text)) => text.len(),
            (4, Value::Bytes(entry)) => parameter(entry, &mut parameters)?,
            (5, Value::Bytes(input)) => {
                inputs.add(1)?;
                2 * size_of::<InferInputTensor>() + input_size(input)?
            }
            (6, Value::Bytes(output)) => {
                outputs.add(1)?;
                2 * size_of::<InferRequestedOutputTensor>() + output_size(output)?
            }
            (7, Value::Bytes(_)) => {
                raw.add(1)?;
                ELEMENT_BYTES
            }
            _ => 0,
        };
        Ok(())
    })?;
    Ok(size)
}

fn parameter(entry: &[u8], parameters: &mut Count) -> Result<usize, Failure> {
    parameters.add(1)?;
    Ok(PARAMETER_BYTES + 2 * entry.len())
}

fn input_size(message: &[u8]) -> Result<usize, Failure> {
    let mut size = 0;
    let mut dimensions = Count::new("dimensions of an input", MAX_DIMENSIONS);
    let mut parameters = Count::new("parameters of an input", MAX_PARAMETERS);
    walk(message, |number, value| {
        size += match (number, value) {
            (1 | 2, Value::Bytes(text)) => text.len(),
            (3, value) => {
                dimensions.add(match value {
                    Value::Bytes(packed) => varints(packed),
                    _ => 1,
                })?;
                NUMBER_BYTES
            }
            (4, Value::Bytes(entry)) => parameter(entry, &mut parameters)?,
            (5, Value::Bytes(contents)) => contents_size(contents)?,
            _ => 0,
        };
        Ok(())
    })?;
    Ok(size)
}

fn output_size(message: &[u8]) -> Result<usize, Failure> {
    let mut size = 0;
    let mut parameters = Count::new("parameters of an output", MAX_PARAMETERS);
    walk(message, |number, value| {
        size += match (number, value) {
            (1, Value::Bytes(text)) => text.len(),
            (2, Value::Bytes(entry)) => parameter(entry, &mut parameters)?,
            _ => 0,
        };
        Ok(())
    })?;
    Ok(size)
}

fn contents_size(message: &[u8]) -> Result<usize, Failure> {
    let mut size = 0usize;
    walk(message, |number, value| {
        let elements = match (number, &value) {
            (1..=5, Value::Bytes(packed)) => varints(packed),
            (6, Value::Bytes(packed)) => packed.len() / 4,
            (7, Value::Bytes(packed)) => packed.len() / 8,
            _ => 1,
        };
        size += match number {
            1..=7 => elements * NUMBER_BYTES,
            8 => ELEMENT_BYTES,
            _ => 0,
        };
        Ok(())
    })?;
    Ok(size)
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::proto::infer_parameter::ParameterChoice;
    use crate::proto::{InferTensorContents, ModelInferRequest};

    /// Encodes a field with these bytes.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut field = vec![number << 3 | 2];
        prost::encoding::encode_varint(bytes.len() as u64, &mut field);
        field.extend(bytes);
        field
    }

    fn in_contents(contents: &[u8]) -> Vec<u8> {
        field(5, &field(5, contents))
    }

    #[test]
    fn short_fields_that_become_large_are_counted_before_they_are_decoded() {
        let many = |part: &[u8], count: usize| part.repeat(count);
        for (message, expected) in [
            (many(&field(5, b""), 17), "more than 16 inputs"),
            (many(&field(6, b""), 17), "more than 16 outputs"),
            (many(&field(7, b""), 17), "more than 16 `raw_input_contents`"),
            (many(&field(4, b""), 65), "more than 64 parameters"),
            (field(5, &many(&field(4, b""), 65)), "64 parameters of an input"),
            (field(6, &many(&field(2, b""), 65)), "64 parameters of an output"),
            (field(5, &field(3, &[1; 17])), "16 dimensions of an input"),
            (field(5, &many(&[3 << 3, 1], 17)), "16 dimensions of an input"),
            (vec![5 << 3 | 3], "a field of an unknown kind"),
            (vec![5 << 3 | 2, 2, 0], "longer than the message"),
            (vec![5 << 3 | 2, 0xff], "ends within a number"),
            (vec![0xff; 11], "ends within a number"),
        ] {
            let failure = decoded_size(&message).unwrap_err();
            assert!(failure.message().contains(expected), "{failure}, not {expected}");
        }
        // Elements, which may be many, count with their decoded size.
        let count = 10_000;
        for (message, each) in [
            (in_contents(&many(&field(8, b""), count)), 256),
            (in_contents(&field(4, &vec![1; count])), 12),
            (in_contents(&many(&[4 << 3, 1], count)), 12),
            (in_contents(&field(5, &vec![1; count])), 24),
            (in_contents(&field(6, &vec![0; 4 * count])), 16),
            (in_contents(&field(1, &vec![1; count])), 9),
        ] {
            let size = decoded_size(&message).unwrap();
            assert!(size >= each * count, "{size}");
        }
    }

    /// The bound holds for what `prost` allocates.
    #[test]
    fn a_message_is_decoded_within_its_bound() {
        let parameter = |value: &str| InferParameter {
            parameter_choice: Some(ParameterChoice::StringParam(value.into())),
        };
        let parameters =
            |count: usize| (0..count).map(|index| (index.to_string(), parameter(&"v".repeat(100))));
        let tensor = |contents| InferInputTensor {
            name: "image".into(),
            datatype: "BYTES".into(),
            shape: vec![1; 16],
            parameters: parameters(64).collect(),
            contents: Some(contents),
        };
        let request = |contents: Vec<InferTensorContents>| ModelInferRequest {
            model_name: "m".repeat(1000),
            parameters: parameters(64).collect(),
            inputs: contents.into_iter().map(tensor).collect(),
            ..ModelInferRequest::default()
        };
        for contents in [
            vec![InferTensorContents::default(); 16],
            vec![InferTensorContents {
                uint_contents: vec![1; 1025],
                uint64_contents: vec![1; 1025],
                bool_contents: vec![true; 1025],
                fp64_contents: vec![1.0; 1025],
                ..InferTensorContents::default()
            }],
            vec![InferTensorContents {
                bytes_contents: vec![bytes::Bytes::new(); 1025],
                ..InferTensorContents::default()
            }],
        ] {
            let message = bytes::Bytes::from(request(contents).encode_to_vec());
            let bound = decoded_size(&message).unwrap();
            let counted = allocation_counter::measure(|| {
                ModelInferRequest::decode(message.clone()).unwrap();
            });
            assert!(counted.bytes_max <= bound as u64, "{counted:?} {bound}");
        }
    }
}
