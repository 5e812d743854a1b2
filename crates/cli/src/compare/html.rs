//! HTML report: a single page without external resources.

use std::fmt::Write;

use hipvit_report::drawing::{colour, number};
use hipvit_report::page::{document, escape, section, table};
use serde_json::Value;

use super::comparison::{Column, Comparison, Group, Regression, description};
use super::plots::{bars, rooflines};
use super::rows::{Metric, Row};
use super::text::{errors, milliseconds, shown, title};

/// Style in addition to that of all reports.
const STYLE: &str = "
svg { width: 100%; height: auto }
.key { display: inline-block; width: .8em; height: .8em; margin-right: .4em }
.bad { color: var(--for) }
";

/// Returns the page. `regressions` is `None` if the comparison did not look for them.
pub(crate) fn page(comparison: &Comparison, regressions: Option<&[Regression]>) -> String {
    let mut page = "<h1>Benchmark comparison</h1>\n".to_owned();
    page += &columns(comparison);
    page += &verdict(comparison, regressions);
    for metric in shown(comparison) {
        let heading = format!("Images per second, {}", metric.name());
        page += &section(&heading, &bars(comparison, metric));
    }
    let plots = rooflines(comparison);
    if !plots.is_empty() {
        let mut body = String::from(
            "<p class=\"note\">Large points are whole models, small ones single steps; point at one to see its \
             name. Solid lines are measured peaks, dashed lines the datasheet's. A row without bytes uses the arithmetic \
             intensity of another column with the same model, batch size and dtype.</p>\n",
        );
        for (title, plot) in plots {
            let _ = write!(body, "<h3>{}</h3>\n{plot}\n", escape(&title));
        }
        page += &section("Roofline", &body);
    }
    page += &section("Latency", &latency(comparison));
    page += &section("Memory, energy, utilisation", &resources(comparison));
    page += &section("Environments", &environments(comparison));
    page += &section("Rows", &raw(comparison));
    document("hipvit compare", STYLE, &page)
}

fn columns(comparison: &Comparison) -> String {
    let mut rows = Vec::new();
    for (i, column) in comparison.columns.iter().enumerate() {
        rows.push(vec![
            format!("{}{}", key(i), Comparison::letter(i)),
            escape(&column.label),
            escape(&description(column)),
            escape(&column.path.display().to_string()),
        ]);
    }
    table(&["", "column", "engine and device", "file"], 4, &rows)
}

fn verdict(comparison: &Comparison, regressions: Option<&[Regression]>) -> String {
    let mut text = String::new();
    match regressions {
        Some([]) => text += "<p>No regression beyond the tolerance and the noise.</p>\n",
        Some(found) => {
            let _ = writeln!(text, "<h2 class=\"bad\">Regressions: {}</h2>\n<ul>", found.len());
            for regression in found {
                let _ = writeln!(text, "<li>{}</li>", escape(&regression.to_string()));
            }
            text += "</ul>\n";
        }
        None => (),
    }
    let failures: Vec<String> = errors(comparison)
        .map(|(group, column, error)| {
            let letter = Comparison::letter(column);
            format!(
                "<li>{} in {letter}: {}</li>\n",
                escape(&title(group)),
                escape(error)
            )
        })
        .collect();
    if !failures.is_empty() {
        let _ = write!(
            text,
            "<h2 class=\"bad\">Failed rows</h2>\n<ul>\n{}</ul>\n",
            failures.concat()
        );
    }
    text
}

fn latency(comparison: &Comparison) -> String {
    let heads = [
        "model, batch, dtype",
        "column",
        "time",
        "p50 ms",
        "p90 ms",
        "p99 ms",
        "min ms",
        "images/s",
        "× A",
        "noise",
        "runs",
    ];
    let mut rows = Vec::new();
    for (group, at, row) in cells(comparison) {
        for metric in Metric::ALL {
            let Some(times) = row.times(metric) else { continue };
            let speed = comparison.speed(group, at, metric);
            rows.push(vec![
                escape(&title(group)),
                label(comparison, at),
                metric.name().into(),
                milliseconds(times.p50_ms),
                dash(times.p90_ms.map(milliseconds)),
                dash(times.p99_ms.map(milliseconds)),
                dash(times.min_ms.map(milliseconds)),
                number(row.images_per_s(times)),
                dash(speed.map(|(speed, close)| format!("{speed:.2}{}", if close { "~" } else { "" }))),
                dash(row.noise.map(|noise| format!("{:.1} %", 100.0 * noise))),
                dash(times.runs.map(|runs| runs.to_string())),
            ]);
        }
    }
    "<p class=\"note\">~: within the noise of the two rows. The noise is half the range of the medians of interleaved repetitions, \
     relative to their median.</p>\n"
        .to_owned()
        + &table(&heads, 3, &rows)
}

