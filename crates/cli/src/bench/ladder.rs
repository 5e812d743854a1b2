//! Table of the optimisation ladder.

use hipvit_diagnostics::bench::{Row, Rung};
use hipvit_diagnostics::table::{Column, Table, paragraph};

use super::table::{mebibytes, milliseconds, title};

/// Returns one table per ladder.
pub(super) fn text(rows: &[Row], width: Option<usize>) -> String {
    let mut text = String::new();
    // A ladder begins with the rung `naive`.
    let goes_on = |_: &Row, next: &Row| next.options.rung != Some("naive");
    for rungs in rows.chunk_by(goes_on) {
        if let Some(last) = rungs.last() {
            let title = format!("{}, batch {}", title(last), last.batch);
            text += &paragraph(&title, "  ", width);
            text += &format!("{}\n", table(rungs).text(width));
            if let Some(note) = on_a_gpu(last) {
                text += &paragraph(&note, "  ", width);
            }
            text.push('\n');
        }
    }
    text
}

fn table(rungs: &[Row]) -> Table {
    let mut table = Table::new([
        Column::left("rung"),
        Column::right("p50 ms"),
        Column::right("× before"),
        Column::right("× first").rank(1),
        Column::right("device ms").rank(3),
        Column::right("MiB").rank(4),
        Column::right("activations").rank(5),
        Column::right("difference").rank(2),
    ]);
    for (index, row) in rungs.iter().enumerate() {
        let ratio = |other: Option<&Row>| speed_up(other?, row).map(|ratio| format!("{ratio:.2}"));
        let before = index.checked_sub(1).and_then(|before| rungs.get(before));
        let first = (index > 0).then(|| rungs.first()).flatten();
        let bytes = |bytes: Option<u64>| or_dash(bytes.map(mebibytes));
        let difference = row.options.output_difference.filter(|_| index > 0);
        let device = row.device_only.as_ref();
        table.row([
            row.options.rung.unwrap_or_default().to_owned(),
            match (&row.end_to_end, &row.error) {
                (_, Some(_)) => "failed".into(),
                (times, _) => or_dash(times.as_ref().map(|times| milliseconds(times.p50_ms))),
            },
            or_dash(ratio(before)),
            or_dash(ratio(first)),
            or_dash(device.map(|times| milliseconds(times.p50_ms))),
            bytes(row.memory.peak_bytes),
            bytes(row.memory.activations_bytes),
            or_dash(difference.map(|difference| format!("{difference:.0e}"))),
        ]);
    }
    table
}

/// Returns the speed-up of `row` over `other`.
fn speed_up(other: &Row, row: &Row) -> Option<f64> {
    Some(other.end_to_end.as_ref()?.p50_ms / row.end_to_end.as_ref()?.p50_ms)
}

/// Returns the names of the rungs that exist only on GPUs, if `last` ran on a CPU.
fn on_a_gpu(last: &Row) -> Option<String> {
    if last.device.kind != "cpu" {
        return None;
    }
    let gpu = Rung::ALL.iter().filter(|rung| rung.needs_gpu());
    let names: Vec<&str> = gpu.map(|rung| rung.name()).collect();
    Some(format!("on a GPU also: {}", names.join(", ")))
}

fn or_dash(content: Option<String>) -> String {
    content.unwrap_or_else(|| "–".into())
}
