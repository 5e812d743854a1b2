//! Training with layers rounded to int8 or FP8 on a GPU, beside the CPU.

use hipvit::model::{Checkpoint, InputKind};
use hipvit::tensor::Input;
use hipvit::{DType, Device};
use hipvit_train::{
    AdamWOptions, Float8Options, OptimizerOptions, PrecisionOptions, Quantization, StepReport, TensorRule,
    TrainOptions, Trainer,
};

use crate::support::at;
use crate::support::gpu::{device, dtypes};

const STEPS: usize = 10;
/// Channels are multiples of 16, so that a GPU multiplies bytes. The channels of the other model are not.
const OF_BYTES: &str = "assets/tinyvit32";
const OF_NUMBERS: &str = "tests/golden/hf_vit";
const IMAGES: usize = 2;

fn train(model: &str, device: Device, dtype: DType, quantization: Quantization) -> Vec<StepReport> {
    let checkpoint = Checkpoint::open(Some(&at(model))).unwrap();
    let options = TrainOptions {
        device,
        dtype,
        input: InputKind::PixelValues,
        // Updates are about proportional to gradients, so that small errors of gradients stay small.
        optimizer: OptimizerOptions::AdamW(AdamWOptions {
            epsilon: 1.0,
            ..AdamWOptions::default()
        }),
        precision: PrecisionOptions {
            loss_scale: 256.0,
            quantization,
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
    assert_eq!(trainer.take_layer_events(), []);
    reports
}

#[test]
fn steps_are_those_of_the_cpu() {
    let Some((device, _shared)) = device() else { return };
    let float8 = Quantization::Float8(Float8Options::default());
    let current = Quantization::Float8(Float8Options {
        delayed: false,
        ..Float8Options::default()
    });
    for (model, quantization) in [
        (OF_NUMBERS, Quantization::Int8),
        (OF_NUMBERS, float8),
        (OF_BYTES, float8),
        (OF_BYTES, current),
    ] {
        let expected = train(model, Device::Cpu, DType::F32, quantization);
        for dtype in dtypes() {
            // f16 does not represent all numbers in FP8.
            if dtype == DType::F16 && quantization != Quantization::Int8 {
                continue;
            }
            // Sums that differ in the last bits round a few numbers to the next level. In bf16 numbers differ by 2⁻⁹ before they are
            // rounded, so that some per cent of those in FP8 become the next one, which differs by up to an eighth. Gradients have two such
            // factors.
            let [of_loss, of_norm] = match (dtype, quantization) {
                // Ten steps of the deeper model amplify the few numbers that become the next one.
                (DType::F32, Quantization::Float8(_)) if model == OF_BYTES => [0.1, 0.25],
                (DType::F32, _) => [2e-3; 2],
                (_, Quantization::Int8) => [5e-2; 2],
                _ => [0.1, 0.25],
            };
            let mut worst = 0f32;
            for (found, expected) in train(model, device, dtype, quantization).iter().zip(&expected) {
                let error = |found: f32, expected: f32| (found / expected - 1.0).abs();
                let errors = [
                    error(found.loss, expected.loss),
                    error(found.grad_norm, expected.grad_norm),
                ];
                worst = errors.into_iter().fold(worst, f32::max);
                assert!(
                    errors[0] <= of_loss && errors[1] <= of_norm,
                    "{model}, {quantization:?} in {dtype}: {found:?}, expected {expected:?}"
                );
            }
            println!("PASS {dtype:<4} {model}, {quantization:?}: figures off by {worst:.1e}");
        }
    }
}
