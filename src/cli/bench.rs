//! `hipvit bench`: times a model alone, without files, for `benches/peers.py` and for the curious.

use std::io::Write;
use std::time::Instant;

use anyhow::{Result, anyhow};
use hipvit::timing::Timing;
use serde_json::json;

use super::{ModelArgs, Outcome, output, report_fallback};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// How many timed runs, after two that warm up
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = super::positive)]
    runs: usize,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn run(&self) -> Result<Outcome> {
        let session = self.model.load()?;
        // Refuses a batch that no memory holds, before memory is asked for its pixels.
        let flops = session.plan(session.batch())?.flops();
        let (height, width) = session.preprocess().output_size();
        // Any bytes will do as long as they are not all alike: a multiplicative sequence modulo a prime.
        let mut pixels: Vec<u8> = Vec::new();
        let len = session.batch() * height * width * 3;
        pixels
            .try_reserve_exact(len)
            .map_err(|_| anyhow!("batch: no memory for the pixels of {} images", session.batch()))?;
        let random = std::iter::successors(Some(1u32), |x| Some(x * 48_271 % 65_521));
        pixels.extend(random.take(len).map(|x| x as u8));
        // On a GPU the first run is as any other, the second captures a graph of the plan.
        for _ in 0..2 {
            session.run_pixels(&pixels, None)?;
        }
        let mut milliseconds: Vec<f64> = Vec::with_capacity(self.runs);
        for _ in 0..self.runs {
            let start = Instant::now();
            session.run_pixels(&pixels, None)?;
            milliseconds.push(1e3 * start.elapsed().as_secs_f64());
        }
        // Apart, as timing the steps costs time.
        let mut timing = Timing::default();
        for _ in 0..self.runs {
            session.run_pixels(&pixels, Some(&mut timing))?;
        }
        report_fallback(&session);
        milliseconds.sort_by(f64::total_cmp);
        let (min, median) = (milliseconds[0], milliseconds[self.runs / 2]);
        let gflops = flops as f64 / median / 1e6;
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
                "graph": session.replays(),
            });
            writeln!(out, "{line}")?;
        } else {
            writeln!(
                out,
                "{}: batch {}, {} runs: median {median:.3} ms, min {min:.3} ms, {:.1} images/s, {gflops:.1} GFLOP/s\nas many runs with each step timed:",
                session.name(),
                session.batch(),
                self.runs,
                1e3 * session.batch() as f64 / median,
            )?;
            writeln!(out, "{timing}")?;
            if let Some(replays) = session.replays() {
                writeln!(out, "{replays}")?;
            }
        }
        Ok(Outcome::Complete)
    }
}
