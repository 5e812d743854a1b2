//! `hipvit train` on pairs of images and captions.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use rustix::process::Signal;
use safetensors::SafeTensors;
use serde_json::Value;
use tempfile::TempDir;

use super::{assert_success, end_by};
use crate::support::at;
use crate::support::digit_folders::write_digits;
use crate::support::program::{hipvit, stderr, stdout};

const DIGITS: [&str; 3] = ["zero", "one", "two"];

/// A dataset of three digits with captions, as lists in a directory.
struct Pairs {
    directory: TempDir,
}

impl Pairs {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let pairs = Self { directory };
        for (split, skip, each) in [("train", 0, 16), ("val", 16, 8)] {
            write_digits(&pairs.path(&format!("data/{split}")), 3, skip, each);
            pairs.write_list(split, &pairs.lines(split));
        }
        let recipe = "epochs = 8\nbatch = 16\n[loss]\nkind = \"contrastive\"\nlabel_smoothing = 0.0\n[optimizer]\nlr = 5e-3\n[schedule]\nwarmup_epochs = 1\n";
        fs::write(pairs.path("recipe.toml"), recipe).unwrap();
        pairs
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the lines of the images of a split.
    fn lines(&self, split: &str) -> String {
        let mut lines = String::new();
        for (digit, word) in DIGITS.iter().enumerate() {
            let folder = format!("{split}/{digit}");
            let mut files: Vec<PathBuf> = fs::read_dir(self.path("data").join(&folder))
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .collect();
            files.sort();
            for file in files {
                let name = file.file_name().unwrap().to_string_lossy();
                writeln!(lines, "{folder}/{name},a photo of the {word}").unwrap();
            }
        }
        lines
    }

    fn write_list(&self, split: &str, lines: &str) {
        let text = format!("filepath,title\n{lines}");
        fs::write(self.path("data").join(format!("{split}.csv")), text).unwrap();
    }

    fn arguments(&self, name: &str, model: &Path, more: &[&str]) -> Vec<std::ffi::OsString> {
        let mut arguments = vec!["train".into(), self.path("data").into()];
        arguments.extend(["--device", "cpu", "--threads", "2", "--log-every", "1", "-o"].map(Into::into));
        arguments.push(self.path(name).into());
        arguments.extend(more.iter().map(Into::into));
        if !more.contains(&"--resume") {
            arguments.extend(["-m".into(), model.into()]);
        }
        if !more.contains(&"--resume") && !more.contains(&"--recipe") {
            arguments.extend(["--recipe".into(), self.path("recipe.toml").into()]);
        }
        arguments
    }

    fn train(&self, name: &str, model: &Path, more: &[&str]) -> Output {
        hipvit(self.arguments(name, model, more))
    }

    fn refused(&self, model: &Path, more: &[&str], reasons: &[&str]) {
        let output = self.train("refused", model, more);
        assert_ne!(output.status.code(), Some(0));
        for reason in reasons {
            assert!(stderr(&output).contains(reason), "{reason}: {}", stderr(&output));
        }
        let _ = fs::remove_dir_all(self.path("refused"));
    }

    fn log(&self, name: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.path(name).join("log.jsonl")).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

fn model(name: &str) -> PathBuf {
    at("tests/golden/zero_shot").join(name)
}

/// Returns the names of the tensors that differ in two files.
fn changed(one: &Path, other: &Path) -> Vec<String> {
    let [one, other] = [one, other].map(|file| fs::read(file).unwrap());
    let [one, other] = [&one, &other].map(|bytes| SafeTensors::deserialize(bytes).unwrap());
    let mut names: Vec<String> = one
        .tensors()
        .into_iter()
        .filter(|(name, view)| other.tensor(name).unwrap().data() != view.data())
        .map(|(name, _)| name)
        .collect();
    names.sort();
    names
}

#[test]
fn both_towers_learn_and_a_resumed_run_has_the_bits_of_an_uninterrupted_one() {
    let pairs = Pairs::new();
    let clip = model("hf_clip");
    assert_success(&pairs.train("whole", &clip, &[]));
    let log = pairs.log("whole");
    let losses: Vec<f64> = log
        .iter()
        .filter(|line| line["event"] == "epoch")
        .map(|line| line["loss"].as_f64().unwrap())
        .collect();
    assert!(losses.len() == 8 && losses[7] < 0.9 * losses[0], "{losses:?}");
    let last = log.last().unwrap();
    for key in [
        "image_to_text_1",
        "image_to_text_5",
        "text_to_image_1",
        "text_to_image_5",
    ] {
        let share = last["recall"][key].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&share), "{last}");
    }
    // There are three captions.
    assert_eq!(last["recall"]["image_to_text_5"], 1.0);
    assert_eq!(last["recall"]["image_to_text_1"], last["val_accuracy"]);
    let report = fs::read_to_string(pairs.path("whole/report.html")).unwrap();
    assert!(report.contains("Recall in %") && report.contains("a photo of the two"));

    // All tensors of both towers are trained, and the tokenizer is there.
    let weights = |run: &str| pairs.path(run).join("model/model.safetensors");
    let untrained = clip.join("model.safetensors");
    let changed = changed(&untrained, &weights("whole"));
    let bytes = fs::read(&untrained).unwrap();
    let all = SafeTensors::deserialize(&bytes).unwrap();
    // Biases of keys have no gradient but rounding errors, which AdamW takes for one.
    assert_eq!(changed.len(), all.names().len(), "{changed:?}");

    end_by(
        Signal::INT,
        pairs.arguments("parts", &clip, &[]),
        &pairs.path("parts/log.jsonl"),
        5,
    );
    assert_success(&pairs.train("parts", &clip, &["--resume"]));
    assert_eq!(
        fs::read(weights("parts")).unwrap(),
        fs::read(weights("whole")).unwrap()
    );
    let figures = |name: &str| -> Vec<(Value, Value)> {
        let log = pairs.log(name);
        log.iter()
            .map(|line| (line["loss"].clone(), line["recall"].clone()))
            .collect()
    };
    assert_eq!(figures("parts"), figures("whole"));

    // Captions classify images, without a classifier.
    let (image, model) = (pairs.path("data/val/1/17.png"), pairs.path("whole/model"));
    let texts = ["--text", "a photo of the zero", "--text", "a photo of the one"];
    let mut arguments = vec!["classify".as_ref(), image.as_os_str(), "--json".as_ref()];
    arguments.extend(["-m".as_ref(), model.as_os_str()]);
    arguments.extend(texts.map(std::ffi::OsStr::new));
    let output = hipvit(arguments);
    assert_success(&output);
    let text = stdout(&output);
    let place = |caption: &str| text.find(caption).unwrap_or(usize::MAX);
    assert!(
        place("a photo of the one") < place("a photo of the zero"),
        "{text}"
    );
}

