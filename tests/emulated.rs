//! The GPU tests, `hipvit validate`, the command line and [`faults`] on emulated AMD GPUs (`sys/emu`), which
//! execute the machine code of AMD GPUs. `support/emulated.rs` has what they need, and what they skip.

use std::env;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use half::f16;
use serde_json::Value;

use crate::host::train::Set;
use crate::support::bench;
use crate::support::emulated::{all, available, clang_of_gfx950, command, hipvit, passes};
use crate::support::program::{stderr, stdout};

mod counters;
mod faults;
mod packed;
mod patterns;
mod processes;
mod profile;
#[cfg(feature = "serve")]
mod serve;
mod several_gpus;
mod sparse;
mod taint;
mod unified;
mod zero_shot;

/// Runs the tests of one architecture.
fn works(arch: &str) {
    if !available() {
        return;
    }
    let some = [
        "gpu::depth::an_onnx_file_gives_the_same",
        "gpu::depth::depths_are_those_of_transformers",
        "gpu::detect::objects_are_those_of_transformers",
        "gpu::rt_detr::queries_and_objects_are_those_of_transformers",
        "gpu::segment::masks_are_those_of_transformers",
        "gpu::augment::images_of_awkward_sizes_have_the_hosts_bytes",
        "gpu::augment::mixtures_and_erased_rectangles_have_the_hosts_bits",
        "gpu::augment::operations_write_nothing_beside_the_images",
        "gpu::golden_models_agree_in_every_dtype",
        "gpu::jpeg::coefficients_beyond_any_encoders_have_the_hosts_pixels",
        "gpu::jpeg::jpegs_have_the_hosts_pixels",
        "gpu::replayed_graphs_give_the_bits_of_the_steps",
        "gpu::resize::images_are_resized_to_the_same_bytes",
        "gpu::search::a_gpu_finds_the_rows_that_the_cpu_finds",
        "gpu::search::a_gpu_orders_ties_and_rows_that_improve",
        "gpu::reproducible_sessions_give_an_image_the_same_bits_at_any_batch_size",
        "gpu::selection::miopen_computes_patch_embeddings_and_attention",
        "gpu::naflex::images_of_any_aspect_ratio_agree_in_every_dtype",
        "gpu::onnx::exported_classifiers_take_images",
        "gpu::onnx::exported_models_agree_with_the_cpu",
        "gpu::onnx::operators_agree_with_onnx_runtime",
        "gpu::quantized::layers_in_bf16_are_computed_in_the_dtype",
        "gpu::quantized::logits_are_those_of_the_cpu",
        "gpu::quantized::norms_in_8_bits_give_the_bits_of_norms_that_are_rounded",
        "gpu::sparse::packed_weights_give_the_logits_of_the_reference",
    ];
    let architectures = [
        "gpu::architectures::vit_tiny_agrees_with_the_cpu_in_every_dtype",
        "gpu::architectures::vit_base_agrees_with_the_cpu",
    ];
    let rest = [
        "gpu::held_out_digits_are_recognised_in_every_dtype",
        "gpu::four_threads_on_their_streams_get_the_bits_of_one",
        "gpu::a_pipeline_gives_the_bits_of_the_session",
        "gpu::jpeg::pipelines_give_the_same_results_wherever_jpegs_are_decoded",
        "gpu::many_runs_leave_the_memory_flat",
        "gpu::resize::decoded_images_of_any_size_are_resized_on_the_device",
    ];
    let backward = "gpu::backward::gradients_of_all_weights_follow_the_reference";
    let training = "gpu::training::steps_are_those_of_the_cpu";
    let epilogues = "gpu::training::epilogues_compute_gelu_and_its_derivative";
    let ten_steps = "gpu::training::tinyvit32_has_the_losses_of_the_cpu";
    let rounded = "gpu::rounded_training::steps_are_those_of_the_cpu";
    let generation = "gpu::generation::texts_and_logits_are_those_of_transformers";
    let tiles = "gpu::generation::texts_about_tiles_are_those_of_transformers";
    let moments = "gpu::compact_moments::steps_are_those_of_the_cpu";
    let draws = "gpu::augment::a_thousand_draws_of_each_transform_have_the_hosts_bytes";
    let augmented = "gpu::augment::runs_have_the_hosts_losses";
    match arch {
        "gfx942" => {
            passes(arch, "f32", &[backward, ten_steps]);
            passes(arch, "f32,f16", &[training]);
            passes(arch, "f32,bf16", &[generation]);
            passes(arch, "f32", &[tiles, draws, augmented]);
            passes(arch, "f32,f16,bf16", &[epilogues]);
            passes(arch, "f32,bf16", &[rounded, moments]);
        }
        "gfx1100" => passes(arch, "bf16", &[backward, ten_steps, generation, draws]),
        "gfx1201" => passes(arch, "bf16", &[rounded]),
        _ => {}
    }
    if all() && matches!(arch, "gfx942" | "gfx1100" | "gfx1151") {
        passes(arch, "f32,f16,bf16", &[ten_steps]);
    }
    // In each dtype on one GPU, since `validates` runs every kernel.
    let dtype = match arch {
        "gfx942" => "f32",
        "gfx1100" => "f16",
        _ => "bf16",
    };
    passes(arch, dtype, &some);
    if arch == "gfx1100" {
        passes(arch, dtype, &rest);
    }
    if all() {
        passes(arch, dtype, &architectures);
        match arch {
            "gfx942" => passes(arch, "f16", &[&some[..], &architectures, &rest].concat()),
            "gfx1100" => passes(arch, "bf16", &[&some[..], &architectures].concat()),
            _ => {}
        }
    }
    validates(arch);
    classifies(arch, dtype);
}

