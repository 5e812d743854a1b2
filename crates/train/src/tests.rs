//! Training of the golden models, beside PyTorch's.

mod boxes;
mod dropout;
mod families;
mod gradients;
mod losses;
mod maps;
mod masks;
mod moments;
mod pairs;
mod texts;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hipvit::Device;
use hipvit::error::Result;
use hipvit::model::{Checkpoint, InputKind, LoadOptions};
use hipvit::tensor::Input;
use safetensors::{Dtype, SafeTensors};

use crate::{
    AdamWOptions, DistillationKind, DistillationLoss, DropOptions, LionOptions, LoraOptions, LossKind,
    MemoryBudget, MemoryLimit, Objective, OptimizerOptions, SgdOptions, StepReport, Targets, TensorInfo,
    TensorRule, TrainOptions, Trainer, Weights,
};

pub(crate) const IMAGES: usize = 4;
const RATE: f32 = 1e-3;
const SMOOTHING: f32 = 0.1;

/// Dropout in all places.
pub(crate) const DROPS: DropOptions = DropOptions {
    path: 0.3,
    head: 0.2,
    projections: 0.1,
    positions: 0.15,
};

pub(crate) fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden")
        .join(name)
}

fn adamw(epsilon: f32) -> OptimizerOptions {
    OptimizerOptions::AdamW(AdamWOptions {
        epsilon,
        ..AdamWOptions::default()
    })
}

fn distillation(kind: DistillationKind) -> Objective {
    Objective::Distillation(DistillationLoss {
        base: LossKind::CrossEntropy,
        kind,
        alpha: 0.25,
        temperature: 3.0,
    })
}

pub(crate) fn options(loss: impl Into<Objective>) -> TrainOptions {
    TrainOptions {
        device: Device::Cpu,
        threads: Some(2),
        input: InputKind::PixelValues,
        loss: loss.into(),
        optimizer: adamw(1e-6),
        clip_norm: Some(1.0),
        ..TrainOptions::default()
    }
}

pub(crate) fn trainer(name: &str, options: TrainOptions) -> Result<Trainer> {
    let checkpoint = Checkpoint::open(Some(&golden(name)))?;
    Trainer::new(checkpoint, options, &|_| TensorRule {
        weight_decay: 0.05,
        ..TensorRule::default()
    })
}

/// Makes the step that follows those of the trainer, with the batch of `scripts/golden_training.py`.
pub(crate) fn step(trainer: &mut Trainer) -> Result<StepReport> {
    step_at(trainer, RATE)
}

