//! Rows of `hipvit bench`, and their schema.

use serde_json::Value;

use crate::support::program::stdout;

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
