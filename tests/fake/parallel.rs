//! One model over several GPUs: tensor and pipeline parallelism, and the loss of a GPU.

use std::thread;
use std::time::{Duration, Instant};

use hipvit::pipeline::Pipeline;
use hipvit::timing::{Phase, Timing};
use hipvit::{Device, Error, GraphMode, Outputs, Parallelism, ResizeOn, RunOptions, Session, SessionBuilder};

use crate::support::at;
use crate::support::fake::session::on;
use crate::support::fake::{Fake, Slot};
use crate::support::session::{images, same, sources};

/// Models of every kind of block and head, with the numbers of GPUs that divide their heads.
const MODELS: [(&str, &[usize]); 8] = [
    ("timm_vit_class_token", &[3]),
    ("timm_vit_pre_norm_layer_scale", &[3]),
    ("timm_dinov2_reg4_swiglu", &[2]),
    ("timm_siglip", &[3]),
    // A rotary table for all heads, and one for each.
    ("timm_vit_rope", &[3]),
    ("timm_vit_rope_mixed_ape", &[3]),
    ("hf_clip_vision", &[3]),
    ("timm_deit_distilled", &[3]),
];

fn load(builder: &SessionBuilder, model: &str) -> Session {
    let path = at("tests/golden").join(model);
    builder.load(path).unwrap_or_else(|e| panic!("{model}: {e}"))
}

/// Divides the model into `pipeline` stages on `tensor` GPUs each.
fn groups(fake: &Fake, tensor: usize, pipeline: usize) -> SessionBuilder {
    let parallelism = Parallelism::new(1, tensor, pipeline).unwrap();
    on(fake, tensor * pipeline, parallelism)
}

/// Returns every way to divide [`THREE_HEADS`] among several GPUs.
fn divided(fake: &Fake) -> [SessionBuilder; 3] {
    [
        on(fake, 3, Parallelism::tensor()),
        on(fake, 3, Parallelism::pipeline()),
        groups(fake, 3, 2),
    ]
}

const THREE_HEADS: &str = "timm_vit_class_token";
const TWO_HEADS: &str = "timm_dinov2_reg4_swiglu";

fn one(fake: &Fake) -> SessionBuilder {
    Session::builder().gpu(fake.device()).threads(2).batch(2)
}

/// Compares sums of f32 in a different order: at most some hundred terms, through two blocks.
#[track_caller]
fn close(model: &str, got: &Outputs, expected: &Outputs) {
    let pairs = [
        (got.logits().cloned(), expected.logits().cloned()),
        (
            Some(got.embeddings().clone()),
            Some(expected.embeddings().clone()),
        ),
    ];
    for (got, expected) in pairs {
        let (Some(got), Some(expected)) = (got, expected) else {
            continue;
        };
        assert_eq!(got.dim(), expected.dim(), "{model}");
        let largest = expected.iter().fold(0f32, |m, x| m.max(x.abs()));
        for (got, expected) in got.iter().zip(&expected) {
            assert!(
                (got - expected).abs() <= 2e-5 * largest,
                "{model}: {got} {expected}"
            );
        }
    }
}

#[test]
fn a_divided_model_computes_what_the_whole_one_does() {
    let fake = Fake::new("tensor");
    {
        let images = images(5);
        for (model, counts) in MODELS {
            let expected = load(&one(&fake), model).run(&images).unwrap();
            for &count in counts {
                let session = load(&on(&fake, count, Parallelism::tensor()), model);
                assert_eq!(session.degrees().tensor, count);
                assert_eq!(session.devices().resolve().unwrap().len(), count);
                let first = session.run(&images).unwrap();
                close(model, &first, &expected);
                // The third run replays what the second captured, with the sums over the GPUs in it.
                for _ in 0..3 {
                    same(&session.run(&images).unwrap(), &first);
                }
                let replays = session.hip_graphs().unwrap();
                assert_eq!(replays.fallback, None, "{model}");
                assert!(replays.replayed_runs >= 6, "{model}: {replays:?}");
            }
        }
    }
    fake.assert_clean();
}

