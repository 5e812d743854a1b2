//! 8-bit models on a GPU: models by other programs compared with the CPU, and accuracy on the held-out
//! digits.

use std::sync::Arc;

use hipvit::evaluate::evaluate;
use hipvit::exec::select::SelectOptions;
use hipvit::exec::{ExecutorOptions, HipExecutor, Placement};
use hipvit::graph::plan::Plan;
use hipvit::graph::{Passes, optimize};
use hipvit::image::{Limits, RgbImage};
use hipvit::model::{self, InputKind, LoadOptions};
use hipvit::tensor::Input;
use hipvit::{DType, Device, RunInput, RunOptions, Session, digits};
use hipvit_quantize::{GpuTarget, Options, Precision, quantize};
use safetensors::SafeTensors;

use crate::support::at;
use crate::support::gpu::{device, dtypes, gpu};

/// Returns the root mean square difference, relative to the root mean square.
fn difference(expected: &[f32], got: &[f32]) -> f64 {
    let square = |values: &mut dyn Iterator<Item = f32>| values.map(|v| f64::from(v).powi(2)).sum::<f64>();
    let error = square(&mut got.iter().zip(expected).map(|(a, b)| a - b));
    (error / square(&mut expected.iter().copied())).sqrt()
}

#[test]
fn logits_are_those_of_the_cpu() {
    let Some((device, _shared)) = device() else { return };
    let golden = std::fs::read(at("tests/golden/quantized/golden.safetensors")).unwrap();
    let golden = SafeTensors::deserialize(&golden).unwrap();
    let pixels = golden.tensor("pixel_values").unwrap();
    let pixels = pixels.data().as_chunks().0.iter();
    let pixels: Vec<f32> = pixels.map(|&bytes| f32::from_le_bytes(bytes)).collect();
    let logits = |name: &str, device: Device, dtype: DType, scale: f32| -> Vec<f32> {
        let pixels: Vec<f32> = pixels.iter().map(|pixel| scale * pixel).collect();
        let session = Session::builder().device(device).dtype(dtype);
        let session = session.input(InputKind::PixelValues);
        let session = session.load(at("tests/golden/quantized").join(name)).unwrap();
        let outputs = session.run_with(RunInput::Values(&pixels), RunOptions::new());
        outputs.unwrap().logits().unwrap().iter().copied().collect()
    };
    for name in [
        "int8_token",
        "int8_token_range",
        "int8_static",
        "int8_static_range",
        "int8_weights",
        "fp8_dynamic",
        "fp8_static",
        "fp8_weights",
        "mixed",
    ] {
        for dtype in dtypes() {
            let difference = |scale| {
                let expected = logits(name, Device::Cpu, DType::F32, scale);
                difference(&expected, &logits(name, device, dtype, scale))
            };
            // int8 is exact in f32, unless an activation is as near to two of 255 levels as the order of a sum changes it. Which images have
            // such an activation depends on the CPU's instructions; some of these have none. In 16 bits, a value that another rounding has
            // changed may go to the adjacent level. A GPU without FP8, or not for so few channels, does not round activations, which
            // differs by 6 % from the CPU here.
            let limit = match (name, dtype) {
                ("fp8_dynamic" | "fp8_static", _) => 0.1,
                (_, DType::F32) => 1e-5,
                _ => 0.05,
            };
            let images = if dtype == DType::F32 { 8 } else { 1 };
            let errors = (0..images).map(|image| difference(1.0 - image as f32 / 16.0));
            let mut tried = Vec::new();
            let agrees = errors
                .inspect(|&error| tried.push(error))
                .any(|error| error < limit);
            println!("{dtype:<4} {name:<18} errors {tried:?}");
            assert!(agrees, "{dtype} {name}: {tried:?}");
        }
    }
}

/// A GPU computes bf16 layers in its dtype. The results equal those of the same weights in ordinary layers.
#[test]
fn layers_in_bf16_are_computed_in_the_dtype() {
    let Some((device, _shared)) = device() else { return };
    let directory = tempfile::tempdir().unwrap();
    let [marked, plain] = ["marked", "plain"].map(|name| directory.path().join(name));
    let options = Options {
        precision: Precision::Bf16,
        ..Options::default()
    };
    let report = quantize(Some(&at("tests/golden/hf_vit")), &marked, options, []).unwrap();
    std::fs::create_dir(&plain).unwrap();
    for entry in std::fs::read_dir(&marked).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), plain.join(entry.file_name())).unwrap();
    }
    let config = plain.join("config.json");
    let mut fields: serde_json::Value = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
    let layers = fields.as_object_mut().unwrap().remove("bf16_layers").unwrap();
    assert_eq!(layers.as_array().unwrap().len(), report.quantized);
    std::fs::write(&config, fields.to_string()).unwrap();
    for dtype in dtypes() {
        let [marked, plain] = [&marked, &plain].map(|model| {
            let session = Session::builder()
                .device(device)
                .dtype(dtype)
                .load(model)
                .unwrap();
            let shape = session.info().image_size;
            let pixels: Vec<u8> = (0..shape[0] * shape[1] * 3)
                .map(|i| (i * 7919 % 251) as u8)
                .collect();
            let outputs = session
                .run_with(RunInput::Pixels(&pixels), RunOptions::new())
                .unwrap();
            let outputs = outputs.logits().unwrap_or(outputs.embeddings());
            outputs.iter().map(|value| value.to_bits()).collect::<Vec<u32>>()
        });
        assert!(!marked.is_empty() && marked == plain, "{dtype}");
    }
}

