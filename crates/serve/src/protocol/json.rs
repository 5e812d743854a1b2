//! Requests and responses of the protocol's REST form: JSON, after which binary tensors may follow.

use std::fmt;
use std::marker::PhantomData;

use bytes::{Bytes, BytesMut};
use serde::de::{DeserializeSeed, Deserializer, Error as _, SeqAccess, Visitor};
use serde::ser::{SerializeSeq, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::base64::decode_base64;
use super::tensors::{IMAGE, TEXT};
use super::{
    Data, ELEMENT_BYTES, InferRequest, InferResponse, InputTensor, MAX_DIMENSIONS, MAX_TENSORS, OutputData,
    Parameters, RequestedOutput, binary,
};
use crate::failure::Failure;

/// Number of copies of its outputs that an answer in JSON takes: tensors, their rows, and text of four times their size.
pub(crate) const COPIES: usize = 6;

/// Maximum bytes of a JSON number, in a growing list and as a part of an image.
const NUMBER_BYTES: usize = 16;

/// Returns the maximum memory of a request's JSON after parsing and decoding its files, without the text
/// itself.
pub(crate) fn decoded_size(json: &[u8]) -> usize {
    let mut size = 0usize;
    let mut rest = json.iter();
    while let Some(byte) = rest.next() {
        match byte {
            // There is a comma between any two elements.
            b',' => size += NUMBER_BYTES,
            b'"' => {
                let before = rest.len();
                while let Some(byte) = rest.next() {
                    match byte {
                        b'"' => break,
                        b'\\' => drop(rest.next()),
                        _ => {}
                    }
                }
                // The string, and the file that it encodes in base64.
                size += ELEMENT_BYTES + 2 * (before - rest.len());
            }
            _ => {}
        }
    }
    size
}

/// A list of at most `MOST` elements.
struct Bounded<T, const MOST: usize>(Vec<T>);

impl<T, const MOST: usize> Default for Bounded<T, MOST> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for Bounded<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BoundedVisitor<T, const MOST: usize>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for BoundedVisitor<T, MOST> {
            type Value = Bounded<T, MOST>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of at most {MOST} elements")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut elements = Vec::new();
                while let Some(element) = list.next_element()? {
                    if elements.len() == MOST {
                        return Err(A::Error::invalid_length(MOST + 1, &self));
                    }
                    elements.push(element);
                }
                Ok(Bounded(elements))
            }
        }

        deserializer.deserialize_seq(BoundedVisitor(PhantomData))
    }
}

#[derive(Deserialize)]
struct RequestBody {
    #[serde(default)]
    id: String,
    #[serde(default)]
    parameters: Parameters,
    inputs: Bounded<InputBody, MAX_TENSORS>,
    #[serde(default)]
    outputs: Bounded<OutputBody, MAX_TENSORS>,
}

#[derive(Deserialize)]
struct InputBody {
    name: String,
    shape: Bounded<i64, MAX_DIMENSIONS>,
    datatype: String,
    #[serde(default)]
    parameters: Parameters,
    data: Option<Elements>,
}

#[derive(Deserialize)]
struct OutputBody {
    name: String,
    #[serde(default)]
    parameters: Parameters,
}

/// Elements of a tensor, in nested lists or in one list.
#[derive(Debug, Default, PartialEq)]
struct Elements {
    numbers: Vec<f32>,
    strings: Vec<String>,
    /// Length of the lists at each depth.
    lengths: Vec<Option<usize>>,
}

impl<'de> Deserialize<'de> for Elements {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut elements = Self::default();
        let list = List {
            elements: &mut elements,
            depth: 0,
        };
        list.deserialize(deserializer)?;
        if elements.lengths.is_empty() {
            return Err(D::Error::custom("`data` is not a list"));
        }
        Ok(elements)
    }
}

/// A list or an element at a depth.
struct List<'a> {
    elements: &'a mut Elements,
    depth: usize,
}

impl List<'_> {
    fn number<E: serde::de::Error>(self, number: f64) -> Result<(), E> {
        self.at_the_bottom()?;
        self.elements.numbers.push(number as f32);
        Ok(())
    }

    /// Fails if there are lists next to this element.
    fn at_the_bottom<E: serde::de::Error>(&self) -> Result<(), E> {
        if self.elements.lengths.len() == self.depth {
            Ok(())
        } else {
            Err(E::custom("`data` has both lists and elements at one depth"))
        }
    }
}