#[test]
fn stages_give_the_bits_of_one_gpu() {
    let fake = Fake::new("stages");
    {
        let images = images(7);
        // Norms at the end of a branch, RMS norms, and both branches of a block after one norm are cut too.
        let others = [
            "timm_vit_post_norm",
            "timm_vit_rms_norm",
            "timm_vit_parallel_qk_norm",
            "timm_sapiens2",
        ];
        for model in MODELS.iter().map(|&(model, _)| model).chain(others) {
            let builder = |builder: SessionBuilder| builder.tokens(true).hidden_layers(0..2);
            let expected = load(&builder(one(&fake)), model).run(&images).unwrap();
            for count in [2, 3] {
                let session = load(&builder(on(&fake, count, Parallelism::pipeline())), model);
                assert_eq!(session.degrees().pipeline, count);
                let before = fake.get(Slot::Replays);
                for _ in 0..3 {
                    let outputs = session.run(&images).unwrap();
                    same(&outputs, &expected);
                    for (got, expected) in outputs.iter().zip(expected.iter()) {
                        assert_eq!(got.tokens(), expected.tokens(), "{model}");
                        assert_eq!(got.hidden_layer(0), expected.hidden_layer(0), "{model}");
                        assert_eq!(got.hidden_layer(1), expected.hidden_layer(1), "{model}");
                    }
                }
                // Four batches per run, and at most as many contexts: each stage captures in the second run.
                let replays = session.hip_graphs().unwrap();
                assert_eq!(replays.fallback, None, "{model}");
                assert!(replays.replayed_runs > 0, "{model}: {replays:?}");
                assert_eq!(
                    fake.get(Slot::Replays) - before,
                    replays.replayed_runs * count as u64,
                    "{model}"
                );
            }
        }
    }
    fake.assert_clean();
}

/// A stage on several GPUs has the sums of tensor parallelism, and adds no rounding errors.
#[test]
fn stages_of_several_gpus_give_the_bits_of_tensor_parallelism() {
    let fake = Fake::new("groups");
    {
        // Batches of two, and one that is not whole.
        let images = images(7);
        let with = |builder: SessionBuilder| builder.tokens(true).hidden_layers(0..2);
        for (model, counts) in MODELS {
            let tensor = counts[0];
            let whole = load(&with(one(&fake)), model).run(&images).unwrap();
            let expected = load(&with(on(&fake, tensor, Parallelism::tensor())), model);
            let expected = expected.run(&images).unwrap();
            for pipeline in [2, 3] {
                let session = load(&with(groups(&fake, tensor, pipeline)), model);
                let degrees = session.degrees();
                assert_eq!((degrees.tensor, degrees.pipeline), (tensor, pipeline));
                let before = fake.get(Slot::Replays);
                for _ in 0..3 {
                    let outputs = session.run(&images).unwrap();
                    close(model, &outputs, &whole);
                    same(&outputs, &expected);
                    for (got, expected) in outputs.iter().zip(expected.iter()) {
                        assert_eq!(got.tokens(), expected.tokens(), "{model}");
                        for block in 0..2 {
                            assert_eq!(got.hidden_layer(block), expected.hidden_layer(block), "{model}");
                        }
                    }
                }
                // Other batch sizes, in other contexts.
                for count in [1, 2, 1] {
                    let few = session.run(&images[..count]).unwrap();
                    close(
                        model,
                        &few,
                        &load(&one(&fake), model).run(&images[..count]).unwrap(),
                    );
                }
                let replays = session.hip_graphs().unwrap();
                assert_eq!(replays.fallback, None, "{model}");
                assert!(replays.replayed_runs > 0, "{model}: {replays:?}");
                let gpus = (tensor * pipeline) as u64;
                assert_eq!(
                    fake.get(Slot::Replays) - before,
                    replays.replayed_runs * gpus,
                    "{model}"
                );
            }
        }
    }
    fake.assert_clean();
}

