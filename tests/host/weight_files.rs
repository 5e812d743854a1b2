//! Weight files of training programs, and files whose content differs from their names.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use hipvit::image::Limits;
use hipvit::model::{self, InputKind, LoadOptions};
use hipvit::{RunInput, RunOptions, Session};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::at;
use crate::support::program::{hipvit, stderr, stdout};

/// Copies a model's directory without its goldens.
fn copy(from: &Path) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if !entry.file_name().to_str().unwrap().starts_with("golden") {
            fs::copy(entry.path(), directory.path().join(entry.file_name())).unwrap();
        }
    }
    directory
}

fn golden(name: &str) -> TempDir {
    copy(&at("tests/golden").join(name))
}

/// Rewrites a weight file: name, dtype, shape and bytes of each tensor.
fn rewrite(file: &Path, change: impl Fn(&str, Dtype, &[u8]) -> (String, Dtype, Vec<u8>)) {
    let bytes = fs::read(file).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let changed: Vec<_> = tensors
        .iter()
        .map(|(name, tensor)| {
            (
                change(name, tensor.dtype(), tensor.data()),
                tensor.shape().to_vec(),
            )
        })
        .collect();
    let views = changed
        .iter()
        .map(|((name, dtype, bytes), shape)| (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap()));
    let written = safetensors::serialize(views, None).unwrap();
    fs::write(file, written).unwrap();
}

fn prefix(file: &Path, prefix: &str) {
    rewrite(file, |name, dtype, bytes| {
        (format!("{prefix}{name}"), dtype, bytes.to_vec())
    });
}

fn refusal(path: &Path) -> String {
    let message = model::load(path, &LoadOptions::default())
        .unwrap_err()
        .to_string();
    assert!(!message.contains('\n'), "{message}");
    message
}

