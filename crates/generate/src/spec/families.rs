//! Decoders of the families that are supported.

use std::path::Path;

use hipvit::error::{Error, Result};
use hipvit::model::Fields;
use hipvit::ops::Activation;

use super::rules::{DEFAULT_NEW_TOKENS, Length, MBART_END, Rules, rules, token};
use super::{DecoderSpec, Llama, Positions};
use crate::beam::{BeamRules, EarlyStopping};
use crate::names;
use crate::template;

/// Value of `model_type` of Donut's encoder.
const DONUT_ENCODER: &str = "donut-swin";

impl DecoderSpec {
    /// TrOCR and Donut: a `VisionEncoderDecoderModel` with a decoder of type `trocr` or `mbart`.
    pub(super) fn encoder_decoder(directory: &Path, whole: &Fields<'_>) -> Result<Self> {
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
    pub(super) fn smolvlm(directory: &Path, whole: &Fields<'_>) -> Result<Self> {
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
    pub(super) fn blip(whole: &Fields<'_>) -> Result<Self> {
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
                repetition: None,
            },
        })
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
