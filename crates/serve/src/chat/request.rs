//! A chat request as received.

use std::fmt;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::embeddings::ImageUrl;
use crate::failure::Failure;
use crate::protocol::base64::{decode_base64, is_data_url, is_image};
use crate::protocol::parameters::{Parameters, Scalar};
use hipvit_generate::{Message as Said, MessagePart};

/// Maximum number of messages, and of parts of a message.
const MAX_PARTS: usize = 64;

/// Maximum number of characters of a role or a type that an error repeats.
const MAX_SHOWN_CHARS: usize = 40;

/// Keys that other servers support and this one does not, and alternatives.
const REFUSED: [(&str, &str); 25] = [
    ("audio", NO_AUDIO),
    ("chat_template", NO_CHAT),
    ("chat_template_kwargs", NO_CHAT),
    ("frequency_penalty", PENALTIES),
    ("function_call", NO_TOOLS),
    ("functions", NO_TOOLS),
    ("guided_json", NO_FORM),
    ("guided_regex", NO_FORM),
    ("ignore_eos", "texts end as the model ends them; leave it out"),
    ("length_penalty", NO_BEAMS),
    ("logit_bias", NO_LOGITS),
    ("logprobs", NO_LOGITS),
    ("min_p", "use `top_k` or `top_p`"),
    ("min_tokens", "texts end as the model ends them; leave it out"),
    ("modalities", NO_AUDIO),
    ("prediction", NO_CHAT),
    ("presence_penalty", PENALTIES),
    ("prompt_logprobs", NO_LOGITS),
    ("repetition_penalty", PENALTIES),
    ("response_format", NO_FORM),
    ("stop", "texts end as the model ends them; leave it out"),
    ("stop_token_ids", "texts end as the model ends them; leave it out"),
    ("tool_choice", NO_TOOLS),
    ("tools", NO_TOOLS),
    ("top_logprobs", NO_LOGITS),
];

/// Roles of messages.
const ROLES: [&str; 3] = ["user", "assistant", "system"];

const NO_AUDIO: &str = "the model makes texts of images; leave it out";
const NO_BEAMS: &str = "it is that of the model's files; leave it out";
const NO_CHAT: &str =
    "the prompt is the text of the messages, in the template of the model's files; leave it out";
const NO_FORM: &str = "the text is as the model makes it; leave it out";
const NO_LOGITS: &str = "answers have no logits; leave it out";
const NO_TOOLS: &str = "the model calls no tools; leave it out";
const ONE_TEXT: &str = "a request gets one text; send it several times, with different `seed`";
const PENALTIES: &str = "penalties are those of the model's files; leave it out";

/// A request as received.
#[derive(Debug, Default)]
pub(crate) struct Request {
    pub(crate) model: String,
    pub(crate) stream: bool,
    /// True if the last event has the numbers of tokens.
    pub(crate) include_usage: bool,
    /// Options of the text, `priority` and `timeout`, which are parameters of the inference.
    pub(crate) parameters: Parameters,
    messages: Vec<Message>,
}

/// Parses a request's body. Its messages are not checked.
pub(crate) fn read(body: &[u8]) -> Result<Request, Failure> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let read = json.deserialize_map(RequestVisitor);
    let read = read.and_then(|request| json.end().map(|()| request));
    read.map_err(|error| Failure::json(&error))
}

#[derive(Debug, Deserialize)]
struct Message {
    role: String,
    #[serde(default)]
    content: Content,
}

#[derive(Debug, Default)]
enum Content {
    #[default]
    Empty,
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize)]
struct Part {
    #[serde(default)]
    r#type: Option<String>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    image_url: Option<ImageUrl>,
}

#[derive(Debug, Default, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
}

/// Reads a list of at most [`MAX_PARTS`] elements.
fn few<'de, T: Deserialize<'de>, A: SeqAccess<'de>>(mut list: A, what: &str) -> Result<Vec<T>, A::Error> {
    let mut all = Vec::new();
    while let Some(element) = list.next_element()? {
        if all.len() == MAX_PARTS {
            let reason = format!("`messages` has more than {MAX_PARTS} {what}. Send one image per request");
            return Err(A::Error::custom(reason));
        }
        all.push(element);
    }
    Ok(all)
}

/// The messages of a request.
struct Messages(Vec<Message>);

impl<'de> Deserialize<'de> for Messages {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MessagesVisitor;

        impl<'de> Visitor<'de> for MessagesVisitor {
            type Value = Messages;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of messages")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Messages, A::Error> {
                few(list, "messages").map(Messages)
            }
        }

        deserializer.deserialize_seq(MessagesVisitor)
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ContentVisitor;

        impl<'de> Visitor<'de> for ContentVisitor {
            type Value = Content;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, or a list of parts")
            }

            fn visit_unit<E>(self) -> Result<Content, E> {
                Ok(Content::Empty)
            }

            fn visit_str<E>(self, text: &str) -> Result<Content, E> {
                Ok(Content::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Content, A::Error> {
                few(list, "parts").map(Content::Parts)
            }
        }

        deserializer.deserialize_any(ContentVisitor)
    }
}

struct RequestVisitor;

