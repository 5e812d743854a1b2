//! Default images of a model's validation.

use hipvit::digits;
use hipvit::error::Result;
use hipvit::image::{Limits, RgbImage};
use hipvit::model::Model;

/// Number of random images.
const IMAGES: u64 = 2;

/// Returns the embedded model's samples, or images of the model's size with structure at several scales.
pub(super) fn default(model: &Model, embedded: bool) -> Result<Vec<RgbImage>> {
    if embedded && model.info.image_size == [32, 32] {
        return digits::samples()
            .map(|sample| sample.decode(Limits::default()))
            .collect();
    }
    let [height, width] = model.info.image_size;
    (1..=IMAGES).map(|seed| structured(width, height, seed)).collect()
}

/// Creates an image of waves in several directions and lengths with noise. No two patches are equal, and no
/// token is only noise.
fn structured(width: usize, height: usize, seed: u64) -> Result<RgbImage> {
    // The minimal standard generator of Park and Miller.
    let mut state = seed * 48_271 % 2_147_483_647;
    let mut random = || {
        state = state * 48_271 % 2_147_483_647;
        state as f64 / 2_147_483_647.0
    };
    let waves: Vec<[f64; 4]> = (0..12)
        .map(|wave| {
            let length = 4.0 * 1.6f64.powi(wave % 6);
            let angle = std::f64::consts::TAU * random();
            let frequency = std::f64::consts::TAU / length;
            [
                frequency * angle.cos(),
                frequency * angle.sin(),
                6.0 * random(),
                40.0 * random(),
            ]
        })
        .collect();
    let mut bytes = Vec::with_capacity(3 * width * height);
    for y in 0..height {
        for x in 0..width {
            for channel in 0..3 {
                let of_channel = waves.iter().skip(channel).step_by(3).chain(&waves[..2]);
                let sum: f64 = of_channel
                    .map(|[fx, fy, phase, amplitude]| {
                        amplitude * (fx * x as f64 + fy * y as f64 + phase).sin()
                    })
                    .sum();
                bytes.push((128.0 + sum + 24.0 * (random() - 0.5)).clamp(0.0, 255.0) as u8);
            }
        }
    }
    Ok(RgbImage::new(width, height, bytes)?)
}
