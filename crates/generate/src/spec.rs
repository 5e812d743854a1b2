//! Sizes of a decoder and the rules of generation, from a directory of transformers.

use std::path::Path;

use hipvit::error::{Error, Result};
use hipvit::model::Fields;
use hipvit::ops::Activation;
use serde_json::Value;

use crate::beam::{BeamRules, EarlyStopping};
use crate::names::{self, Names};
use crate::sampling::Repetition;
use crate::template;

/// File with the rules of generation.
const GENERATION_CONFIG: &str = "generation_config.json";
const MAX_CONFIG_BYTES: u64 = 1 << 20;
/// Maximum number of new tokens if no file sets one: the default of transformers.
const DEFAULT_NEW_TOKENS: usize = 20;
/// Maximum number of positions. The largest published decoders have some thousands.
const MAX_CONTEXT: usize = 1 << 16;

/// Value of `model_type` of Donut's encoder.
const DONUT_ENCODER: &str = "donut-swin";
/// Default of `eos_token_id` and `forced_eos_token_id` of MBart.
const MBART_END: u32 = 2;

/// Values of `model_type` of models with a decoder of texts.
pub(crate) const MODEL_TYPES: [&str; 4] = ["vision-encoder-decoder", "blip", "smolvlm", "idefics3"];

/// A decoder whose blocks have self-attention, cross-attention and a feed-forward network.
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
    /// True if norms come before the parts of a block, false if they come after them.
    pub(crate) is_pre_norm: bool,
    /// True if embeddings of tokens are multiplied by the square root of the width.
    pub(crate) scales_embedding: bool,
    pub(crate) has_embedding_norm: bool,
    pub(crate) positions: Positions,
    /// Parts of a decoder of type Llama, which reads images in its own sequence. `None` if it reads them by cross-attention.
    pub(crate) llama: Option<Llama>,
    /// Maximum number of tokens of a text.
    pub(crate) context: usize,
    /// True if the projection to logits is the embedding of tokens.
    pub(crate) ties_embedding: bool,
    /// Channels of the encoder's tokens.
    pub(crate) encoder_width: usize,
    /// True if they are projected to the decoder's width first.
    pub(crate) projects_encoder: bool,
    pub(crate) rules: Rules,
}

/// Parts of a decoder of type Llama.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Llama {
    pub(crate) head_dim: usize,
    /// Number of heads of keys and values.
    pub(crate) kv_heads: usize,
    /// Base of the frequencies of positions.
    pub(crate) theta: f32,
    /// The token whose place an image's token takes.
    pub(crate) image_token: u32,
    /// Rows and columns of the encoder's tokens of a tile.
    pub(crate) grid: [usize; 2],
    /// Rows and columns of the encoder's tokens that are one token of the decoder.
    pub(crate) scale: usize,
    /// True if the files have the chat template of SmolVLM.
    pub(crate) has_template: bool,
}

impl Llama {
    /// Returns the number of tokens of a tile.
    pub(crate) fn tile_tokens(&self) -> usize {
        self.grid[0] * self.grid[1] / (self.scale * self.scale)
    }

    /// Returns the angle by which a position rotates a pair of channels.
    pub(crate) fn frequency(&self, pair: usize) -> f32 {
        1.0 / self.theta.powf((2 * pair) as f32 / self.head_dim as f32)
    }
}

/// Positions of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Positions {
    /// A learned table. Its first `unused` rows belong to no position.
    Learned {
        /// Number of unused rows.
        unused: usize,
    },
    /// Rotations of queries and keys.
    Rotary,
    /// Sines and cosines as in fairseq. The first position is row `padding + 1`, and tokens of padding have row `padding`.
    Sines {
        /// The token of padding.
        padding: usize,
    },
}

/// Rules of generation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rules {
    /// The first token.
    pub(crate) start: u32,
    /// True if a prompt comes in place of the first token, false if it follows it.
    pub(crate) prompt_is_start: bool,
    /// Tokens that end a text.
    pub(crate) ends: Vec<u32>,
    /// The token of a text that has reached the maximum length, whatever the logits are.
    pub(crate) forced_end: Option<u32>,
    /// Tokens that a text does not show, if it shows other special tokens.
    pub(crate) hidden: Option<Vec<u32>>,
    pub(crate) max_length: Length,
    pub(crate) beams: BeamRules,
    pub(crate) repetition: Repetition,
}

