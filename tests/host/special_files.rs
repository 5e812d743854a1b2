//! FIFOs, devices and directories in place of a regular file give an immediate error with their name.
//! Otherwise a FIFO would block, and a device would never end.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::at;
use crate::support::program::stderr;

/// Time limit. Without the check, the commands would not end at all.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs `hipvit` in `folder`. Fails if it does not end.
fn run(folder: &Path, args: &[&str]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_hipvit"))
        .args(args)
        .current_dir(folder)
        .env("HF_HUB_CACHE", folder.join("hub"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > LIMIT {
            child.kill().unwrap();
            panic!("{args:?} does not end");
        }
        thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

/// Expects one line with the file and its kind.
fn refused(folder: &Path, args: &[&str], file: &str, kind: &str) {
    let output = run(folder, args);
    let text = stderr(&output);
    assert!(
        output.status.code().is_some_and(|code| code != 0),
        "{args:?}: {text}"
    );
    assert!(text.contains(file) && text.contains(kind), "{args:?}: {text}");
    assert!(!text.contains("panicked"), "{text}");
}

fn fifo(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Puts different special files at `path`, and expects `args` to be refused.
fn each_kind_is_refused(folder: &Path, path: &str, args: &[&str]) {
    let place = folder.join(path);
    let _ = fs::remove_file(&place);
    fifo(&place);
    refused(folder, args, path, "is a FIFO, not a regular file");
    fs::remove_file(&place).unwrap();
    symlink("/dev/zero", &place).unwrap();
    refused(folder, args, path, "is a device, not a regular file");
    fs::remove_file(&place).unwrap();
}

#[test]
fn rows_to_compare_come_from_files() {
    let folder = tempfile::tempdir().unwrap();
    each_kind_is_refused(folder.path(), "rows.jsonl", &["compare", "rows.jsonl"]);
    refused(folder.path(), &["compare", "."], ".", "is a directory");
    let long = fs::File::create(folder.path().join("long.jsonl")).unwrap();
    long.set_len(1 << 40).unwrap();
    refused(
        folder.path(),
        &["compare", "long.jsonl"],
        "long.jsonl",
        "is longer than 256 MiB",
    );
}

#[test]
fn references_in_the_cache_are_files() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("hub/models--someone--vit");
    fs::create_dir_all(model.join("snapshots/0123")).unwrap();
    let args = ["inspect", "someone/vit"];
    each_kind_is_refused(folder.path(), "hub/models--someone--vit/refs/main", &args);
}

#[test]
fn configurations_and_tokenizers_are_files() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    fs::create_dir(&model).unwrap();
    for entry in fs::read_dir(at("tests/golden/zero_shot/hf_clip")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), model.join(entry.file_name())).unwrap();
    }
    let image = at("tests/golden/images/small.png");
    let args = [
        "classify",
        image.to_str().unwrap(),
        "--model",
        "model",
        "--device",
        "cpu",
        "--text",
        "a",
        "b",
    ];
    let kept = |name: &str| fs::read(model.join(name)).unwrap();
    for name in ["tokenizer.json", "tokenizer_config.json", "config.json"] {
        let content = kept(name);
        each_kind_is_refused(folder.path(), &format!("model/{name}"), &args);
        fs::write(model.join(name), content).unwrap();
    }
    // In the program, too, a panic of the tokenizer's library is one line.
    let mut tokenizer: serde_json::Value = serde_json::from_slice(&kept("tokenizer.json")).unwrap();
    tokenizer["pre_tokenizer"] = json!({"type": "FixedLength", "length": 0});
    fs::write(model.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let mut config: serde_json::Value = serde_json::from_slice(&kept("tokenizer_config.json")).unwrap();
    config["tokenizer_class"] = "TokenizersBackend".into();
    fs::write(model.join("tokenizer_config.json"), config.to_string()).unwrap();
    let output = run(folder.path(), &args);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    assert!(stderr(&output).contains("tokenizer.json"), "{}", stderr(&output));
}

#[test]
fn partial_results_are_files() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(at("tests/golden/images/small.png"), folder.path().join("a.png")).unwrap();
    for more in [&[][..], &["--resume"]] {
        let args = [&["embed", "a.png", "-o", "out.csv"], more].concat();
        each_kind_is_refused(folder.path(), "out.csv.partial", &args);
    }
}