impl<'de> DeserializeSeed<'de> for List<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for List<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("numbers, booleans, strings, or lists of them")
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<(), E> {
        self.number(number)
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<(), E> {
        self.number(number as f64)
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<(), E> {
        self.number(number as f64)
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        self.number(f64::from(u8::from(value)))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        self.visit_string(text.to_owned())
    }

    fn visit_string<E: serde::de::Error>(self, text: String) -> Result<(), E> {
        self.at_the_bottom()?;
        self.elements.strings.push(text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Self { elements, depth } = self;
        let leaves = elements.numbers.len() + elements.strings.len();
        if elements.lengths.len() == depth {
            if leaves > 0 {
                return Err(A::Error::custom(
                    "`data` has both elements and lists at one depth",
                ));
            }
            elements.lengths.push(None);
        }
        let mut length = 0;
        while list
            .next_element_seed(List {
                elements,
                depth: depth + 1,
            })?
            .is_some()
        {
            length += 1;
        }
        match elements.lengths[depth].replace(length) {
            Some(before) if before != length => {
                let reason =
                    format!("`data` has lists of the lengths {before} and {length} at depth {depth}");
                Err(A::Error::custom(reason))
            }
            _ => Ok(()),
        }
    }
}

impl Elements {
    /// Converts the elements to data for the tensor `name` of this shape.
    fn data(self, name: &str, shape: &[i64]) -> Result<Data, Failure> {
        let lengths: Vec<i64> = self
            .lengths
            .iter()
            .map(|length| length.unwrap_or(0) as i64)
            .collect();
        if lengths.len() > 1 && lengths != shape {
            return Err(Failure::input(
                name,
                format!("shape {shape:?}, but the data has shape {lengths:?}"),
            ));
        }
        match (self.numbers.is_empty(), self.strings.is_empty()) {
            (false, false) => Err(Failure::input(name, "has both numbers and strings")),
            (true, false) => {
                let element = |(index, text): (usize, &String)| match name {
                    IMAGE => decode_base64(text)
                        .map_err(|reason| Failure::input(name, format!("image {index} {reason}"))),
                    _ => Ok(Bytes::from(text.clone())),
                };
                let elements = self.strings.iter().enumerate().map(element);
                Ok(Data::Bytes(elements.collect::<Result<_, _>>()?))
            }
            (_, true) if [IMAGE, TEXT].contains(&name) && self.numbers.is_empty() => {
                Ok(Data::Bytes(Vec::new()))
            }
            (_, true) => Ok(Data::Numbers(self.numbers)),
        }
    }
}

/// Reads a request for `model` from an HTTP body. Its first `json_length` bytes are JSON, if given. If the
/// length is 0, the body is one encoded image.
pub(crate) fn read_request(
    model: &str,
    version: &str,
    mut body: Bytes,
    json_length: Option<usize>,
) -> Result<InferRequest, Failure> {
    let (model, version) = (model.to_owned(), version.to_owned());
    if json_length == Some(0) {
        return Ok(InferRequest {
            model,
            version,
            inputs: vec![InputTensor {
                name: IMAGE.into(),
                datatype: "BYTES".into(),
                shape: vec![1],
                parameters: Parameters::default(),
                data: Data::Bytes(vec![body]),
            }],
            ..InferRequest::default()
        });
    }
    let length = json_length.unwrap_or(body.len());
    if length > body.len() {
        return Err(Failure::invalid(format!(
            "Inference-Header-Content-Length is {length}, and the body has {} bytes",
            body.len()
        )));
    }
    let mut tail = binary::Tail::new(body.split_off(length));
    let request: RequestBody = serde_json::from_slice(&body).map_err(|error| Failure::json(&error))?;
    InferRequest::check_id(&request.id)?;
    let mut inputs = Vec::with_capacity(request.inputs.0.len());
    for input in request.inputs.0 {
        let name = input.name;
        let of_input = |failure: Failure| Failure::input(&name, failure.message());
        let parameters = input.parameters;
        let data = match (
            parameters.unsigned("binary_data_size").map_err(of_input)?,
            input.data,
        ) {
            (Some(size), None) => {
                let data = tail.take(size).map_err(|reason| Failure::input(&name, reason))?;
                Data::Raw(data)
            }
            (None, Some(elements)) => elements.data(&name, &input.shape.0)?,
            (Some(_), Some(_)) => {
                return Err(Failure::input(
                    &name,
                    "has both `data` and `binary_data_size`. Send one of them",
                ));
            }
            (None, None) => {
                return Err(Failure::input(
                    &name,
                    "has neither `data` nor `binary_data_size`. Send one of them",
                ));
            }
        };
        inputs.push(InputTensor {
            name,
            datatype: input.datatype,
            shape: input.shape.0,
            parameters,
            data,
        });
    }
    if tail.len() > 0 {
        return Err(Failure::invalid(format!(
            "{} bytes at the end of the body belong to no input",
            tail.len()
        )));
    }
    let output = |output: OutputBody| RequestedOutput {
        name: output.name,
        parameters: output.parameters,
    };
    Ok(InferRequest {
        model,
        version,
        id: request.id,
        parameters: request.parameters,
        inputs,
        outputs: request.outputs.0.into_iter().map(output).collect(),
    })
}

/// Returns which outputs are binary, by the parameters of each output, otherwise of the request.
pub(crate) fn binary_outputs(request: &InferRequest) -> Result<BinaryOutputs, Failure> {
    let all = request.parameters.boolean("binary_data_output")?.unwrap_or(false);
    let mut named = Vec::new();
    for output in &request.outputs {
        let binary = output.parameters.boolean("binary_data");
        let binary = binary.map_err(|failure| Failure::output(&output.name, failure.message()))?;
        named.push((output.name.clone(), binary.unwrap_or(all)));
    }
    Ok(BinaryOutputs { all, named })
}

/// See [`binary_outputs`].
#[derive(Clone, Debug)]
pub(crate) struct BinaryOutputs {
    all: bool,
    named: Vec<(String, bool)>,
}

impl BinaryOutputs {
    fn has(&self, name: &str) -> bool {
        let named = self.named.iter().find(|(output, _)| output == name);
        named.map_or(self.all, |(_, binary)| *binary)
    }
}

#[derive(Serialize)]
struct ResponseBody<'a> {
    model_name: &'a str,
    model_version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<Value>,
    outputs: Vec<OutputTensorBody<'a>>,
}

#[derive(Serialize)]
struct OutputTensorBody<'a> {
    name: &'a str,
    datatype: &'static str,
    shape: &'a [usize],
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "elements")]
    data: Option<&'a OutputData>,
}

