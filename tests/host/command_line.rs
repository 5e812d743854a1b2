//! The program as a user runs it: its output and exit codes.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::at;
use crate::support::program::{hipvit, stderr, stdout};

fn json_lines(output: &Output) -> Vec<Value> {
    stdout(output)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

const NAMES: [&str; 10] = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine",
];

#[test]
fn classify_without_arguments_names_the_digit_of_every_sample() {
    let output = hipvit(["classify", "--json", "--logits", "--top", "1"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let lines = json_lines(&output);
    assert_eq!(lines.len(), 10);
    for line in lines {
        let image = line["image"].as_str().unwrap();
        // The samples are named after the digit that they show.
        let digit = image.chars().find_map(|c| c.to_digit(10)).unwrap() as usize;
        assert_eq!(line["top"][0]["index"], digit, "{image}");
        assert_eq!(line["top"][0]["label"], NAMES[digit]);
        assert_eq!(line["top"][0]["logit"], line["logits"][digit]);
        assert_eq!(line["logits"].as_array().unwrap().len(), 10);
        assert_eq!((&line["device"], &line["dtype"]), (&"cpu".into(), &"f32".into()));
    }
}

#[test]
fn one_bad_image_among_good_ones_is_reported_and_the_rest_go_on() {
    let dir = tempfile::tempdir().unwrap();
    for (index, sample) in fs::read_dir(at("assets/samples")).unwrap().take(3).enumerate() {
        fs::copy(sample.unwrap().path(), dir.path().join(format!("{index}.png"))).unwrap();
    }
    fs::write(dir.path().join("1a.png"), b"not an image").unwrap();
    let output = hipvit([
        OsStr::new("classify"),
        dir.path().as_os_str(),
        OsStr::new("--json"),
    ]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(json_lines(&output).len(), 3);
    let (model, rest) = stderr(&output).split_once('\n').unwrap();
    assert!(model.starts_with("note: no model is given"), "{model}");
    let (error, note) = rest.split_once('\n').unwrap();
    assert!(error.contains("1a.png"), "{error}");
    assert_eq!(note, "note: 1 of 4 images failed and are left out\n");
}

#[test]
fn a_pattern_standard_input_and_a_file_give_the_same_logits() {
    let sample = fs::read_dir(at("assets/samples"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("only one.png");
    fs::copy(&sample, &copy).unwrap();
    let by_file = json_lines(&hipvit([
        OsStr::new("classify"),
        OsStr::new("--json"),
        OsStr::new("--logits"),
        copy.as_os_str(),
    ]));
    let pattern = dir.path().join("*.p?g");
    let by_pattern = json_lines(&hipvit([
        OsStr::new("classify"),
        OsStr::new("--json"),
        OsStr::new("--logits"),
        pattern.as_os_str(),
    ]));
    let mut child = Command::new(env!("CARGO_BIN_EXE_hipvit"))
        .args(["classify", "--json", "--logits", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(&fs::read(&sample).unwrap())
        .unwrap();
    let by_stdin = json_lines(&child.wait_with_output().unwrap());
    assert_eq!(by_file[0]["logits"], by_pattern[0]["logits"]);
    assert_eq!(by_file[0]["logits"], by_stdin[0]["logits"]);
    assert_eq!(by_stdin[0]["image"], "-");
}

#[test]
fn colours_need_a_terminal_or_a_wish_and_the_option_wins() {
    let run_with = |more: &[&str], variables: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_hipvit"))
            .args(["classify", "--top", "1"])
            .args(more)
            .env_remove("CLICOLOR_FORCE")
            .env_remove("NO_COLOR")
            .envs(variables.iter().map(|variable| (variable, "1")))
            .output()
            .unwrap()
    };
    let run = |variables: &[&str]| run_with(&[], variables);
    assert!(!stdout(&run(&[])).contains('\x1b'));
    assert!(stdout(&run(&["CLICOLOR_FORCE"])).contains('\x1b'));
    assert!(!stdout(&run(&["CLICOLOR_FORCE", "NO_COLOR"])).contains('\x1b'));
    assert!(stdout(&run_with(&["--color", "always"], &["NO_COLOR"])).contains('\x1b'));
    assert!(!stdout(&run_with(&["--color=never"], &["CLICOLOR_FORCE"])).contains('\x1b'));
    assert!(stdout(&run_with(&["--color=auto"], &["CLICOLOR_FORCE"])).contains('\x1b'));
}

#[test]
fn timing_names_every_phase_and_adds_up_to_a_hundred_per_cent() {
    let output = hipvit(["classify", "--device", "cpu", "--timing"]);
    let text = stderr(&output);
    let (phases, sums): (Vec<&str>, Vec<&str>) = text
        .lines()
        .partition(|line| !["sum", "wall", "in flight"].iter().any(|s| line.starts_with(s)));
    let names: Vec<&str> = phases
        .iter()
        .map(|line| line.split_whitespace().next().unwrap())
        .collect();
    let expected = [
        "decode",
        "resize",
        "stage",
        "patch",
        "QKV",
        "attention",
        "FFN",
        "other",
        "copy-out",
        "softmax",
    ];
    assert_eq!(names, expected, "{text}");
    let share = |line: &&str| -> f64 { line.split_whitespace().rev().nth(1).unwrap().parse().unwrap() };
    let total: f64 = phases.iter().map(share).sum();
    assert!((total - 100.0).abs() < 1.0, "{text}");
    assert_eq!(share(&sums[0]), 100.0);
    assert!(
        sums[1].starts_with("wall") && sums[1].contains("overlap"),
        "{text}"
    );
    assert!(
        sums[2].contains("at most ") && sums[2].contains(" batch"),
        "{text}"
    );

    let output = hipvit(["classify", "--device", "cpu", "--timing", "--json"]);
    let last = json_lines(&output).pop().unwrap();
    let timing = &last["timing"];
    let sum = timing["sum_ms"].as_f64().unwrap();
    let phases = timing["phases_ms"].as_object().unwrap();
    let each: f64 = phases.values().map(|ms| ms.as_f64().unwrap()).sum();
    assert!((each - sum).abs() <= 1e-6 * sum);
    let overlap = sum / timing["wall_ms"].as_f64().unwrap();
    assert!((timing["overlap"].as_f64().unwrap() - overlap).abs() <= 1e-9 * overlap);
}

#[test]
fn embed_prints_a_vector_for_each_image() {
    let output = hipvit([OsStr::new("embed"), at("assets/samples").as_os_str()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let lines = json_lines(&output);
    assert_eq!(lines.len(), 10);
    let width = lines[0]["embedding"].as_array().unwrap().len();
    assert!(width > 10);
    assert!(
        lines
            .iter()
            .all(|line| line["embedding"].as_array().unwrap().len() == width)
    );
}

#[test]
fn embed_prints_tokens_and_hidden_layers_on_request() {
    let sample = at("assets/samples/7.png");
    let embed = |args: &[&str]| {
        let args = args.iter().map(OsStr::new);
        hipvit([OsStr::new("embed"), sample.as_os_str()].into_iter().chain(args))
    };
    let output = embed(&["--tokens", "--layers", "0,1", "--layer", "2"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let line = json_lines(&output).pop().unwrap();
    let size = |value: &Value| {
        let rows = value.as_array().unwrap();
        (
            rows.len(),
            rows.first().map_or(0, |row| row.as_array().unwrap().len()),
        )
    };
    let width = line["embedding"].as_array().unwrap().len();
    let (patches, prefix) = (size(&line["tokens"]), size(&line["prefix_tokens"]));
    assert!(
        patches.0 > prefix.0 && patches.1 == width,
        "{patches:?} {prefix:?}"
    );
    let layers = line["layers"].as_object().unwrap();
    assert_eq!(layers.keys().collect::<Vec<_>>(), ["0", "1", "2"]);
    assert!(
        layers
            .values()
            .all(|layer| size(layer) == (patches.0 + prefix.0, width))
    );
    let plain = json_lines(&embed(&[])).pop().unwrap();
    assert!(plain.get("tokens").is_none() && plain.get("layers").is_none());

    let output = embed(&["--layers", "99"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("block 99"), "{}", stderr(&output));
}

#[test]
fn preprocess_writes_pixel_values() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.safetensors");
    let case = at("tests/golden/timm_vit_class_token");
    let args = [
        OsStr::new("preprocess"),
        at("tests/golden/images/wide.png").as_os_str(),
        OsStr::new("--model"),
        case.as_os_str(),
        OsStr::new("--output"),
        file.as_os_str(),
    ]
    .map(OsStr::to_owned);
    let output = hipvit(args);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let bytes = fs::read(&file).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let values = tensors.tensor("pixel_values").unwrap();
    assert_eq!(
        (values.dtype(), values.shape()),
        (safetensors::Dtype::F32, &[1, 3, 48, 48][..])
    );
}

#[test]
fn wrong_usage_exits_with_two() {
    for args in [
        &["classify", "--top", "0"][..],
        &["classify", "--device", "abacus"],
        &["classify", "-", "-"],
        &["classify", "--model", "dir"],
        &["embed"],
        &["frobnicate"],
        &[],
    ] {
        assert_eq!(hipvit(args).status.code(), Some(2), "{args:?}");
    }
}

#[test]
#[cfg(not(feature = "serve"))]
fn the_feature_of_a_missing_subcommand_is_named() {
    let output = hipvit(["serve"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("--features serve"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn every_shell_gets_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = hipvit(["completions", shell]);
        assert!(stdout(&output).contains("COMPLETE"), "{shell}");
    }
}

#[test]
fn inspect_shows_the_memory_of_weights_in_16_bits_on_the_cpu() {
    let inspect = |dtype| {
        let output = hipvit(["inspect", "--dtype", dtype, "--json"]);
        let report: Value = serde_json::from_str(stdout(&output)).unwrap();
        // Activations are in f32 in each case.
        assert_eq!(report["dtype"], "f32");
        assert_eq!(report["cpu_weights"]["dtype"], dtype);
        report["cpu_weights"]["bytes"].as_u64().unwrap()
    };
    let [full, f16, bf16] = ["f32", "f16", "bf16"].map(inspect);
    assert_eq!(f16, bf16);
    // Each weight of the patch embedding, of four blocks (QKV, projection, FC1, FC2) and of the head has two
    // bytes less.
    let weights = 48 * 64 + 4 * 64 * (192 + 64 + 128 + 128) + 64 * 10;
    assert_eq!(full - f16, 2 * weights);
    let output = hipvit(["inspect", "--dtype", "bf16"]);
    assert!(
        stdout(&output).contains("MiB on the CPU in bf16"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn inspect_shows_the_graph_the_plan_and_the_parameters_and_draws() {
    let dir = tempfile::tempdir().unwrap();
    let svg = dir.path().join("arena.svg");
    let model = at("tests/golden/timm_vit_class_token");
    let args = [
        OsStr::new("inspect"),
        model.as_os_str(),
        OsStr::new("--graph"),
        OsStr::new("--plan"),
        OsStr::new("--parameters"),
        OsStr::new("--plot"),
        svg.as_os_str(),
    ];
    let output = hipvit(args);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for part in ["linear+bias+gelu", "blocks.0.attn.qkv.weight", "offset KiB"] {
        assert!(
            stdout(&output).contains(part),
            "{part} is not in:\n{}",
            stdout(&output)
        );
    }
    let drawing = fs::read_to_string(&svg).unwrap();
    assert!(drawing.contains("<svg") && drawing.contains("<rect"));
    let output = hipvit([OsStr::new("inspect"), OsStr::new("--json"), model.as_os_str()]);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    for part in ["before", "passes", "after", "steps", "parameters"] {
        assert!(!value[part].as_array().unwrap().is_empty(), "{part}");
    }
    let bytes = |key: &str| value["memory"][key].as_u64().unwrap();
    assert!(0 < bytes("arena_bytes") && bytes("arena_bytes") < bytes("without_reuse_bytes"));
}

#[test]
fn a_line_of_json_has_the_documented_keys_in_order() {
    let sample = at("assets/samples/7.png");
    let classify = |more: &[&str]| {
        let args = [OsStr::new("classify"), OsStr::new("--json"), sample.as_os_str()];
        let output = hipvit(args.into_iter().chain(more.iter().map(AsRef::as_ref)));
        stdout(&output).to_owned()
    };
    assert!(!classify(&[]).contains("logits"));
    let embed = hipvit([OsStr::new("embed"), sample.as_os_str()]);
    for (line, keys) in [
        (
            classify(&["--logits"]),
            &[
                "image",
                "model",
                "device",
                "dtype",
                "logits",
                "top",
                "index",
                "label",
                "logit",
                "probability",
            ][..],
        ),
        (
            stdout(&embed).to_owned(),
            &["image", "model", "device", "dtype", "embedding"],
        ),
    ] {
        let places: Vec<Option<usize>> = keys.iter().map(|key| line.find(&format!("\"{key}\":"))).collect();
        assert!(places[0] == Some(1) && places.is_sorted(), "{places:?} in {line}");
        assert_eq!(line.lines().count(), 1);
    }
}

#[cfg(unix)]
#[test]
fn a_directory_with_broken_links_and_loops_gives_its_images_still() {
    use std::os::unix::fs::symlink;
    let dir = tempfile::tempdir().unwrap();
    fs::copy(at("assets/samples/7.png"), dir.path().join("seven.png")).unwrap();
    fs::create_dir(dir.path().join("below")).unwrap();
    symlink(dir.path(), dir.path().join("below/loop")).unwrap();
    symlink("nowhere", dir.path().join("gone.png")).unwrap();
    symlink("nowhere", dir.path().join("not an image")).unwrap();
    let output = hipvit([
        OsStr::new("classify"),
        OsStr::new("--json"),
        OsStr::new("-q"),
        dir.path().as_os_str(),
    ]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(json_lines(&output).len(), 1);
    let errors = stderr(&output);
    assert_eq!(errors.lines().count(), 2, "{errors}");
    assert!(
        errors.contains("gone.png: No such file") && errors.contains("loop"),
        "{errors}"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn output_that_nobody_takes_is_an_error_or_the_end() {
    let run = |args: &[&str], to: Stdio| {
        let output = Command::new(env!("CARGO_BIN_EXE_hipvit"))
            .args(args)
            .stdout(to)
            .output()
            .unwrap();
        (output.status.code(), stderr(&output).to_owned())
    };
    for args in [
        &["classify"][..],
        &["embed", "-q", "assets/samples/7.png"],
        &["eval"],
        &["inspect", "--json"],
        &["bench", "--runs", "1", "--no-peaks"],
        &["completions", "bash"],
    ] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let (code, errors) = run(args, full.into());
        assert_eq!(code, Some(1), "{args:?}\n{errors}");
        assert!(
            errors.contains("standard output: No space left"),
            "{args:?}\n{errors}"
        );
        assert_eq!(errors.lines().count(), 1, "{args:?}\n{errors}");
        // A pipe with a closed reader.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        assert_eq!(run(args, writer.into()), (Some(0), String::new()), "{args:?}");
    }
}

/// If standard error cannot be written, only the messages are lost. A thread that cannot start is an error.
#[cfg(target_os = "linux")]
#[test]
fn errors_that_nobody_takes_and_threads_that_cannot_start_are_no_panics() {
    let run = |args: &[&str]| {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_hipvit"));
        command.args(args).stdin(Stdio::null()).stderr(full);
        command.output().unwrap().status.code()
    };
    assert_eq!(run(&["classify", "--timing"]), Some(0));
    assert_eq!(run(&["classify", "nothere.png"]), Some(1));
    assert_eq!(run(&["classify", "--unknown"]), Some(2));
    for args in [
        &["classify"][..],
        &["eval"],
        &["validate", "--op", "pool", "--config", "micro", "--untimed"],
        &["bench", "--runs", "1", "--no-peaks", "--in-flight", "2"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_hipvit"))
            .args(args)
            // More than the address space.
            .env("RUST_MIN_STACK", "100000000000000")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let errors = stderr(&output);
        assert!(
            errors.contains("threads: ") && !errors.contains("panicked"),
            "{args:?}\n{errors}"
        );
    }
}

/// NaN weights are reported, and JSON has null for the results.
#[test]
fn weights_and_results_that_are_no_numbers_are_told_of() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(at("assets/tinyvit32").join(file), folder.path().join(file)).unwrap();
    }
    let weights = folder.path().join("model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    let (header, metadata) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    // The second tensor is checked when it is prepacked.
    for (name, value) in [
        ("fc_norm.weight", f32::NAN),
        ("blocks.3.mlp.fc2.weight", f32::NEG_INFINITY),
    ] {
        let (begin, _) = metadata.info(name).unwrap().data_offsets;
        bytes[8 + header + begin..][..4].copy_from_slice(&value.to_le_bytes());
    }
    fs::write(&weights, bytes).unwrap();
    let run = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hipvit"));
        command
            .arg("classify")
            .arg(at("assets/samples/7.png"))
            .arg("--model")
            .arg(folder.path());
        command.args(more).output().unwrap()
    };
    let output = run(&["--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(json_lines(&output)[0]["logits"][0].is_null());
    for told in [
        "`fc_norm.weight`: 1 of 64 values",
        "`blocks.3.mlp.fc2.weight`: 1 of 8192 values",
        "7.png: `logits`: 10 of 10 values",
    ] {
        assert!(stderr(&output).contains(told), "{}", stderr(&output));
    }
    let output = run(&["--strict"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("tensor `blocks.3.mlp.fc2.weight`"),
        "{}",
        stderr(&output)
    );
}
