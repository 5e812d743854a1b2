//! Times the GPU's kernels and GEMMs at a model's sizes with criterion: `cargo bench -p hipvit-diagnostics
//! --bench gpu`. Times are measured by events, of consecutive launches; throughput is in bytes. Without a GPU
//! nothing runs.
//!
//! `HIPVIT_BENCH_CONFIG` (default `8x12x197x64`, ViT-B/16 at batch 8) and `HIPVIT_BENCH_DTYPE` (default
//! `bf16`) select sizes and dtypes in the syntax of `hipvit validate --config … --dtype …`.

mod ops;

use std::env;
use std::error::Error;

use criterion::Criterion;
use hipvit::{DType, Session};
use hipvit_diagnostics::validate::Options;

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options {
        device: "hip".parse()?,
        dtypes: listed("HIPVIT_BENCH_DTYPE", "bf16", |name| match name {
            "f32" => Ok(DType::F32),
            "f16" => Ok(DType::F16),
            "bf16" => Ok(DType::BF16),
            other => Err(format!("`{other}` is not f32, f16 or bf16")),
        })?,
        configs: listed("HIPVIT_BENCH_CONFIG", "8x12x197x64", |text| {
            text.parse().map_err(|error: hipvit::Error| error.to_string())
        })?,
        ..Options::default()
    };
    if let Err(error) = Session::builder().device(options.device).open_device() {
        println!("skipped: {error}");
        return Ok(());
    }
    let mut criterion = Criterion::default().configure_from_args();
    ops::bench(&mut criterion, &options)?;
    criterion.final_summary();
    Ok(())
}

/// Returns the values of a variable, separated by commas.
fn listed<T>(name: &str, default: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    let text = env::var(name).unwrap_or_else(|_| default.into());
    let parts = text.split(',').map(|part| parse(part.trim()));
    parts
        .map(|part| part.map_err(|reason| format!("{name}: {reason}")))
        .collect()
}