#[test]
fn replicas_of_such_groups_share_the_batches() {
    let fake = Fake::new("groups-replicas");
    {
        let images = images(11);
        let expected = load(&groups(&fake, 2, 2), TWO_HEADS).run(&images).unwrap();
        let session = load(
            &on(&fake, 8, "tensor=2,pipeline=2,data=2".parse().unwrap()),
            TWO_HEADS,
        );
        let degrees = session.degrees();
        assert_eq!((degrees.data, degrees.tensor, degrees.pipeline), (2, 2, 2));
        for _ in 0..3 {
            same(&session.run(&images).unwrap(), &expected);
        }
        // Six batches in each run.
        let shares = session.images_by_replica();
        assert!(
            shares.len() == 2 && shares.iter().all(|&share| share > 0),
            "{shares:?}"
        );
    }
    fake.assert_clean();
}

/// While a GPU of the last stage is held, the first stage takes as many batches as keep all stages busy.
#[test]
fn a_stage_does_not_wait_for_the_next_one() {
    let fake = Fake::new("groups-overlap");
    {
        let images = images(8);
        // A capture waits for its run.
        let session = load(&groups(&fake, 2, 2).hip_graphs(GraphMode::Off), TWO_HEADS);
        let expected = session.run(&images).unwrap();
        let uploads = fake.get(Slot::Uploads);
        fake.set(Slot::HoldDevice, 4);
        thread::scope(|scope| {
            let held = scope.spawn(|| session.run(&images).unwrap());
            let begun = Instant::now();
            // Both GPUs of the first stage copy the pixels of a batch, which goes at once.
            while fake.get(Slot::Uploads) < uploads + 3 * 2 && begun.elapsed() < Duration::from_secs(5) {
                thread::sleep(Duration::from_millis(1));
            }
            let (submitted, waits) = (fake.get(Slot::Uploads) - uploads, !held.is_finished());
            fake.set(Slot::HoldDevice, 0);
            same(&held.join().unwrap(), &expected);
            assert_eq!((submitted, waits), (6, true));
            // Four batches in all.
            assert_eq!(fake.get(Slot::Uploads) - uploads, 8);
        });
    }
    fake.assert_clean();
}

/// Memory suffices for one batch but not for two: they wait for each other.
#[test]
fn groups_short_of_memory_run_fewer_batches_at_once() {
    let fake = Fake::new("groups-memory");
    {
        let images = images(9);
        let expected = load(&groups(&fake, 2, 2), TWO_HEADS).run(&images).unwrap();
        let session = load(&groups(&fake, 2, 2), TWO_HEADS);
        session.run(&images[..2]).unwrap();
        let before = fake.get(Slot::DeviceBytes);
        fake.set(Slot::MemoryLimit, before + 1024);
        for _ in 0..3 {
            same(&session.run(&images).unwrap(), &expected);
        }
        let replays = session.hip_graphs().unwrap();
        assert_eq!(replays.fallback, None);
        assert!(replays.replayed_runs > 0, "{replays:?}");
        assert!(fake.get(Slot::DeviceBytes) <= before + 1024);
    }
    fake.assert_clean();
}

/// If one stage cannot replay its steps, no stage does.
#[test]
fn stages_whose_replay_is_wrong_go_on_without() {
    for (fault, reason) in [
        (Slot::CorruptReplay, "the replay differs from the eager run"),
        (Slot::FailCapture, "hipStreamBeginCapture failed"),
    ] {
        let fake = Fake::new(&format!("stages-{fault:?}"));
        {
            let images = images(2);
            let session = load(&on(&fake, 2, Parallelism::pipeline()), "timm_vit_class_token");
            let first = session.run(&images).unwrap();
            fake.set(fault, 1);
            for _ in 0..3 {
                same(&session.run(&images).unwrap(), &first);
            }
            let replays = session.hip_graphs().unwrap();
            assert!(replays.fallback.as_ref().unwrap().contains(reason), "{replays:?}");
            assert_eq!((replays.eager_runs, replays.replayed_runs), (4, 0));
        }
        fake.assert_clean();
    }
}