/// Maximum length of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// Number of tokens, with those of the prompt.
    All(usize),
    /// Number of tokens after the prompt.
    New(usize),
}

impl Length {
    /// Returns the number of all tokens of a text whose prompt has `prompt` tokens.
    pub(crate) fn with_prompt(self, prompt: usize) -> usize {
        match self {
            Self::All(tokens) => tokens,
            Self::New(tokens) => prompt.saturating_add(tokens),
        }
    }
}

impl DecoderSpec {
    /// Reads the configuration of the model in `directory`, whose content is `config`.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a model without a decoder, or one that is not supported.
    pub(crate) fn read(directory: &Path, config: &Value) -> Result<Self> {
        let file = directory.join("config.json");
        let whole = Fields::new(&file, config)?;
        let spec = match whole.text("model_type")?.unwrap_or_default() {
            "vision-encoder-decoder" => Self::encoder_decoder(directory, &whole)?,
            "blip" => Self::blip(&whole)?,
            "smolvlm" | "idefics3" => Self::smolvlm(directory, &whole)?,
            other => {
                let reason = format!(
                    "`model_type` is \"{other}\", which is not supported. Use a \"vision-encoder-decoder\", \"blip\", \"smolvlm\" or \"idefics3\" model"
                );
                return Err(Error::config(&file, reason));
            }
        };
        if let Some(reason) = spec.problem() {
            return Err(Error::config(&file, reason));
        }
        Ok(spec)
    }

    /// TrOCR and Donut: a `VisionEncoderDecoderModel` with a decoder of type `trocr` or `mbart`.
    fn encoder_decoder(directory: &Path, whole: &Fields<'_>) -> Result<Self> {
        let (encoder, decoder) = (object(whole, "encoder")?, object(whole, "decoder")?);
        let kind = decoder.text("model_type")?.unwrap_or_default();
        let is_mbart = match kind {
            "trocr" => false,
            "mbart" => true,
            _ => {
                let reason = format!(
                    "`decoder.model_type` is \"{kind}\", which is not supported; supported are \"trocr\" and \"mbart\""
                );
                return Err(Error::config(whole.file(), reason));
            }
        };
        let is_donut = encoder.text("model_type")? == Some(DONUT_ENCODER);
        let width = decoder.size("d_model")?.unwrap_or(1024);
        let of_encoder = if is_donut {
            let stages = encoder.sizes("depths")?.map_or(4, |depths| depths.len());
            let first = encoder.size("embed_dim")?.unwrap_or(96);
            // The channels double with each stage, of which the encoder accepts 16.
            first << (stages.clamp(1, 16) - 1)
        } else {
            encoder.size("hidden_size")?.unwrap_or(768)
        };
        // As VisionEncoderDecoderModel decides on `enc_to_dec_proj`.
        let cross = decoder.size("cross_attention_hidden_size")?;
        let is_projected = of_encoder != width && cross.is_none();
        if let Some(cross) = cross.filter(|&cross| cross != of_encoder) {
            let reason = format!(
                "`decoder.cross_attention_hidden_size` is {cross}, but the encoder has {of_encoder} channels"
            );
            return Err(Error::config(whole.file(), reason));
        }
        let mut rules = rules(directory, whole, &decoder, is_mbart)?;
        if is_donut {
            rules.prompt_is_start = true;
            // Tags such as `<s_answer>` are special tokens. They may also end a text.
            let end = token(&decoder, "eos_token_id")?.unwrap_or(MBART_END);
            let padding = token(&decoder, "pad_token_id")?.unwrap_or(1);
            rules.hidden = Some(vec![end, padding]);
        }
        let is_learned = is_mbart || decoder.flag("use_learned_position_embeddings")?.unwrap_or(true);
        Ok(Self {
            names: if is_mbart { &names::MBART } else { &names::TROCR },
            vocabulary: decoder.size("vocab_size")?.unwrap_or(50265),
            width,
            layers: decoder.size("decoder_layers")?.unwrap_or(12),
            heads: decoder.size("decoder_attention_heads")?.unwrap_or(16),
            hidden: decoder.size("decoder_ffn_dim")?.unwrap_or(4096),
            activation: activation(&decoder, "activation_function")?,
            // PyTorch's default, which no key changes.
            epsilon: 1e-5,
            is_pre_norm: is_mbart,
            llama: None,
            scales_embedding: decoder.flag("scale_embedding")?.unwrap_or(false),
            has_embedding_norm: is_mbart || decoder.flag("layernorm_embedding")?.unwrap_or(true),
            positions: if is_learned {
                Positions::Learned { unused: 2 }
            } else {
                Positions::Sines {
                    padding: token(&decoder, "pad_token_id")?.unwrap_or(1) as usize,
                }
            },
            context: decoder
                .size("max_position_embeddings")?
                .unwrap_or(if is_mbart { 1024 } else { 512 }),
            ties_embedding: decoder.flag("tie_word_embeddings")?.unwrap_or(true),
            encoder_width: of_encoder,
            projects_encoder: is_projected,
            rules,
        })
    }

