//! Table of rows. It shows as many columns as fit into the terminal, the most important ones first.

use hipvit_diagnostics::bench::Row;
use hipvit_diagnostics::table::{self, Table, paragraph};

/// A column: its heading, its rank when columns must be dropped, and the value of a row.
pub(super) struct Column {
    pub(super) heading: &'static str,
    rank: u32,
    pub(super) value: fn(&Row) -> Option<String>,
}

const fn column(heading: &'static str, rank: u32, value: fn(&Row) -> Option<String>) -> Column {
    Column { heading, rank, value }
}

/// All columns in order. A column without values is left out.
pub(super) const COLUMNS: [Column; 19] = [
    column("batch", 0, |row| Some(row.batch.to_string())),
    column("in flight", 9, |row| {
        (row.options.in_flight > 1).then(|| row.options.in_flight.to_string())
    }),
    column("p50 ms", 0, |row| {
        Some(milliseconds(row.end_to_end.as_ref()?.p50_ms))
    }),
    column("p90 ms", 8, |row| {
        Some(milliseconds(row.end_to_end.as_ref()?.p90_ms))
    }),
    column("p99 ms", 3, |row| {
        Some(milliseconds(row.end_to_end.as_ref()?.p99_ms))
    }),
    column("device ms", 1, |row| {
        Some(milliseconds(row.device_only.as_ref()?.p50_ms))
    }),
    column("images/s", 0, |row| {
        Some(number(row.end_to_end.as_ref()?.images_per_s))
    }),
    column("per GPU", 1, |row| {
        let least = row.devices.iter().filter_map(|device| device.images_per_s);
        let (least, most) = least.fold((f64::INFINITY, 0.0), |(least, most): (f64, f64), rate| {
            (least.min(rate), most.max(rate))
        });
        (most > 0.0).then(|| format!("{}–{}", number(least), number(most)))
    }),
    column("scaling", 0, |row| Some(format!("{:.2}×", row.scaling?.factor))),
    column("MFU %", 2, |row| percent(row.mfu_datasheet.or(row.mfu_measured))),
    // Printed next to the fraction of the datasheet's peak, and in place of it where the datasheet is unknown.
    column("of GEMM %", 13, |row| {
        row.mfu_datasheet?;
        percent(row.mfu_measured)
    }),
    column("GB/s", 10, |row| Some(number(row.gbps?))),
    column("MiB", 4, |row| Some(mebibytes(row.memory.peak_bytes?))),
    column("pool %", 14, |row| {
        Some(format!("{:.0}", 100.0 * row.memory.pool_efficiency?))
    }),
    column("mJ/image", 5, |row| {
        Some(number(1e3 * row.power.joules_per_image?))
    }),
    column("W", 7, |row| Some(format!("{:.0}", row.power.watts?))),
    column("busy %", 11, |row| {
        Some(format!("{:.0}", row.power.busy_percent?))
    }),
    column("copy-in", 12, |row| {
        let (rate, peak) = (row.copy_in.gbps?, row.copy_in.link_peak_gbps);
        let peak = peak.map(|peak| format!("/{peak:.0}")).unwrap_or_default();
        Some(format!("{rate:.1}{peak} GB/s"))
    }),
    column("noise %", 6, |row| Some(format!("{:.1}", 100.0 * row.noise?))),
];

/// Returns one table per model, dtype and device, at most `width` characters wide.
pub(super) fn text(rows: &[Row], width: Option<usize>) -> String {
    let mut text = String::new();
    let same = |a: &Row, b: &Row| title(a) == title(b);
    for group in rows.chunk_by(same) {
        text += &paragraph(&title(&group[0]), "  ", width);
        text += &format!("{}\n", table(group, width));
        let mut notes: Vec<&str> = group.iter().filter_map(|row| row.mfu_note).collect();
        notes.dedup();
        for note in notes {
            text += &paragraph(&format!("* above 100 %: {note}"), "  ", width);
        }
        text.push('\n');
    }
    text
}

/// Returns a title with the model, the dtype and the device.
pub(super) fn title(row: &Row) -> String {
    let device = match row.device.kind {
        "cpu" => format!("cpu ({}), {} threads", row.device.name, row.threads),
        _ if !row.devices.is_empty() => {
            let parallel = row.options.parallel.as_deref().unwrap_or_default();
            let indices = row.devices.iter().map(|share| share.device.index.to_string());
            let indices: Vec<String> = indices.collect();
            let (indices, name) = (indices.join(","), &row.device.name);
            format!("hip:{indices} ({name}, {}), {parallel}", row.device.arch)
        }
        _ => format!(
            "hip:{} ({}, {})",
            row.device.index, row.device.name, row.device.arch
        ),
    };
    match &row.error {
        Some(_) => format!("{}, {}, {}", row.model, row.dtype, row.device.name),
        None => format!("{}, {}, {device}", row.model, row.dtype),
    }
}

fn table(rows: &[Row], width: Option<usize>) -> String {
    let used = |column: &&Column| rows.iter().any(|row| (column.value)(row).is_some());
    let columns: Vec<&Column> = COLUMNS.iter().filter(used).collect();
    let mut table = Table::new(
        columns
            .iter()
            .map(|column| table::Column::right(column.heading).rank(column.rank)),
    );
    for row in rows {
        let missing = if row.error.is_some() { "failed" } else { "–" };
        let cells = columns.iter().map(|column| (column.value)(row));
        table.row(cells.map(|cell| cell.unwrap_or_else(|| missing.into())));
    }
    table.text(width)
}

/// Returns a fraction in percent, marked with a star if it is above 100 %.
fn percent(share: Option<f64>) -> Option<String> {
    let percent = 100.0 * share?;
    let star = if percent > 100.0 { "*" } else { "" };
    Some(format!("{percent:.1}{star}"))
}

/// Formats a number with at least three significant digits.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

pub(super) fn milliseconds(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.1}"),
        10.0.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

pub(super) fn mebibytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use hipvit::Device;
    use hipvit_diagnostics::bench::{Bench, Settings, Spec};
    use std::time::Duration;

    use super::*;

    #[test]
    fn columns_go_where_the_terminal_is_narrow() {
        let settings = Settings {
            warm_up_time: Duration::ZERO,
            runs: Some(2),
            peaks: false,
            ..Settings::default()
        };
        let specs = [1, 2].map(|batch| Spec {
            batch,
            device: Device::Cpu,
            ..Spec::default()
        });
        let mut rows = Bench::new(settings).run(&specs, &mut |_| ());
        // Sets the values that a GPU's rows have.
        for row in &mut rows {
            row.device_only = row.end_to_end.clone();
            (row.mfu_datasheet, row.mfu_measured, row.noise) = (Some(0.51), Some(0.66), Some(0.004));
            row.memory.peak_bytes = Some(1 << 30);
            row.power.joules_per_image = Some(0.0567);
            row.power.watts = Some(612.0);
            row.power.busy_percent = Some(99.0);
            row.copy_in.gbps = Some(52.1);
            row.copy_in.link_peak_gbps = Some(63.0);
        }
        for width in [30, 60, 80, 200] {
            let text = table(&rows, Some(width));
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= width, "{width}:\n{text}");
            assert!(text.contains("batch") && text.contains("images/s"), "{text}");
            assert_eq!(text.contains("copy-in"), width == 200, "{text}");
            assert_eq!(text.contains("mJ/image"), width >= 80, "{text}");
        }
    }
}
