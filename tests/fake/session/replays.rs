//! Captured graphs: conditions of replay, and failures of a capture or a replay.

use std::thread;

use hipvit::timing::{Phase, Timing};
use hipvit::{GraphMode, RunOptions, Session};

use crate::support::fake::session::{builder, model, session};
use crate::support::fake::{Fake, Slot};
use crate::support::session::{images, same};

#[test]
fn a_context_whose_memory_grows_captures_anew() {
    let fake = Fake::new("growth");
    {
        let (session, images) = (session(&fake, 5), images(5));
        let mut before = Vec::new();
        for count in [1, 1, 1, 5, 5, 5, 1, 1, 1] {
            let outputs = session.run(&images[..count]).unwrap();
            before.push(outputs.logits().unwrap().row(0).to_owned());
        }
        assert!(before.windows(2).all(|pair| pair[0] == pair[1]));
        // Of each three in a row the first is eager.
        assert_eq!(session.hip_graphs().unwrap().eager_runs, 3);
    }
    fake.assert_clean();
}

#[test]
fn a_session_whose_replay_is_wrong_goes_on_without() {
    for (fault, reason) in [
        (Slot::CorruptReplay, "the replay differs from the eager run"),
        (Slot::FailCapture, "hipStreamBeginCapture failed"),
    ] {
        let fake = Fake::new(&format!("fallback-{fault:?}"));
        {
            let (session, images) = (session(&fake, 2), images(2));
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

/// A graph may work at first and fail later.
#[test]
fn a_replay_that_goes_wrong_later_is_computed_again() {
    // Without its last kernel, which adds a bias, or without its first, a replay still writes results. They
    // are compared in the fourth run.
    const WRONG: u64 = 3;
    for left_out in [1, 2] {
        let fake = Fake::new(&format!("late-fault-{left_out}"));
        {
            let (session, images) = (session(&fake, 2), images(16));
            let eager = builder(&fake)
                .batch(2)
                .hip_graphs(GraphMode::Off)
                .load(model())
                .unwrap();
            let batches: Vec<_> = images.chunks(2).collect();
            let expected: Vec<_> = batches.iter().map(|batch| eager.run(*batch).unwrap()).collect();
            for (batch, expected) in batches.iter().zip(&expected).take(2) {
                same(&session.run(*batch).unwrap(), expected);
            }
            fake.set(Slot::CorruptReplay, left_out);
            let mut different = 0;
            for (batch, expected) in batches.iter().zip(&expected).skip(2) {
                different += u64::from(session.run(*batch).unwrap().logits() != expected.logits());
            }
            assert_eq!(different, WRONG);
            let replays = session.hip_graphs().unwrap();
            let reason = replays.fallback.as_ref().unwrap();
            assert!(reason.contains("was computed again"), "{replays:?}");
            assert!(reason.contains("the 3 before it"), "{replays:?}");
            assert_eq!((replays.checked_runs, replays.recomputed_runs), (1, 1));
            // With the one that is compared, and the one that the capture ended with.
            assert_eq!(replays.replayed_runs, WRONG + 2);
        }
        fake.assert_clean();
    }
}

#[test]
fn graphs_can_be_switched_off_and_timed() {
    let fake = Fake::new("graph-mode");
    {
        let images = images(2);
        let run = |mode, timed| {
            let session = builder(&fake).hip_graphs(mode).load(model()).unwrap();
            let mut timing = Timing::default();
            let mut last = None;
            for _ in 0..3 {
                last = Some(if timed {
                    session
                        .run_with(&images, RunOptions::new().timing(&mut timing))
                        .unwrap()
                } else {
                    session.run(&images).unwrap()
                });
            }
            let replayed = session.hip_graphs().unwrap().replayed_runs;
            (last.unwrap(), replayed, timing)
        };
        let (off, replayed, _) = run(GraphMode::Off, false);
        assert_eq!((replayed, fake.get(Slot::Replays)), (0, 0));
        // While steps are timed there is no replay, unless it is wanted.
        let (auto, replayed, timing) = run(GraphMode::Auto, true);
        assert_eq!(replayed, 0);
        let phases: Vec<String> = timing.phases().map(|(phase, _)| phase.to_string()).collect();
        assert_eq!(
            phases,
            [
                "resize",
                "copy-in",
                "patch",
                "QKV",
                "attention",
                "FFN",
                "other",
                "copy-out"
            ]
        );
        assert!(timing.phases().all(|(_, time)| !time.is_zero()), "{timing}");
        let (on, replayed, timing) = run(GraphMode::On, true);
        assert_eq!(replayed, 2);
        assert!(
            timing.phases().any(|(phase, _)| phase == Phase::Replay),
            "{timing}"
        );
        same(&off, &auto);
        same(&off, &on);
    }
    fake.assert_clean();
}

#[test]
fn events_between_steps_are_made_for_a_timing_alone() {
    let fake = Fake::new("events");
    {
        let images = images(1);
        let session = builder(&fake).hip_graphs(GraphMode::Off).load(model()).unwrap();
        let events = |timed: bool| {
            let before = fake.get(Slot::EventsMade);
            if timed {
                session
                    .run_with(&images, RunOptions::new().timing(&mut Timing::default()))
                    .unwrap()
            } else {
                session.run(&images).unwrap()
            };
            fake.get(Slot::EventsMade) - before
        };
        events(false);
        let (without, with) = (events(false), events(true));
        // One before the input's copy and one after it, and one after the copy of both outputs.
        assert_eq!(without, 2 + 1);
        // Before and after the input's copy, before the steps, after each, and after the outputs.
        assert_eq!(with, without + 4 + session.graph().nodes().len() as u64);
    }
    fake.assert_clean();
}

/// A launch that fails during capture loses the graph, not the run.
#[test]
fn a_capture_that_fails_leaves_the_steps() {
    let fake = Fake::new("session-capture");
    {
        let (session, images) = (session(&fake, 2), images(2));
        fake.set(Slot::FailLaunch, u64::from(u32::MAX));
        let expected = session.run(&images).unwrap();
        let launches = u64::from(u32::MAX) - fake.get(Slot::FailLaunch);
        // After the run that the capture begins with.
        fake.set(Slot::FailLaunch, launches + 3);
        same(&session.run(&images).unwrap(), &expected);
        let fallback = session.hip_graphs().unwrap().fallback.unwrap();
        assert!(fallback.contains("hipErrorLaunchFailure"), "{fallback}");
        same(&session.run(&images).unwrap(), &expected);
    }
    fake.assert_clean();
}

/// While some threads load, capture and drop sessions, others wait for the whole device.
#[test]
fn captures_and_waits_for_the_device_do_not_meet() {
    let fake = Fake::new("captures");
    {
        let gpu = fake.device();
        let images = images(1);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..3 {
                        let session = Session::builder().gpu(gpu.clone()).load(model()).unwrap();
                        for _ in 0..3 {
                            session.run(&images).unwrap();
                        }
                        assert_eq!(session.hip_graphs().unwrap().fallback, None);
                    }
                });
            }
            scope.spawn(|| (0..50).for_each(|_| gpu.synchronize().unwrap()));
        });
    }
    fake.assert_clean();
}