/// From some run on, the replays of all stages omit a kernel. The results of the first stage are then wrong,
/// and so are those of the second.
#[test]
fn stages_behind_a_wrong_replay_are_computed_again() {
    for left_out in [1, 2] {
        let fake = Fake::new(&format!("stages-late-fault-{left_out}"));
        {
            let images = images(16);
            let model = "timm_vit_class_token";
            let session = load(&on(&fake, 2, Parallelism::pipeline()), model);
            let expected = load(&one(&fake).hip_graphs(GraphMode::Off), model);
            let run = |session: &Session| -> Vec<Outputs> {
                images
                    .chunks(2)
                    .map(|batch| session.run(batch).unwrap())
                    .collect()
            };
            let expected = run(&expected);
            for _ in 0..2 {
                same(&session.run(&images[..2]).unwrap(), &expected[0]);
            }
            fake.set(Slot::CorruptReplay, left_out);
            let got = run(&session);
            let wrong: Vec<bool> = got
                .iter()
                .zip(&expected)
                .map(|(a, b)| a.logits() != b.logits())
                .collect();
            let replays = session.hip_graphs().unwrap();
            // Found by the comparison of the fourth replay.
            assert_eq!(wrong, [1, 1, 1, 0, 0, 0, 0, 0].map(|wrong| wrong == 1));
            assert!(
                replays.fallback.as_ref().unwrap().contains("was computed again"),
                "{replays:?}"
            );
            assert_eq!(replays.recomputed_runs, 1, "{replays:?}");
            for (got, expected) in run(&session).iter().zip(&expected) {
                same(got, expected);
            }
            // Also with several batches in flight.
            let all = session.run(&images).unwrap();
            let expected = expected.iter().flat_map(Outputs::iter);
            for (got, expected) in all.iter().zip(expected) {
                assert_eq!(got.logits(), expected.logits());
            }
            assert_eq!(session.hip_graphs().unwrap().replayed_runs, replays.replayed_runs);
        }
        fake.assert_clean();
    }
}

#[test]
fn a_pipeline_of_files_runs_on_divided_models() {
    let fake = Fake::new("divided-pipeline");
    {
        let (images, model) = (images(9), THREE_HEADS);
        let expected = load(&one(&fake), model).run(&images).unwrap();
        for builder in divided(&fake) {
            let session = load(&builder, model);
            let mut count = 0;
            let items = Pipeline::new(&session).run(sources(&images)).unwrap();
            for (index, item) in items.enumerate() {
                let item = item.unwrap();
                let (got, expected) = (item.outputs().logits().unwrap(), expected.image(index));
                let expected = expected.logits().unwrap();
                let largest = expected.iter().fold(0f32, |m, x| m.max(x.abs()));
                for (got, expected) in got.iter().zip(expected) {
                    assert!((got - expected).abs() <= 2e-5 * largest, "{got} {expected}");
                }
                count += 1;
            }
            assert_eq!(count, images.len());
        }
    }
    fake.assert_clean();
}

#[test]
fn threads_share_a_divided_model() {
    let fake = Fake::new("divided-threads");
    {
        let images = images(6);
        for builder in divided(&fake) {
            let session = load(&builder, THREE_HEADS);
            let expected = session.run(&images).unwrap();
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for _ in 0..3 {
                            same(&session.run(&images).unwrap(), &expected);
                        }
                    });
                }
            });
        }
    }
    fake.assert_clean();
}

#[test]
fn timings_are_those_of_the_steps() {
    let fake = Fake::new("divided-timing");
    {
        for builder in divided(&fake) {
            let session = load(&builder, THREE_HEADS);
            let mut timing = Timing::default();
            session
                .run_with(&images(2), RunOptions::new().timing(&mut timing))
                .unwrap();
            let phases: Vec<Phase> = timing.phases().map(|(phase, _)| phase).collect();
            for role in [hipvit::graph::Role::Qkv, hipvit::graph::Role::Ffn] {
                assert!(phases.contains(&Phase::Step(role)), "{phases:?}");
            }
            assert!(phases.contains(&Phase::CopyIn), "{phases:?}");
        }
    }
    fake.assert_clean();
}

