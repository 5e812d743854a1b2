use std::time::Duration;

use serde_json::Map;

use super::Breakdown;
use hipvit::graph::Role;
use hipvit::timeline::{Activity, Slice, Track};

fn slice(track: Track, activity: Activity, [start, end]: [u64; 2]) -> Slice {
    Slice {
        track,
        activity,
        name: "".into(),
        start: Duration::from_millis(start),
        duration: Duration::from_millis(end - start),
        args: Map::new(),
    }
}

const HOST: Track = Track::Thread(1);
const STREAM: Track = Track::Stream { device: 0, stream: 1 };
const KERNELS: Track = Track::Estimated { device: 0, stream: 1 };

fn times(breakdown: &super::Window, name: &str) -> (f64, f64) {
    let part = breakdown.parts.iter().find(|part| part.name == name).unwrap();
    (part.elapsed_ms, part.busy_ms)
}

fn ms([begin, measured, end]: [u64; 3]) -> [Duration; 3] {
    [begin, measured, end].map(Duration::from_millis)
}

#[test]
fn each_instant_has_one_activity_and_all_sum_to_the_total() {
    let slices = [
        slice(HOST, Activity::ReadModel, [0, 10]),
        slice(HOST, Activity::Decode, [12, 20]),
        slice(STREAM, Activity::Step(Role::Ffn), [14, 17]),
        // The second of two batches is decoded while the first computes.
        slice(HOST, Activity::Decode, [20, 30]),
        slice(HOST, Activity::Decode, [22, 34]),
        slice(STREAM, Activity::Step(Role::Qkv), [30, 34]),
        slice(STREAM, Activity::CopyOut, [34, 36]),
        slice(HOST, Activity::Wait, [20, 39]),
    ];
    let breakdown = Breakdown::new(&slices, ms([0, 20, 40]), 2);
    let start_up = &breakdown.start_up;
    assert_eq!(times(start_up, "read model"), (10.0, 10.0));
    assert_eq!(times(start_up, "warm-up batches"), (8.0, 11.0));
    assert_eq!((start_up.total_ms, start_up.unattributed_ms), (20.0, 2.0));
    let batch = &breakdown.per_batch;
    assert_eq!(times(batch, "decode"), (5.0, 11.0));
    assert_eq!(times(batch, "QKV"), (2.0, 2.0));
    assert_eq!(times(batch, "copy out"), (1.0, 1.0));
    assert_eq!((batch.total_ms, batch.unattributed_ms), (10.0, 2.0));
    for window in [start_up, batch] {
        let sum: f64 = window.parts.iter().map(|part| part.elapsed_ms).sum();
        assert!(
            (sum + window.unattributed_ms - window.total_ms).abs() < 1e-9,
            "{window:?}"
        );
    }
}

#[test]
fn the_kernels_of_a_replay_stand_for_it() {
    let mut slices = vec![slice(STREAM, Activity::Replay, [0, 10])];
    let whole = Breakdown::new(&slices, ms([0, 0, 10]), 1).per_batch;
    assert_eq!(times(&whole, "graph replay"), (10.0, 10.0));
    slices.push(slice(KERNELS, Activity::Call(Role::Ffn), [0, 6]));
    slices.push(slice(KERNELS, Activity::Call(Role::Attention), [6, 10]));
    let divided = Breakdown::new(&slices, ms([0, 0, 10]), 1).per_batch;
    assert_eq!(times(&divided, "graph replay"), (0.0, 0.0));
    assert_eq!(times(&divided, "FFN"), (6.0, 6.0));
    assert_eq!(times(&divided, "attention"), (4.0, 4.0));
    assert_eq!(divided.unattributed_ms, 0.0);
}

#[test]
fn what_is_within_a_step_counts_once() {
    let slices = [
        slice(STREAM, Activity::Step(Role::Ffn), [0, 6]),
        slice(KERNELS, Activity::PartOfStep, [0, 6]),
    ];
    let batch = Breakdown::new(&slices, ms([0, 0, 6]), 1).per_batch;
    assert_eq!(times(&batch, "FFN"), (6.0, 6.0));
}
