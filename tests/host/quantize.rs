//! `hipvit quantize`: its output loads, stays accurate, and is refused if damaged.

mod fp8;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use hipvit::evaluate::evaluate;
use hipvit::graph::{self, OutputKind, Passes};
use hipvit::image::{Limits, RgbImage};
use hipvit::model::{self, LoadOptions};
use hipvit::tensor::Input;
use hipvit::{DType, Device, RunInput, RunOptions, Session};
use hipvit_quantize::{Options, Precision, Scales, quantize};
use safetensors::Dtype;
use serde_json::{Value, json};

use crate::support::at;
use crate::support::program::{hipvit, stderr, stdout};
use crate::support::quantize::{
    DIGITS, Tensors, difference, digits, in_bf16, on_cpu, outputs, quantized, refused, rewrite,
};

#[test]
fn tinyvit32_stays_as_accurate() {
    let dir = tempfile::tempdir().unwrap();
    let images: Vec<RgbImage> = digits()
        .into_iter()
        .map(|(source, _)| source.decode(Limits::default()).unwrap())
        .collect();
    let full = Session::builder().device(Device::Cpu).tinyvit32().unwrap();
    let expected = outputs(&full, &images);
    let calibration = || images[..64].iter().cloned().map(Ok);
    for (name, scales, calibrated) in [
        ("plain", Scales::Largest, 0),
        ("mse", Scales::MeanSquare, 0),
        ("balanced", Scales::Largest, 64),
    ] {
        let out = dir.path().join(name);
        let options = Options {
            scales,
            ..Options::default()
        };
        let report = quantize(None, &out, options, calibration().take(calibrated)).unwrap();
        assert_eq!(
            (report.images, report.unquantized.as_slice()),
            (calibrated, &["head".to_owned()][..])
        );
        // The four layers and the two norms of each block.
        let blocks = full.info().depth;
        let balanced = if calibrated == 0 { 0 } else { 2 * blocks };
        assert_eq!((report.quantized, report.balanced), (4 * blocks, balanced));
        let session = on_cpu(&out);
        assert_eq!(session.info().parameters, full.info().parameters);
        let (error, others) = difference(&expected, &outputs(&session, &images));
        println!(
            "{name}: logit error {:.3} %, {others} of {} differ",
            100.0 * error,
            images.len()
        );
        // Rounding errors of about 1/255 of each range in some twenty layers.
        assert!(error > 0.0 && error < 0.05, "{name}: {error}");
        let result = evaluate(&session, digits(), Limits::default(), |item| {
            assert!(item.is_ok());
        })
        .unwrap();
        // 357 in full precision; at most 0.3 points fewer.
        assert!(
            result.correct >= 356,
            "{name}: {} of {}",
            result.correct,
            result.images
        );
    }
}

#[test]
fn every_family_computes_what_the_reference_does() {
    let dir = tempfile::tempdir().unwrap();
    let mut tried = 0;
    for case in fs::read_dir(at("tests/golden")).unwrap() {
        let path = case.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !path.join("config.json").exists() {
            continue;
        }
        let [out, bf16] = ["int8", "bf16"].map(|precision| dir.path().join(format!("{name}-{precision}")));
        let report = quantized(Some(&path), &out);
        assert!(
            report.quantized > 0 && report.bytes_after < report.bytes_before,
            "{name}: {report:?}"
        );
        assert_eq!(in_bf16(Some(&path), &bf16).quantized, report.quantized);
        computes_what_the_reference_does(&name, &out);
        computes_what_the_reference_does(&name, &bf16);
        tried += 1;
    }
    assert!(tried > 40, "{tried}");
}

