//! Parameters, states and several inputs on a GPU.

use std::sync::Arc;
use std::thread;

use hipvit::DType;
use hipvit::exec::{Executor, ExecutorOptions, GraphMode, Placement};

use crate::support::cache;
use crate::support::gpu::{device, dtypes, gpu};
use crate::support::states::{Gradient, check, graph, states, train};

/// Enough for a capture, four replays, of which the last is checked, and another replay.
const RUNS: usize = 7;

/// Keys and values that are cached in states, eager and replayed.
#[test]
fn rows_are_written_to_states() {
    let Some((device, _shared)) = device() else {
        return;
    };
    for dtype in dtypes() {
        for graphs in [GraphMode::Off, GraphMode::On] {
            let options = ExecutorOptions {
                graphs,
                ..ExecutorOptions::new(dtype)
            };
            let executor = Placement::gpu(&gpu(device))
                .executor(&cache::graph(), &options)
                .unwrap();
            cache::check(&executor, dtype);
            let replays = executor.statistics().replays.unwrap();
            assert_eq!(replays.fallback, None);
            assert_eq!(replays.replayed_runs, if graphs == GraphMode::On { 3 } else { 0 });
        }
    }
}

#[test]
fn states_follow_the_reference_eager_and_replayed() {
    let Some((device, _shared)) = device() else {
        return;
    };
    let gpu = gpu(device);
    for dtype in dtypes() {
        let mut cases = vec![(Gradient::Error, 1)];
        if dtype == DType::F32 {
            cases.extend([(Gradient::Given, 1), (Gradient::Given, 3)]);
        }
        for (gradient, images) in cases {
            let run = |graphs| {
                let options = ExecutorOptions {
                    graphs,
                    ..ExecutorOptions::new(dtype)
                };
                let executor = Placement::gpu(&gpu).executor(&graph(gradient), &options).unwrap();
                let results = train(&executor, gradient, images, 0..RUNS);
                (results, executor.statistics().replays.unwrap())
            };
            let (eager, replays) = run(GraphMode::Off);
            assert_eq!((replays.eager_runs, replays.replayed_runs), (RUNS as u64, 0));
            check(&eager, gradient, images, 0..RUNS, dtype);
            for _ in 0..2 {
                let (replayed, replays) = run(GraphMode::On);
                assert_eq!(replayed, eager, "{dtype} {gradient:?}");
                assert_eq!(replays.fallback, None);
                assert_eq!((replays.eager_runs, replays.replayed_runs), (1, RUNS as u64 - 1));
                assert_eq!((replays.checked_runs, replays.recomputed_runs), (1, 0));
            }
        }
    }
}

/// The order of equal steps does not matter, but none may be lost.
#[test]
fn runs_of_several_threads_take_turns() {
    const THREADS: usize = 4;
    let Some((device, _shared)) = device() else {
        return;
    };
    let gradient = Gradient::Given;
    let executor = || -> Arc<dyn Executor> {
        let options = ExecutorOptions::new(DType::F32);
        Placement::gpu(&gpu(device))
            .executor(&graph(gradient), &options)
            .unwrap()
    };
    let (shared, alone) = (executor(), executor());
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| (0..RUNS).for_each(|_| drop(train(&shared, gradient, 2, 0..1))));
        }
    });
    for _ in 0..THREADS * RUNS {
        train(&alone, gradient, 2, 0..1);
    }
    assert_eq!(states(&shared), states(&alone));
}
