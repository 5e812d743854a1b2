//! Models exported to ONNX on a GPU, by `examples/onnx.rs` and as image classifiers.

use std::fs;

use hipvit::image::{Limits, open};
use hipvit::model::ImageRule;
use hipvit::reference::model_tolerance;
use hipvit::{Device, Session};

use crate::support::at;
use crate::support::gpu::{device, dtypes};
use crate::support::onnx::example::compare;
use crate::support::onnx::{Golden, views};

/// Models of each kind: attention, convolutions of all kinds, integers as inputs.
const MODELS: [&str; 4] = ["vit", "convnext", "resnet", "clip_text"];

#[test]
fn exported_models_agree_with_the_cpu() {
    let Some((device, _shared)) = device() else {
        return;
    };
    for dtype in dtypes() {
        for name in MODELS {
            let path = at("tests/golden/onnx").join(name).join("model.onnx");
            let path = path.to_str().unwrap();
            let compared =
                compare(path, &[], device, dtype).unwrap_or_else(|error| panic!("{name}: {error}"));
            let nodes = Session::builder()
                .device(Device::Cpu)
                .load(path)
                .unwrap()
                .graph()
                .nodes()
                .len();
            let tolerance = 2.0 * model_tolerance(dtype, nodes);
            let difference = compared.difference.unwrap();
            assert!(
                difference <= tolerance,
                "{name} in {dtype}: differs by {difference:.1e}, allowed {tolerance:.1e}"
            );
            println!("{name} in {dtype}: {difference:.1e}, allowed {tolerance:.1e}");
        }
    }
}

#[test]
fn operators_agree_with_onnx_runtime() {
    let Some((device, _shared)) = device() else {
        return;
    };
    for golden in Golden::of_operators() {
        let session = Session::builder().device(device).load(&golden.model).unwrap();
        let inputs = golden.inputs();
        let outputs = session.run_tensors(views(&inputs)).unwrap();
        let difference = golden.difference(&outputs);
        println!("{}: {difference:.1e}", session.name());
        // Products of libraries and of ONNX Runtime are summed in different orders.
        assert!(difference <= 1e-5, "{}: {difference:.1e}", golden.model.display());
    }
}

#[test]
fn exported_classifiers_take_images() {
    let Some((device, _shared)) = device() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("convnext.onnx");
    fs::copy(at("tests/golden/onnx/convnext/model.onnx"), &path).unwrap();
    let image = open(at("assets/samples/7.png"), Limits::default()).unwrap();
    let builder = Session::builder().image_rule(ImageRule::default());
    let on_cpu = builder.clone().device(Device::Cpu).load(&path).unwrap();
    let expected = on_cpu.run([&image]).unwrap();
    let expected = expected.logits().unwrap();
    let largest = expected.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
    for dtype in dtypes() {
        let session = builder.clone().device(device).dtype(dtype).load(&path).unwrap();
        // Later runs are replayed, and checked.
        for _ in 0..4 {
            let outputs = session.run([&image, &image]).unwrap();
            let tolerance = 2.0 * model_tolerance(dtype, session.graph().nodes().len());
            for row in outputs.logits().unwrap().rows() {
                for (got, expected) in row.iter().zip(expected) {
                    let error = f64::from((got - expected).abs() / largest);
                    assert!(
                        error <= tolerance,
                        "{dtype}: {got}, expected {expected} within {tolerance:.1e}"
                    );
                }
            }
        }
    }
}
