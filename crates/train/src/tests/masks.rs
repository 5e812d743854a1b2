//! Training of SAM, beside PyTorch's.

use hipvit::model::Checkpoint;
use hipvit::segment::{MaskModel, Prompt};
use hipvit::tensor::Input;
use safetensors::SafeTensors;

use super::gradients::{MOVE, assert_gradients, bound_of, move_by_gradients};
use super::{IMAGES, RATE, f64s, golden, options};
use crate::{Objective, Prompts, StepReport, Targets, TensorRule, TrainOptions, Trainer};

const MODELS: [&str; 2] = ["sam", "sam_plain"];

/// Parts of the names of tensors that are not trained.
const UNUSED: [&str; 3] = [
    "prompt_encoder.mask_embed.",
    "output_hypernetworks_mlps.0.",
    // Frequencies of the positions, which SAM's own code does not train. In transformers they are a parameter.
    "positional_embedding",
];

fn trainer(name: &str, edit: impl Fn(&mut TrainOptions)) -> Trainer {
    let checkpoint = Checkpoint::open(Some(&golden("segment").join(name))).unwrap();
    let mut options = options(Objective::Masks);
    edit(&mut options);
    Trainer::new(checkpoint, options, &|_| TensorRule::default()).unwrap()
}

/// Makes a step with the images, prompts and targets of `scripts/golden_training_masks.py`.
fn step(trainer: &mut Trainer, rate: f32) -> StepReport {
    let model = MaskModel::of_checkpoint(trainer.checkpoint(), &Default::default()).unwrap();
    let side = model.side();
    let images: Vec<f32> = (0..IMAGES * 3 * side * side)
        .map(|i| ((i * 7919) % 33) as f32 / 16.0 - 1.0)
        .collect();
    let pixels = trainer.target_width();
    let target = |index: usize, place: usize| {
        let is_covered = (place * 31 + place / 7 * 17 + index * 11) % 23 < 9;
        if is_covered { 1.0 } else { 0.0 }
    };
    let values: Vec<f32> = (0..IMAGES * pixels)
        .map(|at| target(at / pixels, at % pixels))
        .collect();
    let (mut positions, mut kinds) = (Vec::new(), Vec::new());
    for index in 0..IMAGES {
        let prompt = match index {
            0 | 2 => Prompt::new().point((3 + 5 * index) as f32, (side - 4 - 3 * index) as f32, index == 0),
            _ => {
                let corners = [2 + index, 3, side - 5, side - 2 - index];
                Prompt::new().within(corners.map(|corner| corner as f32))
            }
        };
        let row = model.prompt(&prompt, [side; 2]).unwrap();
        positions.extend(row.positions);
        kinds.extend(row.kinds);
    }
    let targets = Targets {
        values: &values,
        prompts: Prompts {
            positions: &positions,
            kinds: &kinds,
        },
        ..Targets::default()
    };
    trainer.step(Input::Values(&images), targets, rate).unwrap()
}

/// The loss and the gradients of all trained tensors are PyTorch's in double precision: of the encoder with its windows and relative positions, of the vectors
/// of prompts and masks, and of the decoder.
#[test]
fn gradients_are_those_of_transformers() {
    for name in MODELS {
        let bytes = std::fs::read(golden("training").join(format!("masks_{name}.safetensors"))).unwrap();
        let expected = SafeTensors::deserialize(&bytes).unwrap();
        let bound = bound_of(&expected);
        let mut trainer = trainer(name, move_by_gradients);
        let report = step(&mut trainer, MOVE);
        let loss = f64s(expected.tensor("losses").unwrap().data())[0];
        assert!(
            (f64::from(report.loss) / loss - 1.0).abs() < bound,
            "{name}: {report:?}, expected {loss}"
        );
        for frozen in trainer.frozen() {
            let is_unused = UNUSED.iter().any(|part| frozen.tensor.contains(part));
            assert!(is_unused, "{name}: {frozen:?}");
        }
        let compared = assert_gradients(name, &trainer, &expected, bound);
        assert!(compared > 150, "{name}: {compared}");
    }
}

/// The mean over the images does not depend on micro-batches, which have prompts of their own.
#[test]
fn micro_batches_have_their_prompts() {
    let reports = |accumulate| {
        let mut trainer = trainer("sam", |options| options.accumulate = accumulate);
        [0; 3].map(|_| step(&mut trainer, RATE))
    };
    for (whole, divided) in reports(1).into_iter().zip(reports(3)) {
        assert!(
            (whole.loss / divided.loss - 1.0).abs() < 1e-4,
            "{whole:?} {divided:?}"
        );
        assert!(
            (whole.grad_norm / divided.grad_norm - 1.0).abs() < 1e-3,
            "{whole:?} {divided:?}"
        );
    }
}

#[test]
fn prompts_that_masks_are_not_trained_with_are_refused() {
    let model = MaskModel::of_checkpoint(trainer("sam", |_| {}).checkpoint(), &Default::default()).unwrap();
    let two = Prompt::new().inside(3.0, 4.0).outside(5.0, 6.0);
    let error = model.prompt(&two, [64, 64]).unwrap_err().to_string();
    assert!(error.contains("neither one point nor a box"), "{error}");
    let far = Prompt::new().inside(90.0, 4.0);
    assert!(model.prompt(&far, [64, 64]).is_err());
}
