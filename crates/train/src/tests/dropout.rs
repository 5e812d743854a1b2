//! Places of dropout.

use hipvit::graph::Graph;
use hipvit::model::Checkpoint;
use hipvit::ops::Op;

use super::{DROPS, golden, options, step, trainer};
use crate::{DropOptions, LossKind, TensorRule, TrainOptions, step_graph};

/// Returns the name and the probability of each dropout of a step's forward pass, and their number in the whole step.
fn dropouts(model: &str, drop: DropOptions) -> (Vec<(String, f32)>, usize) {
    let checkpoint = Checkpoint::open(Some(&golden(model))).unwrap();
    let options = TrainOptions {
        drop,
        ..options(LossKind::CrossEntropy)
    };
    let (graph, _): (Graph, _) = step_graph(&checkpoint, &options, &|_| TensorRule::default()).unwrap();
    let mut sites = std::collections::BTreeSet::new();
    let mut forward = Vec::new();
    let mut all = 0;
    for node in graph.nodes() {
        let Op::Dropout(op) = &node.op else { continue };
        all += 1;
        if sites.insert(op.site) {
            forward.push((node.name.clone(), op.probability));
        }
    }
    (forward, all)
}

#[test]
fn places_are_those_of_timm() {
    let (forward, all) = dropouts("timm_vit_class_token", DROPS);
    let blocks = (forward.len() - 2) / 3;
    let mut expected = vec![("tokens.dropout".to_owned(), DROPS.positions)];
    for block in 0..blocks {
        for layer in ["attn.proj", "mlp.act", "mlp.fc2"] {
            expected.push((format!("blocks.{block}.{layer}.dropout"), DROPS.projections));
        }
    }
    expected.push(("head.input.dropout".to_owned(), DROPS.head));
    assert!(blocks > 0);
    assert_eq!(forward, expected);
    // The derivatives are the same op with the same numbers.
    assert_eq!(all, 2 * forward.len());
}

#[test]
fn a_model_without_the_place_is_refused_by_the_key() {
    let drop = DropOptions {
        head: 0.5,
        ..DropOptions::default()
    };
    let error = trainer(
        "hf_clip_projection",
        TrainOptions {
            drop,
            ..options(crate::Objective::Contrastive(
                crate::ContrastiveOptions::info_nce(),
            ))
        },
    );
    let error = error.unwrap_err().to_string();
    assert!(error.contains("drop_rate"), "{error}");
    let out_of_range = DropOptions {
        positions: 1.0,
        ..DropOptions::default()
    };
    let error = trainer(
        "hf_vit",
        TrainOptions {
            drop: out_of_range,
            ..options(LossKind::CrossEntropy)
        },
    );
    let error = error.unwrap_err().to_string();
    assert!(error.contains("positions"), "{error}");
}

/// Each kind of dropout changes the loss of a step, and so does the seed.
#[test]
fn steps_depend_on_each_probability_and_on_the_seed() {
    let loss = |drop, seed| {
        let options = TrainOptions {
            drop,
            seed,
            ..options(LossKind::CrossEntropy)
        };
        step(&mut trainer("timm_vit_class_token", options).unwrap())
            .unwrap()
            .loss
    };
    let none = DropOptions::default();
    let mut losses = vec![
        loss(none, 0),
        loss(DropOptions { head: 0.3, ..none }, 0),
        loss(
            DropOptions {
                projections: 0.3,
                ..none
            },
            0,
        ),
        loss(
            DropOptions {
                positions: 0.3,
                ..none
            },
            0,
        ),
        loss(
            DropOptions {
                positions: 0.3,
                ..none
            },
            1,
        ),
    ];
    assert_eq!(loss(none, 1), losses[0]);
    losses.sort_by(f32::total_cmp);
    losses.dedup();
    assert_eq!(losses.len(), 5, "{losses:?}");
}
