//! Parsers of requests for the fuzz targets. Built only with `--cfg fuzzing`.

use bytes::Bytes;
use prost::Message as _;

use super::protocol::tensors::Inputs;
use super::protocol::vision::VisionProtocol;
use super::protocol::{InferRequest, json};
use super::{chat, embeddings, grpc, proto, wire};

/// Returns the memory that a JSON body is charged with in addition to its length.
pub fn json_size(body: &[u8]) -> usize {
    json::decoded_size(body)
}

/// Returns the memory that a gRPC message is charged with in addition to its length. `None` if it is refused
/// before it is decoded.
pub fn message_size(message: &[u8]) -> Option<usize> {
    wire::decoded_size(message).ok()
}

/// Reads the body of an inference over HTTP. Its first `json_length` bytes are JSON, if given.
pub fn infer_json(body: &[u8], json_length: Option<usize>) {
    if let Ok(request) = json::read_request("model", "", Bytes::copy_from_slice(body), json_length) {
        let _ = json::binary_outputs(&request);
        check(request);
    }
}

/// Reads the message of an inference over gRPC.
pub fn infer_message(message: &[u8]) {
    let message = proto::ModelInferRequest::decode(Bytes::copy_from_slice(message));
    if let Ok(Ok(request)) = message.map(grpc::read) {
        check(request);
    }
}

/// Reads the body of a request for embeddings.
pub fn embeddings(body: &[u8]) {
    for form in [embeddings::Form::OpenAi, embeddings::Form::Tei] {
        let Ok(request) = embeddings::read(body, form) else {
            continue;
        };
        let _ = request.decode_inputs(None);
    }
}

/// Reads the body of a request for a chat.
pub fn chat(body: &[u8]) {
    if let Ok(request) = chat::read(body) {
        let _ = request.content();
    }
}

/// Reads the tensors like a model that takes every input.
fn check(request: InferRequest) {
    let inputs = Inputs {
        image_size: [32, 32],
        values: true,
        max_pixels: 1 << 20,
        max_images: 256,
        no_texts: None,
    };
    let segmenter = VisionProtocol::Segmenter { masks: 3, logits: 64 };
    for protocol in [VisionProtocol::Detector, segmenter, VisionProtocol::Depth] {
        let _ = protocol.read(request.inputs.clone(), &inputs, &request.parameters);
    }
    let _ = inputs.read(request.inputs);
}
