//! Devices that reach a required rate.

use serde::Serialize;

use super::hardware::Hardware;
use super::predict::Configuration;
use super::subject::Subject;
use crate::peaks::{Kind, datasheets};
use hipvit::error::{Error, Result};
use hipvit::tensor::DType;

/// Expected fraction of the bound if nothing was measured. The steps of ViT-B/16 in bf16 at batch 256 took
/// 24.2 ms on an H200; their bound is 9.8 ms.
const EFFICIENCY: f64 = 0.4;

/// Returns the expected fraction of the bound.
pub(super) fn efficiency(given: Option<f64>) -> Result<f64> {
    match given {
        None => Ok(EFFICIENCY),
        Some(part) if part > 0.0 && part <= 1.0 => Ok(part),
        Some(part) => Err(Error::argument(
            "efficiency",
            format!("{part} is not above 0 and at most 1"),
        )),
    }
}

/// Needs of a required rate of images.
#[derive(Clone, Debug, Serialize)]
pub struct Requirement {
    /// Images per second.
    pub images_per_second: f64,
    /// Fraction of the bound that devices are expected to reach.
    pub efficiency: f64,
    /// Required floating-point operations per second.
    pub flops_per_second: f64,
    /// Bytes per second that all steps read and write.
    pub bytes_per_second: f64,
    /// Bytes per second of pixels copied to the devices.
    pub input_bytes_per_second: f64,
    /// Memory of each device with two runs in flight.
    pub memory_bytes: u64,
    /// Devices with a datasheet, sorted by count; for equal counts the slowest is first.
    pub candidates: Vec<Candidate>,
}

/// A device that could reach a required rate.
#[derive(Clone, Debug, Serialize)]
pub struct Candidate {
    /// Name of the device.
    pub name: &'static str,
    /// Kind of device.
    pub kind: Kind,
    /// Compute precision: the requested one, or f32 on a CPU.
    pub dtype: DType,
    /// Expected images per second of one device: its bound times the efficiency.
    pub images_per_second: f64,
    /// Number of devices needed, each with a replica of the model. `None` if the model does not fit the
    /// memory.
    pub count: Option<u64>,
    /// Source of the datasheet.
    pub source: &'static str,
}

pub(super) fn requirement(subject: &Subject<'_>, rate: f64) -> Result<Requirement> {
    if !(rate > 0.0 && rate.is_finite()) {
        return Err(Error::argument(
            "rate",
            format!("{rate} is not a number of images above 0"),
        ));
    }
    let (prediction, batch) = (subject.prediction, subject.batch);
    let per_image = |of_run: u64| of_run as f64 / batch as f64;
    let mut candidates = Vec::new();
    for sheet in datasheets() {
        let hardware = Hardware::of(sheet).launches(None);
        let dtype = match sheet.kind {
            Kind::Cpu => DType::F32,
            Kind::Gpu => subject.configuration.dtype,
        };
        let configuration = Configuration {
            dtype,
            ..subject.configuration
        };
        let prediction = subject.planner.predict(&hardware, configuration, batch)?;
        let images_per_second = subject.efficiency * prediction.images_per_second;
        let fits = hardware
            .memory_bytes
            .is_none_or(|bytes| prediction.memory.two_in_flight_bytes <= bytes);
        candidates.push(Candidate {
            name: sheet.name,
            kind: sheet.kind,
            dtype,
            images_per_second,
            count: fits.then(|| devices(rate, images_per_second)),
            source: sheet.source,
        });
    }
    candidates.sort_by(|a, b| {
        let count = |candidate: &Candidate| candidate.count.unwrap_or(u64::MAX);
        let speed = a.images_per_second.total_cmp(&b.images_per_second);
        count(a).cmp(&count(b)).then(speed)
    });
    Ok(Requirement {
        images_per_second: rate,
        efficiency: subject.efficiency,
        flops_per_second: rate * per_image(prediction.flops),
        bytes_per_second: rate * per_image(prediction.bytes),
        input_bytes_per_second: rate * per_image(prediction.memory.input_bytes),
        memory_bytes: prediction.memory.two_in_flight_bytes,
        candidates,
    })
}

/// Returns the number of devices of this speed that a rate needs.
pub(super) fn devices(rate: f64, images_per_second: f64) -> u64 {
    (rate / images_per_second).ceil().max(1.0) as u64
}
