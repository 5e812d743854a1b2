//! Every golden model, the held-out digits, and long and concurrent runs on a GPU. `HIPVIT_TEST_DEVICE` names
//! it (`hip:0`), and `HIPVIT_PROVIDER` its provider. Without the variable the tests print that they were
//! skipped.
//!
//! `--nocapture` shows the figures. `HIPVIT_TEST_RUNS` sets the length of the long run, and
//! `HIPVIT_TEST_DTYPES` the dtypes.

use std::fs;
use std::panic::catch_unwind;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::time::Instant;

use half::f16;
use hipvit::evaluate::evaluate;
use hipvit::exec::Replays;
use hipvit::hip::{Device as Gpu, Runtime};
use hipvit::image::{Limits, open};
use hipvit::model::InputKind;
use hipvit::pipeline::{Pipeline, Source};
use hipvit::reference::model_tolerance;
use hipvit::{DType, Device, GraphMode, Outputs, RunInput, RunOptions, Session, SessionBuilder, digits};
use ndarray::{Array2, Axis};
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::json;

use crate::at;
use crate::command_line::{hipvit, stderr, stdout};
use crate::goldens::{Case, cases};

mod all_reduce;
mod architectures;
mod custom_op;
mod naflex;
mod parallel;
mod quantized;
mod resize;
mod selection;
mod sparse;

/// Returns all dtypes, or those in `HIPVIT_TEST_DTYPES`, for a provider that lacks some.
fn dtypes() -> Vec<DType> {
    let named = std::env::var("HIPVIT_TEST_DTYPES").unwrap_or_else(|_| "f32,f16,bf16".into());
    let all = [DType::F32, DType::F16, DType::BF16];
    let dtype = |name: &str| *all.iter().find(|d| d.to_string() == name).unwrap();
    named.split(',').map(dtype).collect()
}

/// All tests share the free memory. The test that measures it has exclusive access to the GPU.
static SHARED: RwLock<()> = RwLock::new(());

fn device() -> Option<(Device, RwLockReadGuard<'static, ()>)> {
    let device = device_named()?;
    Some((device, SHARED.read().unwrap_or_else(PoisonError::into_inner)))
}

fn device_named() -> Option<Device> {
    let Ok(name) = std::env::var("HIPVIT_TEST_DEVICE") else {
        eprintln!("skipped: HIPVIT_TEST_DEVICE does not name a GPU");
        return None;
    };
    Some(name.parse().unwrap())
}

/// Returns the distance from 1 to the next value.
fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-10),
        DType::BF16 => 2f64.powi(-7),
        _ => f64::from(f32::EPSILON),
    }
}

/// Returns the largest error, and true if each row's largest element is the same. Elements within 2ε of the
/// largest output may change places, because each is rounded to the dtype at least once.
fn compare(got: &Array2<f32>, expected: &Array2<f64>, epsilon: f64) -> (f64, bool) {
    assert_eq!(got.dim(), expected.dim());
    let largest = expected.iter().fold(0f64, |m, x| m.max(x.abs()));
    let errors = got
        .iter()
        .zip(expected)
        .map(|(&g, e)| (f64::from(g) - e).abs() / largest);
    // NaN must not count as a small error.
    let error = errors.fold(0f64, |m, e| if e <= m { m } else { e });
    let same = got
        .rows()
        .into_iter()
        .zip(expected.rows())
        .all(|(got, expected)| {
            let top = (0..got.len()).max_by(|&a, &b| got[a].total_cmp(&got[b])).unwrap();
            let best = expected.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            best - expected[top] <= 2.0 * epsilon * largest
        });
    (error, same)
}

