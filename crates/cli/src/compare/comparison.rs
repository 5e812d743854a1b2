//! Side-by-side comparison of rows: matching, ratios and regressions.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use super::rows::{Metric, Row};

/// Options that distinguish rows of one engine, each with its default. Other options only describe a row. A missing
/// option counts as its default.
const VARIANTS: [(&str, &str); 7] = [
    ("rung", "null"),
    ("in_flight", "1"),
    ("reproducible", "false"),
    ("graphs", "auto"),
    ("reproducible", "false"),
    ("image_size", "null"),
    ("optimizations", "null"),
];

/// Rows grouped by model, batch size and dtype. The columns differ in file, engine, device or options.
#[derive(Debug)]
pub struct Comparison {
    pub columns: Vec<Column>,
    pub groups: Vec<Group>,
}

/// Rows of one engine on one device in one file.
#[derive(Clone, Debug)]
pub struct Column {
    /// Index of the column's file.
    pub file: usize,
    pub path: PathBuf,
    pub engine: String,
    pub kind: String,
    /// Values of the options in [`VARIANTS`].
    options: [Value; VARIANTS.len()],
    /// Latest row of the column, for the facts that all its rows share.
    pub sample: Row,
    /// Label that distinguishes the column from the others.
    pub label: String,
}

/// A model, batch size and dtype, with one cell per column.
#[derive(Debug)]
pub struct Group {
    pub model: String,
    pub batch: u64,
    pub dtype: String,
    /// One cell per column.
    pub cells: Vec<Option<Row>>,
}

/// A cell that is slower than its baseline in the first file, or that no longer runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Regression {
    pub model: String,
    pub batch: u64,
    pub dtype: String,
    /// Letter and label of the column.
    pub column: String,
    /// The compared metric; `null` if the cell did not run.
    pub metric: Option<Metric>,
    /// Slowdown in percent.
    pub slower_percent: Option<f64>,
    /// Tolerance in percent.
    pub allowed_percent: Option<f64>,
    /// Description of the regression.
    pub reason: String,
}

impl Comparison {
    /// Compares all rows of the files. If a file has several rows for one cell, the last one counts.
    pub fn new(files: Vec<(&Path, Vec<Row>)>) -> Self {
        let mut columns: Vec<Column> = Vec::new();
        // A failed row may lack its options, so it opens a column only if no other row does.
        for failed in [false, true] {
            for (file, (path, rows)) in files.iter().enumerate() {
                for row in rows.iter().filter(|row| row.error.is_some() == failed) {
                    let column = Column::of(file, path, row);
                    match columns.iter_mut().find(|known| known.takes(&column)) {
                        Some(known) if !failed => known.sample = column.sample,
                        Some(_) => (),
                        None => columns.push(column),
                    }
                }
            }
        }
        columns.sort_by_key(|column| column.file);
        let mut groups: Vec<Group> = Vec::new();
        for (file, (path, rows)) in files.into_iter().enumerate() {
            for row in rows {
                let column = Column::of(file, path, &row);
                let Some(at) = columns.iter().position(|known| known.takes(&column)) else {
                    continue;
                };
                let key = |group: &Group| {
                    (&group.model, group.batch, &group.dtype) == (&row.model, row.batch, &row.dtype)
                };
                let group = groups.iter().position(key).unwrap_or_else(|| {
                    groups.push(Group {
                        model: row.model.clone(),
                        batch: row.batch,
                        dtype: row.dtype.clone(),
                        cells: vec![None; columns.len()],
                    });
                    groups.len() - 1
                });
                groups[group].cells[at] = Some(row);
            }
        }
        label(&mut columns);
        Self { columns, groups }
    }

    /// Returns the speed relative to the first column (above 1 if faster), and whether the difference is within the
    /// noise of both cells.
    pub fn speed(&self, group: &Group, column: usize, metric: Metric) -> Option<(f64, bool)> {
        let (first, cell) = (group.cells[0].as_ref()?, group.cells[column].as_ref()?);
        let (a, b) = (first.times(metric)?.p50_ms, cell.times(metric)?.p50_ms);
        Some((a / b, (b / a - 1.0).abs() <= noise(first, cell)))
    }

    /// Returns true if any row has the metric.
    pub fn has(&self, metric: Metric) -> bool {
        let mut cells = self.groups.iter().flat_map(|group| group.cells.iter().flatten());
        cells.any(|row| row.times(metric).is_some())
    }

    /// Returns the letter of a column: A, B, … Z, AA, ….
    pub fn letter(column: usize) -> String {
        let last = char::from(b'A' + (column % 26) as u8);
        match column / 26 {
            0 => last.to_string(),
            more => Self::letter(more - 1) + &last.to_string(),
        }
    }

    /// Returns the baseline of a column in the first file. It has the same engine, device and options. If both files
    /// have a single column, these are compared.
    fn baseline(&self, column: usize) -> Option<usize> {
        let this = &self.columns[column];
        if this.file == 0 {
            return None;
        }
        let of = |file: usize| (0..self.columns.len()).filter(move |&i| self.columns[i].file == file);
        let same = of(0).find(|&i| self.columns[i].is_like(this));
        let single = || match (of(0).count(), of(this.file).count()) {
            (1, 1) => of(0).next(),
            _ => None,
        };
        same.or_else(single)
    }