#[test]
fn gfx1100_runs_models_and_ops() {
    works("gfx1100");
}

#[test]
fn gfx942_runs_models_and_ops() {
    works("gfx942");
}

/// An APU, whose clang computes floats on the scalar unit too.
#[test]
fn gfx1151_runs_models_and_ops() {
    works("gfx1151");
}

/// gfx12 has FP8 in OCP's encoding, and a different WMMA layout.
#[test]
fn gfx1201_runs_models_and_ops() {
    works("gfx1201");
}

#[test]
fn gfx1200_runs_matrix_cores() {
    validates_matrix_cores("gfx1200");
}

/// Clang 20 is the first version that compiles for gfx950.
#[test]
fn gfx950_runs_matrix_cores() {
    match clang_of_gfx950() {
        Some(_) => {
            validates_matrix_cores("gfx950");
            if all() && available() {
                let ten_steps = "gpu::training::tinyvit32_has_the_losses_of_the_cpu";
                passes("gfx950", "f32,f16,bf16", &[ten_steps]);
            }
        }
        None => eprintln!("skipped: gfx950: no clang 20 or later that compiles for it"),
    }
}

#[test]
fn gfx90a_runs_matrix_cores() {
    validates_matrix_cores("gfx90a");
}

/// Clang 22 generates gfx11 code with 16-bit registers, clang 19 does not.
#[test]
fn gfx1100_runs_code_with_16_bit_registers() {
    let clang = "clang++-22";
    if Command::new(clang).arg("--version").output().is_err() {
        eprintln!("skipped: 16-bit registers of gfx1100: no {clang}");
    } else if available() {
        let validate = "validate --device hip --op softmax --config micro --dtype bf16 --untimed";
        let output = command(env!("CARGO_BIN_EXE_hipvit"), "gfx1100")
            .args(validate.split(' '))
            .env("HIP_EMU_CLANG", clang)
            .output()
            .unwrap();
        let text = format!("{}{}", stdout(&output), stderr(&output));
        assert_eq!(output.status.code(), Some(0), "{text}");
    }
}

/// The matrix cores of gfx908 have a separate instruction for bf16.
#[test]
fn gfx908_runs_matrix_cores() {
    validates_matrix_cores("gfx908");
}

/// CDNA's GPUs differ in the instructions of their matrix cores, so gfx942 stands for the other kernels.
fn validates_matrix_cores(arch: &str) {
    if !all() {
        eprintln!("skipped: {arch}: HIPVIT_EMU_TESTS is not all");
    } else if available() {
        validates(arch);
    }
}

/// The HIP source of an op outside hipvit is compiled and runs, with waves of 64 and of 32 lanes.
#[test]
fn ops_of_other_crates_run() {
    if !available() {
        return;
    }
    for arch in ["gfx942", "gfx1100"] {
        let tests = [
            "gpu::custom_op::a_fusion_gives_the_logits_of_the_model",
            "gpu::custom_op::the_kernel_agrees_with_the_reference",
            "gpu::custom_op::errors_name_the_node_and_the_op",
        ];
        passes(arch, "f32,f16,bf16", &tests);
    }
}

