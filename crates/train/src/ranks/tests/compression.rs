//! Compression of gradients by PowerSGD.

use std::collections::BTreeMap;
use std::path::Path;

use hipvit::tensor::Tensor;

use super::*;
use crate::recipe::Compression;

const RANK: usize = 2;

fn keys() -> RankKeys {
    RankKeys {
        compression: Compression::Powersgd,
        rank: RANK,
        ..RankKeys::default()
    }
}

fn sgd() -> TrainOptions {
    TrainOptions {
        optimizer: OptimizerOptions::Sgd(SgdOptions {
            momentum: 0.0,
            ..SgdOptions::default()
        }),
        ..without_clipping()
    }
}

/// Parameters and states of all ranks as a whole, by their names.
type States = BTreeMap<String, Vec<f32>>;

/// Returns the states of a rank. All ranks call this.
fn states(trainer: &Trainer) -> States {
    let graph = trainer.executor().unwrap().info().graph.clone();
    let names = graph.states().map(|id| graph.value(id).name.clone());
    // A step starts the sums of gradients anew.
    names
        .filter(|name| !name.ends_with(".gradient_sum"))
        .map(|name| {
            let values = trainer.whole_state(&name).unwrap();
            (name, values)
        })
        .collect()
}

fn steps(trainer: &mut Trainer, rank: usize, ranks: usize, count: usize) {
    for _ in 0..count {
        step(trainer, rank, ranks);
    }
}

/// Returns the states of each rank after some steps.
fn after(options: &TrainOptions, ranks: usize, keys: &RankKeys, steps: usize) -> Vec<States> {
    on_ranks(ranks, keys, |group| {
        let rank = group.plan.rank;
        let mut trainer = trainer(options.clone(), Some(group));
        self::steps(&mut trainer, rank, ranks, steps);
        states(&trainer)
    })
}

/// Rows of all ranks' errors, summed.
fn sum_of_errors(states: &States, weight: &str, elements: usize) -> Option<Vec<f32>> {
    let errors = states.get(&format!("{weight}.compression_error"))?;
    let mut sum = vec![0.0; elements];
    for rank in errors.chunks_exact(elements) {
        sum.iter_mut().zip(rank).for_each(|(sum, error)| *sum += error);
    }
    Some(sum)
}

/// What a step of SGD leaves out is in the errors of the ranks, and the others are as without compression.
#[test]
fn errors_are_what_a_step_leaves_out() {
    for ranks in [2, 3] {
        let whole = after(&sgd(), ranks, &RankKeys::default(), 1).remove(0);
        let all = after(&sgd(), ranks, &keys(), 1);
        let (mut compressed, mut largest) = (0, 0.0_f32);
        for (name, expected) in whole.iter().filter(|(name, _)| !name.ends_with(".momentum")) {
            let found = &all[0][name];
            let Some(errors) = sum_of_errors(&all[0], name, found.len()) else {
                assert_eq!(found, expected, "{name}");
                continue;
            };
            compressed += 1;
            for ((found, expected), error) in found.iter().zip(expected).zip(errors) {
                // The learning rate of `step`. Sums of some terms of about 1 are rounded.
                let left_out = 1e-2 * error;
                largest = largest.max(left_out.abs());
                let difference = (found - left_out - expected).abs();
                assert!(
                    difference < 1e-6,
                    "{name}: {found} - {left_out}, expected {expected}"
                );
            }
        }
        assert!(compressed >= 4 && largest > 1e-4, "{compressed} {largest}");
        for (rank, other) in all.iter().enumerate() {
            assert!(*other == all[0], "rank {rank}");
        }
    }
}

/// Returns the sums of what each of some steps of constant weights would update, and the states of the ranks.
fn sums_of_updates(keys: &RankKeys, count: usize) -> States {
    let options = TrainOptions {
        optimizer: OptimizerOptions::Sgd(SgdOptions {
            momentum: 1.0,
            ..SgdOptions::default()
        }),
        ..without_clipping()
    };
    let rule = |_: &crate::TensorInfo<'_>| TensorRule {
        rate_factor: 0.0,
        ..TensorRule::default()
    };
    let all = on_ranks(2, keys, |group| {
        let rank = group.plan.rank;
        let mut trainer = Trainer::with_ranks(model(), options.clone(), &rule, Some(group)).unwrap();
        steps(&mut trainer, rank, 2, count);
        states(&trainer)
    });
    all.into_iter().next().unwrap()
}

/// Later steps add what the first ones left out: the sum of all updates lacks the present errors and nothing else, and these stay small.
#[test]
fn left_out_gradients_are_made_up_for() {
    let whole = sums_of_updates(&RankKeys::default(), 24);
    let found = sums_of_updates(&keys(), 24);
    let norm = |values: &[f32]| values.iter().map(|value| value * value).sum::<f32>().sqrt();
    let mut compressed = 0;
    for (name, expected) in whole.iter().filter(|(name, _)| name.ends_with(".momentum")) {
        let weight = name.strip_suffix(".momentum").unwrap();
        let sums = &found[name];
        let Some(errors) = sum_of_errors(&found, weight, sums.len()) else {
            continue;
        };
        compressed += 1;
        // 24 sums of rounded terms, which are as large as the largest one at most.
        let bound = 24.0 * 1e-6 * expected.iter().fold(1.0_f32, |most, value| most.max(value.abs()));
        for ((sum, error), expected) in sums.iter().zip(&errors).zip(expected) {
            assert!(
                (sum + error - expected).abs() < bound,
                "{name}: {sum} + {error}, expected {expected}"
            );
        }
        println!("{name}: {:.3}", norm(&errors) / norm(expected));
        assert!(norm(&errors) < 0.5 * norm(expected), "{name}");
    }
    assert!(compressed >= 4);
}

