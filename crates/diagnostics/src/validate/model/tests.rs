//! A wrong weight is reported at its layer, and correct weights pass.

use std::fs;
use std::path::Path;

use super::*;

const TINY: &str = "assets/tinyvit32";

fn at(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Returns TinyViT32 with the first value of a tensor changed.
fn changed(tensor: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(at(TINY).join("config.json"), folder.path().join("config.json")).unwrap();
    let mut bytes = fs::read(at(TINY).join("model.safetensors")).unwrap();
    let offset = {
        let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let data = tensors.tensor(tensor).unwrap().data().as_ptr();
        data as usize - bytes.as_ptr() as usize
    };
    let value: &mut [u8] = &mut bytes[offset..offset + 4];
    let before = f32::from_le_bytes([value[0], value[1], value[2], value[3]]);
    value.copy_from_slice(&(before + 1.0).to_le_bytes());
    fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
    folder
}

fn options() -> ModelOptions {
    ModelOptions {
        device: Device::Cpu,
        threads: Some(1),
        ..ModelOptions::default()
    }
}

#[test]
fn the_optimized_model_is_the_unoptimized_one_layer_by_layer() {
    let report = validate_model(&options()).unwrap();
    assert!(report.is_clean(), "{report}");
    let names: Vec<&str> = report.layers.iter().map(|layer| layer.name.as_str()).collect();
    let blocks = names.iter().filter(|name| name.starts_with("block ")).count();
    assert!(blocks >= 2, "{names:?}");
    assert_eq!(names[0], "patch embedding");
    assert_eq!(
        names[1 + blocks..],
        [
            "final tokens",
            "embedding",
            "logits",
            "embedding, as served",
            "logits, as served"
        ]
    );
    assert_eq!(report.images, 10);
    assert_eq!(report.layers[0].shape[0], 10);
    assert_eq!(report.baseline.optimizations, Optimizations::NONE);
    assert!(report.layers.iter().all(|layer| layer.tolerance == 2e-4));
    assert!(
        report
            .text(Some(80))
            .lines()
            .all(|line| line.chars().count() <= 80)
    );
}

#[test]
fn a_wrong_weight_is_named_at_its_layer() {
    for (tensor, layer) in [
        ("patch_embed.proj.bias", "patch embedding"),
        ("blocks.0.attn.proj.bias", "block 0"),
        ("blocks.1.mlp.fc2.bias", "block 1"),
        ("fc_norm.bias", "embedding"),
        ("head.bias", "logits"),
    ] {
        let baseline = changed(tensor);
        let report = validate_model(&ModelOptions {
            baseline_model: Some(baseline.path().to_owned()),
            ..options()
        })
        .unwrap();
        assert_eq!(report.first_beyond.as_deref(), Some(layer), "{tensor}\n{report}");
        assert!(!report.is_clean());
        let message = report.failure_message().unwrap();
        assert!(message.contains(layer), "{message}");
        // Earlier layers are within their tolerance.
        let first = report
            .layers
            .iter()
            .position(|found| found.name == layer)
            .unwrap();
        assert!(report.layers[..first].iter().all(|layer| layer.within));
    }
}

#[test]
fn hashes_are_of_the_weights_and_the_pixels() {
    let same = validate_model(&options()).unwrap();
    let other = validate_model(&ModelOptions {
        model: Some(changed("blocks.0.attn.proj.bias").path().to_owned()),
        images: vec![RgbImage::new(32, 32, vec![7; 3 * 32 * 32]).unwrap()],
        ..options()
    })
    .unwrap();
    assert!(other.is_clean(), "{other}");
    assert_eq!(same.weights_sha256.len(), 64);
    assert_ne!(same.weights_sha256, other.weights_sha256);
    assert_ne!(same.pixels_sha256, other.pixels_sha256);
    assert_eq!(
        validate_model(&options()).unwrap().weights_sha256,
        same.weights_sha256
    );
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let refused = |options: ModelOptions| validate_model(&options).unwrap_err().to_string();
    let eager = refused(ModelOptions {
        against: Some(Baseline::Eager),
        ..options()
    });
    assert!(eager.contains("replays no graphs"), "{eager}");
    let other = refused(ModelOptions {
        baseline_model: Some(at("tests/golden/timm_test_vit")),
        ..options()
    });
    assert!(other.contains("of the same form"), "{other}");
    let dtype = refused(ModelOptions {
        dtype: DType::I8,
        ..options()
    });
    assert!(dtype.contains("the CPU computes in f32, f16 or bf16"), "{dtype}");
    for (text, expected) in [
        ("cpu", Some(Baseline::Cpu)),
        ("emu:gfx942", Some(Baseline::Provider("emu:gfx942".into()))),
        ("/opt/lib.so", Some(Baseline::Provider("/opt/lib.so".into()))),
        ("gpu", None),
    ] {
        assert_eq!(text.parse::<Baseline>().ok(), expected, "{text}");
    }
}

#[test]
fn random_images_have_structure_and_are_the_same_each_time() {
    let model = model::load(&at("tests/golden/timm_test_vit"), &LoadOptions::default()).unwrap();
    let [first, again] = [0, 1].map(|_| images::default(&model, false).unwrap());
    assert_eq!(first.len(), 2);
    assert_eq!(first[0].data, again[0].data);
    assert_ne!(first[0].data, first[1].data);
}
