//! `/v1/embeddings`, OpenAI's embeddings for texts and images, and `/embed`, those of Text Embeddings Inference
//! (TEI). Images are `data:` URLs or objects with an `image` or an `image_url`, as in servers of multimodal
//! embeddings. The server fetches nothing from other servers.

use std::fmt;

use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::failure::{Failure, Kind};
use super::protocol::base64::{decode_base64, encode_base64, is_data_url, is_image, is_url};
use super::protocol::parameters::{Parameters, Scalar};
use super::protocol::tensor_error::TensorError;
use super::protocol::tensors::{IMAGE, TEXT};
use super::protocol::{Data, InferRequest, InferResponse, InputTensor, OutputData, RequestedOutput};
use super::repository::Model;
use super::service::{Call, Service};
use hipvit::outputs::normalize;

/// Maximum number of inputs of a request, as in OpenAI's API.
const MAX_INPUTS: usize = 2048;

/// Keys that other servers support and this one does not, and alternatives.
const REFUSED: [(&str, &str); 25] = [
    (
        "messages",
        "send `input`, with texts, or objects with `image_url`",
    ),
    (
        "truncate_prompt_tokens",
        "the model's context is the limit; leave it out",
    ),
    ("truncation", "the key is `truncate`, which is true or false"),
    ("truncation_direction", TRUNCATED_SIDE),
    ("truncation_side", TRUNCATED_SIDE),
    (
        "add_special_tokens",
        "the model's tokenizer adds its special tokens; leave it out",
    ),
    ("late_chunking", "each input is embedded by itself; leave it out"),
    (
        "embedding_type",
        "the key is `encoding_format`, which is float or base64",
    ),
    (
        "embedding_types",
        "the key is `encoding_format`, which is float or base64",
    ),
    ("embed_dtype", ENCODED_VALUES),
    ("output_dtype", ENCODED_VALUES),
    ("endianness", ENCODED_VALUES),
    ("output_dimension", "the key is `dimensions`"),
    ("return_multivector", "each input has one embedding; leave it out"),
    (
        "use_activation",
        "the key is `normalized`, which is true or false",
    ),
    (
        "modality",
        "send images as data: URLs, or objects with `image` or `text`",
    ),
    ("mm_processor_kwargs", IMAGE_PROCESSOR),
    ("media_io_kwargs", IMAGE_PROCESSOR),
    ("chat_template", CHAT),
    ("chat_template_kwargs", CHAT),
    ("instruction", "write it into the text"),
    ("prompt", "write it into the text"),
    ("prompt_name", "write the prompt into the text"),
    ("task", "the model has one task; leave it out"),
    (
        "input_type",
        "the model embeds queries and documents alike; leave it out",
    ),
];

const TRUNCATED_SIDE: &str = "long texts lose their end; leave it out";
const ENCODED_VALUES: &str = "values are little-endian FP32; leave it out";
const IMAGE_PROCESSOR: &str = "images are processed as the model's configuration says; leave it out";
const CHAT: &str = "inputs are texts and images without roles; leave it out";

/// Form of requests and responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Form {
    /// `/v1/embeddings`: `input` of a `model`; vectors as computed, in objects.
    #[default]
    OpenAi,
    /// `/embed`: `inputs`, of the only model unless one is named; vectors of length 1, in a list.
    Tei,
}

impl Form {
    /// Returns the key of the inputs.
    fn inputs(self) -> &'static str {
        match self {
            Self::OpenAi => "input",
            Self::Tei => "inputs",
        }
    }
}

/// A request as received.
#[derive(Debug, Default)]
pub(super) struct Request {
    /// Name of the model. Empty for the only one.
    pub(super) model: String,
    form: Form,
    inputs: Vec<Input>,
    base64: bool,
    dimensions: Option<u64>,
    normalized: bool,
    /// `priority`, `timeout` and `truncate`, which are parameters of the inference.
    parameters: Map<String, Value>,
}

#[derive(Debug, PartialEq)]
enum Input {
    /// A string with a text or an image.
    Plain(String),
    Text(String),
    Image(String),
}

/// Parses a request's body. The kinds of its inputs are not checked.
pub(super) fn read(body: &[u8], form: Form) -> Result<Request, Failure> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let read = json.deserialize_map(RequestVisitor(form));
    let read = read.and_then(|request| json.end().map(|()| request));
    read.map_err(|error| Failure::json(&error))
}

