//! Whole models through the HIP path: sessions and pipelines on the fake provider, and what becomes of them when it fails.

use std::path::PathBuf;
use std::thread;

use hipvit::hip::ForeignMemory;
use hipvit::image::{Limits, RgbImage, open};
use hipvit::pipeline::{Pipeline, Source};
use hipvit::timing::{Phase, Timing};
use hipvit::{
    DType, Device, Error, GpuOutputs, GpuTensor, GraphMode, ImageErrorKind, ImageOutputs, Outputs,
    Parallelism, RunInput, RunOptions, Session, SessionBuilder,
};

use super::{Fake, Slot};
use crate::at;
use crate::command_line::{stderr, stdout};

pub(super) fn model() -> PathBuf {
    at("tests/golden/timm_vit_class_token")
}

pub(super) fn builder(fake: &Fake) -> SessionBuilder {
    Session::builder().gpu(fake.device()).threads(2)
}

pub(super) fn session(fake: &Fake, batch: usize) -> Session {
    builder(fake).batch(batch).load(model()).unwrap()
}

pub(super) fn images(count: usize) -> Vec<RgbImage> {
    let image = |name| open(at("tests/golden/images").join(name), Limits::default()).unwrap();
    let mut images = ["small.png", "tall.png", "wide.png"].map(image).to_vec();
    // None of the later ones is the same.
    images = images.into_iter().cycle().take(count).collect();
    for (index, image) in images.iter_mut().enumerate() {
        let at = index % image.data.len();
        image.data[at..]
            .iter_mut()
            .for_each(|byte| *byte = byte.wrapping_add(index as u8));
    }
    images
}

pub(super) fn sources(images: &[RgbImage]) -> Vec<Source> {
    let source = |(index, image): (usize, &RgbImage)| Source::Decoded(format!("{index}"), image.clone());
    images.iter().enumerate().map(source).collect()
}

pub(super) fn same(a: &Outputs, b: &Outputs) {
    assert_eq!(a.logits(), b.logits());
    assert_eq!(a.embeddings(), b.embeddings());
}

/// Of another library, as far as the session knows.
#[test]
fn input_on_the_gpu_is_read_there() {
    let fake = Fake::new("device-input");
    {
        fake.set(Slot::Devices, 2);
        let gpus = fake.runtime().devices().unwrap();
        let one = Session::builder().gpu(gpus[0].clone()).threads(2).batch(2);
        let session = one.load(model()).unwrap();
        assert_eq!(session.input_gpu(), Some(&gpus[0]));
        let [height, width] = session.info().image_size;
        let pixels: Vec<u8> = (0..5 * height * width * 3).map(|i| (i * 7 % 251) as u8).collect();
        let expected = session
            .run_with(RunInput::Pixels(&pixels), RunOptions::new())
            .unwrap();
        let [stream, other] = [0, 1].map(|gpu| gpus[gpu].stream().unwrap());
        let [here, there] = [&stream, &other].map(|stream| stream.upload(&pixels).unwrap());
        // SAFETY: the buffers stay, their streams wrote them, and nothing else does.
        let [memory, elsewhere] = unsafe {
            [
                ForeignMemory::new(&stream, here.address(), pixels.len()),
                ForeignMemory::new(&other, there.address(), pixels.len()),
            ]
        };
        let run = |session: &Session, memory: &ForeignMemory, dtype| {
            session.run_with(RunInput::Device { memory, dtype }, RunOptions::new())
        };
        for _ in 0..3 {
            same(&run(&session, &memory, DType::U8).unwrap(), &expected);
        }
        let half = memory.part(0..2 * height * width * 3).unwrap();
        assert_eq!(
            run(&session, &half, DType::U8).unwrap().embeddings(),
            expected.embeddings().slice(hipvit::ndarray::s![..2, ..])
        );
        let stages = Session::builder()
            .gpus(gpus.clone())
            .parallel(Parallelism::pipeline())
            .batch(2)
            .load(model())
            .unwrap();
        same(&run(&stages, &memory, DType::U8).unwrap(), &expected);

        let error =
            |session, memory: &ForeignMemory, dtype| run(session, memory, dtype).unwrap_err().to_string();
        let text = error(&session, &memory, DType::F32);
        assert!(text.contains("is f32, expected u8"), "{text}");
        let text = error(&session, &memory.part(0..100).unwrap(), DType::U8);
        assert!(text.contains("not a whole number of images"), "{text}");
        let text = error(&session, &elsewhere, DType::U8);
        assert!(text.contains("is on GPU 1"), "{text}");
        assert!(memory.part(0..pixels.len() + 1).is_err());
        let replicas = Session::builder().gpus(gpus.clone()).load(model()).unwrap();
        assert_eq!(replicas.input_gpu(), None);
        let text = error(&replicas, &memory, DType::U8);
        assert!(text.contains("is on GPU 0"), "{text}");
        let cpu = Session::builder().device(Device::Cpu).load(model()).unwrap();
        let text = error(&cpu, &memory, DType::U8);
        assert!(text.contains("the session on cpu"), "{text}");
    }
    fake.assert_clean();
}

