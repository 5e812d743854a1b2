//! Vision encoders of models whose decoder makes text. For images, the encoder is the whole model.

use serde_json::Value;

use super::keys::check_layers;
use super::kind::{BLIP, Class, DONUT, Kind, kind};
use super::swin;
use super::trunk::{MASK_TOKEN, check_channels, trunk};
use crate::error::Result;
use crate::labels::Labels;
use crate::model::description::Description;
use crate::model::fields::Fields;
use crate::model::info::Library;
use crate::model::vit::Vit;

/// Type of models whose encoder and decoder have configurations of their own.
const ENCODER_DECODER: &str = "vision-encoder-decoder";
const MAKES_TEXT: &str = "the decoder makes text, not the embedding of an image";

/// A vision encoder with its part of the configuration.
pub(super) struct Encoder<'a> {
    config: Fields<'a>,
    kind: &'static Kind,
    class: &'static str,
    prefixes: &'static [&'static str],
    ignored: &'static [(&'static str, &'static str)],
}

/// Returns the encoder of a model whose decoder makes text. `None` for other models.
///
/// # Errors
///
/// [`Error::Config`](crate::Error::Config) for an encoder or a class that is not supported.
pub(super) fn encoder(config: Fields<'_>) -> Result<Option<Encoder<'_>>> {
    let model_type = config.text("model_type")?;
    let missing = |key: &str| config.error(key, "is missing");
    if model_type == Some(ENCODER_DECODER) {
        let encoder = config.object("encoder")?.ok_or_else(|| missing("encoder"))?;
        return Ok(Some(Encoder {
            kind: encoder_kind(encoder)?,
            config: encoder.refusing_null(),
            class: "VisionEncoderDecoderModel",
            prefixes: &["encoder."],
            ignored: &[
                MASK_TOKEN,
                ("encoder.pooler.*", "the decoder reads the tokens"),
                ("*relative_position_index", "a buffer that the windows determine"),
                ("decoder.*", MAKES_TEXT),
                ("enc_to_dec_proj.*", MAKES_TEXT),
            ],
        }));
    }
    if model_type != Some(BLIP.model_type) {
        return Ok(None);
    }
    const CLASS: &str = "BlipForConditionalGeneration";
    let class = config.get("architectures").and_then(|list| list.get(0));
    if class.and_then(Value::as_str) != Some(CLASS) {
        return Err(config.error(
            "architectures",
            format_args!("is not \"{CLASS}\", the class that is supported"),
        ));
    }
    let vision = config
        .object("vision_config")?
        .ok_or_else(|| missing("vision_config"))?;
    Ok(Some(Encoder {
        kind: &BLIP,
        config: vision.refusing_null(),
        class: CLASS,
        prefixes: BLIP.prefixes,
        ignored: &[("text_decoder.*", MAKES_TEXT)],
    }))
}

/// Returns the family of an encoder.
fn encoder_kind(config: Fields<'_>) -> Result<&'static Kind> {
    if config.text("model_type")? == Some(DONUT.model_type) {
        return Ok(&DONUT);
    }
    let kind = kind(config)?;
    match kind.model_type {
        "vit" | "deit" => Ok(kind),
        other => {
            let reason = format_args!(
                "is \"{other}\"; encoders of decoders are supported of types vit, deit and donut-swin"
            );
            Err(config.error("model_type", reason))
        }
    }
}

impl Encoder<'_> {
    /// Describes the encoder for images of the size `image`.
    pub(super) fn describe(self, image: [usize; 2]) -> Result<Description> {
        check_layers(self.config)?;
        check_channels(self.config)?;
        let vit = if self.kind.model_type == DONUT.model_type {
            Vit {
                norm: false,
                ..swin::trunk(self.kind, self.config, image)?
            }
        } else {
            trunk(self.kind, Class::Model, self.config, image)?
        };
        Ok(Description {
            library: Library::Transformers,
            family: self.kind.family,
            architecture: self.class.to_owned(),
            vit,
            depth: None,
            text: None,
            names: self.kind.names,
            prefixes: self.prefixes,
            ignored: self.ignored.to_vec(),
            labels: Labels::default(),
            multi_label: false,
        })
    }
}
