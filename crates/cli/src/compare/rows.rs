//! Rows of `hipvit bench --json` and benches/peers: JSON lines with the schema `hipvit.bench/1`.

use std::io;
use std::path::Path;

use anyhow::{Result, bail};
use hipvit_files::regular_file;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// Schema of the rows.
pub const SCHEMA: &str = "hipvit.bench/1";

/// A row with the fields that are compared. Fields that may be unknown are `Option`s and can be missing. `all` keeps
/// every field.
#[derive(Clone, Debug, Deserialize)]
pub struct Row {
    pub engine: String,
    #[serde(default)]
    pub engine_version: Option<String>,
    pub model: String,
    pub batch: u64,
    pub dtype: String,
    #[serde(default, deserialize_with = "or_default")]
    pub options: serde_json::Map<String, Value>,
    #[serde(default, deserialize_with = "or_default")]
    pub device: Device,
    #[serde(default)]
    pub end_to_end: Option<Times>,
    #[serde(default)]
    pub device_only: Option<Times>,
    #[serde(default)]
    pub flops_per_image: Option<f64>,
    #[serde(default, deserialize_with = "or_default")]
    pub peak: Peak,
    #[serde(default)]
    pub mfu_datasheet: Option<f64>,
    #[serde(default)]
    pub mfu_measured: Option<f64>,
    #[serde(default)]
    pub gbps: Option<f64>,
    #[serde(default, deserialize_with = "or_default")]
    pub memory: Memory,
    #[serde(default, deserialize_with = "or_default")]
    pub power: Power,
    #[serde(default, deserialize_with = "or_default")]
    pub steps: Vec<Step>,
    #[serde(default)]
    pub noise: Option<f64>,
    #[serde(default)]
    pub error: Option<String>,
    #[serde(skip)]
    pub all: Value,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Device {
    pub kind: Option<String>,
    pub name: Option<String>,
    pub arch: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Times {
    pub p50_ms: f64,
    #[serde(default)]
    pub runs: Option<u64>,
    #[serde(default)]
    pub min_ms: Option<f64>,
    #[serde(default)]
    pub p90_ms: Option<f64>,
    #[serde(default)]
    pub p99_ms: Option<f64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Peak {
    pub datasheet_tflops: Option<f64>,
    pub measured_tflops: Option<f64>,
    pub datasheet_gbps: Option<f64>,
    pub measured_gbps: Option<f64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Memory {
    pub peak_bytes: Option<f64>,
    pub weights_bytes: Option<f64>,
    pub activations_bytes: Option<f64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Power {
    pub busy_percent: Option<f64>,
    pub watts: Option<f64>,
    pub joules_per_image: Option<f64>,
    pub gflops_per_watt: Option<f64>,
    pub clock_mhz: Option<f64>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Step {
    pub name: String,
    #[serde(default)]
    pub ms: Option<f64>,
    #[serde(default)]
    pub flops: Option<f64>,
    #[serde(default)]
    pub bytes: Option<f64>,
}

/// Treats null like a missing field.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(value: D) -> Result<T, D::Error> {
    Option::deserialize(value).map(Option::unwrap_or_default)
}

/// A kind of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    EndToEnd,
    DeviceOnly,
}

impl Metric {
    pub const ALL: [Self; 2] = [Self::EndToEnd, Self::DeviceOnly];

    pub fn title(self) -> &'static str {
        match self {
            Self::EndToEnd => "End to end: u8 pixels in host memory to logits in host memory",
            Self::DeviceOnly => "Device only: the computation, without copies",
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::EndToEnd => "end to end",
            Self::DeviceOnly => "device only",
        }
    }
}

impl Row {
    /// Returns the time of a row that did not fail.
    pub fn times(&self, metric: Metric) -> Option<&Times> {
        let times = match metric {
            Metric::EndToEnd => &self.end_to_end,
            Metric::DeviceOnly => &self.device_only,
        };
        times.as_ref().filter(|_| self.error.is_none())
    }

    /// Returns the device's time if it is known, and the end-to-end time otherwise. MFU is computed from this time.
    pub fn compute(&self) -> Option<&Times> {
        self.times(Metric::DeviceOnly)
            .or_else(|| self.times(Metric::EndToEnd))
    }

    pub fn images_per_s(&self, times: &Times) -> f64 {
        1e3 * self.batch as f64 / times.p50_ms
    }

    /// Returns TFLOP/s.
    pub fn tflops(&self) -> Option<f64> {
        Some(self.flops_per_image? * self.images_per_s(self.compute()?) / 1e12)
    }

    /// Returns the bytes that a run must move: the sum of its steps, or derived from the rate.
    pub fn bytes(&self) -> Option<f64> {
        let of_steps: Option<f64> = self.steps.iter().map(|step| step.bytes).sum();
        of_steps
            .filter(|&bytes| bytes > 0.0)
            .or_else(|| Some(1e6 * self.gbps? * self.compute()?.p50_ms))
    }

    /// Returns FLOP per byte.
    pub fn intensity(&self) -> Option<f64> {
        Some(self.flops_per_image? * self.batch as f64 / self.bytes()?).filter(|x| x.is_finite() && *x > 0.0)
    }

    pub fn kind(&self) -> &str {
        self.device.kind.as_deref().unwrap_or("unknown device")
    }
}

/// Maximum size in bytes of a file of rows.
const MAX_FILE: u64 = 256 << 20;

/// Returns the rows of a file in order.
pub fn read(path: &Path) -> Result<Vec<Row>> {
    let refused = super::super::refused(path);
    let text = regular_file::read_within(path, MAX_FILE)
        .and_then(|bytes| String::from_utf8(bytes).map_err(|_| io::Error::other("is not UTF-8 text")))
        .map_err(refused)?;
    let mut rows = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        match parse(line) {
            Ok(row) => rows.push(row),
            Err(reason) => bail!("{}:{}: {reason}", path.display(), index + 1),
        }
    }
    if rows.is_empty() {
        bail!("{}: no rows", path.display());
    }
    Ok(rows)
}

fn parse(line: &str) -> Result<Row, String> {
    let all: Value = serde_json::from_str(line).map_err(|e| format!("no JSON: {e}"))?;
    match all.get("schema").and_then(Value::as_str) {
        Some(SCHEMA) => (),
        Some(other) => return Err(format!("the schema is `{other}`, not `{SCHEMA}`")),
        None => return Err(format!("not a row of `{SCHEMA}`: it has no field `schema`")),
    }
    let mut row = Row::deserialize(&all).map_err(|e| e.to_string())?;
    let times = [("end_to_end", &row.end_to_end), ("device_only", &row.device_only)];
    for (name, times) in times {
        if times.as_ref().is_some_and(|t| t.p50_ms <= 0.0) {
            return Err(format!("{name}: p50_ms must be positive"));
        }
    }
    if row.batch == 0 {
        return Err("batch must be at least 1".into());
    }
    if row.noise.is_some_and(|noise| noise < 0.0) {
        return Err("noise must not be negative".into());
    }
    row.all = all;
    Ok(row)
}
