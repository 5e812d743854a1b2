//! Replays draws of torchvision, timm and Pillow (`scripts/golden_augment.py`), and compares the results' digests.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use hipvit_image::{Filter, RgbImage};
use serde_json::Value;

use super::*;
use crate::mix::{Mixture, Rectangle, mix_bytes, mix_planes, soft_targets};

const DRAWS: usize = 1000;
const FILL: [u8; 3] = [11, 128, 250];
const INTERPOLATIONS: [Interpolation; 3] = [
    Interpolation::Nearest,
    Interpolation::Bilinear,
    Interpolation::Bicubic,
];

/// Returns image `n`, made of a linear congruential generator's top bytes.
fn array(n: usize, width: usize, height: usize) -> RgbImage {
    let mut state = n as u64;
    let byte = |at: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let noise = (state >> 56) as usize;
        let gradient = at / 3 % width * 5 + at / 3 / width * 3 + at % 3 * 40;
        let kinds = [
            noise,
            noise / 4 + 70,
            (gradient + noise / 16) % 256,
            noise / 64 * 64,
        ];
        kinds[n % 4] as u8
    };
    let data = (0..width * height * 3).map(byte).collect();
    RgbImage { width, height, data }
}

fn image(n: usize) -> RgbImage {
    let (width, height) = (16 + n * 7 % 33, 16 + n * 5 % 29);
    array(n, width, if n.is_multiple_of(10) { width } else { height })
}

/// Compares the digests of 1,000 results. `result` gets the number and the parameters of each draw.
fn compare(name: &str, result: impl Fn(usize, &[f64]) -> Vec<u8>) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/golden/augment/{name}.json"));
    let golden: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let digests = golden["digests"].as_str().unwrap();
    assert_eq!(digests.len(), 6 * DRAWS, "{name}");
    let mut wrong = Vec::new();
    for n in 0..DRAWS {
        let parameters: Vec<f64> = match &golden["draws"][n] {
            Value::Null => Vec::new(),
            draw => serde_json::from_value(draw.clone()).unwrap(),
        };
        let digest = crc32fast::hash(&result(n, &parameters)).to_le_bytes();
        if STANDARD_NO_PAD.encode(digest) != digests[6 * n..6 * n + 6] {
            wrong.push(n);
        }
    }
    assert!(
        wrong.is_empty(),
        "{name}: {} draws differ: {wrong:?}",
        wrong.len()
    );
}

fn apply(n: usize, operations: impl IntoIterator<Item = Operation>) -> Vec<u8> {
    let start = image(n);
    operations
        .into_iter()
        .fold(start, |image, operation| operation.apply(image).unwrap())
        .data
}

/// Compares operations whose parameter is evenly spaced.
fn compare_operation(name: &str, low: f64, high: f64, operation: impl Fn(f64, usize) -> Operation) {
    compare(name, |n, _| {
        apply(n, [operation(low + (high - low) * n as f64 / 999.0, n)])
    });
}

#[test]
fn colors_equal_pillow() {
    compare_operation("brightness", 0.0, 2.5, |factor, _| Operation::Brightness {
        factor,
    });
    compare_operation("contrast", 0.0, 2.5, |factor, _| Operation::Contrast { factor });
    compare_operation("saturation", 0.0, 2.5, |factor, _| Operation::Saturation {
        factor,
    });
    compare_operation("sharpness", 0.0, 2.5, |factor, _| Operation::Sharpness { factor });
    compare_operation("hue", -0.5, 0.5, |factor, _| Operation::Hue { factor });
}

#[test]
fn tables_equal_pillow() {
    compare_operation("posterize", 1.0, 8.99, |bits, _| Operation::Posterize {
        bits: bits as u8,
    });
    compare_operation("solarize", 0.0, 256.0, |threshold, _| Operation::Solarize {
        threshold,
    });
    compare_operation("solarize_add", 0.0, 128.0, |amount, _| Operation::SolarizeAdd {
        amount: amount as u8,
    });
    for (name, operation) in [
        ("invert", Operation::Invert),
        ("equalize", Operation::Equalize),
        ("autocontrast", Operation::AutoContrast),
        ("horizontal_flip", Operation::HorizontalFlip),
        ("vertical_flip", Operation::VerticalFlip),
    ] {
        compare_operation(name, 0.0, 0.0, |_, _| operation.clone());
    }
}

#[test]
fn affine_transformations_equal_pillow() {
    let rotate = |degrees, n: usize| Operation::Rotate {
        degrees,
        interpolation: INTERPOLATIONS[n % 3],
        fill: FILL,
    };
    compare_operation("rotate", -180.0, 180.0, rotate);
    compare_operation("right_angle", 0.0, 0.0, |_, n| {
        rotate((n % 5 * 90) as f64 - 180.0, n)
    });
    compare_operation("shear", -1.0, 1.0, |x, n| Operation::Affine {
        matrix: [1.0, x, (n % 7) as f64, x / 3.0, 1.0, -x],
        interpolation: INTERPOLATIONS[n % 3],
        fill: FILL,
    });
}

#[test]
fn crops_equal_torchvision() {
    let crop = |draw: &[f64], height, width| Operation::Crop {
        top: draw[0] as i64,
        left: draw[1] as i64,
        height,
        width,
    };
    compare("random_resized_crop", |n, draw| {
        let resize = Operation::Resize {
            height: 24,
            width: 20,
            filter: [Filter::Bilinear, Filter::Bicubic][n % 2],
        };
        apply(n, [crop(draw, draw[2] as usize, draw[3] as usize), resize])
    });
    let modes = [
        PaddingMode::Constant,
        PaddingMode::Edge,
        PaddingMode::Reflect,
        PaddingMode::Symmetric,
    ];
    compare("random_crop", |n, draw| {
        let pad = Operation::Pad {
            border: [3; 4],
            mode: modes[n / 4 % 4],
            fill: FILL,
        };
        apply(n, [pad, crop(draw, 16, 15)])
    });
}