fn step_at(trainer: &mut Trainer, rate: f32) -> Result<StepReport> {
    let turn = (trainer.steps() % 2) as usize;
    let (width, height) = trainer.preprocess().output_size();
    let number = |i: usize| ((i * 7919 + turn * 104_729) % 33) as f32 / 16.0 - 1.0;
    let values: Vec<f32> = (0..IMAGES * 3 * width * height).map(number).collect();
    let classes = trainer.classes();
    let mut targets = vec![SMOOTHING / classes as f32; IMAGES * classes];
    for (image, targets) in targets.chunks_exact_mut(classes).enumerate() {
        targets[(image * 3 + turn) % classes] += 1.0 - SMOOTHING;
    }
    let mut teacher = Vec::new();
    if trainer.options().loss.has_teacher() {
        let number = |i: usize| ((i * 7919 + (turn + 7) * 104_729) % 33) as f32 / 8.0 - 2.0;
        teacher.extend((0..IMAGES * classes).map(number));
    }
    let targets = Targets {
        values: &targets,
        teacher: &teacher,
        ..Targets::default()
    };
    trainer.step(Input::Values(&values), targets, rate)
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
        ("timm_vit_class_token", LossKind::CrossEntropy.into()),
        (
            "timm_vit_pre_norm_layer_scale",
            LossKind::BinaryCrossEntropy.into(),
        ),
        ("hf_vit", LossKind::CrossEntropy.into()),
        ("timm_beit", LossKind::CrossEntropy.into()),
        ("timm_beit_shared", LossKind::CrossEntropy.into()),
        ("hf_beit", LossKind::CrossEntropy.into()),
        ("timm_swin", LossKind::CrossEntropy.into()),
        ("hf_swin", LossKind::CrossEntropy.into()),
        ("timm_swinv2", LossKind::CrossEntropy.into()),
        ("hf_swinv2", LossKind::CrossEntropy.into()),
        ("timm_hiera", LossKind::CrossEntropy.into()),
        ("timm_deit_distilled", distillation(DistillationKind::Soft)),
        ("hf_deit_teacher", distillation(DistillationKind::Hard)),
    ] {
        let bytes = std::fs::read(golden("training").join(name).with_extension("safetensors")).unwrap();
        let expected = SafeTensors::deserialize(&bytes).unwrap();
        let mut trainer = trainer(name, options(loss)).unwrap();
        // See `RATES` of the script.
        let rate = if name == "timm_swinv2" { 0.1 * RATE } else { RATE };
        let frozen = trainer.frozen().iter().map(|frozen| frozen.tensor.clone());
        let frozen: Vec<String> = frozen.filter(|tensor| expected.tensor(tensor).is_ok()).collect();
        assert!(
            frozen.iter().all(|tensor| tensor.ends_with("mask_token")),
            "{name}: {frozen:?}"
        );
        let series = |key| f64s(expected.tensor(key).unwrap().data());
        for (expected, norm) in series("losses").into_iter().zip(series("norms")) {
            let report = step_at(&mut trainer, rate).unwrap();
            assert!(
                (f64::from(report.loss) - expected).abs() < 2e-4,
                "{name}: {report:?}, expected {expected}"
            );
            assert!(
                (f64::from(report.grad_norm) / norm - 1.0).abs() < 1e-2,
                "{name}: {report:?}, expected {norm}"
            );
        }
        compare_tensors(name, &trainer, &expected, &frozen);
    }
}

/// Compares each tensor of a trained model with that of a file of `scripts/golden_training.py`. The tensors `frozen` are not trained.
fn compare_tensors(name: &str, trainer: &Trainer, expected: &SafeTensors<'_>, frozen: &[String]) {
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
        let noise = if tensor.ends_with("key.bias") || tensor.ends_with("k_proj.bias") {
            0.05 * f64::from(RATE) * 10.0 * (expected.len() as f64).sqrt()
        } else {
            0.0
        };
        assert!(
            error <= 0.01 * size + noise,
            "{name}: `{tensor}` is off by {error:e} of a change of {size:e}"
        );
        if !frozen.contains(&tensor) {
            trained += expected.len() as u64;
        }
    }
    assert_eq!(trainer.parameters(), trained, "{name}");
}