/// The values of a tensor of a session in f32, by DLPack.
fn read(tensor: &GpuTensor) -> Vec<f32> {
    let stream = tensor.device().stream().unwrap();
    let exported = tensor.to_dlpack().unwrap();
    assert_eq!(exported.device(), tensor.device().dlpack());
    assert_eq!(exported.dtype(), Some(DType::F32));
    // SAFETY: what writes it is done, and it stays until the copy is.
    let memory = unsafe { exported.memory(&stream) }.unwrap();
    let mut copy = stream.allocate::<f32>(memory.bytes() / 4).unwrap();
    let mut uploads = copy.uploads_on(&stream).unwrap();
    uploads.push_foreign(0, &memory).unwrap();
    uploads.finish().unwrap().wait().unwrap();
    copy.read().unwrap()
}

#[test]
fn results_stay_on_the_gpu() {
    let fake = Fake::new("device-results");
    {
        fake.set(Slot::Devices, 2);
        let gpus = fake.runtime().devices().unwrap();
        let one = || Session::builder().gpu(gpus[0].clone()).threads(2).batch(2);
        let session = one().hidden_layers([1]).load(model()).unwrap();
        assert_eq!(session.output_gpu(), Some(&gpus[0]));
        let images = images(5);
        let expected = session.run(&images).unwrap();
        let check = |outputs: &GpuOutputs| {
            let values = |array: &hipvit::ndarray::Array2<f32>| array.iter().copied().collect::<Vec<_>>();
            assert_eq!(read(outputs.embeddings()), values(expected.embeddings()));
            assert_eq!(
                read(outputs.logits().unwrap()),
                values(expected.logits().unwrap())
            );
            let layer = expected.hidden_layer(1).unwrap();
            let got = outputs.hidden_layer(1).unwrap();
            assert_eq!(got.shape(), layer.shape());
            assert_eq!(read(got), layer.iter().copied().collect::<Vec<_>>());
            assert!(outputs.tokens().is_none());
        };
        for _ in 0..2 {
            check(&session.run_on_gpu(&images, RunOptions::new()).unwrap());
        }
        // Those that were given away outlive the session, and are not written by later runs.
        let kept = session.run_on_gpu(&images, RunOptions::new()).unwrap();
        session.run_on_gpu(&images[3..], RunOptions::new()).unwrap();
        drop(session);
        check(&kept);

        let none = one().load(model()).unwrap();
        let none = none.run_on_gpu(&images[..0], RunOptions::new()).unwrap();
        assert_eq!(none.embeddings().shape()[0], 0);
        let refused = |builder: SessionBuilder| {
            let session = builder.load(model()).unwrap();
            assert_eq!(session.output_gpu(), None);
            let error = session.run_on_gpu(&images, RunOptions::new()).unwrap_err();
            assert!(error.to_string().contains("the only one"), "{error}");
        };
        refused(Session::builder().device(Device::Cpu));
        refused(Session::builder().gpus(gpus.clone()));
        refused(
            Session::builder()
                .gpus(gpus.clone())
                .parallel(Parallelism::pipeline()),
        );
    }
    fake.assert_clean();
}

