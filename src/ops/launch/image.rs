//! Kernels on pixels: `patch_extract`, and the passes of `resize`.

use super::{Launch, Properties, pack, threads};
use crate::DType;

/// `patch_extract` (`chw` false) and `patch_extract_chw` of images of `height × width` pixels.
///
/// # Errors
/// The patch does not fit the image, or the device cannot launch it.
pub fn patch_extract(
    images: u64,
    [height, width]: [u64; 2],
    [patch_height, patch_width]: [u64; 2],
    chw: bool,
    dtype: DType,
    properties: &Properties,
) -> Result<Launch, String> {
    if patch_height == 0 || patch_width == 0 || height < patch_height || width < patch_width {
        return Err(format!(
            "a patch of {patch_height}×{patch_width} does not fit an image of {height}×{width}"
        ));
    }
    let patches = images * (height / patch_height) * (width / patch_width);
    // A run is what lies together in memory.
    let (runs, run) = if chw {
        (3 * patch_height, patch_width)
    } else {
        (patch_height, 3 * patch_width)
    };
    threads(patches * runs * run.div_ceil(pack(dtype)), properties)
}

/// `resize_horizontal_u8` from `rows` rows to `outputs` columns; `resize_nearest_u8` to as many.
///
/// # Errors
/// The device cannot launch it, and why.
pub fn resize_horizontal(rows: u64, outputs: u64, properties: &Properties) -> Result<Launch, String> {
    threads(rows * outputs, properties)
}

/// `resize_vertical_u8` to `outputs` rows of `bytes`.
///
/// # Errors
/// The device cannot launch it, and why.
pub fn resize_vertical(bytes: u64, outputs: u64, properties: &Properties) -> Result<Launch, String> {
    threads(outputs * bytes.div_ceil(4), properties)
}