fn computes_what_the_reference_does(name: &str, out: &Path) {
    let model = model::load(out, &LoadOptions::default()).unwrap();
    let [height, width] = model.info.image_size;
    let pixels: Vec<u8> = (0..height * width * 3).map(|i| (i * i % 251) as u8).collect();
    let (graph, _) = graph::optimize(model.graph, &Passes::default()).unwrap();
    let expected = graph::interpret(&graph, 1, Input::Pixels(&pixels)).unwrap();
    let got = on_cpu(out)
        .run_with(RunInput::Pixels(&pixels), RunOptions::new())
        .unwrap();
    let kind = match got.logits() {
        Some(_) => OutputKind::Logits,
        None => OutputKind::Embedding,
    };
    let got = got.logits().unwrap_or_else(|| got.embeddings());
    let (_, expected) = expected.iter().find(|(k, _)| *k == kind).unwrap();
    let largest = expected.iter().fold(0f64, |largest, v| largest.max(v.abs()));
    for (got, expected) in got.iter().zip(expected) {
        // If f32 and f64 round an activation to different levels, the difference is one of 255 steps of its
        // row; in bf16, one of 256 per power of two.
        let error = (f64::from(*got) - expected).abs();
        assert!(
            error <= largest / 64.0,
            "{name}: {got}, expected {expected} of {largest}"
        );
    }
}

#[test]
fn damaged_models_are_refused() {
    const WEIGHT: &str = "blocks.0.attn.qkv.weight";
    const SCALE: &str = "blocks.0.attn.qkv.weight_scale";
    let dir = tempfile::tempdir().unwrap();
    let good = dir.path().join("good");
    quantized(None, &good);
    let mut count = 0;
    let mut copy = || {
        count += 1;
        let to = dir.path().join(format!("case{count}"));
        fs::create_dir(&to).unwrap();
        for file in ["config.json", "model.safetensors"] {
            fs::copy(good.join(file), to.join(file)).unwrap();
        }
        to
    };
    type Change = Box<dyn Fn(&mut Tensors)>;
    let set = |at: usize, value: f32| {
        move |tensors: &mut Tensors| {
            let data = &mut tensors.get_mut(SCALE).unwrap().2;
            data[4 * at..4 * at + 4].copy_from_slice(&value.to_le_bytes());
        }
    };
    let cases: [(Change, &[&str]); 6] = [
        (
            Box::new(|t: &mut Tensors| _ = t.remove(SCALE)),
            &[SCALE, "is missing", "needs its scales"],
        ),
        (Box::new(set(3, f32::NAN)), &[SCALE, "NaN at index 3"]),
        (Box::new(set(0, -1.0)), &[SCALE, "-1 at index 0", "positive"]),
        (
            Box::new(|t: &mut Tensors| {
                let (_, shape, data) = t.get_mut(SCALE).unwrap();
                shape[0] = 2;
                data.truncate(8);
            }),
            &[SCALE, "[2, 1]", "expected ["],
        ),
        (
            Box::new(|t: &mut Tensors| {
                let (_, shape, data) = t.get_mut(WEIGHT).unwrap();
                data.truncate(data.len() / shape[0]);
                shape[0] = 1;
            }),
            &[WEIGHT, "shape [1, "],
        ),
        (
            Box::new(|t: &mut Tensors| {
                t.insert("head.weight_scale".into(), (Dtype::F32, vec![1, 1], vec![0; 4]));
            }),
            &["head.weight_scale", "unexpected"],
        ),
    ];
    for (change, parts) in cases {
        let model = copy();
        rewrite(&model, change);
        refused(&["inspect".into(), model.into()], parts);
    }
    type Edit = fn(&mut Value);
    let configs: [(Edit, &[&str]); 5] = [
        (
            |c| _ = c.as_object_mut().unwrap().remove("quantization_config"),
            &["is I8", "quantization_config"],
        ),
        (
            |c| c["quantization_config"]["quant_method"] = json!("gptq"),
            &["quant_method", "\"gptq\"", "compressed-tensors"],
        ),
        (
            |c| c["quantization_config"]["format"] = json!("pack-quantized"),
            &["format", "int-quantized"],
        ),
        (
            |c| c["quantization_config"]["config_groups"]["group_0"]["weights"]["num_bits"] = json!(4),
            &["num_bits", "4", "in 8 bits"],
        ),
        (
            |c| {
                c["quantization_config"]["config_groups"]["group_0"]["input_activations"]["dynamic"] =
                    json!(false);
            },
            &["dynamic", "false"],
        ),
    ];
    for (change, parts) in configs {
        let model = copy();
        let file = model.join("config.json");
        let mut config: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        change(&mut config);
        fs::write(&file, config.to_string()).unwrap();
        refused(
            &["inspect".into(), model.into()],
            &[&["config.json"], parts].concat(),
        );
    }
    // Quantised already; a directory with something in it stays as it is.
    refused(
        &[
            "quantize".into(),
            good.clone().into(),
            "-o".into(),
            dir.path().join("again").into(),
        ],
        &["quantised already"],
    );
    assert!(!dir.path().join("again").exists());
    let before = fs::read(good.join("model.safetensors")).unwrap();
    refused(
        &["quantize".into(), "-o".into(), good.clone().into()],
        &["good", "not empty"],
    );
    assert_eq!(fs::read(good.join("model.safetensors")).unwrap(), before);
    let hidden = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with('.');
    assert_eq!(
        fs::read_dir(dir.path()).unwrap().flatten().filter(hidden).count(),
        0
    );
}

