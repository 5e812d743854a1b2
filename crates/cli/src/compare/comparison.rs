//! Rows side by side: which belong together, how they compare, and which are regressions.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use super::rows::{Metric, Row};

/// The options of a run that make rows of one engine different things; others only describe it.
/// With the value that is as good as none.
const VARIANTS: [(&str, &str); 7] = [
    ("rung", "null"),
    ("in_flight", "1"),
    ("reproducible", "false"),
    ("graphs", "auto"),
    ("reproducible", "false"),
    ("image_size", "null"),
    ("optimizations", "null"),
];

/// Rows by model, batch size and dtype, and beside each other by file, engine, device and options.
#[derive(Debug)]
pub struct Comparison {
    pub columns: Vec<Column>,
    pub groups: Vec<Group>,
}

/// The rows of one engine on one device in one file.
#[derive(Clone, Debug)]
pub struct Column {
    /// The index of its file.
    pub file: usize,
    pub path: PathBuf,
    pub engine: String,
    pub kind: String,
    /// Values of [`VARIANTS`].
    options: [Value; VARIANTS.len()],
    /// Its latest row, for what all have in common.
    pub sample: Row,
    /// Name that distinguishes it from the others.
    pub label: String,
}

/// What was run, and by each column how.
#[derive(Debug)]
pub struct Group {
    pub model: String,
    pub batch: u64,
    pub dtype: String,
    /// One for each column.
    pub cells: Vec<Option<Row>>,
}

/// Something slower than in the first file, or that did run there and does not here.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Regression {
    pub model: String,
    pub batch: u64,
    pub dtype: String,
    /// The column's letter and label.
    pub column: String,
    /// What is compared: `null` if it did not run.
    pub metric: Option<Metric>,
    /// By how many per cent it is slower.
    pub slower_percent: Option<f64>,
    /// How many are allowed.
    pub allowed_percent: Option<f64>,
    /// In words.
    pub reason: String,
}

impl Comparison {
    /// Compares all rows of the files. If a file has several rows for one configuration, the last one counts.
    pub fn new(files: Vec<(&Path, Vec<Row>)>) -> Self {
        let mut columns: Vec<Column> = Vec::new();
        // A row that failed may not know its options, so it opens a column only where no other row does.
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

    /// How fast a cell is relative to the first column's, above 1 if faster, and whether the difference is within the noise
    /// of the two.
    pub fn speed(&self, group: &Group, column: usize, metric: Metric) -> Option<(f64, bool)> {
        let (first, cell) = (group.cells[0].as_ref()?, group.cells[column].as_ref()?);
        let (a, b) = (first.times(metric)?.p50_ms, cell.times(metric)?.p50_ms);
        Some((a / b, (b / a - 1.0).abs() <= noise(first, cell)))
    }

    /// Returns true if any row has it.
    pub fn has(&self, metric: Metric) -> bool {
        let mut cells = self.groups.iter().flat_map(|group| group.cells.iter().flatten());
        cells.any(|row| row.times(metric).is_some())
    }

    /// A letter for each column: A, B, … Z, AA, ….
    pub fn letter(column: usize) -> String {
        let last = char::from(b'A' + (column % 26) as u8);
        match column / 26 {
            0 => last.to_string(),
            more => Self::letter(more - 1) + &last.to_string(),
        }
    }

    /// The column of the first file that a column is compared with: of the same engine, device and options; or the only one,
    /// if both files have one column only.
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

    /// What is slower than in the first file by more than `percent` and by more than the noise of the two rows, and what
    /// does not run any more. `None` if no column has one to be compared with.
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
                    "{name} {:.3} ms after {:.3} ms, {slower:.1} % slower; {allowed:.1} % are allowed",
                    b.p50_ms, a.p50_ms
                );
                found.push(regression(Some(metric), Some((slower, allowed)), reason));
            }
        }
    }
}

/// How far two rows may be apart by chance, relative: the noise of a row is half the range of its repetitions, so beyond the
/// sum the ranges do not meet.
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

    /// Returns true if a row, given as a column of its own, belongs here.
    fn takes(&self, row: &Self) -> bool {
        let silent = row.sample.error.is_some() && row.sample.options.is_empty();
        let like = self.is_like(row) || silent && self.engine == row.engine && self.kind == row.kind;
        self.file == row.file && like
    }

    /// Returns true if only the file may differ.
    fn is_like(&self, other: &Self) -> bool {
        self.engine == other.engine && self.kind == other.kind && self.options == other.options
    }
}

/// Names each column by what differs: file, engine, device, options.
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
    // Files of one name in several folders.
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

/// Returns engine, version and device of a column.
pub fn description(column: &Column) -> String {
    let row = &column.sample;
    let version = row.engine_version.as_ref().map(|version| format!(" {version}"));
    let device = row.device.name.as_deref().unwrap_or(&column.kind);
    let arch = row.device.arch.as_ref().map(|arch| format!(", {arch}"));
    let (version, arch) = (version.unwrap_or_default(), arch.unwrap_or_default());
    format!("{}{version} on {device}{arch}", column.engine)
}
