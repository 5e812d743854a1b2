//! Comparison as text: a table that fits into 80 columns, Markdown, CSV and JSON.

use std::ops::Range;

use anyhow::Result;
use hipvit_diagnostics::table::{Column, Table, paragraph};
use serde_json::{Value, json};

use super::super::escape::one_line;
use super::super::format;
use super::comparison::{Comparison, Group, Regression, description};
use super::rows::{Metric, Row};

/// Width of a table if the terminal's width is unknown.
const WIDTH: usize = 80;
/// Widths of the batch size and dtype, and of a time with its ratio.
const ROW_NAME: usize = 12;
const COLUMN: usize = 17;

const LEGEND: &str = "×: speed relative to A, above 1 if faster; ~: within the noise of the two rows";

/// Returns the legend of the columns, one table per metric and model, and the failures.
pub(crate) fn table(comparison: &Comparison, width: Option<usize>) -> String {
    let width = width.unwrap_or(WIDTH);
    // Number of columns that fit next to each other.
    let together = (width.saturating_sub(ROW_NAME) / COLUMN).max(1);
    let wrapped = |line: &str, indent| paragraph(&one_line(line), indent, Some(width));
    let mut text = String::new();
    for (i, column) in comparison.columns.iter().enumerate() {
        let letter = Comparison::letter(i);
        let line = format!("{letter}  {}: {}", column.label, description(column));
        text += &wrapped(&line, "   ");
    }
    for metric in shown(comparison) {
        text.push('\n');
        text += &wrapped(&format!("{}; ms, medians", metric.title()), "  ");
        for model in models(comparison) {
            text += &format!("\n{}\n", one_line(model));
            for first in (0..comparison.columns.len()).step_by(together) {
                let last = (first + together).min(comparison.columns.len());
                text += &block(comparison, metric, model, first..last);
                text.push('\n');
            }
        }
    }
    if comparison.columns.len() > 1 {
        text.push('\n');
        text += &wrapped(LEGEND, "  ");
    }
    for (group, column, error) in errors(comparison) {
        let line = format!("{} in {}: {error}", title(group), Comparison::letter(column));
        text += &wrapped(&line, "  ");
    }
    text
}

/// Returns a table of some columns of one model's rows.
fn block(comparison: &Comparison, metric: Metric, model: &str, columns: Range<usize>) -> String {
    let mut header = vec![Column::right("batch"), Column::left("dtype")];
    for column in columns.clone() {
        header.push(Column::right(Comparison::letter(column)));
        if column > 0 {
            header.push(Column::right("×"));
        }
    }
    let mut table = Table::new(header);
    for group in comparison.groups.iter().filter(|group| group.model == model) {
        let mut cells = vec![group.batch.to_string(), one_line(&group.dtype)];
        for column in columns.clone() {
            cells.push(time(group.cells[column].as_ref(), metric));
            if column > 0 {
                cells.push(speed(comparison, group, column, metric));
            }
        }
        table.row(cells);
    }
    table.text(None)
}

/// Returns the comparison as Markdown.
pub(crate) fn markdown(comparison: &Comparison) -> String {
    let mut text = String::new();
    for (i, column) in comparison.columns.iter().enumerate() {
        let line = format!("{}: {}", column.label, description(column));
        text += &format!("- **{}** {}\n", Comparison::letter(i), in_markdown(&line));
    }
    for metric in shown(comparison) {
        text += &format!(
            "\n{}; ms, medians; {LEGEND}\n\n| model | batch | dtype |",
            metric.title()
        );
        let mut rule = "\n| --- | ---: | --- |".to_owned();
        for column in 0..comparison.columns.len() {
            text += &format!(" {} |", Comparison::letter(column));
            rule += " ---: |";
            if column > 0 {
                text += " × |";
                rule += " ---: |";
            }
        }
        text += &rule;
        text.push('\n');
        for group in &comparison.groups {
            let (model, dtype) = (in_markdown(&group.model), in_markdown(&group.dtype));
            text += &format!("| {model} | {} | {dtype} |", group.batch);
            for (column, cell) in group.cells.iter().enumerate() {
                text += &format!(" {} |", time(cell.as_ref(), metric));
                if column > 0 {
                    text += &format!(" {} |", speed(comparison, group, column, metric));
                }
            }
            text.push('\n');
        }
    }
    for (group, column, error) in errors(comparison) {
        let line = format!("{} in {}: {error}", title(group), Comparison::letter(column));
        text += &format!("\n{}\n", in_markdown(&line));
    }
    text
}

const FIELDS: [&str; 22] = [
    "file",
    "engine",
    "engine_version",
    "device_kind",
    "device",
    "column",
    "model",
    "batch",
    "dtype",
    "end_to_end_p50_ms",
    "end_to_end_p99_ms",
    "end_to_end_speed",
    "device_only_p50_ms",
    "device_only_p99_ms",
    "device_only_speed",
    "images_per_s",
    "noise",
    "mfu_datasheet",
    "mfu_measured",
    "peak_bytes",
    "joules_per_image",
    "error",
];

