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

/// Returns the conversation with a question about an image, up to the answer.
pub(crate) fn question(prompt: &str) -> String {
    format!("<|im_start|>User:<image>{prompt}<end_of_utterance>\nAssistant:")
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
