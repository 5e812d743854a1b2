//! Report of a validation, as JSON and as a table.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::config::Config;
use super::digest::CodeDigest;
use crate::peaks::{Peaks, bandwidth, throughput};
use crate::table::{Column, Table, paragraph};
use hipvit::tensor::DType;

/// Version of [`Report`]'s JSON. The number after the slash changes if a field changes its meaning or is
/// removed.
pub const SCHEMA: &str = "hipvit.validate/2";

/// Results of a validation.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Version of hipvit.
    pub version: &'static str,
    /// Validated device: `cpu` or `hip:N`.
    pub device: String,
    /// Name of the device.
    pub device_name: String,
    /// Reason if `auto` selected the CPU.
    pub no_gpu: Option<String>,
    /// Measured peaks of the device.
    pub peaks: Peaks,
    /// Number of rows that passed.
    pub passed: usize,
    /// Number of rows that failed: a wrong result, overwritten memory, or no result.
    pub failed: usize,
    /// Number of rows that did not run, for a reason that the row gives.
    pub skipped: usize,
    /// Summary of each size.
    pub configs: Vec<ConfigSummary>,
    /// Rows for each op, form, size and dtype.
    pub rows: Vec<Row>,
    /// hipvit's kernels that ran on a GPU.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub code: Vec<CodeDigest>,
}

/// Rows of one size, compared with the expectation of the validation matrix.
#[derive(Clone, Debug, Serialize)]
pub struct ConfigSummary {
    /// Set of sizes.
    pub config: Config,
    /// Batch × heads × tokens × channels per head. `None` if the set has several sizes.
    pub sizes: Option<String>,
    /// Bytes of queries, keys and values in f32.
    pub bytes: Option<u64>,
    /// Number of rows.
    pub rows: usize,
    /// Largest median time of attention in seconds, if it was timed.
    pub attention_seconds: Option<f64>,
    /// Expected maximum time of attention in seconds. Exceeding it is not a failure.
    pub limit_seconds: Option<f64>,
    /// Time of all rows in seconds, including the reference and the comparison.
    pub seconds: f64,
}

impl ConfigSummary {
    pub(super) fn new(config: Config, rows: &[Row], taken: Duration) -> Self {
        let own = || rows.iter().filter(|row| row.config == config);
        let attention = own()
            .filter(|row| row.op == "attention")
            .filter_map(|row| row.seconds);
        Self {
            config,
            sizes: config.sizes().map(|sizes| sizes.to_string()),
            bytes: config.sizes().map(|sizes| {
                let elements = sizes.batch * sizes.tokens * sizes.channels();
                3 * (elements * DType::F32.size()) as u64
            }),
            rows: own().count(),
            attention_seconds: attention.reduce(f64::max),
            limit_seconds: config.limit_seconds(),
            seconds: taken.as_secs_f64(),
        }
    }
}

/// Outcome of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Within the tolerance, and nothing else was written.
    Passed,
    /// Failed; [`Row::reason`] says why.
    Failed,
    /// Not run; [`Row::reason`] says why.
    Skipped,
}

/// Resource that bounds an op's speed by the roofline model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// Bytes that the op has to move.
    Memory,
    /// Operations that the op has to do.
    Compute,
}

/// Result of one op in one form at one size in one dtype.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name of the op for `--op`.
    pub op: &'static str,
    /// Op and what was fused into it.
    pub form: String,
    /// Set of sizes.
    pub config: Config,
    /// Dtype of the elements.
    pub dtype: DType,
    /// Shapes of the operands.
    pub operands: Vec<Vec<usize>>,
    /// Shape of the result.
    pub result: Vec<usize>,
    /// True if the result overwrote an operand.
    pub in_place: bool,
    /// Outcome of the row.
    pub status: Status,
    /// Reason of a failed or skipped row.
    pub reason: Option<String>,
    /// Number of the result's rows that were compared with the reference. Every element is checked to be
    /// finite.
    pub rows_checked: usize,
    /// Number of the result's rows along the last dimension.
    pub rows: usize,
    /// The largest error of an element, relative to the largest magnitude expected.
    pub elementwise_error: Option<f64>,
    /// The Euclidean norm of the error, relative to that of the expected values.
    pub normwise_error: Option<f64>,
    /// Bound of either error.
    pub tolerance: Option<f64>,
    /// Element with the largest error.
    pub worst: Option<Worst>,
    /// Median time in seconds; on a GPU measured by events, of consecutive launches.
    pub seconds: Option<f64>,
    /// Number of timed runs, after one or two untimed runs.
    pub runs: usize,
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes that have to be read and written.
    pub bytes: u64,
    /// Bytes per second. Workloads in caches may exceed the peak.
    pub bytes_per_second: Option<f64>,
    /// Floating-point operations per second.
    pub flops_per_second: Option<f64>,
    /// Peak that bounds the op.
    pub limit: Option<Limit>,
    /// Fraction of that peak that the op reaches.
    pub of_peak: Option<f64>,
}

