//! Formats advice as text.

use super::Basis;
use super::Requirement;
use super::Suggestion;
use super::advice::Advice;
use super::predict::StepBound;
use crate::peaks::{bandwidth, throughput};
use crate::table::{Column, Table, paragraph};

/// Steps that differ only in their position in the model.
pub(super) struct Alike<'a> {
    pub(super) step: &'a StepBound,
    pub(super) count: usize,
    measured: Option<f64>,
}

impl Alike<'_> {
    /// Returns the name of the step, with a star for the numbers of several blocks.
    pub(super) fn name(&self) -> String {
        match self.count {
            1 => self.step.name.clone(),
            count => format!("{} ×{count}", pattern(&self.step.name)),
        }
    }

    /// Returns the operations per second: predicted, and measured if available.
    pub(super) fn rates(&self) -> impl Iterator<Item = f64> {
        let flops = self.step.flops as f64;
        [Some(self.step.seconds), self.measured]
            .into_iter()
            .flatten()
            .map(move |seconds| flops / seconds)
    }
}

/// Groups the steps by kind, in the order of each kind's first step.
pub(super) fn alike(steps: &[StepBound]) -> Vec<Alike<'_>> {
    let mut kinds: Vec<Alike<'_>> = Vec::new();
    for step in steps {
        let same = |kind: &&mut Alike<'_>| {
            let known = kind.step;
            (&known.op, &known.shape, known.flops, known.bytes, known.role)
                == (&step.op, &step.shape, step.flops, step.bytes, step.role)
                && pattern(&known.name) == pattern(&step.name)
        };
        match kinds.iter_mut().find(same) {
            Some(kind) => {
                kind.count += 1;
                kind.measured = kind.measured.zip(step.measured_seconds).map(|(a, b)| a + b);
            }
            None => kinds.push(Alike {
                step,
                count: 1,
                measured: step.measured_seconds,
            }),
        }
    }
    for kind in &mut kinds {
        kind.measured = kind.measured.map(|sum| sum / kind.count as f64);
    }
    kinds
}

/// Returns `blocks.*.fc1` for `blocks.3.fc1`.
fn pattern(name: &str) -> String {
    let number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let parts = name.split('.');
    let parts: Vec<&str> = parts.map(|part| if number(part) { "*" } else { part }).collect();
    parts.join(".")
}

impl Advice {
    /// Formats work, memory, the bound of each kind of step, suggestions and the needs of a required rate.
    /// Lines have at most `width` characters.
    pub fn text(&self, width: Option<usize>) -> String {
        let Self {
            hardware, prediction, ..
        } = self;
        let line = |text: String| paragraph(&text, "  ", width);
        let peaks: Vec<String> = hardware
            .peaks
            .iter()
            .map(|&(dtype, rate)| format!("{} in {dtype}", throughput(rate)))
            .collect();
        let mut text = line(format!(
            "{}, batch {}, {} on {}",
            self.model, self.batch, self.configuration.dtype, hardware.name
        ));
        text += &line(format!(
            "peaks: {}, {} ({})",
            peaks.join(", "),
            bandwidth(hardware.bytes_per_second),
            hardware.source
        ));
        let mut bound = format!(
            "bound: at least {:.3} ms per batch, at most {:.0} images/s, by the roofline model and the launches; no measurement",
            1e3 * prediction.seconds,
            prediction.images_per_second
        );
        if let Some(rate) = self.measured_images_per_second {
            let part = 100.0 * rate / prediction.images_per_second;
            bound += &format!("\nmeasured: {rate:.0} images/s end to end, {part:.0} % of the bound");
        }
        for part in bound.lines() {
            text += &line(part.to_owned());
        }
        text += &format!("\n{}\n\n", self.needs().text(width));
        text += &format!("{}\n\n", self.steps(width));
        text += "What to do next, by predicted gain\n";
        text += &match self.next(Basis::Device) {
            None => "  no suggestion\n".to_owned(),
            Some(table) => format!("{}\n", table.text(width)),
        };
        if let Some(table) = self.next(Basis::Files) {
            text += "\nFrom JPEG files, which this host decodes\n";
            text += &format!("{}\n", table.text(width));
        }
        for reason in &self.no_gain {
            text += &line(format!("no gain: {reason}"));
        }
        if let Some(requirement) = &self.requirement {
            text += &requirement.text(width);
        }
        text
    }

    fn needs(&self) -> Table {
        let prediction = &self.prediction;
        let memory = prediction.memory;
        let batch = self.batch as f64;
        let mut table = Table::new([
            Column::left(""),
            Column::right("per image"),
            Column::right("per batch"),
        ]);
        let giga = |value: f64| format!("{:.3} G", value / 1e9);
        let (flops, bytes) = (prediction.flops as f64, prediction.bytes as f64);
        table.row(["operations (FLOP)".into(), giga(flops / batch), giga(flops)]);
        table.row(["bytes moved".into(), giga(bytes / batch), giga(bytes)]);
        table.row([
            "operations per byte".into(),
            String::new(),
            format!("{:.1}", prediction.intensity),
        ]);
        for (name, value) in [
            ("memory: weights", memory.weights_bytes),
            ("memory: activations", memory.activations_bytes),
            ("memory: input", memory.input_bytes),
            ("memory: workspace", memory.workspace_bytes),
            ("memory: peak", memory.peak_bytes),
            ("memory: two runs in flight", memory.two_in_flight_bytes),
        ] {
            table.row([name.to_owned(), String::new(), mebibytes(value)]);
        }
        if let Some(all) = self.hardware.memory_bytes {
            table.row(["memory: the device's".into(), String::new(), mebibytes(all)]);
        }
        table
    }

