//! FP8: weights, activations by images or by token, and attention.

use std::ffi::OsString;
use std::fs;

use hipvit::evaluate::evaluate;
use hipvit::image::{Limits, RgbImage};
use hipvit::model::{self, LoadOptions};
use hipvit::{DType, Device, Session};
use hipvit_quantize::{ActivationRange, Options, Precision, quantize};
use serde_json::{Value, json};

use super::{DIGITS, difference, digits, on_cpu, outputs};
use crate::at;
use crate::command_line::{hipvit, stderr, stdout};

#[test]
fn tinyvit32_in_fp8_stays_as_accurate() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("model");
    let options = Options {
        precision: Precision::Fp8,
        ..Options::default()
    };
    let report = quantize(None, &out, options, []).unwrap();
    let full = Session::builder().device(Device::Cpu).tinyvit32().unwrap();
    assert_eq!(report.quantized, 4 * full.info().depth);
    let model = model::load(&out, &LoadOptions::default()).unwrap();
    let quantization = model.info.quantization.unwrap();
    assert_eq!(
        (
            quantization.int8,
            quantization.int8_weights,
            quantization.float8_weights
        ),
        (0, 0, report.quantized)
    );
    // The weights are shown with their memory in f32.
    assert!(!model.graph.values().iter().any(|value| value.dtype == DType::I8));
    let images: Vec<RgbImage> = digits()
        .into_iter()
        .map(|(source, _)| source.decode(Limits::default()).unwrap())
        .collect();
    let session = on_cpu(&out);
    let (error, others) = difference(&outputs(&full, &images), &outputs(&session, &images));
    println!(
        "fp8: logit error {:.3} %, {others} of {} differ",
        100.0 * error,
        images.len()
    );
    // Weights have 4 significant bits: an error of at most 1/16 each, which adds up as noise does.
    assert!(error > 0.0 && error < 0.1, "{error}");
    let result = evaluate(&session, digits(), Limits::default(), |item| {
        assert!(item.is_ok());
    })
    .unwrap();
    assert!(result.correct >= 356, "{} of {}", result.correct, result.images);
}

#[test]
fn fp8_without_images_is_said_to_be_dequantised() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("model");
    let args = |more: &[OsString]| [&["quantize".into(), "-o".into(), out.clone().into()], more].concat();
    let calibrate = [
        "--to".into(),
        "fp8".into(),
        "--calibrate".into(),
        at(DIGITS).into(),
    ];
    let refused = hipvit(args(
        &[&calibrate[..], &["--scales".into(), "mse".into()]].concat(),
    ));
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("a weight has one scale") && !out.exists());
    let refused = hipvit(args(&[
        "--to".into(),
        "fp8".into(),
        "--device".into(),
        "hip".into(),
    ]));
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("need --to auto") && !out.exists());
    let output = hipvit(args(&["--to".into(), "fp8".into()]));
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        text.contains("weights in fp8") && text.contains("dequantised at load time"),
        "{text}"
    );
    let inspected = hipvit(&["inspect".into(), out.into()] as &[OsString]);
    assert!(
        stdout(&inspected).contains("weights in FP8, multiplied in full precision"),
        "{}",
        stdout(&inspected)
    );
}

/// Weights and activations in FP8.
#[test]
fn tinyvit32_with_fp8_activations_stays_as_accurate() {
    in_fp8(Precision::Fp8, ActivationRange::Largest);
}

/// Activations clipped, by a percentile and by the least error.
#[test]
fn tinyvit32_with_clipped_fp8_activations_stays_as_accurate() {
    let ranges = [ActivationRange::Percentile(99.9), ActivationRange::MeanSquare];
    let [percentile, least] = ranges.map(|range| in_fp8(Precision::Fp8, range));
    assert_ne!(percentile.to_bits(), least.to_bits());
}

