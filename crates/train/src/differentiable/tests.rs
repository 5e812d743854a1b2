//! Gradients of golden models, beside those of a [`Trainer`](crate::Trainer) and finite differences.

use std::path::PathBuf;

use hipvit::Device;
use hipvit::model::{Checkpoint, TensorValues};
use hipvit::ops::LossKind;
use hipvit::tensor::Input;

use super::{Arguments, Differentiable, DifferentiableOptions, InputKind};
use crate::{AdamWOptions, OptimizerOptions, TensorRule, TrainOptions, Trainer, Weights};

const IMAGES: usize = 3;

fn golden(name: &str) -> Checkpoint {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden")
        .join(name);
    Checkpoint::open(Some(&path)).unwrap()
}

fn model(name: &str) -> Differentiable {
    let options = DifferentiableOptions {
        device: Device::Cpu,
        threads: Some(2),
        ..DifferentiableOptions::default()
    };
    Differentiable::new(golden(name), &options).unwrap()
}

fn images(model: &Differentiable) -> Vec<f32> {
    let (width, height) = model.preprocess().output_size();
    (0..IMAGES * 3 * width * height)
        .map(|i| (i * 7919 % 33) as f32 / 16.0 - 1.0)
        .collect()
}

fn arguments<'a>(images: &'a [f32], weights: &'a [Vec<f32>]) -> Arguments<'a> {
    Arguments {
        batch: IMAGES,
        images: Input::Values(images).into(),
        weights: weights
            .iter()
            .map(|elements| Input::Values(elements).into())
            .collect(),
    }
}

/// Returns the mean cross-entropy with the class of each image, and its gradient.
fn cross_entropy(logits: &hipvit::ndarray::Array2<f32>) -> (f64, Vec<f32>) {
    let (mut loss, mut gradient) = (0.0, Vec::new());
    for (image, row) in logits.rows().into_iter().enumerate() {
        let sum = row.iter().map(|&logit| f64::from(logit).exp()).sum::<f64>();
        let class = image % row.len();
        loss += (sum.ln() - f64::from(row[class])) / IMAGES as f64;
        gradient.extend(row.iter().enumerate().map(|(index, &logit)| {
            let target = f64::from(u8::from(index == class));
            ((f64::from(logit).exp() / sum - target) / IMAGES as f64) as f32
        }));
    }
    (loss, gradient)
}

/// The first step of AdamW subtracts `rate · g / (|g| + ε)`. With a large ε, it shows the gradient of each element.
#[test]
fn gradients_are_those_of_a_training_step() {
    const EPSILON: f32 = 1e4;
    for name in ["timm_vit_class_token", "hf_vit"] {
        let model = model(name);
        let images = images(&model);
        let weights = model.gather(&TensorValues::new()).unwrap();
        let logits = model.forward(arguments(&images, &weights)).unwrap();
        let (loss, gradient) = cross_entropy(&logits);
        let gradients = model.backward(arguments(&images, &weights), Input::Values(&gradient).into());
        let gradients = model.scatter(&gradients.unwrap());
        let options = TrainOptions {
            device: Device::Cpu,
            threads: Some(2),
            input: InputKind::PixelValues,
            loss: LossKind::CrossEntropy.into(),
            optimizer: OptimizerOptions::AdamW(AdamWOptions {
                epsilon: EPSILON,
                ..AdamWOptions::default()
            }),
            ..TrainOptions::default()
        };
        let mut trainer = Trainer::new(golden(name), options, &|_| TensorRule::default()).unwrap();
        let classes = model.classes();
        let mut targets = vec![0.0; IMAGES * classes];
        (0..IMAGES).for_each(|image| targets[image * classes + image % classes] = 1.0);
        let report = trainer.step(Input::Values(&images), &targets, EPSILON).unwrap();
        assert!(
            (f64::from(report.loss) - loss).abs() < 1e-5,
            "{name}: {report:?}, {loss}"
        );
        let squares = gradients.values().flatten().map(|&g| f64::from(g).powi(2));
        let norm = squares.sum::<f64>().sqrt();
        assert!(
            (f64::from(report.grad_norm) / norm - 1.0).abs() < 1e-4,
            "{name}: {report:?}, {norm}"
        );
        let trained = trainer.values(Weights::Last).unwrap();
        assert_eq!(trained.len(), gradients.len());
        assert_eq!(model.frozen(), trainer.frozen());
        for (tensor, after) in trained {
            let before = model.checkpoint().tensor(&tensor).unwrap();
            let moved = |(w, g): (&f32, &f32)| w - EPSILON * g / (g.abs() + EPSILON);
            let expected = before
                .to_f32()
                .iter()
                .zip(&gradients[&tensor])
                .map(moved)
                .collect::<Vec<_>>();
            let largest = expected
                .iter()
                .zip(&after)
                .map(|(a, b)| (a - b).abs())
                .fold(0.0, f32::max);
            // Rounding errors of the weights, and of the two orders of summation.
            assert!(
                largest < 1e-5 * (1.0 + norm as f32),
                "{name}: `{tensor}` is off by {largest:e}"
            );
        }
    }
}

#[test]
fn gradients_are_finite_differences() {
    let model = model("timm_vit_class_token");
    let images = images(&model);
    let weights = model.gather(&TensorValues::new()).unwrap();
    let loss = |weights: &[Vec<f32>]| cross_entropy(&model.forward(arguments(&images, weights)).unwrap());
    let (_, gradient) = loss(&weights);
    let gradients = model
        .backward(arguments(&images, &weights), Input::Values(&gradient).into())
        .unwrap();
    let square: f64 = gradients.iter().flatten().map(|&g| f64::from(g).powi(2)).sum();
    let step = 1e-3 / square.sqrt();
    let moved = |sign: f64| -> Vec<Vec<f32>> {
        let pairs = weights.iter().zip(&gradients);
        let along = |(w, g): (&f32, &f32)| (f64::from(*w) + sign * step * f64::from(*g)) as f32;
        pairs.map(|(w, g)| w.iter().zip(g).map(along).collect()).collect()
    };
    let difference = (loss(&moved(1.0)).0 - loss(&moved(-1.0)).0) / (2.0 * step);
    assert!((difference / square - 1.0).abs() < 3e-3, "{difference}, {square}");
}

#[test]
fn arguments_that_do_not_fit_are_refused() {
    let model = model("timm_vit_class_token");
    let images = images(&model);
    let mut weights = model.gather(&TensorValues::new()).unwrap();
    let refused = |images: &[f32], weights: &[Vec<f32>]| {
        model.forward(arguments(images, weights)).unwrap_err().to_string()
    };
    assert!(refused(&images[1..], &weights).contains("elements"));
    weights[0].pop();
    let name = &model.weights()[0].name;
    assert!(refused(&images, &weights).contains(name.as_str()));
    weights.pop();
    assert!(refused(&images, &weights).contains("weights"));
}
