//! Training of the golden models, beside PyTorch's.

use std::path::PathBuf;

use hipvit::Device;
use hipvit::error::Result;
use hipvit::model::{Checkpoint, InputKind};
use hipvit::tensor::Input;
use safetensors::{Dtype, SafeTensors};

use crate::{AdamWOptions, LossKind, StepReport, TensorRule, TrainOptions, Trainer};

const IMAGES: usize = 4;
const RATE: f32 = 1e-3;
const SMOOTHING: f32 = 0.1;

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden")
        .join(name)
}

fn options(loss: LossKind) -> TrainOptions {
    TrainOptions {
        device: Device::Cpu,
        threads: Some(2),
        input: InputKind::PixelValues,
        loss,
        optimizer: AdamWOptions {
            epsilon: 1e-6,
            ..AdamWOptions::default()
        },
        clip_norm: Some(1.0),
        ..TrainOptions::default()
    }
}

fn trainer(name: &str, options: TrainOptions) -> Result<Trainer> {
    let checkpoint = Checkpoint::open(Some(&golden(name)))?;
    Trainer::new(checkpoint, options, &|_| TensorRule {
        weight_decay: 0.05,
        ..TensorRule::default()
    })
}

/// Makes the step that follows those of the trainer, with the batch of `scripts/golden_training.py`.
fn step(trainer: &mut Trainer) -> Result<StepReport> {
    let turn = (trainer.steps() % 2) as usize;
    let (width, height) = trainer.preprocess().output_size();
    let number = |i: usize| ((i * 7919 + turn * 104_729) % 33) as f32 / 16.0 - 1.0;
    let values: Vec<f32> = (0..IMAGES * 3 * width * height).map(number).collect();
    let classes = trainer.classes();
    let mut targets = vec![SMOOTHING / classes as f32; IMAGES * classes];
    for (image, targets) in targets.chunks_exact_mut(classes).enumerate() {
        targets[(image * 3 + turn) % classes] += 1.0 - SMOOTHING;
    }
    trainer.step(Input::Values(&values), &targets, RATE)
}

fn f64s(bytes: &[u8]) -> Vec<f64> {
    bytes
        .as_chunks::<8>()
        .0
        .iter()
        .map(|&bytes| f64::from_le_bytes(bytes))
        .collect()
}

fn f32s(bytes: &[u8]) -> Vec<f32> {
    bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|&bytes| f32::from_le_bytes(bytes))
        .collect()
}

/// Ten steps follow the losses, the norms and each tensor of PyTorch in double precision.
#[test]
fn ten_steps_are_those_of_pytorch() {
    for (name, loss) in [
        ("timm_vit_class_token", LossKind::CrossEntropy),
        ("timm_vit_pre_norm_layer_scale", LossKind::BinaryCrossEntropy),
        ("hf_vit", LossKind::CrossEntropy),
    ] {
        let bytes = std::fs::read(golden("training").join(name).with_extension("safetensors")).unwrap();
        let expected = SafeTensors::deserialize(&bytes).unwrap();
        let mut trainer = trainer(name, options(loss)).unwrap();
        assert_eq!(trainer.frozen(), [], "{name}");
        let series = |key| f64s(expected.tensor(key).unwrap().data());
        for (expected, norm) in series("losses").into_iter().zip(series("norms")) {
            let report = step(&mut trainer).unwrap();
            assert!(
                (f64::from(report.loss) - expected).abs() < 2e-4,
                "{name}: {report:?}, expected {expected}"
            );
            assert!(
                (f64::from(report.grad_norm) / norm - 1.0).abs() < 1e-2,
                "{name}: {report:?}, expected {norm}"
            );
        }
        let folder = tempfile::tempdir().unwrap();
        trainer.write_model(folder.path()).unwrap();
        let written = Checkpoint::open(Some(folder.path())).unwrap();
        let mut trained = 0;
        for (tensor, view) in expected
            .tensors()
            .into_iter()
            .filter(|(_, view)| view.dtype() == Dtype::F32)
        {
            let [before, after] =
                [trainer.checkpoint(), &written].map(|of| of.tensor(&tensor).unwrap().to_f32().into_owned());
            let change = |to: &[f32], from: &[f32]| -> f64 {
                let squares = to.iter().zip(from).map(|(to, from)| f64::from(to - from).powi(2));
                squares.sum::<f64>().sqrt()
            };
            let expected = f32s(view.data());
            let (error, size) = (change(&after, &expected), change(&expected, &before));
            // A bias of keys does not change a softmax. Its gradient is zero but for rounding errors.
            let noise = if tensor.ends_with("key.bias") {
                0.05 * f64::from(RATE) * 10.0 * (expected.len() as f64).sqrt()
            } else {
                0.0
            };
            assert!(
                error <= 0.01 * size + noise,
                "{name}: `{tensor}` is off by {error:e} of a change of {size:e}"
            );
            trained += expected.len() as u64;
        }
        assert_eq!(trainer.parameters(), trained, "{name}");
    }
}