/// Returns a failure in the form that clients of TEI read.
pub(super) fn tei_error(failure: Failure) -> Response {
    let kind = match failure.kind() {
        Kind::Overloaded(_) => "overloaded",
        Kind::Unavailable => "unhealthy",
        Kind::Internal | Kind::DeadlineExceeded => "backend",
        _ => "validation",
    };
    let body = serde_json::json!({ "error": failure.message(), "error_type": kind });
    let mut response = failure.into_response();
    *response.body_mut() = body.to_string().into();
    response.headers_mut().remove(hyper::header::CONTENT_LENGTH);
    response
}

struct RequestVisitor(Form);

impl<'de> Visitor<'de> for RequestVisitor {
    type Value = Request;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Form::OpenAi => "an object with `model` and `input`",
            Form::Tei => "an object with `inputs`",
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Request, A::Error> {
        let form = self.0;
        let mut request = Request {
            form,
            normalized: form == Form::Tei,
            ..Request::default()
        };
        let (mut model, mut inputs) = (None, None);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "model" => model = Some(map.next_value()?),
                key if key == form.inputs() => {
                    let mut all = Vec::new();
                    map.next_value_seed(InputVisitor {
                        key: form.inputs(),
                        inputs: &mut all,
                        in_list: false,
                    })?;
                    inputs = Some(all);
                }
                "encoding_format" => {
                    request.base64 = match map.next_value::<Option<String>>()?.as_deref() {
                        None | Some("float") => false,
                        Some("base64") => true,
                        Some(other) => {
                            let reason = format!("`encoding_format`: `{other}` is not one of float, base64");
                            return Err(A::Error::custom(reason));
                        }
                    }
                }
                "dimensions" => request.dimensions = map.next_value()?,
                "normalized" | "normalize" => {
                    request.normalized = map.next_value::<Option<bool>>()?.unwrap_or(form == Form::Tei);
                }
                // The only direction is TEI's default.
                "truncation_direction" if form == Form::Tei => {
                    let direction = map.next_value::<Option<String>>()?;
                    if direction.is_some_and(|direction| !direction.eq_ignore_ascii_case("right")) {
                        return Err(A::Error::custom(format!(
                            "`truncation_direction` is not supported: {TRUNCATED_SIDE}"
                        )));
                    }
                }
                "priority" | "timeout" | "truncate" => {
                    let Scalar(value) = map.next_value()?;
                    request.parameters.insert(key, value);
                }
                // `user` and unknown keys have no effect.
                key => {
                    let given = map.next_value::<Option<IgnoredAny>>()?.is_some();
                    let refused = REFUSED.iter().find(|(refused, _)| given && *refused == key);
                    if let Some((key, reason)) = refused {
                        return Err(A::Error::custom(format!("`{key}` is not supported: {reason}")));
                    }
                }
            }
        }
        request.model = match (model, form) {
            (Some(model), _) => model,
            (None, Form::Tei) => String::new(),
            (None, Form::OpenAi) => return Err(A::Error::missing_field("model")),
        };
        request.inputs = inputs.ok_or_else(|| A::Error::missing_field(form.inputs()))?;
        Ok(request)
    }
}

/// Adds one input, or a list of them, to the inputs.
struct InputVisitor<'a> {
    /// Key of the inputs in the request.
    key: &'static str,
    inputs: &'a mut Vec<Input>,
    in_list: bool,
}

impl InputVisitor<'_> {
    fn token_ids(&self) -> String {
        format!(
            "`{}` has token ids. Send the text: the server finds its tokens",
            self.key
        )
    }
}

