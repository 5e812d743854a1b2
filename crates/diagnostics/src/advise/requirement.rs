//! What a wanted rate needs, and which devices have it.

use serde::Serialize;

use super::hardware::Hardware;
use super::predict::Configuration;
use super::refused;
use super::suggest::Subject;
use crate::peaks::{Kind, datasheets};
use hipvit::error::Result;
use hipvit::tensor::DType;

/// The part of the bound that is expected where nothing was measured: the steps of ViT-B/16 in bf16 at batch 256 took 24.2 ms on an H200,
/// whose bound by this model is 9.8 ms.
const EFFICIENCY: f64 = 0.4;

/// The part of the bound to expect.
pub(super) fn efficiency(given: Option<f64>) -> Result<f64> {
    match given {
        None => Ok(EFFICIENCY),
        Some(part) if part > 0.0 && part <= 1.0 => Ok(part),
        Some(part) => Err(refused(
            "efficiency",
            format!("{part} is not above 0 and at most 1"),
        )),
    }
}

/// What a rate of images needs.
#[derive(Clone, Debug, Serialize)]
pub struct Requirement {
    /// Images per second.
    pub images_per_second: f64,
    /// The part of the bound that devices are taken to reach.
    pub efficiency: f64,
    /// Floating-point operations per second that are done.
    pub flops_per_second: f64,
    /// Bytes per second that all steps read and write.
    pub bytes_per_second: f64,
    /// Bytes per second of pixels that are copied in.
    pub input_bytes_per_second: f64,
    /// Memory of each device, with two runs in flight.
    pub memory_bytes: u64,
    /// Each device that there is a datasheet of: the fewest first, of as many the slowest first.
    pub candidates: Vec<Candidate>,
}

/// A device for a wanted rate.
#[derive(Clone, Debug, Serialize)]
pub struct Candidate {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Compute precision: the wanted one, on a CPU f32.
    pub dtype: DType,
    /// Images per second that one is expected to reach: its bound times the efficiency.
    pub images_per_second: f64,
    /// How many are needed, each with a replica of the model; `None` if it does not fit the memory.
    pub count: Option<u64>,
    /// The datasheet.
    pub source: &'static str,
}

pub(super) fn requirement(subject: &Subject<'_>, rate: f64) -> Result<Requirement> {
    if !(rate > 0.0 && rate.is_finite()) {
        return Err(refused("rate", format!("{rate} is no number of images above 0")));
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

/// How many devices of this speed a rate takes.
pub(super) fn devices(rate: f64, images_per_second: f64) -> u64 {
    (rate / images_per_second).ceil().max(1.0) as u64
}
