#![allow(clippy::unwrap_used, reason = "a test")]

use hipvit_image::RgbImage;

use super::*;
use crate::random::{Draw, Purpose};

fn stream(index: u64) -> Stream {
    let draw = Draw {
        purpose: Purpose::Augment,
        epoch: 0,
        index,
        repeat: 0,
    };
    Stream::new(9, draw)
}

fn gradient(width: usize, height: usize) -> RgbImage {
    let data = (0..width * height * 3).map(|at| at as u8).collect();
    RgbImage { width, height, data }
}

/// Returns all transforms, the last of which gives images of 12 × 10 pixels.
fn all() -> Vec<Transform> {
    vec![
        Transform::HorizontalFlip(0.5),
        Transform::VerticalFlip(0.5),
        Transform::ColorJitter(ColorJitter {
            brightness: 0.4,
            contrast: 0.4,
            saturation: 0.4,
            hue: 0.1,
        }),
        Transform::RandAugment(RandAugment::default()),
        Transform::TimmRandAugment(TimmRandAugment::parse("rand-m10-n4-mstd1-mmax12-inc1").unwrap()),
        Transform::AutoAugment(AutoAugment::default()),
        Transform::TrivialAugmentWide(TrivialAugmentWide::default()),
        Transform::RandomResizedCrop(RandomResizedCrop {
            size: [20, 24],
            ..RandomResizedCrop::default()
        }),
        Transform::RandomCrop(RandomCrop {
            size: [10, 12],
            padding: 2,
            ..RandomCrop::default()
        }),
    ]
}

#[test]
fn the_stream_determines_the_result() {
    let augmentation = Augmentation::new(all()).unwrap();
    let result = |index| {
        augmentation
            .prepare(gradient(33, 21), &mut stream(index))
            .unwrap()
    };
    for index in 0..50 {
        let image = result(index);
        assert_eq!((image.width, image.height, image.data.len()), (12, 10, 360));
        assert_eq!(image, result(index));
    }
    assert_ne!(result(0), result(1));
}

/// Images of one row or column must not cause panics.
#[test]
fn thin_images_are_transformed_or_refused() {
    for transform in all() {
        for [width, height] in [[1, 1], [1, 300], [300, 1], [2, 3]] {
            for index in 0..20 {
                let augmentation = Augmentation::new(vec![transform.clone()]).unwrap();
                // A crop refuses images that are too small.
                let _ = augmentation.prepare(gradient(width, height), &mut stream(index));
            }
        }
    }
}

#[test]
fn crops_have_the_area_and_aspect_ratio_of_the_range() {
    let crop = RandomResizedCrop::default();
    let mut mean = 0.0;
    for index in 0..2000 {
        let [operation, _] = crop.draw(&mut stream(index), [400, 300]);
        let Operation::Crop {
            top,
            left,
            height,
            width,
        } = operation
        else {
            unreachable!("the first operation is the crop");
        };
        assert!(top >= 0 && top as usize + height <= 300, "{operation:?}");
        assert!(left >= 0 && left as usize + width <= 400, "{operation:?}");
        let (area, ratio) = ((height * width) as f64 / 120_000.0, width as f64 / height as f64);
        assert!(
            (0.078..=1.0).contains(&area) && (0.74..1.35).contains(&ratio),
            "{operation:?}"
        );
        mean += area / 2000.0;
    }
    // torchvision's `get_params` has mean 0.4345 and standard deviation 0.217 by 40,000 draws. The bound is five standard
    // errors.
    assert!((mean - 0.4345).abs() < 0.025, "{mean}");
}

#[test]
fn auto_augment_applies_operations_with_their_probability() {
    let policy = AutoAugment::default();
    let drawn = (0..5000)
        .map(|index| policy.draw(&mut stream(index)).len())
        .sum::<usize>();
    let expected: f64 = (0..25)
        .flat_map(AutoAugment::pair)
        .map(|(_, probability, _)| probability / 25.0)
        .sum();
    // Five standard errors of the sum of two Bernoulli variables are below 0.05.
    assert!(
        (drawn as f64 / 5000.0 - expected).abs() < 0.05,
        "{drawn}, {expected}"
    );
}

#[test]
fn erasing_has_the_probability_and_area_of_the_range() {
    let erasing = RandomErasing {
        probability: 0.4,
        ..RandomErasing::default()
    };
    let draws: Vec<_> = (0..2000)
        .map(|index| erasing.draw(&mut stream(index), [64, 48]))
        .collect();
    let erased = draws.iter().filter(|draw| !draw.is_empty()).count();
    assert!((700..900).contains(&erased), "{erased}");
    for erasure in draws.iter().flatten() {
        let area = (erasure.height * erasure.width) as f64 / (64.0 * 48.0);
        assert!((0.015..0.36).contains(&area), "{erasure:?}");
        assert!(
            erasure.top + erasure.height <= 48 && erasure.left + erasure.width <= 64,
            "{erasure:?}"
        );
    }
    let pixel = RandomErasing {
        probability: 1.0,
        mode: EraseMode::Pixel,
        ..erasing
    };
    let erasure = &pixel.draw(&mut stream(0), [64, 48])[0];
    let mut planes = vec![f32::NAN; 3 * 64 * 48];
    erasure.apply(&mut planes, [64, 48]);
    let values: Vec<f32> = planes.into_iter().filter(|value| !value.is_nan()).collect();
    assert_eq!(values, erasure.values);
}

#[test]
fn timm_text_is_read_or_refused_by_section() {
    let policy = TimmRandAugment::parse("rand-m7-n3-p0.8-mstd101-inc1").unwrap();
    assert_eq!(
        (policy.magnitude, policy.operations, policy.probability),
        (7.0, 3, 0.8)
    );
    assert!(policy.increasing && policy.deviation > 100.0);
    for (text, section) in [
        ("augmix-m3", "augmix-m3"),
        ("rand-w0", "`w0`"),
        ("rand-m9-t3a", "`t3a`"),
        ("rand-mstd", "`mstd`"),
    ] {
        let error = TimmRandAugment::parse(text).unwrap_err().to_string();
        assert!(error.contains(section), "{error}");
    }
}

#[test]
fn invalid_policies_are_refused_when_they_are_read() {
    let read = |json: &str| serde_json::from_str::<Augmentation>(json);
    let valid =
        r#"[{"random_resized_crop": {"size": [32, 32]}}, {"horizontal_flip": 0.5}, {"rand_augment": {}}]"#;
    let augmentation = read(valid).unwrap();
    assert_eq!(augmentation.transforms().len(), 3);
    let text = serde_json::to_string(&augmentation).unwrap();
    assert_eq!(read(&text).unwrap(), augmentation);
    for (json, reason) in [
        (r#"[{"rand_augment": {"bins": 1}}]"#, "1 bins"),
        (r#"[{"rand_augment": {"magnitude": 31}}]"#, "magnitude 31"),
        (r#"[{"color_jitter": {"brightnes": 1}}]"#, "brightnes"),
        (r#"[{"rotate": 3}]"#, "rotate"),
    ] {
        let error = read(json).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}
