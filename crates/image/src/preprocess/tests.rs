use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

use super::*;
use crate::noise::noise;

#[derive(Deserialize)]
struct Goldens {
    /// Width and height of each image. The seed of an image is its position.
    sizes: Vec<(usize, usize)>,
    cases: Vec<Golden>,
}

#[derive(Deserialize)]
struct Golden {
    library: String,
    config: Value,
    #[serde(default)]
    use_test_size: bool,
    /// CRC of the little-endian pixel values of each image.
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
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/image/preprocess.json");
    let goldens: Goldens = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let images: Vec<RgbImage> = goldens
        .sizes
        .iter()
        .zip(0..)
        .map(|(&(width, height), seed)| noise(width, height, seed))
        .collect();
    assert_eq!(goldens.cases.len(), 36);
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

#[derive(Deserialize)]
struct TileGoldens {
    sizes: Vec<(usize, usize)>,
    cases: Vec<TileGolden>,
}

#[derive(Deserialize)]
struct TileGolden {
    config: Value,
    /// Rows, columns, and the CRC of the bytes of all tiles.
    images: Vec<(usize, usize, u32)>,
}

#[test]
fn tiles_equal_those_of_transformers() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/image/tiles.json");
    let goldens: TileGoldens = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(goldens.cases.len(), 5);
    for golden in &goldens.cases {
        let tiling = Tiling::from_hf(Path::new("p.json"), &golden.config, None).unwrap();
        let rule = hf(&golden.config).unwrap();
        assert_eq!(rule.output_size(), (tiling.tile(), tiling.tile()));
        for ((&(width, height), seed), &(rows, columns, crc32)) in
            goldens.sizes.iter().zip(0..).zip(&golden.images)
        {
            let tiles = tiling.split(&noise(width, height, seed)).unwrap();
            assert_eq!((tiles.rows, tiles.columns), (rows, columns), "{}", golden.config);
            assert!(tiles.images.len() <= tiling.max_tiles());
            let mut bytes = Vec::new();
            for tile in &tiles.images {
                // The model's rule leaves tiles as they are.
                assert_eq!(rule.apply(tile).unwrap().data, tile.data);
                bytes.extend_from_slice(&tile.data);
            }
            assert_eq!(
                crc32fast::hash(&bytes),
                crc32,
                "{width}×{height}: {}",
                golden.config
            );
        }
    }
    let vit = json!({"image_processor_type": "ViTImageProcessor"});
    let error = Tiling::from_hf(Path::new("p.json"), &vit, None).unwrap_err();
    assert!(error.to_string().contains("does not divide images"), "{error}");
}

fn hf(config: &Value) -> Result<Preprocess> {
    Preprocess::from_hf(Path::new("preprocessor_config.json"), config, Some("vit"))
}

fn timm_rule(cfg: &Value) -> Result<Preprocess> {
    Preprocess::from_timm(Path::new("config.json"), cfg, &TimmOptions::default())
}

#[test]
fn a_rule_says_what_it_does_in_one_line() {
    let rule = timm_rule(&json!({"input_size": [3, 224, 224], "crop_pct": 0.9})).unwrap();
    assert_eq!(
        rule.to_string(),
        "resize shortest edge to 248 bicubic, crop 224×224, divide by 255, subtract mean [0.485, 0.456, 0.406], \
         divide by std [0.229, 0.224, 0.225]"
    );
    assert_eq!(
        (rule.mean()[0], rule.std()[2], rule.rescale()),
        (0.485, 0.225, 1.0 / 255.0)
    );
    let rule = hf(&json!({"do_normalize": false, "size": 8})).unwrap();
    assert_eq!(
        rule.to_string(),
        format!("resize to 8×8 bilinear, multiply by {}", 1.0 / 255.0)
    );
    assert_eq!((rule.mean(), rule.std()), ([0.0; 3], [1.0; 3]));
    assert_eq!(serde_json::to_value(&rule).unwrap()["resize"][1], "bilinear");
}

