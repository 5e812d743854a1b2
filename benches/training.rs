//! Times training steps of a model directory, and prints a line of JSON for each round: `cargo bench -p hipvit-train --bench training -- DIR
//! [BATCH [STEPS [ROUNDS [DTYPE [DEVICE]]]]]`. The dtype `fp8` is that of [`Float8Options`] with activations in bf16, and `fp8-current` is
//! without delayed scales, and `fp8-all` has all layers in FP8.
//!
//! With `HIPVIT_BENCH_TUNE=1`, kernels are measured first, as by `hipvit train --tune`.
//!
//! With `HIPVIT_BENCH_CALLS=1`, the device's time of a step follows, and those of its kernels and library calls, summed by name.
//!
//! Processes of a launcher, such as torchrun, each train on their GPU with `BATCH` images per step, and exchange gradients. Rank 0 prints the
//! images per second of all. `HIPVIT_BENCH_RANKS` has keys of the recipe's `[ranks]`, such as `shard = "optimizer"`.
//!
//! `HIPVIT_BENCH_MEMORY`, such as `8G`, limits the planned memory, as `hipvit train --memory` does. The plan and the GPU's used memory follow.
//!
//! A step is what [`Trainer::submit`] does: pixels from the host, forward pass, loss, backward pass, clipping and AdamW. `benches/training.py`
//! runs it beside PyTorch.

use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hipvit::Device;
use hipvit::exec::{Collectives, TimedCall};
use hipvit::hip::{Mesh, Rendezvous, Runtime, World};
use hipvit::model::Checkpoint;
use hipvit::tensor::Input;
use hipvit_train::recipe::RankKeys;
use hipvit_train::{
    Float8Options, MemoryBudget, PrecisionOptions, Quantization, TensorInfo, TensorRule, TrainOptions,
    Trainer,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Time-out of messages between ranks.
const TIMEOUT: Duration = Duration::from_secs(300);

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
    let world = World::from_env()?.filter(|world| world.size() > 1);
    let (rank, ranks) = world
        .as_ref()
        .map_or((0, 1), |world| (world.rank(), world.size()));
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
    let memory = match env::var("HIPVIT_BENCH_MEMORY") {
        Ok(limit) => Some(MemoryBudget {
            limit: limit.parse()?,
            images: batch,
        }),
        Err(_) => None,
    };
    let options = TrainOptions {
        memory,
        dtype: dtype.parse()?,
        precision: PrecisionOptions {
            quantization: float8.map_or(Quantization::None, Quantization::Float8),
            ..PrecisionOptions::default()
        },
        device: device(world.as_ref(), argument(4))?,
        clip_norm: Some(1.0),
        ..TrainOptions::default()
    };
    let used = options.device;
    let begun = Instant::now();
    let checkpoint = Checkpoint::open(Some(Path::new(directory)))?;
    let rule: &dyn Fn(&TensorInfo<'_>) -> TensorRule = &|_| TensorRule::default();
    if env::var_os("HIPVIT_BENCH_TUNE").is_some() {
        let checkpoint = Checkpoint::open(Some(Path::new(directory)))?;
        let tuning = Trainer::new(checkpoint, options.clone(), rule)?.tune(batch)?;
        let seconds = begun.elapsed().as_secs_f64();
        eprintln!(
            "{} problems in {seconds:.1} s, a step saves {:?}",
            tuning.problems, tuning.gain
        );
    }
    let begun = Instant::now();
    let mut trainer = match world {
        Some(world) => {
            let mesh = Mesh::join(Rendezvous::new(world, TIMEOUT)?, TIMEOUT)?;
            let keys: RankKeys = toml::from_str(&env::var("HIPVIT_BENCH_RANKS").unwrap_or_default())?;
            Trainer::of_rank(
                checkpoint,
                options,
                rule,
                Arc::new(Collectives::new(mesh)?),
                &keys,
            )?
        }
        None => Trainer::new(checkpoint, options, rule)?,
    };
    let (images, targets) = batch_of(&trainer, batch, rank as u32 + 1);
    let mut losses = Vec::new();
    let mut run = |trainer: &mut Trainer, steps: u32| -> Result<f64> {
        let begun = Instant::now();
        for step in 0..steps {
            trainer.submit(Input::Pixels(&images), &targets, 1e-4)?;
            // As `hipvit train` does, one step ahead of the GPU.
            let ahead = usize::from(step + 1 < steps);
            while trainer.in_flight() > ahead
                && let Some(report) = trainer.finish()?
            {
                losses.push(report.loss);
            }
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
        if rank > 0 {
            continue;
        }
        let images_per_second = (ranks * batch) as f64 * 1e3 / ms;
        println!(
            r#"{{"engine": "hipvit", "model": "{directory}", "batch": {batch}, "ranks": {ranks}, "round": {round}, "ms": {ms:.3}, "images_per_second": {images_per_second:.1}, "first_step_s": {first_s:.2}}}"#
        );
    }
    // The batch is the same in each step, so that the loss must fall.
    if losses.last() >= losses.first() {
        return Err(format!("the loss has not fallen: {losses:?}").into());
    }
    if let Some(reason) = trainer.replays()?.and_then(|replays| replays.fallback) {
        eprintln!("rank {rank}: steps are not replayed: {reason}");
    }
    if let Some(report) = trainer.memory() {
        eprintln!("{}", report.summary());
    }
    if memory.is_some()
        && let Device::Hip(ordinal) = used
    {
        let (free, total) = Runtime::open()?.device(ordinal)?.memory()?;
        eprintln!("{:.2} GB of the GPU are in use", (total - free) as f64 / 1e9);
    }
    if env::var_os("HIPVIT_BENCH_CALLS").is_some() {
        let device = trainer.time_runs(batch, Duration::from_secs(1))?;
        let calls = trainer.time_calls(batch)?;
        if rank == 0 {
            eprintln!("{:9.3} ms  a replay", device.as_secs_f64() * 1e3);
            print_calls(calls);
        }
    }
    Ok(())
}

/// Returns the device: of `hip` and `auto`, the GPU with the number of this process on its host, if processes see several.
fn device(world: Option<&World>, asked: &str) -> Result<Device> {
    let asked: Device = asked.parse()?;
    match world {
        Some(world) if matches!(asked, Device::Auto | Device::Hip(0)) => {
            let gpus = Runtime::open()?.device_count()?;
            Ok(Device::Hip(if gpus > 1 { world.local_rank() } else { 0 }))
        }
        _ => Ok(asked),
    }
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

/// Returns pixels and targets that differ between images, and pixels that differ between seeds.
fn batch_of(trainer: &Trainer, batch: usize, seed: u32) -> (Vec<u8>, Vec<f32>) {
    let (width, height) = trainer.preprocess().output_size();
    let classes = trainer.classes();
    let mut state = seed;
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
