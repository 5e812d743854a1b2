//! Training of both towers of dual encoders, beside PyTorch's.

use hipvit::model::{Checkpoint, LoadOptions, TensorValues};
use hipvit::tensor::Input;
use safetensors::SafeTensors;

use super::{IMAGES, RATE, compare_tensors, f64s, golden, options};
use crate::{Objective, PairOptions, StepReport, TensorRule, Texts, TrainOptions, Trainer};

/// Returns the loss of a model's family, for texts of `tokens` tokens.
fn loss_of(checkpoint: &Checkpoint, tokens: usize) -> PairOptions {
    let model = checkpoint.model_with(&TensorValues::new(), &LoadOptions::default());
    PairOptions::of(model.unwrap().text.as_ref().unwrap(), tokens)
}

/// Creates a trainer with the loss of the model's family, which `edit` may change.
fn trainer_with(
    name: &str,
    tokens: usize,
    edit: impl Fn(&mut PairOptions, &mut TrainOptions),
) -> hipvit::Result<Trainer> {
    let checkpoint = Checkpoint::open(Some(&golden("zero_shot").join(name)))?;
    let mut pairs = loss_of(&checkpoint, tokens);
    let mut options = options(Objective::Pairs(pairs));
    edit(&mut pairs, &mut options);
    options.loss = Objective::Pairs(pairs);
    Trainer::new(checkpoint, options, &|_| TensorRule {
        weight_decay: 0.05,
        ..TensorRule::default()
    })
}

fn trainer(name: &str, tokens: usize) -> Trainer {
    trainer_with(name, tokens, |_, _| {}).unwrap()
}

/// Returns the tokens and places of `scripts/golden_training.py`. `vocabulary` is that of the model.
fn texts(vocabulary: usize, tokens: usize, turn: usize, ends: bool) -> (Vec<i32>, Vec<f32>) {
    let (mut ids, mut places) = (Vec::new(), Vec::new());
    for row in 0..IMAGES {
        let last = 3 + (row * 3 + turn) % (tokens - 4);
        for place in 0..tokens {
            let id = (place * 31 + row * 7 + turn * 13) % (vocabulary - 2);
            let id = match place {
                _ if !ends || place < last => id,
                _ if place == last => vocabulary - 1,
                _ => 0,
            };
            ids.push(id as i32);
            if ends {
                places.push(if place == last { 1.0 } else { 0.0 });
            }
        }
    }
    (ids, places)
}

/// Makes the step that follows those of the trainer.
fn step(trainer: &mut Trainer, vocabulary: usize) -> StepReport {
    let turn = (trainer.steps() % 2) as usize;
    let (width, height) = trainer.preprocess().output_size();
    let number = |i: usize| ((i * 7919 + turn * 104_729) % 33) as f32 / 16.0 - 1.0;
    let values: Vec<f32> = (0..IMAGES * 3 * width * height).map(number).collect();
    let ends = vocabulary > 57;
    let (tokens, places) = texts(vocabulary, trainer.target_width(), turn, ends);
    let texts = Texts {
        tokens: &tokens,
        places: &places,
    };
    trainer.step(Input::Values(&values), texts, RATE).unwrap()
}

/// Ten steps of both towers follow the losses, the norms and each tensor of transformers and of open_clip in double precision. Tokens end
/// texts at different places, CLIP's texts are shorter than the context, and scale and bias are tensors of the model.
#[test]
fn steps_of_both_towers_are_those_of_pytorch() {
    for (name, tokens, vocabulary) in [
        ("hf_clip", 12, 528),
        ("hf_siglip", 16, 57),
        ("open_clip", 16, 528),
    ] {
        let file = golden("training").join(format!("pairs_{name}.safetensors"));
        let bytes = std::fs::read(file).unwrap();
        let expected = SafeTensors::deserialize(&bytes).unwrap();
        let mut trainer = trainer(name, tokens);
        let series = |key| f64s(expected.tensor(key).unwrap().data());
        for (expected, norm) in series("losses").into_iter().zip(series("norms")) {
            let report = step(&mut trainer, vocabulary);
            assert!(
                (f64::from(report.loss) - expected).abs() < 2e-4,
                "{name}: {report:?}, expected {expected}"
            );
            assert!(
                (f64::from(report.grad_norm) / norm - 1.0).abs() < 1e-2,
                "{name}: {report:?}, expected {norm}"
            );
        }
        assert_eq!(trainer.frozen(), [], "{name}");
        compare_tensors(name, &trainer, &expected, &[]);
    }
}

/// A step that exceeds the limit of the scale ends with the limit, which the next step and the written model have.
#[test]
fn the_scale_stays_within_its_limit() {
    let limit = 2.0;
    let with_limit = |largest_scale| {
        let edit = |pairs: &mut PairOptions, _: &mut TrainOptions| {
            pairs.contrastive.scale = limit;
            pairs.contrastive.largest_scale = largest_scale;
        };
        trainer_with("hf_clip", 12, edit).unwrap()
    };
    let (mut limited, mut free) = (with_limit(limit), with_limit(f32::INFINITY));
    let mut scales = Vec::new();
    for _ in 0..20 {
        step(&mut limited, 528);
        step(&mut free, 528);
        let [scale, _] = free.contrastive_scale().unwrap().unwrap();
        scales.push(scale);
        let [scale, _] = limited.contrastive_scale().unwrap().unwrap();
        assert!(scale <= limit * 1.000_001, "{scale}");
    }
    // The limit is of a scale that training increases.
    assert!(scales.iter().any(|scale| *scale > limit * 1.0005), "{scales:?}");
}

#[test]
fn what_training_on_pairs_cannot_do_is_refused_by_name() {
    let refused =
        |name: &str, tokens, edit: &dyn Fn(&mut PairOptions, &mut TrainOptions), reasons: &[&str]| {
            let error = trainer_with(name, tokens, edit).unwrap_err().to_string();
            for reason in reasons {
                assert!(error.contains(reason), "{error}");
            }
        };
    refused(
        "hf_clip",
        12,
        &|_, options| options.accumulate = 2,
        &["accumulate", "all pairs"],
    );
    let quantized: &dyn Fn(&mut PairOptions, &mut TrainOptions) =
        &|_, options| options.precision.quantization = crate::Quantization::Int8;
    refused("hf_clip", 12, quantized, &["quantization", "one tower"]);
    refused("hf_clip", 17, &|_, _| {}, &["17 tokens", "context of 16"]);
    let mut trainer = trainer("hf_clip", 12);
    let texts = Texts {
        tokens: &[1; 23],
        places: &[0.0; 23],
    };
    let error = trainer
        .step(Input::Values(&[]), texts, RATE)
        .unwrap_err()
        .to_string();
    assert!(error.contains("texts") && error.contains("rows of 12"), "{error}");
}
