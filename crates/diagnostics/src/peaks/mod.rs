//! Peaks of a device: measured rates of a large copy and large GEMMs, and the rates of the vendor's
//! datasheet. They are the roofs of the roofline model for [`validate`](crate::validate) and
//! [`bench`](crate::bench).

mod cpu;
mod datasheet;
mod hip;

pub use cpu::{cpu_name, measure as measure_cpu};
pub use datasheet::{Datasheet, Kind, datasheet, datasheets, named};
pub use hip::measure as measure_gpu;

use std::fmt;
use std::time::{Duration, Instant};

use serde::Serialize;

use hipvit::error::Result;
use hipvit::tensor::DType;

/// Measured rates of a device: the roofs of the roofline model.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Peaks {
    /// Bytes read and written per second by a large copy within the memory.
    pub copy_bytes_per_second: Option<f64>,
    /// Size of the copy in bytes.
    pub copy_bytes: usize,
    /// GEMM rates by dtype.
    pub gemms: Vec<GemmPeak>,
    /// Rates that could not be measured, and why.
    pub missing: Vec<String>,
}

/// Rate of a large GEMM.
#[derive(Clone, Debug, Serialize)]
pub struct GemmPeak {
    /// Dtype of the operands.
    pub dtype: DType,
    /// Number of rows and columns of its square matrices.
    pub size: usize,
    /// Floating-point operations per second.
    pub flops_per_second: f64,
}

impl Peaks {
    /// Returns the floating-point operations per second in `dtype`.
    pub fn flops_per_second(&self, dtype: DType) -> Option<f64> {
        let gemm = self.gemms.iter().find(|gemm| gemm.dtype == dtype)?;
        Some(gemm.flops_per_second)
    }

    /// Replaces each rate that is higher in `other`.
    pub(crate) fn raise(&mut self, other: Self) {
        if other.copy_bytes_per_second > self.copy_bytes_per_second {
            self.copy_bytes_per_second = other.copy_bytes_per_second;
            self.copy_bytes = other.copy_bytes;
        }
        for gemm in other.gemms {
            let known = self.gemms.iter_mut().find(|known| known.dtype == gemm.dtype);
            match known {
                Some(known) if known.flops_per_second >= gemm.flops_per_second => {}
                Some(known) => *known = gemm,
                None => self.gemms.push(gemm),
            }
        }
    }
}

impl fmt::Display for Peaks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(rate) = self.copy_bytes_per_second {
            let mib = self.copy_bytes as f64 / f64::from(1 << 20);
            writeln!(f, "peak: {} by a copy of {mib:.0} MiB", bandwidth(rate))?;
        }
        for gemm in &self.gemms {
            let rate = throughput(gemm.flops_per_second);
            let (dtype, size) = (gemm.dtype, gemm.size);
            writeln!(f, "peak: {rate} in {dtype} by a GEMM of {size}×{size} matrices")?;
        }
        for missing in &self.missing {
            writeln!(f, "no peak: {missing}")?;
        }
        Ok(())
    }
}

/// Formats a bandwidth.
pub fn bandwidth(bytes_per_second: f64) -> String {
    format!("{:.1} GB/s", bytes_per_second / 1e9)
}

/// Formats a rate of floating-point operations.
pub fn throughput(flops_per_second: f64) -> String {
    match flops_per_second {
        1e12.. => format!("{:.1} TFLOP/s", flops_per_second / 1e12),
        _ => format!("{:.1} GFLOP/s", flops_per_second / 1e9),
    }
}

/// Doubles `size` until a try takes `enough` seconds of device time or half a second of host time, or `size`
/// would exceed `most`. Returns every size with the device seconds that `seconds` returned.
fn grow(
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

/// Returns the shortest of several times in seconds. The first run warms up; other programs may slow single
/// runs.
fn best(mut time: impl FnMut() -> Result<Duration>) -> Result<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        best = best.min(time()?.as_secs_f64());
    }
    Ok(best.max(1e-9))
}

/// Creates a square matrix for a GEMM.
fn square(size: usize) -> Vec<f32> {
    (0..size * size).map(|i| (i % 251) as f32 / 251.0 - 0.5).collect()
}

/// Returns the fastest of GEMMs of square matrices, given by size and seconds.
fn fastest(gemms: Vec<(usize, f64)>, dtype: DType) -> Option<GemmPeak> {
    let peak = |(size, seconds): (usize, f64)| GemmPeak {
        dtype,
        size,
        flops_per_second: 2.0 * (size as f64).powi(3) / seconds,
    };
    let rate = |a: &GemmPeak, b: &GemmPeak| a.flops_per_second.total_cmp(&b.flops_per_second);
    gemms.into_iter().map(peak).max_by(rate)
}
