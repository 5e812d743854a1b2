//! The Open Inference Protocol (version 2 of KServe and Triton) without its transports: requests and
//! responses as [`http`](super::http) and [`grpc`](super::grpc) read and write them.
//!
//! Inputs of a model. A request has one of the first three:
//!
//! - `image`, BYTES `[n]`: encoded image files (in JSON as base64),
//! - `pixels`, UINT8 `[n, height, width, 3]`: decoded images of any size,
//! - `pixel_values`, FP32, FP16 or BF16 `[n, 3, H, W]`: normalised values of the model's size, if the server
//!   offers it,
//! - `text`, BYTES `[n]`: texts, alone or with images, for a model with a text tower.
//!
//! Outputs of a model:
//!
//! - `logits`, FP32 `[n, classes]`; with the parameter `classification: k` in the form of Triton's
//!   classification extension,
//! - `top`, BYTES `[n, k]`: the most likely classes, each as `probability:index:label`,
//! - `embedding`, FP32 `[n, D]`, of the images or, in a request without images, of the texts,
//! - `patch_tokens`, FP32 `[n, patches, D]`, if the server offers it,
//! - `text_embedding`, FP32 `[texts, D]`, for requests with texts,
//! - `probabilities`, FP32 `[n, texts]`, for requests with images and texts; their `logits` and `top` refer
//!   to the texts, too,
//! - `explanation`, FP32 `[n, H, W]`, if the server offers it and the request names it: the contribution of
//!   each pixel, at the model's size, to a logit.
//!
//! A model that makes texts of images has these outputs instead: `text`, BYTES `[n]`; `finish_reason`, BYTES `[n]`; `tokens`, INT32
//! `[n]`, the number of tokens.
//!
//! A model that takes tensors by name, such as an ONNX model without preprocessing, has the inputs and outputs of its file instead.
//!
//! Models that find [objects, masks or depths](vision) have outputs of their own, and SAM has inputs for points and boxes.
//!
//! `explanation` has two parameters, which may also be parameters of the request: `class` selects the logit
//! (default: the largest), and `method` is `attnlrp` or `conservative`.

pub(super) mod base64;
pub(super) mod binary;
pub(super) mod generation;
pub(super) mod json;
pub(super) mod named;
pub(super) mod outputs;
pub(super) mod parameters;
mod selection;
pub(super) mod tensor_error;
pub(super) mod tensors;
pub(super) mod vision;

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use bytes::Bytes;

use self::parameters::Parameters;
use self::tensor_error::TensorError;
use super::failure::Failure;

/// Maximum number of input or output tensors that a request names: more than any valid request has.
pub(super) const MAX_TENSORS: usize = 16;

/// Maximum number of dimensions of a tensor.
pub(super) const MAX_DIMENSIONS: usize = 16;

/// Maximum bytes of a request's id, which the answer repeats.
const MAX_ID_BYTES: usize = 1024;

/// Maximum bytes of an element of BYTES without its contents: its handles, and its place in the queue.
pub(super) const ELEMENT_BYTES: usize = 256;

/// Maximum bytes of a number: decoded, converted, and as a part of an image.
pub(super) const NUMBER_BYTES: usize = 24;

/// The protocol's data types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Datatype {
    Bool,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Int8,
    Int16,
    Int32,
    Int64,
    Fp16,
    Bf16,
    Fp32,
    Fp64,
    Bytes,
}

impl Datatype {
    const ALL: [(Self, &'static str); 14] = [
        (Self::Bool, "BOOL"),
        (Self::Uint8, "UINT8"),
        (Self::Uint16, "UINT16"),
        (Self::Uint32, "UINT32"),
        (Self::Uint64, "UINT64"),
        (Self::Int8, "INT8"),
        (Self::Int16, "INT16"),
        (Self::Int32, "INT32"),
        (Self::Int64, "INT64"),
        (Self::Fp16, "FP16"),
        (Self::Bf16, "BF16"),
        (Self::Fp32, "FP32"),
        (Self::Fp64, "FP64"),
        (Self::Bytes, "BYTES"),
    ];

    pub(super) fn name(self) -> &'static str {
        let all = Self::ALL.iter();
        all.clone()
            .find(|(datatype, _)| *datatype == self)
            .map_or("", |(_, name)| name)
    }
}

impl FromStr for Datatype {
    type Err = TensorError;

