//! A row by the parts of the model and by its steps, beside the roofline.

use std::collections::BTreeMap;

use comfy_table::{Table, presets};
use hipvit::bench::{Row, StepTime};
use hipvit::timing::Role;

use super::table::{milliseconds, number, right, title};

/// The time of each part of the model.
pub(super) fn parts(row: &Row) -> String {
    let Some(steps) = &row.steps else {
        return String::new();
    };
    let mut parts: BTreeMap<Role, (f64, Option<f64>)> = BTreeMap::new();
    for step in steps {
        let (ms, roofline) = parts.entry(step.role).or_insert((0.0, Some(0.0)));
        *ms += step.ms;
        *roofline = roofline.zip(step.roofline_ms).map(|(sum, ms)| sum + ms);
    }
    let sum: f64 = steps.iter().map(|step| step.ms).sum();
    let mut table = new_table(["part", "ms", "%", "roofline ms", "of roofline %"]);
    for (role, (ms, roofline)) in parts {
        table.add_row([
            left(role),
            right(milliseconds(ms)),
            right(format!("{:.1}", 100.0 * ms / sum)),
            right(or_dash(roofline.map(milliseconds))),
            right(or_dash(roofline.map(|roofline| share(roofline, ms)))),
        ]);
    }
    format!(
        "{}\n{}\n{}\n",
        heading(row, "parts"),
        text(table),
        total(row, steps)
    )
}

/// The time of each step beside its roofline.
pub(super) fn steps(row: &Row) -> String {
    let Some(steps) = &row.steps else {
        return String::new();
    };
    let mut table = new_table(["step", "result", "ms", "roofline", "% of it", "bound by"]);
    for step in steps {
        let shape: Vec<String> = step.shape.iter().map(ToString::to_string).collect();
        // The roofline without operations is that of the bytes.
        let memory = row.peak.roofline(0, step.bytes).map(|seconds| 1e3 * seconds);
        let bound = step.roofline_ms.zip(memory);
        table.add_row([
            left(shortened(&step.name, 24)),
            right(shape.join("×")),
            right(milliseconds(step.ms)),
            right(or_dash(step.roofline_ms.map(milliseconds))),
            right(or_dash(step.roofline_ms.map(|roofline| share(roofline, step.ms)))),
            left(bound.map_or("–", |(roofline, memory)| match roofline > memory {
                true => "compute",
                false => "memory",
            })),
        ]);
    }
    let peak = row.peak;
    let (tflops, gbps) = match peak.measured_tflops.is_some() {
        true => (peak.measured_tflops, peak.measured_gbps),
        false => (peak.datasheet_tflops, peak.datasheet_gbps),
    };
    let mut peaks = match tflops.zip(gbps) {
        Some((tflops, gbps)) => format!("peaks: {} TFLOP/s, {} GB/s", number(tflops), number(gbps)),
        None => "peaks: unknown".into(),
    };
    if let Some((tflops, gbps)) = peak.datasheet_tflops.zip(peak.datasheet_gbps) {
        peaks += &format!("; by datasheet {} TFLOP/s, {} GB/s", number(tflops), number(gbps));
    }
    let total = total(row, steps);
    format!("{}\n{}\n{total}{peaks}\n\n", heading(row, "steps"), text(table))
}

fn heading(row: &Row, what: &str) -> String {
    format!("{what}: {}, batch {}", title(row), row.batch)
}

/// The sum of the steps, and the time of the row.
fn total(row: &Row, steps: &[StepTime]) -> String {
    let ms: f64 = steps.iter().map(|step| step.ms).sum();
    let roofline: Option<f64> = steps.iter().map(|step| step.roofline_ms).sum();
    let mut text = format!("sum of the steps, one by one: {} ms", milliseconds(ms));
    if let Some(roofline) = roofline {
        let share = share(roofline, ms);
        text += &format!("; roofline {} ms, {share} % of it", milliseconds(roofline));
    }
    text.push('\n');
    if let Some(device) = &row.device_only {
        text += &format!("all steps at once: {} ms", milliseconds(device.p50_ms));
        if let Some(roofline) = roofline {
            text += &format!(", {} % of the roofline", share(roofline, device.p50_ms));
        }
        text.push('\n');
    }
    if let Some(times) = &row.end_to_end {
        text += &format!("end to end: {} ms\n", milliseconds(times.p50_ms));
    }
    text
}

/// How much of the roofline's speed is reached, in percent.
fn share(roofline: f64, ms: f64) -> String {
    format!("{:.1}", 100.0 * roofline / ms)
}

/// A name that ends in its last `most` characters.
fn shortened(name: &str, most: usize) -> String {
    let count = name.chars().count();
    match count <= most {
        true => name.to_owned(),
        false => format!("…{}", name.chars().skip(count + 1 - most).collect::<String>()),
    }
}

fn or_dash(content: Option<String>) -> String {
    content.unwrap_or_else(|| "–".into())
}

fn left(content: impl ToString) -> comfy_table::Cell {
    comfy_table::Cell::new(content.to_string())
}

fn new_table<const N: usize>(headings: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(headings);
    table
}

fn text(mut table: Table) -> String {
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt()
}
