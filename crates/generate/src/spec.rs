//! Sizes of a decoder and the rules of generation, from a directory of transformers.

use std::path::Path;

use hipvit::error::{Error, Result};
use hipvit::ops::Activation;
use serde_json::{Map, Value};

use crate::names::{self, Names};
use crate::sampling::Repetition;

/// File with the rules of generation.
const GENERATION_CONFIG: &str = "generation_config.json";
/// Maximum size of that file in bytes.
const LONGEST_FILE: u64 = 1 << 20;
/// Maximum length of texts with the first token, if no file says it: the default of transformers.
const DEFAULT_LENGTH: usize = 20;

/// A decoder of post-norm blocks: self-attention, cross-attention and a feed-forward network.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DecoderSpec {
    pub(crate) names: &'static Names,
    pub(crate) vocabulary: usize,
    /// Number of channels.
    pub(crate) width: usize,
    pub(crate) layers: usize,
    pub(crate) heads: usize,
    /// Channels of the feed-forward network.
    pub(crate) hidden: usize,
    pub(crate) activation: Activation,
    /// Added to the variance in norms.
    pub(crate) epsilon: f32,
    /// True if embeddings of tokens are multiplied by the square root of the width.
    pub(crate) scales_embedding: bool,
    pub(crate) has_embedding_norm: bool,
    pub(crate) positions: Positions,
    /// Maximum number of tokens of a text.
    pub(crate) context: usize,
    /// True if the projection to logits is the embedding of tokens.
    pub(crate) ties_embedding: bool,
    /// Channels of the encoder's tokens, and true if they are projected to the decoder's width first.
    pub(crate) encoder: (usize, bool),
    pub(crate) rules: Rules,
}

/// Positions of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Positions {
    /// A learned table, whose first rows no token has.
    Learned {
        /// Number of these rows.
        unused: usize,
    },
    /// Sines and cosines of fairseq, which count from the token of padding.
    Sines,
}

/// Rules of generation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rules {
    /// The first token.
    pub(crate) start: u32,
    /// Tokens that end a text.
    pub(crate) ends: Vec<u32>,
    pub(crate) padding: u32,
    /// Maximum number of tokens, with the first one.
    pub(crate) length: usize,
    /// Beams of the model's own settings. 1 for greedy decoding.
    pub(crate) beams: usize,
    pub(crate) repetition: Repetition,
}

impl DecoderSpec {
    /// Reads the configuration of the model in `directory`, whose content is `config`.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a model without a decoder, or one that is not supported.
    pub(crate) fn read(directory: &Path, config: &Value) -> Result<Self> {
        let file = directory.join("config.json");
        let whole = Section::new(&file, config)?;
        let spec = match whole.text("model_type")?.unwrap_or_default() {
            "vision-encoder-decoder" => Self::trocr(directory, &whole)?,
            "blip" => Self::blip(&whole)?,
            other => {
                let reason = format!(
                    "`model_type` is \"{other}\", which makes no text, or is not supported; supported are \"vision-encoder-decoder\" and \"blip\""
                );
                return Err(Error::config(&file, reason));
            }
        };
        if !spec.width.is_multiple_of(spec.heads) {
            let reason = format!(
                "{} channels cannot be divided among {} heads",
                spec.width, spec.heads
            );
            return Err(Error::config(&file, reason));
        }
        Ok(spec)
    }

