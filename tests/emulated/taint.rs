//! `hipvit trace` on emulated GPUs: which rows of each step depend on the pixel, and which instructions carry
//! it.

use std::fs;

use serde_json::Value;

use crate::support::emulated::{available, hipvit};
use crate::support::program::{stderr, stdout};

const SEVEN: &str = "assets/samples/7.png";

fn rows(call: &Value) -> Vec<u64> {
    let rows = call["rows"].as_array().unwrap();
    rows.iter().map(|row| row.as_u64().unwrap()).collect()
}

/// Before the first attention only the row of its patch depends on the pixel, afterwards all rows do.
fn reaches(arch: &str, dtype: &str, pixel: &str) {
    let arguments = [
        "trace", SEVEN, "--pixel", pixel, "--device", "hip", "--dtype", dtype, "--json",
    ];
    let output = hipvit(arch, &arguments);
    assert_eq!(output.status.code(), Some(0), "{arch}: {}", stderr(&output));
    let report: Value = serde_json::from_str(stdout(&output)).unwrap();
    let machine = &report["machine"];
    assert!(
        machine["gpu"].as_str().unwrap().contains(arch),
        "{}",
        machine["gpu"]
    );
    let calls = machine["calls"].as_array().unwrap();
    let name = |call: &Value| call["name"].as_str().unwrap().to_owned();
    let attention = calls
        .iter()
        .position(|call| name(call).starts_with("attention"))
        .unwrap();
    let patch = report["patch"]["index"].as_u64().unwrap();
    let token = report["token"]["index"].as_u64().unwrap();
    for (index, call) in calls.iter().enumerate() {
        let of_rows = call["of_rows"].as_u64().unwrap();
        let found = rows(call);
        if index < attention {
            let own = if index == 0 { patch } else { token };
            assert_eq!(found, [own], "{arch} {dtype}: {call}");
        } else {
            assert_eq!(found, (0..of_rows).collect::<Vec<_>>(), "{arch} {dtype}: {call}");
        }
    }

    // Three bytes of one pixel: loaded by one instruction each or together, stored by lanes of one block.
    let patches = &calls[0]["taint"];
    assert!(name(&calls[0]).starts_with("patch_extract"), "{}", calls[0]);
    assert_eq!(patches["blocks"], 1, "{patches}");
    assert!((1..=3).contains(&patches["lanes"].as_u64().unwrap()), "{patches}");
    assert!(
        patches["first"]["instruction"].as_str().unwrap().contains("load"),
        "{patches}"
    );
    assert!(
        patches["last"]["instruction"].as_str().unwrap().contains("store"),
        "{patches}"
    );
    // Attention has it in the matrix instructions' operands; every lane of its waves ends up with some.
    let steps = &calls[attention]["taint"]["steps"];
    for step in ["load", "vector", "store"] {
        assert!(steps[step]["instructions"].as_u64().unwrap() > 0, "{steps}");
    }
    if dtype != "f32" || arch != "gfx1100" {
        let matrix = steps["matrix"]["first"]["instruction"].as_str().unwrap();
        assert!(
            ["v_mfma", "v_wmma"].iter().any(|name| matrix.starts_with(name)),
            "{matrix}"
        );
    }
}

#[test]
fn a_pixel_reaches_its_patch_then_all_tokens() {
    if !available() {
        return;
    }
    for arch in ["gfx942", "gfx1100"] {
        // Pixels within a 4×4 patch, and at its border.
        for pixel in ["9,14", "11,15", "12,16"] {
            reaches(arch, "f16", pixel);
        }
    }
    reaches("gfx942", "f32", "31,0");
}

#[test]
fn text_and_page_name_the_instructions() {
    if !available() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.html");
    let mut arguments = vec![
        "trace", SEVEN, "--pixel", "9,14", "--device", "hip", "--dtype", "f16", "--html",
    ];
    arguments.push(file.to_str().unwrap());
    let output = hipvit("gfx1100", &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for shown in [
        "gfx1100, emulated",
        "global_load",
        "global_store",
        "patch_extract_f16",
        "all 64",
    ] {
        assert!(stdout(&output).contains(shown), "{shown}: {}", stdout(&output));
    }
    let page = fs::read_to_string(file).unwrap();
    let machine = &page[page.find("In the machine").unwrap()..];
    for shown in [
        "gfx1100, emulated",
        "global_load",
        "matrix core",
        "v_wmma_f32_16x16x16_f16",
    ] {
        assert!(machine.contains(shown), "{shown}: {machine}");
    }
    // The drawing: one patch before attention, all 64 from there on, then the pooled row.
    let figures: Vec<&str> = machine.split("<figure>").skip(1).collect();
    let reached: Vec<usize> = figures
        .iter()
        .map(|figure| figure.matches("#0c8").count())
        .collect();
    assert_eq!(reached, [1, 64, 1]);
}
