//! Training of image encoders with a text decoder, beside PyTorch's.

use hipvit::model::Checkpoint;
use hipvit::tensor::Input;
use hipvit_generate::LEFT_OUT;
use safetensors::SafeTensors;

use super::gradients::{MOVE, assert_gradients, bound_of, move_by_gradients};
use super::{IMAGES, RATE, f64s, golden, options};
use crate::{
    Objective, OptimizerOptions, Sequences, StepReport, TensorRule, TextOptions, TrainOptions, Trainer,
};

const TOKENS: usize = 12;
const MODELS: [&str; 3] = ["trocr_base", "trocr_small", "trocr_untied"];

fn trainer(name: &str, edit: impl Fn(&mut TrainOptions)) -> hipvit::Result<Trainer> {
    let checkpoint = Checkpoint::open(Some(&golden("generation").join(name)))?;
    let mut options = options(Objective::Texts(TextOptions { tokens: TOKENS }));
    edit(&mut options);
    let weight_decay = if matches!(options.optimizer, OptimizerOptions::Sgd(_)) {
        0.0
    } else {
        0.05
    };
    Trainer::new(checkpoint, options, &|_| TensorRule {
        weight_decay,
        ..TensorRule::default()
    })
}

/// Returns the labels of `scripts/golden_training_texts.py`.
fn labels(vocabulary: usize, turn: usize) -> Vec<i32> {
    let mut labels = Vec::new();
    for row in 0..IMAGES {
        let last = 2 + (row * 3 + turn) % (TOKENS - 3);
        labels.extend((0..TOKENS).map(|place| match place {
            _ if place < last => (4 + (place * 31 + row * 7 + turn * 13) % (vocabulary - 4)) as i32,
            _ if place == last => 2,
            _ => LEFT_OUT,
        }));
    }
    labels
}

/// Makes the step that follows those of the trainer. `padding` fills what follows a text.
fn step(trainer: &mut Trainer, rate: f32, padding: i32) -> StepReport {
    let turn = (trainer.steps() % 2) as usize;
    let (width, height) = trainer.preprocess().output_size();
    let number = |i: usize| ((i * 7919 + turn * 104_729) % 33) as f32 / 16.0 - 1.0;
    let values: Vec<f32> = (0..IMAGES * 3 * width * height).map(number).collect();
    let labels = labels(40, turn);
    let (mut tokens, mut positions) = (Vec::new(), Vec::new());
    for row in labels.chunks_exact(TOKENS) {
        let read = [2].into_iter().chain(row.iter().copied()).take(TOKENS);
        tokens.extend(read.map(|token| if token == LEFT_OUT { padding } else { token }));
        positions.extend((0..TOKENS as i32).map(|place| 2 + place));
    }
    let texts = Sequences {
        tokens: &tokens,
        positions: &positions,
        labels: &labels,
    };
    trainer.step(Input::Values(&values), texts, rate).unwrap()
}

/// A step of SGD moves each weight by its gradient: those of all parameters are PyTorch's in double precision. The loss is the mean over the
/// tokens that are counted, and tied embeddings have both gradients.
#[test]
fn gradients_are_those_of_transformers() {
    for name in MODELS {
        let bytes = std::fs::read(golden("training").join(format!("texts_{name}.safetensors"))).unwrap();
        let expected = SafeTensors::deserialize(&bytes).unwrap();
        let mut trainer = trainer(name, |options| {
            move_by_gradients(options);
        })
        .unwrap();
        let bound = bound_of(&expected);
        let report = step(&mut trainer, MOVE, 1);
        let loss = f64s(expected.tensor("losses").unwrap().data())[0];
        assert!(
            (f64::from(report.loss) / loss - 1.0).abs() < bound,
            "{name}: {report:?}, expected {loss}"
        );
        assert_eq!(
            report.counted,
            labels(40, 0).iter().filter(|&&label| label >= 0).count()
        );
        let frozen: Vec<&str> = trainer
            .frozen()
            .iter()
            .map(|frozen| frozen.tensor.as_str())
            .collect();
        assert!(
            frozen.iter().all(|tensor| tensor.contains("pooler")),
            "{name}: {frozen:?}"
        );
        let compared = assert_gradients(name, &trainer, &expected, bound);
        assert_eq!(
            compared + frozen.len(),
            trainer.checkpoint().names().count(),
            "{name}"
        );
    }
}

