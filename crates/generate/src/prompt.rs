//! The tokens that a text begins with.

use std::sync::Arc;

use hipvit::error::{Error, Result};
use hipvit::image::Tiles;
use hipvit::model::Detokenizer;

use crate::spec::{DecoderSpec, Llama};
use crate::template::{self, IMAGE};

/// The first tokens of a text.
#[derive(Clone, Debug, Default)]
pub(crate) struct First {
    pub(crate) tokens: Vec<u32>,
    /// Number of tokens of the prompt, without a start token that was added.
    pub(crate) prompt_tokens: usize,
    /// The index of an image's token among those of the image, for each of the first tokens.
    features: Arc<[Option<u32>]>,
}

impl First {
    /// Returns the index of the image's token at a position of the text. `None` for a token of text.
    pub(crate) fn feature(&self, position: usize) -> Option<usize> {
        let feature = self.features.get(position).copied().flatten();
        feature.map(|index| index as usize)
    }
}

/// Returns the rows and columns of tiles. An image that is not divided has none.
pub(crate) fn grid_of(tiles: &Tiles) -> [usize; 2] {
    [tiles.rows, tiles.columns]
}

/// Returns the rows and columns of tiles of image `index`.
pub(crate) fn grid(tiles: Option<&[Tiles]>, index: usize) -> [usize; 2] {
    let tiles = tiles.and_then(|tiles| tiles.get(index));
    tiles.map_or([0, 0], grid_of)
}

/// Returns the first tokens of a text with this prompt: the model's first token, and those of the prompt. Donut's prompts have a first token of their
/// own. The prompt of a decoder that has images in its sequence contains the tokens of the image, which has `grid` tiles.
///
/// # Errors
///
/// [`Error::Argument`] for a prompt without tokens, or with tokens that the model does not have.
pub(crate) fn first_tokens(
    spec: &DecoderSpec,
    detokenizer: &Detokenizer,
    prompt: Option<&str>,
    grid: [usize; 2],
) -> Result<First> {
    if let Some(llama) = &spec.llama {
        return around_image(spec, llama, detokenizer, prompt, grid);
    }
    let start = spec.rules.start;
    let Some(prompt) = prompt else {
        return Ok(First {
            tokens: vec![start],
            ..First::default()
        });
    };
    let mut tokens = detokenizer.tokens(prompt)?;
    check_vocabulary(spec, &tokens, prompt)?;
    match tokens.first() {
        None => Err(Error::argument(
            "prompt",
            "is empty. Leave it out, or give a text",
        )),
        Some(&first) => {
            let prompt_tokens = tokens.len();
            if !spec.rules.prompt_is_start && first != start {
                tokens.insert(0, start);
            }
            Ok(First {
                tokens,
                prompt_tokens,
                features: Arc::default(),
            })
        }
    }
}

fn check_vocabulary(spec: &DecoderSpec, tokens: &[u32], prompt: &str) -> Result<()> {
    let vocabulary = spec.vocabulary;
    match tokens.iter().find(|&&token| token as usize >= vocabulary) {
        Some(token) => {
            let reason = format!(
                "\"{prompt}\" has token {token}, but the model's vocabulary has {vocabulary} tokens. Use the model's own tokenizer"
            );
            Err(Error::argument("prompt", reason))
        }
        None => Ok(()),
    }
}

/// Returns the tokens of a question about an image.
fn around_image(
    spec: &DecoderSpec,
    llama: &Llama,
    detokenizer: &Detokenizer,
    prompt: Option<&str>,
    [rows, columns]: [usize; 2],
) -> Result<First> {
    let prompt = prompt.unwrap_or_default();
    let text = match prompt.matches(IMAGE).count() {
        1 => prompt.to_owned(),
        0 if llama.has_template => template::question(prompt),
        0 => {
            let reason = format!(
                "has no `{IMAGE}`, and the model's files have no chat template of SmolVLM. Write the whole conversation, with `{IMAGE}` for the image"
            );
            return Err(Error::argument("prompt", reason));
        }
        _ => {
            let reason = format!("has `{IMAGE}` more than once; a text is of one image");
            return Err(Error::argument("prompt", reason));
        }
    };
    let tile = llama.tile_tokens();
    let text = text.replace(IMAGE, &template::image(rows, columns, tile));
    let tokens = detokenizer.tokens(&text)?;
    check_vocabulary(spec, &tokens, prompt)?;
    let mut count = 0;
    let features: Arc<[Option<u32>]> = tokens
        .iter()
        .map(|&token| {
            (token == llama.image_token).then(|| {
                count += 1;
                count - 1
            })
        })
        .collect();
    let expected = tile * (rows * columns + 1);
    if count as usize != expected {
        let reason = format!(
            "has {count} tokens of the image, expected {expected}. `image_token_id` and the tokenizer do not belong together"
        );
        return Err(Error::argument("prompt", reason));
    }
    Ok(First {
        prompt_tokens: tokens.len(),
        tokens,
        features,
    })
}