/// If one GPU cannot make a replay, no GPU does, because all have to sum equally often.
#[test]
fn replays_are_all_gpus_or_none() {
    let faults = [Slot::CorruptReplay, Slot::FailCapture].map(|fault| [1, 2].map(|stages| (fault, stages)));
    for (fault, stages) in faults.into_iter().flatten() {
        let fake = Fake::new(&format!("divided-{fault:?}-{stages}"));
        {
            let images = images(2);
            let session = load(&groups(&fake, 3, stages), THREE_HEADS);
            let first = session.run(&images).unwrap();
            fake.set(fault, 1);
            for _ in 0..3 {
                same(&session.run(&images).unwrap(), &first);
            }
            let replays = session.hip_graphs().unwrap();
            assert!(replays.fallback.is_some(), "{replays:?}");
            assert_eq!((replays.eager_runs, replays.replayed_runs), (4, 0));
        }
        fake.assert_clean();
    }
}

#[test]
fn a_rank_that_fails_stops_the_others_and_is_named() {
    let images = images(2);
    for nth in [1, 10, 30] {
        // GPUs that wait for a sum when it is aborted have failed.
        let fake = Fake::new(&format!("lost-rank-{nth}"));
        let builder = on(&fake, 3, Parallelism::tensor()).hip_graphs(GraphMode::Off);
        let session = load(&builder, "timm_vit_class_token");
        session.run(&images).unwrap();
        fake.set(Slot::FailLaunch, nth);
        let error = session.run(&images).unwrap_err();
        let Error::Rank {
            rank,
            ranks: 3,
            device,
            reason,
        } = &error
        else {
            panic!("{error}");
        };
        assert!(
            *rank < 3 && device.starts_with(&format!("GPU {rank} ")) && !reason.is_empty(),
            "{error}"
        );
        // Nothing is submitted any more.
        assert_eq!(session.run(&images).unwrap_err().to_string(), error.to_string());
    }
}

/// The lost GPU can be any GPU of any stage, with several batches in flight.
#[test]
fn a_lost_gpu_of_a_stage_is_named_and_stops_the_others() {
    let images = images(8);
    for lost in 1..=4 {
        let fake = Fake::new(&format!("lost-of-stage-{lost}"));
        let session = load(&groups(&fake, 2, 2).hip_graphs(GraphMode::Off), TWO_HEADS);
        session.run(&images).unwrap();
        fake.set(Slot::LoseDevice, lost);
        let error = session.run(&images).unwrap_err();
        let Error::Rank {
            rank,
            ranks: 4,
            device,
            reason,
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!(*rank as u64 + 1, lost, "{error}");
        assert!(
            device.starts_with(&format!("GPU {rank} ")) && !reason.is_empty(),
            "{error}"
        );
        // Nothing is submitted any more, also when several call at once.
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let again = session.run(&images).unwrap_err();
                    assert_eq!(again.to_string(), error.to_string());
                });
            }
        });
    }
}

#[test]
fn what_cannot_be_divided_is_an_error() {
    let fake = Fake::new("indivisible");
    {
        let path = at("tests/golden").join("timm_vit_class_token");
        let error = |builder: SessionBuilder| builder.load(&path).unwrap_err().to_string();
        let text = error(on(&fake, 2, Parallelism::tensor()));
        assert!(
            text.contains("timm_vit_class_token has 3 attention heads"),
            "{text}"
        );
        assert!(text.contains("among 2 GPUs"), "{text}");
        let text = error(on(&fake, 40, Parallelism::pipeline()));
        assert!(text.contains("stages at most, not 40"), "{text}");
        let text = error(groups(&fake, 2, 2));
        assert!(
            text.contains("3 attention heads, which cannot be divided evenly among 2 GPUs"),
            "{text}"
        );
        let text = error(groups(&fake, 3, 40));
        assert!(text.contains("stages at most, not 40"), "{text}");
        let text = error(on(&fake, 3, Parallelism::tensor()).resize(ResizeOn::Device));
        assert!(text.contains("resized on the host"), "{text}");
        let cpu = Session::builder()
            .device(Device::Cpu)
            .parallel(Parallelism::new(1, 2, 1).unwrap());
        assert!(error(cpu).contains("takes 2 GPUs"));
    }
    fake.assert_clean();
}
