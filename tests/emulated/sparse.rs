//! 2:4 sparse weights stay packed if requested, or if packed weights were measured to be fastest.

use std::fs;
use std::iter;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::emulated::{available, command, passes};
use crate::support::program::{stderr, stdout};

#[test]
fn packed_weights_are_measured_and_give_the_logits_of_the_reference() {
    if available() {
        let tests = [
            "gpu::sparse::packed_weights_give_the_logits_of_the_reference",
            "gpu::sparse::packed_weights_are_a_candidate",
            "gpu::sparse::the_whole_model_is_timed_with_packed_weights_and_dense_ones",
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
    // For each step that a kernel computes, where the choice comes from.
    let steps = |name: &str, more: &[&str]| -> Vec<String> {
        let json: Value = serde_json::from_str(&on_gpu(&["inspect", model, "--json"], more)).unwrap();
        let kernels = json["kernels"].as_array().unwrap().iter();
        kernels
            .filter(|of| of["kernels"][0].as_str().unwrap().starts_with(name))
            .flat_map(|of| {
                let origin = of["origin"].as_str().unwrap().to_owned();
                iter::repeat_n(origin, of["steps"].as_u64().unwrap() as usize)
            })
            .collect()
    };
    let packed = |more: &[&str]| steps("sparse_gemm", more);
    let compressed = |more: &[&str]| steps("hipSPARSELt", more);
    // Each of the four layers of a block is there four times.
    let of = |origin: &str, layers: usize| vec![origin.to_owned(); 4 * layers];
    let none = of("", 0);
    assert_eq!(packed(&[]), none);
    assert_eq!(packed(&["--sparse", "builtin"]), of("asked", 4));
    assert_eq!(compressed(&["--sparse", "builtin"]), none);
    assert_eq!(compressed(&["--sparse", "on"]), of("asked", 4));
    assert_eq!(packed(&["--sparse", "on"]), none);

    let lines = on_gpu(&["tune", model], &["--json"]);
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mut files = fs::read_dir(cache.join("selection")).unwrap();
    let file = files.next().unwrap().unwrap().path();
    let mut stored: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert!(stored["libraries"].as_str().unwrap().contains("hipSPARSELt 206"));
    // Packed weights are kept if, and only if, the whole model was faster with them.
    let fastest_packed = lines.iter().filter(|line| line.get("dense").is_some()).count();
    let whole: Vec<&Value> = lines
        .iter()
        .filter(|line| line.get("whole_model").is_some())
        .collect();
    println!("{fastest_packed} fastest packed: {whole:?}");
    assert_eq!(whole.len(), usize::from(fastest_packed > 0));
    let entries = stored["linear"].as_array().unwrap();
    let (in_file, times): (usize, usize) = entries.iter().fold((0, 0), |(packed, times), entry| {
        let is_packed = entry["kernel"] == "sparse" || entry["kernel"].get("hipsparselt").is_some();
        let has_times = entry.get("whole_model").is_some();
        (packed + usize::from(is_packed), times + usize::from(has_times))
    });
    assert_eq!(times, fastest_packed);
    match whole.first() {
        Some(whole) if whole["faster"] == true => {
            assert_eq!((in_file, &whole["kept"]), (fastest_packed, &"packed".into()));
        }
        Some(whole) => assert_eq!((in_file, &whole["kept"]), (0, &"dense".into())),
        None => assert_eq!(in_file, 0),
    }
    let mut choose = |kernel: &Value, layers: usize| {
        let linear = stored["linear"].as_array_mut().unwrap();
        let sparse: Vec<&mut Value> = linear
            .iter_mut()
            .filter(|entry| entry["sparse"] == true)
            .collect();
        assert_eq!(sparse.len(), 4);
        for entry in sparse.into_iter().take(layers) {
            entry["kernel"] = kernel.clone();
        }
        fs::write(&file, stored.to_string()).unwrap();
    };
    choose(&"sparse".into(), 4);
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
    // A layer for which a library is faster.
    choose(&"rocblas".into(), 1);
    assert_eq!(packed(&[]), of("tuned", 3));
    assert_eq!(top(&[]), expected);
    let by_library = json!({"hipsparselt": {"algorithm": 1, "epilogue": true}});
    choose(&by_library, 2);
    assert_eq!((compressed(&[]), packed(&[])), (of("tuned", 2), of("tuned", 2)));
    assert_eq!(top(&[]), expected);
    choose(&"rocblas".into(), 4);
    assert_eq!(top(&["--sparse", "on"]), expected);
}
