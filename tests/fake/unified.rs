//! A GPU that shares the host's memory: no copies of inputs and results.

use hipvit::pipeline::Pipeline;
use hipvit::timing::{Phase, Timing};
use hipvit::{Error, GraphMode, Outputs, RunOptions, Session};

use crate::support::fake::session::{builder, model, session};
use crate::support::fake::{Fake, Slot};
use crate::support::session::{images, pixels, run_pixels, same, sources};

/// Creates a fake GPU that shares the host's memory.
fn integrated(test: &str) -> Fake {
    let fake = Fake::new(test);
    fake.set(Slot::Integrated, 1);
    fake
}

/// Returns the results of runs on a GPU with memory of its own.
fn with_copies(test: &str, batches: &[Vec<u8>]) -> Vec<Outputs> {
    let fake = Fake::new(&format!("{test}-copies"));
    let session = session(&fake, 5);
    assert!(!session.executor().hip().unwrap().device().shares_host_memory());
    let copies = fake.get(Slot::Uploads);
    let outputs = batches.iter().map(|batch| run_pixels(&session, batch)).collect();
    assert!(fake.get(Slot::Uploads) >= copies + batches.len() as u64);
    outputs
}

/// Returns how many copies were submitted so far, from and to the host.
fn copies(fake: &Fake) -> [u64; 2] {
    [Slot::Uploads, Slot::Downloads].map(|slot| fake.get(slot))
}

/// Batches of one to five images.
fn batches(session: &Session) -> Vec<Vec<u8>> {
    let image = pixels(session, 1).len();
    let pixels = pixels(session, 9);
    [1, 3, 5, 2, 5]
        .map(|count| pixels[(5 - count) * image..5 * image].to_vec())
        .to_vec()
}

#[test]
fn runs_copy_neither_inputs_nor_results() {
    let fake = integrated("unified");
    {
        let session = builder(&fake)
            .batch(5)
            .hip_graphs(GraphMode::Off)
            .load(model())
            .unwrap();
        let batches = batches(&session);
        let expected = with_copies("unified", &batches);
        let before = copies(&fake);
        for (batch, expected) in batches.iter().zip(&expected) {
            same(&run_pixels(&session, batch), expected);
        }
        // Memory that the caller fills.
        let mut input = session.pinned_input(5).unwrap();
        for _ in 0..2 {
            input.copy_from_slice(&batches[2]);
            same(
                &session.run_pinned(&mut input, RunOptions::new()).unwrap(),
                &expected[2],
            );
        }
        // Memory that decode threads fill, with several runs in flight.
        let images = images(23);
        let results = Pipeline::new(&session).run(sources(&images)).unwrap();
        assert_eq!(results.filter(Result::is_ok).count(), 23);
        assert_eq!(copies(&fake), before);
    }
    fake.assert_clean();
}

/// The captures and the checks copy results to compare them. Other replays copy nothing.
#[test]
fn replays_read_the_memory_of_their_input() {
    let fake = integrated("unified-replays");
    {
        let session = session(&fake, 5);
        let batches = batches(&session);
        let expected = with_copies("unified-replays", &batches);
        // Two inputs take turns.
        let mut inputs = [0, 1].map(|_| session.pinned_input(5).unwrap());
        let mut run = |turn: usize, batch: usize| {
            let input = &mut inputs[turn % 2];
            input.copy_from_slice(&batches[batch]);
            same(
                &session.run_pinned(input, RunOptions::new()).unwrap(),
                &expected[batch],
            );
        };
        // The first run is eager. Then there is a capture for each input.
        for turn in 0..3 {
            run(turn, 2);
        }
        let replays = session.hip_graphs().unwrap();
        assert_eq!((replays.eager_runs, replays.replayed_runs), (1, 2), "{replays:?}");
        let before = copies(&fake);
        for turn in 0..2 {
            run(turn, 4);
        }
        assert_eq!(copies(&fake), before);
        for turn in 0..12 {
            run(turn, if turn % 3 == 0 { 2 } else { 4 });
        }
        let replays = session.hip_graphs().unwrap();
        assert_eq!((replays.eager_runs, replays.replayed_runs), (1, 16));
        assert_eq!((replays.checked_runs, replays.fallback), (2, None));
        assert_eq!(copies(&fake)[0], before[0]);
    }
    fake.assert_clean();
}

#[test]
fn replays_that_write_nothing_are_computed_again() {
    for left_out in [1, 2] {
        let fake = integrated(&format!("unified-late-fault-{left_out}"));
        {
            let (session, images) = (session(&fake, 2), images(2));
            let expected = session.run(&images).unwrap();
            same(&session.run(&images).unwrap(), &expected);
            fake.set(Slot::CorruptReplay, left_out);
            for _ in 0..8 {
                session.run(&images).unwrap();
            }
            same(&session.run(&images).unwrap(), &expected);
            let replays = session.hip_graphs().unwrap();
            assert!(replays.fallback.unwrap().contains("was computed again"));
        }
        fake.assert_clean();
    }
}

/// Tokens and hidden layers that later steps read stay in device memory, and are copied.
#[test]
fn results_that_steps_read_are_copied() {
    let fake = integrated("unified-tokens");
    let discrete = Fake::new("unified-tokens-copies");
    {
        let load = |fake: &Fake| {
            let builder = builder(fake).batch(2).tokens(true).hidden_layers(0..2);
            builder.load(model()).unwrap()
        };
        let (session, images) = (load(&fake), images(2));
        let expected = load(&discrete).run(&images).unwrap();
        for _ in 0..5 {
            let outputs = session.run(&images).unwrap();
            same(&outputs, &expected);
            assert_eq!(outputs.tokens(), expected.tokens());
            assert_eq!(outputs.hidden_layer(1), expected.hidden_layer(1));
        }
        assert!(fake.get(Slot::Downloads) > 0);
    }
    fake.assert_clean();
    discrete.assert_clean();
}

#[test]
fn timed_runs_have_no_copies() {
    let fake = integrated("unified-timing");
    {
        let (session, images) = (session(&fake, 2), images(2));
        let mut timing = Timing::default();
        session
            .run_with(&images, RunOptions::new().timing(&mut timing))
            .unwrap();
        let is_copy = |phase| matches!(phase, Phase::CopyIn | Phase::CopyOut);
        assert!(!timing.phases().any(|(phase, _)| is_copy(phase)), "{timing:?}");
    }
    fake.assert_clean();
}

#[test]
fn failed_runs_give_the_memory_back() {
    let fake = integrated("unified-faults");
    {
        let (session, images) = (session(&fake, 2), images(2));
        let expected = session.run(&images).unwrap();
        for nth in [1, 3, 5] {
            fake.set(Slot::FailLaunch, nth);
            let error = session.run(&images).unwrap_err();
            assert!(matches!(error, Error::Step { .. } | Error::Hip(_)), "{error}");
            fake.set(Slot::FailLaunch, 0);
            same(&session.run(&images).unwrap(), &expected);
        }
    }
    fake.assert_clean();
}
