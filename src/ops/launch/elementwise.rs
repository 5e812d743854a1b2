//! Kernels whose threads each take a pack of 16 bytes of the result: `bias_activation`, `swiglu`, `add`, `tokens`
//! and `pool`, whose blocks share the tokens out.

use super::{Launch, Properties, launch, pack, threads};
use crate::DType;
use crate::graph::Activation;

/// `bias_activation`, `swiglu` and `add`, with a result of `[rows, channels]`; and `tokens`, whose rows are those of its
/// result, `images · (prefixes + tokens)`.
///
/// # Errors
/// The device cannot launch it, and why.
pub fn rows(rows: u64, channels: u64, dtype: DType, properties: &Properties) -> Result<Launch, String> {
    threads(rows * channels.div_ceil(pack(dtype)), properties)
}

/// `pool` of `[images, tokens, channels]`.
///
/// # Errors
/// The device cannot launch it, and why.
pub fn pool(images: u64, channels: u64, dtype: DType, properties: &Properties) -> Result<Launch, String> {
    const PACKS: u64 = 32;
    const SLICES: u64 = 8;
    let blocks = images * channels.div_ceil(pack(dtype)).div_ceil(PACKS);
    let lds = SLICES * PACKS * pack(dtype) * 4;
    launch(blocks, (PACKS * SLICES) as u32, lds as u32, properties)
}

/// The number that `bias_activation` knows an activation by.
pub fn activation_code(activation: Option<Activation>) -> u32 {
    match activation {
        None => 0,
        Some(Activation::GeluErf) => 1,
        Some(Activation::GeluTanh) => 2,
        Some(Activation::QuickGelu) => 3,
        Some(Activation::Silu) => 4,
        Some(Activation::Relu) => 5,
        Some(Activation::Tanh) => 6,
    }
}

/// The modes of `pool`.
pub mod pool_mode {
    /// The token `first`.
    pub const TOKEN: u32 = 0;
    /// The mean of the tokens from `first` on.
    pub const MEAN: u32 = 1;
    /// Each channel's maximum over the tokens from `first` on.
    pub const MAX: u32 = 2;
}
