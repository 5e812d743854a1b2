//! `hipvit bench`: every row has the schema's fields, the other formats agree, and failures are reported.

use serde_json::Value;

use crate::command_line::{hipvit, stderr, stdout};

/// Options for few runs, because these tests check no times.
pub(crate) const QUICK: [&str; 8] = [
    "bench",
    "--warm-up",
    "1",
    "--runs",
    "3",
    "--no-peaks",
    "--power-seconds",
    "0.05",
];

/// Returns the rows that `bench --json` printed.
pub(crate) fn rows(output: &std::process::Output) -> Vec<Value> {
    let lines = stdout(output).lines();
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Checks that a row without an error has the schema `hipvit.bench/1`.
#[track_caller]
pub(crate) fn check(row: &Value) {
    assert_eq!(row["schema"], "hipvit.bench/1");
    assert_eq!(row["engine"], "hipvit");
    for field in [
        "engine_version",
        "model",
        "dtype",
        "options/graphs",
        "device/kind",
        "device/name",
        "device/arch",
        "environment/date",
        "environment/os",
        "environment/cpu",
    ] {
        let value = row.pointer(&format!("/{field}"));
        assert!(
            value.is_some_and(|v| !v.as_str().unwrap().is_empty()),
            "{field}: {row}"
        );
    }
    for field in ["batch", "threads", "options/in_flight", "flops_per_image", "gbps"] {
        let value = row.pointer(&format!("/{field}"));
        assert!(value.and_then(Value::as_f64) > Some(0.0), "{field}: {row}");
    }
    let gpu = row["device"]["kind"] != "cpu";
    times(row, &row["end_to_end"]);
    if gpu {
        times(row, &row["device_only"]);
    } else {
        assert!(row["device_only"].is_null(), "{row}");
    }
    // Fields of unknown values are present, too.
    for (group, fields) in [
        (
            "peak",
            &[
                "datasheet_tflops",
                "measured_tflops",
                "datasheet_gbps",
                "measured_gbps",
            ][..],
        ),
        (
            "memory",
            &[
                "peak_bytes",
                "weights_bytes",
                "activations_bytes",
                "pool_efficiency",
                "fragmentation",
            ],
        ),
        (
            "power",
            &[
                "busy_percent",
                "watts",
                "joules_per_image",
                "gflops_per_watt",
                "clock_mhz",
            ],
        ),
        ("copy_in", &["gbps", "link_peak_gbps"]),
    ] {
        for field in fields {
            let value = row[group].get(field);
            assert!(
                value.is_some_and(|v| v.is_null() || v.is_number()),
                "{group}/{field}: {row}"
            );
        }
    }
    for field in ["mfu_datasheet", "mfu_measured", "noise", "steps"] {
        assert!(row.get(field).is_some(), "{field}: {row}");
    }
    let number = |pointer: &str| row.pointer(pointer).and_then(Value::as_f64);
    assert!(number("/memory/activations_bytes") > Some(0.0), "{row}");
    if gpu {
        let (weights, activations) = (
            number("/memory/weights_bytes"),
            number("/memory/activations_bytes"),
        );
        assert!(weights > Some(0.0), "{row}");
        assert!(
            number("/memory/peak_bytes") >= weights.zip(activations).map(|(w, a)| w + a),
            "{row}"
        );
        for share in ["/memory/pool_efficiency", "/memory/fragmentation"] {
            assert!((0.0..=1.0).contains(&number(share).unwrap()), "{share}: {row}");
        }
        assert!(number("/copy_in/gbps") > Some(0.0), "{row}");
    }
    let repeats = row["repeats"].as_array().unwrap();
    assert!(
        !repeats.is_empty() && repeats.iter().all(|ms| ms.as_f64() > Some(0.0)),
        "{row}"
    );
    assert_eq!(row["noise"].is_number(), repeats.len() > 1, "{row}");
    assert!(row.get("error").is_none(), "{row}");
}

#[track_caller]
fn times(row: &Value, times: &Value) {
    let number = |field: &str| times[field].as_f64().unwrap();
    let ordered = ["min_ms", "p50_ms", "p90_ms", "p99_ms"].map(number);
    assert!(ordered.is_sorted() && ordered[0] > 0.0, "{times}");
    assert!(
        number("mean_ms") >= ordered[0] && number("runs") >= 1.0,
        "{times}"
    );
    let rate = 1e3 * row["batch"].as_f64().unwrap() / ordered[1];
    assert!((number("images_per_s") / rate - 1.0).abs() < 1e-9, "{times}");
}

/// Checks the rungs of a ladder in their order. The outputs must equal the first one's within `tolerance`.
#[track_caller]
pub(crate) fn check_ladder(rows: &[Value], rungs: &[&str], tolerance: f64) {
    let names: Vec<_> = rows
        .iter()
        .map(|row| row["options"]["rung"].as_str().unwrap())
        .collect();
    assert_eq!(names, rungs);
    for row in rows {
        check(row);
        let difference = row["options"]["output_difference"].as_f64().unwrap();
        assert!(difference <= tolerance, "{row}");
    }
    assert_eq!(rows[0]["options"]["output_difference"], 0.0);
    assert_eq!(rows[0]["dtype"], "f32");
    let last = rows.last().unwrap();
    assert!(last["options"]["in_flight"].as_u64() > Some(1), "{last}");
    assert!(last["options"].get("optimizations").is_none(), "{last}");
}

/// Runs `hipvit bench` with the arguments of [`QUICK`] and these.
fn bench(more: &[&str]) -> std::process::Output {
    hipvit([&QUICK, more].concat())
}

#[test]
fn every_combination_is_a_row_of_the_schema() {
    let arguments = [
        "--device",
        "cpu",
        "--batch",
        "3,1",
        "--repeat",
        "2",
        "--threads",
        "1",
        "--format",
        "json",
    ];
    let output = bench(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let rows = rows(&output);
    // Rows are in the order of the arguments, whatever ran first.
    let batches: Vec<_> = rows.iter().map(|row| row["batch"].as_u64().unwrap()).collect();
    assert_eq!(batches, [3, 1]);
    for row in &rows {
        check(row);
        assert_eq!(
            (&row["model"], &row["dtype"]),
            (&"tinyvit32".into(), &"f32".into())
        );
        assert_eq!(row["threads"], 1);
        assert_eq!(row["repeats"].as_array().unwrap().len(), 2);
        assert_eq!(row["end_to_end"]["runs"], 6);
        assert!(row["steps"].is_null());
    }
    let one = |row: &Value| row["flops_per_image"].as_f64().unwrap();
    assert_eq!(one(&rows[0]), one(&rows[1]));
    assert_eq!(stdout(&bench(&["--device", "cpu", "--json"])).lines().count(), 1);
}

#[test]
fn a_row_that_cannot_run_is_reported_and_the_others_run() {
    for (more, reason) in [
        (["--dtype", "f32", "--batch", "900000000,2"], "of host memory"),
        (["--dtype", "f32", "--batch", "9000000000000000000,2"], "batch: "),
        (
            ["--batch", "2", "no-such-model", "assets/tinyvit32"],
            "no-such-model",
        ),
    ] {
        let output = bench(&[&["--device", "cpu", "--json"][..], &more].concat());
        assert_eq!(output.status.code(), Some(1), "{more:?}");
        let rows = rows(&output);
        assert_eq!(rows.len(), 2, "{more:?}");
        let error = rows[0]["error"].as_str().unwrap();
        assert!(error.contains(reason), "{more:?}: {error}");
        assert!(rows[0]["end_to_end"].is_null());
        check(&rows[1]);
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
        assert!(stderr(&output).contains(error), "{}", stderr(&output));
    }
}

#[test]
fn csv_has_a_cell_for_each_name() {
    let output = bench(&[
        "--device",
        "cpu",
        "--dtype",
        "f32,bf16",
        "--batch",
        "1,9000000000000000000",
        "--format",
        "csv",
    ]);
    let cells = |line: &str| {
        let mut cells = vec![String::new()];
        let mut quoted = false;
        for c in line.chars() {
            match c {
                '"' => quoted = !quoted,
                ',' if !quoted => cells.push(String::new()),
                c => cells.last_mut().unwrap().push(c),
            }
        }
        cells
    };
    let lines: Vec<Vec<String>> = stdout(&output).lines().map(cells).collect();
    assert_eq!(lines.len(), 5);
    let names = &lines[0];
    assert!(lines.iter().all(|line| line.len() == names.len()), "{lines:?}");
    let get = |line: usize, name: &str| lines[line][names.iter().position(|n| n == name).unwrap()].as_str();
    assert_eq!([get(1, "batch"), get(2, "batch")], ["1", "9000000000000000000"]);
    assert_eq!([get(1, "dtype"), get(3, "dtype")], ["f32", "bf16"]);
    assert!(get(1, "end_to_end.p50_ms").parse::<f64>().unwrap() > 0.0);
    assert_eq!(get(1, "device_only.p50_ms"), "");
    assert_eq!(get(1, "error"), "");
    assert!(get(4, "error").contains("batch: "), "{}", get(4, "error"));
    assert_eq!(get(4, "end_to_end.p50_ms"), "");
}

#[test]
fn markdown_is_one_table() {
    let output = bench(&["--device", "cpu", "--batch", "1,2", "--format", "md"]);
    let lines: Vec<&str> = stdout(&output).lines().collect();
    assert_eq!(lines.len(), 4);
    let columns = lines[0].matches('|').count();
    assert!(
        lines
            .iter()
            .all(|line| line.starts_with("| ") && line.ends_with(" |"))
    );
    assert!(
        lines.iter().all(|line| line.matches('|').count() == columns),
        "{lines:?}"
    );
    assert!(
        lines[0].contains("| p50 ms |") && lines[1].contains("| ---: |"),
        "{lines:?}"
    );
    assert!(lines[2].starts_with("| tinyvit32 | f32 |"), "{}", lines[2]);
}

#[test]
fn the_breakdown_names_every_part_and_steps_sum_up() {
    let more = [
        "bench", "--device", "cpu", "--batch", "2,4", "--runs", "3", "--repeat", "2",
    ];
    // With the device's peaks.
    let output = hipvit([&more[..], &["--breakdown", "--roofline"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    for part in [
        "tinyvit32, f32, cpu (",
        "images/s",
        "MFU %",
        "noise %",
        "parts: ",
        "FFN",
        "steps: ",
        "blocks.0.",
        "sum of the steps, one by one: ",
        "end to end: ",
        "peaks: ",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    let output = hipvit([&QUICK[..], &["--device", "cpu", "--breakdown", "--json"]].concat());
    let rows = rows(&output);
    let steps = rows[0]["steps"].as_array().unwrap();
    let sum = |field: &str| {
        steps
            .iter()
            .map(|step| step[field].as_f64().unwrap())
            .sum::<f64>()
    };
    assert!(steps.len() > 20 && sum("ms") > 0.0 && sum("bytes") > 0.0);
    let flops = rows[0]["flops_per_image"].as_f64().unwrap() * rows[0]["batch"].as_f64().unwrap();
    assert_eq!(sum("flops"), flops);
    // Without peaks there is no roofline.
    assert!(
        steps
            .iter()
            .all(|step| step["roofline_ms"].is_null() && step["role"].is_string())
    );
}

#[test]
fn the_ladder_of_a_cpu_gives_the_same_outputs() {
    let arguments = ["--device", "cpu", "--batch", "2", "--ladder"];
    let output = bench(&[&arguments[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let rows = rows(&output);
    // The order of sums differs: some roundings per layer, and a few dozen layers.
    let rungs = ["naive", "graph passes", "memory plan", "overlap"];
    check_ladder(&rows, &rungs, 100.0 * f64::from(f32::EPSILON));
    let arena = |index: usize| rows[index]["memory"]["activations_bytes"].as_u64().unwrap();
    assert!(arena(1) <= arena(0) && arena(2) < arena(1));
    let text = bench(&arguments);
    let text = stdout(&text);
    for part in [
        "rung",
        "× first",
        "overlap",
        "on a GPU also: fused attention, epilogues, HIP graphs, selection\n",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    assert!(!text.contains("claimed"), "{text}");
}