/// A trainer that restores the states of another one continues with the same bits.
#[test]
fn resumed_training_has_the_bits_of_uninterrupted_training() {
    let options = TrainOptions {
        accumulate: 2,
        drop: DROPS,
        ema_decay: Some(0.9),
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
    // Sums of gradients have no information between steps.
    let tensors = SafeTensors::deserialize(&bytes[0]).unwrap();
    assert!(tensors.names().iter().all(|name| !name.ends_with("sum")));
    assert!(tensors.names().iter().any(|name| name.ends_with(".average")));
    // The file of another model is refused, and changes nothing.
    let mut other = trainer("timm_vit_class_token", self::options(LossKind::CrossEntropy)).unwrap();
    let error = other.restore(&file).unwrap_err().to_string();
    assert!(error.contains("another model or other options"), "{error}");
    assert_eq!(other.steps(), 0);
}

/// The gradients of micro-batches differ from those of the whole batch by the order of their sums.
#[test]
fn accumulated_steps_are_those_of_the_whole_batch() {
    const STEPS: usize = 3;
    const EPSILON: f32 = 1e-2;
    let train = |accumulate| {
        let options = TrainOptions {
            accumulate,
            drop: DROPS,
            optimizer: adamw(EPSILON),
            ..options(LossKind::CrossEntropy)
        };
        let mut trainer = trainer("hf_vit", options).unwrap();
        let reports: Vec<StepReport> = (0..STEPS).map(|_| step(&mut trainer).unwrap()).collect();
        (reports, trainer.values(Weights::Last).unwrap())
    };
    let (expected, weights) = train(1);
    // Relative to the norm, which clipping limits to 1: some roundings of each layer's sums over tokens and images.
    let gradient_error = 64.0 * f32::EPSILON;
    // An update is the learning rate times a quotient, whose divisor is at least epsilon. Later steps start from earlier errors.
    let bound = (STEPS * STEPS) as f32 * RATE * gradient_error / EPSILON;
    for accumulate in [2, 4] {
        let (reports, found) = train(accumulate);
        for (report, expected) in reports.iter().zip(&expected) {
            let close = |found: f32, expected: f32| (found / expected - 1.0).abs() <= gradient_error;
            assert!(
                close(report.loss, expected.loss) && close(report.grad_norm, expected.grad_norm),
                "{accumulate}: {report:?}, expected {expected:?}"
            );
            assert_eq!((report.correct, report.step), (expected.correct, expected.step));
        }
        for (name, expected) in &weights {
            let errors = found[name].iter().zip(expected).map(|(a, b)| (a - b).abs());
            let error = errors.fold(0.0, f32::max);
            assert!(
                error <= bound,
                "{accumulate}: `{name}` is off by {error:e}, not {bound:e}"
            );
        }
    }
}

/// A first step of SGD without momentum is the gradient times the learning rate, and one of Lion its signs.
#[test]
fn steps_of_sgd_and_lion_follow_the_gradients() {
    let changes = |optimizer, rate: f32| {
        let checkpoint = Checkpoint::open(Some(&golden("hf_vit"))).unwrap();
        let options = TrainOptions {
            optimizer,
            clip_norm: None,
            ..options(LossKind::CrossEntropy)
        };
        let mut trainer = Trainer::new(checkpoint, options, &|_| TensorRule::default()).unwrap();
        let before = trainer.values(Weights::Last).unwrap();
        let report = step_at(&mut trainer, rate).unwrap();
        let after = trainer.values(Weights::Last).unwrap();
        let pairs = after
            .iter()
            .flat_map(|(name, values)| values.iter().zip(&before[name]));
        let changes: Vec<f32> = pairs.map(|(after, before)| after - before).collect();
        (report, changes)
    };
    let sgd = OptimizerOptions::Sgd(SgdOptions {
        momentum: 0.0,
        nesterov: false,
    });
    let (report, found) = changes(sgd, 1.0);
    let norm = found.iter().map(|change| change * change).sum::<f32>().sqrt();
    assert!((norm / report.grad_norm - 1.0).abs() < 1e-4, "{norm}, {report:?}");
    let (_, found) = changes(OptimizerOptions::Lion(LionOptions::default()), 0.125);
    // A weight of up to 4 is rounded by its half unit in the last place.
    assert!(
        found
            .iter()
            .all(|change| (change.abs() - 0.125).abs() < 3e-7 || *change == 0.0)
    );
}

#[test]
fn averages_follow_the_weights_and_are_written() {
    const DECAY: f32 = 0.75;
    let options = TrainOptions {
        ema_decay: Some(DECAY),
        ..options(LossKind::CrossEntropy)
    };
    let mut trainer = trainer("hf_vit", options).unwrap();
    let mut expected = trainer.values(Weights::Average).unwrap();
    assert_eq!(expected, trainer.values(Weights::Last).unwrap());
    for _ in 0..3 {
        step(&mut trainer).unwrap();
        for (name, weights) in trainer.values(Weights::Last).unwrap() {
            let averages = expected.get_mut(&name).unwrap();
            for (average, weight) in averages.iter_mut().zip(weights) {
                *average = DECAY * *average + (1.0 - DECAY) * weight;
            }
        }
    }
    // A step rounds two products and their sum.
    let averages = trainer.values(Weights::Average).unwrap();
    for (name, expected) in &expected {
        let largest = expected
            .iter()
            .fold(0.0_f32, |largest, value| largest.max(value.abs()));
        let bound = 3.0 * 1.5 * f32::EPSILON * largest;
        for (found, expected) in averages[name].iter().zip(expected) {
            assert!(
                (found - expected).abs() <= bound,
                "{name}: {found}, expected {expected}"
            );
        }
    }
    let folder = tempfile::tempdir().unwrap();
    trainer.write_model(folder.path()).unwrap();
    let written = Checkpoint::open(Some(folder.path())).unwrap();
    let weight = written.tensor("classifier.weight").unwrap();
    assert_eq!(*weight.to_f32(), averages["classifier.weight"]);
    let last = trainer.values(Weights::Last).unwrap();
    assert_ne!(*weight.to_f32(), last["classifier.weight"]);
}

/// A model that is evaluated has the weights of the last step, not those of the checkpoint.
#[test]
fn models_have_the_present_weights() {
    let mut trainer = trainer("timm_vit_class_token", options(LossKind::CrossEntropy)).unwrap();
    step(&mut trainer).unwrap();
    let model = trainer.model(Weights::Last).unwrap();
    let found = model
        .graph
        .values()
        .iter()
        .find(|value| value.name == "head.weight")
        .unwrap();
    let present = trainer
        .values(Weights::Last)
        .unwrap()
        .remove("head.weight")
        .unwrap();
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
    let int8 = TrainOptions {
        dtype: hipvit::DType::I8,
        ..options(LossKind::CrossEntropy)
    };
    let error = trainer("hf_vit", int8).unwrap_err().to_string();
    assert!(error.contains("Train in f32, bf16 or f16"), "{error}");
}

/// The CPU computes gradients in f32, where a power of two changes no bit of a mantissa.
#[test]
fn a_scaled_loss_gives_the_steps_of_an_unscaled_one() {
    let scaled = TrainOptions {
        dtype: hipvit::DType::F16,
        ..options(LossKind::CrossEntropy)
    };
    let mut scaled = trainer("hf_vit", scaled).unwrap();
    let mut plain = trainer("hf_vit", options(LossKind::CrossEntropy)).unwrap();
    for _ in 0..2 {
        assert_eq!(step(&mut scaled).unwrap(), step(&mut plain).unwrap());
    }
    assert_eq!(
        scaled.values(Weights::Last).unwrap(),
        plain.values(Weights::Last).unwrap()
    );
}

/// The elements of a model's constants, by name.
fn constants(directory: &Path) -> BTreeMap<String, Vec<f32>> {
    let model = hipvit::model::load(directory, &LoadOptions::default()).unwrap();
    let constant = |value: &hipvit::graph::Value| {
        let elements = value.constant.as_ref()?.to_f32().into_owned();
        Some((value.name.clone(), elements))
    };
    model.graph.values().iter().filter_map(constant).collect()
}

/// The updates are zero at first. The merged model, and the adapter beside its base, have what the steps compute with.
#[test]
fn updates_of_low_rank_are_trained_merged_and_written() {
    for name in ["hf_vit", "timm_vit_class_token"] {
        let lora = LoraOptions {
            rank: 3,
            alpha: 6.0,
            targets: Vec::new(),
            rule: TensorRule::default(),
        };
        let options = TrainOptions {
            lora: Some(lora),
            ..options(LossKind::CrossEntropy)
        };
        let base = golden(name);
        let of_classifier = |tensor: &TensorInfo<'_>| TensorRule {
            trained: tensor.name.starts_with("classifier") || tensor.name.starts_with("head"),
            ..TensorRule::default()
        };
        let checkpoint = Checkpoint::open(Some(&base)).unwrap();
        let mut trainer = Trainer::new(checkpoint, options, &of_classifier).unwrap();
        let first = step(&mut trainer).unwrap().loss;
        let plain = step(&mut self::trainer(name, self::options(LossKind::CrossEntropy)).unwrap());
        assert!((first - plain.unwrap().loss).abs() < 1e-5, "{name}: {first}");
        for _ in 0..3 {
            step(&mut trainer).unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let [merged, adapted] = ["merged", "adapted"].map(|part| folder.path().join(part));
        trainer.write_model(&merged).unwrap();
        std::fs::create_dir(&adapted).unwrap();
        for file in std::fs::read_dir(&base).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), adapted.join(file.file_name())).unwrap();
        }
        assert!(trainer.write_adapter(&adapted, "").unwrap());
        let [before, merged_constants, adapted] = [&base, &merged, &adapted].map(|model| constants(model));
        assert!(merged_constants == adapted, "{name}");
        let changed = merged_constants
            .iter()
            .filter(|(name, values)| before[*name] != **values);
        // Four or more layers of two blocks, and the classifier with its bias.
        assert!(changed.count() >= 10, "{name}");

        let merged = Checkpoint::open(Some(&merged)).unwrap();
        let mut merged = Trainer::new(merged, self::options(LossKind::CrossEntropy), &of_classifier).unwrap();
        let (next, of_merged) = (step(&mut trainer).unwrap(), step(&mut merged).unwrap());
        assert!(
            (next.loss - of_merged.loss).abs() < 1e-5,
            "{name}: {next:?}, {of_merged:?}"
        );
        assert!(next.loss < 0.999 * first, "{name}: {next:?}, at first {first}");
    }
}

