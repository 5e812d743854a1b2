//! The ladder as a table, beside what its design claims.

use hipvit::bench::{CLAIMS, Row};
use hipvit::table::{Column, Table, paragraph};

use super::table::{mebibytes, milliseconds, title};

/// A table for each ladder.
pub(super) fn text(rows: &[Row], width: Option<usize>) -> String {
    let mut text = String::new();
    // Each begins with its first rung.
    let goes_on = |_: &Row, next: &Row| next.options.rung != Some("naive");
    for rungs in rows.chunk_by(goes_on) {
        if let Some(last) = rungs.last() {
            let title = format!("{}, batch {}", title(last), last.batch);
            text += &paragraph(&title, "  ", width);
            text += &format!("{}\n", table(rungs).text(width));
            for claim in claims(rungs) {
                text += &paragraph(&claim, "  ", width);
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

/// How many times as fast `row` is as `other`.
fn speed_up(other: &Row, row: &Row) -> Option<f64> {
    Some(other.end_to_end.as_ref()?.p50_ms / row.end_to_end.as_ref()?.p50_ms)
}

/// Each claim beside the measurement.
fn claims(rungs: &[Row]) -> Vec<String> {
    let claim = |(name, claimed, claimed_memory): (&str, _, Option<_>)| {
        let index = rungs.iter().position(|row| row.options.rung == Some(name));
        let pair = match (name, index) {
            ("all together", _) => rungs.first().zip(rungs.last()),
            (_, Some(index @ 1..)) => rungs.get(index - 1).zip(rungs.get(index)),
            _ => None,
        };
        let measured = pair.and_then(|(before, after)| {
            let mut text = format!("measured {:.2}×", speed_up(before, after)?);
            let bytes = |row: &Row| Some(row.memory.peak_bytes? as f64);
            if let Some((before, after)) = bytes(before).zip(bytes(after)) {
                text += &format!(", memory {:+.0} %", 100.0 * (after / before - 1.0));
            }
            Some(text)
        });
        let memory = claimed_memory.map(|percent| format!(", memory {percent:+.0} %"));
        format!(
            "{name}: claimed {claimed}×{}; {}",
            memory.unwrap_or_default(),
            measured.unwrap_or_else(|| "not measured on this device".into())
        )
    };
    CLAIMS.into_iter().map(claim).collect()
}

fn or_dash(content: Option<String>) -> String {
    content.unwrap_or_else(|| "–".into())
}
