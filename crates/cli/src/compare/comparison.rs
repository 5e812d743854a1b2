//! Compares benchmark rows side by side: matches rows, computes speed ratios, and finds regressions.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use super::rows::{Metric, Row};

/// Names and defaults of the options that distinguish the columns of an engine.
///
/// A missing option has its default. Rows that differ only in other options belong to the same column.
const VARIANTS: [(&str, &str); 6] = [
    ("rung", "null"),
    ("in_flight", "1"),
    ("graphs", "auto"),
    ("reproducible", "false"),
    ("image_size", "null"),
    ("optimizations", "null"),
];

/// Rows grouped by model, batch size and dtype. Each column has its own combination of file, engine, device and options.
#[derive(Debug)]
pub(crate) struct Comparison {
    pub(crate) columns: Vec<Column>,
    pub(crate) groups: Vec<Group>,
}

/// Rows of one file with the same engine, device and options.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    /// Index of the file on the command line.
    pub(crate) file: usize,
    pub(crate) path: PathBuf,
    pub(crate) engine: String,
    /// Kind of device, such as `hip`.
    pub(crate) kind: String,
    /// Values of the options in [`VARIANTS`]; null for a default.
    options: [Value; VARIANTS.len()],
    /// Last row of the column, for properties that all its rows share.
    pub(crate) sample: Row,
    /// Label that distinguishes the column from the others.
    pub(crate) label: String,
}

/// Rows with the same model, batch size and dtype, one cell per column.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) model: String,
    pub(crate) batch: u64,
    pub(crate) dtype: String,
    /// Row of each column. `None` if the column has no such row.
    pub(crate) cells: Vec<Option<Row>>,
}

/// A row that is slower than its baseline in the first file, failed, or is missing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Regression {
    pub(crate) model: String,
    pub(crate) batch: u64,
    pub(crate) dtype: String,
    /// Letter and label of the column.
    pub(crate) column: String,
    /// Metric that regressed; `null` if the row failed or is missing.
    pub(crate) metric: Option<Metric>,
    /// Slowdown in percent.
    pub(crate) slower_percent: Option<f64>,
    /// Permitted slowdown in percent.
    pub(crate) allowed_percent: Option<f64>,
    /// Description of the regression.
    pub(crate) reason: String,
}

impl Comparison {
    /// Compares all rows of the files. If several rows of a file belong to the same cell, the last one is used.
    pub(crate) fn new(files: Vec<(&Path, Vec<Row>)>) -> Self {
        let mut columns: Vec<Column> = Vec::new();
        // Failed rows may lack their options. Add the successful rows first, so that failed rows can join their columns.
        for failed in [false, true] {
            for (file, (path, rows)) in files.iter().enumerate() {
                for row in rows.iter().filter(|row| row.error.is_some() == failed) {
                    let column = Column::of(file, path, row);
                    match columns.iter_mut().find(|known| known.accepts(&column)) {
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
                let Some(at) = columns.iter().position(|known| known.accepts(&column)) else {
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

    /// Returns the speed relative to the first column, above 1 if the column is faster.
    ///
    /// The second value is true if the difference is within the noise of both rows. Returns `None` if one of them has no
    /// such time.
    pub(crate) fn speed(&self, group: &Group, column: usize, metric: Metric) -> Option<(f64, bool)> {
        let (first, cell) = (group.cells[0].as_ref()?, group.cells[column].as_ref()?);
        let (a, b) = (first.times(metric)?.p50_ms, cell.times(metric)?.p50_ms);
        Some((a / b, (b / a - 1.0).abs() <= noise(first, cell)))
    }

    /// Returns true if at least one row has the metric.
    pub(crate) fn has(&self, metric: Metric) -> bool {
        let mut cells = self.groups.iter().flat_map(|group| group.cells.iter().flatten());
        cells.any(|row| row.times(metric).is_some())
    }

    /// Returns the name of a column as in a spreadsheet: A, B, … Z, AA, ….
    pub(crate) fn letter(column: usize) -> String {
        let last = char::from(b'A' + (column % 26) as u8);
        match column / 26 {
            0 => last.to_string(),
            more => Self::letter(more - 1) + &last.to_string(),
        }
    }

    /// Returns the index of the baseline of a column, which is a column of the first file.
    ///
    /// The baseline has the same engine, device and options. Otherwise, if each of the two files has one column, the
    /// baseline is that of the first file. Returns `None` for columns of the first file and without a baseline.
    fn baseline(&self, column: usize) -> Option<usize> {
        let current = &self.columns[column];
        if current.file == 0 {
            return None;
        }
        let in_file = |file: usize| (0..self.columns.len()).filter(move |&i| self.columns[i].file == file);
        let same = in_file(0).find(|&i| self.columns[i].has_same_variant(current));
        let single = || match (in_file(0).count(), in_file(current.file).count()) {
            (1, 1) => in_file(0).next(),
            _ => None,
        };
        same.or_else(single)
    }

    /// Returns all regressions. Returns `None` if no column has a baseline.
    ///
    /// A regression is a row that failed, is missing, or is slower than its baseline. The slowdown must exceed `percent`
    /// and the noise of both rows.
    pub(crate) fn regressions(&self, percent: f64) -> Option<Vec<Regression>> {
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
                self.find_regressions(group, before, column, percent, &mut found);
            }
        }
        Some(found)
    }

    /// Compares a cell with its baseline `before`, and appends its regressions to `found`.
    fn find_regressions(
        &self,
        group: &Group,
        before: &Row,
        column: usize,
        percent: f64,
        found: &mut Vec<Regression>,
    ) {
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

/// Returns the largest relative difference of two rows that noise can explain.
///
/// The noise of a row is half the range of its repetitions. If the difference exceeds the sum of both, the ranges do not
/// overlap.
fn noise(a: &Row, b: &Row) -> f64 {
    a.noise.unwrap_or(0.0) + b.noise.unwrap_or(0.0)
}

impl Column {
    /// Creates a column with the single row `row`.
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

    /// Returns true if `other`, a column with a single row, belongs to this column.
    ///
    /// A failed row without options belongs to any column of its engine and device.
    fn accepts(&self, other: &Self) -> bool {
        let lacks_options = other.sample.error.is_some() && other.sample.options.is_empty();
        let is_same_device = self.engine == other.engine && self.kind == other.kind;
        self.file == other.file && (self.has_same_variant(other) || lacks_options && is_same_device)
    }

    /// Returns true if the columns have the same engine, device and options.
    fn has_same_variant(&self, other: &Self) -> bool {
        self.engine == other.engine && self.kind == other.kind && self.options == other.options
    }
}

/// Labels each column with those of file, engine, device and options that differ between columns.
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
    // Use whole paths if two files have the same name.
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

/// Describes a column by its engine, version, device and architecture.
pub(crate) fn description(column: &Column) -> String {
    let row = &column.sample;
    let version = row.engine_version.as_ref().map(|version| format!(" {version}"));
    let device = row.device.name.as_deref().unwrap_or(&column.kind);
    let arch = row.device.arch.as_ref().map(|arch| format!(", {arch}"));
    let (version, arch) = (version.unwrap_or_default(), arch.unwrap_or_default());
    format!("{}{version} on {device}{arch}", column.engine)
}
