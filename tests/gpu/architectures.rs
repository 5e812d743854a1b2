//! Real architectures with random weights, against the CPU executor.

use std::fs;
use std::time::Instant;

use half::f16;
use hipvit::reference::model_tolerance;
use hipvit::{DType, Device, Session};
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::json;

use crate::support::gpu::{device, dtypes, replayed};
use crate::support::session::{compare, epsilon, pixels, run_pixels};

/// A timm directory of `vit_<name>_patch16_224` with random weights in f16, of a size that keeps activations near 1.
fn random_vit(name: &str, dim: usize, seed: u64) -> tempfile::TempDir {
    let classes = 1000;
    let mut shapes: Vec<(String, Vec<usize>)> = vec![
        ("cls_token".into(), vec![1, 1, dim]),
        ("pos_embed".into(), vec![1, 197, dim]),
        ("patch_embed.proj.weight".into(), vec![dim, 3, 16, 16]),
        ("patch_embed.proj.bias".into(), vec![dim]),
    ];
    let mut layer = |name: String, shape: &[usize]| {
        shapes.push((format!("{name}.weight"), shape.to_vec()));
        shapes.push((format!("{name}.bias"), vec![shape[0]]));
    };
    for block in (0..12).map(|i| format!("blocks.{i}")) {
        layer(format!("{block}.norm1"), &[dim]);
        layer(format!("{block}.attn.qkv"), &[3 * dim, dim]);
        layer(format!("{block}.attn.proj"), &[dim, dim]);
        layer(format!("{block}.norm2"), &[dim]);
        layer(format!("{block}.mlp.fc1"), &[4 * dim, dim]);
        layer(format!("{block}.mlp.fc2"), &[dim, 4 * dim]);
    }
    layer("norm".into(), &[dim]);
    layer("head".into(), &[classes, dim]);

    let mut state = seed;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    let tensors: Vec<(String, Vec<usize>, Vec<u8>)> = shapes
        .into_iter()
        .map(|(name, shape)| {
            let inner: usize = shape[1..].iter().product();
            let (mean, spread) = match shape.len() {
                1 if name.contains("norm") && name.ends_with("weight") => (1.0, 0.2),
                1 => (0.0, 0.1),
                3 => (0.0, 0.5),
                _ => (0.0, (3.0 / inner as f32).sqrt()),
            };
            let value = |_| f16::from_f32(mean + spread * uniform()).to_le_bytes();
            let bytes = (0..shape.iter().product::<usize>()).flat_map(value).collect();
            (name, shape, bytes)
        })
        .collect();
    let views = tensors.iter().map(|(name, shape, bytes)| {
        let view = TensorView::new(Dtype::F16, shape.clone(), bytes).unwrap();
        (name.as_str(), view)
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.safetensors");
    safetensors::serialize_to_file(views, None, &file).unwrap();
    let config = json!({
        "architecture": format!("vit_{name}_patch16_224"),
        "num_classes": classes,
        "num_features": dim,
        "global_pool": "token",
        "pretrained_cfg": {
            "input_size": [3, 224, 224], "interpolation": "bicubic", "crop_pct": 0.9, "crop_mode": "center",
            "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5], "num_classes": classes,
            "first_conv": "patch_embed.proj", "classifier": "head",
        },
    });
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    folder
}

fn check_random_vit(device: Device, dtype: DType, name: &str, dim: usize, runs: usize) {
    let begun = Instant::now();
    let folder = random_vit(name, dim, 7);
    let cpu = Session::builder()
        .device(Device::Cpu)
        .load(folder.path())
        .unwrap();
    let input = pixels(&cpu, 1);
    let expected = run_pixels(&cpu, &input);
    let expected = expected.logits().unwrap().mapv(f64::from);
    drop(cpu);
    let session = Session::builder()
        .device(device)
        .dtype(dtype)
        .load(folder.path())
        .unwrap();
    let bound = model_tolerance(dtype, session.graph().nodes().len());
    for run in 0..runs {
        let outputs = run_pixels(&session, &input);
        let (error, _) = compare(outputs.logits().unwrap(), &expected, epsilon(dtype));
        assert!(
            error <= bound,
            "{name} in {dtype}, run {run}: {error:.2e} of {bound:.1e}"
        );
        if run == 0 {
            println!("PASS {dtype:<4} ViT-{name}/16 error {error:.2e} of {bound:.1e}");
        }
    }
    if runs > 1 {
        println!("{:?}", replayed(&session));
    }
    println!("ViT-{name}/16 {dtype}: {:.1?}", begun.elapsed());
}

/// Typical sizes of models: heads of 64 channels, 197 tokens.
#[test]
fn vit_tiny_agrees_with_the_cpu_in_every_dtype() {
    let Some((device, _shared)) = device() else { return };
    for dtype in dtypes() {
        // Emulated, f32 takes long where no matrix core multiplies it.
        let runs = if dtype == DType::F32 { 1 } else { 3 };
        check_random_vit(device, dtype, "tiny", 192, runs);
    }
}

#[test]
fn vit_base_agrees_with_the_cpu() {
    let Some((device, _shared)) = device() else { return };
    check_random_vit(device, DType::F16, "base", 768, 1);
}