    /// Returns the regressions: cells that are slower by more than `percent` and the noise of both rows, or no longer
    /// run. `None` if no column has a baseline.
    pub fn regressions(&self, percent: f64) -> Option<Vec<Regression>> {
        let pairs: Vec<(usize, usize)> = (0..self.columns.len())
            .filter_map(|column| Some((self.baseline(column)?, column)))
            .collect();
        if pairs.is_empty() {
            return None;
        }
        let mut found = Vec::new();
        for group in &self.groups {
            for &(baseline, column) in &pairs {
                let Some(before) = group.cells[baseline].as_ref().filter(|row| row.error.is_none()) else {
                    continue;
                };
                self.judge(group, before, column, percent, &mut found);
            }
        }
        Some(found)
    }

    fn judge(&self, group: &Group, before: &Row, column: usize, percent: f64, found: &mut Vec<Regression>) {
        let regression = |metric, numbers: Option<(f64, f64)>, reason| Regression {
            model: group.model.clone(),
            batch: group.batch,
            dtype: group.dtype.clone(),
            column: format!("{} ({})", Self::letter(column), self.columns[column].label),
            metric,
            slower_percent: numbers.map(|n| n.0),
            allowed_percent: numbers.map(|n| n.1),
            reason,
        };
        let after = match &group.cells[column] {
            None => return found.push(regression(None, None, "has no row".into())),
            Some(row) => row,
        };
        if let Some(error) = &after.error {
            return found.push(regression(None, None, format!("failed: {error}")));
        }
        let allowed = (100.0 * noise(before, after)).max(percent);
        for metric in Metric::ALL {
            let (Some(a), Some(b)) = (before.times(metric), after.times(metric)) else {
                if before.times(metric).is_some() {
                    found.push(regression(
                        Some(metric),
                        None,
                        format!("has no {} time", metric.name()),
                    ));
                }
                continue;
            };
            let slower = 100.0 * (b.p50_ms / a.p50_ms - 1.0);
            if slower > allowed {
                let name = metric.name();
                let reason = format!(
                    "{name} {:.3} ms, before {:.3} ms: {slower:.1} % slower, tolerance {allowed:.1} %",
                    b.p50_ms, a.p50_ms
                );
                found.push(regression(Some(metric), Some((slower, allowed)), reason));
            }
        }
    }
}

/// Returns the relative difference of two rows that noise explains. The noise of a row is half the range of its
/// repetitions. Beyond the sum of both, the ranges do not overlap.
fn noise(a: &Row, b: &Row) -> f64 {
    a.noise.unwrap_or(0.0) + b.noise.unwrap_or(0.0)
}

impl Column {
    fn of(file: usize, path: &Path, row: &Row) -> Self {
        Self {
            file,
            path: path.to_owned(),
            engine: row.engine.clone(),
            kind: row.kind().to_owned(),
            options: VARIANTS.map(|(name, default)| match row.options.get(name) {
                Some(value) if value.to_string().trim_matches('"') != default => value.clone(),
                _ => Value::Null,
            }),
            sample: row.clone(),
            label: String::new(),
        }
    }

    /// Returns true if the rows of `row`, a column with a single row, belong to this column.
    fn takes(&self, row: &Self) -> bool {
        let silent = row.sample.error.is_some() && row.sample.options.is_empty();
        let like = self.is_like(row) || silent && self.engine == row.engine && self.kind == row.kind;
        self.file == row.file && like
    }

    /// Returns true if the columns are equal except for their files.
    fn is_like(&self, other: &Self) -> bool {
        self.engine == other.engine && self.kind == other.kind && self.options == other.options
    }
}

/// Labels each column with the facts that differ: file, engine, device and options.
fn label(columns: &mut [Column]) {
    let differ = |of: &dyn Fn(&Column) -> String| columns.iter().any(|c| of(c) != of(&columns[0]));
    let files = differ(&|c| c.file.to_string());
    let engines = differ(&|c| c.engine.clone()) || !files;
    let kinds = differ(&|c| c.kind.clone());
    let names: Vec<String> = columns
        .iter()
        .map(|c| {
            c.path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    // Add the folder if files in several folders have the same name.
    let ambiguous = (0..columns.len())
        .any(|i| (0..i).any(|j| columns[i].file != columns[j].file && names[i] == names[j]));
    let options: Vec<usize> = (0..VARIANTS.len())
        .filter(|&i| {
            columns.iter().any(|a| {
                columns
                    .iter()
                    .any(|b| a.engine == b.engine && a.options[i] != b.options[i])
            })
        })
        .collect();
    for (column, name) in columns.iter_mut().zip(names) {
        let mut parts = Vec::new();
        if files {
            parts.push(if ambiguous {
                column.path.display().to_string()
            } else {
                name
            });
        }
        if engines {
            parts.push(column.engine.clone());
        }
        if kinds {
            parts.push(column.kind.clone());
        }
        for &i in &options {
            match &column.options[i] {
                Value::Null => (),
                Value::String(text) => parts.push(text.clone()),
                value => parts.push(format!("{} {value}", VARIANTS[i].0)),
            }
        }
        column.label = parts.join(" ");
    }
}

/// Returns the engine, its version and the device of a column.
pub fn description(column: &Column) -> String {
    let row = &column.sample;
    let version = row.engine_version.as_ref().map(|version| format!(" {version}"));
    let device = row.device.name.as_deref().unwrap_or(&column.kind);
    let arch = row.device.arch.as_ref().map(|arch| format!(", {arch}"));
    let (version, arch) = (version.unwrap_or_default(), arch.unwrap_or_default());
    format!("{}{version} on {device}{arch}", column.engine)
}
