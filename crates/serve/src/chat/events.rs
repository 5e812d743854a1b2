//! The answer to a chat as server-sent events: the role, the text as it comes, the reason why it ended, and `[DONE]`.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::Frame;
use serde_json::{Value, json};

use super::answer::{Head, generated, usage};
use crate::failure::{Failure, Kind};
use crate::openai;
use crate::protocol::generation::finish_reason;
use crate::scheduler::Reply;
use crate::service::Chat;

/// Body with the events of a text. Dropping it cancels the text.
pub(super) struct Events {
    chat: Chat,
    /// Result of the text after its end.
    reply: Option<Reply>,
    head: Head,
    include_usage: bool,
    /// Events that the connection has not taken.
    waiting: VecDeque<Bytes>,
    is_done: bool,
}

impl Events {
    pub(super) fn new(chat: Chat, head: Head, include_usage: bool) -> Self {
        Self {
            chat,
            reply: None,
            head,
            include_usage,
            waiting: VecDeque::new(),
            is_done: false,
        }
    }

    /// Waits for the first token.
    ///
    /// # Errors
    ///
    /// The failure of a text that ended before it.
    pub(super) async fn begin(&mut self) -> Result<(), Failure> {
        let first = poll_fn(|context| self.poll_token(context)).await;
        if let Some(Err(failure)) = &self.reply
            && first.is_none()
        {
            self.chat.record.end(Some(failure));
            return Err(failure.clone());
        }
        self.part(json!({ "role": "assistant", "content": "" }), None);
        match first {
            Some(token) => self.add(token),
            None => self.finish(),
        }
        Ok(())
    }

    /// Returns the next token. At the end of the text it returns `None`, and `reply` is set.
    fn poll_token(&mut self, context: &mut Context<'_>) -> Poll<Option<u32>> {
        if self.reply.is_none()
            && let Poll::Ready(reply) = self.chat.reply.as_mut().poll(context)
        {
            self.reply = Some(reply);
        }
        if self.reply.is_some() {
            // All tokens came before the reply. Polling may return none of them, to let other tasks run.
            return Poll::Ready(self.chat.tokens.try_recv().ok());
        }
        match self.chat.tokens.poll_recv(context) {
            Poll::Ready(Some(token)) => Poll::Ready(Some(token)),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    /// Adds an event with a part of the answer.
    fn part(&mut self, delta: Value, finish: Option<&str>) {
        let choices = json!([{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish }]);
        let mut chunk = self.head.object("chat.completion.chunk", choices);
        if self.include_usage {
            chunk["usage"] = Value::Null;
        }
        self.event(&chunk);
    }

    fn event(&mut self, data: &Value) {
        self.waiting.push_back(format!("data: {data}\n\n").into());
    }

    fn text(&mut self, text: hipvit::Result<String>) {
        match text {
            Ok(text) if text.is_empty() => {}
            Ok(text) => self.part(json!({ "content": text }), None),
            Err(error) => self.end(Err(Failure::of_model(&error))),
        }
    }

    fn add(&mut self, token: u32) {
        let text = self.chat.stream.push(token);
        self.text(text);
    }

    /// Adds the last events.
    fn finish(&mut self) {
        let lost = Err(Failure::new(Kind::Internal, "the server lost the text"));
        let reply = self.reply.take().unwrap_or(lost);
        let text = match generated(&reply) {
            Ok(text) => text,
            Err(failure) => return self.end(Err(failure)),
        };
        let rest = self.chat.stream.finish();
        self.text(rest);
        if self.is_done {
            return;
        }
        self.part(json!({}), Some(finish_reason(text)));
        if self.include_usage {
            let mut chunk = self.head.object("chat.completion.chunk", json!([]));
            chunk["usage"] = usage(text);
            self.event(&chunk);
        }
        if let Some(result) = reply.iter().flatten().next() {
            self.chat.record.parts = result.parts;
        }
        self.end(Ok(()));
    }

    fn end(&mut self, result: Result<(), Failure>) {
        self.is_done = true;
        self.chat.record.end(result.as_ref().err());
        if let Err(failure) = result {
            self.event(&openai::error_body(&failure, None));
        }
        self.waiting.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
    }
}

impl hyper::body::Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(event))));
            }
            if self.is_done {
                return Poll::Ready(None);
            }
            match ready!(self.poll_token(context)) {
                Some(token) => self.add(token),
                None => self.finish(),
            }
        }
    }
}