#[test]
fn held_out_digits_are_recognised_in_8_bits() {
    let Some((device, _shared)) = device() else { return };
    let dir = tempfile::tempdir().unwrap();
    for (name, precision, calibrated) in [
        ("int8", Precision::Int8, true),
        ("fp8", Precision::Fp8, true),
        ("fp8-dynamic", Precision::Fp8Dynamic, false),
    ] {
        let out = dir.path().join(name);
        let options = Options {
            precision,
            ..Options::default()
        };
        let images = if calibrated { 64 } else { 0 };
        let sources = digits::held_out().unwrap().into_iter().take(images);
        let images = sources.map(|(source, _)| source.decode(Limits::default()));
        let images: Vec<RgbImage> = images.collect::<Result<_, _>>().unwrap();
        quantize(None, &out, options, images.into_iter().map(Ok)).unwrap();
        for dtype in dtypes() {
            let session = Session::builder().device(device).dtype(dtype).batch(64);
            let session = session.load(&out).unwrap();
            let result = evaluate(&session, digits::held_out().unwrap(), Limits::default(), |item| {
                assert!(item.is_ok());
            })
            .unwrap();
            println!("{dtype:<4} {name}: {} of {}", result.correct, result.images);
            // 357 in full precision; at most 0.3 points fewer.
            assert!(
                result.images == 360 && result.correct >= 356,
                "{dtype}: {}",
                result.correct
            );
        }
    }
}

/// A norm that writes 8-bit rows gives the same bits as a norm whose result a kernel rounds, and takes no
/// more memory.
#[test]
fn norms_in_8_bits_give_the_bits_of_norms_that_are_rounded() {
    let Some((device, _shared)) = device() else { return };
    let gpu = gpu(device);
    let directory = tempfile::tempdir().unwrap();
    let made =
        [("int8", Precision::Int8), ("fp8-dynamic", Precision::Fp8Dynamic)].map(|(name, precision)| {
            let out = directory.path().join(name);
            let options = Options {
                precision,
                ..Options::default()
            };
            quantize(None, &out, options, []).unwrap();
            out
        });
    let goldens = ["int8_token", "int8_token_range", "int8_static"];
    let goldens = goldens.map(|name| at("tests/golden/quantized").join(name));
    for path in made.into_iter().chain(goldens) {
        for dtype in dtypes() {
            let float8 = HipExecutor::float8(&gpu, dtype);
            let run = |rounded_rows: bool| {
                let passes = Passes {
                    float8,
                    rounded_rows,
                    ..Session::builder().device(device).dtype(dtype).passes()
                };
                let model = model::load(&path, &LoadOptions::default()).unwrap();
                let (graph, reports) = optimize(model.graph, &passes).unwrap();
                let marked = reports.iter().find(|report| report.name == "round_rows");
                let marked = marked.map_or(0, |report| report.changes);
                let layers = graph.nodes().len();
                // The same choice among libraries for both.
                let select = SelectOptions {
                    measured: false,
                    ..SelectOptions::default()
                };
                let options = ExecutorOptions {
                    threads: Some(1),
                    select,
                    ..ExecutorOptions::new(dtype)
                };
                let executor = Placement::gpu(&gpu).executor(&graph, &options).unwrap();
                let shape = &graph.value(graph.input()).shape;
                let pixels: Vec<u8> = (0..3 * shape.iter().product::<usize>())
                    .map(|i| (i * 7919 % 251) as u8)
                    .collect();
                let plan = Arc::new(Plan::new(Arc::new(graph), 3, dtype).unwrap());
                let outputs = executor.run(&plan, Input::Pixels(&pixels), None).unwrap();
                let logits = &outputs.iter().next().unwrap().values;
                let logits: Vec<u32> = logits.iter().map(|logit| logit.to_bits()).collect();
                (marked, layers, plan.arena_bytes(), logits)
            };
            let ((marked, nodes, arena, logits), (none, nodes_before, arena_before, expected)) =
                (run(true), run(false));
            let what = format!("{dtype} {}", path.display());
            println!("{what}: {marked} norms, arena of {arena} instead of {arena_before} bytes");
            assert_eq!((none, nodes), (0, nodes_before));
            let in_float8 = path.ends_with("fp8-dynamic");
            // Where FP8 is of weights alone, nothing is rounded.
            let rounds = !in_float8 || float8 == hipvit::graph::Float8::Stored;
            assert_eq!(marked > 0, rounds, "{what}");
            assert!(arena <= arena_before, "{what}");
            assert!(f32::from_bits(logits[0]).is_finite(), "{what}");
            assert_eq!(logits, expected, "{what}");
        }
    }
}