impl<'de> DeserializeSeed<'de> for InputVisitor<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for InputVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, an image as a data: URL, an object with `text`, `image` or `image_url`, or a list of them")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.inputs.push(Input::Plain(text.to_owned()));
        Ok(())
    }

    fn visit_string<E>(self, text: String) -> Result<(), E> {
        self.inputs.push(Input::Plain(text));
        Ok(())
    }

    fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<(), E> {
        Err(E::custom(self.token_ids()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        if self.in_list {
            // A list of lists contains token ids, or is an error that the elements reveal.
            let first = list.next_element::<IgnoredNumber>()?;
            let reason = match first {
                Some(_) => self.token_ids(),
                None => format!("`{}` has an empty list in a list", self.key),
            };
            return Err(A::Error::custom(reason));
        }
        let Self { key, inputs, .. } = self;
        loop {
            let next = InputVisitor {
                key,
                inputs: &mut *inputs,
                in_list: true,
            };
            if list.next_element_seed(next)?.is_none() {
                return Ok(());
            }
            if inputs.len() > MAX_INPUTS {
                let reason = format!("`{key}` has more than {MAX_INPUTS} elements. Send fewer at once");
                return Err(A::Error::custom(reason));
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let (name, index) = (self.key, self.inputs.len());
        let mut found = None;
        while let Some(key) = map.next_key::<String>()? {
            let input = match key.as_str() {
                "text" => map.next_value::<Option<String>>()?.map(Input::Text),
                "image" | "image_url" => map
                    .next_value::<Option<ImageUrl>>()?
                    .map(|url| Input::Image(url.0)),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    None
                }
            };
            if let Some(input) = input
                && found.replace(input).is_some()
            {
                let reason = format!(
                    "`{name}`[{index}] has several of `text`, `image` and `image_url`. Send each by itself"
                );
                return Err(A::Error::custom(reason));
            }
        }
        let none = || {
            A::Error::custom(format!(
                "`{name}`[{index}] has none of `text`, `image` and `image_url`"
            ))
        };
        self.inputs.push(found.ok_or_else(none)?);
        Ok(())
    }
}

/// A number whose value does not matter.
#[derive(Deserialize)]
struct IgnoredNumber(#[allow(dead_code, reason = "only its type is checked")] f64);

/// A URL, or an object with a `url`, as OpenAI's `image_url`.
#[derive(Debug)]
pub(super) struct ImageUrl(pub(super) String);

impl<'de> Deserialize<'de> for ImageUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct UrlVisitor;

        impl<'de> Visitor<'de> for UrlVisitor {
            type Value = ImageUrl;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a data: URL, base64, or an object with `url`")
            }

            fn visit_str<E>(self, url: &str) -> Result<ImageUrl, E> {
                Ok(ImageUrl(url.to_owned()))
            }

            fn visit_string<E>(self, url: String) -> Result<ImageUrl, E> {
                Ok(ImageUrl(url))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ImageUrl, A::Error> {
                let mut url = None;
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "url" => url = Some(map.next_value()?),
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                url.map(ImageUrl).ok_or_else(|| A::Error::missing_field("url"))
            }
        }

        deserializer.deserialize_any(UrlVisitor)
    }
}

/// The inputs of a request by kind.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Decoded {
    images: Vec<Bytes>,
    texts: Vec<Bytes>,
    /// For each input, true if it is a text.
    is_text: Vec<bool>,
}

/// A response's body. A [`Value`] instead would print each f32 with the digits of an f64.
#[derive(Serialize)]
struct Body<'a> {
    data: Vec<Embedding>,
    model: &'a str,
    object: &'static str,
    /// Indices of the inputs that were truncated.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    truncated: Vec<usize>,
    usage: Usage,
}

#[derive(Serialize)]
struct Embedding {
    embedding: Vector,
    index: usize,
    object: &'static str,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Vector {
    Float(Vec<f32>),
    Base64(String),
}

#[derive(Serialize)]
struct Usage {
    prompt_tokens: usize,
    total_tokens: usize,
}

impl Request {
    /// Checks the request against the model, and separates its texts from its images.
    pub(super) fn decode(&self, model: &Model) -> Result<Decoded, Failure> {
        if model.generation.is_some() {
            let reason = format!(
                "model `{}` makes texts of images, and has no embeddings. Send the image to /v1/chat/completions",
                model.name
            );
            return Err(Failure::invalid(reason));
        }
        if model.vision.is_some() {
            let name = &model.name;
            let reason = format!(
                "model `{name}` finds objects, masks or depths, and has no embeddings. Send the image to /v2/models/{name}/infer"
            );
            return Err(Failure::invalid(reason));
        }
        let width = model.outputs.embedding;
        if self.dimensions.is_some_and(|wanted| wanted != width as u64) {
            let reason = format!(
                "`dimensions`: embeddings of `{}` have {width}, and cannot be shortened",
                model.name
            );
            return Err(Failure::invalid(reason));
        }
        if self.inputs.is_empty() {
            return Err(Failure::invalid(format!("`{}` is empty", self.form.inputs())));
        }
        self.decode_inputs(model.inputs.no_texts.as_deref())
    }

    /// Separates texts from images. `no_texts` is the reason if the model takes no texts.
    pub(super) fn decode_inputs(&self, no_texts: Option<&str>) -> Result<Decoded, Failure> {
        let mut decoded = Decoded::default();
        for (index, input) in self.inputs.iter().enumerate() {
            let key = self.form.inputs();
            let wrong = |reason: TensorError| Failure::invalid(format!("`{key}`[{index}] {reason}"));
            let (text, image) = match input {
                Input::Plain(text) if is_data_url(text) || is_url(text) || is_image(text.as_bytes()) => {
                    (None, Some(text))
                }
                Input::Plain(text) | Input::Text(text) => (Some(text), None),
                Input::Image(image) => (None, Some(image)),
            };
            if let Some(image) = image {
                decoded.images.push(decode_base64(image).map_err(wrong)?);
            }
            if let Some(text) = text {
                if let Some(reason) = no_texts {
                    return Err(wrong(
                        format!("is a text, but {reason}. Send images as data: URLs").into(),
                    ));
                }
                decoded.texts.push(Bytes::from(text.clone()));
            }
            decoded.is_text.push(text.is_some());
        }
        Ok(decoded)
    }

