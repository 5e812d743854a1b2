//! A row of results, as written by `hipvit bench --json` and read by `hipvit compare`.

use serde::Serialize;

use super::environment::{DeviceInfo, Environment};
use super::power::Power;
use super::spec::Spec;
use super::times::Times;
use hipvit::graph::{Optimizations, Role};
use hipvit::model::Info;
use hipvit::tensor::DType;

/// Version of [`Row`]'s JSON. The number after the slash changes if a field changes its meaning or is
/// removed.
pub const SCHEMA: &str = "hipvit.bench/1";

/// Result of one model at one batch size and dtype on one device. Values that were not or cannot be measured
/// are `None`.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Name of the engine: `hipvit`, or that of a peer.
    pub engine: &'static str,
    /// Version of the engine.
    pub engine_version: &'static str,
    /// Name of the model.
    pub model: String,
    /// Batch size.
    pub batch: usize,
    /// Compute precision.
    pub dtype: DType,
    /// Number of threads that compute, or that serve a GPU.
    pub threads: usize,
    /// Options of the runs.
    pub options: RowOptions,
    /// Device of the runs. For several GPUs, the first one, with the names of all.
    pub device: DeviceInfo,
    /// Each GPU, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceShare>,
    /// System of the runs.
    pub environment: Environment,
    /// Times from u8 pixels in host memory to f32 logits in host memory.
    pub end_to_end: Option<Times>,
    /// Rate of several GPUs compared with one of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaling: Option<Scaling>,
    /// Time of a GPU between the copies, by its events.
    pub device_only: Option<Times>,
    /// Floating-point operations per image.
    pub flops_per_image: Option<f64>,
    /// Peaks of the device in this dtype.
    pub peak: Peak,
    /// Share of the datasheet's peak that the model's operations reach (MFU). It uses the device time, or the
    /// end-to-end time if the device time is unknown.
    pub mfu_datasheet: Option<f64>,
    /// Share of the measured peak that the model's operations reach. It uses the same time as
    /// `mfu_datasheet`.
    pub mfu_measured: Option<f64>,
    /// Bytes that all steps have to move, per second, in GB/s. It uses the same time as `mfu_datasheet`.
    pub gbps: Option<f64>,
    /// Reason if one of the two shares exceeds 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mfu_note: Option<&'static str>,
    /// Memory of the row.
    pub memory: Memory,
    /// Energy and load over a sustained run.
    pub power: Power,
    /// Copy of the pixels to the device.
    pub copy_in: CopyIn,
    /// Times of each step alone, if requested.
    pub steps: Option<Vec<StepTime>>,
    /// Median of the end-to-end time in each of the interleaved repetitions, in milliseconds.
    pub repeats: Vec<f64>,
    /// Half the range of `repeats`, relative to their median.
    pub noise: Option<f64>,
    /// Error that prevented the measurement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Row {
    /// Returns the reason if the model exceeds a peak.
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

    /// Returns the seconds of one device per batch: between the copies if known, otherwise end to end.
    pub(super) fn seconds_of_device(&self, spec: &Spec) -> Option<f64> {
        let computed = self.device_only.as_ref().or(self.end_to_end.as_ref());
        let seconds = computed.map(|times| times.p50_ms / 1e3).filter(|&s| s > 0.0);
        seconds.map(|seconds| seconds * spec.device_count() as f64)
    }

    /// Computes the shares of the peaks that the model reaches, and the roofline times of its steps.
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

/// Options of a row's runs.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RowOptions {
    /// Requested replay of HIP graphs: `auto`, `on`, `off`.
    pub graphs: String,
    /// Reason if graphs were requested but not replayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graphs_fallback: Option<String>,
    /// Number of threads that call the session concurrently, so that copies and computation overlap. For
    /// several GPUs, per replica.
    pub in_flight: usize,
    /// Division of the work among several GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel: Option<String>,
    /// Image size, if it differs from the model's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_size: Option<[usize; 2]>,
    /// True if results must not depend on the batch size.
    pub reproducible: bool,
    /// Rung of the ladder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rung: Option<&'static str>,
    /// Optimisations, if they are not the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optimizations: Option<Optimizations>,
    /// Largest difference of an output from the first rung's, relative to its largest magnitude.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_difference: Option<f64>,
}

/// One of several GPUs.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceShare {
    /// Description of the GPU.
    #[serde(flatten)]
    pub device: DeviceInfo,
    /// NUMA node of the GPU, on a host with several nodes.
    pub numa_node: Option<u32>,
    /// Images per second of this GPU.
    pub images_per_s: Option<f64>,
}

/// Speed of several GPUs compared with one of them, measured in the same run with as many batches in flight
/// on each.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Scaling {
    /// Images per second of one GPU.
    pub one_images_per_s: f64,
    /// Factor by which several GPUs are faster than one.
    pub factor: f64,
    /// `factor` divided by the number of GPUs.
    pub efficiency: f64,
}

/// Peaks by datasheet and by measurement.
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
    /// Returns the roofline time of a step in seconds, by the measured peaks if available, otherwise by the
    /// datasheet.
    pub fn roofline(&self, flops: u64, bytes: u64) -> Option<f64> {
        let tflops = self.measured_tflops.or(self.datasheet_tflops)?;
        let gbps = self.measured_gbps.or(self.datasheet_gbps)?;
        Some((flops as f64 / (1e12 * tflops)).max(bytes as f64 / (1e9 * gbps)))
    }
}

/// Memory of a row in bytes. Fields are of a GPU unless they say otherwise; of several GPUs, the first.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Memory {
    /// Memory that the session took from the pool: weights, activations, temporaries, input and library
    /// workspaces.
    pub peak_bytes: Option<u64>,
    /// Weights.
    pub weights_bytes: Option<u64>,
    /// Arena of all activations, for each run in flight.
    pub activations_bytes: Option<u64>,
    /// Share of the pool's memory that is in use by all sessions.
    pub pool_efficiency: Option<f64>,
    /// Share of the pool's unused memory that is outside of its largest block.
    pub fragmentation: Option<f64>,
    /// Largest resident set of the process so far, on the host.
    pub host_peak_bytes: Option<u64>,
}

/// Copy of pixels to a GPU.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct CopyIn {
    /// GB/s at the median of its time.
    pub gbps: Option<f64>,
    /// Peak of the PCIe link in one direction.
    pub link_peak_gbps: Option<f64>,
}

/// Time of one step.
#[derive(Clone, Debug, Serialize)]
pub struct StepTime {
    /// Name of the node.
    pub name: String,
    /// Op and what is fused into it.
    pub op: String,
    /// Part of the model.
    pub role: Role,
    /// Shape of the result.
    pub shape: Vec<usize>,
    /// Median time; on a GPU measured by events around the step alone.
    pub ms: f64,
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes that have to be read and written.
    pub bytes: u64,
    /// Time by the roofline model.
    pub roofline_ms: Option<f64>,
}
