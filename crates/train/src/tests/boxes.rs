//! Training of detectors, beside PyTorch's.

use hipvit::model::{Checkpoint, detector_training};
use hipvit::tensor::Input;
use safetensors::SafeTensors;

use super::gradients::{MOVE, assert_gradients, bound_of, move_by_gradients};
use super::{IMAGES, RATE, f64s, golden, options};
use crate::{BoxOptions, Objective, OptimizerOptions, StepReport, TensorRule, TrainOptions, Trainer};

const MODELS: [&str; 3] = ["rt_detr", "rt_detr_plain", "rt_detr_v2"];
/// Objects of each image.
const COUNTS: [usize; IMAGES] = [3, 1, 0, 2];
const OBJECTS: usize = 4;

fn trainer(name: &str, edit: impl Fn(&mut TrainOptions)) -> hipvit::Result<Trainer> {
    let directory = golden("rt_detr").join(name);
    let loss = detector_training(&directory)?.loss;
    let mut options = options(Objective::Boxes(BoxOptions {
        loss,
        objects: OBJECTS,
    }));
    edit(&mut options);
    let weight_decay = if matches!(options.optimizer, OptimizerOptions::Sgd(_)) {
        0.0
    } else {
        0.05
    };
    Trainer::new(Checkpoint::open(Some(&directory))?, options, &|_| TensorRule {
        weight_decay,
        ..TensorRule::default()
    })
}

/// Returns the objects of `scripts/golden_training_boxes.py`.
fn objects(turn: usize) -> Vec<f32> {
    let mut rows = Vec::new();
    for (image, &count) in COUNTS.iter().enumerate() {
        for object in 0..OBJECTS {
            if object >= count {
                rows.extend([-1.0; 5]);
                continue;
            }
            let place = |index: usize| object * 11 + image * 5 + turn * 3 + index * 7;
            rows.push(((object * 2 + image + turn) % 5) as f32);
            rows.extend([0, 1].map(|index| (16 + place(index) % 33) as f32 / 64.0));
            rows.extend([2, 3].map(|index| (8 + place(index) % 17) as f32 / 64.0));
        }
    }
    rows
}

/// Makes the step that follows those of the trainer.
fn step(trainer: &mut Trainer, rate: f32) -> StepReport {
    let turn = (trainer.steps() % 2) as usize;
    let (width, height) = trainer.preprocess().output_size();
    let number = |i: usize| ((i * 7919 + turn * 104_729) % 33) as f32 / 16.0 - 1.0;
    let values: Vec<f32> = (0..IMAGES * 3 * width * height).map(number).collect();
    trainer
        .step(Input::Values(&values), &objects(turn), rate)
        .unwrap()
}

/// The gradients of all parameters are PyTorch's in double precision, except for sums that cancel. The loss is the mean over the objects of the
/// batch. Scores of the encoder's attention reach 30,000 in `rt_detr` and 87,000 in `rt_detr_v2`, so that each pixel sees one pixel.
#[test]
fn gradients_are_those_of_transformers() {
    for name in MODELS {
        let bytes = std::fs::read(golden("training").join(format!("boxes_{name}.safetensors"))).unwrap();
        let expected = SafeTensors::deserialize(&bytes).unwrap();
        let mut trainer = trainer(name, move_by_gradients).unwrap();
        let report = step(&mut trainer, MOVE);
        let loss = f64s(expected.tensor("losses").unwrap().data())[0];
        assert!(
            (f64::from(report.loss) / loss - 1.0).abs() < 1e-5,
            "{name}: {report:?}, expected {loss}"
        );
        assert_eq!(report.counted, COUNTS.iter().sum::<usize>());
        assert_gradients(name, &trainer, &expected, bound_of(&expected));
        let is_constant = |tensor: &str| {
            let of_norm = tensor.contains("running_") || tensor.contains("num_batches_tracked");
            let of_backbone = tensor.contains("backbone") && tensor.contains("normalization");
            // The encoder of this model reads no map of the last stage.
            let is_unused = name == "rt_detr_plain" && tensor.contains("encoder.stages.3");
            // Rounded offsets have no gradient.
            let is_rounded = name == "rt_detr_v2" && tensor.contains("sampling_offsets");
            let is_other = tensor.contains("denoising") || tensor.contains("n_points_scale");
            of_norm || of_backbone || is_unused || is_rounded || is_other
        };
        let cancels = |tensor: &str| tensor.contains("self_attn.q") || tensor.contains("self_attn.k");
        for tensor in trainer.checkpoint().names() {
            let is_compared = expected.tensor(tensor).is_ok();
            assert!(
                is_compared || is_constant(tensor) || cancels(tensor),
                "{name}: {tensor}"
            );
        }
        for frozen in trainer.frozen() {
            assert!(is_constant(&frozen.tensor), "{name}: {frozen:?}");
        }
    }
}

/// The first steps of AdamW, which have the same matches, follow the losses and the norms of transformers in double precision.
#[test]
fn steps_are_those_of_transformers() {
    for name in MODELS {
        let bytes = std::fs::read(golden("training").join(format!("boxes_{name}.safetensors"))).unwrap();
        let expected = SafeTensors::deserialize(&bytes).unwrap();
        let mut trainer = trainer(name, |_| {}).unwrap();
        let series = |key| f64s(expected.tensor(key).unwrap().data());
        for (expected, norm) in series("losses").into_iter().zip(series("norms")).take(3) {
            let report = step(&mut trainer, RATE);
            assert!(
                (f64::from(report.loss) / expected - 1.0).abs() < 1e-3,
                "{name}: {report:?}, expected {expected}"
            );
            assert!(
                (f64::from(report.grad_norm) / norm - 1.0).abs() < 2e-2,
                "{name}: {report:?}, expected {norm}"
            );
        }
    }
}

/// Micro-batches do not change the mean over the objects of a batch.
#[test]
fn micro_batches_have_the_loss_of_the_batch() {
    let reports = |accumulate| {
        let mut trainer = trainer("rt_detr_plain", |options| options.accumulate = accumulate).unwrap();
        [0; 2].map(|_| step(&mut trainer, RATE))
    };
    for (whole, divided) in reports(1).into_iter().zip(reports(4)) {
        assert!(
            (whole.loss / divided.loss - 1.0).abs() < 1e-4,
            "{whole:?} {divided:?}"
        );
        assert!(
            (whole.grad_norm / divided.grad_norm - 1.0).abs() < 1e-2,
            "{whole:?} {divided:?}"
        );
        assert_eq!([whole.correct, whole.counted], [divided.correct, divided.counted]);
    }
}

#[test]
fn what_training_of_detectors_cannot_do_is_refused_by_name() {
    let refused = |edit: &dyn Fn(&mut TrainOptions), reasons: &[&str]| {
        let error = trainer("rt_detr", edit).unwrap_err().to_string();
        for reason in reasons {
            assert!(error.contains(reason), "{error}");
        }
    };
    refused(
        &|options| options.precision.quantization = crate::Quantization::Int8,
        &["quantization", "objects"],
    );
    refused(&|options| options.drop = super::DROPS, &["dropout", "objects"]);
    let many: &dyn Fn(&mut TrainOptions) = &|options| {
        if let Objective::Boxes(boxes) = &mut options.loss {
            boxes.objects = 99;
        }
    };
    refused(many, &["99 targets", "queries"]);
    let mut trainer = trainer("rt_detr", |_| {}).unwrap();
    let error = trainer.step(Input::Values(&[]), &vec![0.0; 7], RATE).unwrap_err();
    assert!(error.to_string().contains("5 for each object"), "{error}");
}