    /// TrOCR: a `VisionEncoderDecoderModel` with a decoder of type `trocr`.
    fn trocr(directory: &Path, whole: &Section<'_>) -> Result<Self> {
        let (encoder, decoder) = (whole.section("encoder")?, whole.section("decoder")?);
        let kind = decoder.text("model_type")?.unwrap_or_default();
        if kind != "trocr" {
            let reason =
                format!("`decoder.model_type` is \"{kind}\", which is not supported; supported is \"trocr\"");
            return Err(Error::config(whole.file, reason));
        }
        let width = decoder.size("d_model")?.unwrap_or(1024);
        let of_encoder = encoder.size("hidden_size")?.unwrap_or(768);
        // As VisionEncoderDecoderModel decides on `enc_to_dec_proj`.
        let cross = decoder.size("cross_attention_hidden_size")?;
        let is_projected = of_encoder != width && cross.is_none();
        if let Some(cross) = cross.filter(|&cross| cross != of_encoder) {
            let reason = format!(
                "`decoder.cross_attention_hidden_size` is {cross}, but the encoder has {of_encoder} channels"
            );
            return Err(Error::config(whole.file, reason));
        }
        Ok(Self {
            names: &names::TROCR,
            vocabulary: decoder.size("vocab_size")?.unwrap_or(50265),
            width,
            layers: decoder.size("decoder_layers")?.unwrap_or(12),
            heads: decoder.size("decoder_attention_heads")?.unwrap_or(16),
            hidden: decoder.size("decoder_ffn_dim")?.unwrap_or(4096),
            activation: decoder.activation("activation_function")?,
            // PyTorch's default, which TrOCR does not change.
            epsilon: 1e-5,
            scales_embedding: decoder.flag("scale_embedding")?.unwrap_or(false),
            has_embedding_norm: decoder.flag("layernorm_embedding")?.unwrap_or(true),
            positions: match decoder.flag("use_learned_position_embeddings")? {
                Some(false) => Positions::Sines,
                _ => Positions::Learned { unused: 2 },
            },
            context: decoder.size("max_position_embeddings")?.unwrap_or(512),
            ties_embedding: decoder.flag("tie_word_embeddings")?.unwrap_or(true),
            encoder: (of_encoder, is_projected),
            rules: rules(directory, whole, &decoder)?,
        })
    }

    /// BLIP for captions: a decoder like BERT.
    fn blip(whole: &Section<'_>) -> Result<Self> {
        let (vision, text) = (whole.section("vision_config")?, whole.section("text_config")?);
        let of_encoder = vision.size("hidden_size")?.unwrap_or(768);
        if let Some(read) = text
            .size("encoder_hidden_size")?
            .filter(|&read| read != of_encoder)
        {
            let reason = format!(
                "`text_config.encoder_hidden_size` is {read}, but the encoder has {of_encoder} channels"
            );
            return Err(Error::config(whole.file, reason));
        }
        let end = text.token("sep_token_id")?.unwrap_or(102);
        Ok(Self {
            names: &names::BLIP,
            vocabulary: text.size("vocab_size")?.unwrap_or(30524),
            width: text.size("hidden_size")?.unwrap_or(768),
            layers: text.size("num_hidden_layers")?.unwrap_or(12),
            heads: text.size("num_attention_heads")?.unwrap_or(8),
            hidden: text.size("intermediate_size")?.unwrap_or(3072),
            activation: text.activation("hidden_act")?,
            epsilon: text.number("layer_norm_eps")?.unwrap_or(1e-12) as f32,
            scales_embedding: false,
            has_embedding_norm: true,
            positions: Positions::Learned { unused: 0 },
            context: text.size("max_position_embeddings")?.unwrap_or(512),
            ties_embedding: true,
            encoder: (of_encoder, false),
            // `BlipForConditionalGeneration.generate` ignores generation_config.json.
            rules: Rules {
                start: text.token("bos_token_id")?.unwrap_or(30522),
                ends: vec![end],
                padding: text.token("pad_token_id")?.unwrap_or(0),
                length: text.size("max_length")?.unwrap_or(DEFAULT_LENGTH),
                beams: text.size("num_beams")?.unwrap_or(1),
                repetition: repetition(&[&text])?,
            },
        })
    }

    /// Returns the channels of a head.
    pub(crate) fn head_dim(&self) -> usize {
        self.width / self.heads
    }

    /// Returns the row of the table of positions for token `position` of a text.
    pub(crate) fn position(&self, position: usize) -> usize {
        position
            + match self.positions {
                Positions::Learned { unused } => unused,
                Positions::Sines => 1 + self.rules.padding as usize,
            }
    }
}

