//! Which of an image's tokens are patches of its own.

use super::Array;

/// Rows and columns of image `b` of a batch `[B,H,W,3]` of bytes, by the first four of its last row of pixels; cut to fit
/// `tokens`.
pub(super) fn grid(images: &Array, b: usize, tokens: usize) -> [usize; 2] {
    let &[_, height, width, channels] = images.shape() else {
        return [1, 1];
    };
    let at = ((b + 1) * height - 1) * width * channels;
    let extent = |at: usize| (images.values()[at] + 256.0 * images.values()[at + 1]) as usize;
    let rows = extent(at).clamp(1, tokens);
    [rows, extent(at + 2).clamp(1, tokens / rows)]
}

pub(super) fn grid_mask(images: &Array, y: &mut Array) {
    let tokens = y.shape()[1];
    for b in 0..images.shape()[0] {
        let [rows, columns] = grid(images, b, tokens);
        for token in 0..tokens {
            y.values_mut()[b * tokens + token] = f64::from(u8::from(token < rows * columns));
        }
    }
}
