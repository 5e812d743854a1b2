//! What validates run on: either executor, behind what is asked of both.

use std::time::{Duration, Instant};

use super::cases::Case;
use super::check::Run;
use super::operands::Operands;
use super::report::{Ceilings, ProductCeiling};
use crate::error::Result;
use crate::tensor::DType;

/// A device with its executor.
pub(super) trait Backend {
    /// As `--device` takes it.
    fn device(&self) -> String;

    /// The device's name.
    fn name(&self) -> String;

    /// The dtypes that it computes in.
    fn dtypes(&self) -> &'static [DType];

    /// Why this is never computed here, if it is not.
    fn lacks(&self, case: &Case) -> Option<&'static str>;

    /// The device's memory that is free, where it is not the host's.
    fn free_memory(&self) -> Result<Option<usize>>;

    /// What it reaches at most.
    fn ceilings(&self, dtypes: &[DType]) -> Ceilings;

    /// Runs the case until its time is known.
    fn run(&self, case: &Case, operands: &Operands, dtype: DType) -> Result<Run>;
}

/// Doubles `size` until a try takes `enough` seconds of the device's, which can be measured, or half a second of ours, or it
/// would be beyond `most`: every size, and the seconds of the device's that `seconds` says it took.
pub(super) fn grow(
    mut size: usize,
    most: usize,
    enough: f64,
    mut seconds: impl FnMut(usize) -> Result<f64>,
) -> Result<Vec<(usize, f64)>> {
    let mut tries = Vec::new();
    loop {
        let start = Instant::now();
        let time = seconds(size)?;
        tries.push((size, time));
        if time >= enough || start.elapsed() >= Duration::from_millis(500) || 2 * size > most {
            return Ok(tries);
        }
        size *= 2;
    }
}

/// The shortest of some times, in seconds: the first warms up, and what other programs take away is no part of a ceiling.
pub(super) fn best(mut time: impl FnMut() -> Result<Duration>) -> Result<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        best = best.min(time()?.as_secs_f64());
    }
    Ok(best.max(1e-9))
}

/// A square matrix to try a product with.
pub(super) fn square(size: usize) -> Vec<f32> {
    (0..size * size).map(|i| (i % 251) as f32 / 251.0 - 0.5).collect()
}

/// Of products of square matrices of these sizes, in so many seconds, the one that was the fastest.
pub(super) fn fastest(products: Vec<(usize, f64)>, dtype: DType) -> Option<ProductCeiling> {
    let ceiling = |(size, seconds): (usize, f64)| ProductCeiling {
        dtype,
        size,
        flops_per_second: 2.0 * (size as f64).powi(3) / seconds,
    };
    let rate = |a: &ProductCeiling, b: &ProductCeiling| a.flops_per_second.total_cmp(&b.flops_per_second);
    products.into_iter().map(ceiling).max_by(rate)
}
