//! Training on a GPU, beside the CPU.

use std::fs;

use hipvit::model::{Checkpoint, InputKind};
use hipvit::tensor::Input;
use hipvit::{DType, Device};
use hipvit_train::{
    AdamWOptions, DropOptions, MemoryBudget, MemoryLimit, MemoryReport, OptimizerOptions, PrecisionOptions,
    StepReport, TensorInfo, TensorRule, TrainOptions, Trainer,
};
use safetensors::SafeTensors;

use crate::support::at;
use crate::support::gpu::{device, dtypes};

const STEPS: usize = 3;
const IMAGES: usize = 2;

/// Returns the reports of some steps with up to `accumulate` micro-batches each, the elements of a weight's average after them, and the
/// planned memory.
fn train(
    device: Device,
    dtype: DType,
    (accumulate, limit): (usize, MemoryLimit),
) -> (Vec<StepReport>, Vec<f32>, MemoryReport) {
    let checkpoint = Checkpoint::open(Some(&at("tests/golden/hf_vit"))).unwrap();
    let options = TrainOptions {
        device,
        dtype,
        input: InputKind::PixelValues,
        optimizer: OptimizerOptions::AdamW(AdamWOptions {
            epsilon: 1e-4,
            ..AdamWOptions::default()
        }),
        ema_decay: Some(0.25),
        clip_norm: Some(1.0),
        accumulate,
        // No gradient overflows.
        precision: PrecisionOptions {
            loss_scale: 256.0,
            ..PrecisionOptions::default()
        },
        drop: DropOptions {
            path: 0.2,
            ..DropOptions::default()
        },
        // More images than a step has, so that activations and not weights need the memory.
        memory: Some(MemoryBudget { limit, images: 256 }),
        ..TrainOptions::default()
    };
    let rule = TensorRule {
        weight_decay: 0.05,
        ..TensorRule::default()
    };
    let mut trainer = Trainer::new(checkpoint, options, &|_| rule).unwrap();
    let memory = trainer.memory().unwrap().clone();
    let (width, height) = trainer.preprocess().output_size();
    let values: Vec<f32> = (0..IMAGES * 3 * width * height)
        .map(|i| ((i * 7919) % 33) as f32 / 16.0 - 1.0)
        .collect();
    let classes = trainer.classes();
    let mut targets = vec![0.0; IMAGES * classes];
    for image in 0..IMAGES {
        targets[image * (classes + 1)] = 1.0;
    }
    let mut step = |values: &[f32]| trainer.step(Input::Values(values), &targets, 1e-3).unwrap();
    // A step with an infinite value changes nothing.
    let mut infinite = values.clone();
    infinite[7] = f32::INFINITY;
    let mut reports = vec![step(&values)];
    assert!(!step(&infinite).updated);
    reports.extend((1..STEPS).map(|_| step(&values)));
    let folder = tempfile::tempdir().unwrap();
    trainer.write_model(folder.path()).unwrap();
    let written = Checkpoint::open(Some(folder.path())).unwrap();
    let weight = written.tensor("classifier.weight").unwrap();
    (reports, weight.to_f32().into_owned(), memory)
}

#[test]
fn steps_are_those_of_the_cpu() {
    let Some((device, _shared)) = device() else { return };
    let (expected, weight, _) = train(Device::Cpu, DType::F32, (1, MemoryLimit::Unlimited));
    for dtype in dtypes() {
        // Relative errors of a loss and of a norm; those of 16 bits are a few of their roundings.
        let bound = match dtype {
            DType::F32 => 1e-4,
            DType::F16 => 1e-2,
            _ => 5e-2,
        };
        let (reports, found, kept) = train(device, dtype, (IMAGES, MemoryLimit::Unlimited));
        for (found, expected) in reports.iter().zip(&expected) {
            let error = |found: f32, expected: f32| (found / expected - 1.0).abs();
            let errors = [
                error(found.loss, expected.loss),
                error(found.grad_norm, expected.grad_norm),
            ];
            assert!(
                errors.iter().all(|&error| error <= bound),
                "{dtype}: {found:?}, expected {expected:?}"
            );
        }
        let largest = weight.iter().fold(0.0_f32, |most, w| most.max(w.abs()));
        let errors = found.iter().zip(&weight).map(|(f, w)| (f - w).abs() / largest);
        let worst = errors.fold(0.0_f32, f32::max);
        println!("PASS {dtype:<4} training: weights off by {worst:.1e}");
        assert!(worst <= bound, "{dtype}: {worst}");
        let limit = MemoryLimit::Bytes(kept.bytes() as u64 * 7 / 10);
        // Recomputed activations change no bit.
        let (again, weight, memory) = train(device, dtype, (IMAGES, limit));
        println!("PASS {dtype:<4} training: {}", memory.summary());
        assert!(!memory.recomputation.ops.is_empty());
        if dtype != DType::BF16 {
            assert!(
                again == reports && weight == found,
                "{dtype}: {again:?}, expected {reports:?}"
            );
            continue;
        }
        // In bf16 a recomputed GELU is not computed by the epilogue of a GEMM.
        for (again, report) in again.iter().zip(&reports) {
            let error = (again.loss / report.loss - 1.0).abs();
            assert!(error <= bound, "{dtype}: {again:?}, expected {report:?}");
        }
    }
}

