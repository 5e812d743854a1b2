//! The text of tokens as they come.

use std::sync::Arc;

use hipvit::error::Result;
use hipvit::model::Detokenizer;

/// Converts the tokens of a text to its parts. The parts together are the text of all tokens.
#[derive(Clone, Debug)]
pub struct TextStream {
    detokenizer: Arc<Detokenizer>,
    tokens: Vec<u32>,
    returned: String,
}

impl TextStream {
    /// Creates a stream without tokens.
    pub fn new(detokenizer: Arc<Detokenizer>) -> Self {
        Self {
            detokenizer,
            tokens: Vec::new(),
            returned: String::new(),
        }
    }

    /// Adds a token, and returns the text that it completes. It is empty if the next token may change it: a character of several
    /// bytes may have several tokens, and blanks at the end of a text are removed.
    ///
    /// # Errors
    ///
    /// [`Error::Config`](hipvit::Error::Config) if the tokenizer's decoder fails.
    pub fn push(&mut self, token: u32) -> Result<String> {
        self.tokens.push(token);
        let text = self.detokenizer.text(&self.tokens)?;
        // Incomplete characters are replacement characters at the end.
        Ok(self.part(text.trim_end_matches(char::REPLACEMENT_CHARACTER)))
    }

    /// Returns the rest of the text after the last token.
    ///
    /// # Errors
    ///
    /// [`Error::Config`](hipvit::Error::Config) if the tokenizer's decoder fails.
    pub fn finish(&mut self) -> Result<String> {
        let text = self.detokenizer.text(&self.tokens)?;
        Ok(self.part(&text))
    }

    fn part(&mut self, text: &str) -> String {
        match text.strip_prefix(self.returned.as_str()) {
            Some(part) => {
                let part = part.to_owned();
                self.returned.push_str(&part);
                part
            }
            None => String::new(),
        }
    }
}
