//! `hipvit bench`: every row has the schema's fields, the other formats agree, and failures are reported.

use serde_json::Value;

use crate::support::bench::{QUICK, check, check_ladder, rows};
use crate::support::program::{hipvit, stderr, stdout};

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