/// Parameters and states are updated by runs, with waves of 64 and of 32 lanes.
#[test]
fn parameters_and_states_persist_across_runs() {
    if !available() {
        return;
    }
    for arch in ["gfx942", "gfx1100"] {
        let tests = [
            "gpu::states::states_follow_the_reference_eager_and_replayed",
            "gpu::states::runs_of_several_threads_take_turns",
            "gpu::patterns::captured_integers_are_inputs",
            "gpu::patterns::a_relative_bias_is_learned",
            "gpu::patterns::wrong_memory_is_an_error",
        ];
        passes(arch, "f32,f16,bf16", &tests);
    }
}

/// Tiles of attention with a pattern, with waves of 64 and of 32 lanes. `validate` runs the default tiles.
#[test]
fn tiles_of_patterns_agree_with_the_reference() {
    if !available() {
        return;
    }
    for (arch, dtype) in [("gfx942", "f16"), ("gfx1100", "bf16")] {
        let dtypes = if all() { "f32,f16,bf16" } else { dtype };
        passes(
            arch,
            dtypes,
            &["gpu::patterns::every_tile_agrees_with_the_reference"],
        );
    }
}

/// A cache whose selection is of its own. What is compiled is shared with the other tests.
struct Cache(tempfile::TempDir);

impl Cache {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let kernels = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("emu-cache/kernels");
        std::os::unix::fs::symlink(&kernels, folder.path().join("kernels")).unwrap();
        Self(folder)
    }

    /// Runs the program on gfx942 in bf16 with this cache.
    #[track_caller]
    fn run(&self, arguments: &[&str]) -> String {
        let mut command = command(env!("CARGO_BIN_EXE_hipvit"), "gfx942");
        let output = command
            .args(arguments)
            .args(["--device", "hip", "--dtype", "bf16", "--batch", "2"])
            .env("HIPVIT_CACHE_DIR", self.0.path())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output).to_owned()
    }

    /// Returns the only file of measurements.
    fn selection(&self) -> PathBuf {
        let entries = std::fs::read_dir(self.0.path().join("selection")).unwrap();
        let stored: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        let [file] = &stored[..] else { panic!("{stored:?}") };
        file.clone()
    }
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Returns the first label of each image that `classify --json` wrote.
fn labels(text: &str) -> Vec<Value> {
    let lines = json_lines(text);
    let tops = lines.iter().filter_map(|line| line.get("top"));
    tops.map(|top| top[0]["label"].clone()).collect()
}

/// The tile of attention with a pattern is a choice as others are. Files of versions without tiles are read.
#[test]
fn tuned_tiles_are_kept_and_selected() {
    if !available() {
        return;
    }
    let (cache, model) = (Cache::new(), "tests/golden/hf_swin");
    let classify = || labels(&cache.run(&["classify", "--json", "-m", model, "assets/samples"]));
    let has_tile = |text: &str| cache.run(&["inspect", model, "--kernels"]).contains(text);
    let expected = classify();
    assert!(expected.len() > 5 && !has_tile("(tile "), "{expected:?}");

    let lines = cache.run(&["tune", model, "--json"]);
    let tuned = json_lines(&lines);
    let mut patterns = tuned.iter().filter(|t| t["shape"]["op"] == "pattern_attention");
    // The default tile, and three others.
    assert!(
        patterns.next().is_some_and(|tuned| tuned["candidates"] == 4),
        "{lines}"
    );
    let file = cache.selection();
    let text = std::fs::read_to_string(&file).unwrap();
    let mut json: Value = serde_json::from_str(&text).unwrap();
    let mut set = |kernel: Value| {
        let entries = json["pattern_attention"].as_array_mut().unwrap();
        assert!(!entries.is_empty());
        entries
            .iter_mut()
            .for_each(|entry| entry["kernel"] = kernel.clone());
        std::fs::write(&file, json.to_string()).unwrap();
    };
    let tile = |waves: u32, queries: u32, keys: u32| serde_json::json!({"tile": {"waves": waves, "queries": queries, "keys": keys}});
    set(tile(4, 64, 32));
    assert!(has_tile("attention_pattern (tile 64×32 with 4 waves)"));
    assert_eq!(classify(), expected);
    patterns::attention_has_tile(cache.0.path(), model, "64×32 with 4 waves");
    // gfx942 has no code with two groups of queries per wave.
    set(tile(4, 128, 32));
    assert!(!has_tile("(tile "));
    let (old, _) = text.split_once(",\n\"pattern_attention\"").unwrap();
    std::fs::write(&file, format!("{old}}}")).unwrap();
    assert!(!has_tile("(tile "));
    let json: Value = serde_json::from_str(&cache.run(&["inspect", model, "--json"])).unwrap();
    let kernels = json["kernels"].as_array().unwrap();
    let count = |origin: &str| kernels.iter().filter(|of| of["origin"] == origin).count();
    assert!(count("rule") == 1 && count("tuned") > 1, "{kernels:?}");
}

