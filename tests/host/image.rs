//! From files to pixel values through the public API.

use std::path::Path;

use hipvit::image::{Limits, Preprocess, TimmOptions, open};
use serde_json::json;

use crate::support::at;

#[test]
fn a_file_becomes_pixel_values() {
    let samples = at("tests/data/image/samples");
    let cfg =
        json!({"input_size": [3, 16, 24], "crop_pct": 1.0, "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]});
    let rule = Preprocess::from_timm(Path::new("config.json"), &cfg, &TimmOptions::default()).unwrap();
    let images: Vec<_> = [
        "rgb8.png",
        "cmyk.jpg",
        "rgb-lossy.webp",
        "palette.gif",
        "rgb24.bmp",
        "rgb16-big.tif",
    ]
    .iter()
    .map(|name| open(samples.join(name), Limits::default()).unwrap())
    .collect();
    let batch = rule.apply_batch(&images).unwrap();
    for pixels in batch.chunks_exact(16 * 24 * 3) {
        let mut values = vec![f32::NAN; pixels.len()];
        rule.normalize(pixels, &mut values).unwrap();
        assert!(values.iter().all(|value| (-1.0..=1.0).contains(value)));
        // The second plane's first value is the first pixel's green.
        assert_eq!(values[16 * 24], (f32::from(pixels[1]) / 255.0 - 0.5) / 0.5);
    }
}
