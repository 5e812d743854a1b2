//! What training needs of a decoder: its graph of whole texts, and their tokens.

use std::path::{Path, PathBuf};

use hipvit::error::{Error, Result};
use hipvit::graph::Graph;
use hipvit::model::{Checkpoint, Detokenizer};
use serde_json::Value;

use crate::graph::{append_sequence, sequence_inputs};
use crate::spec::{DecoderSpec, Positions};

/// Label of a token that the loss leaves out.
pub const LEFT_OUT: i32 = -100;

/// Value of `model_type` of models whose loss is that of transformers' `VisionEncoderDecoderModel`.
const TRAINED_TYPE: &str = "vision-encoder-decoder";

/// Names of the inputs of [`TextDecoder::append`] beside the images, each i32 `[images, tokens]`.
pub mod text_inputs {
    /// Ids of the tokens that the decoder reads.
    pub const TOKENS: &str = super::sequence_inputs::TOKENS;
    /// Rows of the decoder's table of positions.
    pub const POSITIONS: &str = super::sequence_inputs::POSITIONS;
}

/// The decoder of a model that makes texts, for training.
#[derive(Debug)]
pub struct TextDecoder {
    spec: DecoderSpec,
    file: PathBuf,
}

/// A text as inputs and labels of a decoder, of equal lengths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextRow {
    /// The first token, and the tokens of the text without the last one.
    pub tokens: Vec<i32>,
    /// Rows of the table of positions.
    pub positions: Vec<i32>,
    /// The tokens of the text, then [`LEFT_OUT`].
    pub labels: Vec<i32>,
}

impl TextDecoder {
    /// Reads the decoder's configuration, which is that of the model in `directory`.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a model whose decoder cannot be trained.
    pub fn open(directory: &Path, config: &Value) -> Result<Self> {
        let file = directory.join("config.json");
        let kind = config["model_type"].as_str().unwrap_or_default();
        if kind != TRAINED_TYPE {
            let reason = format!(
                "`model_type` is \"{kind}\", and texts are trained for \"{TRAINED_TYPE}\" (TrOCR) only"
            );
            return Err(Error::config(file, reason));
        }
        let spec = DecoderSpec::read(directory, config)?;
        if spec.names.final_norm.is_some() {
            let reason =
                "`decoder.model_type` is \"mbart\" (Donut), which is not trained: its norms come first";
            return Err(Error::config(file, reason));
        }
        if spec.rules.ends.is_empty() {
            let reason = "`eos_token_id` is missing, so that no text would end. Add it";
            return Err(Error::config(file, reason));
        }
        Ok(Self { spec, file })
    }

    /// Returns the maximum number of tokens of a text, with those that the tokenizer puts around it.
    pub fn context(&self) -> usize {
        self.spec.context
    }

    /// Returns the maximum number of new tokens of a text that the model's files allow to be generated.
    pub fn generated(&self) -> usize {
        self.spec
            .rules
            .max_length
            .with_prompt(1)
            .min(self.spec.context)
            .max(2)
            - 1
    }

    /// Converts a text to the tokens that the decoder should make: those of the tokenizer, with the end.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for a text that is longer than the context. [`Error::Config`] if the tokenizer does not end texts, or has tokens that
    /// the decoder does not know.
    pub fn tokens(&self, tokenizer: &Detokenizer, text: &str) -> Result<Vec<u32>> {
        let tokens = tokenizer.target_tokens(text)?;
        let DecoderSpec {
            context,
            vocabulary,
            rules,
            ..
        } = &self.spec;
        if !tokens.iter().any(|token| rules.ends.contains(token)) {
            let reason = format!(
                "does not end \"{text}\" with a token {:?} of `eos_token_id`. Give it a post-processor that does",
                rules.ends
            );
            return Err(Error::config(tokenizer.file(), reason));
        }
        if let Some(token) = tokens.iter().find(|&&token| token as usize >= *vocabulary) {
            let reason = format!(
                "makes token {token} of \"{text}\", but the vocabulary of {} has {vocabulary}",
                self.file.display()
            );
            return Err(Error::config(tokenizer.file(), reason));
        }
        if tokens.len() > *context {
            let reason = format!(
                "has {} tokens, more than the {context} of `max_position_embeddings`: \"{text}\"",
                tokens.len()
            );
            return Err(Error::argument("text", reason));
        }
        Ok(tokens)
    }

