//! Classification by texts on emulated GPUs.

use hipvit::reference::model_tolerance;
use hipvit::{DType, Session};
use serde_json::Value;

use crate::support::at;
use crate::support::emulated::{available, hipvit};
use crate::support::program::{stderr, stdout};
use crate::support::zero_shot::{directory, expected, golden};

/// The text tower with its causal attention on emulated GPUs.
#[test]
fn emulated_gpus_classify_by_texts() {
    if !available() {
        return;
    }
    let golden = golden("hf_clip");
    let directory = directory("hf_clip");
    let image = at("tests/golden/images").join(&golden.images[0]);
    let nodes = Session::load(&directory).unwrap().graph().nodes().len();
    let expected = expected("hf_clip", "logits_per_image");
    let scale = 2.3_f64.exp();
    for gpu in ["gfx942", "gfx1100"] {
        for (name, dtype) in [("f32", DType::F32), ("f16", DType::F16), ("bf16", DType::BF16)] {
            let model = directory.to_str().unwrap();
            let mut arguments = vec!["classify", image.to_str().unwrap(), "--model", model];
            arguments.extend(["--device", "hip", "--dtype", name, "--json", "--logits", "--text"]);
            arguments.extend(golden.texts.iter().map(String::as_str));
            let output = hipvit(gpu, &arguments);
            assert!(output.status.success(), "{gpu} {name}: {}", stderr(&output));
            assert!(!stderr(&output).contains("hip-emu: "), "{}", stderr(&output));
            let line: Value = serde_json::from_str(stdout(&output)).unwrap();
            // An element of an embedding is off by so much of the largest, the whole by √20 times that of its length at most; so is
            // the text's.
            let tolerance = scale * 2.0 * 20_f64.sqrt() * model_tolerance(dtype, nodes);
            let logits = line["logits"].as_array().unwrap();
            for (got, expected) in logits.iter().zip(expected.row(0)) {
                let error = (got.as_f64().unwrap() - expected).abs();
                assert!(
                    error <= tolerance,
                    "{gpu} {name}: {got}, expected {expected} within {tolerance}"
                );
            }
            println!("{gpu} {name}: within {tolerance:.1e}");
        }
    }
}
