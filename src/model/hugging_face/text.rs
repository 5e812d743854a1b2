//! Reads the text towers of transformers' `CLIPModel` and `SiglipModel`.

use super::keys::{activation, check_layers, tower_config};
use super::kind::Kind;
use crate::error::Result;
use crate::model::fields::Fields;
use crate::model::info::Family;
use crate::model::names::{self, Projection};
use crate::model::text::spec::{TextPooling, TextSpec, TextTrunk, TokenizerKind};
use crate::model::weights::Weights;
use crate::ops::Activation;
use crate::outputs::Scores;

const PREFIX: &str = "text_model.";
const TOKENS: &str = "text_model.embeddings.token_embedding.weight";
const POSITIONS: &str = "text_model.embeddings.position_embedding.weight";

/// Incorrect id of the end token in old configurations. Texts of these models end with the largest id.
const WRONG_END: usize = 2;

/// Describes the text tower in `config`. Returns `None` if the weights have none, or if the family's tower is not
/// supported.
pub(super) fn spec(kind: &Kind, config: Fields<'_>, weights: &Weights) -> Result<Option<TextSpec>> {
    if !matches!(kind.family, Family::Clip | Family::Siglip) {
        return Ok(None);
    }
    let is_stored = weights.tensors().keys().any(|name| name.starts_with(PREFIX));
    if !is_stored && !weights.is_recording() {
        return Ok(None);
    }
    let text = tower_config(kind, config, "text_config")?;
    check_layers(text)?;
    let clip = kind.family == Family::Clip;
    let pick = |of_clip, of_siglip| if clip { of_clip } else { of_siglip };
    let size = |key, of_clip, of_siglip| -> Result<usize> {
        Ok(text.size(key)?.unwrap_or(pick(of_clip, of_siglip)))
    };
    let context = size("max_position_embeddings", 77, 64)?;
    let dim = size("hidden_size", 512, 768)?;
    let default = if clip {
        Activation::QuickGelu
    } else {
        Activation::GeluTanh
    };
    let trunk = TextTrunk {
        context,
        dim,
        depth: text.count("num_hidden_layers")?.unwrap_or(12),
        heads: size("num_attention_heads", 8, 12)?,
        hidden: size("intermediate_size", 2048, 3072)?,
        activation: activation(text, "hidden_act", default)?,
        epsilon: text.number("layer_norm_eps")?.unwrap_or(kind.epsilon),
        causal: clip,
        layer_scale: false,
    };
    let (pooling, projection, width) = if clip {
        let pooling = match text.count("eos_token_id")? {
            Some(WRONG_END) => TextPooling::Largest,
            end => TextPooling::First(end.unwrap_or(49_407) as u32),
        };
        let width = config.size("projection_dim")?.unwrap_or(512);
        (pooling, Projection::Layer("text_projection"), width)
    } else {
        let width = text.accepting_null().size("projection_size")?.unwrap_or(dim);
        let projection = Projection::Layer("text_model.head");
        (TextPooling::Last, projection, width)
    };
    let spec = TextSpec {
        trunk: trunk.vit(),
        names: &names::CLIP_TEXT,
        prefix: PREFIX,
        token_embedding: TOKENS.to_owned(),
        position_embedding: POSITIONS.to_owned(),
        context,
        vocabulary: size("vocab_size", 49_408, 32_000)?,
        pooling,
        projection,
        projection_bias: !clip,
        width,
        scores: if clip { Scores::Softmax } else { Scores::Sigmoid },
        tokenizer: if clip {
            TokenizerKind::Clip
        } else {
            TokenizerKind::Siglip
        },
    };
    Ok(Some(spec))
}
