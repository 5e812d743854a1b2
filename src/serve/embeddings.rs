//! `/v1/embeddings`: the form of OpenAI's embeddings, with images in it as servers of multimodal embeddings (Jina's, Infinity)
//! take them: `data:` URIs, or objects `{"image": …}` with one or with base64. Nothing is fetched from other servers.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::failure::{Failure, Kind};
use super::protocol::json::{decode_base64, encode_base64};
use super::protocol::tensors::IMAGE;
use super::protocol::{Data, InferRequest, InferResponse, InputTensor, OutputData, RequestedOutput};

#[derive(Deserialize)]
struct Body {
    model: String,
    input: OneOrMany,
    #[serde(default)]
    encoding_format: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(Input),
    Many(Vec<Input>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Input {
    Text(String),
    Image { image: String },
}

/// A request for embeddings.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) infer: InferRequest,
    /// Whether the embeddings are wanted as base64 of their bytes.
    pub(super) base64: bool,
}

/// Reads a request's body.
pub(super) fn read(body: &[u8]) -> Result<Request, Failure> {
    let body: Body =
        serde_json::from_slice(body).map_err(|e| Failure::invalid(format!("the request's JSON: {e}")))?;
    let base64 = match body.encoding_format.as_deref() {
        None | Some("float") => false,
        Some("base64") => true,
        Some(other) => {
            let reason = format!("`encoding_format`: `{other}` is not one of float, base64");
            return Err(Failure::invalid(reason));
        }
    };
    let inputs = match body.input {
        OneOrMany::One(input) => vec![input],
        OneOrMany::Many(inputs) => inputs,
    };
    let decode = |(index, input): (usize, &Input)| -> Result<Bytes, Failure> {
        let decoded = match input {
            Input::Text(text) if !text.starts_with("data:") => {
                Err("is text; the model takes images as data: URIs".into())
            }
            Input::Text(text) => decode_base64(text),
            Input::Image { image } if image.contains("://") => {
                Err("is a URL; send the image itself, as a data: URI".into())
            }
            Input::Image { image } => decode_base64(image),
        };
        decoded.map_err(|reason: String| Failure::invalid(format!("`input`[{index}] {reason}")))
    };
    let images = inputs
        .iter()
        .enumerate()
        .map(decode)
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Request {
        infer: InferRequest {
            model: body.model,
            inputs: vec![InputTensor {
                name: IMAGE.into(),
                datatype: "BYTES".into(),
                shape: vec![images.len() as i64],
                data: Data::Bytes(images),
            }],
            outputs: vec![RequestedOutput {
                name: "embedding".into(),
                ..RequestedOutput::default()
            }],
            ..InferRequest::default()
        },
        base64,
    })
}

/// Writes the response's body.
pub(super) fn write(response: &InferResponse, base64: bool) -> Result<Value, Failure> {
    let (values, width) = match response.outputs.first() {
        Some(output) => match (&output.data, &output.shape[..]) {
            (OutputData::Fp32(values), &[_, width]) => (values, width.max(1)),
            _ => return Err(Failure::new(Kind::Internal, "the embedding is not a matrix")),
        },
        None => return Err(Failure::new(Kind::Internal, "there is no embedding")),
    };
    let data = values.chunks(width).enumerate().map(|(index, embedding)| {
        let embedding = match base64 {
            true => json!(encode_base64(bytemuck::cast_slice(embedding))),
            false => json!(embedding),
        };
        json!({ "object": "embedding", "index": index, "embedding": embedding })
    });
    Ok(json!({
        "object": "list",
        "data": data.collect::<Vec<_>>(),
        "model": response.model,
        // Images have no prompt.
        "usage": { "prompt_tokens": 0, "total_tokens": 0 },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(body: Value) -> String {
        read(body.to_string().as_bytes())
            .unwrap_err()
            .message()
            .to_owned()
    }

    #[test]
    fn images_come_as_data_uris_or_objects() {
        for input in [
            json!("data:image/png;base64,aGk="),
            json!(["data:image/png;base64,aGk="]),
            json!([{"image": "data:image/png;base64,aGk="}]),
            json!({"image": "aGk="}),
        ] {
            let request = read(json!({"model": "m", "input": input}).to_string().as_bytes()).unwrap();
            assert_eq!(request.infer.inputs[0].data, Data::Bytes(vec!["hi".into()]));
        }
        for (input, expected) in [
            (json!("a cat"), "`input`[0] is text"),
            (
                json!(["data:image/png;base64,aGk=", {"image": "https://a/b.png"}]),
                "`input`[1] is a URL",
            ),
            (json!([{"image": "file:///etc/passwd"}]), "`input`[0] is a URL"),
            (json!([{"image": "%"}]), "`input`[0] is not base64"),
        ] {
            let error = error(json!({"model": "m", "input": input}));
            assert!(error.starts_with(expected), "{error}");
        }
        let error = error(json!({"model": "m", "input": [], "encoding_format": "int8"}));
        assert!(error.starts_with("`encoding_format`"), "{error}");
    }
}
