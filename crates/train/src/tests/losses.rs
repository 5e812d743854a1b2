//! Losses of pairs and of students.

use hipvit::tensor::Input;
use safetensors::SafeTensors;

use super::{IMAGES, RATE, distillation, f64s, golden, options, step, trainer};
use crate::{ContrastiveOptions, DistillationKind, LossKind, Objective, Targets, TrainOptions, Trainer};

/// Makes the step that follows those of the trainer, with the batch of `scripts/golden_training.py`.
fn step_of_pairs(trainer: &mut Trainer) -> crate::StepReport {
    let turn = (trainer.steps() % 2) as usize;
    let (width, height) = trainer.preprocess().output_size();
    let numbers = |len: usize, seed: usize| -> Vec<f32> {
        let number = |i: usize| ((i * 7919 + seed * 104_729) % 33) as f32 / 16.0 - 1.0;
        (0..len).map(number).collect()
    };
    let values = numbers(IMAGES * 3 * width * height, turn);
    let texts = numbers(IMAGES * trainer.target_width(), turn + 7);
    trainer.step(Input::Values(&values), &texts, RATE).unwrap()
}

/// Ten steps follow the losses, the norms, the scales and each tensor of open_clip's losses in double precision.
#[test]
fn steps_of_pairs_are_those_of_open_clip() {
    for (name, contrastive) in [
        ("hf_clip_projection", ContrastiveOptions::info_nce()),
        ("timm_vit_embedding", ContrastiveOptions::sigmoid()),
    ] {
        let bytes = std::fs::read(golden("training").join(name).with_extension("safetensors")).unwrap();
        let expected = SafeTensors::deserialize(&bytes).unwrap();
        let mut trainer = trainer(name, options(Objective::Contrastive(contrastive))).unwrap();
        let series = |key| f64s(expected.tensor(key).unwrap().data());
        for (expected, norm) in series("losses").into_iter().zip(series("norms")) {
            let report = step_of_pairs(&mut trainer);
            assert!(
                (f64::from(report.loss) - expected).abs() < 2e-4,
                "{name}: {report:?}, expected {expected}"
            );
            assert!(
                (f64::from(report.grad_norm) / norm - 1.0).abs() < 1e-2,
                "{name}: {report:?}, expected {norm}"
            );
        }
        let [scale, bias] = trainer.contrastive_scale().unwrap().unwrap();
        let scales = series("scales");
        assert!(
            (f64::from(scale.ln()) - scales[0]).abs() < 1e-4,
            "{name}: {scale}"
        );
        assert!(
            scales
                .get(1)
                .is_none_or(|expected| (f64::from(bias) - expected).abs() < 1e-4),
            "{name}: {bias}"
        );
        // Each of the learned numbers has moved.
        assert!((scale - contrastive.scale).abs() > 1e-3, "{name}: {scale}");
        super::compare_tensors(name, &trainer, &expected, &[]);
    }
}

#[test]
fn what_a_loss_of_pairs_cannot_do_is_refused_by_name() {
    let pairs = Objective::Contrastive(ContrastiveOptions::info_nce());
    let accumulated = TrainOptions {
        accumulate: 2,
        ..options(pairs)
    };
    let error = trainer("timm_vit_embedding", accumulated)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("accumulate") && error.contains("all pairs"),
        "{error}"
    );
    let without_scale = ContrastiveOptions {
        scale: 0.0,
        ..ContrastiveOptions::info_nce()
    };
    let error = trainer(
        "timm_vit_embedding",
        options(Objective::Contrastive(without_scale)),
    );
    assert!(error.unwrap_err().to_string().contains("scale above 0"));
    let mut trainer = trainer("timm_vit_embedding", options(pairs)).unwrap();
    let texts = vec![0.5; trainer.target_width() + 1];
    let error = trainer
        .step(Input::Values(&[]), &texts, RATE)
        .unwrap_err()
        .to_string();
    assert!(error.contains("rows of"), "{error}");
}

#[test]
fn teachers_are_asked_for_exactly_where_a_loss_compares_them() {
    let values = [0.0; 1];
    let mut student = trainer("hf_vit", options(distillation(DistillationKind::Hard))).unwrap();
    let targets = vec![0.5; student.classes()];
    let error = student
        .step(Input::Values(&values), &targets, RATE)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("teacher") && error.contains("a row for each image"),
        "{error}"
    );
    let mut plain = trainer("hf_vit", options(LossKind::CrossEntropy)).unwrap();
    let with_teacher = Targets {
        values: &targets,
        teacher: &targets,
        ..Targets::default()
    };
    let error = plain
        .step(Input::Values(&values), with_teacher, RATE)
        .unwrap_err()
        .to_string();
    assert!(error.contains("the loss compares none"), "{error}");
}

/// A student without a classifier for distillation has one loss of its logits, which accumulated micro-batches add up.
#[test]
fn students_with_one_classifier_learn_from_a_teacher() {
    let train = |accumulate| {
        let options = TrainOptions {
            accumulate,
            ..options(distillation(DistillationKind::Soft))
        };
        let mut student = trainer("hf_vit", options).unwrap();
        [0; 3].map(|_| step(&mut student).unwrap())
    };
    let (whole, parts) = (train(1), train(2));
    assert!(whole[2].loss < whole[0].loss, "{whole:?}");
    for (whole, part) in whole.iter().zip(&parts) {
        assert!((whole.loss - part.loss).abs() < 1e-5, "{whole:?}, {part:?}");
    }
}
