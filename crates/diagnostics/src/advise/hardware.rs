//! Target device of a prediction: its peaks, its memory, and the cost of a launch.

use serde::Serialize;

use crate::bench::DeviceInfo;
use crate::peaks::{Datasheet, Kind, Peaks, cpu_name, datasheet, measure_cpu, measure_gpu, named};
use hipvit::error::{Error, Result};
use hipvit::hip;
use hipvit::tensor::DType;

/// A device and its roofs.
#[derive(Clone, Debug, Serialize)]
pub struct Hardware {
    /// Name of the device.
    pub name: String,
    /// Kind of device.
    pub kind: Kind,
    /// Source of the peaks: the vendor's document, or a measurement.
    pub source: String,
    /// Peak floating-point operations per second by dtype.
    pub peaks: Vec<(DType, f64)>,
    /// Memory bandwidth in bytes per second.
    pub bytes_per_second: f64,
    /// Bytes of memory. `None` for a device that uses host memory.
    pub memory_bytes: Option<u64>,
    /// Seconds per launch: eagerly, and in a replayed graph.
    pub launch_seconds: [f64; 2],
}

/// Seconds per kernel in addition to its work: launched individually, and as a node of a replayed graph.
/// These are assumptions: eager launches are commonly measured at 4 to 6 µs, consecutive kernels in a graph
/// at 1 to 2 µs. On a CPU, the cost of waking its threads.
const GPU_LAUNCH: [f64; 2] = [5e-6, 1.5e-6];
const CPU_LAUNCH: [f64; 2] = [3e-6, 3e-6];

const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

impl Hardware {
    /// Returns the hardware that a datasheet describes.
    pub fn of(sheet: &Datasheet) -> Self {
        let peak = |dtype| Some((dtype, 1e12 * sheet.tflops(dtype)?));
        Self {
            name: sheet.name.to_owned(),
            kind: sheet.kind,
            source: sheet.source.to_owned(),
            peaks: FLOATS.into_iter().filter_map(peak).collect(),
            bytes_per_second: 1e9 * sheet.gbps,
            memory_bytes: sheet.memory_gb.map(|gb| (1e9 * gb) as u64),
            launch_seconds: launch(sheet.kind),
        }
    }

    /// Returns the GPU or CPU of this name, by its datasheet.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`](hipvit::Error::Argument) if there is no datasheet. The message suggests similar names.
    pub fn named(name: &str) -> Result<Self> {
        Ok(Self::of(&named(name)?))
    }

    /// Returns an installed GPU, by its datasheet if there is one, otherwise by measured peaks.
    pub(super) fn gpu(gpu: &hip::Device) -> Result<Self> {
        let info = DeviceInfo::gpu(gpu);
        let (_, total) = gpu.memory()?;
        // The datasheet of an emulated product does not describe the emulator.
        let sheet = datasheet(&info.name).filter(|_| info.kind != "emulated");
        let hardware = match sheet {
            Some(sheet) => Self::of(&sheet),
            None => Self::measured(Kind::Gpu, &measure_gpu(gpu, &FLOATS))?,
        };
        gpu.trim()?;
        Ok(Self {
            name: info.name,
            memory_bytes: Some(total as u64),
            ..hardware
        })
    }

    /// Returns the host by measured peaks, because the machine may have only some of the processor's cores.
    pub(super) fn this_cpu(threads: Option<usize>) -> Result<Self> {
        let hardware = Self::measured(Kind::Cpu, &measure_cpu(threads, &[DType::F32]))?;
        Ok(Self {
            name: cpu_name(),
            ..hardware
        })
    }

    fn measured(kind: Kind, peaks: &Peaks) -> Result<Self> {
        let Some(bytes_per_second) = peaks.copy_bytes_per_second else {
            let reason = peaks.missing.join("; ");
            return Err(Error::argument(
                "device",
                format!("its bandwidth was not measured: {reason}"),
            ));
        };
        Ok(Self {
            name: String::new(),
            kind,
            source: "measured here: a large copy, large GEMMs".into(),
            peaks: peaks
                .gemms
                .iter()
                .map(|gemm| (gemm.dtype, gemm.flops_per_second))
                .collect(),
            bytes_per_second,
            memory_bytes: None,
            launch_seconds: launch(kind),
        })
    }

    pub(super) fn launches(self, seconds: Option<f64>) -> Self {
        let launch_seconds = seconds.map_or(self.launch_seconds, |seconds| [seconds; 2]);
        Self {
            launch_seconds,
            ..self
        }
    }

    /// Returns the peak floating-point operations per second in `dtype`.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`](hipvit::Error::Argument) if the device does not compute in `dtype` or its peak was not measured.
    pub fn flops_per_second(&self, dtype: DType) -> Result<f64> {
        let peak = self.peaks.iter().find(|(known, _)| *known == dtype);
        peak.map(|&(_, rate)| rate).ok_or_else(|| {
            let known: Vec<String> = self.peaks.iter().map(|(dtype, _)| dtype.to_string()).collect();
            Error::argument(
                "dtype",
                format!(
                    "no peak of {} in {dtype} is known. Known dtypes: {}",
                    self.name,
                    known.join(", ")
                ),
            )
        })
    }
}

fn launch(kind: Kind) -> [f64; 2] {
    match kind {
        Kind::Gpu => GPU_LAUNCH,
        Kind::Cpu => CPU_LAUNCH,
    }
}
