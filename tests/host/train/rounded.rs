//! Training with layers that are rounded to int8 or FP8.

use std::fs;

use hipvit::model::{Checkpoint, LoadOptions, Model, load};
use hipvit::tensor::Input;
use hipvit::{Device, RunInput, RunOptions, Session};
use hipvit_train::{PrecisionOptions, Quantization, TensorRule, TrainOptions, Trainer, Weights};
use rustix::process::Signal;
use serde_json::Value;

use super::{Set, assert_success};
use crate::support::at;
use crate::support::program::{hipvit, json, stderr, stdout};

/// Returns the lines of a log with this event.
fn lines(set: &Set, name: &str, event: &str) -> Vec<Value> {
    let text = fs::read_to_string(set.path(name).join("log.jsonl")).unwrap();
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["event"] == event).collect()
}

#[test]
fn the_accuracy_of_int8_training_is_that_of_the_quantised_model() {
    let set = Set::new();
    set.write_recipe("epochs = 40\nbatch = 16\n[optimizer]\nlr = 1e-2\n[schedule]\nwarmup_epochs = 1\n");
    assert_success(&set.train("run", &["--qat"]));
    let epochs = lines(&set, "run", "epoch");
    let recipe = fs::read_to_string(set.path("run/recipe.toml")).unwrap();
    assert!(recipe.contains("[quantization]\nkind = \"int8\""), "{recipe}");
    let output = hipvit([
        "quantize".as_ref(),
        set.path("run/model").as_os_str(),
        "-o".as_ref(),
        set.path("int8").as_os_str(),
    ]);
    assert_success(&output);
    let output = hipvit([
        "eval".as_ref(),
        set.path("data/val").as_os_str(),
        "-m".as_ref(),
        set.path("int8").as_os_str(),
        "--device".as_ref(),
        "cpu".as_ref(),
        "--json".as_ref(),
    ]);
    assert_success(&output);
    let accuracy = json(stdout(&output))["accuracy"].as_f64().unwrap();
    let last = epochs.last().unwrap()["val_accuracy"].as_f64().unwrap();
    assert!((accuracy - last).abs() < 1e-6, "{accuracy}, expected {last}");
    // It has learned something: by chance, the accuracy is 1/3.
    assert!(last > 0.5, "{last}");
}

/// Returns the logits of a model on the CPU.
fn logits(model: Model) -> Vec<f32> {
    let session = Session::builder().device(Device::Cpu).threads(2).batch(2);
    let session = session.of_model(model).unwrap();
    let (width, height) = session.preprocess().output_size();
    let pixels: Vec<u8> = (0..2 * width * height * 3)
        .map(|i| (i * 7919 % 251) as u8)
        .collect();
    let outputs = session
        .run_with(RunInput::Pixels(&pixels), RunOptions::new())
        .unwrap();
    outputs.logits().unwrap().iter().copied().collect()
}

/// The model that training evaluates has the bits of the one that is quantised from the written one.
#[test]
fn the_evaluated_model_is_the_quantised_one() {
    for name in [
        "timm_vit_class_token",
        "timm_vit_pre_norm_layer_scale",
        "timm_vit_parallel",
        "timm_eva02",
        "timm_eva02_post_norm",
        "timm_mixer",
        "hf_vit",
        "hf_dinov2",
    ] {
        let checkpoint = Checkpoint::open(Some(&at("tests/golden").join(name))).unwrap();
        let options = TrainOptions {
            device: Device::Cpu,
            threads: Some(2),
            precision: PrecisionOptions {
                quantization: Quantization::Int8,
                ..PrecisionOptions::default()
            },
            ..TrainOptions::default()
        };
        let trainer = Trainer::new(checkpoint, options, &|tensor| TensorRule {
            // A layer that is not trained is rounded, too.
            trained: tensor.layer != 1,
            ..TensorRule::default()
        });
        let mut trainer = trainer.unwrap();
        let (width, height) = trainer.preprocess().output_size();
        let pixels: Vec<u8> = (0..2 * width * height * 3)
            .map(|i| (i * 31 % 256) as u8)
            .collect();
        let mut targets = vec![0.0; 2 * trainer.classes()];
        targets[1] = 1.0;
        targets[trainer.classes()] = 1.0;
        trainer.step(Input::Pixels(&pixels), &targets, 1e-2).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let [model, int8] = ["model", "int8"].map(|end| directory.path().join(end));
        fs::create_dir(&model).unwrap();
        trainer.write_model(&model).unwrap();
        let options = hipvit_quantize::Options::default();
        hipvit_quantize::quantize(Some(&model), &int8, options, []).unwrap();
        let written = load(&int8, &LoadOptions::default()).unwrap();
        assert!(written.graph.rounds_rows(), "{name}");
        let expected = logits(written);
        assert_eq!(logits(trainer.model(Weights::Last).unwrap()), expected, "{name}");
        assert_ne!(
            logits(load(&model, &LoadOptions::default()).unwrap()),
            expected,
            "{name}"
        );
    }
}

#[test]
fn layers_that_underflow_in_fp8_are_named_logged_and_kept_by_a_resumed_run() {
    let set = Set::new();
    set.write_recipe("epochs = 20\nbatch = 16\n[quantization]\nmax_rate = 0.0\n[optimizer]\nlr = 1e-1\n");
    let fp8 = ["--dtype", "fp8"];
    let output = set.train("whole", &fp8);
    assert_success(&output);
    let events = lines(&set, "whole", "layer");
    assert!(!events.is_empty());
    for event in &events {
        let layer = event["layer"].as_str().unwrap();
        assert!(layer.starts_with("blocks.0."), "{event}");
        let rates = ["underflow", "overflow"].map(|rate| event[rate].as_f64().unwrap());
        assert!(rates.iter().any(|&rate| rate > 0.0), "{event}");
        assert!([1, 51].map(Value::from).contains(&event["step"]), "{event}");
        let note = format!("`{layer}` is no longer computed in FP8");
        assert_eq!(stderr(&output).matches(&note).count(), 1, "{}", stderr(&output));
    }
    set.end_by(Signal::INT, "parts", 4, &fp8);
    assert_success(&set.train("parts", &["--resume", "--dtype", "fp8"]));
    assert_eq!(lines(&set, "parts", "layer"), events);
    assert_eq!(set.log("parts"), set.log("whole"));
    assert_eq!(set.weights("parts"), set.weights("whole"));
}

#[test]
fn options_that_exclude_each_other_are_refused() {
    let set = Set::new();
    set.write_recipe("epochs = 1\nbatch = 16\n");
    let output = set.train("both", &["--qat", "--dtype", "fp8"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("--qat rounds to int8"),
        "{}",
        stderr(&output)
    );
    let output = set.train("lora", &["--qat", "--lora", "2"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("LoRA"), "{}", stderr(&output));
    assert_success(&set.train("plain", &["--dtype", "bf16"]));
    let output = set.train("plain", &["--resume", "--dtype", "fp8"]);
    assert!(
        stderr(&output).contains("the run was started without FP8"),
        "{}",
        stderr(&output)
    );
    // The recipe has the rounding.
    assert_success(&set.train("fp8", &["--dtype", "fp8"]));
    assert_success(&set.train("fp8", &["--resume", "--dtype", "bf16"]));
}
