//! The journey of one pixel: from the decoded image through resize, patch, token and layers to its part of a logit.
//! `follow` computes it.

mod follow;

use serde::Serialize;

use super::attribution::{Attribution, Constant};
use super::explainer::Target;
use super::maps::AttentionMap;
use hipvit::image::RgbImage;
use hipvit::outputs::Prediction;

/// The journey of one pixel. Everything was computed in double precision on the host.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Trace {
    /// The model's name.
    pub model: String,
    /// The pixel, in the decoded image.
    pub pixel: SourcePixel,
    /// How it is resized.
    pub resize: Resized,
    /// The pixel of the resized image that is followed: the one with the largest weight. `None` if the pixel is cropped away.
    pub input: Option<InputPixel>,
    /// Where that lies in a patch; `None` also for a pixel beyond the last whole patch, which the model ignores.
    pub patch: Option<PatchPlace>,
    /// Its part of the patch embedding.
    pub embedding: Option<Embedding>,
    /// The patch's token.
    pub token: Option<Token>,
    /// What happens to the token in each block.
    pub layers: Vec<Layer>,
    /// How the tokens become one vector.
    pub pooling: Vec<String>,
    /// What the output is made of.
    pub contribution: Contribution,
    /// The most likely classes.
    pub top: Vec<Prediction>,
    /// The attention of each layer, for pictures.
    #[serde(skip)]
    pub attention: Vec<AttentionMap>,
    /// The contribution of each pixel value.
    #[serde(skip)]
    pub attribution: Attribution,
    /// The image at the model's size.
    #[serde(skip)]
    pub resized: RgbImage,
    /// Rows and columns of patches.
    pub grid: [usize; 2],
    /// Height and width of a patch.
    pub patch_size: [usize; 2],
    /// Tokens before the patches.
    pub prefix_tokens: usize,
}

/// A pixel of the decoded image.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SourcePixel {
    /// Its column.
    pub x: usize,
    /// Its row.
    pub y: usize,
    /// Its value.
    pub rgb: [u8; 3],
    /// Width and height of the image.
    pub image: [usize; 2],
}

/// What the resize makes of the pixel.
#[derive(Clone, Debug, Serialize)]
pub struct Resized {
    /// The model's rule.
    pub rule: String,
    /// The pixels of the resized image that it is part of, by weight.
    pub outputs: Vec<Weighted>,
}

/// A pixel of the resized image, and how much of the source pixel it takes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Weighted {
    /// Its column.
    pub x: usize,
    /// Its row.
    pub y: usize,
    /// The source pixel's weight; those of all source pixels sum to 1.
    pub weight: f64,
}

/// A pixel of the model's input.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct InputPixel {
    /// Its column.
    pub x: usize,
    /// Its row.
    pub y: usize,
    /// After the resize.
    pub rgb: [u8; 3],
    /// After rescaling and normalisation, bit for bit the library's.
    pub values: [f32; 3],
    /// What a byte is multiplied with at first.
    pub rescale: f64,
    /// The mean that is subtracted, of rescaled bytes.
    pub mean: [f32; 3],
    /// The standard deviation that is divided by.
    pub std: [f32; 3],
}

/// Where a pixel lies in the patch matrix.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PatchPlace {
    /// The patch's number, row by row.
    pub index: usize,
    /// The patch's row.
    pub row: usize,
    /// The patch's column.
    pub column: usize,
    /// The pixel's row inside the patch.
    pub inner_row: usize,
    /// The pixel's column inside the patch.
    pub inner_column: usize,
    /// Where red, green and blue lie in the library's patch vector: channel, row, column.
    pub library: [usize; 3],
    /// Where they lie in ours: row, column, channel; the weights are permuted alike.
    pub permuted: [usize; 3],
}

/// The pixel's part of the patch embedding: three columns of the weight times three values.
#[derive(Clone, Debug, Serialize)]
pub struct Embedding {
    /// The length of the pixel's part.
    pub pixel_norm: f64,
    /// The length of the whole embedding of the patch, without bias.
    pub patch_norm: f64,
    /// The pixel's part along the patch's embedding: these sum to 1 over the patch's pixels.
    pub share: f64,
    /// The channels where its part is largest.
    pub channels: Vec<ChannelPart>,
}

/// One channel of a dot product.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ChannelPart {
    /// The channel.
    pub channel: usize,
    /// The pixel's part.
    pub pixel: f64,
    /// The whole.
    pub total: f64,
}

/// The patch's token.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Token {
    /// Its index, after the class token and the like.
    pub index: usize,
    /// The length of the patch's embedding, with bias.
    pub embedding_norm: f64,
    /// The length with the position embedding added, as it enters the first block.
    pub norm: f64,
}

/// A token in one block.
#[derive(Clone, Debug, Serialize)]
pub struct Layer {
    /// The block.
    pub block: usize,
    /// One per attention head, of all attention layers of the block.
    pub heads: Vec<Head>,
    /// The length of what attention adds to the residual stream.
    pub attention_update: f64,
    /// The feed-forward network's hidden values.
    pub ffn: Ffn,
    /// The length of what the feed-forward network adds.
    pub ffn_update: f64,
    /// The token's length after the block.
    pub norm: f64,
    /// The token's part of the sum of all tokens' lengths.
    pub share: f64,
    /// The part of the output that passes through the token after this block, by conservative propagation.
    pub relevance: f64,
    /// Sum of `relevance` over all tokens. The rest of the output comes from constants in later layers.
    pub relevance_of_all: f64,
}

/// A token in one attention head.
#[derive(Clone, Debug, Serialize)]
pub struct Head {
    /// The attention layer, such as `blocks.3.attn`: a block may have two.
    pub attention: String,
    /// The head's number in it.
    pub head: usize,
    /// The lengths of its query, key and value.
    pub query: f64,
    /// See `query`.
    pub key: f64,
    /// See `query`.
    pub value: f64,
    /// How much all tokens read of it, on average: 1 / tokens where attention is even.
    pub received: f64,
    /// How much the class token, or what else the head of the model reads, reads of it.
    pub received_by_readout: f64,
    /// The tokens that it reads most of.
    pub given: Vec<Read>,
}

/// A token that is read.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Read {
    /// Its index.
    pub token: usize,
    /// How much of it.
    pub weight: f64,
}

/// The hidden values of the feed-forward network for a token.
#[derive(Clone, Debug, Serialize)]
pub struct Ffn {
    /// How many there are; of two networks in one block, those of both.
    pub hidden: usize,
    /// How many are above 0.
    pub positive: usize,
    /// The largest.
    pub largest: Vec<Unit>,
}

/// A hidden unit.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Unit {
    /// Its index.
    pub unit: usize,
    /// Its value after the activation.
    pub value: f64,
}

/// What the output is made of.
#[derive(Clone, Debug, Serialize)]
pub struct Contribution {
    /// What is explained.
    pub target: Target,
    /// Its value.
    pub output: f64,
    /// The attribution, with its source.
    pub method: String,
    /// The source pixel's part: over the resized pixels that it is part of, by its weights.
    pub source_pixel: f64,
    /// The part of the resized pixel that is followed, by channel.
    pub input_pixel: Option<[f64; 3]>,
    /// The part of its patch.
    pub patch: Option<f64>,
    /// The patch's rank among all by the size of its part, from 1.
    pub patch_rank: Option<usize>,
    /// The sum over all pixels.
    pub pixels: f64,
    /// The sum over the model's constants: biases, position embeddings, class token.
    pub constant: f64,
    /// `pixels + constant − output`.
    pub gap: f64,
    /// The constants with the largest parts.
    pub constants: Vec<Constant>,
}
