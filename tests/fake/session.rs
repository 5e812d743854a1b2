//! Whole models on the HIP path: sessions on the fake provider, and failures of the provider.

mod on_gpu;
mod pipelines;
mod replays;

use std::thread;

use hipvit::pipeline::Pipeline;
use hipvit::{Device, Error, GraphMode, ImageOutputs, Session, SessionBuilder};

use crate::support::at;
use crate::support::fake::session::{builder, model, session};
use crate::support::fake::{Fake, Slot};
use crate::support::program::{stderr, stdout};
use crate::support::session::{images, same, sources};

#[test]
fn a_model_computes_what_it_does_on_the_cpu_and_is_replayed() {
    let fake = Fake::new("session");
    {
        let images = images(3);
        let cpu = Session::builder().device(Device::Cpu).load(model()).unwrap();
        let expected = cpu.run(&images).unwrap();
        assert_eq!(cpu.hip_graphs(), None);
        let session = session(&fake, 3);
        let first = session.run(&images).unwrap();
        let (got, expected) = (first.logits().unwrap(), expected.logits().unwrap());
        let largest = expected.iter().fold(0f32, |m, x| m.max(x.abs()));
        for (got, expected) in got.iter().zip(expected) {
            // Both sum some hundreds of products in f32, in different orders.
            assert!((got - expected).abs() <= 1e-5 * largest, "{got} {expected}");
        }
        // The second captures, the others replay, and another input gives another result.
        for _ in 0..3 {
            same(&session.run(&images).unwrap(), &first);
        }
        let turned: Vec<_> = images.iter().rev().cloned().collect();
        let other = session.run(&turned).unwrap();
        assert_eq!(other.logits().unwrap().row(0), first.logits().unwrap().row(2));
        let replays = session.hip_graphs().unwrap();
        assert_eq!((replays.eager_runs, replays.replayed_runs), (1, 4));
        assert_eq!(replays.fallback, None);
        assert_eq!(fake.get(Slot::Replays), 4);

        // A smaller batch fits the context's memory, a larger one does not: its graphs go.
        for count in [1, 1, 1, 3, 3] {
            let outputs = session.run(&images[..count]).unwrap();
            assert_eq!(outputs.logits().unwrap().row(0), first.logits().unwrap().row(0));
        }
        assert_eq!(session.hip_graphs().unwrap().eager_runs, 2);
    }
    fake.assert_clean();
}

/// Tokens and hidden layers of runs, replays and a pipeline. No later step overwrites them.
#[test]
fn tokens_and_hidden_layers_are_those_of_the_cpu() {
    let fake = Fake::new("hidden-layers");
    for name in ["timm_dinov2_reg4", "hf_clip_vision", "timm_vit_class_token"] {
        let directory = at("tests/golden").join(name);
        let images = images(5);
        let builder = |builder: SessionBuilder| builder.batch(2).tokens(true).hidden_layers(0..2);
        let cpu = builder(Session::builder().device(Device::Cpu));
        let expected = cpu.load(&directory).unwrap().run(&images).unwrap();
        let session = builder(self::builder(&fake)).load(&directory).unwrap();
        let check = |got: ImageOutputs<'_>, expected: ImageOutputs<'_>| {
            for (got, expected) in [
                (got.tokens(), expected.tokens()),
                (got.prefix_tokens(), expected.prefix_tokens()),
                (got.hidden_layer(0), expected.hidden_layer(0)),
                (got.hidden_layer(1), expected.hidden_layer(1)),
            ] {
                let (got, expected) = (got.unwrap(), expected.unwrap());
                assert_eq!(got.dim(), expected.dim(), "{name}");
                let largest = expected.iter().fold(0f32, |m, x| m.max(x.abs()));
                for (got, expected) in got.iter().zip(&expected) {
                    assert!(
                        (got - expected).abs() <= 2e-5 * largest,
                        "{name}: {got} {expected}"
                    );
                }
            }
        };
        for _ in 0..3 {
            let outputs = session.run(&images).unwrap();
            outputs
                .iter()
                .zip(expected.iter())
                .for_each(|(got, expected)| check(got, expected));
        }
        assert!(session.hip_graphs().unwrap().replayed_runs > 0);
        let items = Pipeline::new(&session).run(sources(&images)).unwrap();
        for (item, expected) in items.zip(expected.iter()) {
            check(item.unwrap().outputs(), expected);
        }
    }
    fake.assert_clean();
}

