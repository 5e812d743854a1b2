//! Training of the golden models on several ranks, with a thread per rank.

mod compression;

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use hipvit::Device;
use hipvit::exec::Collectives;
use hipvit::graph::plan::ALIGNMENT;
use hipvit::hip::{Mesh, Rendezvous, World};
use hipvit::model::{Checkpoint, InputKind, TensorValues};
use hipvit::tensor::Input;
use serde_json::json;

use super::{RankPlan, Ranks};
use crate::initial::{InitialModel, Start};
use crate::recipe::{RankKeys, Shard, Wire};
use crate::tests::DROPS;
use crate::{
    AdamWOptions, DropOptions, LionOptions, MemoryBudget, MemoryLimit, MemoryPlanner, MemoryReport, Moments,
    OptimizerOptions, SgdOptions, StepReport, TensorRule, TrainOptions, Trainer, Weights,
};

/// Images per step. A multiple of all numbers of ranks below.
const IMAGES: usize = 12;

fn model() -> Checkpoint {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/timm_vit_class_token");
    Checkpoint::open(Some(&path)).unwrap()
}

fn options() -> TrainOptions {
    TrainOptions {
        device: Device::Cpu,
        threads: Some(1),
        input: InputKind::PixelValues,
        optimizer: OptimizerOptions::AdamW(AdamWOptions::default()),
        clip_norm: Some(0.5),
        drop: DROPS,
        seed: 7,
        ..TrainOptions::default()
    }
}

/// Options under which clipping cannot hide or cause a difference.
fn without_clipping() -> TrainOptions {
    TrainOptions {
        clip_norm: None,
        ..options()
    }
}

fn trainer(options: TrainOptions, ranks: Option<Ranks>) -> Trainer {
    let rule = |_: &crate::TensorInfo<'_>| TensorRule {
        weight_decay: 0.05,
        ..TensorRule::default()
    };
    Trainer::with_ranks(model(), options, &rule, ranks).unwrap()
}

/// Makes the next step of a rank, which has its share of the images.
fn step(trainer: &mut Trainer, rank: usize, ranks: usize) -> StepReport {
    let turn = trainer.steps() as usize;
    let (width, height) = trainer.preprocess().output_size();
    let image = 3 * width * height;
    let number = |i: usize| ((i * 7919 + turn * 104_729) % 33) as f32 / 16.0 - 1.0;
    let values: Vec<f32> = (0..IMAGES * image).map(number).collect();
    let classes = trainer.classes();
    let mut targets = vec![0.0; IMAGES * classes];
    for (image, targets) in targets.chunks_exact_mut(classes).enumerate() {
        targets[(image * 3 + turn) % classes] = 1.0;
    }
    let share = IMAGES / ranks;
    let own = rank * share..(rank + 1) * share;
    let images = &values[own.start * image..own.end * image];
    let targets = &targets[own.start * classes..own.end * classes];
    trainer.step(Input::Values(images), targets, 1e-2).unwrap()
}