/// A trainer that restores the states of another one continues with the same bits.
#[test]
fn resumed_training_has_the_bits_of_uninterrupted_training() {
    let options = TrainOptions {
        drop_path: 0.3,
        seed: 7,
        ..options(LossKind::CrossEntropy)
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("states.safetensors");
    let mut whole = trainer("hf_vit", options.clone()).unwrap();
    let reports: Vec<StepReport> = (0..5)
        .map(|index| {
            if index == 3 {
                whole.save(&file).unwrap();
            }
            step(&mut whole).unwrap()
        })
        .collect();
    let mut resumed = trainer("hf_vit", options).unwrap();
    resumed.restore(&file).unwrap();
    let rest = [step(&mut resumed).unwrap(), step(&mut resumed).unwrap()];
    assert_eq!(rest, reports[3..]);
    let bytes = [&whole, &resumed].map(|trainer| {
        trainer.save(&file).unwrap();
        std::fs::read(&file).unwrap()
    });
    assert!(bytes[0] == bytes[1]);
    // The file of another model is refused, and changes nothing.
    let mut other = trainer("timm_vit_class_token", self::options(LossKind::CrossEntropy)).unwrap();
    let error = other.restore(&file).unwrap_err().to_string();
    assert!(error.contains("another model or other options"), "{error}");
    assert_eq!(other.steps(), 0);
}

/// A model that is evaluated has the weights of the last step, not those of the checkpoint.
#[test]
fn models_have_the_present_weights() {
    let mut trainer = trainer("timm_vit_class_token", options(LossKind::CrossEntropy)).unwrap();
    step(&mut trainer).unwrap();
    let model = trainer.model().unwrap();
    let found = model
        .graph
        .values()
        .iter()
        .find(|value| value.name == "head.weight")
        .unwrap();
    let present = trainer.values().unwrap().remove("head.weight").unwrap();
    assert_eq!(*found.constant.as_ref().unwrap().to_f32(), present);
    assert_ne!(
        *trainer.checkpoint().tensor("head.weight").unwrap().to_f32(),
        present
    );
}

#[test]
fn tensors_that_cannot_be_trained_are_named_with_the_reason() {
    let checkpoint = Checkpoint::open(Some(&golden("timm_vit_class_token"))).unwrap();
    let frozen = Trainer::new(checkpoint, options(LossKind::CrossEntropy), &|tensor| {
        TensorRule {
            trained: tensor.layer == tensor.layers,
            ..TensorRule::default()
        }
    });
    let frozen = frozen.unwrap();
    let is_of_blocks = |tensor: &str| {
        tensor.starts_with("blocks.") || tensor.ends_with("_embed") || tensor.starts_with("patch_embed")
    };
    let named: Vec<&str> = frozen
        .frozen()
        .iter()
        .map(|frozen| frozen.tensor.as_str())
        .collect();
    assert!(
        named.contains(&"blocks.1.mlp.fc2.bias") && named.contains(&"pos_embed"),
        "{named:?}"
    );
    assert!(
        named
            .iter()
            .all(|tensor| is_of_blocks(tensor) || *tensor == "cls_token"),
        "{named:?}"
    );
    // The head, and the norm before it.
    assert_eq!(frozen.parameters(), 24 * 10 + 10 + 2 * 24);

    let no_classes = trainer("hf_vit_model", options(LossKind::CrossEntropy))
        .unwrap_err()
        .to_string();
    assert!(no_classes.contains("has no classifier"), "{no_classes}");
    let f16 = TrainOptions {
        dtype: hipvit::DType::F16,
        ..options(LossKind::CrossEntropy)
    };
    let error = trainer("hf_vit", f16).unwrap_err().to_string();
    assert!(error.contains("Train in bf16 or f32"), "{error}");
}