/// A failed run drops its context, but keeps the weights.
#[test]
fn runs_that_fail_leave_no_streams_behind() {
    let fake = Fake::new("lost-contexts");
    {
        let (session, images) = (session(&fake, 2), images(2));
        let first = session.run(&images).unwrap();
        for _ in 0..10 {
            fake.set(Slot::FailLaunch, 1);
            session.run(&images).unwrap_err();
        }
        // What copies the inputs, and the last context's, which the weights still know.
        assert!(fake.get(Slot::Streams) <= 2, "{}", fake.get(Slot::Streams));
        same(&session.run(&images).unwrap(), &first);
    }
    fake.assert_clean();
}

#[test]
fn four_threads_get_the_same_bits() {
    let fake = Fake::new("session-threads");
    {
        let (session, images) = (session(&fake, 4), images(4));
        let expected = session.run(&images).unwrap();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5 {
                        same(&session.run(&images).unwrap(), &expected);
                    }
                });
            }
        });
    }
    fake.assert_clean();
}

/// Whichever launch or copy fails, the error names the device, and the session works afterwards.
#[test]
fn a_session_survives_each_failed_launch_and_copy() {
    let fake = Fake::new("session-faults");
    {
        let images = images(2);
        let session = builder(&fake).hip_graphs(GraphMode::Off).load(model()).unwrap();
        let expected = session.run(&images).unwrap();
        for (fault, fewest) in [(Slot::FailLaunch, 10), (Slot::FailCopy, 2)] {
            let mut errors = 0;
            loop {
                fake.set(fault, errors + 1);
                let result = session.run(&images);
                let due = fake.get(fault) == 0;
                fake.set(fault, 0);
                assert_eq!(result.is_err(), due, "{fault:?} {errors}");
                let Err(error) = result else { break };
                let text = error.to_string();
                assert!(
                    text.contains("hipErrorLaunchFailure") && text.contains("GPU 0"),
                    "{text}"
                );
                errors += 1;
                same(&session.run(&images).unwrap(), &expected);
            }
            assert!(errors >= fewest, "{fault:?}: {errors}");
        }
    }
    fake.assert_clean();
}

/// With any limit on memory there is an error or a result, and nothing leaks.
#[test]
fn a_session_without_memory_is_an_error_that_leaves_nothing() {
    let fake = Fake::new("session-oom");
    let images = images(8);
    let run = |limit| {
        fake.set(Slot::MemoryLimit, limit);
        let session = builder(&fake).load(model())?;
        let outputs = session.run(&images)?;
        Ok::<_, Error>((outputs, fake.get(Slot::DeviceBytes)))
    };
    let (expected, most) = run(0).unwrap();
    fake.assert_clean();
    let mut failed = 0;
    for limit in (0..=16).map(|part| (most * part / 16).max(1)) {
        match run(limit) {
            Ok((outputs, _)) => same(&outputs, &expected),
            Err(error) => {
                assert!(
                    matches!(error, Error::Hip(hipvit::hip::Error::OutOfMemory { .. })),
                    "{error}"
                );
                failed += 1;
            }
        }
        fake.assert_clean();
    }
    assert_eq!(failed, 16);
}

#[test]
fn a_batch_too_large_for_the_device_leaves_the_session_usable() {
    let fake = Fake::new("session-batch");
    {
        let (session, images) = (session(&fake, 64), images(64));
        let one = session.run(&images[..1]).unwrap();
        fake.set(Slot::MemoryLimit, fake.get(Slot::DeviceBytes));
        let error = session.run(&images).unwrap_err();
        assert!(
            matches!(error, Error::Hip(hipvit::hip::Error::OutOfMemory { .. })),
            "{error}"
        );
        same(&session.run(&images[..1]).unwrap(), &one);
        assert_eq!(session.hip_graphs().unwrap().fallback, None);
        fake.set(Slot::MemoryLimit, 0);
        assert_eq!(session.run(&images).unwrap().len(), 64);
    }
    fake.assert_clean();
}

/// Runs the GPU tests in f32, including every golden model.
#[test]
fn the_tests_for_a_gpu_pass() {
    let fake = Fake::new("gpu-tests");
    let tests = [
        "gpu::golden",
        "gpu::held_out",
        "gpu::four_threads",
        "gpu::replayed",
        "gpu::a_pipeline",
        "gpu::many_runs",
        "gpu::tokens",
    ];
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(tests)
        // One looks at the device's memory.
        .args(["--test-threads", "1"])
        .env("HIPVIT_PROVIDER", &fake.path)
        .env("FAKE_DEVICES", "1")
        .env("HIPVIT_TEST_DEVICE", "hip:0")
        .env("HIPVIT_TEST_DTYPES", "f32")
        .env("HIPVIT_TEST_RUNS", "20")
        .output()
        .unwrap();
    let text = stdout(&output);
    assert!(
        text.contains("test result: ok. 7 passed"),
        "{text}{}",
        stderr(&output)
    );
}