/// Reads the rules of generation. A key of `generation_config.json` comes before the same key of the configuration, as in transformers.
fn rules(directory: &Path, whole: &Section<'_>, decoder: &Section<'_>) -> Result<Rules> {
    let path = directory.join(GENERATION_CONFIG);
    let own = match hipvit_files::regular_file::read_within(&path, LONGEST_FILE) {
        Ok(bytes) => {
            let value = hipvit_files::json::parse(&bytes);
            value.map_err(|error| Error::config(&path, error))?
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Value::Object(Map::new()),
        Err(error) => return Err(Error::io(&path, error)),
    };
    let own = Section::new(&path, &own)?;
    let sections = [&own, whole, decoder];
    let find = |key: &str| sections.into_iter().find(|section| section.has(key));
    let token = |key: &str| match find(key) {
        Some(section) => section.token(key),
        None => Ok(None),
    };
    let missing = |key: &str| {
        Error::config(
            whole.file,
            format!("`{key}` is missing, and {GENERATION_CONFIG} has none"),
        )
    };
    let start = match token("decoder_start_token_id")? {
        Some(start) => start,
        None => token("bos_token_id")?.ok_or_else(|| missing("decoder_start_token_id"))?,
    };
    let ends = match find("eos_token_id") {
        Some(section) => section.tokens("eos_token_id")?,
        None => Vec::new(),
    };
    let count = |key: &str| match find(key) {
        Some(section) => section.size(key),
        None => Ok(None),
    };
    let length = match own.size("max_new_tokens")? {
        Some(new) => new + 1,
        None => count("max_length")?.unwrap_or(DEFAULT_LENGTH),
    };
    Ok(Rules {
        start,
        padding: token("pad_token_id")?
            .or_else(|| ends.first().copied())
            .unwrap_or(start),
        ends,
        length,
        beams: count("num_beams")?.unwrap_or(1),
        repetition: repetition(&sections)?,
    })
}

/// Reads the rules against repetitions. A key of an earlier section comes first.
fn repetition(sections: &[&Section<'_>]) -> Result<Repetition> {
    let find = |key: &str| sections.iter().find(|section| section.has(key));
    let penalty = match find("repetition_penalty") {
        Some(section) => section.number("repetition_penalty")?,
        None => None,
    };
    let sequence = match find("no_repeat_ngram_size") {
        Some(section) => section.count("no_repeat_ngram_size")?,
        None => None,
    };
    let penalty = penalty.unwrap_or(1.0);
    if penalty <= 0.0 {
        let file = sections.first().map_or(Path::new(""), |section| section.file);
        return Err(Error::config(
            file,
            format!("`repetition_penalty` is {penalty}, and must be above 0"),
        ));
    }
    Ok(Repetition {
        penalty,
        sequence: sequence.unwrap_or(0),
    })
}

/// An object of a configuration.
struct Section<'a> {
    file: &'a Path,
    fields: &'a Map<String, Value>,
}

impl<'a> Section<'a> {
    fn new(file: &'a Path, value: &'a Value) -> Result<Self> {
        match value {
            Value::Object(fields) => Ok(Self { file, fields }),
            _ => Err(Error::config(file, "is no JSON object")),
        }
    }

    fn section(&self, key: &str) -> Result<Section<'a>> {
        let fields = self.fields.get(key).and_then(Value::as_object);
        let fields = fields.ok_or_else(|| self.error(key, "is missing"))?;
        Ok(Section { fields, ..*self })
    }

    fn error(&self, key: &str, reason: &str) -> Error {
        Error::config(self.file, format!("`{key}` {reason}"))
    }

    /// A value. `None` for null and for a missing key.
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.fields.get(key).filter(|value| !value.is_null())
    }

    fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    fn text(&self, key: &str) -> Result<Option<&'a str>> {
        let text = |value: &'a Value| value.as_str().ok_or_else(|| self.error(key, "is no text"));
        self.get(key).map(text).transpose()
    }

    fn flag(&self, key: &str) -> Result<Option<bool>> {
        let flag = |value: &Value| {
            value
                .as_bool()
                .ok_or_else(|| self.error(key, "is neither true nor false"))
        };
        self.get(key).map(flag).transpose()
    }

    fn size(&self, key: &str) -> Result<Option<usize>> {
        // Larger sizes are mistakes, and would overflow.
        let size = |value: &Value| value.as_u64().filter(|size| (1..=1 << 24).contains(size));
        let size = |value: &Value| size(value).ok_or_else(|| self.error(key, "is no size"));
        Ok(self.get(key).map(size).transpose()?.map(|size| size as usize))
    }

    /// A size or 0.
    fn count(&self, key: &str) -> Result<Option<usize>> {
        match self.get(key) {
            Some(value) if value.as_u64() == Some(0) => Ok(Some(0)),
            _ => self.size(key),
        }
    }

    fn number(&self, key: &str) -> Result<Option<f64>> {
        let number = |value: &Value| value.as_f64().ok_or_else(|| self.error(key, "is no number"));
        self.get(key).map(number).transpose()
    }

    fn activation(&self, key: &str) -> Result<Activation> {
        match self.text(key)? {
            None | Some("gelu") => Ok(Activation::GeluErf),
            Some("gelu_new" | "gelu_pytorch_tanh") => Ok(Activation::GeluTanh),
            Some("relu") => Ok(Activation::Relu),
            Some("silu" | "swish") => Ok(Activation::Silu),
            Some(other) => Err(self.error(key, &format!("is \"{other}\", which is not supported"))),
        }
    }

    fn token(&self, key: &str) -> Result<Option<u32>> {
        Ok(self.tokens(key)?.first().copied())
    }

    /// A token or a list of tokens.
    fn tokens(&self, key: &str) -> Result<Vec<u32>> {
        let one = |value: &Value| {
            let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
            id.ok_or_else(|| self.error(key, "is no id of a token"))
        };
        match self.get(key) {
            None => Ok(Vec::new()),
            Some(Value::Array(list)) => list.iter().map(one).collect(),
            Some(value) => Ok(vec![one(value)?]),
        }
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
                "model_type": "trocr", "d_model": 24, "decoder_attention_heads": 2, "cross_attention_hidden_size": 32,
                "decoder_start_token_id": 2, "eos_token_id": 2, "pad_token_id": 1,
            },
            "num_beams": 4, "no_repeat_ngram_size": 3,
        })
    }

    #[test]
    fn keys_come_from_the_files_in_the_order_of_transformers() {
        let directory = std::env::temp_dir();
        let spec = DecoderSpec::read(&directory, &config()).unwrap();
        assert_eq!(spec.encoder, (32, false));
        let Rules {
            start,
            ends,
            padding,
            length,
            beams,
            repetition,
        } = spec.rules.clone();
        assert_eq!((repetition.penalty, repetition.sequence), (1.0, 3));
        assert_eq!(
            (start, &ends[..], padding, length, beams),
            (2, &[2][..], 1, 20, 4)
        );
        assert_eq!(spec.position(0), 2);
        let mut other = config();
        other["decoder"]["cross_attention_hidden_size"] = Value::Null;
        other["eos_token_id"] = json!([5, 6]);
        other["max_length"] = json!(64);
        let spec = DecoderSpec::read(&directory, &other).unwrap();
        assert_eq!(spec.encoder, (32, true));
        assert_eq!((&spec.rules.ends[..], spec.rules.length), (&[5, 6][..], 64));
    }

    #[test]
    fn what_is_not_supported_is_named() {
        let directory = std::env::temp_dir();
        let message = |config: &Value| DecoderSpec::read(&directory, config).unwrap_err().to_string();
        let mut vit = config();
        vit["model_type"] = json!("vit");
        assert!(message(&vit).contains("`model_type` is \"vit\""));
        let mut bart = config();
        bart["decoder"]["model_type"] = json!("mbart");
        assert!(message(&bart).contains("`decoder.model_type` is \"mbart\""));
        let mut heads = config();
        heads["decoder"]["decoder_attention_heads"] = json!(7);
        assert!(message(&heads).contains("24 channels cannot be divided among 7 heads"));
        let mut start = config();
        start["decoder"]["decoder_start_token_id"] = Value::Null;
        assert!(message(&start).contains("`decoder_start_token_id` is missing"));
    }
}
