//! Kernels that reduce over a row: `layer_norm` and `softmax`. A wave takes a row, or, where that would not fit its
//! registers, a block.

use super::{Launch, Properties, THREADS, launch};

/// Elements that a thread keeps in registers.
const KEPT: u32 = 32;

/// The launch for `rows` rows of `length` elements, and the argument `whole_block`.
///
/// # Errors
/// The device cannot launch it, and why.
pub fn plan(rows: u64, length: u64, properties: &Properties) -> Result<(Launch, u32), String> {
    let wave = properties.wave_size;
    let waves = THREADS / wave;
    let whole_block = length > u64::from(KEPT * wave);
    let blocks = if whole_block {
        rows
    } else {
        rows.div_ceil(waves.into())
    };
    // One f32 a wave, for reductions over the block.
    let launch = launch(blocks, THREADS, waves * 4, properties)?;
    Ok((launch, whole_block.into()))
}