/// Each layer gets bf16, int8 or FP8 by its errors on images and its times on the GPU.
#[test]
fn precisions_are_chosen_for_the_gpu() {
    // Of 16 images.
    const HELD_OUT: [usize; 3] = [0, 5, 13];
    let Some((device, _shared)) = device() else { return };
    let directory = tempfile::tempdir().unwrap();
    let sources = digits::held_out().unwrap().into_iter().take(16);
    let images: Vec<RgbImage> = sources
        .map(|(source, _)| source.decode(Limits::default()).unwrap())
        .collect();
    let target = GpuTarget {
        device: gpu(device),
        dtype: DType::BF16,
        batch: 2,
    };
    let chosen = |name: &str, budget: f64| {
        let out = directory.path().join(name);
        let options = Options {
            budget: Some(budget),
            target: Some(target.clone()),
            ..Options::default()
        };
        let report = quantize(None, &out, options, images.iter().cloned().map(Ok)).unwrap();
        let decision = report.decision.unwrap();
        let held_out = decision.held_out.as_ref().unwrap();
        assert_eq!((decision.calibration.images, held_out.images), (13, 3));
        assert!(
            decision.calibration.within(budget) && held_out.within(budget),
            "{decision:?}"
        );
        assert!(decision.measured_on.contains(target.device.name()));
        for choice in &decision.choices {
            let measured: Vec<Precision> = choice.candidates.iter().map(|of| of.precision).collect();
            assert_eq!(measured, [Precision::Int8, Precision::Fp8]);
            let times = choice.candidates.iter().map(|of| of.us).chain([choice.full_us]);
            assert!(times.into_iter().all(|us| us > 0.0), "{choice:?}");
            // No layer is in a precision that is slower than its own.
            let taken = choice
                .candidates
                .iter()
                .find(|of| of.precision == choice.precision);
            assert!(taken.is_none_or(|of| of.us < choice.full_us), "{choice:?}");
        }
        (out, decision)
    };
    let (_, none) = chosen("none", 0.0);
    assert_eq!(none.layers(Precision::Full).count(), 16);
    assert_eq!(none.on_gpu.unwrap().quantized.error, 0.0);
    let (out, all) = chosen("all", 1.0);
    // What the files give there is what was measured, on the images that were held out.
    let held_out = HELD_OUT.map(|index| images[index].clone());
    let session = |device: Device, dtype: DType| Session::builder().device(device).dtype(dtype).batch(2);
    let logits = |session: Session| -> Vec<f32> {
        let outputs = session.run(&held_out).unwrap();
        outputs.logits().unwrap().iter().copied().collect()
    };
    let full = logits(session(device, DType::BF16).tinyvit32().unwrap());
    let on_cpu = logits(session(Device::Cpu, DType::F32).tinyvit32().unwrap());
    let there = logits(session(device, DType::BF16).load(&out).unwrap());
    let measured = all.on_gpu.as_ref().unwrap();
    for (expected, got, measured) in [
        (&full, &there, &measured.quantized),
        (&on_cpu, &full, &measured.full),
    ] {
        let error = difference(expected, got);
        assert!(
            (error - measured.error).abs() <= 1e-6 * error,
            "{error:e}, {measured:?}"
        );
        assert_eq!(measured.images, held_out.len());
    }
    let count = |precision| all.layers(precision).count();
    let counts = [Precision::Full, Precision::Int8, Precision::Fp8].map(count);
    println!("{counts:?} layers as they are, in int8, in fp8: {measured:?}");
    assert!(
        measured.quantized.within(0.1) && measured.quantized.agreeing.is_some(),
        "{measured:?}"
    );
    // bf16 rounds to 8 bits some hundred times.
    assert!(
        measured.full.error > 0.0 && measured.full.within(0.04),
        "{measured:?}"
    );
}
