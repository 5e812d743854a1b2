//! AdamW's moments in 16 and 8 bits.

use std::path::Path;

use hipvit::model::Checkpoint;

use super::{options, step, trainer};
use crate::initial::{InitialModel, Start};
use crate::{
    AdamWOptions, LossKind, MemoryBudget, MemoryLimit, MemoryPlanner, Moments, OptimizerOptions, StepReport,
    TensorRule, TrainOptions,
};

fn with(moments: Moments) -> TrainOptions {
    TrainOptions {
        optimizer: OptimizerOptions::AdamW(AdamWOptions {
            moments,
            ..AdamWOptions::default()
        }),
        clip_norm: None,
        ..options(LossKind::CrossEntropy)
    }
}

/// The first step starts from moments of zeros and updates weights before it rounds, so its results do not depend on the form of the moments.
#[test]
fn losses_follow_those_with_moments_in_f32() {
    const STEPS: usize = 30;
    let losses = |moments| -> Vec<f32> {
        let mut trainer = trainer("hf_vit", with(moments)).unwrap();
        (0..STEPS).map(|_| step(&mut trainer).unwrap().loss).collect()
    };
    let expected = losses(Moments::F32);
    let fall = expected[0] - expected[STEPS - 1];
    assert!(fall > 0.2, "{expected:?}");
    for (moments, share) in [(Moments::Bf16, 0.02), (Moments::Int8, 0.06)] {
        let found = losses(moments);
        assert_eq!(found[..2], expected[..2], "{moments:?}");
        assert_ne!(found[2..], expected[2..], "{moments:?}");
        for (step, (found, expected)) in found.iter().zip(&expected).enumerate() {
            // A share of what the steps change.
            assert!(
                (found - expected).abs() <= share * fall,
                "{moments:?}, step {step}: {found}, expected {expected} of a fall of {fall}"
            );
        }
    }
}

#[test]
fn resumed_training_has_the_bits_of_uninterrupted_training() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("states.safetensors");
    for moments in [Moments::Bf16, Moments::Int8] {
        let mut whole = trainer("hf_vit", with(moments)).unwrap();
        let reports: Vec<StepReport> = (0..5)
            .map(|index| {
                if index == 3 {
                    whole.save(&file).unwrap();
                }
                step(&mut whole).unwrap()
            })
            .collect();
        let mut resumed = trainer("hf_vit", with(moments)).unwrap();
        resumed.restore(&file).unwrap();
        let rest = [step(&mut resumed).unwrap(), step(&mut resumed).unwrap()];
        assert_eq!(rest, reports[3..], "{moments:?}");
        let bytes = [&whole, &resumed].map(|trainer| {
            trainer.save(&file).unwrap();
            std::fs::read(&file).unwrap()
        });
        assert!(bytes[0] == bytes[1], "{moments:?}");
        // The states of another form are refused.
        let mut other = trainer("hf_vit", with(Moments::F32)).unwrap();
        let error = other.restore(&file).unwrap_err().to_string();
        assert!(error.contains("moment"), "{error}");
    }
}

#[test]
fn planned_states_have_the_bytes_of_their_form() {
    let folder = tempfile::tempdir().unwrap();
    let start = Start::of(Path::new("vit_tiny_patch16_224"), Some(32));
    let classes = ["a", "b"].map(str::to_owned);
    InitialModel::new(start, &classes, 0)
        .unwrap()
        .write(folder.path())
        .unwrap();
    let checkpoint = Checkpoint::open(Some(folder.path())).unwrap();
    let state_bytes = |moments| {
        let options = with(moments);
        let planner = MemoryPlanner::new(&checkpoint, &options, &|_| TensorRule::default()).unwrap();
        let budget = MemoryBudget {
            limit: MemoryLimit::Unlimited,
            images: 1,
        };
        planner.plan(budget).unwrap().state_bytes as f64
    };
    let f32s = state_bytes(Moments::F32);
    // A weight and two moments in f32.
    let elements = f32s / 12.0;
    for (moments, bytes) in [(Moments::Bf16, 4.0), (Moments::Int8, 520.0 / 256.0)] {
        let expected = (4.0 + bytes) * elements;
        let found = state_bytes(moments);
        // Each state begins at a multiple of 256 bytes, and blocks of 8 bits are filled up.
        assert!(
            (found / expected - 1.0).abs() < 0.01,
            "{moments:?}: {found} bytes, expected {expected}"
        );
    }
}