/// Runs a case from pixel values, and from the files that every decoder decodes equally.
fn run(case: &Case, device: Device, dtype: DType) -> (f64, f64, bool) {
    let golden = case.golden();
    let builder = case.builder().device(device).dtype(dtype);
    let check =
        |outputs: &Outputs, expected: &Array2<f64>| compare(case.select(outputs), expected, epsilon(dtype));

    let session = case.load(&builder.clone().input(InputKind::PixelValues));
    assert_eq!(session.device(), device);
    let bound = model_tolerance(dtype, session.graph().nodes().len());
    let values: Vec<f32> = golden.pixel_values.iter().copied().collect();
    let outputs = session
        .run_with(RunInput::Values(&values), RunOptions::new())
        .unwrap();
    let (mut error, mut same) = check(&outputs, &golden.output);

    let png = |(_, name): &(usize, &String)| name.ends_with(".png");
    let (rows, images): (Vec<usize>, Vec<_>) = case
        .images
        .iter()
        .enumerate()
        .filter(png)
        .map(|(row, name)| {
            (
                row,
                open(at("tests/golden/images").join(name), Limits::default()).unwrap(),
            )
        })
        .unzip();
    if !images.is_empty() {
        let outputs = case.load(&builder).run(&images).unwrap();
        let (e, s) = check(&outputs, &golden.output.select(Axis(0), &rows));
        (error, same) = (if e <= error { error } else { e }, same && s);
    }
    (error, bound, same)
}

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
fn the_cpu_agrees_with_golden_models_in_16_bits() {
    for dtype in [DType::F16, DType::BF16] {
        for case in cases() {
            let (error, bound, same) = run(&case, Device::Cpu, dtype);
            assert!(
                error <= bound && same,
                "{} in {dtype}: {error:.2e} of {bound:.1e}",
                case.name
            );
        }
    }
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
        for name in ["timm_dinov2_reg4", "hf_siglip_vision", "hf_clip_vision"] {
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
        crate::attention_statistics::check_device(device, dtype);
    }
}

fn gpu(device: Device) -> Gpu {
    let Device::Hip(number) = device else {
        panic!("{device} is no GPU");
    };
    Runtime::open().unwrap().device(number).unwrap()
}

fn pixels(session: &Session, images: usize) -> Vec<u8> {
    let (height, width) = session.preprocess().output_size();
    let random = std::iter::successors(Some(1u32), |x| Some(x * 48_271 % 65_521));
    random
        .take(images * height * width * 3)
        .map(|x| x as u8)
        .collect()
}

fn run_pixels(session: &Session, pixels: &[u8]) -> Outputs {
    session
        .run_with(RunInput::Pixels(pixels), RunOptions::new())
        .unwrap()
}

fn same(a: &Outputs, b: &Outputs) {
    assert_eq!(a.logits(), b.logits());
    assert_eq!(a.embeddings(), b.embeddings());
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

/// Checks that the session replays captured graphs and has not fallen back to eager steps.
#[track_caller]
fn replayed(session: &Session) -> Replays {
    let replays = session.hip_graphs().unwrap();
    assert!(
        replays.replayed_runs > 0 && replays.fallback.is_none(),
        "{replays:?}"
    );
    replays
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

#[test]
fn without_a_provider_a_gpu_is_an_error_and_auto_is_the_cpu() {
    let run = |args: &[&str]| {
        std::process::Command::new(env!("CARGO_BIN_EXE_hipvit"))
            .args(args)
            .env("HIPVIT_PROVIDER", "/nowhere/libamdhip64.so")
            .output()
            .unwrap()
    };
    for device in ["hip", "hip:3"] {
        let output = run(&["classify", "--device", device, "--dtype", "f16"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty());
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
        assert!(stderr(&output).contains("/nowhere"), "{}", stderr(&output));
    }
    // A provider that was named is never skipped silently.
    for device in [&["--device", "auto"][..], &[]] {
        let output = run(&[&["classify", "--top", "1"], device].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let note = stderr(&output);
        assert!(
            note.starts_with("note: running on the CPU: ") && note.contains("/nowhere"),
            "{note}"
        );
        assert_eq!(note.lines().count(), 1, "{note}");
    }
    let output = run(&["classify", "--device", "cpu"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
}

#[test]
fn the_cpu_computes_in_16_bits_and_devices_have_names() {
    for dtype in ["f16", "bf16"] {
        let output = hipvit(["eval", "--device", "cpu", "--dtype", dtype]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        // 357 of 360, as in f32.
        assert!(stdout(&output).contains("top-1 99.17 %"), "{}", stdout(&output));
    }
    let output = hipvit(["classify", "--device", "cpu", "--resize", "device"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("the CPU, which resizes on the host"),
        "{}",
        stderr(&output)
    );
    for (wrong, flag) in [
        ("gpu", "--resize"),
        ("hip:", "--device"),
        ("cuda", "--device"),
        ("u8", "--dtype"),
    ] {
        assert_eq!(hipvit(["embed", flag, wrong]).status.code(), Some(2), "{wrong}");
    }
    for name in ["auto", "cpu", "hip:0", "hip:12"] {
        assert_eq!(name.parse::<Device>().unwrap().to_string(), name);
    }
    assert_eq!("hip".parse::<Device>().unwrap(), Device::Hip(0));
}