/// Element with the largest error.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Worst {
    /// Row-major index in the result.
    pub index: usize,
    /// Computed value; null if it is not finite.
    pub got: f64,
    /// Reference value, if this row was compared.
    pub want: Option<f64>,
}

impl Row {
    /// Sets the fields that follow from the time.
    pub(super) fn rate(&mut self, seconds: f64, peaks: &Peaks) {
        self.seconds = Some(seconds);
        if seconds <= 0.0 {
            return;
        }
        let (bytes, flops) = (self.bytes as f64 / seconds, self.flops as f64 / seconds);
        self.bytes_per_second = Some(bytes);
        self.flops_per_second = Some(flops);
        let memory = peaks.copy_bytes_per_second.map(|peak| bytes / peak);
        let compute = peaks.flops_per_second(self.dtype).map(|peak| flops / peak);
        (self.limit, self.of_peak) = match (memory, compute) {
            (Some(memory), Some(compute)) if compute > memory => (Some(Limit::Compute), Some(compute)),
            (Some(memory), _) => (Some(Limit::Memory), Some(memory)),
            (None, Some(compute)) => (Some(Limit::Compute), Some(compute)),
            (None, None) => (None, None),
        };
    }
}

impl Report {
    /// Returns true if something was validated and nothing failed.
    pub fn is_clean(&self) -> bool {
        self.failed == 0 && self.passed > 0
    }
}

/// [`Report::text`] without a width.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(None))
    }
}

impl Report {
    /// Formats the device and its peaks, a table of the rows, the skipped and failed rows, and the counts.
    /// Lines have at most `width` characters.
    pub fn text(&self, width: Option<usize>) -> String {
        let line = |text: String| paragraph(&text, "  ", width);
        let mut text = line(format!("{}: {}", self.device, self.device_name));
        if let Some(reason) = &self.no_gpu {
            let reason = reason.strip_prefix("no GPU: ").unwrap_or(reason);
            text += &line(format!("no GPU: {reason}"));
        }
        for peak in self.peaks.to_string().lines() {
            text += &line(peak.to_owned());
        }
        text += &format!("\n{}\n\n", self.table().text(width));
        text += &format!("{}\n\n", self.matrix().text(width));
        if self.rows.iter().any(|row| row.of_peak > Some(1.0)) {
            text += &line("Cache-resident workloads may exceed the peak.\n".to_owned());
        }
        for (reason, rows) in self.skips() {
            text += &line(format!("skipped {rows}: {reason}"));
        }
        for message in self.failure_messages() {
            text += &line(format!("FAIL {message}"));
        }
        text + &format!(
            "{} passed, {} failed, {} skipped\n",
            self.passed, self.failed, self.skipped
        )
    }

    /// Returns one line for each failed row.
    pub fn failure_messages(&self) -> impl Iterator<Item = String> {
        let failed = self.rows.iter().filter(|row| row.status == Status::Failed);
        failed.map(Row::failure_message)
    }

    /// Returns the reasons of skipped rows in their order, with the number of rows for each.
    fn skips(&self) -> Vec<(&str, usize)> {
        let mut skips: Vec<(&str, usize)> = Vec::new();
        for row in self.rows.iter().filter(|row| row.status == Status::Skipped) {
            let reason = row.reason.as_deref().unwrap_or("no reason");
            match skips.iter_mut().find(|(other, _)| *other == reason) {
                Some((_, rows)) => *rows += 1,
                None => skips.push((reason, 1)),
            }
        }
        skips
    }

