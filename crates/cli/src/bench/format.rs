//! Rows as comma-separated values, and as a Markdown table.

use hipvit_diagnostics::bench::Row;

use super::table::COLUMNS;

/// Fields of a row's JSON that become columns. Lists do not.
pub(super) const FIELDS: [&str; 59] = [
    "engine",
    "engine_version",
    "model",
    "batch",
    "dtype",
    "threads",
    "options.graphs",
    "options.in_flight",
    "options.parallel",
    "options.rung",
    "options.output_difference",
    "device.kind",
    "device.name",
    "device.arch",
    "device.index",
    "environment.date",
    "environment.os",
    "environment.cpu",
    "environment.driver",
    "end_to_end.runs",
    "end_to_end.mean_ms",
    "end_to_end.min_ms",
    "end_to_end.p50_ms",
    "end_to_end.p90_ms",
    "end_to_end.p99_ms",
    "end_to_end.images_per_s",
    "scaling.one_images_per_s",
    "scaling.factor",
    "scaling.efficiency",
    "device_only.runs",
    "device_only.mean_ms",
    "device_only.min_ms",
    "device_only.p50_ms",
    "device_only.p90_ms",
    "device_only.p99_ms",
    "device_only.images_per_s",
    "flops_per_image",
    "peak.datasheet_tflops",
    "peak.measured_tflops",
    "peak.datasheet_gbps",
    "peak.measured_gbps",
    "mfu_datasheet",
    "mfu_measured",
    "gbps",
    "memory.peak_bytes",
    "memory.weights_bytes",
    "memory.activations_bytes",
    "memory.pool_efficiency",
    "memory.fragmentation",
    "memory.host_peak_bytes",
    "power.busy_percent",
    "power.watts",
    "power.joules_per_image",
    "power.gflops_per_watt",
    "power.clock_mhz",
    "copy_in.gbps",
    "copy_in.link_peak_gbps",
    "noise",
    "error",
];

/// Returns a Markdown table with the columns that at least one row has.
pub(super) fn markdown(rows: &[Row]) -> String {
    let used = COLUMNS
        .iter()
        .filter(|c| rows.iter().any(|row| (c.value)(row).is_some()));
    let used: Vec<_> = used.collect();
    let rungs = rows.iter().any(|row| row.options.rung.is_some());
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut names: Vec<String> = ["model", "dtype", "device"].map(str::to_owned).to_vec();
    let mut rules: Vec<String> = vec!["---".into(); 3];
    if rungs {
        names.push("rung".into());
        rules.push("---".into());
    }
    names.extend(used.iter().map(|column| column.heading.to_owned()));
    rules.extend(used.iter().map(|_| "---:".to_owned()));
    let mut text = line(names) + &line(rules);
    for row in rows {
        let texts = [&row.model, &row.dtype.to_string(), &row.device.name];
        let mut cells: Vec<String> = texts.map(|text| text.replace('|', "\\|")).to_vec();
        if rungs {
            cells.push(row.options.rung.unwrap_or_default().to_owned());
        }
        let missing = if row.error.is_some() { "failed" } else { "–" };
        let values = used.iter().map(|column| (column.value)(row));
        cells.extend(values.map(|value| value.unwrap_or_else(|| missing.into())));
        text += &line(cells);
    }
    text
}
