//! The devices that validation runs on: either executor behind one trait.

use std::time::{Duration, Instant};

use super::cases::Case;
use super::check::{Clock, Run};
use super::operands::Operands;
use super::report::{GemmPeak, Peaks};
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

    /// The rates of a large copy and of a large GEMM.
    fn peaks(&self, dtypes: &[DType]) -> Peaks;

    /// Runs the case; then again and again, as the clock asks for.
    fn run(&self, case: &Case, operands: &Operands, dtype: DType, clock: Option<Clock<'_>>) -> Result<Run>;
}

/// Doubles `size` until a try takes `enough` seconds of the device's time, which can be measured, or half a second of the
/// host's, or `size` would exceed `most`: every size with the seconds of the device's time that `seconds` returned.
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

/// The shortest of some times, in seconds: the first warms up, and the load of other programs is no part of a peak.
pub(super) fn best(mut time: impl FnMut() -> Result<Duration>) -> Result<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        best = best.min(time()?.as_secs_f64());
    }
    Ok(best.max(1e-9))
}

/// A square matrix for a GEMM.
pub(super) fn square(size: usize) -> Vec<f32> {
    (0..size * size).map(|i| (i % 251) as f32 / 251.0 - 0.5).collect()
}

/// The fastest of GEMMs of square matrices, given by size and seconds.
pub(super) fn fastest(gemms: Vec<(usize, f64)>, dtype: DType) -> Option<GemmPeak> {
    let peak = |(size, seconds): (usize, f64)| GemmPeak {
        dtype,
        size,
        flops_per_second: 2.0 * (size as f64).powi(3) / seconds,
    };
    let rate = |a: &GemmPeak, b: &GemmPeak| a.flops_per_second.total_cmp(&b.flops_per_second);
    gemms.into_iter().map(peak).max_by(rate)
}
