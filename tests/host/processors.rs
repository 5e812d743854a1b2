//! Image processors' files in the locations and forms of transformers, and JSON as Python reads it.

use std::fs;
use std::path::Path;

use hipvit::image::{Limits, Preprocess, RgbImage, open};
use hipvit::model::{self, LoadOptions};
use hipvit::{Error, Session};
use safetensors::SafeTensors;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::at;
use crate::support::program::{hipvit, stderr, stdout};
use crate::support::quantize::quantized;

/// Returns the values of a tensor in a golden file.
fn golden(case: &str, name: &str) -> Vec<f64> {
    let bytes = fs::read(at("tests/golden/processor").join(case).join("golden.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let tensor = tensors.tensor(name).unwrap();
    match tensor.dtype() {
        safetensors::Dtype::F32 => {
            let values = tensor.data().as_chunks().0.iter();
            values.map(|&b| f64::from(f32::from_le_bytes(b))).collect()
        }
        _ => {
            let values = tensor.data().as_chunks().0.iter();
            values.map(|&b| f64::from_le_bytes(b)).collect()
        }
    }
}

fn images() -> [RgbImage; 2] {
    ["photo.jpg", "tall.png"]
        .map(|name| open(at("tests/golden/images").join(name), Limits::default()).unwrap())
}

/// Returns an image's values in the order of transformers.
fn pixel_values(rules: &Preprocess, image: &RgbImage) -> Vec<f32> {
    let bytes = rules.apply(image).unwrap().data;
    if rules.patch_grid(image.height, image.width).is_some() {
        return rules.normalize_patches(&bytes).unwrap().0;
    }
    let mut values = vec![f32::NAN; bytes.len()];
    rules.normalize(&bytes, &mut values).unwrap();
    values
}

#[track_caller]
fn near(what: &str, got: impl IntoIterator<Item = f32>, expected: &[f64], tolerance: f64) {
    let got: Vec<f32> = got.into_iter().collect();
    assert_eq!(got.len(), expected.len(), "{what}");
    for (got, expected) in got.iter().zip(expected) {
        assert!(
            (f64::from(*got) - expected).abs() <= tolerance,
            "{what}: {got}, expected {expected}"
        );
    }
}

#[test]
fn models_load_with_what_their_processor_saved() {
    for case in ["hf_clip", "hf_siglip", "hf_siglip2"] {
        let directory = at("tests/golden/processor").join(case);
        assert!(!directory.join("preprocessor_config.json").exists());
        let session = Session::load(&directory).unwrap();
        let values = images()
            .map(|image| pixel_values(session.preprocess(), &image))
            .concat();
        near(case, values, &golden(case, "pixel_values"), 0.0);
        let text = fs::read_to_string(directory.join("golden.json")).unwrap();
        let texts: Value = serde_json::from_str(&text).unwrap();
        let texts = texts["texts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|text| text.as_str().unwrap());
        let zero_shot = session.zero_shot(texts.collect::<Vec<_>>()).unwrap();
        let outputs = zero_shot.classify(images()).unwrap();
        let logits = golden(case, "logits_per_image");
        let largest = logits.iter().fold(0.0_f64, |most, logit| most.max(logit.abs()));
        // As in `zero_shot.rs`: similarities of unit vectors, multiplied by the scale.
        near(
            case,
            outputs.logits().unwrap().iter().copied(),
            &logits,
            1e-4 * largest,
        );
    }
}

#[test]
fn dinov3s_own_class_differs_by_a_level_at_most() {
    let session = Session::load(at("tests/golden/processor/hf_dinov3")).unwrap();
    assert_eq!(session.preprocess().output_size(), (32, 40));
    let values = images()
        .map(|image| pixel_values(session.preprocess(), &image))
        .concat();
    // The smallest standard deviation is 0.224.
    near(
        "hf_dinov3",
        values,
        &golden("hf_dinov3", "pixel_values"),
        1.01 / 255.0 / 0.224,
    );
}

/// Copies a model directory with different processor files: (name, text).
fn with(model: &str, files: &[(&str, &str)]) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(at(model)).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() != "preprocessor_config.json" && entry.file_type().unwrap().is_file() {
            fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
    }
    for (name, text) in files {
        fs::write(copy.path().join(name), text).unwrap();
    }
    copy
}

/// Returns the preprocessing in one line, or the error without the directory.
fn outcome(directory: &Path) -> String {
    match model::load(directory, &LoadOptions::default()) {
        Ok(model) => model.preprocess.to_string(),
        Err(error) => error.to_string().replace(directory.to_str().unwrap(), "DIR"),
    }
}

const VIT: &str = r#"{"image_processor_type": "ViTImageProcessor", "size": {"height": 32, "width": 32}}"#;
const CLIP: &str = r#"{"image_processor_type": "CLIPImageProcessor", "size": 36, "crop_size": 32}"#;
const PREPROCESSOR: &str = "preprocessor_config.json";
const PROCESSOR: &str = "processor_config.json";

#[test]
fn the_files_precedence_is_that_of_transformers() {
    let nested =
        |value: &str| format!(r#"{{"image_processor": {value}, "processor_class": "CLIPProcessor"}}"#);
    let (vit, clip, default) = (
        "resize to 32×32 bilinear,",
        "resize shortest edge to 36 bicubic, crop 32×32,",
        "resize to 224×224 bilinear,",
    );
    let neither = "DIR: is missing preprocessor_config.json, which says how images are prepared, and ";
    let no_processor = format!("{neither}has no processor_config.json instead");
    let no_key = format!("{neither}its processor_config.json has no `image_processor` instead");
    let nested_clip = nested(CLIP);
    for (preprocessor, processor, expected) in [
        (Some(VIT), None, vit),
        (None, Some(nested(CLIP)), clip),
        (Some(VIT), Some(nested(CLIP)), clip),
        // A processor's file of transformers 4 has no image processor.
        (
            Some(VIT),
            Some(r#"{"processor_class": "CLIPProcessor"}"#.to_owned()),
            vit,
        ),
        (Some(VIT), Some(nested("null")), vit),
        (Some(VIT), Some(CLIP.to_owned()), vit),
        (Some(VIT), Some("[1, 2]".to_owned()), vit),
        (Some("{"), Some(nested(CLIP)), clip),
        (
            Some(VIT),
            Some(r#"{"video_processor": {"size": 8}}"#.to_owned()),
            vit,
        ),
        // Without a class and keys, the defaults of the model's class count.
        (Some(VIT), Some(nested("{}")), default),
        // It is not looked for in the other file.
        (Some(nested_clip.as_str()), None, default),
        (None, None, no_processor.as_str()),
        (None, Some(CLIP.to_owned()), no_key.as_str()),
        (
            Some(VIT),
            Some(nested("7")),
            "DIR/processor_config.json: the image processor's configuration is not a JSON object",
        ),
        (
            Some(VIT),
            Some("{".to_owned()),
            "DIR/processor_config.json: is not valid JSON",
        ),
        (
            None,
            Some(nested(r#"{"do_resize": "no"}"#)),
            "DIR/processor_config.json: `do_resize` is \"no\", expected true or false",
        ),
    ] {
        let files = [(PREPROCESSOR, preprocessor), (PROCESSOR, processor.as_deref())];
        let files: Vec<(&str, &str)> = files
            .into_iter()
            .filter_map(|(name, text)| Some((name, text?)))
            .collect();
        let got = outcome(with("tests/golden/hf_vit_interpolated", &files).path());
        assert!(got.starts_with(expected), "{files:?}: {got}, expected {expected}");
    }
}

#[test]
fn config_json_may_name_the_class() {
    let directory = with("tests/golden/hf_vit", &[(PREPROCESSOR, r#"{"size": 32}"#)]);
    assert!(outcome(directory.path()).starts_with("resize to 32×32 bilinear"));
    let file = directory.path().join("config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    config["image_processor_type"] = json!("BeitImageProcessor");
    fs::write(&file, config.to_string()).unwrap();
    assert!(outcome(directory.path()).starts_with("resize to 32×32 bicubic"));
}

#[test]
fn a_model_in_memory_has_either_file() {
    let directory = at("tests/golden/processor/hf_clip");
    let read = |name: &str| fs::read(directory.join(name)).unwrap();
    let load = |processor: &[u8]| {
        Session::from_bytes(read("config.json"), read("model.safetensors"), Some(processor))
    };
    let expected = Session::load(&directory).unwrap().preprocess().to_string();
    let processor = read(PROCESSOR);
    assert_eq!(load(&processor).unwrap().preprocess().to_string(), expected);
    let inner: Value = serde_json::from_slice(&processor).unwrap();
    let inner = inner["image_processor"].to_string();
    assert_eq!(load(inner.as_bytes()).unwrap().preprocess().to_string(), expected);
    let error = load(br#"{"image_processor": null}"#).unwrap_err();
    assert!(matches!(error, Error::Config { .. }), "{error}");
}

/// Returns the logits that `hipvit classify` prints for the cases' image.
fn logits(directory: &Path, texts: &[&str]) -> Vec<f32> {
    let image = at("tests/cases/image.png");
    let [image, model] = [image.as_path(), directory].map(|path| path.to_str().unwrap());
    let arguments = [
        "classify", image, "-m", model, "--device", "cpu", "--json", "--logits",
    ];
    let output = hipvit(arguments.iter().chain(texts));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let line: Value = serde_json::from_str(stdout(&output)).unwrap();
    let logits = line["logits"].as_array().unwrap().iter();
    logits.map(|logit| logit.as_f64().unwrap() as f32).collect()
}

const NEAR: [f64; 5] = [0.753_883, -0.132_305, 0.035_003, -0.333_545, -0.119_511];

#[test]
fn the_cases_have_the_values_of_transformers() {
    let case = |name: &str| at("tests/cases").join(name);
    let texts = ["--text", "a cat", "the dog"];
    near(
        "01",
        logits(&case("01_processor_config_only"), &texts),
        &[-3.025_972, -2.144_494],
        5e-5,
    );
    let normalize = [0.816_616, 0.087_603, -0.177_314, 0.044_186, -0.249_144];
    near(
        "06",
        logits(&case("06_null_flags/do_normalize"), &[]),
        &normalize,
        1e-5,
    );
    let rescale = [0.804_618, 0.086_632, -0.180_836, 0.074_689, -0.246_471];
    near(
        "06",
        logits(&case("06_null_flags/do_rescale"), &[]),
        &rescale,
        1e-5,
    );
    near("14", logits(&case("14_json_nan"), &[]), &NEAR, 1e-5);

    let image = open(at("tests/cases/image.png"), Limits::default()).unwrap();
    for (name, mean) in [("clip_do_resize", 0.200_903), ("clip_do_normalize", 0.500_433)] {
        let model = model::load(&case("06_null_flags").join(name), &LoadOptions::default()).unwrap();
        assert_eq!(model.preprocess.output_size(), (32, 32));
        let values = pixel_values(&model.preprocess, &image);
        let sum: f64 = values.iter().map(|&value| f64::from(value)).sum();
        near(name, [(sum / values.len() as f64) as f32], &[mean], 1e-5);
    }
    // transformers makes images of 36×48 of it, which the model refuses.
    let text = outcome(&case("06_null_flags/clip_do_center_crop"));
    assert!(text.contains(&format!("{PREPROCESSOR}: `size` (shortest edge to 36) keeps the aspect ratio and `do_center_crop` is false")), "{text}");
}

#[test]
fn json_is_read_as_python_reads_it() {
    let edited = |file: &str, from: &str, to: &str| {
        let directory = with("tests/cases/14_json_nan", &[(PREPROCESSOR, VIT)]);
        let path = directory.path().join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(path, text.replacen(from, to, 1)).unwrap();
        outcome(directory.path())
    };
    let config = "config.json";
    for (file, from, to, expected) in [
        (
            config,
            "\"hidden_size\": 24",
            "\"hidden_size\": 7, \"hidden_size\": 24",
            "resize to 32×32",
        ),
        (config, "\"LABEL_0\"", "\"NaN, -Infinity\"", "resize to 32×32"),
        (
            PREPROCESSOR,
            "{\"image_processor_type\"",
            "{\"x\": [NaN, {\"y\": -Infinity}], \"image_processor_type\"",
            "resize to 32×32",
        ),
        (
            config,
            "\"hidden_size\": 24",
            "\"hidden_size\": NaN",
            "DIR/config.json: `hidden_size` is NaN, expected a whole number",
        ),
        (
            config,
            "\"layer_norm_eps\": 1e-12",
            "\"layer_norm_eps\": -Infinity",
            "DIR/config.json: `layer_norm_eps` is -Infinity, expected a number",
        ),
        (
            config,
            "\"hidden_act\": \"gelu\"",
            "\"hidden_act\": NaN",
            "DIR/config.json: `hidden_act` is NaN, expected a string",
        ),
        (
            config,
            "NaN",
            "nan",
            "DIR/config.json: is not valid JSON: expected ",
        ),
        (
            config,
            "{",
            "\u{feff}{",
            "DIR/config.json: begins with a byte order mark, which JSON does not allow.",
        ),
        (
            PREPROCESSOR,
            "{",
            "\u{feff}{",
            "DIR/preprocessor_config.json: begins with a byte order mark",
        ),
    ] {
        let got = edited(file, from, to);
        assert!(got.starts_with(expected), "{to}: {got}");
    }
}

#[test]
fn a_written_model_keeps_what_its_files_say() {
    let nested = format!(r#"{{"image_processor": {VIT}}}"#);
    let directory = with("tests/cases/14_json_nan", &[(PROCESSOR, &nested)]);
    let written = directory.path().join("written");
    quantized(Some(directory.path()), &written);
    let text = fs::read_to_string(written.join("config.json")).unwrap();
    assert!(
        text.contains("\"initializer_range\": NaN") && text.contains("Infinity\n"),
        "{text}"
    );
    assert_eq!(outcome(&written), outcome(directory.path()));
    let text = fs::read_to_string(written.join(PREPROCESSOR)).unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(&text).unwrap(),
        serde_json::from_str::<Value>(VIT).unwrap()
    );
}
