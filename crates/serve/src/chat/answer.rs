//! What whole answers and events have in common.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::failure::{Failure, Kind};
use crate::protocol::generation::unique;
use crate::scheduler::Reply;
use hipvit_generate::Generated;

/// What all parts of an answer repeat.
#[derive(Clone, Debug)]
pub(super) struct Head {
    id: String,
    created: u64,
    model: String,
}

impl Head {
    pub(super) fn new(model: &str) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            id: format!("chatcmpl-{:016x}", unique()),
            created: now.unwrap_or_default().as_secs(),
            model: model.to_owned(),
        }
    }

    pub(super) fn object(&self, kind: &str, choices: Value) -> Value {
        json!({ "id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices })
    }
}

/// Returns the numbers of tokens. An image has some only in the sequence of a decoder that reads it there.
pub(super) fn usage(text: &Generated) -> Value {
    let (prompt, tokens) = (text.prompt_tokens, text.tokens.len());
    json!({ "prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens })
}

/// Returns the text of a reply.
pub(super) fn generated(reply: &Reply) -> Result<&Generated, Failure> {
    let results = reply.as_ref().map_err(Clone::clone)?;
    let text = results.first().and_then(|result| result.generated());
    text.ok_or_else(|| Failure::new(Kind::Internal, "the image has no text"))
}
