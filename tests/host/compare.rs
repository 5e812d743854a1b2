//! `hipvit compare`: its output, its report, and its exit codes.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::html::elements;
use crate::support::program::{hipvit, stderr, stdout};

/// Creates a row of `hipvit bench` with `ms` end to end and four fifths of it on the device.
fn row(engine: &str, batch: u64, ms: f64) -> Value {
    let times = |ms: f64| {
        json!({
            "runs": 40, "mean_ms": ms, "min_ms": 0.9 * ms, "p50_ms": ms, "p90_ms": 1.05 * ms, "p99_ms": 1.1 * ms,
            "images_per_s": 1e3 * batch as f64 / ms,
        })
    };
    json!({
        "schema": "hipvit.bench/1", "engine": engine, "engine_version": "1.2", "model": "vit_base_patch16_224", "batch": batch,
        "dtype": "bf16", "threads": 16, "options": {"graphs": "auto", "in_flight": 1},
        "device": {"kind": "cuda", "name": "NVIDIA H200", "arch": "sm_90", "index": 0},
        "environment": {"date": "2026-11-22", "driver": "580.1", "libraries": {"hipblaslt": "1.0"}},
        "end_to_end": times(ms), "device_only": times(0.8 * ms),
        "flops_per_image": 35.1e9,
        "peak": {"datasheet_tflops": 989.5, "measured_tflops": 770.0, "datasheet_gbps": 4800.0, "measured_gbps": 4250.0},
        "mfu_datasheet": 0.4, "mfu_measured": 0.5, "gbps": 900.0,
        "memory": {"peak_bytes": 700_000_000u64, "weights_bytes": 172_000_000u64, "activations_bytes": 500_000_000u64},
        "power": {"watts": 640.0, "joules_per_image": 0.055, "busy_percent": 99.0, "clock_mhz": 1980.0},
        "steps": [
            {"name": "block 0 qkv", "role": "qkv", "ms": 0.1, "flops": 5e10, "bytes": 8e7, "roofline_ms": 0.08},
            {"name": "copy", "role": "other", "ms": 0.1, "flops": 0, "bytes": 8e7, "roofline_ms": 0.02},
        ],
        "repeats": [ms, ms], "noise": 0.01, "of_a_later_version": [1, {"x": "kept"}],
    })
}

/// Creates a row without optional values.
fn bare(engine: &str, batch: u64, ms: f64) -> Value {
    json!({
        "schema": "hipvit.bench/1", "engine": engine, "model": "vit_base_patch16_224", "batch": batch, "dtype": "bf16",
        "device": {"kind": "cuda"}, "end_to_end": {"p50_ms": ms}, "options": null, "memory": null, "steps": null,
    })
}

fn failed(engine: &str, batch: u64, error: &str) -> Value {
    json!({
        "schema": "hipvit.bench/1", "engine": engine, "model": "vit_base_patch16_224", "batch": batch, "dtype": "bf16",
        "device": {"kind": "cuda"}, "error": error,
    })
}

struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, rows: &[Value]) -> PathBuf {
        let lines: Vec<String> = rows.iter().map(|row| format!("{row}\n")).collect();
        fs::write(self.path(name), lines.concat()).unwrap();
        self.path(name)
    }
}

fn compare(files: &[&Path], options: &[&str]) -> Output {
    let mut args = vec![OsStr::new("compare")];
    args.extend(files.iter().map(|path| path.as_os_str()));
    args.extend(options.iter().map(OsStr::new));
    hipvit(args)
}

/// Compares two files with `--fail-above`. Returns the exit code and standard error.
fn judged(a: &[Value], b: &[Value], percent: &str) -> (Option<i32>, String) {
    let files = Files::new();
    let (a, b) = (files.write("a.jsonl", a), files.write("b.jsonl", b));
    let output = compare(&[&a, &b], &["--fail-above", percent]);
    (output.status.code(), stderr(&output).to_owned())
}

