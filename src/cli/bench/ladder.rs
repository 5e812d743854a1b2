//! The ladder as a table, beside what its design claims.

use comfy_table::{Cell, Table, presets};
use hipvit::bench::{CLAIMS, Row};

use super::table::{mebibytes, milliseconds, right, title};

/// A table for each ladder.
pub(super) fn text(rows: &[Row]) -> String {
    let mut text = String::new();
    // Each begins with its first rung.
    let goes_on = |_: &Row, next: &Row| next.options.rung != Some("naive");
    for rungs in rows.chunk_by(goes_on) {
        if let Some(last) = rungs.last() {
            text += &format!("{}, batch {}\n{}\n", title(last), last.batch, table(rungs));
            text += &claims(rungs);
            text.push('\n');
        }
    }
    text
}

fn table(rungs: &[Row]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "rung",
        "p50 ms",
        "× before",
        "× first",
        "device ms",
        "MiB",
        "activations",
        "difference",
    ]);
    for (index, row) in rungs.iter().enumerate() {
        let ratio = |other: Option<&Row>| speed_up(other?, row).map(|ratio| format!("{ratio:.2}"));
        let before = index.checked_sub(1).and_then(|before| rungs.get(before));
        let first = (index > 0).then(|| rungs.first()).flatten();
        let bytes = |bytes: Option<u64>| or_dash(bytes.map(mebibytes));
        let difference = row.options.output_difference.filter(|_| index > 0);
        table.add_row([
            Cell::new(row.options.rung.unwrap_or_default()),
            right(match (&row.end_to_end, &row.error) {
                (_, Some(_)) => "failed".into(),
                (times, _) => or_dash(times.as_ref().map(|times| milliseconds(times.p50_ms))),
            }),
            right(or_dash(ratio(before))),
            right(or_dash(ratio(first))),
            right(or_dash(
                row.device_only.as_ref().map(|times| milliseconds(times.p50_ms)),
            )),
            right(bytes(row.memory.peak_bytes)),
            right(bytes(row.memory.activations_bytes)),
            right(or_dash(difference.map(|difference| format!("{difference:.0e}")))),
        ]);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt()
}

/// How many times as fast `row` is as `other`.
fn speed_up(other: &Row, row: &Row) -> Option<f64> {
    Some(other.end_to_end.as_ref()?.p50_ms / row.end_to_end.as_ref()?.p50_ms)
}

/// Each claim beside the measurement.
fn claims(rungs: &[Row]) -> String {
    let mut text = String::new();
    for (name, claimed, claimed_memory) in CLAIMS {
        let index = rungs.iter().position(|row| row.options.rung == Some(name));
        let pair = match (name, index) {
            ("all together", _) => rungs.first().zip(rungs.last()),
            (_, Some(index @ 1..)) => rungs.get(index - 1).zip(rungs.get(index)),
            _ => None,
        };
        let measured = pair.and_then(|(before, after)| {
            let mut text = format!("{:.2}×", speed_up(before, after)?);
            let bytes = |row: &Row| Some(row.memory.peak_bytes? as f64);
            if let Some((before, after)) = bytes(before).zip(bytes(after)) {
                text += &format!(", memory {:+.0} %", 100.0 * (after / before - 1.0));
            }
            Some(text)
        });
        let memory = claimed_memory.map(|percent| format!(", memory {percent:+.0} %"));
        text += &format!(
            "{name}: claimed {claimed}×{}; measured {}\n",
            memory.unwrap_or_default(),
            measured.unwrap_or_else(|| "not on this device".into())
        );
    }
    text
}

fn or_dash(content: Option<String>) -> String {
    content.unwrap_or_else(|| "–".into())
}