#[test]
fn a_step_with_an_infinite_value_changes_nothing_and_its_layer_is_named() {
    for accumulate in [1, 2] {
        let options = TrainOptions {
            accumulate,
            ..options(LossKind::CrossEntropy)
        };
        let mut trainer = trainer("hf_vit", options).unwrap();
        step(&mut trainer).unwrap();
        let before = trainer.values(Weights::Last).unwrap();
        let (width, height) = trainer.preprocess().output_size();
        // The value is in the first of two images.
        let mut values = vec![0.5; 2 * 3 * width * height];
        values[7] = f32::INFINITY;
        let mut targets = vec![0.0; 2 * trainer.classes()];
        targets[1] = 1.0;
        let report = trainer.step(Input::Values(&values), &targets, RATE).unwrap();
        assert!(!report.updated && !report.grad_norm.is_finite(), "{report:?}");
        assert_eq!(trainer.values(Weights::Last).unwrap(), before);
        let place = trainer.first_non_finite(Input::Values(&values), 2).unwrap();
        assert_eq!(place.as_deref(), Some("the embedding"));
        // The next step is as if there had been no such step.
        let next = step(&mut trainer).unwrap();
        assert!(next.updated && next.step == 3, "{next:?}");
        let finite = vec![0.5; 3 * width * height];
        assert_eq!(trainer.first_non_finite(Input::Values(&finite), 1).unwrap(), None);
    }
}