/// Returns the logits or, without a classifier, the embedding of an image.
fn result(path: &Path) -> Vec<f32> {
    let session = Session::load(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let image = hipvit::image::open(at("tests/golden/images/small.png"), Limits::default()).unwrap();
    let outputs = session.run([&image]).unwrap();
    let values = outputs.logits().unwrap_or_else(|| outputs.embeddings());
    values.iter().copied().collect()
}

/// Returns the result of `hipvit classify` for the image of the cases.
fn classify(case: &str) -> Vec<f64> {
    let (image, model) = (at("tests/cases/image.png"), at("tests/cases").join(case));
    let output = hipvit([
        OsStr::new("classify"),
        image.as_os_str(),
        "-m".as_ref(),
        model.as_os_str(),
        "--json".as_ref(),
        "--logits".as_ref(),
    ]);
    assert!(output.status.success(), "{case}: {}", stderr(&output));
    let row: Value = serde_json::from_str(stdout(&output).lines().next().unwrap()).unwrap();
    let logits = row["logits"].as_array().unwrap();
    logits.iter().map(|value| value.as_f64().unwrap()).collect()
}

fn quantize(model: &Path, to: &str, target: &Path) {
    let output = hipvit([
        OsStr::new("quantize"),
        model.as_os_str(),
        "--to".as_ref(),
        to.as_ref(),
        "-o".as_ref(),
        target.as_os_str(),
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
}

fn close(got: &[f64], expected: &[f64]) {
    assert_eq!(got.len(), expected.len());
    assert!(
        got.iter().zip(expected).all(|(a, b)| (a - b).abs() < 2e-6),
        "{got:?}, expected {expected:?}"
    );
}

#[test]
fn prefixes_of_training_are_removed_as_timm_does() {
    let expected = [0.266302, -0.172483, 0.234771, 0.023898, 0.481575];
    for prefixed in ["module_", "_orig_mod_", "_orig_mod_module_"] {
        close(&classify(&format!("04_timm_prefix/{prefixed}")), &expected);
    }
}

#[test]
fn prefixes_of_training_are_removed_in_every_library_s_files() {
    for (model, file) in [
        ("hf_vit", "model.safetensors"),
        ("hf_dinov3_gated", "model.safetensors"),
        ("hf_siglip", "model.safetensors"),
        ("timm_eva02", "model.safetensors"),
        ("zero_shot/hf_clip", "model.safetensors"),
        ("zero_shot/open_clip", "open_clip_model.safetensors"),
    ] {
        let expected = result(golden(model).path());
        for prefixes in [
            "module.",
            "_orig_mod.",
            "module._orig_mod.",
            "_orig_mod.module.",
            "module.module.",
        ] {
            let directory = golden(model);
            prefix(&directory.path().join(file), prefixes);
            assert_eq!(result(directory.path()), expected, "{model} {prefixes}");
        }
    }
}

#[test]
fn prefixes_of_training_are_removed_from_shards_and_quantised_models() {
    let expected = result(golden("hf_vit_sharded").path());
    let directory = golden("hf_vit_sharded");
    let index = directory.path().join("model.safetensors.index.json");
    let mut document: Value = serde_json::from_str(&fs::read_to_string(&index).unwrap()).unwrap();
    let map = document["weight_map"].as_object().unwrap().clone();
    let mut files: Vec<&str> = map.values().map(|file| file.as_str().unwrap()).collect();
    files.sort_unstable();
    files.dedup();
    for file in files {
        prefix(&directory.path().join(file), "module.");
    }
    document["weight_map"] = map
        .iter()
        .map(|(name, file)| (format!("module.{name}"), file.clone()))
        .collect();
    fs::write(&index, document.to_string()).unwrap();
    assert_eq!(result(directory.path()), expected);

    let quantised = tempfile::tempdir().unwrap();
    for format in ["int8", "fp8"] {
        let target = quantised.path().join(format);
        quantize(&at("tests/golden/hf_vit"), format, &target);
        let expected = result(&target);
        prefix(&target.join("model.safetensors"), "_orig_mod.module.");
        assert_eq!(result(&target), expected, "{format}");
    }
}

/// A `state_dict()` in memory has the names of the modules. transformers 5 has changed them, but not those in
/// its files.
#[test]
fn names_of_modules_of_transformers_5_are_those_of_its_files() {
    let expected = result(golden("hf_vit").path());
    let directory = golden("hf_vit");
    rewrite(
        &directory.path().join("model.safetensors"),
        |name, dtype, bytes| {
            let module = name
                .replace("encoder.layer.", "layers.")
                .replace("attention.attention.query", "attention.q_proj")
                .replace("attention.attention.key", "attention.k_proj")
                .replace("attention.attention.value", "attention.v_proj")
                .replace("attention.output.dense", "attention.o_proj")
                .replace("intermediate.dense", "mlp.fc1")
                .replace("output.dense", "mlp.fc2");
            (format!("module.{module}"), dtype, bytes.to_vec())
        },
    );
    assert_eq!(result(directory.path()), expected);
}

#[test]
fn other_prefixes_are_named() {
    for (prefixes, model) in [
        ("model.", "timm_test_vit"),
        ("backbone.", "hf_vit"),
        ("student.module.", "timm_eva02"),
    ] {
        let directory = golden(model);
        prefix(&directory.path().join("model.safetensors"), prefixes);
        let message = refusal(directory.path());
        let named = format!("all tensors of the file begin with `{prefixes}`");
        assert!(
            message.contains(&named) && message.contains("removeprefix"),
            "{message}"
        );
    }
    let directory = golden("timm_test_vit");
    let file = directory.path().join("model.safetensors");
    rewrite(&file, |name, dtype, bytes| {
        let name = if name == "norm.bias" {
            "module.norm.weight"
        } else {
            name
        };
        (name.to_owned(), dtype, bytes.to_vec())
    });
    let message = refusal(directory.path());
    assert!(
        message.contains("`norm.weight`: occurs twice, with different prefixes"),
        "{message}"
    );
}

#[test]
fn weights_in_f64_are_read() {
    close(
        &classify("18_f64_weights"),
        &[0.753883, -0.132305, 0.035003, -0.333545, -0.119511],
    );
    for model in [
        "hf_dinov2_swiglu",
        "timm_test_vit",
        "timm_eva02",
        "zero_shot/hf_clip",
    ] {
        let expected = result(golden(model).path());
        let directory = golden(model);
        rewrite(&directory.path().join("model.safetensors"), wide);
        assert_eq!(result(directory.path()), expected, "{model}");
    }
    let directory = golden("timm_test_vit");
    rewrite(
        &directory.path().join("model.safetensors"),
        |name, dtype, bytes| {
            let (name, dtype, mut bytes) = wide(name, dtype, bytes);
            if name == "norm.bias" {
                bytes[..8].copy_from_slice(&1e300f64.to_le_bytes());
            }
            (name, dtype, bytes)
        },
    );
    let message = refusal(directory.path());
    assert!(
        message.contains("`norm.bias`: has the value 1e300, which exceeds F32"),
        "{message}"
    );
}

fn wide(name: &str, dtype: Dtype, bytes: &[u8]) -> (String, Dtype, Vec<u8>) {
    assert_eq!(dtype, Dtype::F32);
    let values = bytes
        .as_chunks()
        .0
        .iter()
        .map(|&b| f64::from(f32::from_le_bytes(b)));
    (
        name.to_owned(),
        Dtype::F64,
        values.flat_map(f64::to_le_bytes).collect(),
    )
}

#[test]
fn weights_in_f64_are_quantised() {
    let directory = golden("hf_vit");
    rewrite(&directory.path().join("model.safetensors"), wide);
    let (target, plain) = (directory.path().join("wide"), directory.path().join("plain"));
    quantize(directory.path(), "int8", &target);
    quantize(&at("tests/golden/hf_vit"), "int8", &plain);
    assert_eq!(result(&target), result(&plain));
}

#[test]
fn other_dtypes_are_refused_where_they_matter() {
    for (dtype, named) in [
        (Dtype::I64, "I64"),
        (Dtype::F8_E4M3, "F8_E4M3"),
        (Dtype::F8_E5M2, "F8_E5M2"),
        (Dtype::BOOL, "BOOL"),
    ] {
        let directory = golden("timm_test_vit");
        rewrite(&directory.path().join("model.safetensors"), |name, old, bytes| {
            if name != "norm.bias" {
                return (name.to_owned(), old, bytes.to_vec());
            }
            (
                name.to_owned(),
                dtype,
                vec![0; bytes.len() / 4 * dtype.bitsize() / 8],
            )
        });
        let message = refusal(directory.path());
        assert!(
            message.contains("`norm.bias`") && message.contains(named),
            "{message}"
        );
    }
}

#[test]
fn wrapped_models_of_timm_give_the_wrapper_s_values() {
    for name in ["classifier", "model", "processor"] {
        let directory = at("tests/golden/wrapped").join(name);
        let bytes = fs::read(directory.join("golden.safetensors")).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let pixels = tensors.tensor("pixel_values").unwrap();
        let pixels: Vec<f32> = pixels
            .data()
            .as_chunks()
            .0
            .iter()
            .map(|&b| f32::from_le_bytes(b))
            .collect();
        let expected = tensors.tensor("output").unwrap();
        let expected: Vec<f64> = expected
            .data()
            .as_chunks()
            .0
            .iter()
            .map(|&b| f64::from_le_bytes(b))
            .collect();
        let largest = expected
            .iter()
            .fold(0f64, |largest, value| largest.max(value.abs()));

        let session = Session::builder()
            .input(InputKind::PixelValues)
            .load(&directory)
            .unwrap();
        let outputs = session
            .run_with(RunInput::Values(&pixels), RunOptions::new())
            .unwrap();
        let from_values = outputs.logits().unwrap_or_else(|| outputs.embeddings());
        let from_values: Vec<f32> = from_values.iter().copied().collect();
        for got in [from_values, result(&directory)] {
            assert_eq!(got.len(), expected.len(), "{name}");
            for (got, expected) in got.iter().zip(&expected) {
                let error = (f64::from(*got) - expected).abs() / largest;
                assert!(error <= 2e-5, "{name}: {got}, expected {expected}");
            }
        }
    }
}

#[test]
fn a_wrapped_model_without_image_rules_is_refused() {
    let directory = copy(&at("tests/golden/wrapped/classifier"));
    let file = directory.path().join("config.json");
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    config["pretrained_cfg"] = Value::Null;
    fs::write(&file, config.to_string()).unwrap();
    let message = refusal(directory.path());
    assert!(message.contains("`pretrained_cfg` is missing"), "{message}");
    let directory = copy(&at("tests/golden/wrapped/model"));
    let file = directory.path().join("config.json");
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    config["do_pooling"] = json!(false);
    fs::write(&file, config.to_string()).unwrap();
    assert!(refusal(directory.path()).contains("`do_pooling` is false"));
}

const LFS: &[u8] = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";
const HTML: &[u8] = b"<!DOCTYPE html>\n<html><head><title>google/vit at main</title></head></html>";
const PICKLE: &[u8] = b"\x80\x02}q\x00(X\x06\x00\x00\x00weightq\x01K\x01u.";
const APPLE: &[u8] = b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X        ";

/// Returns the beginning of a ZIP archive as `torch.save` writes it.
fn torch_zip() -> Vec<u8> {
    let mut bytes = b"PK\x03\x04".to_vec();
    bytes.resize(26, 0);
    bytes.extend([12, 0, 0, 0]);
    bytes.extend(b"model/data.pkl\x80\x02");
    bytes[26] = 14;
    bytes
}

#[test]
fn a_weight_file_that_is_something_else_says_what() {
    let gzip = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03abcdefgh";
    let zip = torch_zip();
    let contents: [(&[u8], &str); 8] = [
        (
            LFS,
            "is a Git LFS pointer, not the file itself. Fetch the file, in the directory of the clone: git lfs pull",
        ),
        (HTML, "is an HTML page, not the file itself"),
        (PICKLE, "is a Python pickle"),
        (&zip, "is a PyTorch file"),
        (APPLE, "is an AppleDouble file"),
        (gzip, "is compressed by gzip"),
        (b"", "is an empty file"),
        (b"\x89HDF\r\n\x1a\n", "is an HDF5 file"),
    ];
    for (content, expected) in contents {
        for (model, file) in [
            ("timm_test_vit", "model.safetensors"),
            ("zero_shot/open_clip", "open_clip_model.safetensors"),
        ] {
            let directory = golden(model);
            let file = directory.path().join(file);
            fs::write(&file, content).unwrap();
            let message = refusal(directory.path());
            assert!(
                message.starts_with(file.to_str().unwrap()) && message.contains(expected),
                "{message}"
            );
            if expected.contains("PyTorch") || expected.contains("pickle") {
                assert!(
                    message.contains("torch.load(sys.argv[1], map_location=\"cpu\", weights_only=True)"),
                    "{message}"
                );
            }
        }
    }
    let message = refusal(&at("tests/cases/19_lfs_pointer"));
    assert!(
        message.contains("19_lfs_pointer/model.safetensors: is a Git LFS pointer"),
        "{message}"
    );
}

#[test]
fn a_json_file_that_is_something_else_says_what() {
    let contents: [(&str, &[u8], &str); 5] = [
        ("config.json", LFS, "is a Git LFS pointer"),
        ("preprocessor_config.json", HTML, "is an HTML page"),
        ("config.json", APPLE, "is an AppleDouble file"),
        ("config.json", b"", "is an empty file"),
        (
            "config.json",
            b"\xff\xfe{\x00}\x00",
            "is text in UTF-16. Save it in UTF-8",
        ),
    ];
    for (file, content, expected) in contents {
        let directory = golden("hf_vit");
        fs::write(directory.path().join(file), content).unwrap();
        let message = refusal(directory.path());
        assert!(message.contains(&format!("{file}: {expected}")), "{message}");
    }
    let directory = golden("hf_vit_sharded");
    fs::write(directory.path().join("model.safetensors.index.json"), LFS).unwrap();
    let message = refusal(directory.path());
    assert!(
        message.contains("model.safetensors.index.json: is a Git LFS pointer"),
        "{message}"
    );
}

#[test]
fn a_cut_weight_file_says_how_much_is_there() {
    let directory = golden("timm_test_vit");
    let file = directory.path().join("model.safetensors");
    let whole = fs::read(&file).unwrap();
    for kept in [whole.len() - 1, whole.len() / 2, 100] {
        fs::write(&file, &whole[..kept]).unwrap();
        let message = refusal(directory.path());
        assert!(
            message.contains(&format!("is truncated: it has {kept} of ")),
            "{message}"
        );
    }
    fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    let message = refusal(directory.path());
    assert!(
        message.contains(&format!("of {} bytes. Download", whole.len())),
        "{message}"
    );
}

#[test]
fn weights_in_other_formats_say_how_to_convert_them() {
    let with_weights_as = |name: &str, content: &[u8]| -> (TempDir, PathBuf) {
        let directory = golden("timm_test_vit");
        fs::remove_file(directory.path().join("model.safetensors")).unwrap();
        let file = directory.path().join(name);
        fs::write(&file, content).unwrap();
        (directory, file)
    };
    for name in ["model.pt", "checkpoint.pth", "model.bin", "last.ckpt"] {
        let (directory, file) = with_weights_as(name, &torch_zip());
        for path in [directory.path(), &file] {
            let message = refusal(path);
            assert!(
                message.contains(name) && message.contains("python3 -c 'import sys, torch"),
                "{message}"
            );
        }
    }
    let (directory, _) = with_weights_as("model.onnx", b"\x08\x07");
    assert!(refusal(directory.path()).contains("model.onnx has weights in a format that is not read"));
    // macOS' metadata files are not weight files.
    let (directory, file) = with_weights_as("._model.safetensors", APPLE);
    let message = refusal(directory.path());
    assert!(message.contains("is missing model.safetensors"), "{message}");
    assert!(refusal(&file).contains("is an AppleDouble file"));
    let (_directory, file) = with_weights_as("model.html", HTML);
    assert!(refusal(&file).contains("it is an HTML page"));
}
