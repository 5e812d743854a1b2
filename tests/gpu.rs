//! Every golden model, the held-out digits, and long and concurrent runs on a GPU. `HIPVIT_TEST_DEVICE` names
//! it (`hip:0`), and `HIPVIT_PROVIDER` its provider. Without the variable the tests print that they were
//! skipped.
//!
//! `--nocapture` shows the figures. `HIPVIT_TEST_RUNS` sets the length of the long run, and
//! `HIPVIT_TEST_DTYPES` the dtypes.

use std::panic::catch_unwind;
use std::sync::PoisonError;

use hipvit::evaluate::evaluate;
use hipvit::image::Limits;
use hipvit::pipeline::{Pipeline, Source};
use hipvit::reference::model_tolerance;
use hipvit::{DType, Device, GraphMode, Outputs, Session, SessionBuilder, digits};

use crate::support::at;
use crate::support::attention_statistics::check_device;
use crate::support::goldens::{cases, run};
use crate::support::gpu::{SHARED, device, device_named, dtypes, gpu, replayed};
use crate::support::session::{pixels, run_pixels, same};

mod all_reduce;
mod architectures;
mod augment;
mod backward;
mod compact_moments;
mod convolutions;
mod custom_op;
mod depth;
mod detect;
mod generation;
mod jpeg;
mod naflex;
mod onnx;
mod packed;
mod parallel;
mod patterns;
mod quantized;
mod resize;
mod rounded_training;
mod rt_detr;
mod search;
mod segment;
mod selection;
mod serve;
mod sparse;
mod states;
mod training;
mod training_losses;

#[test]
fn golden_models_agree_in_every_dtype() {
    let Some((device, _shared)) = device() else { return };
    let mut failed = 0;
    for dtype in dtypes() {
        for case in cases() {
            // A model that fails must not hide results of the others.
            let Ok((error, bound, same)) = catch_unwind(|| run(&case, device, dtype)) else {
                println!("FAIL {dtype:<4} {:<34} did not run", case.name);
                failed += 1;
                continue;
            };
            let pass = error <= bound && same;
            failed += usize::from(!pass);
            println!(
                "{} {dtype:<4} {:<34} error {error:.2e} of {bound:.1e}{}",
                if pass { "PASS" } else { "FAIL" },
                case.name,
                if same { "" } else { ", another top-1" }
            );
        }
    }
    assert_eq!(failed, 0, "models failed");
}

#[test]
fn held_out_digits_are_recognised_in_every_dtype() {
    let Some((device, _shared)) = device() else { return };
    for dtype in dtypes() {
        let session = Session::builder().device(device).dtype(dtype).batch(64);
        let session = session.tinyvit32().unwrap();
        let result = evaluate(&session, digits::held_out().unwrap(), Limits::default(), |item| {
            assert!(item.is_ok());
        })
        .unwrap();
        println!(
            "{dtype:<4} TinyViT32: {} of {} right",
            result.correct, result.images
        );
        // The numbers that PyTorch and hipvit reach in f32; rounding must not cost an image.
        let reached = match dtype {
            DType::F32 => result.correct == 357,
            _ => result.correct >= 357,
        };
        assert!(result.images == 360 && reached, "{dtype}: {}", result.correct);
    }
}

/// The errors are within the bound of the whole model.
#[test]
fn tokens_and_hidden_layers_agree_with_the_cpu() {
    let Some((device, _shared)) = device() else { return };
    for dtype in dtypes() {
        for name in [
            "timm_dinov2_reg4",
            "hf_siglip_vision",
            "hf_clip_vision",
            "timm_swin_padded",
            "timm_hiera",
        ] {
            let load = |builder: SessionBuilder| {
                let builder = builder.tokens(true).hidden_layers([0, 1]);
                builder.load(at("tests/golden").join(name)).unwrap()
            };
            let session = load(Session::builder().device(device).dtype(dtype));
            let cpu = load(Session::builder().device(Device::Cpu));
            let bound = model_tolerance(dtype, session.graph().nodes().len());
            let input = pixels(&session, 3);
            let (got, expected) = (run_pixels(&session, &input), run_pixels(&cpu, &input));
            let parts = |outputs: &Outputs| {
                let parts = [
                    outputs.tokens(),
                    outputs.prefix_tokens(),
                    outputs.hidden_layer(0),
                    outputs.hidden_layer(1),
                ];
                parts.map(|part| part.unwrap().to_owned())
            };
            let mut errors = Vec::new();
            for (got, expected) in parts(&got).iter().zip(&parts(&expected)) {
                assert_eq!(got.dim(), expected.dim());
                let largest = expected.iter().fold(0f64, |m, x| m.max(f64::from(x.abs())));
                let pairs = got.iter().zip(expected);
                let differences = pairs.map(|(g, e)| (f64::from(*g) - f64::from(*e)).abs() / largest);
                // NaN must not count as a small error; without an element there is none.
                errors.push(differences.fold(0f64, |m, e| if e <= m { m } else { e }));
            }
            assert!(errors.iter().all(|&error| error <= bound), "{name}: {errors:?}");
            let worst = errors.iter().copied().fold(0f64, f64::max);
            println!("PASS {dtype:<4} {name:<34} tokens: error {worst:.2e} of {bound:.1e}");
        }
    }
}