    fn from_str(text: &str) -> Result<Self, TensorError> {
        let found = Self::ALL.iter().find(|(_, name)| *name == text);
        found
            .map(|(datatype, _)| *datatype)
            .ok_or_else(|| format!("`{text}` is not a data type of the protocol").into())
    }
}

impl InferRequest {
    /// Checks an id, which answers and errors repeat.
    ///
    /// # Errors
    ///
    /// [`Failure`] if the id is too long.
    pub(super) fn check_id(id: &str) -> Result<(), Failure> {
        if id.len() <= MAX_ID_BYTES {
            return Ok(());
        }
        Err(Failure::invalid(format!(
            "`id` has {} bytes; the maximum is {MAX_ID_BYTES}. Send a shorter one",
            id.len()
        )))
    }
}

impl fmt::Display for Datatype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The elements of an input tensor.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Data {
    /// Little-endian bytes. Each element of BYTES follows its length.
    Raw(Bytes),
    Numbers(Vec<f32>),
    Bytes(Vec<Bytes>),
}

/// An input tensor as received.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct InputTensor {
    pub(super) name: String,
    pub(super) datatype: String,
    pub(super) shape: Vec<i64>,
    pub(super) parameters: Parameters,
    pub(super) data: Data,
}

/// A requested output.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RequestedOutput {
    pub(super) name: String,
    pub(super) parameters: Parameters,
}

/// An inference request. An empty list of outputs asks for all.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct InferRequest {
    pub(super) model: String,
    /// Version; empty for the latest.
    pub(super) version: String,
    pub(super) id: String,
    pub(super) parameters: Parameters,
    pub(super) inputs: Vec<InputTensor>,
    pub(super) outputs: Vec<RequestedOutput>,
}

/// The elements of an output tensor.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum OutputData {
    Fp32(Vec<f32>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Uint8(Vec<u8>),
    Bool(Vec<bool>),
    Bytes(Vec<String>),
}

/// An output tensor.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OutputTensor {
    pub(super) name: Cow<'static, str>,
    pub(super) shape: Vec<usize>,
    pub(super) data: OutputData,
}

impl OutputTensor {
    pub(super) fn datatype(&self) -> Datatype {
        match self.data {
            OutputData::Fp32(_) => Datatype::Fp32,
            OutputData::Int32(_) => Datatype::Int32,
            OutputData::Int64(_) => Datatype::Int64,
            OutputData::Uint8(_) => Datatype::Uint8,
            OutputData::Bool(_) => Datatype::Bool,
            OutputData::Bytes(_) => Datatype::Bytes,
        }
    }
}

/// The answer to an inference request.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct InferResponse {
    pub(super) model: String,
    pub(super) version: String,
    pub(super) id: String,
    /// Indices of the texts that were longer than the model's context and were truncated.
    pub(super) truncated: Vec<usize>,
    /// Number of tokens of all texts.
    pub(super) text_tokens: usize,
    pub(super) outputs: Vec<OutputTensor>,
}

impl InferResponse {
    /// Bytes of the outputs.
    pub(super) fn bytes(&self) -> usize {
        let bytes = |output: &OutputTensor| match &output.data {
            OutputData::Fp32(values) => 4 * values.len(),
            OutputData::Int32(values) => 4 * values.len(),
            OutputData::Int64(values) => 8 * values.len(),
            OutputData::Uint8(values) => values.len(),
            OutputData::Bool(values) => values.len(),
            OutputData::Bytes(elements) => elements.iter().map(String::len).sum(),
        };
        self.outputs.iter().map(bytes).sum()
    }

    /// Returns the value of the response's parameter `truncated`: the indices of the texts, separated by
    /// commas. `None` if no text was truncated.
    pub(super) fn truncated(&self) -> Option<String> {
        let numbers: Vec<String> = self.truncated.iter().map(usize::to_string).collect();
        (!numbers.is_empty()).then(|| numbers.join(","))
    }
}

/// A tensor in a model's metadata; -1 is a dimension of any size.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub(super) struct TensorMetadata {
    pub(super) name: Cow<'static, str>,
    #[serde(serialize_with = "by_name")]
    pub(super) datatype: Datatype,
    pub(super) shape: Vec<i64>,
}

fn by_name<S: serde::Serializer>(datatype: &Datatype, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(datatype.name())
}
