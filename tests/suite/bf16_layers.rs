//! Models with layers in bf16, alone or with int8 and f32: `hipvit quantize --to bf16` and `bf16_layers` of
//! `config.json`.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use hipvit::image::{Limits, RgbImage};
use hipvit::{DType, Device, Session};
use hipvit_quantize::{Options, Precision, Report, quantize};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};

use crate::at;
use crate::command_line::{hipvit, stderr, stdout};
use crate::quantize::{DIGITS, Tensors, difference, digits, on_cpu, outputs, quantized, refused, rewrite};

/// Copies weights and a changed configuration to another directory.
fn with_config(from: &Path, to: &Path, change: impl Fn(&mut Value)) {
    fs::create_dir(to).unwrap();
    fs::copy(from.join("model.safetensors"), to.join("model.safetensors")).unwrap();
    let mut config: Value = serde_json::from_slice(&fs::read(from.join("config.json")).unwrap()).unwrap();
    change(&mut config);
    fs::write(to.join("config.json"), config.to_string()).unwrap();
}

/// Quantises `model` into `directory` with all layers of its blocks in bf16.
pub(crate) fn in_bf16(model: Option<&Path>, directory: &Path) -> Report {
    let options = Options {
        precision: Precision::Bf16,
        ..Options::default()
    };
    quantize(model, directory, options, []).unwrap()
}

/// Layers in f32, bf16 and int8 in one model.
#[test]
fn three_precisions_in_one_model_stay_as_accurate() {
    let dir = tempfile::tempdir().unwrap();
    let [int8, bf16, out] = ["int8", "bf16", "mixed"].map(|name| dir.path().join(name));
    quantized(None, &int8);
    in_bf16(None, &bf16);
    let tensors = |directory: &Path| -> Tensors {
        let bytes = fs::read(directory.join("model.safetensors")).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let owned = |(name, view): (String, TensorView<'_>)| {
            (name, (view.dtype(), view.shape().to_vec(), view.data().to_vec()))
        };
        tensors.tensors().into_iter().map(owned).collect()
    };
    let (of_bf16, full) = (tensors(&bf16), tensors(&at("assets/tinyvit32")));
    let blocks = 0..4;
    let names = |layer: &str| {
        blocks
            .clone()
            .map(|block| format!("blocks.{block}.{layer}"))
            .collect::<Vec<_>>()
    };
    let (fc2, projections) = (names("mlp.fc2"), names("attn.proj"));
    with_config(&int8, &out, |config| config["bf16_layers"] = json!(fc2));
    rewrite(&out, |of_int8| {
        for (layers, other) in [(&fc2, &of_bf16), (&projections, &full)] {
            for layer in layers {
                let weight = format!("{layer}.weight");
                assert!(of_int8.remove(&format!("{weight}_scale")).is_some());
                of_int8.insert(weight.clone(), other[&weight].clone());
            }
        }
    });

    let images: Vec<RgbImage> = digits()
        .into_iter()
        .map(|(source, _)| source.decode(Limits::default()).unwrap())
        .collect();
    let expected = outputs(
        &Session::builder().device(Device::Cpu).tinyvit32().unwrap(),
        &images,
    );
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        let session = Session::builder()
            .device(Device::Cpu)
            .dtype(dtype)
            .load(&out)
            .unwrap();
        let quantization = session.info().quantization.as_ref().unwrap();
        assert_eq!((quantization.int8, quantization.bf16), (8, 4));
        let (error, others) = difference(&expected, &outputs(&session, &images));
        println!(
            "{dtype}: logit error {:.3} %, {others} of {} differ",
            100.0 * error,
            images.len()
        );
        assert!(error > 0.0 && error < 0.05, "{dtype}: {error}");
    }
    let run = |args: &[&str]| {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        let output = hipvit([&args[..], &["-m".into(), out.clone().into()]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output).to_owned()
    };
    let evaluated: Value = serde_json::from_str(&run(&[
        "eval",
        "--device",
        "cpu",
        "--json",
        at(DIGITS).to_str().unwrap(),
    ]))
    .unwrap();
    // 357 are correct in full precision; the limit is 0.3 points fewer.
    assert!(evaluated["correct"].as_u64().unwrap() >= 356, "{evaluated}");
    let classified = run(&[
        "classify",
        "--device",
        "cpu",
        at("assets/samples/7.png").to_str().unwrap(),
    ]);
    assert!(classified.contains("seven"), "{classified}");
    for (section, part) in [
        (None, "4 weights in bf16, multiplied in bf16 on the CPU"),
        (Some("--graph"), "linear bf16"),
    ] {
        let args: Vec<&str> = ["inspect"].into_iter().chain(section).collect();
        let inspected = run(&args);
        // A table may break lines.
        let words: Vec<&str> = inspected
            .split([' ', '\n', '│'])
            .filter(|word| !word.is_empty())
            .collect();
        let expected: Vec<&str> = part.split(' ').collect();
        let found = words.windows(expected.len()).any(|words| {
            let mut pairs = words.iter().zip(&expected);
            pairs.all(|(word, expected)| word.starts_with(expected))
        });
        assert!(found, "`{part}` is not in: {inspected}");
    }
    let bytes = |model: &Path, dtype: &str| {
        let args = ["inspect", "--device", "cpu", "--json", "--dtype", dtype, "-m"].map(OsString::from);
        let output = hipvit([&args[..], &[model.into()]].concat());
        let report: Value = serde_json::from_str(stdout(&output)).unwrap();
        report["cpu_weights"]["bytes"].as_u64().unwrap()
    };
    // Two bytes less for each weight of four blocks: QKV, projection, FC1, FC2.
    let embedded = at("assets/tinyvit32");
    let all = bytes(&embedded, "f32") - bytes(&bf16, "f32");
    assert_eq!(all, 4 * 64 * (192 + 64 + 128 + 128) * 2);
    // Heads and patch embeddings are in the session's dtype.
    assert_eq!(bytes(&bf16, "bf16"), bytes(&embedded, "bf16"));
}