#[test]
fn the_processor_class_comes_from_the_file_or_the_model_type() {
    for name in [
        "CLIPImageProcessor",
        "CLIPImageProcessorFast",
        "CLIPImageProcessorPil",
        "CLIPFeatureExtractor",
    ] {
        let rule = hf(&json!({"image_processor_type": name})).unwrap();
        assert_eq!(
            rule.resize(),
            Some((
                Resize::Shortest {
                    edge: 224,
                    longest: None
                },
                Filter::Bicubic
            ))
        );
    }
    let rule = hf(&json!({"feature_extractor_type": "DeiTFeatureExtractor"})).unwrap();
    assert_eq!(rule.output_size(), (224, 224));
    assert_eq!(hf(&json!({})).unwrap().resize().unwrap().1, Filter::Bilinear);
    assert!(Preprocess::from_hf(Path::new("p.json"), &json!({}), None).is_err());
}

#[test]
fn a_larger_input_may_be_asked_of_timm() {
    let options = TimmOptions {
        input_size: Some((96, 128)),
        use_test_size: false,
    };
    let cfg = json!({"input_size": [3, 64, 64], "crop_pct": 1.0});
    let rule = Preprocess::from_timm(Path::new("config.json"), &cfg, &options).unwrap();
    assert_eq!(rule.output_size(), (96, 128));
    assert_eq!(
        rule.resize().unwrap().0,
        Resize::Cover {
            height: 96,
            width: 128
        }
    );
}

#[test]
fn bad_configurations_name_the_file_and_the_key() {
    let donut = |key: &str, value: Value| {
        let mut config = json!({"image_processor_type": "DonutImageProcessor"});
        config[key] = value;
        config
    };
    let cases = [
        (
            hf(&json!({"image_processor_type": "Owlv2ImageProcessor"})),
            "image_processor_type",
        ),
        (hf(&json!({"resample": 9})), "resample"),
        (hf(&json!({"size": {"longest_edge": 10}})), "size"),
        (hf(&json!({"size": {"height": 0, "width": 4}})), "size.height"),
        (hf(&json!({"size": -3})), "size"),
        (hf(&json!({"size": {"shortest_edge": 10}})), "size"),
        (hf(&json!({"do_center_crop": true})), "crop_size"),
        (hf(&json!({"do_pad": true, "pad_size": 300})), "pad_size"),
        (hf(&json!({"do_resize": "yes"})), "do_resize"),
        (hf(&json!({"rescale_factor": "tiny"})), "rescale_factor"),
        (hf(&json!({"image_mean": [0.5, 0.5]})), "image_mean"),
        (hf(&json!({"image_std": [0.5, 0.0, 0.5]})), "image_std"),
        (hf(&donut("do_pad", json!(false))), "do_pad"),
        (hf(&donut("do_thumbnail", json!(false))), "do_thumbnail"),
        (hf(&donut("do_center_crop", json!(true))), "do_center_crop"),
        (hf(&donut("resample", json!(0))), "resample"),
        (hf(&donut("size", json!([48]))), "size"),
        (
            hf(&json!({"image_processor_type": "SmolVLMImageProcessor", "max_image_size": 3})),
            "max_image_size",
        ),
        (hf(&json!([1, 2])), "object"),
        (timm_rule(&json!({"input_size": [224, 224]})), "input_size"),
        (timm_rule(&json!({"input_size": [1, 224, 224]})), "input_size"),
        (timm_rule(&json!({"interpolation": "random"})), "interpolation"),
        (timm_rule(&json!({"crop_mode": "border", "mean": 0.5})), "mean"),
        (timm_rule(&json!({"mean": [0.5, 0.5]})), "mean"),
        (timm_rule(&json!({"crop_pct": -1})), "crop_pct"),
        (timm_rule(&json!({"mean": "grey"})), "mean"),
        (timm_rule(&json!({"std": [0, 0, 0]})), "std"),
    ];
    for (result, key) in cases {
        let text = result.unwrap_err().to_string();
        assert!(
            text.contains("config.json: ") && text.contains(key) && !text.contains('\n'),
            "{key}: {text}"
        );
    }
}

#[test]
fn a_batch_is_its_images_one_after_the_other() {
    let rule = hf(&json!({"size": 20})).unwrap();
    let images = [noise(31, 17, 1), noise(5, 90, 2), noise(20, 20, 3)];
    let batch = rule.apply_batch(&images).unwrap();
    let single: Vec<u8> = images
        .iter()
        .flat_map(|image| rule.apply(image).unwrap().data)
        .collect();
    assert_eq!(batch, single);
    assert!(rule.apply_into(&images[0], &mut [0; 3]).is_err());
    assert!(rule.normalize(&batch, &mut [0.0; 4]).is_err());
}