/// `train --tune` measures the GEMMs of a step, also those of its backward pass. Later runs use the choices.
#[test]
fn kernels_of_a_training_step_are_measured_and_kept() {
    if !available() {
        return;
    }
    let (cache, set) = (Cache::new(), Set::new());
    set.write_recipe("epochs = 1\nbatch = 16\n[schedule]\nwarmup_epochs = 0\n");
    let train = |name: &str, more: &[&str]| {
        let mut arguments = set.arguments(name, more);
        let device = arguments.iter_mut().find(|argument| **argument == *"cpu");
        *device.unwrap() = "hip".into();
        let mut command = command(env!("CARGO_BIN_EXE_hipvit"), "gfx942");
        command.args(arguments).args(["--dtype", "bf16"]);
        let output = command.env("HIPVIT_CACHE_DIR", cache.0.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        (set.log(name).0, stderr(&output).to_owned())
    };
    let (tuned, notes) = train("tuned", &["--tune"]);
    let measured = notes.lines().find(|line| line.contains("which saves"));
    assert!(measured.is_some_and(|line| line.contains("measured ")), "{notes}");
    let text = std::fs::read_to_string(cache.selection()).unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    let linear = json["linear"].as_array().unwrap();
    let has = |layout: &str, preactivation: bool| {
        linear.iter().any(|entry| {
            entry["layout"].as_str().unwrap_or("nt") == layout
                && entry["preactivation"].as_bool().unwrap_or(false) == preactivation
        })
    };
    assert!(
        has("tn", false) && has("nn", false) && has("nn", true) && has("nt", true),
        "{text}"
    );
    let (later, _) = train("later", &[]);
    assert!(
        later.len() == 3 && later == tuned,
        "{later:?}, expected {tuned:?}"
    );
}

/// Later processes use the measurements of `tune`, unless the file is damaged. Results stay within tolerance
/// for every selection.
#[test]
fn tuned_kernels_are_kept_and_selected() {
    if !available() {
        return;
    }
    let cache = Cache::new();
    let run = |arguments: &[&str]| cache.run(arguments);
    let origins = || -> Vec<String> {
        let json: Value = serde_json::from_str(&run(&["inspect", "--json"])).unwrap();
        assert_eq!(json["kernels_note"], Value::Null);
        let kernels = json["kernels"].as_array().unwrap();
        let origins = kernels.iter().filter_map(|k| k["origin"].as_str());
        origins.map(str::to_owned).collect()
    };
    let before = origins();
    assert!(
        before.len() > 4 && before.iter().all(|origin| origin == "rule"),
        "{before:?}"
    );

    let lines = run(&["tune", "--json"]);
    let tuned = json_lines(&lines);
    for op in ["linear", "patch_embedding", "attention"] {
        assert!(tuned.iter().any(|t| t["shape"]["op"] == op), "{op}: {lines}");
    }
    for shape in &tuned {
        // rocBLAS, and both of the emulated hipBLASLt's algorithms; else the crate's own and MIOpen.
        let least = if shape["shape"]["op"] == "linear" { 3 } else { 2 };
        assert!(shape["candidates"].as_u64().unwrap() >= least, "{shape}");
        assert!(
            shape["best_us"].as_f64().unwrap() <= shape["rule_us"].as_f64().unwrap(),
            "{shape}"
        );
    }
    let file = &cache.selection();
    assert!(origins().iter().all(|origin| origin == "tuned"));

    // Each choice, including the slowest, gives the same labels.
    let classify = || run(&["classify", "--json", "assets/samples"]);
    let expected = labels(&classify());
    assert!(expected.len() > 5, "{}", classify());
    let text = std::fs::read_to_string(file).unwrap();
    let mut json: Value = serde_json::from_str(&text).unwrap();
    for kernel in [
        serde_json::json!("rocblas"),
        serde_json::json!({"hipblaslt": {"algorithm": 1, "epilogue": true}}),
        serde_json::json!({"hipblaslt": {"algorithm": 0, "epilogue": false}}),
        serde_json::json!({"hipblaslt": {"algorithm": 99, "epilogue": true}}),
    ] {
        for entry in json["linear"].as_array_mut().unwrap() {
            entry["kernel"] = kernel.clone();
        }
        std::fs::write(file, json.to_string()).unwrap();
        assert_eq!(labels(&classify()), expected, "{kernel}");
    }
    let computed = || run(&["inspect", "--kernels"]).matches("MIOpen ").count();
    for (kernel, miopen) in [("miopen", 2), ("own", 0), ("rocblas", 0)] {
        for op in ["patch_embedding", "attention"] {
            json[op][0]["kernel"] = kernel.into();
        }
        std::fs::write(file, json.to_string()).unwrap();
        assert_eq!(labels(&classify()), expected, "{kernel}");
        assert_eq!(computed(), miopen, "{kernel}");
    }
    // Choices of MIOpen are of its version.
    for op in ["patch_embedding", "attention"] {
        json[op][0]["kernel"] = "miopen".into();
    }
    let libraries = json["libraries"].as_str().unwrap().to_owned();
    assert!(libraries.contains(", MIOpen "), "{libraries}");
    json["libraries"] = format!("{libraries}0").into();
    std::fs::write(file, json.to_string()).unwrap();
    assert_eq!(computed(), 0, "{libraries}0");

    std::fs::write(file, &text[..text.len() / 2]).unwrap();
    assert_eq!(origins(), before, "a damaged file counts as none");
    run(&["tune"]);
    assert!(origins().iter().all(|origin| origin == "tuned"));
}

/// What runs on a GPU: dtypes, and ops or all. To compile all kernels in one dtype takes a minute.
fn scope(arch: &str) -> (&'static [&'static str], Option<&'static [&'static str]>) {
    let matrix = [
        "linear",
        "attention",
        "attention_backward",
        "pattern_attention",
        "pattern_attention_backward",
    ]
    .as_slice();
    match arch {
        "gfx90a" => (&["f16"], Some(matrix)),
        "gfx908" | "gfx950" => (&["bf16"], Some(matrix)),
        "gfx1200" => (&["bf16"], Some(matrix)),
        // gfx1151 has the same instructions, and more.
        "gfx1100" if !all() => (&["f16"], None),
        "gfx1151" | "gfx1201" if !all() => (&["bf16"], None),
        _ => (&["f32", "f16", "bf16"], None),
    }
}

