//! Models by their name on the Hugging Face hub, from a local cache in the layout of the hub's library.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::at;
use crate::support::program::{stderr, stdout};

/// Creates a cache with a golden model, where every file is a link to a blob.
fn cache(root: &Path, id: &str, golden: &str) -> PathBuf {
    let folder = root.join(format!("models--{}", id.replace('/', "--")));
    let snapshot = folder.join("snapshots/0123abcd");
    for directory in [&snapshot, &folder.join("refs"), &folder.join("blobs")] {
        fs::create_dir_all(directory).unwrap();
    }
    fs::write(folder.join("refs/main"), "0123abcd").unwrap();
    for (index, entry) in fs::read_dir(at("tests/golden").join(golden)).unwrap().enumerate() {
        let entry = entry.unwrap();
        let blob = format!("blob{index}");
        fs::copy(entry.path(), folder.join("blobs").join(&blob)).unwrap();
        let link = snapshot.join(entry.file_name());
        std::os::unix::fs::symlink(Path::new("../../blobs").join(blob), link).unwrap();
    }
    snapshot
}

fn run(cache: &Path, directory: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hipvit"))
        .args(args)
        .current_dir(directory)
        .env("HF_HUB_CACHE", cache)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Returns the JSON that `inspect` prints of the model.
fn inspect(cache: &Path, directory: &Path, model: &str) -> Value {
    let output = run(cache, directory, &["inspect", model, "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    serde_json::from_str(stdout(&output)).unwrap()
}

/// Returns the error of a model that cannot be loaded. `DIR` replaces the cache's path.
fn refusal(cache: &Path, directory: &Path, model: &str) -> String {
    let output = run(cache, directory, &["embed", "x.png", "-m", model]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    stderr(&output).replace(cache.to_str().unwrap(), "DIR")
}

#[test]
fn a_model_is_found_by_its_name_on_the_hub_and_called_so() {
    let root = tempfile::tempdir().unwrap();
    let (cached, here) = (root.path().join("hub"), root.path().join("here"));
    fs::create_dir_all(&here).unwrap();
    let snapshot = cache(&cached, "someone/vit-tiny", "hf_vit");
    let image = at("tests/golden/images/small.png");
    let image = image.to_str().unwrap();
    let classify = |model: &str| -> Value {
        let output = run(
            &cached,
            &here,
            &["classify", image, "--json", "--device", "cpu", "-m", model],
        );
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        serde_json::from_str(stdout(&output)).unwrap()
    };
    let folder = cached.join("models--someone--vit-tiny");
    for model in [
        "someone/vit-tiny",
        "hf-hub:someone/vit-tiny",
        "someone/vit-tiny@main",
        "someone/vit-tiny@0123abcd",
        snapshot.to_str().unwrap(),
        folder.to_str().unwrap(),
    ] {
        let line = classify(model);
        assert_eq!(line["model"], "someone/vit-tiny", "{model}");
    }
    let by_path = classify(at("tests/golden/hf_vit").to_str().unwrap());
    assert_eq!(by_path["model"], "hf_vit");
    assert_eq!(by_path["top"], classify("someone/vit-tiny")["top"]);

    // A directory takes precedence over the cache.
    let directory = here.join("someone/vit-tiny");
    fs::create_dir_all(&directory).unwrap();
    for entry in fs::read_dir(at("tests/golden/timm_deit")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), directory.join(entry.file_name())).unwrap();
    }
    assert_eq!(
        inspect(&cached, &here, "someone/vit-tiny")["info"]["library"],
        "timm"
    );
    assert_eq!(
        inspect(&cached, &here, "hf-hub:someone/vit-tiny")["info"]["library"],
        "transformers"
    );
}

#[test]
fn what_the_cache_lacks_is_said_with_the_command() {
    let root = tempfile::tempdir().unwrap();
    let cached = root.path().join("hub");
    let refused = |model: &str| refusal(&cached, root.path(), model);
    let absent = refused("someone/vit-tiny");
    assert!(
        absent
            .contains("not in the Hugging Face cache (DIR). Download it with: hipvit pull someone/vit-tiny"),
        "{absent}"
    );

    let snapshot = cache(&cached, "someone/vit-tiny", "hf_vit");
    let without = |file: &str| {
        let kept = root.path().join("kept");
        fs::rename(snapshot.join(file), &kept).unwrap();
        let text = refused("someone/vit-tiny");
        fs::rename(kept, snapshot.join(file)).unwrap();
        text
    };
    for file in ["config.json", "model.safetensors", "preprocessor_config.json"] {
        let expected = format!(
            "error: someone/vit-tiny: its snapshot in the cache (DIR/models--someone--vit-tiny/snapshots/0123abcd) is missing \
             {file}. Download it with: hipvit pull someone/vit-tiny\n"
        );
        assert_eq!(without(file), expected);
    }
    // A link whose blob was deleted.
    let blob = snapshot.join(fs::read_link(snapshot.join("model.safetensors")).unwrap());
    fs::remove_file(blob).unwrap();
    let text = refused("someone/vit-tiny");
    assert!(
        text.contains("has only a broken link for model.safetensors. Download it with"),
        "{text}"
    );

    // A shard of several.
    let snapshot = cache(&cached, "someone/sharded", "hf_vit_sharded");
    let shard = "model-00002-of-00003.safetensors";
    fs::remove_file(snapshot.join(shard)).unwrap();
    let text = refused("someone/sharded");
    assert!(
        text.contains(&format!(
            "is missing {shard}. Download it with: hipvit pull someone/sharded"
        )),
        "{text}"
    );

    // No model at all: a name that no hub could have.
    let text = refused("vit_base_patch16_224");
    assert!(
        text.contains("no such directory or file; on the Hugging Face hub it is timm/vit_base_patch16_224"),
        "{text}"
    );
}

/// transformers uses the base model that the adapter names on the hub, whatever else the repository contains.
#[test]
fn an_adapter_on_the_hub_is_applied_to_its_base_model_and_not_to_its_own() {
    let root = tempfile::tempdir().unwrap();
    let cached = root.path().join("hub");
    cache(&cached, "org/base", "hf_vit");
    let snapshot = cache(&cached, "org/adapter", "hf_vit");
    fs::write(snapshot.join("config.json"), r#"{"model_type": "bert"}"#).unwrap();
    fs::write(snapshot.join("model.safetensors"), "no weights").unwrap();
    let adapter = at("tests/golden/adapters/vit_plain");
    fs::copy(
        adapter.join("adapter_model.safetensors"),
        snapshot.join("adapter_model.safetensors"),
    )
    .unwrap();
    let config = fs::read_to_string(adapter.join("adapter_config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["base_model_name_or_path"] = "org/base".into();
    fs::write(snapshot.join("adapter_config.json"), config.to_string()).unwrap();
    let output = run(&cached, root.path(), &["inspect", "org/adapter"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("merged into"), "{}", stdout(&output));
    // A local directory keeps its model.
    let output = run(&cached, root.path(), &["inspect", snapshot.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
}