#[test]
fn the_command_writes_bf16() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("model");
    let to = |more: &[OsString]| {
        let args: [OsString; 5] = [
            "quantize".into(),
            "--to".into(),
            "bf16".into(),
            "-o".into(),
            out.clone().into(),
        ];
        hipvit([&args[..], more].concat())
    };
    let refused = to(&["--calibrate".into(), at(DIGITS).into()]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("leave out --calibrate") && !out.exists());
    let output = to(&[]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        text.contains("16 weights in bf16") && text.contains("not quantised: head"),
        "{text}"
    );
    let config: Value = serde_json::from_slice(&fs::read(out.join("config.json")).unwrap()).unwrap();
    assert_eq!(config["bf16_layers"].as_array().unwrap().len(), 16);
    // No layer has 8 bits.
    assert!(config.get("quantization_config").is_none());
    let full = Session::builder().device(Device::Cpu).tinyvit32().unwrap();
    let images: Vec<RgbImage> = digits()
        .into_iter()
        .take(60)
        .map(|(source, _)| source.decode(Limits::default()).unwrap())
        .collect();
    let expected = outputs(&full, &images);
    let (error, others) = difference(&expected, &outputs(&on_cpu(&out), &images));
    // Two roundings to eight significant bits in each of sixteen layers.
    assert!(error > 0.0 && error < 0.01 && others == 0, "{error}, {others}");
    // Without the list, only the weights are rounded.
    let plain = dir.path().join("plain");
    with_config(&out, &plain, |config| {
        _ = config.as_object_mut().unwrap().remove("bf16_layers");
    });
    let session = on_cpu(&plain);
    assert!(session.info().quantization.is_none());
    let (of_weights, _) = difference(&expected, &outputs(&session, &images));
    assert!(0.0 < of_weights && of_weights < error, "{of_weights} {error}");
}

#[test]
fn contradictory_layers_in_bf16_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let good = dir.path().join("good");
    in_bf16(None, &good);
    let weight = "blocks.1.mlp.fc1.weight";
    let model = dir.path().join("f32");
    with_config(&good, &model, |_| ());
    rewrite(&model, |tensors| {
        let (dtype, _, data) = tensors.get_mut(weight).unwrap();
        *dtype = Dtype::F32;
        data.resize(2 * data.len(), 0);
    });
    refused(
        &["inspect".into(), model.into()],
        &["model.safetensors", weight, "is F32", "bf16_layers"],
    );
    let unknown = [
        "model.safetensors",
        "belongs to no linear layer of the model",
        "bf16_layers",
    ];
    for (name, layers, parts) in [
        (
            "unknown",
            json!(["blocks.1.mlp.fc1", "blocks.4.mlp.fc1"]),
            [&unknown[..], &["blocks.4.mlp.fc1.weight"]].concat(),
        ),
        (
            "norm",
            json!(["blocks.1.norm1"]),
            vec!["blocks.1.norm1.weight", "is F32", "bf16_layers"],
        ),
        (
            "text",
            json!("blocks.1.mlp.fc1"),
            vec!["config.json", "`bf16_layers`", "expected a list of strings"],
        ),
        (
            "number",
            json!([1]),
            vec!["config.json", "`bf16_layers`", "expected a list of strings"],
        ),
    ] {
        let model = dir.path().join(name);
        with_config(&good, &model, |config| config["bf16_layers"] = layers.clone());
        refused(&["inspect".into(), model.into()], &parts);
    }
    // A bf16 tensor that is not a linear layer's weight.
    let model = dir.path().join("norm-in-bf16");
    with_config(&good, &model, |config| config["bf16_layers"] = json!(["fc_norm"]));
    rewrite(&model, |tensors| {
        let (dtype, _, data) = tensors.get_mut("fc_norm.weight").unwrap();
        *dtype = Dtype::BF16;
        *data = data
            .as_chunks::<4>()
            .0
            .iter()
            .flat_map(|&[_, _, low, high]| [low, high])
            .collect();
    });
    refused(
        &["inspect".into(), model.into()],
        &[&unknown[..], &["fc_norm.weight"]].concat(),
    );
    let again: [OsString; 4] = [
        "quantize".into(),
        good.into(),
        "-o".into(),
        dir.path().join("again").into(),
    ];
    refused(&again, &["bf16_layers", "quantised already"]);
}