/// Of results that stay on the GPU, what the host does not get is compared too.
#[test]
fn wrong_replays_leave_right_results_on_the_gpu() {
    let fake = Fake::new("device-results-replay");
    {
        let session = builder(&fake).batch(2).hidden_layers([1]).load(model()).unwrap();
        let images = images(2);
        let expected = session.run(&images).unwrap();
        let layer: Vec<f32> = expected.hidden_layer(1).unwrap().iter().copied().collect();
        let run = || session.run_on_gpu(&images, RunOptions::new()).unwrap();
        run();
        fake.set(Slot::CorruptReplay, 1);
        let replays = || session.hip_graphs().unwrap();
        let wrong = (0..8)
            .filter(|_| read(run().hidden_layer(1).unwrap()) != layer)
            .count();
        assert!(
            replays().fallback.is_some() && replays().recomputed_runs == 1,
            "{:?}",
            replays()
        );
        // Those before the comparison, as the fallback says.
        assert!(wrong < 4, "{wrong}");
        assert_eq!(read(run().hidden_layer(1).unwrap()), layer);
    }
    fake.assert_clean();
}

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
            // Both add up some hundreds of products in f32, in orders of their own.
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

/// Of runs, replays and a pipeline; none of them is overwritten by a later step.
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

/// A run that fails takes its context with it, but not for as long as the weights are there.
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

/// A graph may do what it was captured for, and stop doing so.
#[test]
fn a_replay_that_goes_wrong_later_is_computed_again() {
    // Without its last kernel, which adds a bias, or without its first, a replay still writes results. They are compared the
    // fourth time.
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
                last = Some(match timed {
                    true => session
                        .run_with(&images, RunOptions::new().timing(&mut timing))
                        .unwrap(),
                    false => session.run(&images).unwrap(),
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
            match timed {
                true => session
                    .run_with(&images, RunOptions::new().timing(&mut Timing::default()))
                    .unwrap(),
                false => session.run(&images).unwrap(),
            };
            fake.get(Slot::EventsMade) - before
        };
        events(false);
        let (without, with) = (events(false), events(true));
        // One before the input's copy and one after it, and one after each output's.
        assert_eq!(without, 2 + 2);
        // Before and after the input's copy, before the steps, after each, and after the outputs.
        assert_eq!(with, without + 4 + session.graph().nodes().len() as u64);
    }
    fake.assert_clean();
}

/// What the session says of all images, a batch at a time as the pipeline makes them.
fn alone(session: &Session, images: &[RgbImage]) -> Vec<Vec<f32>> {
    let batches = images.chunks(session.batch());
    let rows = batches.map(|batch| session.run(batch).unwrap());
    rows.flat_map(|outputs| {
        let logits = outputs.logits().unwrap().clone();
        logits
            .rows()
            .into_iter()
            .map(|row| row.to_vec())
            .collect::<Vec<_>>()
    })
    .collect()
}

fn piped(pipeline: &Pipeline, images: &[RgbImage]) -> (Vec<Vec<f32>>, Timing) {
    let mut rows = Vec::new();
    let mut results = pipeline.run(sources(images)).unwrap();
    for item in &mut results {
        let item = item.unwrap();
        assert_eq!(item.index(), rows.len(), "results come in order");
        assert_eq!(item.name(), item.index().to_string());
        rows.push(item.logits().unwrap().to_vec());
    }
    (rows, results.timing().clone())
}