    /// Returns a table of the sizes with their bytes and times.
    fn matrix(&self) -> Table {
        let mut table = Table::new([
            Column::left("config"),
            Column::right("B×H×N×D"),
            Column::right("MiB of Q, K, V").rank(1),
            Column::right("rows"),
            Column::right("attention s"),
            Column::right("expected s").rank(2),
            Column::right("all rows s"),
        ]);
        for summary in &self.configs {
            let mebibytes = |bytes: u64| format!("{:.2}", bytes as f64 / f64::from(1 << 20));
            table.row([
                summary.config.to_string(),
                or_dash(summary.sizes.as_ref().map(|sizes| sizes.replace('x', "×"))),
                or_dash(summary.bytes.map(mebibytes)),
                summary.rows.to_string(),
                or_dash(summary.attention_seconds.map(|seconds| format!("{seconds:.6}"))),
                or_dash(summary.limit_seconds.map(|limit| format!("< {limit}"))),
                format!("{:.1}", summary.seconds),
            ]);
        }
        table
    }

    fn table(&self) -> Table {
        let mut table = Table::new([
            Column::left(""),
            Column::left("op").wraps(16),
            Column::left("config"),
            Column::left("dtype"),
            Column::left("operands → result").rank(5),
            Column::right("rows checked").rank(4),
            Column::right("error"),
            Column::right("tolerance").rank(1),
            Column::right("µs"),
            Column::right("rate").rank(3),
            Column::right("of peak").rank(2),
        ]);
        for row in &self.rows {
            table.row(row.cells());
        }
        table
    }
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let status = match self.status {
            Status::Passed => "ok",
            Status::Failed => "FAIL",
            Status::Skipped => "skip",
        };
        let operands: Vec<String> = self.operands.iter().map(|shape| extents(shape)).collect();
        let mut cells = vec![
            status.to_owned(),
            self.title(),
            self.config.to_string(),
            self.dtype.to_string(),
        ];
        if self.status == Status::Skipped {
            cells.push(self.reason.clone().unwrap_or_default());
            return cells;
        }
        let rate = match self.limit {
            Some(Limit::Compute) => self.flops_per_second.map(throughput),
            _ => self.bytes_per_second.map(bandwidth),
        };
        let error = self.elementwise_error.zip(self.normwise_error);
        cells.extend([
            format!("{} → {}", operands.join(", "), extents(&self.result)),
            if self.rows_checked == self.rows {
                format!("all {}", self.rows)
            } else {
                format!("{} of {}", self.rows_checked, self.rows)
            },
            or_dash(error.map(|(a, b)| format!("{:.1e}", a.max(b)))),
            or_dash(self.tolerance.map(|t| format!("{t:.1e}"))),
            or_dash(self.seconds.map(|s| format!("{:.1}", 1e6 * s))),
            or_dash(rate),
            or_dash(self.of_peak.map(|part| format!("{:.1} %", 100.0 * part))),
        ]);
        cells
    }

    fn title(&self) -> String {
        let place = if self.in_place { ", in place" } else { "" };
        format!("{}{place}", self.form)
    }

    /// Returns one line about the failure.
    fn failure_message(&self) -> String {
        let operands: Vec<String> = self.operands.iter().map(|shape| extents(shape)).collect();
        let mut text = format!(
            "{} of {} in {} ({}): {}",
            self.title(),
            operands.join(", "),
            self.dtype,
            self.config,
            self.reason.as_deref().unwrap_or("failed")
        );
        if let Some(Worst { index, got, want }) = self.worst {
            text += &format!("; worst at index {index}: got {got:e}");
            text += &want.map_or(String::new(), |want| format!(", want {want:e}"));
        }
        text
    }
}

fn extents(shape: &[usize]) -> String {
    let extents: Vec<String> = shape.iter().map(ToString::to_string).collect();
    extents.join("×")
}

fn or_dash(content: Option<String>) -> String {
    content.unwrap_or_else(|| "–".into())
}
