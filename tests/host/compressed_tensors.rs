//! 8-bit models by compressed-tensors and transformers: `tests/golden/quantized`.

use std::fs;
use std::path::Path;

use hipvit::model::{Info, InputKind};
use hipvit::{Device, RunInput, RunOptions, Session};
use safetensors::SafeTensors;
use serde_json::{Value, json};

use crate::support::at;
use crate::support::quantize::{Tensors, refused, rewrite};

/// Number of linear layers in the models' blocks. The classifier is one more.
const LAYERS: usize = 12;
/// Name; weights multiplied in int8, those multiplied in full precision, dequantised ones; the same of FP8, of which none is
/// dequantised.
const CASES: [(&str, [usize; 5]); 13] = [
    ("int8_token", [LAYERS, 0, 0, 0, 0]),
    ("int8_token_range", [LAYERS, 0, 0, 0, 0]),
    ("int8_static", [LAYERS, 0, 0, 0, 0]),
    ("int8_static_range", [LAYERS, 0, 0, 0, 0]),
    ("int8_weights", [0, LAYERS, 0, 0, 0]),
    ("int8_asymmetric", [0, 0, LAYERS, 0, 0]),
    ("int8_asymmetric_tensor", [0, 0, LAYERS + 1, 0, 0]),
    ("int8_groups_of_4", [0, 0, LAYERS + 1, 0, 0]),
    ("fp8_dynamic", [0, 0, 0, LAYERS, 0]),
    ("fp8_static", [0, 0, 0, LAYERS, 0]),
    ("fp8_weights", [0, 0, 0, 0, LAYERS]),
    ("fp8_block", [0, 0, LAYERS, 0, 0]),
    ("mixed", [8, 0, 0, 0, 4]),
];

fn floats(tensors: &SafeTensors<'_>, name: &str) -> Vec<f32> {
    let tensor = tensors.tensor(name).unwrap();
    let chunks = tensor.data().as_chunks().0.iter();
    chunks.map(|&bytes| f32::from_le_bytes(bytes)).collect()
}

fn counts(info: &Info) -> [usize; 5] {
    let quantization = info.quantization.as_ref().unwrap();
    [
        quantization.int8,
        quantization.int8_weights,
        quantization.dequantized,
        quantization.float8,
        quantization.float8_weights,
    ]
}

/// Returns the root mean square difference, relative to the root mean square.
fn difference(expected: &[f32], got: impl Iterator<Item = f32>) -> f64 {
    let square = |values: &mut dyn Iterator<Item = f32>| values.map(|v| f64::from(v).powi(2)).sum::<f64>();
    let error = square(&mut got.zip(expected).map(|(a, b)| a - b));
    (error / square(&mut expected.iter().copied())).sqrt()
}

#[test]
fn logits_are_those_of_transformers() {
    let golden = fs::read(at("tests/golden/quantized/golden.safetensors")).unwrap();
    let golden = SafeTensors::deserialize(&golden).unwrap();
    let pixels = floats(&golden, "pixel_values");
    for (name, expected_counts) in CASES {
        let model = at("tests/golden/quantized").join(name);
        let session = Session::builder()
            .device(Device::Cpu)
            .input(InputKind::PixelValues)
            .load(&model)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(counts(session.info()), expected_counts, "{name}");
        let outputs = session
            .run_with(RunInput::Values(&pixels), RunOptions::new())
            .unwrap();
        let got = || outputs.logits().unwrap().iter().copied();
        let [int8, _, _, float8, _] = expected_counts;
        // `expected` has activations that are not in FP8.
        let expected = if float8 > 0 { "logits" } else { "expected" };
        let expected = floats(&golden, &format!("{name}.{expected}"));
        assert_eq!(got().count(), expected.len());
        let error = difference(&expected, got());
        let as_the_file_says = difference(&floats(&golden, &format!("{name}.logits")), got());
        println!("{name}: {error:.1e}; {as_the_file_says:.1e} with activations as the file says");
        // f32 rounding errors. If activations are rounded to 8 bits, some go to the adjacent level: one of
        // 255, or one of 16 in FP8.
        let limit = match (int8, float8) {
            (0, 0) => 1e-5,
            (_, 0) => 3e-3,
            _ => 1e-2,
        };
        assert!(error < limit, "{name}: {error:e}");
    }
}

