//! Environment of a measurement: device, system and versions.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use sysinfo::System;

use crate::peaks::cpu_name;
use hipvit::hip::{self, Monitor};
use hipvit::session::Place;
use hipvit::{Device, Result};

/// Device of a row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct DeviceInfo {
    /// `rocm`, `cuda`, `emulated` or `cpu`.
    pub kind: &'static str,
    /// Name of the product.
    pub name: String,
    /// Architecture of a GPU, e.g. `gfx942` or `sm_90`; instruction set of a CPU.
    pub arch: String,
    /// Ordinal of a GPU.
    pub index: usize,
}

impl DeviceInfo {
    /// Opens a device, and describes it.
    ///
    /// # Errors
    ///
    /// The error of opening a GPU.
    pub fn open(device: Device) -> Result<Self> {
        Ok(match device.open()? {
            Place::Gpu(gpu) => Self::gpu(&gpu),
            Place::Cpu { .. } => Self::cpu(),
        })
    }

    /// Returns the name of the device for reports.
    pub fn title(&self) -> String {
        match self.kind {
            "cpu" => self.name.clone(),
            kind => format!("{} ({}, {kind})", self.name, self.arch),
        }
    }

    /// Describes the host.
    pub fn cpu() -> Self {
        Self {
            kind: "cpu",
            name: cpu_name(),
            arch: std::env::consts::ARCH.into(),
            index: 0,
        }
    }

    /// Describes a GPU.
    pub fn gpu(device: &hip::Device) -> Self {
        let properties = device.properties();
        // The emulated GPU is a provider that differs from ROCm only in its file name.
        let path = device.runtime().path().ok();
        let file = path.and_then(|path| path.file_name()?.to_str());
        let kind = match &properties.target {
            _ if file.is_some_and(|file| file.contains("hip_emu")) => "emulated",
            target if target.starts_with("sm_") => "cuda",
            _ => "rocm",
        };
        Self {
            kind,
            name: properties.name.clone(),
            arch: properties.arch().into(),
            index: device.ordinal(),
        }
    }
}

/// System and versions of a measurement.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Environment {
    /// Date in UTC, e.g. `2026-11-22`.
    pub date: String,
    /// Operating system and its kernel.
    pub os: String,
    /// Name of the CPU.
    pub cpu: String,
    /// Version of the GPU's driver.
    pub driver: Option<String>,
    /// Versions of the GPU's libraries by name in lower case.
    pub libraries: BTreeMap<String, String>,
}

impl Environment {
    /// Describes the host, and a GPU if one is used.
    pub fn new(gpu: Option<&hip::Device>) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let os = System::long_os_version().unwrap_or_else(|| std::env::consts::OS.into());
        let kernel = System::kernel_version().map(|version| format!(", kernel {version}"));
        let versions = gpu.map(hip::Device::library_versions).unwrap_or_default();
        let lower = |(name, version): (&str, String)| (name.to_lowercase(), version);
        Self {
            date: date(now.unwrap_or_default()),
            os: os + &kernel.unwrap_or_default(),
            cpu: cpu_name(),
            driver: gpu.and_then(|gpu| Monitor::new(gpu).ok()?.driver_version().ok()),
            libraries: versions.into_iter().map(lower).collect(),
        }
    }
}

/// Returns the Gregorian date of a time since 1970 in UTC.
fn date(since_1970: Duration) -> String {
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut day = since_1970.as_secs() / 86_400;
    let mut year = 1970;
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    format!("{year:04}-{month:02}-{:02}", day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected dates are from `date --utc --date=@SECONDS`.
    #[test]
    fn dates_are_gregorian() {
        for (seconds, expected) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (1_798_761_599, "2026-12-31"),
            (1_798_761_600, "2027-01-01"),
            (4_107_542_400, "2100-03-01"),
        ] {
            assert_eq!(date(Duration::from_secs(seconds)), expected);
        }
    }
}