fn elements<S: Serializer>(data: &Option<&OutputData>, serializer: S) -> Result<S::Ok, S::Error> {
    fn list<S: Serializer, T: Serialize>(all: &[T], serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(all.len()))?;
        all.iter()
            .try_for_each(|element| list.serialize_element(element))?;
        list.end()
    }
    match data {
        Some(OutputData::Fp32(values)) => list(values, serializer),
        Some(OutputData::Int32(values)) => list(values, serializer),
        Some(OutputData::Int64(values)) => list(values, serializer),
        Some(OutputData::Uint8(values)) => list(values, serializer),
        Some(OutputData::Bool(values)) => list(values, serializer),
        Some(OutputData::Bytes(texts)) => list(texts, serializer),
        None => serializer.serialize_none(),
    }
}

/// Returns the body of a response, and the length of its JSON if binary tensors follow it.
pub(crate) fn write_response(
    response: &InferResponse,
    binary: &BinaryOutputs,
) -> Result<(Bytes, Option<usize>), Failure> {
    let mut tail = Vec::new();
    let outputs = response.outputs.iter().map(|tensor| {
        let parameters = binary.has(&tensor.name).then(|| {
            let bytes = binary::encode(tensor);
            let parameters = json!({ "binary_data_size": bytes.len() });
            tail.push(bytes);
            parameters
        });
        OutputTensorBody {
            name: &tensor.name,
            datatype: tensor.datatype().name(),
            shape: &tensor.shape,
            data: parameters.is_none().then_some(&tensor.data),
            parameters,
        }
    });
    let body = ResponseBody {
        model_name: &response.model,
        model_version: &response.version,
        id: &response.id,
        parameters: response.truncated().map(|texts| json!({ "truncated": texts })),
        outputs: outputs.collect(),
    };
    let json =
        serde_json::to_vec(&body).map_err(|e| Failure::new(crate::failure::Kind::Internal, e.to_string()))?;
    if tail.is_empty() {
        return Ok((json.into(), None));
    }
    let length = json.len();
    let mut all = BytesMut::with_capacity(length + tail.iter().map(Bytes::len).sum::<usize>());
    all.extend_from_slice(&json);
    tail.iter().for_each(|bytes| all.extend_from_slice(bytes));
    Ok((all.freeze(), Some(length)))
}

#[cfg(test)]
mod tests;