#[test]
fn weights_without_quantised_activations_are_multiplied_in_f32() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("model");
    quantized(None, &out);
    let file = out.join("config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    config["quantization_config"]["config_groups"]["group_0"]["input_activations"] = Value::Null;
    fs::write(&file, config.to_string()).unwrap();
    let model = model::load(&out, &LoadOptions::default()).unwrap();
    let int8 = |name: &str| name.contains("int8");
    assert!(!model.graph.nodes().iter().any(|node| int8(&node.op.to_string())));
    let weights = model
        .graph
        .values()
        .iter()
        .filter(|value| value.dtype == DType::I8);
    assert_eq!(weights.count(), 4 * model.info.depth);
    let images: Vec<RgbImage> = digits()
        .into_iter()
        .take(20)
        .map(|(source, _)| source.decode(Limits::default()).unwrap())
        .collect();
    let full = Session::builder().device(Device::Cpu).tinyvit32().unwrap();
    let (error, others) = difference(&outputs(&full, &images), &outputs(&on_cpu(&out), &images));
    assert!(error > 0.0 && error < 0.02 && others == 0, "{error}, {others}");
}

#[test]
fn auto_keeps_its_budget() {
    // Of 48 images.
    const HELD_OUT: [usize; 9] = [0, 5, 13, 18, 26, 31, 34, 39, 47];
    let dir = tempfile::tempdir().unwrap();
    let images: Vec<RgbImage> = digits()
        .into_iter()
        .take(48)
        .map(|(source, _)| source.decode(Limits::default()).unwrap())
        .collect();
    let full = Session::builder().device(Device::Cpu).tinyvit32().unwrap();
    let layers = 4 * full.info().depth;
    // The errors on the calibration images and on the held-out images, and the numbers of images with a
    // different best class.
    let (held_out, calibration): (Vec<_>, Vec<_>) = images
        .iter()
        .cloned()
        .enumerate()
        .partition(|(index, _)| HELD_OUT.contains(index));
    let [calibration, held_out] =
        [calibration, held_out].map(|set| set.into_iter().map(|(_, image)| image).collect::<Vec<_>>());
    let expected = [&calibration, &held_out].map(|set| outputs(&full, set));
    let errors = |session: &Session| {
        let [a, b] = [(&expected[0], &calibration), (&expected[1], &held_out)]
            .map(|(expected, set)| difference(expected, &outputs(session, set)));
        ([a.0, b.0], a.1 + b.1)
    };
    let quantized = |name: &str, budget: f64| {
        let out = dir.path().join(name);
        let options = Options {
            budget: Some(budget),
            ..Options::default()
        };
        let report = quantize(None, &out, options, images.iter().cloned().map(Ok)).unwrap();
        let decision = report.decision.clone().unwrap();
        let session = on_cpu(&out);
        // The files give the measured error, which is within the budget, also on the held-out fifth of the
        // images.
        let calibration = &decision.calibration;
        let held_out = decision.held_out.as_ref().unwrap();
        assert_eq!((calibration.images, held_out.images, report.images), (39, 9, 39));
        let ([of_calibration, of_held_out], others) = errors(&session);
        println!(
            "{budget}: {} in int8 or bf16, errors {of_calibration:.5}, {of_held_out:.5}",
            report.quantized
        );
        for (error, measured) in [(of_calibration, calibration), (of_held_out, held_out)] {
            assert!(
                (error - measured.error).abs() < 1e-6 * error.max(1e-3),
                "{error}, {measured:?}"
            );
            assert!(error <= budget && measured.within(budget), "{error} of {budget}");
        }
        let agreeing = calibration.agreeing.unwrap() + held_out.agreeing.unwrap();
        assert_eq!(agreeing, images.len() - others);
        assert!(decision.on_gpu.is_none());
        let chosen: usize = decision
            .choices
            .iter()
            .filter(|choice| choice.precision != Precision::Full)
            .map(|choice| choice.layers.len())
            .sum();
        assert_eq!(
            (chosen, report.unquantized.len()),
            (report.quantized, layers - chosen + 1)
        );
        let loaded = session
            .info()
            .quantization
            .as_ref()
            .map_or([0; 2], |quantization| [quantization.int8, quantization.bf16]);
        let in_precision =
            [Precision::Int8, Precision::Bf16].map(|precision| decision.layers(precision).count());
        assert_eq!(loaded, in_precision);
        for choice in &decision.choices {
            let [int8, bf16] = &choice.candidates[..] else {
                panic!("{choice:?}")
            };
            assert_eq!(
                [int8.precision, bf16.precision],
                [Precision::Int8, Precision::Bf16]
            );
            assert!(
                0.0 < bf16.error && bf16.error < int8.error && int8.error < 0.05,
                "{choice:?}"
            );
        }
        // Layers that are faster in neither precision stay unchanged.
        let faster = decision
            .choices
            .iter()
            .filter(|choice| choice.candidates.iter().any(|of| of.us < choice.full_us));
        (
            report.quantized,
            faster.map(|choice| choice.layers.len()).sum::<usize>(),
        )
    };
    assert_eq!(quantized("none", 0.0).0, 0);
    let (all, faster) = quantized("all", 1.0);
    assert_eq!(all, faster);
    let (some, faster) = quantized("some", 0.004);
    assert!(some <= faster);
    // Of a single image none can be held out.
    let options = Options {
        budget: Some(1.0),
        ..Options::default()
    };
    let one = images.iter().take(1).cloned().map(Ok);
    let report = quantize(None, &dir.path().join("one"), options.clone(), one).unwrap();
    let decision = report.decision.unwrap();
    assert!(decision.held_out.is_none() && decision.calibration.images == 1 && report.images == 1);
    // A budget needs images.
    let error = quantize(None, &dir.path().join("x"), options, []).unwrap_err();
    assert!(error.to_string().contains("budget"), "{error}");
}

#[test]
fn the_command_says_what_it_wrote() {
    let dir = tempfile::tempdir().unwrap();
    let out: PathBuf = dir.path().join("deep/model");
    let output = hipvit(&[
        "quantize".into(),
        "--calibrate".into(),
        at(DIGITS).into(),
        "-o".into(),
        out.clone().into(),
    ] as &[OsString]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        text.contains("weights in int8") && text.contains("calibrated with 360 images"),
        "{text}"
    );
    assert!(text.contains("not quantised: head"), "{text}");
    let inspected = hipvit(&["inspect".into(), out.into(), "--parameters".into()] as &[OsString]);
    assert!(stdout(&inspected).contains("i8"), "{}", stdout(&inspected));
}