/// Trains TinyViT32 from its weights on held-out digits. Returns the loss of each step.
fn losses_of_tinyvit32(device: Device, dtype: DType) -> Vec<f32> {
    let checkpoint = Checkpoint::open(Some(&at("assets/tinyvit32"))).unwrap();
    let options = TrainOptions {
        device,
        dtype,
        clip_norm: Some(1.0),
        ..TrainOptions::default()
    };
    let rule = |_: &TensorInfo<'_>| TensorRule::default();
    let mut trainer = Trainer::new(checkpoint, options, &rule).unwrap();
    let bytes = fs::read(at("assets/digits/heldout.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let [images, digits] = ["images", "labels"].map(|name| tensors.tensor(name).unwrap());
    let (classes, side) = (trainer.classes(), 32);
    let batches = images.data().chunks_exact(IMAGES * side * side);
    let batches = batches.zip(digits.data().chunks_exact(IMAGES));
    let step = |(grey, digits): (&[u8], &[u8])| {
        let pixels: Vec<u8> = grey.iter().flat_map(|&value| [value; 3]).collect();
        let mut targets = vec![0.0; IMAGES * classes];
        for (targets, &digit) in targets.chunks_exact_mut(classes).zip(digits) {
            // The weights know the digits, so that the losses of these are large.
            targets[(usize::from(digit) + 1) % classes] = 1.0;
        }
        trainer.step(Input::Pixels(&pixels), &targets, 1e-4).unwrap().loss
    };
    batches.take(10).map(step).collect()
}

#[test]
fn tinyvit32_has_the_losses_of_the_cpu() {
    let Some((device, _shared)) = device() else { return };
    let expected = losses_of_tinyvit32(Device::Cpu, DType::F32);
    for dtype in dtypes() {
        let found = losses_of_tinyvit32(device, dtype);
        let errors = found
            .iter()
            .zip(&expected)
            .map(|(found, expected)| (found / expected - 1.0).abs());
        let worst = errors.fold(0.0_f32, f32::max);
        println!("PASS {dtype:<4} ten steps of TinyViT32: losses off by {worst:.1e}");
        // A few roundings of the logits, and of the weights' updates.
        let bound = match dtype {
            DType::F32 => 1e-4,
            DType::F16 => 1e-2,
            _ => 5e-2,
        };
        assert!(worst <= bound, "{dtype}: {found:?}, expected {expected:?}");
    }
}

/// In bf16, hipBLASLt's epilogues compute GELU, which keeps its operand, and its derivative. In f16 kernels compute the exact GELU, since the
/// derivative of the tanh form is not precise enough.
#[test]
fn epilogues_compute_gelu_and_its_derivative() {
    let Some((device, _shared)) = device() else { return };
    for dtype in dtypes() {
        let checkpoint = Checkpoint::open(Some(&at("tests/golden/hf_vit"))).unwrap();
        let options = TrainOptions {
            device,
            dtype,
            ..TrainOptions::default()
        };
        let mut trainer = Trainer::new(checkpoint, options, &|_| TensorRule::default()).unwrap();
        let calls = trainer.time_calls(IMAGES).unwrap();
        let count = |part: &str| {
            let shapes = calls.iter().filter_map(|call| call.shape.as_deref());
            shapes.filter(|shape| shape.contains(part)).count()
        };
        let kernels = |name: &str| calls.iter().filter(|call| call.name.starts_with(name)).count();
        let found = (
            count("+kept sum"),
            count("+derivative"),
            kernels("activation_backward"),
        );
        let layers = 2;
        let expected = match dtype {
            DType::BF16 => (layers, layers, 0),
            _ => (0, 0, layers),
        };
        assert_eq!(found, expected, "{dtype}: {calls:?}");
        println!("PASS {dtype:<4} epilogues of training");
    }
}

/// Returns the losses and the weights of some steps, of which at most `in_flight` are submitted before the first of them is finished.
fn train_ahead(device: Device, dtype: DType, in_flight: usize) -> (Vec<f32>, Vec<f32>) {
    let checkpoint = Checkpoint::open(Some(&at("tests/golden/hf_vit"))).unwrap();
    let options = TrainOptions {
        device,
        dtype,
        clip_norm: Some(1.0),
        accumulate: 2,
        drop: DropOptions {
            path: 0.2,
            ..DropOptions::default()
        },
        ..TrainOptions::default()
    };
    let mut trainer = Trainer::new(checkpoint, options, &|_| TensorRule::default()).unwrap();
    let (width, height) = trainer.preprocess().output_size();
    let classes = trainer.classes();
    let mut losses = Vec::new();
    for step in 0..6 {
        let pixels: Vec<u8> = (0..IMAGES * 3 * width * height)
            .map(|i| ((i * 7919 + step * 977) % 251) as u8)
            .collect();
        let mut targets = vec![0.0; IMAGES * classes];
        for image in 0..IMAGES {
            targets[image * classes + (image + step) % classes] = 1.0;
        }
        trainer.submit(Input::Pixels(&pixels), &targets, 1e-3).unwrap();
        while trainer.in_flight() >= in_flight {
            losses.push(trainer.finish().unwrap().unwrap().loss);
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("states");
    if in_flight > 1 {
        let error = trainer.save(&file).unwrap_err().to_string();
        assert!(error.contains("1 steps in flight"), "{error}");
    }
    while let Some(report) = trainer.finish().unwrap() {
        losses.push(report.loss);
    }
    trainer.save(&file).unwrap();
    trainer.write_model(folder.path()).unwrap();
    let written = Checkpoint::open(Some(folder.path())).unwrap();
    let weight = written.tensor("classifier.weight").unwrap();
    (losses, weight.to_f32().into_owned())
}

#[test]
fn steps_in_flight_have_the_bits_of_single_steps() {
    let Some((device, _shared)) = device() else { return };
    let dtype = dtypes()[0];
    let single = train_ahead(device, dtype, 1);
    assert_eq!(single.0.len(), 6);
    assert_eq!(train_ahead(device, dtype, 2), single);
    assert_eq!(
        train_ahead(Device::Cpu, DType::F32, 2),
        train_ahead(Device::Cpu, DType::F32, 1)
    );
}
