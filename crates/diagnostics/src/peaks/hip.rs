//! Measured peaks of a GPU.

use std::time::Duration;

use super::{GemmPeak, Peaks, best, fastest, grow, square};
use hipvit::dtype::to_hip;
use hipvit::error::{Error, Result};
use hipvit::exec::append;
use hipvit::hip::{Blas, Device, Gemm, Stream};
use hipvit::tensor::DType;

/// Measures a copy within the device's memory, and GEMMs in `dtypes`.
pub fn measure(device: &Device, dtypes: &[DType]) -> Peaks {
    let mut peaks = Peaks::default();
    match copy(device) {
        Ok((bytes, rate)) => {
            peaks.copy_bytes = bytes;
            peaks.copy_bytes_per_second = Some(rate);
        }
        Err(error) => peaks.missing.push(format!("copy: {error}")),
    }
    for &dtype in dtypes {
        match gemm(device, dtype) {
            Ok(gemm) => peaks.gemms.extend(gemm),
            Err(error) => peaks.missing.push(format!("GEMM in {dtype}: {error}")),
        }
    }
    peaks
}

/// Returns the bytes of a copy within the memory, and the bytes read and written per second.
fn copy(device: &Device) -> Result<(usize, f64)> {
    let stream = device.stream()?;
    let (free, _) = device.memory()?;
    let most = (free + device.pool_stats().unused()) / 8;
    let copies = grow(1 << 20, most.min(1 << 30), 1e-3, |bytes| {
        let from = stream.zeroed::<u8>(bytes)?;
        let mut to = stream.zeroed::<u8>(bytes)?;
        best(|| device_time(&stream, || Ok(to.copy_from(from.reading())?)))
    })?;
    // Use the largest copy: smaller ones may stay within the caches.
    let largest = copies
        .last()
        .map(|&(bytes, seconds)| (bytes, 2.0 * bytes as f64 / seconds));
    largest.ok_or_else(|| Error::internal("copy", "was not tried"))
}

/// Measures GEMMs by rocBLAS.
fn gemm(device: &Device, dtype: DType) -> Result<Option<GemmPeak>> {
    let stream = device.stream()?;
    let mut blas = Blas::new(&stream)?;
    let gemms = grow(64, 8192, 2e-3, |size| {
        let values = square(size);
        let mut bytes = Vec::with_capacity(size * size * dtype.size());
        append(&mut bytes, &values, dtype);
        let operand = stream.upload(&bytes)?;
        let mut result = stream.zeroed::<u8>(bytes.len())?;
        let gemm = Gemm::linear(size, size, size, to_hip(dtype));
        best(|| {
            device_time(&stream, || {
                Ok(blas.gemm(&gemm, operand.reading(), operand.reading(), result.writing())?)
            })
        })
    })?;
    Ok(fastest(gemms, dtype))
}

/// Returns the device time of the submitted work.
fn device_time(stream: &Stream, submit: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let before = stream.record()?;
    submit()?;
    Ok(stream.record()?.since(&before)?)
}
