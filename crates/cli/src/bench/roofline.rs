//! Times of the model's parts and of its steps, compared with the roofline.

use std::collections::BTreeMap;

use hipvit::timing::Role;
use hipvit_diagnostics::bench::{Row, StepTime};
use hipvit_diagnostics::table::{Column, Table, paragraph};

use super::table::{milliseconds, number, title};

/// Returns a table with the time of each part of the model.
pub(super) fn parts(row: &Row, width: Option<usize>) -> String {
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
    let mut table = Table::new([
        Column::left("part"),
        Column::right("ms"),
        Column::right("%"),
        Column::right("roofline ms").rank(1),
        Column::right("of roofline %"),
    ]);
    for (role, (ms, roofline)) in parts {
        table.row([
            role.to_string(),
            milliseconds(ms),
            format!("{:.1}", 100.0 * ms / sum),
            or_dash(roofline.map(milliseconds)),
            or_dash(roofline.map(|roofline| share(roofline, ms))),
        ]);
    }
    format!(
        "{}{}\n{}\n",
        heading(row, "parts", width),
        table.text(width),
        total(row, steps)
    )
}

/// Returns a table with the time and the roofline of each step.
pub(super) fn steps(row: &Row, width: Option<usize>) -> String {
    let Some(steps) = &row.steps else {
        return String::new();
    };
    let mut table = Table::new([
        Column::left("step").wraps(16),
        Column::right("result").rank(2),
        Column::right("ms"),
        Column::right("roofline").rank(1),
        Column::right("% of it"),
        Column::left("bound by").rank(3),
    ]);
    for step in steps {
        let shape: Vec<String> = step.shape.iter().map(ToString::to_string).collect();
        // Without operations, the roofline depends on the bytes only.
        let memory = row.peak.roofline(0, step.bytes).map(|seconds| 1e3 * seconds);
        let bound = step.roofline_ms.zip(memory);
        table.row([
            step.name.clone(),
            shape.join("×"),
            milliseconds(step.ms),
            or_dash(step.roofline_ms.map(milliseconds)),
            or_dash(step.roofline_ms.map(|roofline| share(roofline, step.ms))),
            or_dash(bound.map(|(roofline, memory)| {
                let by = if roofline > memory { "compute" } else { "memory" };
                by.to_owned()
            })),
        ]);
    }
    let peak = row.peak;
    let (tflops, gbps) = if peak.measured_tflops.is_some() {
        (peak.measured_tflops, peak.measured_gbps)
    } else {
        (peak.datasheet_tflops, peak.datasheet_gbps)
    };
    let mut peaks = match tflops.zip(gbps) {
        Some((tflops, gbps)) => format!("peaks: {} TFLOP/s, {} GB/s", number(tflops), number(gbps)),
        None => "peaks: unknown".into(),
    };
    if let Some((tflops, gbps)) = peak.datasheet_tflops.zip(peak.datasheet_gbps) {
        peaks += &format!("; datasheet {} TFLOP/s, {} GB/s", number(tflops), number(gbps));
    }
    let (heading, total) = (heading(row, "steps", width), total(row, steps));
    let (table, peaks) = (table.text(width), paragraph(&peaks, "  ", width));
    format!("{heading}{table}\n{total}{peaks}\n")
}

fn heading(row: &Row, what: &str, width: Option<usize>) -> String {
    let heading = format!("{what}: {}, batch {}", title(row), row.batch);
    paragraph(&heading, "  ", width)
}

/// Returns the sum of the steps and the time of the whole row.
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

/// Returns the fraction of the roofline that is reached, in percent.
fn share(roofline: f64, ms: f64) -> String {
    format!("{:.1}", 100.0 * roofline / ms)
}

fn or_dash(content: Option<String>) -> String {
    content.unwrap_or_else(|| "–".into())
}