fn resources(comparison: &Comparison) -> String {
    let heads = [
        "model, batch, dtype",
        "column",
        "peak MiB",
        "weights MiB",
        "beyond weights MiB",
        "W",
        "mJ/image",
        "GFLOP/s per W",
        "busy",
        "MHz",
        "TFLOP/s",
        "of datasheet",
        "of measured peak",
        "GB/s",
    ];
    let mib = |bytes: Option<f64>| dash(bytes.map(|bytes| number(bytes / f64::from(1 << 20))));
    let percent = |part: Option<f64>| dash(part.map(|part| format!("{:.1} %", 100.0 * part)));
    let plain = |value: Option<f64>| dash(value.map(number));
    let rows: Vec<Vec<String>> = cells(comparison)
        .filter(|(_, _, row)| row.error.is_none())
        .map(|(group, at, row)| {
            let (memory, power) = (&row.memory, &row.power);
            let beyond = memory
                .peak_bytes
                .zip(memory.weights_bytes)
                .map(|(peak, weights)| peak - weights);
            vec![
                escape(&title(group)),
                label(comparison, at),
                mib(memory.peak_bytes),
                mib(memory.weights_bytes),
                mib(memory.activations_bytes.or(beyond)),
                plain(power.watts),
                plain(power.joules_per_image.map(|joules| 1e3 * joules)),
                plain(power.gflops_per_watt),
                dash(power.busy_percent.map(|busy| format!("{busy:.0} %"))),
                plain(power.clock_mhz),
                plain(row.tflops()),
                percent(row.mfu_datasheet),
                percent(row.mfu_measured),
                plain(row.gbps),
            ]
        })
        .collect();
    table(&heads, 2, &rows)
}

/// Returns the environment of each column, with all fields including unknown ones.
fn environments(comparison: &Comparison) -> String {
    let mut text = String::new();
    for (i, column) in comparison.columns.iter().enumerate() {
        let _ = writeln!(text, "<h3>{}{}</h3>", key(i), escape(&column.label));
        text += &table(&["", ""], 2, &facts(column));
    }
    text
}

fn facts(column: &Column) -> Vec<Vec<String>> {
    let row = &column.sample;
    let mut rows = Vec::new();
    let mut fact = |name: &str, value: &Value| flat(name, value, &mut rows);
    fact("engine", &Value::String(row.engine.clone()));
    for name in [
        "engine_version",
        "threads",
        "device",
        "environment",
        "options",
        "peak",
    ] {
        if let Some(value) = row.all.get(name) {
            fact(name, value);
        }
    }
    rows
}

/// Appends one line for each value nested in `value`.
fn flat(name: &str, value: &Value, rows: &mut Vec<Vec<String>>) {
    match value {
        Value::Null => (),
        Value::Object(fields) => {
            for (field, value) in fields {
                flat(&format!("{name} {field}"), value, rows);
            }
        }
        Value::String(text) => rows.push(vec![escape(name), escape(text)]),
        other => rows.push(vec![escape(name), escape(&other.to_string())]),
    }
}

fn raw(comparison: &Comparison) -> String {
    let lines: Vec<String> = cells(comparison)
        .map(|(_, _, row)| escape(&row.all.to_string()) + "\n")
        .collect();
    format!(
        "<details>\n<summary>All {} rows as JSON</summary>\n<pre>{}</pre>\n</details>",
        lines.len(),
        lines.concat()
    )
}

fn cells(comparison: &Comparison) -> impl Iterator<Item = (&Group, usize, &Row)> {
    comparison.groups.iter().flat_map(|group| {
        let cells = group.cells.iter().enumerate();
        cells.filter_map(move |(at, row)| Some((group, at, row.as_ref()?)))
    })
}

fn key(column: usize) -> String {
    format!(
        "<span class=\"key\" style=\"background: {}\"></span>",
        colour(column)
    )
}

fn label(comparison: &Comparison, column: usize) -> String {
    key(column) + &escape(&comparison.columns[column].label)
}

fn dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "–".into())
}
