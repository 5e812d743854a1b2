//! Times the way from JPEG files to logits, and decoding alone:
//!
//!     cargo bench --bench decode -- --files DIR --device hip --dtype bf16 --batch 256 --resize device --model DIR
//!
//! Prints images/s of decoding alone, on one thread and on all cores; of the pipeline, which decodes on as
//! many threads; their ratio; and the time of decoding by pixel. Repetitions are interleaved, the figures are
//! medians. The files of DIR are taken again and again until there are `--images`.

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use hipvit::image::{DecodeBuffers, Limits, open_in};
use hipvit::pipeline::Pipeline;
use hipvit::{DType, Device, ResizeOn, Session};

#[derive(Parser)]
struct Options {
    /// Directory of JPEG files
    #[arg(long)]
    files: PathBuf,
    /// Model directory [default: the embedded TinyViT32]
    #[arg(long)]
    model: Option<PathBuf>,
    #[arg(long, default_value = "auto")]
    device: Device,
    /// f32; on a GPU also f16 or bf16
    #[arg(long, default_value = "f32")]
    dtype: DType,
    #[arg(long, default_value_t = 256)]
    batch: usize,
    /// Where images are resized: host or device
    #[arg(long, default_value = "host")]
    resize: ResizeOn,
    /// Images of each repetition
    #[arg(long, default_value_t = 8192)]
    images: usize,
    #[arg(long, default_value_t = 3)]
    repeats: usize,
    /// Threads that decode [default: number of logical cores]
    #[arg(long)]
    threads: Option<usize>,
    /// Passed by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(&options.files).with_context(|| options.files.display().to_string())? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|e| e == "jpg" || e == "jpeg" || e == "JPEG")
        {
            files.push(path);
        }
    }
    files.sort();
    ensure!(!files.is_empty(), "{}: no JPEG files", options.files.display());
    let images: Vec<PathBuf> = files.iter().cycle().take(options.images).cloned().collect();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = options.threads.unwrap_or(cores);

    let mut builder = Session::builder()
        .device(options.device)
        .dtype(options.dtype)
        .batch(options.batch)
        .resize(options.resize);
    if let Some(threads) = options.threads {
        builder = builder.threads(threads);
    }
    let session = match &options.model {
        Some(model) => builder.load(model)?,
        None => builder.tinyvit32()?,
    };

    let few = &images[..images.len().min(512)];
    let (mut one, mut all, mut piped) = (Vec::new(), Vec::new(), Vec::new());
    // The first time reads the files and compiles the kernels.
    decode(few, threads)?;
    pipeline(&session, few)?;
    for _ in 0..options.repeats.max(1) {
        one.push(decode(few, 1)?);
        all.push(decode(&images, threads)?);
        piped.push(pipeline(&session, &images)?);
    }
    let [one, all, piped] = [one, all, piped].map(median);
    println!(
        "decoding alone     {one:>9.0} images/s on 1 thread\n                   {all:>9.0} images/s on {threads} threads, {:.2} of {threads} times one",
        all / one / threads as f64
    );
    println!(
        "pipeline           {piped:>9.0} images/s: {} on {}, {}, batch {}, resize on the {:?}\nratio              {:>9.3} of decoding alone",
        session.name(),
        session.device(),
        session.dtype(),
        session.batch(),
        session.resize(),
        piped / all
    );
    stages(few)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns the images/s of decoding alone, in reused memory as in the pipeline.
fn decode(images: &[PathBuf], threads: usize) -> Result<f64> {
    let next = AtomicUsize::new(0);
    let start = Instant::now();
    thread::scope(|scope| {
        let decode = || -> hipvit::Result<()> {
            let mut buffers = DecodeBuffers::default();
            while let Some(path) = images.get(next.fetch_add(1, Ordering::Relaxed)) {
                let image = black_box(open_in(path, Limits::default(), &mut buffers)?);
                buffers.pixels = image.data;
            }
            Ok(())
        };
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(decode)).collect();
        let results = running.into_iter().map(thread::ScopedJoinHandle::join);
        results
            .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect::<hipvit::Result<Vec<()>>>()
    })?;
    Ok(images.len() as f64 / start.elapsed().as_secs_f64())
}

/// Returns the images/s from the first file to the last result.
fn pipeline(session: &Session, images: &[PathBuf]) -> Result<f64> {
    let start = Instant::now();
    for item in Pipeline::new(session).run(images.to_vec())? {
        black_box(item?.outputs());
    }
    Ok(images.len() as f64 / start.elapsed().as_secs_f64())
}

/// Prints the ns per pixel of decoding on one thread.
fn stages(images: &[PathBuf]) -> Result<()> {
    let (mut read, mut decoded) = (0.0, 0.0);
    let (mut pixels, mut bytes, mut buffers) = (0, 0, DecodeBuffers::default());
    for path in images {
        let start = Instant::now();
        let file = std::fs::read(path)?;
        let opened = Instant::now();
        read += (opened - start).as_secs_f64();
        bytes += file.len();
        let image = open_in(path, Limits::default(), &mut buffers)?;
        decoded += opened.elapsed().as_secs_f64();
        pixels += image.width * image.height;
        buffers.pixels = image.data;
    }
    let ns = |seconds: f64| 1e9 * seconds / pixels as f64;
    println!(
        "one thread's time  {:>9.2} ns/pixel, at {:.2} bits/pixel, of which reading files {:.2}",
        ns(decoded),
        8.0 * bytes as f64 / pixels as f64,
        ns(read),
    );
    Ok(())
}