fn copy(case: &str, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(at("tests/golden/quantized").join(case)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn what_is_missing_or_contradictory_is_refused() {
    const LAYER: &str = "vit.encoder.layer.0.attention.attention.key";
    type Change = fn(&mut Tensors);
    let dir = tempfile::tempdir().unwrap();
    let changes: [(&str, Change, &[&str]); 5] = [
        (
            "int8_static",
            |t| _ = t.remove(&format!("{LAYER}.input_scale")),
            &["key.input_scale", "is missing"],
        ),
        (
            "int8_static_range",
            |t| _ = t.remove(&format!("{LAYER}.input_zero_point")),
            &["key.input_zero_point", "is missing"],
        ),
        (
            "int8_asymmetric",
            |t| _ = t.remove(&format!("{LAYER}.weight_zero_point")),
            &["key.weight_zero_point", "is missing"],
        ),
        (
            "fp8_weights",
            |t| _ = t.remove(&format!("{LAYER}.weight_scale")),
            &["key.weight_scale", "F8_E4M3 and needs its scales"],
        ),
        (
            "int8_groups_of_4",
            |t| {
                let (_, shape, _) = t.get_mut(&format!("{LAYER}.weight_scale")).unwrap();
                shape.reverse();
            },
            &["key.weight_scale", "[6, 24], expected [24, 6]"],
        ),
    ];
    for (index, (case, change, parts)) in changes.into_iter().enumerate() {
        let model = dir.path().join(format!("tensors{index}"));
        copy(case, &model);
        rewrite(&model, change);
        refused(&["inspect".into(), model.into()], parts);
    }
    type Edit = fn(&mut Value);
    let edits: [(&str, Edit, &[&str]); 9] = [
        (
            "fp8_static",
            |q| {
                let group = &mut q["config_groups"]["group_0"];
                group["output_activations"] = group["input_activations"].clone();
            },
            &["config.json", "output_activations", "quantise the model again"],
        ),
        (
            "int8_token",
            |q| q["ignore"] = json!(["classifier", "re:.*key$"]),
            &["key.weight", "I8", "`ignore`"],
        ),
        (
            "int8_token",
            |q| q["ignore"] = json!(["re:("]),
            &["config.json", "ignore", "re:("],
        ),
        (
            "int8_token",
            |q| *q = json!({"quant_method": "torchao", "quant_type": {"default": "int8wo"}}),
            &["quant_method", "\"torchao\"", "compressed-tensors"],
        ),
        (
            "int8_token",
            |q| q["config_groups"]["group_0"]["weights"]["type"] = json!("float"),
            &["type", "\"int\""],
        ),
        (
            "fp8_weights",
            |q| q["config_groups"]["group_0"]["weights"]["type"] = json!("int"),
            &["F8_E4M3", "no group"],
        ),
        (
            "int8_token",
            |q| q["config_groups"]["group_0"]["input_activations"]["strategy"] = json!("tensor"),
            &["strategy", "\"tensor\""],
        ),
        (
            "fp8_weights",
            |q| q["quantization_status"] = json!("frozen"),
            &["quantization_status", "\"frozen\""],
        ),
        (
            "fp8_weights",
            |q| q["transform_config"] = json!({"config_groups": {"u": {"type": "hadamard"}}}),
            &["transform_config", "hadamard"],
        ),
    ];
    for (index, (case, edit, parts)) in edits.into_iter().enumerate() {
        let model = dir.path().join(format!("config{index}"));
        copy(case, &model);
        let file = model.join("config.json");
        let mut config: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        edit(&mut config["quantization_config"]);
        fs::write(&file, config.to_string()).unwrap();
        refused(&["inspect".into(), model.into()], parts);
    }
}
