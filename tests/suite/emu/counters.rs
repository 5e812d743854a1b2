//! `hipvit profile --counters`: counts that follow from the embedded model's shapes, on the emulated GPUs.

use serde_json::Value;

use super::{available, hipvit};
use crate::command_line::{stderr, stdout};

fn counters(arch: &str, more: &[&str]) -> Value {
    let output = hipvit(arch, &[&["profile", "--counters", "--json"], more].concat());
    assert_eq!(output.status.code(), Some(0), "{arch}: {}", stderr(&output));
    serde_json::from_str(stdout(&output)).unwrap()
}

fn kernel<'a>(report: &'a Value, name: &str) -> &'a Value {
    let kernels = report["kernels"].as_array().unwrap();
    let found = kernels
        .iter()
        .find(|k| k["kernel"].as_str().unwrap().starts_with(name));
    found.unwrap_or_else(|| panic!("{name}: {report}"))
}

fn count(row: &Value, field: &str) -> u64 {
    row[field].as_u64().unwrap_or_else(|| panic!("{field}: {row}"))
}

#[test]
fn a_models_kernels_are_counted() {
    if !available() {
        return;
    }
    for (arch, wave) in [("gfx942", 64), ("gfx1100", 32)] {
        let inspected = hipvit(
            arch,
            &[
                "inspect", "--json", "--device", "hip", "--dtype", "f16", "--batch", "4",
            ],
        );
        let inspected: Value = serde_json::from_str(stdout(&inspected)).unwrap();
        let report = counters(arch, &["--dtype", "f16", "--batch", "4", "--blocks", "all"]);
        assert_eq!(report["device"]["arch"], arch);
        assert_eq!(report["device"]["kind"], "emulated");
        for row in report["kernels"].as_array().unwrap() {
            assert_eq!(row["blocks"], row["sampled_blocks"], "{row}");
            let classes = row["classes"].as_object().unwrap();
            let sum: u64 = classes.values().map(|n| n.as_u64().unwrap()).sum();
            assert_eq!(sum, count(row, "instructions"), "{row}");
            for part in ["active_lanes", "coalescing"] {
                let part = row[part].as_f64().unwrap();
                assert!(part > 0.0 && part <= 1.0, "{row}");
            }
            assert!(
                count(row, "requested_bytes") <= count(row, "global_bytes"),
                "{row}"
            );
            assert!(
                count(row, "lds_conflict_cycles") <= count(row, "lds_cycles"),
                "{row}"
            );
        }

        // The pixels are read once: u8 in, f16 out, for each of the four images.
        let patches = kernel(&report, "patch_extract");
        assert_eq!(count(patches, "launches"), 1);
        assert_eq!(count(patches, "waves") * wave % 256, 0);
        let elements = 4
            * inspected["info"]["image_size"]
                .as_array()
                .unwrap()
                .iter()
                .map(|n| n.as_u64().unwrap())
                .product::<u64>()
            * 3;
        assert_eq!(count(patches, "global_bytes"), 3 * elements, "{patches}");
        // Only attention multiplies matrices in these kernels, once per block of the model.
        let attention = kernel(&report, "attention");
        assert!(attention["matrix_share"].as_f64().unwrap() > 0.0, "{attention}");
        assert_eq!(kernel(&report, "layer_norm")["matrix_share"], 0.0);
        assert!(count(attention, "lds_cycles") > 0, "{attention}");
    }
}

/// The counts of grids that exceed the sample are scaled. Kernels with uniform blocks then have the same
/// counts.
#[test]
fn a_sample_is_scaled_to_the_grid() {
    if !available() {
        return;
    }
    let whole = counters("gfx942", &["--dtype", "f16", "--batch", "64", "--blocks", "all"]);
    let sampled = counters("gfx942", &["--dtype", "f16", "--batch", "64", "--blocks", "8"]);
    let [whole, sampled] = [&whole, &sampled].map(|report| kernel(report, "patch_extract"));
    assert!(count(sampled, "sampled_blocks") <= 8, "{sampled}");
    assert_eq!(count(sampled, "blocks"), count(whole, "blocks"));
    for field in ["launches", "waves", "global_bytes", "requested_bytes"] {
        assert_eq!(count(sampled, field), count(whole, field), "{field}");
    }
}

#[test]
fn the_tables_show_the_kernels() {
    if !available() {
        return;
    }
    let arguments = ["profile", "--counters", "--dtype", "f16", "--batch", "1"];
    let output = hipvit("gfx1100", &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for shown in [
        "gfx1100, emulated",
        "VALU",
        "coalescing %",
        "attention",
        "Library kernels",
    ] {
        assert!(stdout(&output).contains(shown), "{shown}: {}", stdout(&output));
    }
}

#[test]
fn counters_need_an_emulated_gpu() {
    // The device is refused before the model is loaded, so neither tools nor kernels are needed.
    for (more, code, reason) in [
        (&["--device", "cpu"][..], 1, "HIPVIT_PROVIDER=emu:gfx942"),
        (&["--device", "hip:7"], 1, "HIPVIT_PROVIDER=emu:gfx942"),
        (&["--blocks", "0"], 2, "at least 1"),
    ] {
        let output = hipvit("gfx942", &[&["profile", "--counters"], more].concat());
        assert_eq!(output.status.code(), Some(code), "{more:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(reason), "{more:?}: {}", stderr(&output));
    }
}

#[test]
fn records_that_a_user_names_are_kept() {
    if !available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("records.jsonl");
    let run = |sample: &str| {
        let mut command = super::command(env!("CARGO_BIN_EXE_hipvit"), "gfx942");
        command
            .args([
                "profile",
                "--counters",
                "--dtype",
                "f16",
                "--batch",
                "1",
                "--blocks",
                "16",
            ])
            .env("HIP_EMU_PROFILE", &records)
            .env("HIP_EMU_PROFILE_SAMPLE", sample);
        command.output().unwrap()
    };
    let output = run("96");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("HIP_EMU_PROFILE_SAMPLE=16"),
        "{}",
        stderr(&output)
    );
    assert!(!records.exists());
    let output = run("16");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(std::fs::read_to_string(&records).unwrap().contains("\"kernel\""));
}