#[test]
fn a_file_is_no_regression_of_itself_and_a_slowed_copy_is() {
    let (a, slow) = ([row("hipvit", 8, 10.0)], [row("hipvit", 8, 10.7)]);
    assert_eq!(judged(&a, &a, "0"), (Some(0), String::new()));
    let (code, text) = judged(&a, &slow, "5");
    assert_eq!(code, Some(1));
    // End to end and on the device.
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(
        text.contains("vit_base_patch16_224, batch 8, bf16 in B") && text.contains("7.0 % slower"),
        "{text}"
    );
    // A speed-up passes, whatever its size. Without the option nothing is checked.
    assert_eq!(judged(&slow, &a, "0"), (Some(0), String::new()));
    let files = Files::new();
    let (a, slow) = (files.write("a.jsonl", &a), files.write("b.jsonl", &slow));
    assert_eq!(compare(&[&a, &slow], &[]).status.code(), Some(0));
}

#[test]
fn what_is_within_the_noise_or_the_allowed_per_cent_passes() {
    // Two rows with one per cent of noise each.
    let slower = |percent: f64| [row("hipvit", 8, 10.0 * (1.0 + percent / 100.0))];
    let a = [row("hipvit", 8, 10.0)];
    assert_eq!(judged(&a, &slower(1.9), "0").0, Some(0));
    assert_eq!(judged(&a, &slower(2.1), "0").0, Some(1));
    assert_eq!(judged(&a, &slower(2.1), "3").0, Some(0));
    assert_eq!(judged(&a, &slower(3.1), "3").0, Some(1));
    let noisy = |mut row: Value| {
        row["noise"] = json!(0.2);
        [row]
    };
    assert_eq!(judged(&a, &noisy(row("hipvit", 8, 12.0)), "3").0, Some(0));
    // Unknown noise counts as zero.
    assert_eq!(
        judged(&[bare("hipvit", 8, 10.0)], &[bare("hipvit", 8, 10.1)], "0").0,
        Some(1)
    );
}