    /// SmolVLM and Idefics3: a decoder of type Llama.
    fn smolvlm(directory: &Path, whole: &Fields<'_>) -> Result<Self> {
        let (vision, text) = (object(whole, "vision_config")?, object(whole, "text_config")?);
        for (key, only) in [("model_type", "llama"), ("hidden_act", "silu")] {
            if let Some(other) = text.text(key)?.filter(|&value| value != only) {
                let reason = format!("is \"{other}\", which is not supported; supported is \"{only}\"");
                return Err(text.error(key, reason));
            }
        }
        for key in ["attention_bias", "mlp_bias"] {
            if text.flag(key)?.unwrap_or(false) {
                return Err(text.error(key, "is true, which is not supported"));
            }
        }
        let width = text.size("hidden_size")?.unwrap_or(4096);
        let heads = text.size("num_attention_heads")?.unwrap_or(32);
        let image = vision.size("image_size")?.unwrap_or(224);
        let patch = vision.size("patch_size")?.unwrap_or(32);
        let scale = whole.size("scale_factor")?.unwrap_or(2);
        let side = image / patch;
        if side == 0 || !side.is_multiple_of(scale) {
            let reason = format!("is {scale}, but an image has {side} patches per side");
            return Err(whole.error("scale_factor", reason));
        }
        let mut rules = rules(directory, whole, &text, false)?;
        rules.prompt_is_start = true;
        Ok(Self {
            names: &names::LLAMA,
            vocabulary: text.size("vocab_size")?.unwrap_or(32000),
            width,
            layers: text.size("num_hidden_layers")?.unwrap_or(32),
            heads,
            hidden: text.size("intermediate_size")?.unwrap_or(11008),
            activation: Activation::Silu,
            epsilon: text.number("rms_norm_eps")?.unwrap_or(1e-5) as f32,
            is_pre_norm: true,
            scales_embedding: false,
            has_embedding_norm: false,
            positions: Positions::Rotary,
            llama: Some(Llama {
                head_dim: text.size("head_dim")?.unwrap_or(width / heads),
                kv_heads: text.size("num_key_value_heads")?.unwrap_or(heads),
                theta: theta(&text)?,
                image_token: token(whole, "image_token_id")?.unwrap_or(128_257),
                grid: [side; 2],
                scale,
                has_template: template::is_of_smolvlm(directory)?,
            }),
            context: text.size("max_position_embeddings")?.unwrap_or(2048),
            ties_embedding: whole.flag("tie_word_embeddings")?.unwrap_or(false),
            encoder_width: vision.size("hidden_size")?.unwrap_or(1152),
            projects_encoder: false,
            rules,
        })
    }