#[test]
fn runs_have_equal_bits_also_after_a_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    for shard in [Shard::None, Shard::Optimizer] {
        let keys = RankKeys { shard, ..keys() };
        let options = without_clipping();
        let expected = after(&options, 2, &keys, 5);
        assert!(after(&options, 2, &keys, 5) == expected);
        let file = directory.path().join(format!("{shard:?}"));
        on_ranks(2, &keys, |group| {
            let rank = group.plan.rank;
            let mut trainer = trainer(options.clone(), Some(group));
            steps(&mut trainer, rank, 2, 3);
            trainer.save(&file).unwrap();
        });
        assert!(restored(&options, &keys, 2, &file, 2) == expected[0]);
        // Without a division, the update is the same.
        let undivided = after(&options, 2, &super::compression::keys(), 5);
        for (name, values) in &undivided[0] {
            assert!(expected[0][name] == *values, "{shard:?}, {name}");
        }
    }
}

/// Returns the states of rank 0 after a restore and some steps.
fn restored(options: &TrainOptions, keys: &RankKeys, ranks: usize, file: &Path, steps: usize) -> States {
    let all = on_ranks(ranks, keys, |group| {
        let rank = group.plan.rank;
        let mut trainer = trainer(options.clone(), Some(group));
        trainer.restore(file).unwrap();
        self::steps(&mut trainer, rank, ranks, steps);
        states(&trainer)
    });
    all.into_iter().next().unwrap()
}

#[test]
fn another_number_of_ranks_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("states");
    let options = without_clipping();
    let saved = on_ranks(2, &keys(), |group| {
        let rank = group.plan.rank;
        let mut trainer = trainer(options.clone(), Some(group));
        steps(&mut trainer, rank, 2, 3);
        trainer.save(&file).unwrap();
        states(&trainer)
    });
    let found = restored(&options, &keys(), 3, &file, 0);
    let errors = |name: &&String| name.ends_with(".compression_error");
    assert!(found.keys().filter(errors).count() >= 4);
    for (name, values) in &found {
        let Some(weight) = name.strip_suffix(".compression_error") else {
            assert!(saved[0][name] == *values, "{name}");
            continue;
        };
        let elements = values.len() / 3;
        let [before, now] =
            [&saved[0], &found].map(|states| sum_of_errors(states, weight, elements).unwrap());
        for (before, now) in before.iter().zip(now) {
            assert!(
                (before - now).abs() <= 1e-5 * before.abs().max(1e-3),
                "{name}: {before}, {now}"
            );
        }
    }
    // A single rank has no errors, and its file has none.
    let mut alone = trainer(options.clone(), None);
    alone.restore(&file).unwrap();
    step(&mut alone, 0, 1);
    alone.save(&file).unwrap();
    let found = restored(&options, &keys(), 2, &file, 0);
    let mut errors = found
        .iter()
        .filter(|(name, _)| name.ends_with(".compression_error"));
    assert!(errors.all(|(_, values)| values.iter().all(|&value| value == 0.0)));
}

#[test]
fn steps_without_an_update_change_no_error() {
    let options = TrainOptions {
        accumulate: 2,
        ..without_clipping()
    };
    let divided = after(&options, 2, &keys(), 2);
    assert!(divided[1] == divided[0]);
    on_ranks(2, &keys(), |group| {
        let rank = group.plan.rank;
        let mut trainer = trainer(options.clone(), Some(group));
        step(&mut trainer, rank, 2);
        let before = states(&trainer);
        // The next loss is not a number, and nor are the gradients.
        let name = "head.bias";
        let shape = trainer.executor().unwrap().state(name).unwrap().shape().to_vec();
        let nan = Tensor::from_f32(shape.as_slice(), vec![f32::NAN; shape.iter().product()]).unwrap();
        trainer.executor().unwrap().set_state(name, &nan).unwrap();
        assert!(!step(&mut trainer, rank, 2).updated);
        let after = states(&trainer);
        for (name, values) in before.iter().filter(|(name, _)| name.contains(".compression_")) {
            assert!(after[name] == *values, "{name}");
        }
    });
}

#[test]
fn fewer_bytes_are_exchanged() {
    let bytes = on_ranks(2, &keys(), |group| {
        trainer(options(), Some(group)).compressed_bytes().unwrap()
    });
    let Some([sent, whole]) = bytes[0] else {
        panic!("{bytes:?}");
    };
    println!("{sent} of {whole} bytes");
    assert!(sent < whole && sent > 0);
    let none = on_ranks(2, &RankKeys::default(), |group| {
        trainer(options(), Some(group)).compressed_bytes().unwrap()
    });
    assert_eq!(none, [None, None]);
}

#[test]
fn combinations_that_cannot_work_are_refused() {
    for (keys, reason) in [
        (
            RankKeys {
                shard: Shard::Gradients,
                ..keys()
            },
            "`ranks.shard`",
        ),
        (
            RankKeys {
                shard: Shard::Parameters,
                ..keys()
            },
            "`ranks.shard`",
        ),
        (RankKeys { group: 1, ..keys() }, "`ranks.group`"),
        (RankKeys { rank: 0, ..keys() }, "`ranks.rank`"),
    ] {
        let error = RankPlan::new(0, 2, &keys).unwrap_err().to_string();
        assert!(error.contains("powersgd") && error.contains(reason), "{error}");
    }
    assert!(
        RankPlan::new(
            0,
            2,
            &RankKeys {
                shard: Shard::Optimizer,
                ..keys()
            }
        )
        .is_ok()
    );
}