#[test]
fn a_frozen_tower_keeps_its_weights_and_models_keep_their_form() {
    let pairs = Pairs::new();
    let clip = model("hf_clip");
    for (tower, own, other) in [("image", "vision", "text"), ("text", "text", "vision")] {
        let arguments = ["--freeze", tower, "--epochs", "1"];
        assert_success(&pairs.train(tower, &clip, &arguments));
        let file = pairs.path(tower).join("model/model.safetensors");
        let changed = changed(&clip.join("model.safetensors"), &file);
        let own = format!("{own}_model.");
        assert!(!changed.iter().any(|name| name.starts_with(&own)), "{changed:?}");
        let other = format!("{other}_model.");
        assert!(changed.iter().any(|name| name.starts_with(&other)), "{changed:?}");
        assert!(changed.contains(&"logit_scale".to_owned()), "{changed:?}");
    }
    // open_clip's form, and SigLIP with its bias.
    assert_success(&pairs.train("open", &model("open_clip"), &["--epochs", "1"]));
    let mut files: Vec<String> = fs::read_dir(pairs.path("open/model"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    let expected = [
        "open_clip_config.json",
        "open_clip_model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ];
    assert_eq!(files, expected);
    assert_success(&pairs.train("siglip", &model("hf_siglip"), &["--epochs", "1", "--lora", "2"]));
    let changed = changed(
        &model("hf_siglip").join("model.safetensors"),
        &pairs.path("siglip/model/model.safetensors"),
    );
    let has = |part: &str| changed.iter().any(|name| name.contains(part));
    assert!(has("logit_bias") && has("text_model.encoder.layers.1") && has("vision_model.encoder.layers.0"));
    assert!(!has("token_embedding") && !has("patch_embedding"), "{changed:?}");
    assert!(pairs.path("siglip/adapter/adapter_model.safetensors").is_file());
}

#[test]
fn what_is_wrong_with_pairs_is_named() {
    let pairs = Pairs::new();
    let clip = model("hf_clip");
    let train = pairs.lines("train");
    pairs.write_list("train", &format!("{train}train/0/missing.png,a photo\n"));
    pairs.refused(
        &clip,
        &["--batch", "49"],
        &["train/0/missing.png", "No such file"],
    );
    let output = pairs.train("skipped", &clip, &["--skip-broken", "--epochs", "1"]);
    assert!(stderr(&output).contains("missing.png"), "{}", stderr(&output));
    pairs.write_list("train", &format!("{train}train/0/01.png, \n"));
    pairs.refused(&clip, &[], &["train.csv: line 50: the caption is empty"]);
    pairs.write_list("train", "");
    pairs.refused(&clip, &[], &["train.csv: has no pairs"]);
    let long = "people ".repeat(40);
    pairs.write_list("train", &format!("{train}train/0/01.png,{long}\n"));
    let output = pairs.train("long", &clip, &["--epochs", "1"]);
    assert_success(&output);
    assert!(
        stderr(&output).contains("1 captions are longer than the model's context"),
        "{}",
        stderr(&output)
    );
    pairs.write_list("train", &train);
    pairs.refused(
        &at("assets/tinyvit32"),
        &[],
        &["no text tower", "CLIP and SigLIP"],
    );
    pairs.refused(&clip, &["--recipe", "fine-tune"], &["loss.kind", "recipe pairs"]);
    pairs.refused(&clip, &["--freeze", "2"], &["freeze", "image or text"]);
    pairs.refused(
        &clip,
        &["--accumulate", "2"],
        &["accumulate", "all pairs of a batch"],
    );
    pairs.refused(&clip, &["--qat"], &["quantization.kind"]);
    let data = pairs.path("data");
    let probe = [
        "probe".as_ref(),
        data.as_os_str(),
        "-m".as_ref(),
        clip.as_os_str(),
    ];
    let output = hipvit(probe);
    assert!(
        stderr(&output).contains("captions in place of classes"),
        "{}",
        stderr(&output)
    );
    // Changed captions are not those of the run.
    assert_success(&pairs.train("run", &clip, &["--epochs", "1"]));
    pairs.write_list("train", &train.replace("photo", "picture"));
    let output = pairs.train("run", &clip, &["--resume"]);
    assert!(
        stderr(&output).contains("the classes differ"),
        "{}",
        stderr(&output)
    );
}
