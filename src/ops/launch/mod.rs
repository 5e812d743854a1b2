//! How the ops run on a GPU: for every kernel of `hip/`, the structure of its arguments and its pure launch plan, by the
//! kernel's name; and the embedded [`device_code`]. Nothing here knows a device: [`Properties`] is all that a plan may
//! ask. The launching is done elsewhere.
//!
//! An entry's name is the op's and the dtype's: `layer_norm_f16`, see [`entry`].

pub mod arguments;
pub mod attention;
pub mod device_code;
pub mod elementwise;
pub mod image;
pub mod rows;
#[cfg(test)]
mod tests;

use crate::DType;

/// What a launch plan may know of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Lanes of a wave, 32 or 64.
    pub wave_size: u32,
    /// Compute units, or multiprocessors.
    pub compute_units: u32,
    /// LDS that a block may use, in bytes.
    pub lds_bytes: u32,
    /// Blocks of a one-dimensional grid.
    pub max_blocks: u32,
}

/// The geometry of one launch; both dimensions but the first are 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Blocks.
    pub grid: u32,
    /// Threads of a block.
    pub block: u32,
    /// LDS that the kernel declares itself, in bytes; none is asked for at launch.
    pub lds_bytes: u32,
}

/// The name of an op's entry for a dtype.
pub fn entry(op: &str, dtype: DType) -> String {
    format!("{op}_{dtype}")
}

/// Threads of a block in all kernels but attention.
const THREADS: u32 = 256;

/// Elements in 16 bytes.
fn pack(dtype: DType) -> u64 {
    16 / dtype.size() as u64
}

/// The launch of `threads` threads in all.
fn threads(threads: u64, properties: &Properties) -> Result<Launch, String> {
    launch(threads.div_ceil(THREADS.into()), THREADS, 0, properties)
}

/// A launch, if the device can do it; an empty one still has a block.
fn launch(blocks: u64, block: u32, lds_bytes: u32, properties: &Properties) -> Result<Launch, String> {
    if lds_bytes > properties.lds_bytes {
        return Err(format!(
            "needs {lds_bytes} bytes of LDS, and the device has {}",
            properties.lds_bytes
        ));
    }
    // Some drivers count threads, in 32 bits.
    let most = u64::from(properties.max_blocks).min(u64::from(u32::MAX) / u64::from(block));
    match u32::try_from(blocks.max(1)) {
        Ok(grid) if u64::from(grid) <= most => Ok(Launch {
            grid,
            block,
            lds_bytes,
        }),
        _ => Err(format!("needs {blocks} blocks, and the device takes {most}")),
    }
}
