//! The chat template of SmolVLM, which writes a conversation around a prompt.

use std::path::Path;

use hipvit::error::{Error, Result};
use serde_json::Value;
use sha2::{Digest, Sha256};

const MAX_BYTES: u64 = 16 << 20;

/// Files that may have a template: its own one, then those with the key `chat_template`, in the order of transformers.
const OWN_FILE: &str = "chat_template.jinja";
const FILES: [&str; 3] = [
    "chat_template.json",
    "processor_config.json",
    "tokenizer_config.json",
];

/// SHA-256 of the template of the first release, and of the one that transformers has for those since videos. For one question about an image, both write
/// the same.
const TEMPLATES: [&str; 2] = [
    "830005085ddd94cec605b6e21b885b28ffad6e3f82ee6a212c523533e8f04f01",
    "f6db8ceb8995c47d3aabada6314e3173a75ecf8273453a2e2004bb2ba3ab598d",
];

/// Returns true if the files in `directory` have a template of SmolVLM.
///
/// # Errors
///
/// [`Error::Io`] or [`Error::Config`] for a file that cannot be read.
pub(crate) fn is_of_smolvlm(directory: &Path) -> Result<bool> {
    let Some(template) = read(directory)? else {
        return Ok(false);
    };
    let digest = Sha256::digest(template.trim());
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(TEMPLATES.contains(&digest.as_str()))
}

fn read(directory: &Path) -> Result<Option<String>> {
    let bytes = |name: &str| {
        let path = directory.join(name);
        match hipvit_files::regular_file::read_within(&path, MAX_BYTES) {
            Ok(bytes) => Ok(Some((path, bytes))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io(&path, error)),
        }
    };
    if let Some((path, bytes)) = bytes(OWN_FILE)? {
        let text = String::from_utf8(bytes);
        return text.map(Some).map_err(|_| Error::config(&path, "is not UTF-8"));
    }
    for name in FILES {
        if let Some((path, bytes)) = bytes(name)? {
            let value = hipvit_files::json::parse(&bytes).map_err(|error| Error::config(&path, error))?;
            if let Some(Value::String(template)) = value.get("chat_template") {
                return Ok(Some(template.clone()));
            }
        }
    }
    Ok(None)
}

/// Name of an image in a conversation.
pub(crate) const IMAGE: &str = "<image>";

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who says it, such as `user`, `assistant` or `system`.
    pub role: String,
    /// What is said, in this order.
    pub parts: Vec<MessagePart>,
}

/// A part of a [`Message`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessagePart {
    /// The image that the text is made of.
    Image,
    /// A text.
    Text(String),
}

/// Returns the conversation up to the answer.
pub(crate) fn conversation(messages: &[Message]) -> String {
    let mut text = "<|im_start|>".to_owned();
    for Message { role, parts } in messages {
        let mut letters = role.chars();
        // As Jinja's `capitalize` does.
        text.extend(letters.next().into_iter().flat_map(char::to_uppercase));
        text.extend(letters.flat_map(char::to_lowercase));
        text.push(':');
        if parts.first() != Some(&MessagePart::Image) {
            text.push(' ');
        }
        for part in parts {
            text.push_str(match part {
                MessagePart::Image => IMAGE,
                MessagePart::Text(part) => part,
            });
        }
        text.push_str("<end_of_utterance>\n");
    }
    text + "Assistant:"
}

/// Returns the conversation with a question about an image, up to the answer.
pub(crate) fn question(prompt: &str) -> String {
    let parts = vec![MessagePart::Image, MessagePart::Text(prompt.to_owned())];
    let role = "user".to_owned();
    conversation(&[Message { role, parts }])
}

/// Returns the text that stands for an image of `rows` by `columns` tiles, each of `tokens` tokens. An image that is not divided has 0 rows.
pub(crate) fn image(rows: usize, columns: usize, tokens: usize) -> String {
    const AROUND: &str = "<fake_token_around_image>";
    let tile = "<image>".repeat(tokens);
    let mut text = String::new();
    for row in 1..=rows {
        for column in 1..=columns {
            text.push_str(&format!("{AROUND}<row_{row}_col_{column}>{tile}"));
        }
        text.push('\n');
    }
    if rows > 0 {
        text.push('\n');
    }
    text + &format!("{AROUND}<global-img>{tile}{AROUND}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected text is that of `apply_chat_template` of transformers 5.24 with either template.
    #[test]
    fn conversations_are_those_of_the_template() {
        let message = |role: &str, parts: &[MessagePart]| Message {
            role: role.to_owned(),
            parts: parts.to_vec(),
        };
        let text = |text: &str| MessagePart::Text(text.to_owned());
        let messages = [
            message("system", &[text("Be brief.")]),
            message("user", &[text("What is the thing?"), MessagePart::Image]),
            message("assistant", &[text("a cat")]),
            message("user", &[text("Read it, please")]),
        ];
        assert_eq!(
            conversation(&messages),
            "<|im_start|>System: Be brief.<end_of_utterance>\nUser: What is the thing?<image><end_of_utterance>\nAssistant: a cat<end_of_utterance>\nUser: Read it, please<end_of_utterance>\nAssistant:"
        );
        assert_eq!(
            question("Why?"),
            "<|im_start|>User:<image>Why?<end_of_utterance>\nAssistant:"
        );
    }
}
