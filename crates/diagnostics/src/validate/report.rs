//! The result of a validation: the structure that is written as JSON, and the table.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::config::Config;
use super::digest::CodeDigest;
use crate::peaks::{Peaks, bandwidth, throughput};
use crate::table::{Column, Table, paragraph};
use hipvit::tensor::DType;

/// The version of [`Report`]'s JSON: another number after the slash where a field changes its meaning or goes.
pub const SCHEMA: &str = "hipvit.validate/2";

/// The result of a validation.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// hipvit's version.
    pub version: &'static str,
    /// Where it ran: `cpu` or `hip:N`.
    pub device: String,
    /// The device's name.
    pub device_name: String,
    /// Why `auto` chose the CPU.
    pub no_gpu: Option<String>,
    /// The rates that the device was measured to reach.
    pub peaks: Peaks,
    /// How many rows passed.
    pub passed: usize,
    /// How many failed: a wrong result, memory overwritten, or no result at all.
    pub failed: usize,
    /// How many did not run, for a reason that the row gives.
    pub skipped: usize,
    /// One for each size.
    pub configs: Vec<ConfigSummary>,
    /// One for each op, form, size and dtype.
    pub rows: Vec<Row>,
    /// The code that ran on a GPU: the crate's own kernels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub code: Vec<CodeDigest>,
}

/// The rows of one size beside what the validation matrix has for it.
#[derive(Clone, Debug, Serialize)]
pub struct ConfigSummary {
    /// The set of sizes.
    pub config: Config,
    /// Batch × heads × tokens × channels of a head, unless it is several.
    pub sizes: Option<String>,
    /// The bytes of queries, keys and values in f32.
    pub bytes: Option<u64>,
    /// How many rows.
    pub rows: usize,
    /// The largest median time of its attention, in seconds, if it was timed.
    pub attention_seconds: Option<f64>,
    /// What attention should take at most: an expectation, which fails nothing.
    pub limit_seconds: Option<f64>,
    /// The time of all rows, with the reference and the comparison.
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

/// How a row ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Within the tolerance, and nothing else was written.
    Passed,
    /// See [`Row::reason`].
    Failed,
    /// See [`Row::reason`].
    Skipped,
}

/// What bounds an op's speed by the roofline model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// The bytes that it has to move.
    Memory,
    /// The operations that it has to do.
    Compute,
}

/// One op in one form at one size in one dtype.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The op's name, as `--op` takes it.
    pub op: &'static str,
    /// The op with what was fused into it.
    pub form: String,
    /// The set of sizes.
    pub config: Config,
    /// The elements' type.
    pub dtype: DType,
    /// The operands' extents.
    pub operands: Vec<Vec<usize>>,
    /// The result's extents.
    pub result: Vec<usize>,
    /// Whether the result overwrote an operand.
    pub in_place: bool,
    /// How it ended.
    pub status: Status,
    /// Why it failed or was skipped.
    pub reason: Option<String>,
    /// Rows of the result that were compared with the reference's; every element is checked to be finite.
    pub rows_checked: usize,
    /// Rows of the result: what lies along the last extent.
    pub rows: usize,
    /// The largest error of an element, relative to the largest magnitude expected.
    pub elementwise_error: Option<f64>,
    /// The Euclidean norm of the error, relative to that of the expected values.
    pub normwise_error: Option<f64>,
    /// The bound of either error.
    pub tolerance: Option<f64>,
    /// Where the largest error is.
    pub worst: Option<Worst>,
    /// The median time, in seconds; on a GPU by its events, of launches that follow each other.
    pub seconds: Option<f64>,
    /// Runs that were timed, after one or two that were not.
    pub runs: usize,
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes that have to be read and written.
    pub bytes: u64,
    /// Bytes per second. Cache-resident workloads may exceed the peak.
    pub bytes_per_second: Option<f64>,
    /// Floating-point operations per second.
    pub flops_per_second: Option<f64>,
    /// Which peak bounds it.
    pub limit: Option<Limit>,
    /// The fraction of that peak that is reached.
    pub of_peak: Option<f64>,
}

/// The element with the largest error.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Worst {
    /// In the result, row-major.
    pub index: usize,
    /// What was computed; null if it is not finite.
    pub got: f64,
    /// What the reference computes, if this row was compared.
    pub want: Option<f64>,
}

impl Row {
    /// Fills in what follows from the time.
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
    /// Whether something was validated and nothing failed.
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
    /// The device and its peaks, a table of the rows, what was skipped and what failed, and the counts, in lines of `width`
    /// characters at most.
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
        for complaint in self.complaints() {
            text += &line(format!("FAIL {complaint}"));
        }
        text + &format!(
            "{} passed, {} failed, {} skipped\n",
            self.passed, self.failed, self.skipped
        )
    }

    /// One line on each row that failed.
    pub fn complaints(&self) -> impl Iterator<Item = String> {
        let failed = self.rows.iter().filter(|row| row.status == Status::Failed);
        failed.map(Row::complaint)
    }

    /// The reasons for which rows were skipped, in their order, and how many rows each holds for.
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

    /// The sizes, with their bytes and times.
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

    /// One line on what failed.
    fn complaint(&self) -> String {
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