#[test]
fn color_jitter_equals_torchvision() {
    compare("color_jitter", |n, draw| {
        let operations = draw[..4].iter().map(|&index| {
            let factor = draw[4 + index as usize];
            match index as usize {
                0 => Operation::Brightness { factor },
                1 => Operation::Contrast { factor },
                2 => Operation::Saturation { factor },
                _ => Operation::Hue { factor },
            }
        });
        apply(n, operations)
    });
}

/// Names of the operations, in the order of the files.
const OPS: [PolicyOp; 15] = [
    PolicyOp::Identity,
    PolicyOp::ShearX,
    PolicyOp::ShearY,
    PolicyOp::TranslateX,
    PolicyOp::TranslateY,
    PolicyOp::Rotate,
    PolicyOp::Brightness,
    PolicyOp::Color,
    PolicyOp::Contrast,
    PolicyOp::Sharpness,
    PolicyOp::Posterize,
    PolicyOp::Solarize,
    PolicyOp::AutoContrast,
    PolicyOp::Equalize,
    PolicyOp::Invert,
];

fn compare_policy(
    name: &str,
    operation: impl Fn(PolicyChoice, AffineStyle, [usize; 2]) -> Option<Operation>,
) {
    compare(name, |n, draw| {
        let style = AffineStyle {
            interpolation: INTERPOLATIONS[n % 3],
            fill: FILL,
        };
        let RgbImage { width, height, .. } = image(n);
        let operations = draw.iter().filter_map(|&code| {
            let code = code as usize;
            let choice = PolicyChoice {
                op: OPS[code / 100],
                bin: code % 100 / 2,
                negative: code % 2 == 1,
            };
            operation(choice, style, [width, height])
        });
        apply(n, operations)
    });
}

#[test]
fn policies_equal_torchvision() {
    compare_policy("rand_augment", |choice, style, size| {
        let policy = RandAugment {
            style,
            ..RandAugment::default()
        };
        // Several bins may have the recorded magnitude.
        let bin = policy.magnitude;
        policy.operation(PolicyChoice { bin, ..choice }, size)
    });
    compare_policy("trivial_augment_wide", |choice, style, size| {
        let policy = TrivialAugmentWide {
            style,
            ..TrivialAugmentWide::default()
        };
        policy.operation(choice, size)
    });
    compare_policy("auto_augment", |choice, style, size| {
        AutoAugment { style }.operation(choice, size)
    });
}

#[test]
fn rand_augment_equals_timm() {
    for (name, text) in [
        ("timm_rand_augment", "rand-m9-n2-mstd0.5"),
        ("timm_rand_augment_increasing", "rand-m9-n3-mstd0.5-inc1"),
    ] {
        let policy = TimmRandAugment {
            fill: FILL,
            ..TimmRandAugment::parse(text).unwrap()
        };
        compare(name, |n, draw| {
            let RgbImage { width, height, .. } = image(n);
            let operations = draw.as_chunks::<3>().0.iter().map(|&[op, magnitude, bits]| {
                let choice = TimmChoice {
                    op: TimmOp::ALL[op as usize],
                    magnitude,
                    negative: bits as u8 & 1 == 1,
                    interpolation: INTERPOLATIONS[1 + bits as usize / 2],
                };
                policy.operation(choice, [width, height])
            });
            apply(n, operations)
        });
    }
}

/// Returns an image's channels as floats, one after the other.
fn planes(image: &RgbImage) -> Vec<f32> {
    let pixels = image.data.as_chunks::<3>().0;
    (0..3)
        .flat_map(|channel| pixels.iter().map(move |pixel| pixel[channel].into()))
        .collect()
}

#[test]
fn mixup_equals_timm() {
    compare("mixup", |n, draw| {
        let images = [0, 1, 2, 3].map(|k| array(4 * n + k, 7, 9));
        let mut mixture = Mixture {
            weight: draw[0],
            cut: None,
        };
        if let &[_, top, bottom, left, right] = draw {
            let cut = Rectangle {
                rows: [top as usize, bottom as usize],
                columns: [left as usize, right as usize],
            };
            mixture = Mixture::of_rectangle(cut, [9, 7]);
        }
        let mixtures = [mixture; 4];
        let mut pixels: Vec<u8> = images.iter().flat_map(|image| image.data.clone()).collect();
        mix_bytes(&mut pixels, &mixtures, 7);
        let mut floats: Vec<f32> = images.iter().flat_map(planes).collect();
        mix_planes(&mut floats, &mixtures, [9, 7]);
        floats.extend(soft_targets(&[0, 1, 2, 3], &mixtures, 5, 0.1));
        pixels.extend(floats.into_iter().flat_map(f32::to_le_bytes));
        pixels
    });
}

#[test]
fn erasing_equals_timm() {
    compare("random_erasing", |n, draw| {
        let image = image(n);
        let mut planes = planes(&image);
        for rectangle in draw.as_chunks::<4>().0 {
            let [top, left, height, width] = rectangle.map(|side| side as usize);
            let erasure = Erasure {
                top,
                left,
                height,
                width,
                values: vec![0.0],
            };
            erasure.apply(&mut planes, [image.width, image.height]);
        }
        planes.into_iter().flat_map(f32::to_le_bytes).collect()
    });
}
