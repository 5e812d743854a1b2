//! `hipvit bench`: times a model alone, without files; `benches/peers.py` runs it too.

use std::io::Write;
use std::time::Instant;

use anyhow::{Result, anyhow};
use hipvit::timing::Timing;
use hipvit::{RunInput, RunOptions};
use serde_json::json;

use super::{ModelArgs, Outcome, output, report_fallback};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// Number of timed runs, after two warm-up runs
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = super::positive)]
    runs: usize,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn run(&self) -> Result<Outcome> {
        let session = self.model.load()?;
        // Rejects a batch that is too large for any memory before its pixels are allocated.
        let flops = session.plan(session.batch())?.flops();
        let (height, width) = session.preprocess().output_size();
        // Pseudo-random bytes: a multiplicative sequence modulo a prime.
        let mut pixels: Vec<u8> = Vec::new();
        let len = session.batch() * height * width * 3;
        pixels
            .try_reserve_exact(len)
            .map_err(|_| anyhow!("batch: no memory for the pixels of {} images", session.batch()))?;
        let random = std::iter::successors(Some(1u32), |x| Some(x * 48_271 % 65_521));
        pixels.extend(random.take(len).map(|x| x as u8));
        // On a GPU the second run captures a graph of the plan.
        for _ in 0..2 {
            session.run_with(RunInput::Pixels(&pixels), RunOptions::new())?;
        }
        let mut milliseconds: Vec<f64> = Vec::with_capacity(self.runs);
        for _ in 0..self.runs {
            let start = Instant::now();
            session.run_with(RunInput::Pixels(&pixels), RunOptions::new())?;
            milliseconds.push(1e3 * start.elapsed().as_secs_f64());
        }
        // In separate runs, because timing the steps takes time.
        let mut timing = Timing::default();
        for _ in 0..self.runs {
            session.run_with(RunInput::Pixels(&pixels), RunOptions::new().timing(&mut timing))?;
        }
        report_fallback(&session);
        milliseconds.sort_by(f64::total_cmp);
        let (min, median) = (milliseconds[0], milliseconds[self.runs / 2]);
        let gflops = flops as f64 / median / 1e6;
        let peak_rss = hipvit::hip::peak_rss();
        let mut out = output::stdout();
        if self.json {
            let line = json!({
                "model": session.name(),
                "device": session.device().to_string(),
                "dtype": session.dtype().to_string(),
                "batch": session.batch(),
                "runs": self.runs,
                "min_ms": min,
                "median_ms": median,
                "images_per_second": 1e3 * session.batch() as f64 / median,
                "gflop_per_second": gflops,
                "timing": timing,
                "hip_graphs": session.hip_graphs(),
                "peak_rss_bytes": peak_rss,
            });
            writeln!(out, "{line}")?;
        } else {
            writeln!(
                out,
                "{}: batch {}, {} runs: median {median:.3} ms, min {min:.3} ms, {:.1} images/s, {gflops:.1} GFLOP/s\n{} additional runs with each step timed:",
                session.name(),
                session.batch(),
                self.runs,
                1e3 * session.batch() as f64 / median,
                self.runs,
            )?;
            writeln!(out, "{timing}")?;
            if let Some(hip_graphs) = session.hip_graphs() {
                writeln!(out, "{hip_graphs}")?;
            }
            if let Some(bytes) = peak_rss {
                writeln!(
                    out,
                    "{:<15} {:>10.1} MiB of host memory",
                    "peak RSS",
                    bytes as f64 / f64::from(1 << 20)
                )?;
            }
        }
        Ok(Outcome::Complete)
    }
}