/// Returns one line per row of the files.
pub(crate) fn csv(comparison: &Comparison) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    format::written(writer.write_record(FIELDS))?;
    for group in &comparison.groups {
        for (at, row) in group.cells.iter().enumerate() {
            let Some(row) = row else { continue };
            let number = |value: Option<f64>| value.map(|v| v.to_string()).unwrap_or_default();
            let column = &comparison.columns[at];
            let mut fields = vec![
                column.path.display().to_string(),
                row.engine.clone(),
                row.engine_version.clone().unwrap_or_default(),
                column.kind.clone(),
                row.device.name.clone().unwrap_or_default(),
                column.label.clone(),
                group.model.clone(),
                group.batch.to_string(),
                group.dtype.clone(),
            ];
            for metric in Metric::ALL {
                let times = row.times(metric);
                fields.push(number(times.map(|t| t.p50_ms)));
                fields.push(number(times.and_then(|t| t.p99_ms)));
                fields.push(number(comparison.speed(group, at, metric).map(|s| s.0)));
            }
            fields.push(number(row.compute().map(|times| row.images_per_s(times))));
            fields.extend(
                [
                    row.noise,
                    row.mfu_datasheet,
                    row.mfu_measured,
                    row.memory.peak_bytes,
                    row.power.joules_per_image,
                ]
                .map(number),
            );
            fields.push(row.error.clone().unwrap_or_default());
            format::written(writer.write_record(&fields))?;
        }
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

/// Returns one object with every field of every row.
pub(crate) fn json(comparison: &Comparison, regressions: Option<&[Regression]>) -> Result<String> {
    let columns = comparison.columns.iter().enumerate().map(|(i, column)| {
        json!({
            "name": Comparison::letter(i), "label": column.label, "file": column.path, "engine": column.engine,
            "device_kind": column.kind,
        })
    });
    let groups = comparison.groups.iter().map(|group| {
        let cells = group.cells.iter().enumerate().filter_map(|(at, row)| {
            let mut cell = json!({ "column": Comparison::letter(at), "row": row.as_ref()?.all });
            for (metric, name) in [
                (Metric::EndToEnd, "end_to_end"),
                (Metric::DeviceOnly, "device_only"),
            ] {
                if let Some((speed, within_noise)) = comparison.speed(group, at, metric) {
                    cell[name] = json!({ "speed": speed, "within_noise": within_noise });
                }
            }
            Some(cell)
        });
        let cells: Vec<Value> = cells.collect();
        json!({ "model": group.model, "batch": group.batch, "dtype": group.dtype, "cells": cells })
    });
    let all = json!({
        "schema": "hipvit.compare/1",
        "columns": columns.collect::<Vec<_>>(),
        "groups": groups.collect::<Vec<_>>(),
        "regressions": regressions,
    });
    Ok(serde_json::to_string(&all)?)
}

/// Returns the metrics that at least one row has.
pub(crate) fn shown(comparison: &Comparison) -> impl Iterator<Item = Metric> {
    let has = Metric::ALL.map(|metric| comparison.has(metric));
    let any = has.contains(&true);
    // If every row failed, the first table says so.
    Metric::ALL
        .into_iter()
        .zip(has)
        .filter(move |&(metric, has)| has || !any && metric == Metric::EndToEnd)
        .map(|(metric, _)| metric)
}

/// Returns each model once, in order.
fn models(comparison: &Comparison) -> Vec<&str> {
    let mut models: Vec<&str> = Vec::new();
    for group in &comparison.groups {
        if !models.contains(&group.model.as_str()) {
            models.push(&group.model);
        }
    }
    models
}

pub(crate) fn errors(comparison: &Comparison) -> impl Iterator<Item = (&Group, usize, &str)> {
    comparison.groups.iter().flat_map(|group| {
        let cells = group.cells.iter().enumerate();
        cells.filter_map(move |(at, row)| Some((group, at, row.as_ref()?.error.as_deref()?)))
    })
}

pub(crate) fn title(group: &Group) -> String {
    format!("{}, batch {}, {}", group.model, group.batch, group.dtype)
}

fn time(row: Option<&Row>, metric: Metric) -> String {
    match row {
        Some(row) if row.error.is_some() => "failed".into(),
        Some(row) => row
            .times(metric)
            .map_or("–".into(), |times| milliseconds(times.p50_ms)),
        None => "–".into(),
    }
}

fn speed(comparison: &Comparison, group: &Group, column: usize, metric: Metric) -> String {
    match comparison.speed(group, column, metric) {
        Some((speed, true)) => format!("{speed:.2}~"),
        Some((speed, false)) if speed < 0.1 => format!("{speed:.3}"),
        Some((speed, false)) => format!("{speed:.2}"),
        None => "–".into(),
    }
}

/// Formats milliseconds with four significant digits, or with all digits before the decimal point.
pub(crate) fn milliseconds(ms: f64) -> String {
    let digits = match ms {
        100.0.. => 1,
        10.0.. => 2,
        _ => 3,
    };
    format!("{ms:.digits$}")
}

fn in_markdown(text: &str) -> String {
    let mut escaped = String::new();
    for c in one_line(text).chars() {
        match c {
            '<' => escaped += "&lt;",
            '&' => escaped += "&amp;",
            '|' | '*' | '`' | '[' | ']' | '\\' => escaped.extend(['\\', c]),
            c => escaped.push(c),
        }
    }
    escaped
}
