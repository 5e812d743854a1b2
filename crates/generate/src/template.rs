//! The chat template of SmolVLM, which writes a conversation around a prompt.

use std::path::Path;

use hipvit::error::{Error, Result};
use serde_json::Value;

const MAX_BYTES: u64 = 16 << 20;

/// Files that may have a template: its own one, then those with the key `chat_template`, in the order of transformers.
const OWN_FILE: &str = "chat_template.jinja";
const FILES: [&str; 3] = [
    "chat_template.json",
    "processor_config.json",
    "tokenizer_config.json",
];

/// The template of the first release, and the one that transformers has for those since videos. For one question about an image, both write the same.
const TEMPLATES: [&str; 2] = [
    "<|im_start|>{% for message in messages %}{{message['role'] | capitalize}}{% if message['content'][0]['type'] == 'image' %}{{':'}}{% else %}{{': '}}{% endif %}{% for line in message['content'] %}{% if line['type'] == 'text' %}{{line['text']}}{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}",
    "<|im_start|>{% for message in messages %}{{message['role'] | capitalize}}{% if message['content'] is string %}{{': ' + message['content']}}{% else %}{% if message['content'][0]['type'] == 'image' %}{{':'}}{% else %}{{': '}}{% endif %}{% for line in message['content'] %}{% if line['type'] == 'text' %}{{line['text']}}{% elif line['type'] == 'image' %}{{ '<image>' }}{% elif line['type'] == 'video' %}{{ '<video>' }}{% endif %}{% endfor %}{% endif %}<end_of_utterance>\n{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}",
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
    Ok(TEMPLATES.iter().any(|known| known.trim() == template.trim()))
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