fn validates(arch: &str) {
    let begun = Instant::now();
    // Heads of 64 to 132 channels: each attention kernel, and softmax where there is none.
    let is_whole = all() && arch == "gfx942";
    let configs = if is_whole {
        "micro,small,heads"
    } else {
        "micro,heads"
    };
    let (dtypes, ops) = scope(arch);
    let named = dtypes.join(",");
    let mut arguments = vec![
        "validate", "--device", "hip", "--config", configs, "--dtype", &named,
    ];
    arguments.extend(["--untimed", "--json"]);
    let chosen = ops.map(|ops| ops.join(","));
    if let Some(chosen) = &chosen {
        arguments.extend(["--op", chosen]);
    }
    let output = hipvit(arch, &arguments);
    let text = stdout(&output);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{arch}: {}\n{text}",
        stderr(&output)
    );
    let report: Value = serde_json::from_str(text).unwrap();
    assert!(
        report["device_name"].as_str().unwrap().contains(arch),
        "{}",
        report["device_name"]
    );
    assert_eq!(report["failed"], 0);
    let rows = report["rows"].as_array().unwrap();
    let all_ops = [
        "linear",
        "attention",
        "attention_backward",
        "pattern_attention",
        "pattern_attention_backward",
        "softmax",
        "layer_norm",
        "layer_norm_backward",
        "mat_mul",
        "sum_to_size",
        "loss_backward",
        "l2_norm",
        "adamw",
        "pool",
        "patch_extract",
        "tokens",
    ];
    for &dtype in dtypes {
        for &op in ops.unwrap_or(&all_ops) {
            let passed = |row: &&Value| row["op"] == op && row["dtype"] == dtype && row["status"] == "passed";
            assert!(rows.iter().any(|row| passed(&row)), "{arch}: {op} in {dtype}");
        }
        for head_dim in [64, 80, 96, 128, 132] {
            let form = format!("attention 2×{head_dim} packed-qkv");
            let passed = |row: &&Value| {
                row["form"] == form.as_str() && row["dtype"] == dtype && row["status"] == "passed"
            };
            assert!(rows.iter().any(|row| passed(&row)), "{arch}: {form} in {dtype}");
        }
    }
    let resized = |row: &Value| row["op"] == "resize" && row["status"] == "passed";
    assert!(ops.is_some() || rows.iter().any(resized));
    for row in rows {
        let status = row["status"].as_str().unwrap();
        assert!(status == "passed" || row["reason"].is_string(), "{row}");
        if status == "passed" {
            assert!(
                row["elementwise_error"].as_f64() <= row["tolerance"].as_f64(),
                "{row}"
            );
        }
    }
    println!("{arch} validate: {} rows ({:.1?})", rows.len(), begun.elapsed());
}

