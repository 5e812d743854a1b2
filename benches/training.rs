//! Times training steps of a model directory, and prints a line of JSON for each round: `cargo bench -p hipvit-train --bench training -- DIR
//! [BATCH [STEPS [ROUNDS [DTYPE [DEVICE]]]]]`. The dtype `fp8` is that of [`Float8Options`] with activations in bf16, and `fp8-current` is
//! without delayed scales, and `fp8-all` has all layers in FP8.
//!
//! With `HIPVIT_BENCH_CALLS=1`, the device's time of a step follows, and those of its kernels and library calls, summed by name.
//!
//! A step is what [`Trainer::step`] does: pixels from the host, forward pass, loss, backward pass, clipping and AdamW. `benches/training.py`
//! runs it beside PyTorch.

use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use hipvit::exec::TimedCall;
use hipvit::model::Checkpoint;
use hipvit::tensor::Input;
use hipvit_train::{Float8Options, PrecisionOptions, Quantization, TensorRule, TrainOptions, Trainer};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const DEFAULTS: [&str; 5] = ["8", "5", "3", "f32", "auto"];

fn main() -> Result<()> {
    // Cargo passes --bench.
    let arguments: Vec<String> = env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    let Some(directory) = arguments.first() else {
        println!("skipped: no model directory was given");
        return Ok(());
    };
    let argument = |index: usize| arguments.get(index + 1).map_or(DEFAULTS[index], String::as_str);
    let (batch, steps, rounds): (usize, u32, u32) =
        (argument(0).parse()?, argument(1).parse()?, argument(2).parse()?);
    let float8 = Float8Options::default();
    let float8 = match argument(3) {
        "fp8" => Some(float8),
        "fp8-current" => Some(Float8Options {
            delayed: false,
            ..float8
        }),
        "fp8-all" => Some(Float8Options {
            all_layers: true,
            ..float8
        }),
        _ => None,
    };
    let dtype = if float8.is_some() { "bf16" } else { argument(3) };
    let options = TrainOptions {
        dtype: dtype.parse()?,
        precision: PrecisionOptions {
            quantization: float8.map_or(Quantization::None, Quantization::Float8),
            ..PrecisionOptions::default()
        },
        device: argument(4).parse()?,
        clip_norm: Some(1.0),
        ..TrainOptions::default()
    };
    let begun = Instant::now();
    let checkpoint = Checkpoint::open(Some(Path::new(directory)))?;
    let mut trainer = Trainer::new(checkpoint, options, &|_| TensorRule::default())?;
    let (images, targets) = batch_of(&trainer, batch);
    let mut losses = Vec::new();
    let mut run = |trainer: &mut Trainer, steps: u32| -> Result<f64> {
        let begun = Instant::now();
        for _ in 0..steps {
            losses.push(trainer.step(Input::Pixels(&images), &targets, 1e-4)?.loss);
        }
        Ok(begun.elapsed().as_secs_f64() * 1e3 / f64::from(steps))
    };
    // The first steps compile kernels, plan memory, capture the graph and check its first replay.
    run(&mut trainer, 1)?;
    let first_s = begun.elapsed().as_secs_f64();
    // Beyond the sixteenth replay, which is checked. The next check is of replay 64.
    run(&mut trainer, if argument(4) == "cpu" { 1 } else { 18 })?;
    for round in 0..rounds {
        let ms = run(&mut trainer, steps)?;
        let images_per_second = batch as f64 * 1e3 / ms;
        println!(
            r#"{{"engine": "hipvit", "model": "{directory}", "batch": {batch}, "round": {round}, "ms": {ms:.3}, "images_per_second": {images_per_second:.1}, "first_step_s": {first_s:.2}}}"#
        );
    }
    // The batch is the same in each step, so that the loss must fall.
    if losses.last() >= losses.first() {
        return Err(format!("the loss has not fallen: {losses:?}").into());
    }
    if env::var_os("HIPVIT_BENCH_CALLS").is_some() {
        let device = trainer.time_runs(batch, Duration::from_secs(1))?;
        eprintln!("{:9.3} ms  a replay", device.as_secs_f64() * 1e3);
        print_calls(trainer.time_calls(batch)?);
    }
    Ok(())
}

/// Prints the time and number of the calls of each name and shape, the longest first.
fn print_calls(calls: Vec<TimedCall>) {
    let mut by_name: HashMap<String, (f64, usize)> = HashMap::new();
    for TimedCall {
        name, shape, time, ..
    } in calls
    {
        let entry = by_name.entry(format!("{name} {}", shape.unwrap_or_default()));
        let (ms, count) = entry.or_default();
        *ms += time.as_secs_f64() * 1e3;
        *count += 1;
    }
    let mut rows: Vec<_> = by_name.into_iter().collect();
    rows.sort_by(|a, b| b.1.0.total_cmp(&a.1.0));
    for (name, (ms, count)) in rows {
        eprintln!("{ms:9.3} ms  {count:4} x {name}");
    }
}

/// Returns pixels and targets that differ between images.
fn batch_of(trainer: &Trainer, batch: usize) -> (Vec<u8>, Vec<f32>) {
    let (width, height) = trainer.preprocess().output_size();
    let classes = trainer.classes();
    let mut state = 1_u32;
    let images = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
    let images = images.take(batch * height * width * 3).collect();
    // Label smoothing of 0.1.
    let mut targets = vec![0.1 / classes as f32; batch * classes];
    for (image, row) in targets.chunks_exact_mut(classes).enumerate() {
        row[(image * 7) % classes] += 0.9;
    }
    (images, targets)
}
