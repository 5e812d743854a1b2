//! Weights that are 2:4 sparse stay packed where that is asked for, or was measured to be fastest.

use std::fs;
use std::iter;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{available, command, passes};
use crate::command_line::{stderr, stdout};

#[test]
fn packed_weights_are_measured_and_give_the_logits_of_the_reference() {
    if available() {
        let tests = [
            "gpu::sparse::packed_weights_give_the_logits_of_the_reference",
            "gpu::sparse::packed_weights_are_a_candidate",
        ];
        passes("gfx942", "f32,f16,bf16", &tests);
    }
}

fn run(cache: &Path, arguments: &[&str]) -> String {
    let mut command = command(env!("CARGO_BIN_EXE_hipvit"), "gfx942");
    let output = command
        .args(arguments)
        .env("HIPVIT_CACHE_DIR", cache)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    stdout(&output).to_owned()
}

#[test]
fn weights_stay_packed_where_that_was_measured_to_be_fastest() {
    if !available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    fs::create_dir(&cache).unwrap();
    let kernels = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("emu-cache/kernels");
    std::os::unix::fs::symlink(&kernels, cache.join("kernels")).unwrap();
    let model = folder.path().join("model");
    let model = model.to_str().unwrap();
    run(&cache, &["quantize", "--sparse", "2:4", "-o", model]);
    let on_gpu = |first: &[&str], more: &[&str]| {
        let all = [
            first,
            &["--device", "hip", "--dtype", "f16", "--batch", "2"],
            more,
        ];
        run(&cache, &all.concat())
    };
    // For each step that the kernel computes, where the choice comes from.
    let packed = |more: &[&str]| -> Vec<String> {
        let json: Value = serde_json::from_str(&on_gpu(&["inspect", model, "--json"], more)).unwrap();
        let kernels = json["kernels"].as_array().unwrap().iter();
        kernels
            .filter(|of| of["kernels"][0] == "sparse_gemm")
            .flat_map(|of| {
                let origin = of["origin"].as_str().unwrap().to_owned();
                iter::repeat_n(origin, of["steps"].as_u64().unwrap() as usize)
            })
            .collect()
    };
    // Each of the four layers of a block is there four times.
    let of = |origin: &str, layers: usize| vec![origin.to_owned(); 4 * layers];
    let none = of("", 0);
    assert_eq!(packed(&[]), none);
    assert_eq!(packed(&["--sparse", "on"]), of("asked", 4));

    on_gpu(&["tune", model], &[]);
    let mut files = fs::read_dir(cache.join("selection")).unwrap();
    let file = files.next().unwrap().unwrap().path();
    let mut json: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let mut choose = |kernel: &str, layers: usize| {
        let linear = json["linear"].as_array_mut().unwrap();
        let sparse: Vec<&mut Value> = linear
            .iter_mut()
            .filter(|entry| entry["sparse"] == true)
            .collect();
        assert_eq!(sparse.len(), 4);
        for entry in sparse.into_iter().take(layers) {
            entry["kernel"] = kernel.into();
        }
        fs::write(&file, json.to_string()).unwrap();
    };
    choose("sparse", 4);
    assert_eq!(packed(&[]), of("tuned", 4));
    assert_eq!(packed(&["--sparse", "off"]), none);
    assert_eq!(packed(&["--reproducible"]), none);
    let top = |more: &[&str]| -> Vec<Value> {
        on_gpu(&["classify", "assets/samples", "--model", model, "--json"], more)
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .filter_map(|line| line.get("top").map(|top| top[0]["label"].clone()))
            .collect()
    };
    let expected = top(&["--sparse", "off"]);
    assert!(expected.len() > 5, "{expected:?}");
    assert_eq!(top(&[]), expected);
    assert_eq!(top(&["--sparse", "on", "--reproducible"]), expected);
    // A layer that a library is faster at.
    choose("rocblas", 1);
    assert_eq!(packed(&[]), of("tuned", 3));
    assert_eq!(top(&[]), expected);
}