/// Runs a function on each rank. Returns its results in the order of the ranks.
fn on_ranks<T: Send>(ranks: usize, keys: &RankKeys, work: impl Fn(Ranks) -> T + Sync) -> Vec<T> {
    let port = {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.local_addr().unwrap().port()
    };
    let connect = |rank: usize| {
        let find = |name: &str| match name {
            "RANK" => Some(rank.to_string()),
            "WORLD_SIZE" => Some(ranks.to_string()),
            "MASTER_ADDR" => Some("127.0.0.1".to_owned()),
            "MASTER_PORT" => Some(port.to_string()),
            "TORCHELASTIC_RUN_ID" => Some(format!("train{port}")),
            _ => None,
        };
        let world = World::from_variables(find).unwrap().unwrap();
        let timeout = Duration::from_secs(60);
        let mesh = Mesh::join(Rendezvous::new(world, timeout).unwrap(), timeout).unwrap();
        Ranks::new(Arc::new(Collectives::new(mesh).unwrap()), keys).unwrap()
    };
    thread::scope(|scope| {
        let (work, connect) = (&work, &connect);
        let threads: Vec<_> = (0..ranks)
            .map(|rank| scope.spawn(move || work(connect(rank))))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn shard(shard: Shard) -> RankKeys {
    RankKeys {
        shard,
        ..RankKeys::default()
    }
}

type Trained = (Vec<StepReport>, TensorValues);

/// Returns the reports and weights after some steps of one rank.
fn alone(options: TrainOptions, steps: usize) -> Trained {
    let mut trainer = trainer(options, None);
    let reports = (0..steps).map(|_| step(&mut trainer, 0, 1)).collect();
    (reports, trainer.values(Weights::Last).unwrap())
}

/// Returns the reports and weights of each rank after some steps.
fn together(ranks: usize, keys: &RankKeys, options: &TrainOptions, steps: usize) -> Vec<Trained> {
    on_ranks(ranks, keys, |of_run| {
        let rank = of_run.plan.rank;
        let mut trainer = trainer(options.clone(), Some(of_run));
        let reports = (0..steps).map(|_| step(&mut trainer, rank, ranks)).collect();
        (reports, trainer.values(Weights::Last).unwrap())
    })
}

/// Returns the largest difference, relative to the largest element of each tensor.
fn difference(left: &TensorValues, right: &TensorValues) -> f32 {
    let mut largest = 0.0_f32;
    for (name, left) in left {
        let size = left.iter().fold(0.0_f32, |size, value| size.max(value.abs()));
        let errors = left.iter().zip(&right[name]).map(|(a, b)| (a - b).abs());
        largest = largest.max(errors.fold(0.0, f32::max) / size);
    }
    largest
}

#[test]
fn ranks_have_the_bits_of_one_rank_with_as_many_micro_batches() {
    for ranks in [2, 3, 4] {
        let expected = alone(
            TrainOptions {
                accumulate: ranks,
                ..options()
            },
            3,
        );
        assert!(
            expected.0.iter().all(|report| report.grad_norm > 0.5),
            "nothing is clipped"
        );
        for (rank, found) in together(ranks, &RankKeys::default(), &options(), 3)
            .into_iter()
            .enumerate()
        {
            assert_eq!(found, expected, "rank {rank} of {ranks}");
        }
    }
}

fn with_moments(moments: Moments) -> TrainOptions {
    TrainOptions {
        optimizer: OptimizerOptions::AdamW(AdamWOptions {
            moments,
            ..AdamWOptions::default()
        }),
        ..options()
    }
}

#[test]
fn rounded_moments_do_not_depend_on_ranks_and_are_not_divided() {
    for moments in [Moments::Bf16, Moments::Int8] {
        let options = with_moments(moments);
        let expected = alone(
            TrainOptions {
                accumulate: 2,
                ..options.clone()
            },
            3,
        );
        for found in together(2, &RankKeys::default(), &options, 3) {
            assert_eq!(found, expected, "{moments:?}");
        }
        let refused = on_ranks(2, &shard(Shard::Optimizer), |ranks| {
            let rule = |_: &crate::TensorInfo<'_>| TensorRule::default();
            let refused = Trainer::with_ranks(model(), options.clone(), &rule, Some(ranks));
            refused.unwrap_err().to_string()
        });
        for error in refused {
            assert!(
                error.contains("ranks.shard") && error.contains("optimizer.states"),
                "{error}"
            );
        }
    }
}

#[test]
fn accumulated_gradients_are_summed_over_ranks() {
    let options = TrainOptions {
        accumulate: 3,
        ..options()
    };
    let expected = alone(options.clone(), 2);
    for kind in [Shard::None, Shard::Optimizer, Shard::Gradients, Shard::Parameters] {
        let keys = shard(kind);
        let all = together(2, &keys, &options, 2);
        assert_eq!(all[0], all[1], "{keys:?}");
        let (reports, weights) = &all[0];
        for (found, expected) in reports.iter().zip(&expected.0) {
            assert!(
                (found.loss - expected.loss).abs() < 1e-5,
                "{keys:?}: {found:?}, {expected:?}"
            );
            assert!(
                (found.grad_norm / expected.grad_norm - 1.0).abs() < 1e-4,
                "{keys:?}"
            );
        }
        // A first step of AdamW moves each weight by the learning rate times a sign, which rounding decides for small gradients.
        let change = difference(weights, &expected.1);
        assert!(change < 0.2, "{keys:?}: {change}");
    }
}

#[test]
fn divided_states_change_no_bit() {
    for optimizer in [
        OptimizerOptions::AdamW(AdamWOptions::default()),
        OptimizerOptions::Lion(LionOptions::default()),
        OptimizerOptions::Sgd(SgdOptions::default()),
    ] {
        let options = TrainOptions {
            optimizer,
            ema_decay: Some(0.5),
            ..without_clipping()
        };
        for ranks in [2, 3] {
            let expected = &together(ranks, &RankKeys::default(), &options, 2)[0];
            for kind in [Shard::Optimizer, Shard::Gradients, Shard::Parameters] {
                for (_, weights) in together(ranks, &shard(kind), &options, 2) {
                    assert!(weights == expected.1, "{kind:?} of {ranks} ranks, {optimizer:?}");
                }
            }
        }
    }
}

/// Two groups of two ranks divide the states, and have copies of each other's parts.
#[test]
fn groups_of_ranks_divide_states() {
    let options = TrainOptions {
        ema_decay: Some(0.5),
        ..without_clipping()
    };
    let keys = |shard| RankKeys {
        shard,
        group: 2,
        ..RankKeys::default()
    };
    let expected = together(4, &keys(Shard::None), &options, 2);
    let one = alone(options.clone(), 2);
    assert!(difference(&expected[0].1, &one.1) < 0.2);
    for kind in [Shard::Optimizer, Shard::Gradients, Shard::Parameters] {
        for (rank, found) in together(4, &keys(kind), &options, 2).into_iter().enumerate() {
            assert!(found.1 == expected[rank].1, "{kind:?}, rank {rank}");
        }
    }
    // Of two hosts with two ranks, each rank has half of the states.
    let plan = RankPlan::new(3, 4, &keys(Shard::Parameters)).unwrap();
    assert_eq!((plan.number(), plan.group), (1, 2));
}

/// The norm of divided gradients is summed in another order, so that it and what it clips are equal but for rounding.
#[test]
fn the_norm_of_divided_gradients_is_that_of_all() {
    let expected = alone(options(), 1);
    for kind in [Shard::Optimizer, Shard::Gradients, Shard::Parameters] {
        for (reports, _) in together(3, &shard(kind), &options(), 1) {
            let error = reports[0].grad_norm / expected.0[0].grad_norm - 1.0;
            assert!(error.abs() < 1e-5, "{kind:?}: {error}");
        }
    }
}

#[test]
fn checkpoints_have_whole_states_for_any_number_of_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let options = TrainOptions {
        ema_decay: Some(0.5),
        ..without_clipping()
    };
    for kind in [Shard::None, Shard::Gradients, Shard::Parameters] {
        let file = folder.path().join(format!("{kind:?}.safetensors"));
        let uninterrupted = on_ranks(2, &shard(kind), |ranks| {
            let rank = ranks.plan.rank;
            let mut trainer = trainer(options.clone(), Some(ranks));
            step(&mut trainer, rank, 2);
            trainer.save(&file).unwrap();
            let report = step(&mut trainer, rank, 2);
            (report, trainer.values(Weights::Average).unwrap())
        });
        let resumed = |ranks: usize, keys: &RankKeys| {
            on_ranks(ranks, keys, |of_run| {
                let rank = of_run.plan.rank;
                let mut trainer = trainer(options.clone(), Some(of_run));
                trainer.restore(&file).unwrap();
                let report = step(&mut trainer, rank, ranks);
                (report, trainer.values(Weights::Average).unwrap())
            })
        };
        assert_eq!(resumed(2, &shard(kind)), uninterrupted, "{kind:?}");
        // Another number of ranks adds in another order, and another division changes no bit.
        for (report, averages) in resumed(3, &shard(Shard::Optimizer)) {
            assert_eq!(report.step, 2);
            let change = difference(&averages, &uninterrupted[0].1);
            assert!(change < 0.1, "{kind:?}: {change}");
            assert!((report.loss - uninterrupted[0].0.loss).abs() < 1e-5);
        }
        let mut one = trainer(options.clone(), None);
        one.restore(&file).unwrap();
        let report = step(&mut one, 0, 1);
        assert!((report.loss - uninterrupted[0].0.loss).abs() < 1e-5, "{kind:?}");
    }
}

#[test]
fn a_bf16_wire_rounds_gradients_equally_at_all_ranks() {
    let keys = RankKeys {
        wire: Wire::Bf16,
        ..RankKeys::default()
    };
    let exact = &together(2, &RankKeys::default(), &options(), 1)[0];
    let all = together(2, &keys, &options(), 1);
    assert_eq!(all[0], all[1]);
    let error = all[0].0[0].grad_norm / exact.0[0].grad_norm - 1.0;
    assert!(error != 0.0 && error.abs() < 1.0 / 256.0, "{error}");
}

/// Planned bytes of a rank of a ViT with 1.3 million parameters in 12 blocks, on small images.
fn planned(plan: Option<RankPlan>) -> MemoryReport {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.json");
    let text = json!({
        "architecture": "vit_tiny_patch16_224",
        "model_args": { "img_size": 32, "embed_dim": 96, "depth": 12, "num_heads": 3 },
        "pretrained_cfg": { "input_size": [3, 32, 32], "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5] }
    });
    std::fs::write(&config, text.to_string()).unwrap();
    let classes = ["a", "b"].map(str::to_owned);
    let model = InitialModel::new(Start::Config(&config), &classes, 0).unwrap();
    model.write(folder.path()).unwrap();
    let checkpoint = Checkpoint::open(Some(folder.path())).unwrap();
    let options = TrainOptions {
        input: InputKind::Pixels,
        drop: DropOptions::default(),
        ..options()
    };
    let rule = |_: &crate::TensorInfo<'_>| TensorRule::default();
    let planner = MemoryPlanner::with_ranks(&checkpoint, &options, &rule, plan).unwrap();
    let budget = MemoryBudget {
        limit: MemoryLimit::Unlimited,
        images: 1,
    };
    planner.plan(budget).unwrap()
}

/// States of AdamW: two for each of 12 tensors of 12 blocks, and of 8 other tensors.
const STATES: usize = 2 * (12 * 12 + 8);

fn plan_of(ranks: usize, kind: Shard) -> Option<RankPlan> {
    Some(RankPlan::new(0, ranks, &shard(kind)).unwrap())
}

#[test]
fn divided_states_need_less_memory() {
    let whole = planned(plan_of(2, Shard::None));
    let states = |report: &MemoryReport| (report.state_bytes - report.weight_bytes) as f64;
    assert_eq!(states(&whole), states(&planned(None)));
    let two = planned(plan_of(2, Shard::Optimizer));
    assert!(states(&two) <= 0.52 * states(&whole), "{two:?}");
    for ranks in [4, 8] {
        let of = |kind| planned(plan_of(ranks, kind));
        let [none, optimizer, gradients, parameters] =
            [Shard::None, Shard::Optimizer, Shard::Gradients, Shard::Parameters].map(of);
        let share = |report: &MemoryReport| report.bytes() as f64 / none.bytes() as f64;
        println!(
            "{ranks} ranks: {} bytes, optimizer {:.3}, gradients {:.3}, parameters {:.3}",
            none.bytes(),
            share(&optimizer),
            share(&gradients),
            share(&parameters)
        );
        // Each part is padded by less than an element per rank, and to the alignment.
        let padding = (STATES * (ALIGNMENT + size_of::<f32>())) as f64;
        assert!(states(&optimizer) <= states(&none) / ranks as f64 + padding);
        assert!(gradients.bytes() <= optimizer.bytes() && optimizer.bytes() < none.bytes());
        assert!(
            share(&parameters) <= 0.4,
            "{ranks}: {parameters:?}, whole {none:?}"
        );
    }
}

#[test]
fn a_batch_or_ranks_that_cannot_be_divided_are_refused() {
    let keys = RankKeys {
        group: 2,
        ..RankKeys::default()
    };
    assert!(RankPlan::new(0, 4, &keys).is_ok());
    let error = RankPlan::new(0, 3, &keys).unwrap_err().to_string();
    assert!(
        error.contains("3 ranks are not divided into groups of 2"),
        "{error}"
    );
    let error = RankPlan::new(0, 3, &RankKeys::default())
        .unwrap()
        .share(16)
        .unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("16 images per step are not divided equally among 3 ranks"),
        "{error}"
    );
}
