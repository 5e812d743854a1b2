//! Random images of the goldens, equal to those of `tests/data/image/noise.py`.

use super::RgbImage;

/// Returns an image made of the top bytes of a 64-bit linear congruential generator (Knuth's constants).
pub(crate) fn noise(width: usize, height: usize, seed: u64) -> RgbImage {
    let mut state = seed;
    let next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let data = std::iter::repeat_with(next).take(width * height * 3).collect();
    RgbImage { width, height, data }
}
