//! A device of the bench with its peaks and sensors.

use super::environment::{DeviceInfo, Environment};
use super::row::Peak;
use crate::peaks::{Datasheet, Peaks, datasheet, measure_cpu, measure_gpu};
use hipvit::error::Result;
use hipvit::hip::{self, Monitor};
use hipvit::session::{Device, Place};
use hipvit::tensor::DType;

#[derive(Debug)]
pub(super) struct BenchDevice {
    /// GPU; `None` is the CPU.
    pub(super) gpu: Option<hip::Device>,
    pub(super) info: DeviceInfo,
    pub(super) environment: Environment,
    /// Power monitor, if the GPU has one.
    pub(super) monitor: Option<Monitor>,
    /// Current peak of the PCIe link in bytes per second.
    pub(super) link: Option<f64>,
    datasheet: Option<Datasheet>,
    peaks: Peaks,
}

impl BenchDevice {
    /// Opens `device`, and measures its peaks in `dtypes` if `measure` is set.
    ///
    /// # Errors
    ///
    /// [`Error::Hip`](hipvit::Error::Hip) if there is no such GPU.
    pub(super) fn open(device: Device, dtypes: impl Iterator<Item = DType>, measure: bool) -> Result<Self> {
        let gpu = match device.open()? {
            Place::Gpu(gpu) => Some(gpu),
            Place::Cpu { .. } => None,
        };
        let info = gpu.as_ref().map_or_else(DeviceInfo::cpu, DeviceInfo::gpu);
        let mut wanted: Vec<DType> = Vec::new();
        for dtype in dtypes {
            if !wanted.contains(&dtype) {
                wanted.push(dtype);
            }
        }
        let peaks = match &gpu {
            _ if !measure => Peaks::default(),
            Some(gpu) => {
                let peaks = measure_gpu(gpu, &wanted);
                // Release the memory of this measurement, so that it does not count for the rows.
                gpu.trim()?;
                peaks
            }
            None => measure_cpu(None, &wanted),
        };
        let monitor = gpu.as_ref().and_then(|gpu| Monitor::new(gpu).ok());
        let link = monitor.as_ref().and_then(|monitor| monitor.pcie_link().ok());
        Ok(Self {
            environment: Environment::new(gpu.as_ref()),
            // The datasheet of an emulated product does not describe the emulator.
            datasheet: datasheet(&info.name).filter(|_| info.kind != "emulated"),
            link: link.map(|link| link.bytes_per_second()),
            monitor: monitor.filter(|monitor| monitor.power().is_ok()),
            gpu,
            info,
            peaks,
        })
    }

    /// Measures the peak in `dtype` again and keeps the higher rates, because other work may have slowed the
    /// first measurement.
    ///
    /// # Errors
    ///
    /// [`Error::Hip`](hipvit::Error::Hip) if the GPU's unused memory cannot be released.
    pub(super) fn measure_peak_again(&mut self, dtype: DType) -> Result<()> {
        let again = match &self.gpu {
            Some(gpu) => {
                let peaks = measure_gpu(gpu, &[dtype]);
                gpu.trim()?;
                peaks
            }
            None => measure_cpu(None, &[dtype]),
        };
        self.peaks.raise(again);
        Ok(())
    }

    pub(super) fn peak(&self, dtype: DType) -> Peak {
        Peak {
            datasheet_tflops: self.datasheet.and_then(|sheet| sheet.tflops(dtype)),
            measured_tflops: self.peaks.flops_per_second(dtype).map(|rate| rate / 1e12),
            datasheet_gbps: self.datasheet.map(|sheet| sheet.gbps),
            measured_gbps: self.peaks.copy_bytes_per_second.map(|rate| rate / 1e9),
        }
    }
}
