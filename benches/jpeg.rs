//! Measures JPEG files to logits for `benches/jpeg.py`, which takes turns between this program and Pillow.
//!
//! Reads a command per line from standard input and answers each with a line of figures:
//!
//! | command | answer |
//! | --- | --- |
//! | `files DIR` | number of files that the next commands use |
//! | `coefficients THREADS IMAGES` | images/s of entropy decoding alone |
//! | `pixels THREADS IMAGES` | images/s of decoding to pixels |
//! | `pipeline BATCH host\|device IMAGES` | images/s from files to logits; the pixels are computed by the host or by the GPU |
//! | `calls BATCH host\|device CALLS` | median and 99th percentile of the ms of a run of one batch |

use std::collections::HashMap;
use std::hint::black_box;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use hipvit::image::{DecodeBuffers, Limits, open_for_device, open_in};
use hipvit::pipeline::Pipeline;
use hipvit::{DType, Device, ResizeOn, Session};

#[derive(Parser)]
struct Options {
    /// Model directory [default: the embedded TinyViT32]
    #[arg(long)]
    model: Option<PathBuf>,
    #[arg(long, default_value = "hip")]
    device: Device,
    /// f32, f16 or bf16
    #[arg(long, default_value = "bf16")]
    dtype: DType,
    /// Passed by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result<()> {
    let mut bench = Bench {
        options: Options::parse(),
        files: Vec::new(),
        sessions: HashMap::new(),
    };
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let answer = bench.answer(&line).with_context(|| line.clone())?;
        println!("{answer}");
        std::io::stdout().flush()?;
    }
    Ok(())
}

struct Bench {
    options: Options,
    files: Vec<PathBuf>,
    /// By batch size.
    sessions: HashMap<usize, Session>,
}

impl Bench {
    fn answer(&mut self, line: &str) -> Result<String> {
        if let Some(folder) = line.strip_prefix("files ") {
            let entries = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
            self.files = entries.collect::<Result<_>>()?;
            self.files.sort();
            ensure!(!self.files.is_empty(), "no files");
            return Ok(self.files.len().to_string());
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let figure = match words[..] {
            ["coefficients", threads, images] => {
                decode(&self.images(images)?, threads.parse()?, coefficients)?
            }
            ["pixels", threads, images] => decode(&self.images(images)?, threads.parse()?, pixels)?,
            ["pipeline", batch, on, images] => {
                let images = self.images(images)?;
                let start = Instant::now();
                self.run(batch.parse()?, on, &images)?;
                images.len() as f64 / start.elapsed().as_secs_f64()
            }
            ["calls", batch, on, calls] => return self.calls(batch.parse()?, on, calls.parse()?),
            _ => bail!("no such command"),
        };
        Ok(figure.to_string())
    }

    /// Returns `count` files. They are taken again and again.
    fn images(&self, count: &str) -> Result<Vec<PathBuf>> {
        let count: usize = count.parse()?;
        Ok(self.files.iter().cycle().take(count).cloned().collect())
    }

    fn session(&mut self, batch: usize) -> Result<Session> {
        if let Some(session) = self.sessions.get(&batch) {
            return Ok(session.clone());
        }
        let builder = Session::builder()
            .device(self.options.device)
            .dtype(self.options.dtype)
            .batch(batch)
            .resize(ResizeOn::Device);
        let session = match &self.options.model {
            Some(model) => builder.load(model)?,
            None => builder.tinyvit32()?,
        };
        self.sessions.insert(batch, session.clone());
        Ok(session)
    }

    fn run(&mut self, batch: usize, on: &str, images: &[PathBuf]) -> Result<()> {
        let device_jpeg = match on {
            "host" => false,
            "device" => true,
            _ => bail!("not host or device"),
        };
        let session = self.session(batch)?;
        for item in Pipeline::new(&session)
            .device_jpeg(device_jpeg)
            .run(images.to_vec())?
        {
            black_box(item?.outputs());
        }
        Ok(())
    }

    fn calls(&mut self, batch: usize, on: &str, calls: usize) -> Result<String> {
        let images = self.images(&batch.to_string())?;
        let mut times = Vec::new();
        for _ in 0..calls.max(1) {
            let start = Instant::now();
            self.run(batch, on, &images)?;
            times.push(1e3 * start.elapsed().as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        let at = |part: f64| times[((times.len() - 1) as f64 * part).round() as usize];
        Ok(format!("{} {}", at(0.5), at(0.99)))
    }
}

fn coefficients(path: &Path, buffers: &mut DecodeBuffers) -> hipvit::Result<()> {
    black_box(open_for_device(path, Limits::default(), buffers)?).recycle(buffers);
    Ok(())
}

fn pixels(path: &Path, buffers: &mut DecodeBuffers) -> hipvit::Result<()> {
    buffers.pixels = black_box(open_in(path, Limits::default(), buffers)?).data;
    Ok(())
}

/// Returns the images/s of decoding on `threads` threads, in reused memory as in the pipeline.
fn decode(
    images: &[PathBuf],
    threads: usize,
    one: impl Fn(&Path, &mut DecodeBuffers) -> hipvit::Result<()> + Sync,
) -> Result<f64> {
    let next = AtomicUsize::new(0);
    let start = Instant::now();
    thread::scope(|scope| {
        let decode = || -> hipvit::Result<()> {
            let mut buffers = DecodeBuffers::default();
            while let Some(path) = images.get(next.fetch_add(1, Ordering::Relaxed)) {
                one(path, &mut buffers)?;
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