#[test]
fn a_pipeline_overlaps_batches_within_its_bound_and_gives_the_same_bits() {
    let fake = Fake::new("pipeline");
    {
        let (session, images) = (session(&fake, 2), images(23));
        let expected = alone(&session, &images);
        for in_flight in [1, 2, 3] {
            let overlaps = fake.get(Slot::Overlaps);
            // The device computes only when the inputs of all batches in flight were submitted: who waited for a result
            // before would have fewer in flight.
            fake.set(Slot::HoldLaunches, fake.get(Slot::Uploads) + in_flight as u64);
            let pipeline = Pipeline::new(&session).in_flight(in_flight).timed(true);
            let (rows, timing) = piped(&pipeline, &images);
            assert_eq!(rows, expected);
            assert_eq!(timing.most_in_flight(), in_flight);
            assert_eq!(fake.get(Slot::Overlaps) > overlaps, in_flight > 1);
            assert!(timing.wall() > std::time::Duration::ZERO);
        }
        let mallocs = fake.get(Slot::Mallocs);
        for _ in 0..3 {
            assert_eq!(piped(&Pipeline::new(&session), &images).0, expected);
        }
        assert_eq!(fake.get(Slot::Mallocs), mallocs, "no allocation on the hot path");
        // Pinned are the inputs in flight and three more, and each context's two outputs.
        assert!(fake.get(Slot::Pinned) <= 6 + 6, "{}", fake.get(Slot::Pinned));
        assert!(
            Pipeline::new(&session)
                .in_flight(0)
                .run(sources(&images))
                .is_err()
        );
    }
    fake.assert_clean();
}

#[test]
fn a_bad_image_costs_its_result_alone_and_a_caller_may_stop() {
    let fake = Fake::new("pipeline-errors");
    {
        let (session, images) = (session(&fake, 2), images(9));
        let mut sources = sources(&images);
        for index in [2, 3, 5] {
            sources[index] = Source::Bytes("broken".into(), b"no image"[..].into());
        }
        let mut failed = Vec::new();
        let mut rows = Vec::new();
        for item in Pipeline::new(&session).run(sources.clone()).unwrap() {
            match item {
                Ok(item) => rows.push(item.logits().unwrap().to_vec()),
                Err(error) => {
                    failed.push(error.index().unwrap());
                    assert!(error.to_string().starts_with("broken: not a PNG"), "{error}");
                    assert!(matches!(
                        error.error(),
                        Error::Image {
                            kind: ImageErrorKind::Unsupported,
                            ..
                        }
                    ));
                }
            }
        }
        assert_eq!(failed, [2, 3, 5]);
        let good: Vec<RgbImage> = [0, 1, 4, 6, 7, 8].map(|i: usize| images[i].clone()).to_vec();
        // In other batches the sums are the same here.
        assert_eq!(rows, alone(&session, &good));

        let results = Pipeline::new(&session).run(sources).unwrap();
        assert_eq!(results.take(4).count(), 4);
        session.run(&images).unwrap();
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

/// Whichever launch or copy fails, the error names the device, and the session then works.
#[test]
fn a_session_survives_each_failed_launch_and_copy() {
    let fake = Fake::new("session-faults");
    {
        let images = images(2);
        let session = builder(&fake).hip_graphs(GraphMode::Off).load(model()).unwrap();
        let expected = session.run(&images).unwrap();
        for (fault, fewest) in [(Slot::FailLaunch, 10), (Slot::FailCopy, 3)] {
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

/// A launch that fails while it is captured costs the graph, not the run.
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

/// At any limit on memory there is an error or a result, and nothing stays behind.
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

/// Where there is memory for one context, a pipeline has one batch in flight.
#[test]
fn a_pipeline_makes_do_with_the_memory_there_is() {
    let fake = Fake::new("pipeline-memory");
    {
        let (session, images) = (session(&fake, 2), images(11));
        let expected = alone(&session, &images);
        fake.set(Slot::MemoryLimit, fake.get(Slot::DeviceBytes) + 1000);
        let (rows, timing) = piped(&Pipeline::new(&session), &images);
        assert_eq!(rows, expected);
        assert_eq!(timing.most_in_flight(), 1);
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

/// The tests for a GPU, in f32: every golden model among them.
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