/// Only FP8 activations with images can be clipped.
#[test]
fn clipping_other_activations_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("model");
    for (arguments, reason) in [
        ("--to fp8 --activation-range mse", "--activation-range needs"),
        ("--to int8 --activation-range 99.9%", "--activation-range needs"),
        ("--to fp8 --activation-range 0%", "percentile above 0"),
        ("--to fp8 --activation-range 99", "percentile above 0"),
    ] {
        let mut all: Vec<OsString> = vec!["quantize".into(), "--output".into(), out.clone().into()];
        all.extend(arguments.split(' ').map(OsString::from));
        let output = hipvit(all);
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(
            stderr(&output).contains(reason),
            "{arguments}: {}",
            stderr(&output)
        );
    }
    let options = Options {
        precision: Precision::Fp8,
        activation_range: ActivationRange::Percentile(101.0),
        ..Options::default()
    };
    let error = quantize(None, &out, options, []).unwrap_err();
    assert!(error.to_string().contains("101"), "{error}");
    assert!(!out.exists());
}

/// Each token is scaled by its largest magnitude.
#[test]
fn tinyvit32_with_fp8_of_tokens_stays_as_accurate() {
    in_fp8(Precision::Fp8Dynamic, ActivationRange::Largest);
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("model");
    let output = hipvit([
        "quantize".into(),
        "--to".into(),
        "fp8-dynamic".into(),
        "--output".into(),
        out.clone().into_os_string(),
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(
        text.contains("weights in fp8") && text.contains("each token"),
        "{text}"
    );
    let config = fs::read_to_string(out.join("config.json")).unwrap();
    let config: Value = serde_json::from_str(&config).unwrap();
    let group = &config["quantization_config"]["config_groups"]["group_0"];
    assert_eq!(group["weights"]["strategy"], "channel");
    let activations = &group["input_activations"];
    assert_eq!(
        [
            &activations["strategy"],
            &activations["dynamic"],
            &activations["type"]
        ],
        [&json!("token"), &json!(true), &json!("float")]
    );
    let output = hipvit([
        "quantize".into(),
        "--to".into(),
        "fp8-dynamic".into(),
        "--calibrate".into(),
        at(DIGITS).into_os_string(),
        "--output".into(),
        dir.path().join("other").into_os_string(),
    ]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(
        text.contains("--to fp8-dynamic") && text.contains("leave out --calibrate"),
        "{text}"
    );
    assert!(!dir.path().join("other").exists());
}

/// The error of the logits.
fn in_fp8(precision: Precision, activation_range: ActivationRange) -> f64 {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("model");
    let options = Options {
        precision,
        activation_range,
        ..Options::default()
    };
    let calibrated = if precision == Precision::Fp8 { 64 } else { 0 };
    let images: Vec<RgbImage> = digits()
        .into_iter()
        .map(|(source, _)| source.decode(Limits::default()).unwrap())
        .collect();
    let calibration = images.iter().take(calibrated).cloned().map(Ok);
    let report = quantize(None, &out, options, calibration).unwrap();
    let full = Session::builder().device(Device::Cpu).tinyvit32().unwrap();
    assert_eq!(
        (report.quantized, report.images),
        (4 * full.info().depth, calibrated)
    );
    let session = on_cpu(&out);
    let quantization = session.info().quantization.as_ref().unwrap();
    assert_eq!(
        (quantization.float8, quantization.float8_weights),
        (report.quantized, 0)
    );
    let (error, others) = difference(&outputs(&full, &images), &outputs(&session, &images));
    println!(
        "{}: logit error {:.3} %, {others} of {} differ",
        precision.name(),
        100.0 * error,
        images.len()
    );
    // Twice the roundings of weights alone.
    assert!(error > 0.0 && error < 0.15, "{error}");
    let result = evaluate(&session, digits(), Limits::default(), |item| {
        assert!(item.is_ok());
    })
    .unwrap();
    // 357 in full precision; at most 0.3 points fewer.
    assert!(result.correct >= 356, "{} of {}", result.correct, result.images);
    error
}