    /// Returns a text as a row of `width` tokens, shifted as by transformers' `shift_tokens_right`. What the loss leaves out follows the text, so
    /// that the tokens there affect nothing.
    pub fn row(&self, text: &[u32], width: usize) -> TextRow {
        let start = self.spec.rules.start;
        let read = std::iter::once(start).chain(text.iter().copied());
        let mut row = TextRow::default();
        let mut place = 0;
        for token in read.chain(std::iter::repeat(start)).take(width) {
            row.positions.push(self.spec.position(token, place) as i32);
            row.tokens.push(token as i32);
            // Sines count the tokens that are no padding.
            let is_padding =
                matches!(self.spec.positions, Positions::Sines { padding } if padding == token as usize);
            place += usize::from(!is_padding);
        }
        row.labels = text.iter().take(width).map(|&token| token as i32).collect();
        row.labels.resize(width, LEFT_OUT);
        row
    }

    /// Appends the decoder to the graph of its encoder, for texts of `tokens` tokens. `graph` has the encoder's tokens as an output, and
    /// `weights` are those of the whole model. The only output is [`Logits`](hipvit::graph::OutputKind::Logits), `[images, tokens, vocabulary]`.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the decoder does not have as many positions. [`Error::Tensor`] for a tensor that is missing or has another shape.
    pub fn append(&self, graph: Graph, weights: &Checkpoint, tokens: usize) -> Result<Graph> {
        let context = self.spec.context;
        if tokens == 0 || tokens > context {
            let reason = format!("of {tokens} tokens do not fit the decoder's {context} positions");
            return Err(Error::argument("texts", reason));
        }
        append_sequence(graph, &self.spec, weights, tokens)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config() -> Value {
        json!({
            "model_type": "vision-encoder-decoder",
            "encoder": {"model_type": "vit", "hidden_size": 32},
            "decoder": {
                "model_type": "trocr", "d_model": 24, "decoder_attention_heads": 2, "cross_attention_hidden_size": 32, "vocab_size": 40,
                "max_position_embeddings": 8, "decoder_start_token_id": 2, "eos_token_id": 2, "pad_token_id": 1,
            },
        })
    }

    fn decoder(config: &Value) -> Result<TextDecoder> {
        TextDecoder::open(&std::env::temp_dir(), config)
    }

    #[test]
    fn texts_are_shifted_and_what_follows_them_is_left_out() {
        let row = decoder(&config()).unwrap().row(&[7, 8, 2], 5);
        assert_eq!(row.tokens, [2, 7, 8, 2, 2]);
        assert_eq!(row.positions, [2, 3, 4, 5, 6]);
        assert_eq!(row.labels, [7, 8, 2, LEFT_OUT, LEFT_OUT]);
        let mut sines = config();
        sines["decoder"]["use_learned_position_embeddings"] = json!(false);
        let row = decoder(&sines).unwrap().row(&[7, 2], 3);
        assert_eq!(row.positions, [2, 3, 4]);
        // As `create_position_ids_from_input_ids`, for texts that padding begins.
        sines["decoder"]["decoder_start_token_id"] = json!(1);
        let row = decoder(&sines).unwrap().row(&[7, 8, 2], 3);
        assert_eq!(row.positions, [1, 2, 3]);
    }

    #[test]
    fn decoders_that_are_not_trained_are_refused_by_key() {
        let mut blip = config();
        blip["model_type"] = json!("blip");
        assert!(
            decoder(&blip)
                .unwrap_err()
                .to_string()
                .contains("`model_type` is \"blip\"")
        );
        let mut endless = config();
        endless["decoder"]["eos_token_id"] = Value::Null;
        assert!(
            decoder(&endless)
                .unwrap_err()
                .to_string()
                .contains("`eos_token_id`")
        );
    }
}