    fn steps(&self, width: Option<usize>) -> String {
        let prediction = &self.prediction;
        let kinds = alike(&prediction.steps);
        let mut columns = vec![
            Column::left("step").wraps(16),
            Column::right("MFLOP").rank(5),
            Column::right("KiB").rank(5),
            Column::right("FLOP/byte").rank(3),
            Column::right("compute µs").rank(4),
            Column::right("memory µs").rank(4),
            Column::right("launch µs").rank(4),
            Column::left("bound"),
            Column::right("µs"),
            Column::right("% of all"),
        ];
        let measured = kinds.iter().any(|kind| kind.measured.is_some());
        if measured {
            columns.push(Column::right("measured µs"));
        }
        let mut table = Table::new(columns);
        let micro = |seconds: f64| format!("{:.2}", 1e6 * seconds);
        for kind in &kinds {
            let step = kind.step;
            let share = 100.0 * kind.count as f64 * step.seconds / prediction.seconds;
            let mut row = vec![
                kind.name(),
                format!("{:.3}", step.flops as f64 / 1e6),
                format!("{:.1}", step.bytes as f64 / 1024.0),
                format!("{:.2}", step.intensity),
                micro(step.compute_seconds),
                micro(step.memory_seconds),
                micro(step.launch_seconds),
                step.bound.to_string(),
                micro(step.seconds),
                format!("{share:.1}"),
            ];
            if measured {
                row.push(kind.measured.map_or_else(|| "–".into(), micro));
            }
            table.row(row);
        }
        table.text(width)
    }

    /// Returns the suggestions with this basis, or `None` if there are none.
    fn next(&self, basis: Basis) -> Option<Table> {
        let suggestions = self
            .suggestions
            .iter()
            .filter(|suggestion| suggestion.basis == basis);
        let suggestions: Vec<&Suggestion> = suggestions.collect();
        if suggestions.is_empty() {
            return None;
        }
        let measured = self.measured_images_per_second.is_some();
        let mut columns = vec![
            Column::left("").rank(4),
            Column::left("change").wraps(12),
            Column::right("gain"),
            Column::right("images/s").rank(2),
        ];
        if measured {
            columns.push(Column::right("measured"));
        }
        columns.push(Column::left("how").wraps(14));
        columns.push(Column::left("why").wraps(24).rank(3));
        let mut table = Table::new(columns);
        let times = |gain: f64| {
            if gain.is_finite() {
                format!("{gain:.2}×")
            } else {
                "needed".into()
            }
        };
        for (index, suggestion) in suggestions.iter().enumerate() {
            let mut row = vec![
                format!("{}.", index + 1),
                suggestion.change.clone(),
                times(suggestion.gain),
                format!("{:.0}", suggestion.images_per_second),
            ];
            if measured {
                row.push(suggestion.measured_gain.map_or_else(|| "–".into(), times));
            }
            row.extend([suggestion.how.clone(), suggestion.why.clone()]);
            table.row(row);
        }
        Some(table)
    }
}

impl Requirement {
    fn text(&self, width: Option<usize>) -> String {
        let mut text = format!("\nWhat {} images/s need\n", self.images_per_second);
        let line = |text: String| paragraph(&text, "  ", width);
        text += &line(format!(
            "{} and {} of work; {} of pixels to the device; {} of memory",
            throughput(self.flops_per_second),
            bandwidth(self.bytes_per_second),
            bandwidth(self.input_bytes_per_second),
            mebibytes(self.memory_bytes)
        ));
        text += &line(format!(
            "devices by their datasheets, at {:.0} % of their bounds:",
            100.0 * self.efficiency
        ));
        let mut table = Table::new([
            Column::left("device"),
            Column::left("dtype"),
            Column::right("images/s of one"),
            Column::right("needed"),
            Column::left("datasheet").wraps(20).rank(1),
        ]);
        for candidate in &self.candidates {
            table.row([
                candidate.name.to_owned(),
                candidate.dtype.to_string(),
                format!("{:.0}", candidate.images_per_second),
                candidate
                    .count
                    .map_or_else(|| "does not fit".into(), |count| count.to_string()),
                candidate.source.to_owned(),
            ]);
        }
        text + &format!("{}\n", table.text(width))
    }
}

fn mebibytes(bytes: u64) -> String {
    match bytes {
        1_073_741_824.. => format!("{:.2} GiB", bytes as f64 / f64::from(1 << 30)),
        _ => format!("{:.2} MiB", bytes as f64 / f64::from(1 << 20)),
    }
}
