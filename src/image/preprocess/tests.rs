use std::path::PathBuf;

use proptest::prelude::*;
use serde::Deserialize;
use serde_json::json;

use super::*;
use crate::image::noise::noise;

#[derive(Deserialize)]
struct Goldens {
    /// Width and height of each image, whose seed is its position.
    sizes: Vec<(usize, usize)>,
    cases: Vec<Golden>,
}

#[derive(Deserialize)]
struct Golden {
    library: String,
    config: Value,
    #[serde(default)]
    use_test_size: bool,
    /// Of the little-endian pixel values of each image.
    crc32: Vec<u32>,
}

fn rule(golden: &Golden) -> Preprocess {
    let file = Path::new("config.json");
    let options = TimmOptions {
        use_test_size: golden.use_test_size,
        ..TimmOptions::default()
    };
    match golden.library.as_str() {
        "timm" => Preprocess::from_timm(file, &golden.config, &options).unwrap(),
        _ => Preprocess::from_hf(file, &golden.config, None).unwrap(),
    }
}

fn pixel_values(rule: &Preprocess, image: &RgbImage) -> Vec<f32> {
    let bytes = rule.apply(image).unwrap();
    assert_eq!((bytes.height, bytes.width), rule.output_size());
    let mut values = vec![f32::NAN; bytes.data.len()];
    rule.normalize(&bytes.data, &mut values).unwrap();
    values
}

#[test]
fn pixel_values_equal_the_libraries() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/image/preprocess.json");
    let goldens: Goldens = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let images: Vec<RgbImage> = goldens
        .sizes
        .iter()
        .zip(0..)
        .map(|(&(width, height), seed)| noise(width, height, seed))
        .collect();
    assert_eq!(goldens.cases.len(), 32);
    let mut wrong = Vec::new();
    for golden in &goldens.cases {
        let rule = rule(golden);
        for ((image, size), &crc32) in images.iter().zip(&goldens.sizes).zip(&golden.crc32) {
            let bytes: Vec<u8> = pixel_values(&rule, image)
                .into_iter()
                .flat_map(f32::to_le_bytes)
                .collect();
            if crc32fast::hash(&bytes) != crc32 {
                wrong.push(format!("{} {} {size:?}: {rule}", golden.library, golden.config));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