#[test]
fn a_row_that_failed_or_is_missing_is_a_regression_unless_it_was_so_before() {
    let good = [row("hipvit", 1, 1.0), row("hipvit", 8, 4.0)];
    let broken = [row("hipvit", 1, 1.0), failed("hipvit", 8, "out of memory")];
    let (code, text) = judged(&good, &broken, "5");
    assert_eq!(code, Some(1));
    assert!(
        text.contains("batch 8") && text.contains("failed: out of memory"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1);
    assert_eq!(judged(&broken, &broken, "5").0, Some(0));
    assert_eq!(judged(&broken, &good, "5").0, Some(0));
    let (code, text) = judged(&good, &good[..1], "5");
    assert_eq!(code, Some(1));
    assert!(text.contains("batch 8") && text.contains("has no row"), "{text}");
    // Rows that only the second file has are ignored.
    assert_eq!(judged(&good[..1], &good, "5").0, Some(0));
}

#[test]
fn engines_are_judged_by_their_own_row_in_the_first_file() {
    let a = [row("hipvit", 8, 4.0), row("pytorch-eager", 8, 6.0)];
    let b = [row("hipvit", 8, 4.0), row("pytorch-eager", 8, 6.0)];
    assert_eq!(judged(&a, &b, "1").0, Some(0));
    let b = [row("hipvit", 8, 4.0), row("pytorch-eager", 8, 7.0)];
    let (code, text) = judged(&a, &b, "1");
    assert_eq!(code, Some(1));
    assert!(text.contains("pytorch-eager"), "{text}");
    // Files with one engine each are compared whatever the engines and devices are.
    let (code, _) = judged(&[row("hipvit", 8, 4.0)], &[row("pytorch-eager", 8, 6.0)], "1");
    assert_eq!(code, Some(1));
    let mut amd = row("hipvit", 8, 5.0);
    amd["device"] = json!({"kind": "rocm", "name": "AMD Instinct MI300X", "arch": "gfx942"});
    assert_eq!(judged(&[row("hipvit", 8, 4.0)], &[amd], "1").0, Some(1));
    // Default options need not be present.
    let mut plain = row("hipvit", 8, 5.0);
    plain["options"] = json!({});
    assert_eq!(
        judged(&[row("hipvit", 8, 4.0), row("x", 8, 4.0)], &[plain], "1").0,
        Some(1)
    );
    let files = Files::new();
    let alone = files.write("a.jsonl", &a);
    let output = compare(&[&alone], &["--fail-above", "1"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}

#[test]
fn the_table_fits_a_terminal_and_shows_ratios_to_the_first_column() {
    let files = Files::new();
    let mut rows = Vec::new();
    for batch in [1, 256] {
        rows.push(row("hipvit", batch, 12.0));
        rows.push(row("pytorch-eager", batch, 2471.6));
        rows.push(row("pytorch-max-autotune", batch, 12.1));
        rows.push(bare("tensorrt", batch, 6.0));
        rows.push(failed("migraphx", batch, &"cannot compile ".repeat(20)));
        rows.push(bare("onnxruntime", batch, 24.0));
    }
    let path = files.write("peers.jsonl", &rows);
    let output = compare(&[&path], &[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
        assert_eq!(line, line.trim_end());
    }
    // A, then B and its ratio, C, which is within the noise, and D. E and F form a separate block.
    let words = |start: &str| {
        let lines = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>());
        let found: Vec<_> = lines.filter(|words| words.first() == Some(&start)).collect();
        assert!(!found.is_empty(), "{text}");
        found
    };
    assert_eq!(
        words("256")[0],
        [
            "256", "bf16", "12.00", "2471.6", "0.005", "12.10", "0.99~", "6.000", "2.00"
        ]
    );
    assert_eq!(words("256")[1], ["256", "bf16", "24.00", "0.50", "failed", "–"]);
    // Device times, which the last rows lack.
    assert_eq!(
        words("256")[2],
        [
            "256", "bf16", "9.600", "1977.3", "0.005", "9.680", "0.99~", "–", "–"
        ]
    );
    assert!(text.contains("cannot compile") && text.contains("NVIDIA H200"));
}

#[test]
fn files_of_one_engine_are_named_by_the_file_and_the_last_row_counts() {
    let files = Files::new();
    let a = files.write("before.jsonl", &[row("hipvit", 1, 9.0), row("hipvit", 1, 2.0)]);
    let b = files.write("after.jsonl", &[row("hipvit", 1, 1.0)]);
    let output = compare(&[&a, &b], &["--format", "csv"]);
    let lines: Vec<&str> = stdout(&output).lines().collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    let head: Vec<&str> = lines[0].split(',').collect();
    let field = |line: &str, name: &str| {
        let at = head.iter().position(|field| *field == name).unwrap();
        line.split(',').nth(at).unwrap().to_owned()
    };
    assert_eq!(head.len(), lines[1].split(',').count());
    assert_eq!(field(lines[1], "end_to_end_p50_ms"), "2");
    assert_eq!(
        (field(lines[2], "end_to_end_speed"), field(lines[2], "column")),
        ("2".into(), "after".into())
    );
    let output = compare(&[&a, &b], &["--format", "md"]);
    let row = stdout(&output)
        .lines()
        .find(|line| line.starts_with("| vit_base"))
        .unwrap();
    assert_eq!(row, "| vit_base_patch16_224 | 1 | bf16 | 2.000 | 1.000 | 2.00 |");
}

#[test]
fn json_keeps_every_field_of_the_rows() {
    let files = Files::new();
    let (a, b) = (row("hipvit", 8, 10.0), row("hipvit", 8, 20.0));
    let paths = (
        files.write("a.jsonl", std::slice::from_ref(&a)),
        files.write("b.jsonl", std::slice::from_ref(&b)),
    );
    let output = compare(&[&paths.0, &paths.1], &["--format", "json", "--fail-above", "5"]);
    assert_eq!(output.status.code(), Some(1));
    let json: Value = serde_json::from_str(stdout(&output)).unwrap();
    let cells = &json["groups"][0]["cells"];
    assert_eq!((&cells[0]["row"], &cells[1]["row"]), (&a, &b));
    assert_eq!(
        cells[1]["end_to_end"],
        json!({"speed": 0.5, "within_noise": false})
    );
    assert_eq!(json["regressions"][1]["metric"], "device_only");
    assert_eq!(json["regressions"][0]["slower_percent"], 100.0);
}

#[test]
fn bad_input_is_named_by_file_and_line() {
    let files = Files::new();
    let good = row("hipvit", 8, 10.0).to_string();
    let with = |field: &str, value: Value| {
        let mut row = row("hipvit", 8, 10.0);
        row[field] = value;
        row.to_string()
    };
    let cases = [
        ("{".to_owned(), "no JSON"),
        ("[1]".into(), "has no field `schema`"),
        (with("schema", json!("hipvit.bench/2")), "hipvit.bench/2"),
        (with("batch", json!("8")), "invalid type"),
        (with("batch", json!(0)), "batch"),
        (with("model", Value::Null), "invalid type"),
        (with("end_to_end", json!({"p50_ms": -1})), "p50_ms"),
        (with("end_to_end", json!({"runs": 1})), "p50_ms"),
        (with("noise", json!(-1)), "noise"),
    ];
    let path = files.path("rows.jsonl");
    for (line, reason) in cases {
        fs::write(&path, format!("{good}\n\n{line}\n{good}\n")).unwrap();
        let output = compare(&[&path], &[]);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(1));
        assert!(
            text.contains("rows.jsonl:3: ") && text.contains(reason),
            "{line}: {text}"
        );
        assert_eq!((text.lines().count(), stdout(&output)), (1, ""));
    }
    for content in ["", "\n\n"] {
        fs::write(&path, content).unwrap();
        assert!(stderr(&compare(&[&path], &[])).contains("rows.jsonl: no rows"));
    }
    assert!(stderr(&compare(&[&files.path("missing")], &[])).contains("missing"));
    assert_eq!(compare(&[], &[]).status.code(), Some(2));
    assert_eq!(compare(&[&path], &["--fail-above", "-1"]).status.code(), Some(2));
}

#[test]
fn the_report_is_well_formed_and_loads_nothing() {
    let files = Files::new();
    let evil = "<script src=\"http://evil.example/x.js\">alert('1')</script>&\u{7}";
    let mut named = row(evil, 8, 5.0);
    for field in ["model", "dtype", "engine_version", "of_a_later_version"] {
        named[field] = json!(evil);
    }
    named["device"]["name"] = json!(evil);
    named["environment"] = json!({ evil: evil });
    named["steps"][0]["name"] = json!(evil);
    let rows = [
        row("hipvit", 8, 10.0),
        bare("tensorrt", 8, 6.0),
        named,
        failed("migraphx", 8, evil),
    ];
    let a = files.write("a.jsonl", &rows);
    let b = files.write("<b>.jsonl", &[row("hipvit", 8, 20.0)]);
    let report = files.path("report.html");
    let output = compare(
        &[&a, &b],
        &["--html", report.to_str().unwrap(), "--fail-above", "5"],
    );
    // The report is written in spite of the regression.
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let page = fs::read_to_string(&report).unwrap();
    let names = elements(&page);
    let count = |name: &str| names.iter().filter(|n| *n == name).count();
    // Bars for both metrics, and a roofline for each device and dtype that has peaks.
    assert_eq!(count("svg"), 4);
    // Three rows have operations, and so has one step of each; the other step only copies.
    assert_eq!(count("circle"), 6);
    for forbidden in ["script", "link", "img", "iframe", "image", "use", "a", "object"] {
        assert_eq!(count(forbidden), 0, "{forbidden}");
    }
    // Names of XML namespaces are not addresses to load.
    let loads = page.replace("http://www.w3.org/2000/svg", "");
    for tag in loads
        .split('<')
        .filter_map(|tag| tag.split_once('>'))
        .map(|(tag, _)| tag)
    {
        for forbidden in ["src=", "href=", "url(", "http"] {
            assert!(!tag.contains(forbidden), "{tag}");
        }
    }
    assert!(!loads.contains("@import") && !loads.contains("url("));
    for expected in [
        "Roofline",
        "block 0 qkv",
        "p99 ms",
        "mJ/image",
        "hipblaslt",
        "measured: 770 TFLOP/s",
        "100.0 % slower",
        "of_a_later_version",
    ] {
        assert!(page.contains(expected), "{expected}");
    }
}