impl<'de> Visitor<'de> for RequestVisitor {
    type Value = Request;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with `model` and `messages`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Request, A::Error> {
        let mut request = Request::default();
        let (mut model, mut messages) = (None, None);
        let (mut has_beams, mut best_of) = (false, None);
        let mut parameters = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "model" => model = Some(map.next_value()?),
                "messages" => messages = Some(map.next_value::<Messages>()?.0),
                "stream" => request.stream = map.next_value::<Option<bool>>()?.unwrap_or(false),
                "stream_options" => {
                    let options = map.next_value::<Option<StreamOptions>>()?;
                    request.include_usage = options.unwrap_or_default().include_usage.unwrap_or(false);
                }
                "n" => {
                    if map.next_value::<Option<u64>>()?.is_some_and(|n| n != 1) {
                        return Err(A::Error::custom(format!("`n` is not 1: {ONE_TEXT}")));
                    }
                }
                "max_tokens" | "max_completion_tokens" => {
                    let Scalar(value) = map.next_value()?;
                    if !value.is_null() {
                        parameters.insert("max_tokens".into(), value);
                    }
                }
                "use_beam_search" => has_beams = map.next_value::<Option<bool>>()?.unwrap_or(false),
                "best_of" => best_of = map.next_value::<Option<u64>>()?,
                "beams" | "priority" | "seed" | "speculate" | "temperature" | "timeout" | "top_k"
                | "top_p" => {
                    let Scalar(value) = map.next_value()?;
                    parameters.insert(key, value);
                }
                // `user` and unknown keys have no effect.
                key => refuse(key, &map.next_value::<Scalar>()?.0).map_err(A::Error::custom)?,
            }
        }
        match (has_beams, best_of) {
            (true, Some(beams)) => drop(parameters.insert("beams".into(), beams.into())),
            (true, None) if parameters.contains_key("beams") => {}
            (true, None) => {
                let reason = "`use_beam_search` needs `best_of`, the number of beams";
                return Err(A::Error::custom(reason));
            }
            (false, None | Some(1)) => {}
            (false, Some(_)) => {
                return Err(A::Error::custom(format!(
                    "`best_of` is for `use_beam_search`: {ONE_TEXT}"
                )));
            }
        }
        request.model = model.ok_or_else(|| A::Error::missing_field("model"))?;
        request.messages = messages.ok_or_else(|| A::Error::missing_field("messages"))?;
        request.parameters = parameters.into();
        Ok(request)
    }
}

/// Returns the reason why a key is refused that has no effect with these values: null, false, 0 and the neutral value of a penalty.
fn refuse(key: &str, value: &Value) -> Result<(), String> {
    let is_neutral = match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => {
            let neutral = if key == "repetition_penalty" { 1.0 } else { 0.0 };
            number.as_f64() == Some(neutral)
        }
        _ => false,
    };
    match REFUSED.iter().find(|(refused, _)| *refused == key) {
        Some((key, reason)) if !is_neutral => Err(format!("`{key}` is not supported: {reason}")),
        _ => Ok(()),
    }
}

impl Request {
    /// Returns the file of the only image, and the messages.
    pub(crate) fn content(&self) -> Result<(Bytes, Vec<Said>), Failure> {
        let (mut images, mut messages) = (Vec::new(), Vec::new());
        for (index, message) in self.messages.iter().enumerate() {
            messages.push(message.read(&format!("`messages`[{index}]"), &mut images)?);
        }
        match &images[..] {
            [(place, url)] => {
                let decoded = decode_base64(url);
                let file = decoded.map_err(|reason| Failure::invalid(format!("{place} {reason}")))?;
                Ok((file, messages))
            }
            [] => Err(Failure::invalid(
                "`messages` has no image. Send it as a part {\"type\": \"image_url\", \"image_url\": {\"url\": \"data:image/png;base64,…\"}}",
            )),
            [_, (place, _), ..] => Err(Failure::invalid(format!(
                "{place} is a second image, and the model reads one image per text. Send a request for each"
            ))),
        }
    }
}

impl Message {
    /// Returns what the message says, and adds the URL and the place of each image. `place` is that of the message.
    fn read<'a>(&'a self, place: &str, images: &mut Vec<(String, &'a str)>) -> Result<Said, Failure> {
        if !ROLES.contains(&self.role.as_str()) {
            let role = shortened(&self.role);
            let roles = ROLES.join(", ");
            return Err(Failure::invalid(format!(
                "{place} has the role `{role}`, which is not one of {roles}"
            )));
        }
        let mut said = Vec::new();
        match &self.content {
            Content::Empty => {}
            Content::Text(text) => said.push(checked(place, text)?),
            Content::Parts(parts) => {
                for (index, part) in parts.iter().enumerate() {
                    let place = format!("{place}.content[{index}]");
                    if let Some(ImageUrl(url)) = &part.image_url {
                        images.push((place, url));
                        said.push(MessagePart::Image);
                    } else if let Some(text) = &part.text {
                        said.push(checked(&place, text)?);
                    } else {
                        let kind = shortened(part.r#type.as_deref().unwrap_or_default());
                        return Err(Failure::invalid(format!(
                            "{place} has the type `{kind}`, and neither an image nor a text. Send an image as `image_url`, or a text as `text`"
                        )));
                    }
                }
            }
        }
        Ok(Said {
            role: self.role.clone(),
            parts: said,
        })
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(MAX_SHOWN_CHARS).collect()
}

/// Returns a text as a part of a message. Refuses an image that was sent as a text.
fn checked(place: &str, text: &str) -> Result<MessagePart, Failure> {
    if is_data_url(text) || is_image(text.as_bytes()) {
        let reason = format!("{place} is an image as text. Send it as a part with `image_url`");
        return Err(Failure::invalid(reason));
    }
    Ok(MessagePart::Text(text.to_owned()))
}
