//! `/v1/chat/completions`, OpenAI's chat, for models that make texts of images. A request has one image as a `data:` URL, and the text of its messages is the
//! model's prompt. The answer is the text of the image, whole or token by token as server-sent events.

mod answer;
mod events;
mod request;

use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use serde_json::json;

use self::answer::{Head, generated, usage};
use self::events::Events;
pub(super) use self::request::{Request, read};
use super::failure::Failure;
use super::protocol::generation::finish_reason;
use super::scheduler::Content;
use super::service::{Call, Chat, ChatContent, Service};
use hipvit_generate::Message;

/// Answers a request with the text of its image.
pub(super) async fn complete(
    service: &Arc<Service>,
    call: Call,
    request: Request,
    (image, messages): (Bytes, Vec<Message>),
) -> Result<Response, Failure> {
    let Request {
        model, parameters, ..
    } = &request;
    let asked = ChatContent {
        image: Content::Encoded(image),
        messages,
        streams: request.stream,
    };
    let chat = service.chat(&call, model, asked, parameters)?;
    let head = Head::new(&request.model);
    if request.stream {
        let mut events = Events::new(chat, head, request.include_usage);
        // An image that cannot be used has the status of an error.
        events.begin().await?;
        let headers = [
            (CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
            (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        ];
        return Ok((headers, Body::new(events)).into_response());
    }
    let Chat {
        reply, mut record, ..
    } = chat;
    let reply = reply.await;
    if let Some(result) = reply.iter().flatten().next() {
        record.parts = result.parts;
    }
    let text = generated(&reply);
    record.end(text.as_ref().err());
    let text = text?;
    let choices = json!([{
        "index": 0,
        "message": { "role": "assistant", "content": text.text, "refusal": null },
        "logprobs": null,
        "finish_reason": finish_reason(text),
    }]);
    let mut body = head.object("chat.completion", choices);
    body["usage"] = usage(text);
    let headers = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    Ok((headers, body.to_string()).into_response())
}