/// Ten steps of AdamW follow the losses and the norms of transformers in double precision.
#[test]
fn ten_steps_are_those_of_transformers() {
    for name in MODELS {
        let bytes = std::fs::read(golden("training").join(format!("texts_{name}.safetensors"))).unwrap();
        let expected = SafeTensors::deserialize(&bytes).unwrap();
        let mut trainer = trainer(name, |_| {}).unwrap();
        let series = |key| f64s(expected.tensor(key).unwrap().data());
        for (expected, norm) in series("losses").into_iter().zip(series("norms")) {
            let report = step(&mut trainer, RATE, 1);
            assert!(
                (f64::from(report.loss) / expected - 1.0).abs() < 2e-4,
                "{name}: {report:?}, expected {expected}"
            );
            assert!(
                (f64::from(report.grad_norm) / norm - 1.0).abs() < 1e-2,
                "{name}: {report:?}, expected {norm}"
            );
        }
    }
}

/// What follows a text changes no bit, and micro-batches do not change the mean over the tokens of a batch.
#[test]
fn tokens_after_a_text_count_for_nothing() {
    let reports = |padding, accumulate| {
        let mut trainer = trainer("trocr_base", |options| options.accumulate = accumulate).unwrap();
        [0; 3].map(|_| step(&mut trainer, RATE, padding))
    };
    assert_eq!(reports(1, 1), reports(39, 1));
    for (whole, divided) in reports(1, 1).into_iter().zip(reports(1, 4)) {
        assert!((whole.loss - divided.loss).abs() < 1e-4, "{whole:?} {divided:?}");
        assert!(
            (whole.grad_norm / divided.grad_norm - 1.0).abs() < 1e-3,
            "{whole:?} {divided:?}"
        );
        assert_eq!([whole.correct, whole.counted], [divided.correct, divided.counted]);
    }
}

#[test]
fn what_training_on_texts_cannot_do_is_refused_by_name() {
    let refused = |edit: &dyn Fn(&mut TrainOptions), reasons: &[&str]| {
        let error = trainer("trocr_base", edit).unwrap_err().to_string();
        for reason in reasons {
            assert!(error.contains(reason), "{error}");
        }
    };
    refused(
        &|options| options.precision.quantization = crate::Quantization::Int8,
        &["quantization", "texts"],
    );
    let lora = crate::LoraOptions {
        rank: 2,
        alpha: 4.0,
        targets: crate::recipe::Recipe::default().lora.targets,
        rule: TensorRule::default(),
    };
    refused(&|options| options.lora = Some(lora.clone()), &["lora", "texts"]);
    refused(&|options| options.drop = super::DROPS, &["dropout", "texts"]);
    let long: &dyn Fn(&mut TrainOptions) =
        &|options| options.loss = Objective::Texts(TextOptions { tokens: 41 });
    refused(long, &["41 tokens", "40 positions"]);
    let mut trainer = trainer("trocr_base", |_| {}).unwrap();
    let mut given = |labels: &[i32]| {
        let texts = Sequences {
            tokens: &[4; TOKENS],
            positions: &[2; TOKENS],
            labels,
        };
        trainer
            .step(Input::Values(&[]), texts, RATE)
            .unwrap_err()
            .to_string()
    };
    let error = given(&[4; 11]);
    assert!(
        error.contains("11 labels") && error.contains("rows of 12"),
        "{error}"
    );
    let error = given(&[LEFT_OUT; TOKENS]);
    assert!(error.contains("no token that the loss counts"), "{error}");
}
