//! A row of results: what `hipvit bench --json` writes, and `hipvit compare` reads.

use serde::Serialize;

use super::environment::{DeviceInfo, Environment};
use super::power::Power;
use super::spec::Spec;
use super::times::Times;
use hipvit::graph::{Optimizations, Role};
use hipvit::model::Info;
use hipvit::tensor::DType;

/// The version of [`Row`]'s JSON: another number after the slash where a field changes its meaning or goes.
pub const SCHEMA: &str = "hipvit.bench/1";

/// The result of one model at one batch size and dtype on one device. What was not or cannot be measured is `None`.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// `hipvit`; peers have theirs.
    pub engine: &'static str,
    /// Its version.
    pub engine_version: &'static str,
    /// The model's name.
    pub model: String,
    /// Images per run.
    pub batch: usize,
    /// Compute precision.
    pub dtype: DType,
    /// The number of threads that compute, or serve a GPU.
    pub threads: usize,
    /// How it ran.
    pub options: RowOptions,
    /// Where it ran; of a set of GPUs the first one, with the names of all.
    pub device: DeviceInfo,
    /// Each GPU of a set.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceShare>,
    /// On which system.
    pub environment: Environment,
    /// From u8 pixels in host memory to f32 logits in host memory.
    pub end_to_end: Option<Times>,
    /// A set's rate beside that of one of its GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaling: Option<Scaling>,
    /// A GPU's time between the copies, by its events.
    pub device_only: Option<Times>,
    /// Floating-point operations per image.
    pub flops_per_image: Option<f64>,
    /// The device's peaks in this dtype.
    pub peak: Peak,
    /// The share of the datasheet's peak that the model's operations reach (MFU). This and the next two are of the device's time;
    /// of the end-to-end time where that is unknown.
    pub mfu_datasheet: Option<f64>,
    /// The same of the measured peak.
    pub mfu_measured: Option<f64>,
    /// The bytes that all steps have to move, per second, in GB/s.
    pub gbps: Option<f64>,
    /// Why one of the two shares is above 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mfu_note: Option<&'static str>,
    /// The memory.
    pub memory: Memory,
    /// Energy and load over a sustained run.
    pub power: Power,
    /// The copy of the pixels to the device.
    pub copy_in: CopyIn,
    /// Each step alone, if requested.
    pub steps: Option<Vec<StepTime>>,
    /// The median of the end-to-end time in each of the interleaved repetitions, in milliseconds.
    pub repeats: Vec<f64>,
    /// Half the range of the repeats over their median.
    pub noise: Option<f64>,
    /// Why there are no results.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Row {
    /// Says why the model reaches more than a peak, if it does.
    pub(super) fn mfu_note(&self, model: Option<&Info>) -> Option<&'static str> {
        let above = |share: Option<f64>| share.is_some_and(|share| share > 1.0);
        if !above(self.mfu_measured) && !above(self.mfu_datasheet) {
            return None;
        }
        let narrow = model.is_some_and(|info| info.quantization.is_some() || info.sparsity.is_some());
        Some(if narrow {
            "the peak is that of dense products in this dtype; the model also multiplies in 8 bits or skips zeros"
        } else if above(self.mfu_measured) {
            "other work slowed the device while its peak was measured, before the model and again after it"
        } else {
            "the device runs at a higher clock than its datasheet assumes"
        })
    }

    /// Seconds of one device for a batch: between the copies if that is known, else end to end.
    pub(super) fn seconds_of_device(&self, spec: &Spec) -> Option<f64> {
        let computed = self.device_only.as_ref().or(self.end_to_end.as_ref());
        let seconds = computed.map(|times| times.p50_ms / 1e3).filter(|&s| s > 0.0);
        seconds.map(|seconds| seconds * spec.device_count() as f64)
    }

    /// Computes the shares of the peaks that the model reaches, and the times of its steps by the roofline model.
    pub(super) fn compare_with_peak(&mut self, spec: &Spec) {
        let flops = self.flops_per_image.unwrap_or(0.0) * spec.batch as f64;
        let rate = self.seconds_of_device(spec).map(|seconds| flops / seconds / 1e12);
        let share = |tflops: Option<f64>| Some(rate? / tflops?);
        self.mfu_datasheet = share(self.peak.datasheet_tflops);
        self.mfu_measured = share(self.peak.measured_tflops);
        for step in self.steps.iter_mut().flatten() {
            step.roofline_ms = self.peak.roofline(step.flops, step.bytes).map(|s| 1e3 * s);
        }
    }
}