#[test]
fn thin_images_pass_or_are_refused_as_in_pillow() {
    // 1×20000 grows to 224×4,480,000 before the crop. Only the crop is computed.
    let thin = noise(1, 20_000, 7);
    let rule = Preprocess::from_hf(Path::new("p.json"), &json!({}), Some("clip")).unwrap();
    assert_eq!(rule.apply(&thin).unwrap().data.len(), 224 * 224 * 3);
    // To fit into 8×8, the width would have to shrink to nothing.
    let rule = timm_rule(&json!({"input_size": [3, 8, 8], "crop_mode": "border", "crop_pct": 1.0})).unwrap();
    assert!(rule.apply(&thin).unwrap_err().to_string().contains("size"));
    // The image between the two steps would have 1920×38,400,000 pixels.
    let rule = hf(&json!({"image_processor_type": "DonutImageProcessor"})).unwrap();
    assert!(rule.apply(&thin).unwrap_err().to_string().contains("size"));
    let rule = hf(&json!({"image_processor_type": "DonutImageProcessor", "size": 8192})).unwrap();
    let error = rule.apply(&noise(1, 8, 7)).unwrap_err().to_string();
    assert!(error.contains("between two resizes"), "{error}");
}

#[test]
fn timm_takes_one_number_for_all_channels_and_false_values_for_missing() {
    let rule = |config: serde_json::Value| timm_rule(&config).unwrap();
    let default = rule(json!({}));
    for value in [json!(0.5), json!([0.5]), json!([0.5, 0.5, 0.5])] {
        assert_eq!(rule(json!({ "mean": value, "std": value })).mean(), [0.5; 3]);
    }
    for value in [
        json!(0),
        json!(0.0),
        json!([]),
        json!(null),
        json!(false),
        json!(""),
    ] {
        let config = json!({ "mean": value, "std": value, "crop_pct": value, "crop_mode": value, "interpolation": value });
        let read = rule(config);
        assert_eq!(
            (read.mean(), read.std(), read.resize()),
            (default.mean(), default.std(), default.resize())
        );
    }
    // A crop mode that timm does not know means the default.
    for mode in [json!("corner"), json!("SQUASH"), json!(1)] {
        assert_eq!(rule(json!({ "crop_mode": mode })).resize(), default.resize());
    }
    // Without a margin, and with a negative one.
    let edge = |pct: f64| rule(json!({ "crop_pct": pct })).resize().unwrap().0;
    assert_eq!(
        edge(1.0),
        Resize::Shortest {
            edge: 224,
            longest: None
        }
    );
    assert_eq!(
        edge(1.1),
        Resize::Shortest {
            edge: 203,
            longest: None
        }
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Cropping while resizing gives the same pixels as cropping after resizing.
    #[test]
    fn only_the_crop_is_computed(
        (w, h, edge, crop) in (1_usize..80, 1_usize..80, 1_usize..60, 1_usize..60),
        rounding in prop::sample::select(vec![Rounding::Torchvision, Rounding::Transformers]),
        seed: u64,
    ) {
        let image = noise(w, h, seed);
        let crop = Crop { height: crop, width: crop + 3, rounding, fill: [1, 2, 3] };
        let values = ValueRule { rescale: Rescale::None, normalize: None };
        let resize = Resize::Shortest { edge, longest: None };
        let at_once = Preprocess::new(Some((resize, Filter::Bicubic)), Some(crop), values.clone()).unwrap();
        let (height, width) = resize.target(h, w);
        let resized = crate::resize(&image, width, height, Filter::Bicubic).unwrap();
        let afterwards = Preprocess::new(None, Some(crop), values).unwrap();
        prop_assert_eq!(at_once.apply(&image).unwrap(), afterwards.apply(&resized).unwrap());
    }
}

#[test]
fn dinov3_has_defaults_of_its_own() {
    let config = json!({ "image_processor_type": "DINOv3ViTImageProcessorFast" });
    let rule = Preprocess::from_hf(Path::new("preprocessor_config.json"), &config, None).unwrap();
    let exact = Resize::Exact {
        height: 224,
        width: 224,
    };
    assert_eq!(rule.resize(), Some((exact, crate::Filter::Bilinear)));
    assert_eq!(
        (rule.mean(), rule.std()),
        ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    );
    let by_type = Preprocess::from_hf(
        Path::new("preprocessor_config.json"),
        &json!({}),
        Some("dinov3_vit"),
    );
    assert_eq!(by_type.unwrap().resize(), rule.resize());
}
