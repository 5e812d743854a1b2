//! Statistics of attention's softmax from a model run, compared with the attention maps that `explain`
//! computes on the host.

use hipvit::{DType, Device, Session};
use safetensors::SafeTensors;
use serde_json::Value;

use crate::support::attention_statistics::{MODELS, compare};
use crate::support::program::{hipvit, stderr, stdout};

#[test]
fn statistics_are_those_of_the_attention_maps() {
    for name in MODELS {
        let worst = compare(name, Device::Cpu, DType::F32);
        println!("PASS {name:<20} {worst:.2e} of the bound");
    }
}

#[test]
fn explain_prints_and_writes_statistics() {
    let out = tempfile::tempdir().unwrap();
    let arguments = [
        "explain",
        "assets/samples/7.png",
        "--device",
        "cpu",
        "--method",
        "statistics",
    ];
    let run = |more: &[&str]| {
        let to = ["-o", out.path().to_str().unwrap()];
        let output = hipvit(arguments.iter().chain(more).chain(&to).copied());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output).to_owned()
    };
    let table = run(&[]);
    assert!(table.contains("blocks.3.attn"), "{table}");
    let report: Value = serde_json::from_str(&run(&["--json"])).unwrap();
    let bytes = std::fs::read(out.path().join("statistics.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let layers = report["layers"].as_array().unwrap();
    assert_eq!(layers.len(), 4);
    for layer in layers {
        let tensor = tensors
            .tensor(&format!("{}.entropy", layer["name"].as_str().unwrap()))
            .unwrap();
        assert_eq!(tensor.shape(), [1, 4, 64]);
        let values = tensor
            .data()
            .as_chunks()
            .0
            .iter()
            .map(|&b| f64::from(f32::from_le_bytes(b)));
        let mean = values.sum::<f64>() / 256.0;
        assert!((mean - layer["entropy"]["mean"].as_f64().unwrap()).abs() < 1e-9);
        assert!((layer["uniform_entropy"].as_f64().unwrap() - 64f64.ln()).abs() < 1e-12);
        let heads = layer["heads"].as_array().unwrap();
        let entropies: Vec<f64> = heads
            .iter()
            .map(|head| head["entropy"].as_f64().unwrap())
            .collect();
        assert!(entropies.is_sorted() && entropies.len() == 4);
    }
}

#[test]
fn of_no_image_there_are_no_statistics() {
    let builder = Session::builder().device(Device::Cpu).attention_statistics(true);
    let session = builder.tinyvit32().unwrap();
    let images: [hipvit::image::RgbImage; 0] = [];
    assert!(session.run(&images).unwrap().attention_statistics().is_empty());
}

#[test]
fn statistics_of_windows_are_refused() {
    let builder = Session::builder().attention_statistics(true);
    for name in ["timm_swin", "timm_hiera"] {
        let directory = crate::support::at("tests/golden").join(name);
        let error = builder.clone().load(directory).unwrap_err();
        assert!(error.to_string().contains("attends inside of windows"), "{error}");
    }
}