fn classifies(arch: &str, dtype: &str) {
    let arguments = [
        "classify", "--device", "hip", "--dtype", dtype, "--json", "--top", "1",
    ];
    let output = hipvit(arch, &arguments);
    assert_eq!(output.status.code(), Some(0), "{arch}: {}", stderr(&output));
    let lines = stdout(&output)
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut images = 0;
    for line in lines {
        let digit = line["image"]
            .as_str()
            .unwrap()
            .chars()
            .find_map(|c| c.to_digit(10))
            .unwrap();
        assert_eq!(line["top"][0]["index"], digit, "{line}");
        assert_eq!(
            (&line["device"], &line["dtype"]),
            (&"hip:0".into(), &dtype.into())
        );
        images += 1;
    }
    assert_eq!(images, 10);
}

#[test]
fn devices_shows_the_emulated_gpus() {
    // Their properties need no tools.
    let output = hipvit("gfx942,gfx1100", &["devices", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: Value = serde_json::from_str(stdout(&output)).unwrap();
    let gpus = report["gpus"].as_array().unwrap();
    let shown: Vec<_> = gpus
        .iter()
        .map(|gpu| {
            let target = gpu["target"].as_str().unwrap();
            (
                target.split(':').next().unwrap(),
                gpu["wave_size"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(shown, [("gfx942", 64), ("gfx1100", 32)]);
    let output = hipvit("none", &["devices"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let output = hipvit("gfx000", &["devices", "--json"]);
    let text = format!("{}{}", stdout(&output), stderr(&output));
    assert!(text.contains("gfx000"), "{text}");
}

/// Each rung runs different kernels: attention as two GEMMs and a softmax, separate activations and
/// residuals.
#[test]
fn the_rungs_of_the_ladder_agree() {
    if !available() {
        return;
    }
    for arch in ["gfx942", "gfx1100"] {
        let more = [
            "--device", "hip", "--dtype", "f16", "--batch", "2", "--ladder", "--json",
        ];
        let output = hipvit(arch, &[&bench::QUICK[..], &more].concat());
        assert_eq!(output.status.code(), Some(0), "{arch}: {}", stderr(&output));
        let rows = bench::rows(&output);
        let rungs = [
            "naive",
            "dtype",
            "fused attention",
            "graph passes",
            "epilogues",
            "memory plan",
            "HIP graphs",
            "selection",
            "overlap",
        ];
        // The first is in f32. A value of f16 goes through about twenty roundings a block, which add up at random.
        let roundings = (20.0 * 6.0 * 2.0f64).sqrt();
        bench::check_ladder(&rows, &rungs, roundings * f64::from(f16::EPSILON));
        assert!(rows.iter().all(|row| row["device"]["kind"] == "emulated"));
        assert!(rows.iter().all(|row| row["peak"]["datasheet_tflops"].is_null()));
    }
}