#[test]
fn statistics_of_attention_are_those_of_its_maps() {
    let Some((device, _shared)) = device() else { return };
    for dtype in dtypes() {
        check_device(device, dtype);
    }
}

/// The runs of each thread are on a separate stream.
#[test]
fn four_threads_on_their_streams_get_the_bits_of_one() {
    let Some((device, _shared)) = device() else { return };
    for dtype in dtypes() {
        let builder = Session::builder().device(device).dtype(dtype).batch(5);
        let session = builder.tinyvit32().unwrap();
        let inputs: Vec<_> = (1..=4).map(|n| pixels(&session, n)).collect();
        let alone: Vec<_> = inputs.iter().map(|i| run_pixels(&session, i)).collect();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (session, inputs, alone) = (&session, &inputs, &alone);
                scope.spawn(move || {
                    for run in 0..16 {
                        let which = (thread + run) % 4;
                        same(&run_pixels(session, &inputs[which]), &alone[which]);
                    }
                });
            }
        });
        println!("PASS {dtype:<4} four threads: {:?}", replayed(&session));
    }
}

/// The results of an image do not depend on the other images of its batch.
#[test]
fn reproducible_sessions_give_an_image_the_same_bits_at_any_batch_size() {
    let Some((device, _shared)) = device() else { return };
    for dtype in dtypes() {
        let builder = Session::builder().device(device).dtype(dtype).batch(33);
        let session = builder.reproducible(true).tinyvit32().unwrap();
        let input = pixels(&session, 33);
        let each = input.len() / 33;
        let all = run_pixels(&session, &input);
        for images in [1, 2, 7, 16, 7] {
            for (start, part) in [0, 33 - images].map(|i| (i, &input[i * each..(i + images) * each])) {
                let some = run_pixels(&session, part);
                let rows = start..start + images;
                let (logits, embeddings) = (all.logits().unwrap(), all.embeddings());
                assert_eq!(
                    some.logits().unwrap(),
                    logits.slice(ndarray::s![rows.clone(), ..])
                );
                assert_eq!(some.embeddings(), embeddings.slice(ndarray::s![rows, ..]));
            }
        }
        println!("PASS {dtype:<4} reproducible: {:?}", replayed(&session));
    }
}

/// A replay gives the bits of the steps.
#[test]
fn replayed_graphs_give_the_bits_of_the_steps() {
    let Some((device, _shared)) = device() else { return };
    for dtype in dtypes() {
        let builder = Session::builder().device(device).dtype(dtype);
        let eager = builder.clone().hip_graphs(GraphMode::Off).tinyvit32().unwrap();
        let session = builder.tinyvit32().unwrap();
        for images in [8, 3, 8, 3, 8, 3] {
            let input = pixels(&session, images);
            same(&run_pixels(&session, &input), &run_pixels(&eager, &input));
        }
        let replays = replayed(&session);
        println!("PASS {dtype:<4} graphs: {replays:?}");
        assert_eq!(replays.replayed_runs, 4);
        assert_eq!(eager.hip_graphs().unwrap().replayed_runs, 0);
    }
}

#[test]
fn a_pipeline_gives_the_bits_of_the_session() {
    let Some((device, _shared)) = device() else { return };
    for dtype in dtypes() {
        let builder = Session::builder().device(device).dtype(dtype).batch(8);
        let session = builder.tinyvit32().unwrap();
        let samples: Vec<Source> = digits::samples().collect();
        let sources: Vec<Source> = samples.iter().cycle().take(83).cloned().collect();
        let mut expected = Vec::new();
        for batch in sources.chunks(8) {
            let decoded = batch.iter().map(|s| s.decode(Limits::default()).unwrap());
            let outputs = session.run(decoded).unwrap();
            expected.extend(outputs.logits().unwrap().rows().into_iter().map(|r| r.to_vec()));
        }
        for timed in [false, true] {
            let pipeline = Pipeline::new(&session).timed(timed);
            let mut results = pipeline.run(sources.clone()).unwrap();
            let rows: Vec<_> = results
                .by_ref()
                .map(|item| item.unwrap().logits().unwrap().to_vec())
                .collect();
            assert_eq!(rows, expected);
            println!("PASS {dtype:<4} pipeline, timed: {timed}\n{}", results.timing());
        }
    }
}