/// How a row's runs were done.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RowOptions {
    /// Whether HIP graphs were to be replayed: `auto`, `on`, `off`.
    pub graphs: String,
    /// Why none were, if they were to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graphs_fallback: Option<String>,
    /// Threads that call the session at once, so that copies and computation overlap; of a set as many for each replica.
    pub in_flight: usize,
    /// How a set of GPUs shared the work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel: Option<String>,
    /// The image size, if not the model's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_size: Option<[usize; 2]>,
    /// Whether results must not depend on the batch size.
    pub reproducible: bool,
    /// The rung of the ladder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rung: Option<&'static str>,
    /// What was left out, if it was not the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optimizations: Option<Optimizations>,
    /// The largest difference of an output from the first rung's, relative to its largest magnitude.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_difference: Option<f64>,
}

/// A GPU of a set.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceShare {
    /// Which one.
    #[serde(flatten)]
    pub device: DeviceInfo,
    /// Its NUMA node, on a host with several.
    pub numa_node: Option<u32>,
    /// Its share of the images per second.
    pub images_per_s: Option<f64>,
}

/// How much faster a set of GPUs is than one of them, measured in the same run with as many batches in flight on each.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Scaling {
    /// Images per second of the one GPU.
    pub one_images_per_s: f64,
    /// Times as many images per second.
    pub factor: f64,
    /// The factor over the number of GPUs.
    pub efficiency: f64,
}

/// Peaks, by datasheet and by measurement.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Peak {
    /// TFLOP/s by datasheet.
    pub datasheet_tflops: Option<f64>,
    /// TFLOP/s of a large GEMM.
    pub measured_tflops: Option<f64>,
    /// GB/s by datasheet.
    pub datasheet_gbps: Option<f64>,
    /// GB/s of a large copy, read and written.
    pub measured_gbps: Option<f64>,
}

impl Peak {
    /// The roofline's time of a step in seconds, by the measured peaks, else by the datasheet.
    pub fn roofline(&self, flops: u64, bytes: u64) -> Option<f64> {
        let tflops = self.measured_tflops.or(self.datasheet_tflops)?;
        let gbps = self.measured_gbps.or(self.datasheet_gbps)?;
        Some((flops as f64 / (1e12 * tflops)).max(bytes as f64 / (1e9 * gbps)))
    }
}

/// The memory of a row, in bytes: a GPU's where nothing else is said, of a set the first one's.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Memory {
    /// What the session took from the pool: weights, activations, temporaries, input, the libraries' workspaces.
    pub peak_bytes: Option<u64>,
    /// The weights.
    pub weights_bytes: Option<u64>,
    /// The arena of all activations, for each run in flight.
    pub activations_bytes: Option<u64>,
    /// The share of the pool's memory that is in use, of all sessions.
    pub pool_efficiency: Option<f64>,
    /// The share of the pool's unused memory that is not in its largest block.
    pub fragmentation: Option<f64>,
    /// The largest resident set of the process so far, on the host.
    pub host_peak_bytes: Option<u64>,
}

/// The copy of pixels to a GPU.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct CopyIn {
    /// GB/s at the median of its time.
    pub gbps: Option<f64>,
    /// The peak of the PCIe link in one direction.
    pub link_peak_gbps: Option<f64>,
}

/// The time of one step.
#[derive(Clone, Debug, Serialize)]
pub struct StepTime {
    /// The node's name.
    pub name: String,
    /// The op with what is fused into it.
    pub op: String,
    /// The part of the model.
    pub role: Role,
    /// The result's extents.
    pub shape: Vec<usize>,
    /// The median time, alone between events on a GPU.
    pub ms: f64,
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes that have to be read and written.
    pub bytes: u64,
    /// The time by the roofline model.
    pub roofline_ms: Option<f64>,
}
