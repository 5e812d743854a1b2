//! Rows of `hipvit bench --json` and benches/peers: JSON lines with the schema `hipvit.bench/1`.

use std::io;
use std::path::Path;

use anyhow::{Result, anyhow, bail};
use hipvit_files::regular_file;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// Schema of the rows.
pub(crate) const SCHEMA: &str = "hipvit.bench/1";

/// A row with the fields that are compared. Fields that may be unknown are `Option`s and can be missing. `all` keeps
/// every field.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Row {
    pub(crate) engine: String,
    #[serde(default)]
    pub(crate) engine_version: Option<String>,
    pub(crate) model: String,
    pub(crate) batch: u64,
    pub(crate) dtype: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) options: serde_json::Map<String, Value>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) device: Device,
    #[serde(default)]
    pub(crate) end_to_end: Option<Times>,
    #[serde(default)]
    pub(crate) device_only: Option<Times>,
    #[serde(default)]
    pub(crate) flops_per_image: Option<f64>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) peak: Peak,
    #[serde(default)]
    pub(crate) mfu_datasheet: Option<f64>,
    #[serde(default)]
    pub(crate) mfu_measured: Option<f64>,
    #[serde(default)]
    pub(crate) gbps: Option<f64>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) memory: Memory,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) power: Power,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) steps: Vec<Step>,
    #[serde(default)]
    pub(crate) noise: Option<f64>,
    #[serde(default)]
    pub(crate) error: Option<String>,
    #[serde(skip)]
    pub(crate) all: Value,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Device {
    pub(crate) kind: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) arch: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Times {
    pub(crate) p50_ms: f64,
    #[serde(default)]
    pub(crate) runs: Option<u64>,
    #[serde(default)]
    pub(crate) min_ms: Option<f64>,
    #[serde(default)]
    pub(crate) p90_ms: Option<f64>,
    #[serde(default)]
    pub(crate) p99_ms: Option<f64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Peak {
    pub(crate) datasheet_tflops: Option<f64>,
    pub(crate) measured_tflops: Option<f64>,
    pub(crate) datasheet_gbps: Option<f64>,
    pub(crate) measured_gbps: Option<f64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Memory {
    pub(crate) peak_bytes: Option<f64>,
    pub(crate) weights_bytes: Option<f64>,
    pub(crate) activations_bytes: Option<f64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Power {
    pub(crate) busy_percent: Option<f64>,
    pub(crate) watts: Option<f64>,
    pub(crate) joules_per_image: Option<f64>,
    pub(crate) gflops_per_watt: Option<f64>,
    pub(crate) clock_mhz: Option<f64>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Step {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) ms: Option<f64>,
    #[serde(default)]
    pub(crate) flops: Option<f64>,
    #[serde(default)]
    pub(crate) bytes: Option<f64>,
}

/// Treats null like a missing field.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(value: D) -> Result<T, D::Error> {
    Option::deserialize(value).map(Option::unwrap_or_default)
}

/// A kind of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Metric {
    EndToEnd,
    DeviceOnly,
}

impl Metric {
    pub(crate) const ALL: [Self; 2] = [Self::EndToEnd, Self::DeviceOnly];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::EndToEnd => "End to end: u8 pixels in host memory to logits in host memory",
            Self::DeviceOnly => "Device only: the computation, without copies",
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::EndToEnd => "end to end",
            Self::DeviceOnly => "device only",
        }
    }
}

impl Row {
    /// Returns the time of a row that did not fail.
    pub(crate) fn times(&self, metric: Metric) -> Option<&Times> {
        let times = match metric {
            Metric::EndToEnd => &self.end_to_end,
            Metric::DeviceOnly => &self.device_only,
        };
        times.as_ref().filter(|_| self.error.is_none())
    }

    /// Returns the device's time if it is known, and the end-to-end time otherwise. MFU is computed from this time.
    pub(crate) fn compute(&self) -> Option<&Times> {
        self.times(Metric::DeviceOnly)
            .or_else(|| self.times(Metric::EndToEnd))
    }

    pub(crate) fn images_per_s(&self, times: &Times) -> f64 {
        1e3 * self.batch as f64 / times.p50_ms
    }

    /// Returns TFLOP/s.
    pub(crate) fn tflops(&self) -> Option<f64> {
        Some(self.flops_per_image? * self.images_per_s(self.compute()?) / 1e12)
    }

    /// Returns the bytes that a run must move: the sum of its steps, or derived from the rate.
    pub(crate) fn bytes(&self) -> Option<f64> {
        let of_steps: Option<f64> = self.steps.iter().map(|step| step.bytes).sum();
        of_steps
            .filter(|&bytes| bytes > 0.0)
            .or_else(|| Some(1e6 * self.gbps? * self.compute()?.p50_ms))
    }

    /// Returns FLOP per byte.
    pub(crate) fn intensity(&self) -> Option<f64> {
        Some(self.flops_per_image? * self.batch as f64 / self.bytes()?).filter(|x| x.is_finite() && *x > 0.0)
    }

    pub(crate) fn kind(&self) -> &str {
        self.device.kind.as_deref().unwrap_or("unknown device")
    }
}

/// Maximum size in bytes of a file of rows.
const MAX_FILE: u64 = 256 << 20;

/// Returns the rows of a file in order.
pub(crate) fn read(path: &Path) -> Result<Vec<Row>> {
    let refused = super::super::outcome::refused(path);
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

fn parse(line: &str) -> Result<Row> {
    let all: Value = serde_json::from_str(line).map_err(|e| anyhow!("no JSON: {e}"))?;
    match all.get("schema").and_then(Value::as_str) {
        Some(SCHEMA) => (),
        Some(other) => bail!("the schema is `{other}`, not `{SCHEMA}`"),
        None => bail!("not a row of `{SCHEMA}`: it has no field `schema`"),
    }
    let mut row = Row::deserialize(&all)?;
    let times = [("end_to_end", &row.end_to_end), ("device_only", &row.device_only)];
    for (name, times) in times {
        if times.as_ref().is_some_and(|t| t.p50_ms <= 0.0) {
            bail!("{name}: p50_ms must be positive");
        }
    }
    if row.batch == 0 {
        bail!("batch must be at least 1");
    }
    if row.noise.is_some_and(|noise| noise < 0.0) {
        bail!("noise must not be negative");
    }
    row.all = all;
    Ok(row)
}