/// LayerScale, skipped branches, relative positions, gated layers, rotary positions and mixed tokens.
#[test]
fn recomputed_activations_change_no_bit() {
    for (name, drop_path) in [
        ("timm_vit_pre_norm_layer_scale", 0.0),
        ("hf_vit", 0.4),
        ("timm_beit", 0.3),
        ("timm_eva02", 0.0),
        ("timm_vit_rope", 0.0),
        ("timm_mixer", 0.0),
    ] {
        // More images than the steps have, so that activations and not weights need the memory.
        let options = |limit| TrainOptions {
            drop: DropOptions {
                path: drop_path,
                projections: drop_path / 2.0,
                ..DropOptions::default()
            },
            memory: Some(MemoryBudget { limit, images: 256 }),
            ..options(LossKind::CrossEntropy)
        };
        let mut whole = trainer(name, options(MemoryLimit::Unlimited)).unwrap();
        let expected = [step(&mut whole).unwrap(), step(&mut whole).unwrap()];
        let kept = whole.memory().unwrap().clone();
        assert!(kept.recomputation.ops.is_empty(), "{kept:?}");
        let too_little = trainer(name, options(MemoryLimit::Bytes(1 << 16)))
            .unwrap_err()
            .to_string();
        let (_, least) = too_little.split_once("at least ").unwrap();
        let least: MemoryLimit = least.split(" is needed").next().unwrap().parse().unwrap();
        for limit in [MemoryLimit::Bytes(kept.bytes() as u64 * 4 / 5), least] {
            let mut smaller = trainer(name, options(limit)).unwrap();
            let report = smaller.memory().unwrap();
            println!("{name}: {}", report.summary());
            assert!(MemoryLimit::Bytes(report.bytes() as u64) != limit && report.bytes() < kept.bytes());
            let found = [step(&mut smaller).unwrap(), step(&mut smaller).unwrap()];
            assert_eq!(found, expected, "{name}: {}", smaller.memory().unwrap().summary());
            assert!(
                smaller.values(Weights::Last).unwrap() == whole.values(Weights::Last).unwrap(),
                "{name}"
            );
        }
    }
}
