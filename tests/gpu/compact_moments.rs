//! Training with dropout and with moments in bf16 and int8 on a GPU, beside the CPU.

use std::collections::BTreeMap;

use hipvit::graph::compact_moments::{BLOCK_WORDS, unpack_bf16, unpack_int8};
use hipvit::model::{Checkpoint, InputKind};
use hipvit::tensor::Input;
use hipvit::{DType, Device};
use hipvit_train::{
    AdamWOptions, DropOptions, Moments, OptimizerOptions, PrecisionOptions, StepReport, TensorRule,
    TrainOptions, Trainer,
};
use safetensors::SafeTensors;

use crate::support::at;
use crate::support::gpu::{device, dtypes};

const STEPS: usize = 10;
const IMAGES: usize = 2;

/// First and second moments of each state.
type All = BTreeMap<String, Vec<[f32; 2]>>;

fn train(device: Device, dtype: DType, moments: Moments) -> (Vec<StepReport>, All) {
    let checkpoint = Checkpoint::open(Some(&at("tests/golden/hf_vit"))).unwrap();
    let options = TrainOptions {
        device,
        dtype,
        input: InputKind::PixelValues,
        // Updates are about proportional to gradients, so that small errors of gradients stay small.
        optimizer: OptimizerOptions::AdamW(AdamWOptions {
            epsilon: 1.0,
            moments,
            ..AdamWOptions::default()
        }),
        precision: PrecisionOptions {
            loss_scale: 256.0,
            ..PrecisionOptions::default()
        },
        drop: DropOptions {
            path: 0.2,
            head: 0.1,
            projections: 0.1,
            positions: 0.1,
        },
        ..TrainOptions::default()
    };
    let mut trainer = Trainer::new(checkpoint, options, &|_| TensorRule::default()).unwrap();
    let (width, height) = trainer.preprocess().output_size();
    let values: Vec<f32> = (0..IMAGES * 3 * width * height)
        .map(|i| ((i * 7919) % 33) as f32 / 16.0 - 1.0)
        .collect();
    let classes = trainer.classes();
    let mut targets = vec![0.0; IMAGES * classes];
    for image in 0..IMAGES {
        targets[image * (classes + 1)] = 1.0;
    }
    let steps = (0..STEPS).map(|_| trainer.step(Input::Values(&values), &targets, 5e-4).unwrap());
    let reports = steps.collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("states.safetensors");
    trainer.save(&file).unwrap();
    (reports, decoded(&std::fs::read(file).unwrap()))
}

fn decoded(file: &[u8]) -> All {
    let tensors = SafeTensors::deserialize(file).unwrap();
    let mut all = All::new();
    for (name, tensor) in tensors.iter() {
        let words = tensor.data().as_chunks().0.iter();
        let words: Vec<f32> = words.map(|&bytes| f32::from_le_bytes(bytes)).collect();
        let moments = if name.ends_with(".moments_bf16") {
            words.into_iter().map(unpack_bf16).collect()
        } else if name.ends_with(".moments_int8") {
            let mut moments = Vec::new();
            for block in words.chunks_exact(BLOCK_WORDS) {
                unpack_int8(block, |_, of| moments.push(of));
            }
            moments
        } else {
            continue;
        };
        all.insert(name.to_owned(), moments);
    }
    assert!(!all.is_empty());
    all
}

/// Returns the largest difference of a moment, relative to the largest of its tensor.
fn difference(found: &[[f32; 2]], expected: &[[f32; 2]], of: usize) -> f32 {
    let largest = expected.iter().map(|moment| moment[of].abs()).fold(0.0, f32::max);
    let pairs = found.iter().zip(expected);
    let differences = pairs.map(|(found, expected)| (found[of] - expected[of]).abs());
    assert_eq!(found.len(), expected.len());
    differences.fold(0.0, f32::max) / largest.max(f32::MIN_POSITIVE)
}

#[test]
fn steps_are_those_of_the_cpu() {
    let Some((device, _shared)) = device() else { return };
    for moments in [Moments::Bf16, Moments::Int8] {
        let (expected, states) = train(Device::Cpu, DType::F32, moments);
        for dtype in dtypes() {
            let (reports, found) = train(device, dtype, moments);
            // A different dropped element would change a loss by more.
            let bound = if dtype == DType::F32 { 2e-3 } else { 5e-2 };
            for (found, expected) in reports.iter().zip(&expected) {
                let error = |found: f32, expected: f32| (found / expected - 1.0).abs();
                assert!(
                    error(found.loss, expected.loss) <= bound
                        && error(found.grad_norm, expected.grad_norm) <= bound,
                    "{moments:?} in {dtype}: {found:?}, expected {expected:?}"
                );
            }
            // Two levels in 8 bits beside each other differ by up to 1/62 of the largest, and numbers in bf16 by 1/128. A few
            // steps may round to the other neighbour. Gradients in 16 bits add their own errors.
            let bound = if dtype == DType::F32 { 0.04 } else { 0.15 };
            let mut worst = [0f32; 2];
            // The bias of the keys changes no score but by a number that all keys share, so that its gradient is nothing but rounding errors.
            for (name, expected) in states.iter().filter(|(name, _)| !name.contains("key.bias")) {
                for (of, worst) in worst.iter_mut().enumerate() {
                    let difference = difference(&found[name], expected, of);
                    *worst = worst.max(difference);
                    assert!(
                        difference <= bound,
                        "{moments:?} in {dtype}: `{name}` {of}: {difference}"
                    );
                }
            }
            println!("PASS {dtype:<4} {moments:?}: moments off by {worst:?}");
        }
    }
}