    /// BLIP for captions: a decoder like BERT.
    fn blip(whole: &Fields<'_>) -> Result<Self> {
        let (vision, text) = (object(whole, "vision_config")?, object(whole, "text_config")?);
        let of_encoder = vision.size("hidden_size")?.unwrap_or(768);
        let end = token(&text, "sep_token_id")?.unwrap_or(102);
        Ok(Self {
            names: &names::BLIP,
            vocabulary: text.size("vocab_size")?.unwrap_or(30524),
            width: text.size("hidden_size")?.unwrap_or(768),
            layers: text.size("num_hidden_layers")?.unwrap_or(12),
            heads: text.size("num_attention_heads")?.unwrap_or(8),
            hidden: text.size("intermediate_size")?.unwrap_or(3072),
            activation: activation(&text, "hidden_act")?,
            epsilon: text.number("layer_norm_eps")?.unwrap_or(1e-12) as f32,
            is_pre_norm: false,
            llama: None,
            scales_embedding: false,
            has_embedding_norm: true,
            positions: Positions::Learned { unused: 0 },
            context: text.size("max_position_embeddings")?.unwrap_or(512),
            ties_embedding: true,
            encoder_width: of_encoder,
            projects_encoder: false,
            // `BlipForConditionalGeneration.generate` reads no rules from files.
            rules: Rules {
                start: token(&text, "bos_token_id")?.unwrap_or(30522),
                prompt_is_start: false,
                ends: vec![end],
                forced_end: None,
                hidden: None,
                max_length: Length::New(DEFAULT_NEW_TOKENS),
                beams: BeamRules {
                    beams: 1,
                    length_penalty: 1.0,
                    stopping: EarlyStopping::Unlikely,
                },
                repetition: Repetition {
                    penalty: 1.0,
                    no_repeat_ngram_size: 0,
                },
            },
        })
    }

    /// Returns the channels of a head.
    pub(crate) fn head_dim(&self) -> usize {
        self.width / self.heads
    }

    /// Returns the row of the table of positions for `token` at `position` of a text.
    pub(crate) fn position(&self, token: u32, position: usize) -> usize {
        match self.positions {
            Positions::Rotary => position,
            Positions::Learned { unused } => unused + position,
            Positions::Sines { padding } if token as usize == padding => padding,
            Positions::Sines { padding } => padding + 1 + position,
        }
    }

    /// Returns the number of rows of the table of positions.
    pub(crate) fn position_rows(&self) -> usize {
        self.context
            + match self.positions {
                Positions::Rotary => 0,
                Positions::Learned { unused } => unused,
                Positions::Sines { padding } => padding + 1,
            }
    }

    /// Returns the maximum number of tokens of a text whose prompt has `prompt` tokens. `new` is the maximum number of tokens after the prompt, or `None` for the files' limit.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for a length that the model does not have.
    pub(crate) fn length(&self, new: Option<usize>, prompt: usize) -> Result<usize> {
        let most = self.context.saturating_sub(prompt);
        if most == 0 {
            let reason = format!(
                "has {prompt} tokens, and the model has positions for {}, with those of the text",
                self.context
            );
            return Err(Error::argument("prompt", reason));
        }
        match new {
            None => match self.rules.max_length.with_prompt(prompt).min(self.context) {
                length if length > prompt => Ok(length),
                // A file may limit texts to their first token, which is no text.
                _ if prompt == 1 => Ok(2),
                length => {
                    let reason = format!(
                        "has {prompt} tokens, and the model's files limit texts to {length} with it. Set the maximum number of tokens"
                    );
                    Err(Error::argument("prompt", reason))
                }
            },
            Some(0) => Err(Error::argument("max tokens", "is 0; at least one is needed")),
            Some(tokens) if tokens <= most => Ok(prompt + tokens),
            Some(tokens) => {
                let reason = format!("{tokens} are more than the {most} for which the model has positions");
                Err(Error::argument("max tokens", reason))
            }
        }
    }

    /// Returns what is out of range, with the reason.
    fn problem(&self) -> Option<String> {
        let Self { width, heads, .. } = *self;
        if let Some(Llama {
            head_dim, kv_heads, ..
        }) = self.llama
        {
            if !head_dim.is_multiple_of(2) {
                return Some(format!(
                    "a head has {head_dim} channels, which cannot be rotated in pairs"
                ));
            }
            if !heads.is_multiple_of(kv_heads) {
                return Some(format!(
                    "{heads} heads cannot be divided among {kv_heads} heads of keys and values"
                ));
            }
        } else if !width.is_multiple_of(heads) {
            return Some(format!("{width} channels cannot be divided among {heads} heads"));
        }
        if self.context > MAX_CONTEXT {
            let context = self.context;
            return Some(format!(
                "`max_position_embeddings` is {context}, more than the maximum of {MAX_CONTEXT}"
            ));
        }
        if self.context < 2 {
            return Some("`max_position_embeddings` is 1, and a text has at least two tokens".into());
        }
        let vocabulary = self.vocabulary;
        match self.positions {
            Positions::Sines { padding } if padding >= vocabulary => {
                return Some(format!(
                    "`pad_token_id` is {padding}, but the vocabulary has {vocabulary} tokens"
                ));
            }
            _ => {}
        }
        let is_unknown = |token: &u32| *token as usize >= vocabulary;
        if let Some(end) = self.rules.forced_end.filter(is_unknown) {
            return Some(format!(
                "`forced_eos_token_id` is {end}, but the vocabulary has {vocabulary} tokens"
            ));
        }
        let images = self.llama.as_ref().map(|llama| llama.image_token);
        if let Some(image) = images.filter(is_unknown) {
            return Some(format!(
                "`image_token_id` is {image}, but the vocabulary has {vocabulary} tokens"
            ));
        }
        let start = self.rules.start;
        is_unknown(&start)
            .then(|| format!("the first token is {start}, but the vocabulary has {vocabulary} tokens"))
    }
}

