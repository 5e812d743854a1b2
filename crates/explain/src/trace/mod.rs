//! Trace of one pixel, from the decoded image through resize, patch, token and layers to its contribution to a logit. `follow` computes it.

mod follow;

use serde::Serialize;

use super::attribution::{Attribution, Constant};
use super::explainer::Target;
use super::maps::AttentionMap;
use hipvit::image::RgbImage;
use hipvit::outputs::Prediction;

/// Trace of one pixel. All values were computed in double precision on the host.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Trace {
    /// Name of the model.
    pub model: String,
    /// The pixel of the decoded image.
    pub pixel: SourcePixel,
    /// Resize of the pixel.
    pub resize: Resized,
    /// The traced pixel of the resized image, which has the largest weight. `None` if the pixel is cropped away.
    pub input: Option<InputPixel>,
    /// Location of the traced pixel in the patch matrix. `None` also for a pixel beyond the last whole patch, which the model ignores.
    pub patch: Option<PatchPlace>,
    /// Contribution to the patch embedding.
    pub embedding: Option<Embedding>,
    /// Token of the patch.
    pub token: Option<Token>,
    /// The token in each block.
    pub layers: Vec<Layer>,
    /// Pooling of the tokens to one vector.
    pub pooling: Vec<String>,
    /// Composition of the output.
    pub contribution: Contribution,
    /// The most likely classes.
    pub top: Vec<Prediction>,
    /// Attention of each layer, for images.
    #[serde(skip)]
    pub attention: Vec<AttentionMap>,
    /// Contribution of each pixel value.
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
    /// Column.
    pub x: usize,
    /// Row.
    pub y: usize,
    /// Colour.
    pub rgb: [u8; 3],
    /// Width and height of the image.
    pub image: [usize; 2],
}

/// Resize of the pixel.
#[derive(Clone, Debug, Serialize)]
pub struct Resized {
    /// Rule of the model.
    pub rule: String,
    /// Pixels of the resized image that the pixel contributes to, sorted by weight.
    pub outputs: Vec<Weighted>,
}

/// A pixel of the resized image, with the weight of the source pixel.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Weighted {
    /// Column.
    pub x: usize,
    /// Row.
    pub y: usize,
    /// Weight of the source pixel. The weights of all source pixels sum to 1.
    pub weight: f64,
}

/// A pixel of the model's input.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct InputPixel {
    /// Column.
    pub x: usize,
    /// Row.
    pub y: usize,
    /// Colour after the resize.
    pub rgb: [u8; 3],
    /// Values after rescaling and normalisation, bit for bit those of the library.
    pub values: [f32; 3],
    /// Factor of a byte.
    pub rescale: f64,
    /// Mean that is subtracted from rescaled bytes.
    pub mean: [f32; 3],
    /// Standard deviation that the result is divided by.
    pub std: [f32; 3],
}

/// Location of a pixel in the patch matrix.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PatchPlace {
    /// Index of the patch in row-major order.
    pub index: usize,
    /// Row of the patch.
    pub row: usize,
    /// Column of the patch.
    pub column: usize,
    /// Row of the pixel in the patch.
    pub inner_row: usize,
    /// Column of the pixel in the patch.
    pub inner_column: usize,
    /// Positions of red, green and blue in the library's patch vector, in the order channel, row, column.
    pub library: [usize; 3],
    /// Positions in hipvit's patch vector, in the order row, column, channel. The weights are permuted to match.
    pub permuted: [usize; 3],
}

/// Contribution of the pixel to the patch embedding: three columns of the weight times three values.
#[derive(Clone, Debug, Serialize)]
pub struct Embedding {
    /// Length of the pixel's contribution.
    pub pixel_norm: f64,
    /// Length of the patch's embedding, without bias.
    pub patch_norm: f64,
    /// Projection of the pixel's contribution on the embedding. The shares sum to 1 over the patch's pixels.
    pub share: f64,
    /// Channels with the largest contributions.
    pub channels: Vec<ChannelPart>,
}

/// A channel of a dot product.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ChannelPart {
    /// Index of the channel.
    pub channel: usize,
    /// Contribution of the pixel.
    pub pixel: f64,
    /// Value of the channel.
    pub total: f64,
}

/// Token of the patch.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Token {
    /// Index of the token, after the class token and other prefix tokens.
    pub index: usize,
    /// Length of the patch's embedding, with bias.
    pub embedding_norm: f64,
    /// Length of the input of the first block, with the position embedding.
    pub norm: f64,
}

/// A token in one block.
#[derive(Clone, Debug, Serialize)]
pub struct Layer {
    /// Index of the block.
    pub block: usize,
    /// One entry per attention head, for all attention layers of the block.
    pub heads: Vec<Head>,
    /// Length of the residual update by attention.
    pub attention_update: f64,
    /// Hidden values of the feed-forward network.
    pub ffn: Ffn,
    /// Length of the residual update by the feed-forward network.
    pub ffn_update: f64,
    /// Length of the token after the block.
    pub norm: f64,
    /// Share of the token in the sum of all tokens' lengths.
    pub share: f64,
    /// Part of the output that passes through the token after this block, by conservative propagation.
    pub relevance: f64,
    /// Sum of `relevance` over all tokens. The rest of the output comes from constants in later layers.
    pub relevance_of_all: f64,
}

/// A token in one attention head.
#[derive(Clone, Debug, Serialize)]
pub struct Head {
    /// Name of the attention layer, such as `blocks.3.attn`. A block may have two.
    pub attention: String,
    /// Index of the head in the layer.
    pub head: usize,
    /// Length of the query.
    pub query: f64,
    /// Length of the key.
    pub key: f64,
    /// Length of the value.
    pub value: f64,
    /// Mean attention that the token receives from all tokens. 1 / tokens for uniform attention.
    pub received: f64,
    /// Attention that the token receives from the tokens that the model's head uses, such as the class token.
    pub received_by_readout: f64,
    /// Tokens with the largest attention from this token.
    pub given: Vec<Read>,
}

/// A token that receives attention.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Read {
    /// Index of the token.
    pub token: usize,
    /// Attention weight.
    pub weight: f64,
}

/// The hidden values of the feed-forward network for a token.
#[derive(Clone, Debug, Serialize)]
pub struct Ffn {
    /// Number of hidden values. For two networks in one block, the sum of both.
    pub hidden: usize,
    /// Number of values above 0.
    pub positive: usize,
    /// Largest values.
    pub largest: Vec<Unit>,
}

/// A hidden unit.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Unit {
    /// Index of the unit.
    pub unit: usize,
    /// Value after the activation.
    pub value: f64,
}

/// Composition of the output.
#[derive(Clone, Debug, Serialize)]
pub struct Contribution {
    /// The explained output.
    pub target: Target,
    /// Value of the output.
    pub output: f64,
    /// Attribution method, with its source.
    pub method: String,
    /// Contribution of the source pixel: the weighted sum over the resized pixels that it contributes to.
    pub source_pixel: f64,
    /// Contribution of the traced resized pixel, by channel.
    pub input_pixel: Option<[f64; 3]>,
    /// Contribution of its patch.
    pub patch: Option<f64>,
    /// Rank of the patch by the magnitude of its contribution, from 1.
    pub patch_rank: Option<usize>,
    /// Sum of the contributions of all pixels.
    pub pixels: f64,
    /// Sum of the contributions of the model's constants: biases, position embeddings, class token.
    pub constant: f64,
    /// `pixels + constant − output`.
    pub gap: f64,
    /// Constants with the largest contributions.
    pub constants: Vec<Constant>,
}
