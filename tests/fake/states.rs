//! Parameters, states and several inputs on the fake GPU: faults, threads, and devices that cannot share them.

use std::sync::Arc;

use hipvit::DType;
use hipvit::exec::{Executor, ExecutorOptions, Placement};

use crate::support::fake::{Fake, Slot};
use crate::support::states::{Batch, Gradient, check, graph, states, train};

fn executor(fake: &Fake, gradient: Gradient) -> Arc<dyn Executor> {
    let options = ExecutorOptions {
        threads: Some(2),
        ..ExecutorOptions::new(DType::F32)
    };
    Placement::gpu(&fake.device())
        .executor(&graph(gradient), &options)
        .unwrap()
}

/// The fourth replay is checked before it writes, so a wrong one changes nothing.
#[test]
fn a_wrong_replay_is_not_written() {
    for left_out in [1, 2] {
        let fake = Fake::new(&format!("states-replay-{left_out}"));
        {
            let gradient = Gradient::Given;
            let executor = executor(&fake, gradient);
            train(&executor, gradient, 2, 0..5);
            fake.set(Slot::CorruptReplay, left_out);
            let results = train(&executor, gradient, 2, 5..9);
            let replays = executor.statistics().replays.unwrap();
            assert_eq!((replays.checked_runs, replays.recomputed_runs), (1, 1));
            assert_eq!((replays.eager_runs, replays.replayed_runs), (4, 5));
            let reason = replays.fallback.unwrap();
            assert!(
                reason.contains("replay 4 of a captured graph differs"),
                "{reason}"
            );
            let expected = train(&self::executor(&fake, gradient), gradient, 2, 0..9);
            assert_eq!(results, expected[5..]);
            check(&expected, gradient, 2, 0..9, DType::F32);
        }
        fake.assert_clean();
    }
}

/// Between two checks, a replay without results is an error: its values are already written.
#[test]
fn a_replay_without_results_is_an_error() {
    let fake = Fake::new("states-unwritten");
    {
        let gradient = Gradient::Error;
        let executor = executor(&fake, gradient);
        train(&executor, gradient, 1, 0..3);
        fake.set(Slot::CorruptReplay, 1);
        let plan = executor.plan(1).unwrap();
        let batch = Batch::new(gradient, 1, 3);
        let error = executor
            .run_inputs(&plan, batch.inputs())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("replay 2 of a captured graph did not write all results"),
            "{error}"
        );
        // Later runs do not replay.
        train(&executor, gradient, 1, 4..6);
        let replays = executor.statistics().replays.unwrap();
        assert_eq!((replays.eager_runs, replays.replayed_runs), (3, 3));
    }
    fake.assert_clean();
}

/// A failed launch leaves the states as they were.
#[test]
fn a_run_that_fails_writes_nothing() {
    let fake = Fake::new("states-fail");
    {
        let gradient = Gradient::Given;
        let executor = executor(&fake, gradient);
        let expected = train(&executor, gradient, 2, 0..1);
        fake.set(Slot::FailLaunch, 3);
        let plan = executor.plan(2).unwrap();
        let batch = Batch::new(gradient, 2, 1);
        let error = executor
            .run_inputs(&plan, batch.inputs())
            .unwrap_err()
            .to_string();
        assert!(error.contains("node `"), "{error}");
        assert_eq!(states(&executor), expected[1..]);
    }
    fake.assert_clean();
}

#[test]
fn inputs_that_do_not_fit_are_named() {
    let fake = Fake::new("states-inputs");
    {
        let gradient = Gradient::Given;
        let executor = executor(&fake, gradient);
        let plan = executor.plan(2).unwrap();
        let run = |change: &dyn Fn(&mut Batch)| {
            let mut batch = Batch::new(gradient, 2, 0);
            change(&mut batch);
            executor
                .run_inputs(&plan, batch.inputs())
                .unwrap_err()
                .to_string()
        };
        assert_eq!(run(&|batch| drop(batch.0.remove(3))), "inputs: `rate` is missing");
        assert_eq!(
            run(&|batch| {
                batch.0[1].1.pop();
            }),
            "inputs: `targets` has 29 elements, expected 2 × 15, at least one image"
        );
        assert_eq!(
            run(&|batch| batch.0[3].1.push(0.0)),
            "inputs: `rate` has 6 elements, expected [5]"
        );
    }
    fake.assert_clean();
}

#[test]
fn several_gpus_are_refused() {
    let fake = Fake::new("states-several");
    fake.set(Slot::Devices, 2);
    {
        for (replicas, stages, ranks) in [(2, 1, 1), (1, 2, 1), (1, 1, 2)] {
            let placement = Placement::Gpus {
                gpus: fake.runtime().devices().unwrap(),
                replicas,
                stages,
                ranks,
            };
            let options = ExecutorOptions::new(DType::F32);
            let error = placement.executor(&graph(Gradient::Given), &options).unwrap_err();
            assert_eq!(
                error.to_string(),
                "devices: sgd has parameters or states, such as `weight`, which devices do not share. Use one device"
            );
        }
    }
    fake.assert_clean();
}