/// Reads the rules of generation. As in transformers, limits of the configuration apply only if there is no `generation_config.json`. MBart's configuration has
/// defaults.
fn rules(directory: &Path, whole: &Fields<'_>, decoder: &Fields<'_>, is_mbart: bool) -> Result<Rules> {
    let path = directory.join(GENERATION_CONFIG);
    let own = match hipvit_files::regular_file::read_within(&path, MAX_CONFIG_BYTES) {
        Ok(bytes) => {
            let value = hipvit_files::json::parse(&bytes);
            Some(value.map_err(|error| Error::config(&path, error))?)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(Error::io(&path, error)),
    };
    let own = own.as_ref().map(|value| Fields::new(&path, value)).transpose()?;
    let limits = match &own {
        Some(own) => vec![own],
        None => vec![whole, decoder],
    };
    let ids = Sections(own.iter().chain([whole, decoder]).collect());
    let limits = Sections(limits);
    limits.refuse_others()?;
    let start = match ids.read("decoder_start_token_id", token)? {
        Some(start) => Some(start),
        None => ids
            .read("bos_token_id", token)?
            .or((is_mbart && !decoder.has("bos_token_id")).then_some(0)),
    };
    let missing = || {
        let reason = format!("`decoder_start_token_id` is neither here nor in {GENERATION_CONFIG}. Add it");
        Error::config(whole.file(), reason)
    };
    let start = start.ok_or_else(missing)?;
    let max_length = match limits.read("max_new_tokens", Fields::size)? {
        Some(new) => Some(Length::New(new)),
        None => limits.read("max_length", Fields::size)?.map(Length::All),
    };
    let forced = "forced_eos_token_id";
    let forced_end = match limits.find(forced) {
        Some(section) => match tokens(section, forced)?.as_slice() {
            &[end] => Some(end),
            [] => None,
            _ => return Err(section.error(forced, "is a list of several tokens, which is not supported")),
        },
        None => (is_mbart && own.is_none() && !decoder.has(forced)).then_some(MBART_END),
    };
    let penalty = limits.read("repetition_penalty", Fields::number)?.unwrap_or(1.0);
    if penalty <= 0.0 {
        let reason = format!("`repetition_penalty` is {penalty}, and must be above 0");
        return Err(Error::config(whole.file(), reason));
    }
    Ok(Rules {
        start,
        prompt_is_start: false,
        ends: match ids.find("eos_token_id") {
            Some(section) => tokens(section, "eos_token_id")?,
            None if is_mbart && !decoder.has("eos_token_id") => vec![MBART_END],
            None => Vec::new(),
        },
        forced_end,
        hidden: None,
        max_length: max_length.unwrap_or(Length::New(DEFAULT_NEW_TOKENS)),
        beams: BeamRules {
            beams: limits.read("num_beams", Fields::size)?.unwrap_or(1),
            length_penalty: limits.read("length_penalty", Fields::number)?.unwrap_or(1.0),
            stopping: early_stopping(&limits)?,
        },
        repetition: Repetition {
            penalty,
            no_repeat_ngram_size: limits.read("no_repeat_ngram_size", Fields::count)?.unwrap_or(0),
        },
    })
}

fn early_stopping(limits: &Sections<'_>) -> Result<EarlyStopping> {
    let key = "early_stopping";
    let Some(section) = limits.find(key) else {
        return Ok(EarlyStopping::Unlikely);
    };
    match section.get(key) {
        Some(Value::Bool(true)) => Ok(EarlyStopping::Full),
        Some(Value::Bool(false)) => Ok(EarlyStopping::Unlikely),
        Some(Value::String(word)) if word == "never" => Ok(EarlyStopping::Never),
        _ => {
            let reason = "`early_stopping` must be true, false or \"never\"";
            Err(Error::config(section.file(), reason))
        }
    }
}

/// Sections of which the first that has a key counts.
struct Sections<'a>(Vec<&'a Fields<'a>>);

impl<'a> Sections<'a> {
    fn find(&self, key: &str) -> Option<&'a Fields<'a>> {
        self.0.iter().copied().find(|section| section.get(key).is_some())
    }

    fn read<T>(
        &self,
        key: &str,
        read: impl FnOnce(&Fields<'a>, &str) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        self.find(key).map_or(Ok(None), |section| read(section, key))
    }

    /// Refuses rules that would change the text and are not supported.
    fn refuse_others(&self) -> Result<()> {
        // A minimum length of 0, and of the first token alone, changes nothing.
        for (key, neutral) in [("min_length", 1), ("min_new_tokens", 0)] {
            if self
                .read(key, Fields::count)?
                .is_some_and(|least| least > neutral)
            {
                return Err(self.unsupported(key));
            }
        }
        let lists = [
            "forced_bos_token_id",
            "suppress_tokens",
            "begin_suppress_tokens",
            "bad_words_ids",
        ];
        match lists.into_iter().find(|key| self.find(key).is_some()) {
            Some(key) => Err(self.unsupported(key)),
            None => Ok(()),
        }
    }

    fn unsupported(&self, key: &str) -> Error {
        let file = self
            .find(key)
            .map_or(Path::new(GENERATION_CONFIG), |section| section.file());
        Error::config(
            file,
            format!("`{key}` is not supported. Remove it to read texts without this rule"),
        )
    }
}

/// Returns the object under `key`.
fn object<'a>(fields: &Fields<'a>, key: &'a str) -> Result<Fields<'a>> {
    let object = fields.object(key)?;
    object.ok_or_else(|| fields.error(key, "is missing"))
}

/// Reads the base of the frequencies of positions.
fn theta(text: &Fields<'_>) -> Result<f32> {
    let default = 10_000.0;
    let kind = |fields: &Fields<'_>, key: &str| -> Result<()> {
        match fields.text(key)? {
            None | Some("default") => Ok(()),
            Some(other) => Err(fields.error(key, format!("is \"{other}\", which is not supported"))),
        }
    };
    if let Some(scaling) = text.object("rope_scaling")? {
        kind(&scaling, "rope_type")?;
        kind(&scaling, "type")?;
    }
    let theta = match text.object("rope_parameters")? {
        Some(parameters) => {
            kind(&parameters, "rope_type")?;
            if parameters
                .number("partial_rotary_factor")?
                .is_some_and(|factor| factor != 1.0)
            {
                return Err(parameters.error("partial_rotary_factor", "is not supported"));
            }
            parameters.number("rope_theta")?
        }
        None => text.number("rope_theta")?,
    };
    Ok(theta.unwrap_or(default) as f32)
}

fn activation(fields: &Fields<'_>, key: &str) -> Result<Activation> {
    match fields.text(key)? {
        None | Some("gelu") => Ok(Activation::GeluErf),
        Some("gelu_new" | "gelu_pytorch_tanh") => Ok(Activation::GeluTanh),
        Some("relu") => Ok(Activation::Relu),
        Some("silu" | "swish") => Ok(Activation::Silu),
        Some(other) => Err(fields.error(key, format!("is \"{other}\", which is not supported"))),
    }
}

/// Reads a token, or the first of a list.
fn token(fields: &Fields<'_>, key: &str) -> Result<Option<u32>> {
    Ok(tokens(fields, key)?.first().copied())
}

/// Reads a token or a list of tokens.
fn tokens(fields: &Fields<'_>, key: &str) -> Result<Vec<u32>> {
    let one = |value: &Value| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| fields.error(key, "is not a token id"))
    };
    match fields.get(key) {
        None => Ok(Vec::new()),
        Some(Value::Array(list)) => list.iter().map(one).collect(),
        Some(value) => Ok(vec![one(value)?]),
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
        assert_eq!((spec.encoder_width, spec.projects_encoder), (32, false));
        let Rules {
            start,
            ends,
            max_length,
            beams,
            repetition,
            ..
        } = spec.rules.clone();
        assert_eq!((repetition.penalty, repetition.no_repeat_ngram_size), (1.0, 3));
        assert_eq!((start, &ends[..], beams.beams), (2, &[2][..], 4));
        assert_eq!((max_length, max_length.with_prompt(1)), (Length::New(20), 21));
        assert_eq!((spec.position(5, 0), spec.position_rows()), (2, 514));
        let mut other = config();
        other["decoder"]["cross_attention_hidden_size"] = Value::Null;
        other["eos_token_id"] = json!([5, 6]);
        other["max_length"] = json!(64);
        let spec = DecoderSpec::read(&directory, &other).unwrap();
        assert_eq!((spec.encoder_width, spec.projects_encoder), (32, true));
        assert_eq!(
            (&spec.rules.ends[..], spec.rules.max_length),
            (&[5, 6][..], Length::All(64))
        );
        // The file comes before the configuration, whose limits then do not apply.
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(
            directory.path().join(GENERATION_CONFIG),
            r#"{"max_new_tokens": 7, "eos_token_id": 9}"#,
        )
        .unwrap();
        let rules = DecoderSpec::read(directory.path(), &other).unwrap().rules;
        assert_eq!(
            (rules.max_length, &rules.ends[..], rules.beams.beams, rules.start),
            (Length::New(7), &[9][..], 1, 2)
        );
        assert_eq!(rules.repetition.no_repeat_ngram_size, 0);
        other["decoder"]["use_learned_position_embeddings"] = json!(false);
        other["decoder"]["pad_token_id"] = json!(3);
        let spec = DecoderSpec::read(directory.path(), &other).unwrap();
        assert_eq!(
            [spec.position(5, 0), spec.position(5, 6), spec.position(3, 6)],
            [4, 10, 3]
        );
    }

    #[test]
    fn lengths_count_the_prompt_where_the_files_do() {
        let directory = std::env::temp_dir();
        let mut files = config();
        files["decoder"]["max_position_embeddings"] = json!(40);
        let spec = DecoderSpec::read(&directory, &files).unwrap();
        let length = |new, prompt| spec.length(new, prompt).ok();
        assert_eq!([length(None, 1), length(None, 9)], [Some(21), Some(29)]);
        assert_eq!([length(None, 30), length(Some(31), 9)], [Some(40), Some(40)]);
        assert_eq!([length(Some(32), 9), length(None, 40)], [None, None]);
        files["max_length"] = json!(25);
        let spec = DecoderSpec::read(&directory, &files).unwrap();
        assert_eq!(
            (spec.length(None, 1).unwrap(), spec.length(None, 9).unwrap()),
            (25, 25)
        );
        let error = spec.length(None, 25).unwrap_err().to_string();
        assert!(error.contains("limit texts to 25"), "{error}");
        assert_eq!(spec.length(Some(3), 25).unwrap(), 28);
    }

    #[test]
    fn donut_has_the_defaults_of_mbart() {
        let directory = tempfile::tempdir().unwrap();
        let mut config = json!({
            "model_type": "vision-encoder-decoder",
            "encoder": {"model_type": "donut-swin", "embed_dim": 8, "depths": [2, 2, 2]},
            "decoder": {"model_type": "mbart", "d_model": 48},
        });
        let read = |config: &Value| DecoderSpec::read(directory.path(), config).unwrap();
        let spec = read(&config);
        assert_eq!(
            (spec.encoder_width, spec.projects_encoder, spec.context),
            (32, true, 1024)
        );
        assert!(spec.is_pre_norm && spec.has_embedding_norm && spec.rules.prompt_is_start);
        let Rules {
            start,
            ends,
            forced_end,
            hidden,
            ..
        } = spec.rules;
        assert_eq!(
            (start, ends, forced_end, hidden),
            (0, vec![2], Some(2), Some(vec![2, 1]))
        );
        config["decoder"]["forced_eos_token_id"] = Value::Null;
        config["decoder"]["pad_token_id"] = json!(7);
        let rules = read(&config).rules;
        assert_eq!((rules.forced_end, rules.hidden), (None, Some(vec![2, 7])));
        config["forced_eos_token_id"] = json!([4, 5]);
        let error = DecoderSpec::read(directory.path(), &config)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("`forced_eos_token_id` is a list of several"),
            "{error}"
        );
        // The file has the limits, and none of this.
        std::fs::write(directory.path().join(GENERATION_CONFIG), "{}").unwrap();
        assert_eq!(read(&config).rules.forced_end, None);
    }

    #[test]
    fn decoders_of_type_llama_are_read_or_named() {
        let directory = tempfile::tempdir().unwrap();
        let config = json!({
            "model_type": "smolvlm", "image_token_id": 7, "scale_factor": 3,
            "vision_config": {"image_size": 100, "patch_size": 8, "hidden_size": 20},
            "text_config": {
                "model_type": "llama", "vocab_size": 50, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
                "bos_token_id": 1, "eos_token_id": 2, "rope_theta": 5000.0, "rope_scaling": null,
            },
        });
        let read = |config: &Value| DecoderSpec::read(directory.path(), config);
        let spec = read(&config).unwrap();
        let llama = spec.llama.unwrap();
        assert_eq!(
            (llama.head_dim, llama.kv_heads, llama.grid, llama.tile_tokens()),
            (8, 2, [12, 12], 16)
        );
        assert_eq!((llama.theta, llama.has_template), (5000.0, false));
        for (section, key, value, expected) in [
            (
                "text_config",
                "model_type",
                json!("mistral"),
                "`text_config.model_type` is \"mistral\"",
            ),
            (
                "text_config",
                "hidden_act",
                json!("gelu"),
                "`text_config.hidden_act` is \"gelu\"",
            ),
            (
                "text_config",
                "attention_bias",
                json!(true),
                "`text_config.attention_bias` is true",
            ),
            (
                "text_config",
                "rope_scaling",
                json!({"rope_type": "llama3"}),
                "is \"llama3\"",
            ),
            (
                "text_config",
                "rope_parameters",
                json!({"rope_type": "yarn"}),
                "is \"yarn\"",
            ),
            (
                "text_config",
                "num_key_value_heads",
                json!(3),
                "4 heads cannot be divided among 3",
            ),
            (
                "text_config",
                "head_dim",
                json!(7),
                "7 channels, which cannot be rotated",
            ),
            ("text_config", "vocab_size", json!(6), "`image_token_id` is 7"),
            (
                "vision_config",
                "patch_size",
                json!(10),
                "`scale_factor` is 3, but an image has 10 patches",
            ),
        ] {
            let mut other = config.clone();
            other[section][key] = value;
            let error = read(&other).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn what_is_not_supported_is_named() {
        let directory = std::env::temp_dir();
        let message = |config: &Value| DecoderSpec::read(&directory, config).unwrap_err().to_string();
        let mut vit = config();
        vit["model_type"] = json!("vit");
        assert!(message(&vit).contains("`model_type` is \"vit\""));
        let mut bart = config();
        bart["decoder"]["model_type"] = json!("bart");
        assert!(message(&bart).contains("`decoder.model_type` is \"bart\""));
        let mut heads = config();
        heads["decoder"]["decoder_attention_heads"] = json!(7);
        assert!(message(&heads).contains("24 channels cannot be divided among 7 heads"));
        let mut start = config();
        start["decoder"]["decoder_start_token_id"] = Value::Null;
        assert!(
            message(&start)
                .contains("`decoder_start_token_id` is neither here nor in generation_config.json")
        );
        for (key, value) in [
            ("min_length", json!(5)),
            ("suppress_tokens", json!([1])),
            ("forced_bos_token_id", json!(2)),
        ] {
            let mut other = config();
            other[key] = value;
            assert!(
                message(&other).contains(&format!("`{key}` is not supported")),
                "{key}"
            );
        }
        let mut large = config();
        large["decoder"]["max_position_embeddings"] = json!(1 << 20);
        assert!(message(&large).contains("more than the maximum of 65536"));
        let mut padding = config();
        padding["decoder"]["use_learned_position_embeddings"] = json!(false);
        padding["decoder"]["pad_token_id"] = json!(4_000_000_000u32);
        assert!(message(&padding).contains("`pad_token_id` is 4000000000"));
        let mut first = config();
        first["decoder"]["decoder_start_token_id"] = json!(4_000_000_000u32);
        assert!(message(&first).contains("the first token is 4000000000"));
    }
}