    /// Returns the inference request of the images or texts. `None` if there are none.
    fn infer(&self, name: &str, elements: Vec<Bytes>) -> Option<InferRequest> {
        if elements.is_empty() {
            return None;
        }
        Some(InferRequest {
            model: self.model.clone(),
            parameters: self.parameters.clone().into(),
            inputs: vec![InputTensor {
                name: name.into(),
                datatype: "BYTES".into(),
                shape: vec![elements.len() as i64],
                parameters: Parameters::default(),
                data: Data::Bytes(elements),
            }],
            outputs: vec![RequestedOutput {
                name: "embedding".into(),
                ..RequestedOutput::default()
            }],
            ..InferRequest::default()
        })
    }

    /// Embeds the inputs. Returns the response's body.
    pub(super) async fn run(
        self,
        service: &Service,
        call: Call,
        decoded: Decoded,
    ) -> Result<String, Failure> {
        let Decoded {
            images,
            texts,
            is_text,
        } = decoded;
        let infer = async |request: Option<InferRequest>| match request {
            Some(request) => service.infer(call.clone(), request).await.map(Some),
            None => Ok(None),
        };
        let images = self.infer(IMAGE, images);
        let texts = self.infer(TEXT, texts);
        let (images, texts) = tokio::try_join!(infer(images), infer(texts))?;
        self.write(images.as_ref(), texts.as_ref(), &is_text)
    }

    fn write(
        &self,
        images: Option<&InferResponse>,
        texts: Option<&InferResponse>,
        is_text: &[bool],
    ) -> Result<String, Failure> {
        let (mut of_images, mut of_texts) = (rows(images)?, rows(texts)?);
        let mut data = Vec::with_capacity(is_text.len());
        for (index, is_text) in is_text.iter().enumerate() {
            let rows = if *is_text { &mut of_texts } else { &mut of_images };
            let row = rows.next();
            let row =
                row.ok_or_else(|| Failure::new(Kind::Internal, format!("input {index} has no embedding")))?;
            let mut row = row.to_vec();
            if self.normalized {
                normalize(&mut row);
            }
            let embedding = if self.base64 {
                Vector::Base64(encode_base64(bytemuck::cast_slice(&row)))
            } else {
                Vector::Float(row)
            };
            data.push(Embedding {
                embedding,
                index,
                object: "embedding",
            });
        }
        let failed = |error: serde_json::Error| Failure::new(Kind::Internal, error.to_string());
        if self.form == Form::Tei {
            let vectors: Vec<Vector> = data.into_iter().map(|data| data.embedding).collect();
            return serde_json::to_string(&vectors).map_err(failed);
        }
        // Images have no tokens.
        let tokens = texts.map_or(0, |texts| texts.text_tokens);
        let cut = texts.map(|texts| texts.truncated.as_slice()).unwrap_or_default();
        let inputs = is_text.iter().enumerate().filter(|(_, is_text)| **is_text);
        let inputs: Vec<usize> = inputs.map(|(index, _)| index).collect();
        let body = Body {
            data,
            model: &self.model,
            object: "list",
            truncated: cut.iter().filter_map(|&text| inputs.get(text).copied()).collect(),
            usage: Usage {
                prompt_tokens: tokens,
                total_tokens: tokens,
            },
        };
        serde_json::to_string(&body).map_err(failed)
    }
}

/// Returns the embeddings of a response, one after the other.
fn rows(response: Option<&InferResponse>) -> Result<impl Iterator<Item = &[f32]>, Failure> {
    let wrong = || Failure::new(Kind::Internal, "the embedding is not a matrix");
    let (values, width): (&[f32], usize) = match response {
        None => (&[], 1),
        Some(response) => match response.outputs.first() {
            Some(output) => match (&output.data, &output.shape[..]) {
                (OutputData::Fp32(values), &[_, width]) => (values, width.max(1)),
                _ => return Err(wrong()),
            },
            None => return Err(wrong()),
        },
    };
    Ok(values.chunks(width))
}

#[cfg(test)]
mod tests;