/// Runs if there are two GPUs.
#[test]
fn two_gpus_copy_to_each_other_and_give_the_same_bits() {
    let Some((device, _shared)) = device() else { return };
    let gpus = gpu(device).runtime().devices().unwrap();
    let [first, second, ..] = &gpus[..] else {
        eprintln!("skipped: there is one GPU");
        return;
    };
    first.enable_peer_access(second).unwrap();
    second.enable_peer_access(first).unwrap();
    let [from, to] = [first, second].map(|gpu| gpu.stream().unwrap());
    let values: Vec<u32> = (0..100_003).map(|n: u32| n.wrapping_mul(2_654_435_761)).collect();
    let source = from.upload(&values).unwrap();
    let mut target = to.zeroed::<u32>(values.len()).unwrap();
    target.copy_from_peer(source.reading()).unwrap();
    // The memory of a dropped source is not reused before the copy is done.
    drop(source);
    let mut next = from.allocate::<u32>(values.len()).unwrap();
    next.fill(0xff).unwrap();
    let mut back = from.zeroed::<u32>(values.len()).unwrap();
    back.copy_from_peer(target.reading()).unwrap();
    assert!(target.read().unwrap() == values && back.read().unwrap() == values);

    for dtype in dtypes() {
        let sessions = [first, second].map(|gpu| {
            let builder = Session::builder().gpu(gpu.clone()).dtype(dtype);
            builder.tinyvit32().unwrap()
        });
        let input = pixels(&sessions[0], 3);
        for _ in 0..3 {
            let [a, b] = sessions.each_ref().map(|session| run_pixels(session, &input));
            same(&a, &b);
        }
    }
}

/// Runs if there are two GPUs: the batches of a run, of a pipeline and of threads, each on either GPU.
#[test]
fn replicas_on_two_gpus_give_the_bits_of_one() {
    let Some((device, _shared)) = device() else { return };
    let gpus = gpu(device).runtime().devices().unwrap();
    if gpus.len() < 2 {
        eprintln!("skipped: there is one GPU");
        return;
    }
    for dtype in dtypes() {
        let builder = || Session::builder().dtype(dtype).batch(2).threads(1);
        let one = builder().gpu(gpus[0].clone()).tinyvit32().unwrap();
        let all = builder().gpus(gpus.clone()).tinyvit32().unwrap();
        let input = pixels(&one, 10);
        let expected = run_pixels(&one, &input);
        for _ in 0..2 {
            same(&run_pixels(&all, &input), &expected);
        }
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| same(&run_pixels(&all, &input), &expected));
            }
        });
        let each = input.len() / 10;
        let sources: Vec<Source> = input
            .chunks(each)
            .map(|image| Source::Pixels("pixels".into(), image.to_vec().into()))
            .collect();
        let items = Pipeline::new(&all).run(sources).unwrap();
        for (item, expected) in items.zip(expected.iter()) {
            assert_eq!(item.unwrap().logits(), expected.logits(), "{dtype}");
        }
        let shares = all.images_by_replica();
        assert_eq!(shares.iter().sum::<u64>(), 5 * 10);
        assert!(shares.iter().all(|&images| images > 0), "{shares:?}");
    }
}

/// After some runs, neither the driver nor the pool uses more memory than before.
#[test]
fn many_runs_leave_the_memory_flat() {
    let Some(device) = device_named() else { return };
    let _alone = SHARED.write().unwrap_or_else(PoisonError::into_inner);
    let runs: usize = std::env::var("HIPVIT_TEST_RUNS").map_or(200, |n| n.parse().unwrap());
    let gpu = gpu(device);
    let session = Session::builder()
        .gpu(gpu.clone())
        .dtype(*dtypes().last().unwrap())
        .tinyvit32()
        .unwrap();
    let inputs = [8, 3].map(|images| pixels(&session, images));
    let expected = inputs.each_ref().map(|input| run_pixels(&session, input));
    let run = |count: usize| {
        for index in 0..count {
            let which = index % 2;
            same(&run_pixels(&session, &inputs[which]), &expected[which]);
        }
        gpu.synchronize().unwrap();
        (gpu.memory().unwrap().0, gpu.pool_stats())
    };
    // Captures, and whatever libraries allocate at first.
    let (free_before, pool_before) = run(20);
    let (free_after, pool_after) = run(runs);
    println!("{runs} runs: free {free_before} → {free_after} bytes; pool {pool_before:?} → {pool_after:?}");
    println!("{:?}", replayed(&session));
    assert_eq!(
        (pool_after.held, pool_after.live),
        (pool_before.held, pool_before.live)
    );
    assert_eq!(pool_after.driver_allocations, pool_before.driver_allocations);
    // The driver counts all processes, in pages of 2 MiB at most: what leaks does so every run.
    let lost = free_before.saturating_sub(free_after);
    assert!(
        lost < 2 << 20 || lost / runs < 64,
        "{lost} bytes of the device's memory are gone"
    );
}
