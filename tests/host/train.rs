//! `hipvit train` on small sets of handwritten digits.

mod boxes;
mod keys;
mod maps;
mod pairs;
mod rounded;
mod texts;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::Signal;
use safetensors::SafeTensors;
use serde_json::{Value, json as value};
use tempfile::TempDir;

use crate::support::at;
use crate::support::digit_folders::write_digits;
use crate::support::html::elements;
use crate::support::program::{hipvit, json, stderr, stdout};

/// A small model, three classes of digits, and a recipe.
pub(crate) struct Set {
    directory: TempDir,
}

impl Set {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        write_digits(&directory.path().join("data/train"), 3, 0, 16);
        write_digits(&directory.path().join("data/val"), 3, 16, 8);
        let set = Self { directory };
        let config = value!({
            "architecture": "vit_tiny_patch16_224",
            "model_args": {
                "img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 1, "num_heads": 2, "mlp_ratio": 2,
                "class_token": false, "global_pool": "avg"
            },
            "pretrained_cfg": {
                "input_size": [3, 32, 32], "interpolation": "bicubic", "crop_pct": 1.0,
                "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]
            }
        });
        fs::write(set.path("config.json"), config.to_string()).unwrap();
        set.write_recipe("epochs = 40\nbatch = 16\n[optimizer]\nlr = 1e-2\n[schedule]\nwarmup_epochs = 1\n[augmentation]\ncrop = \"padded\"\npadding = 1\n");
        set
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn write_recipe(&self, text: &str) {
        fs::write(self.path("recipe.toml"), text).unwrap();
    }

    /// Returns the arguments of a run with the output directory `name`.
    pub(crate) fn arguments(&self, name: &str, more: &[&str]) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["train".into(), self.path("data").into()];
        arguments.extend(["--device", "cpu", "--threads", "2", "--log-every", "1", "-o"].map(OsString::from));
        arguments.push(self.path(name).into());
        arguments.extend(more.iter().map(OsString::from));
        if !more.contains(&"--resume") {
            arguments.extend(["-m".into(), self.path("config.json").into()]);
            arguments.extend(["--recipe".into(), self.path("recipe.toml").into()]);
        }
        arguments
    }

    pub(crate) fn train(&self, name: &str, more: &[&str]) -> Output {
        hipvit(self.arguments(name, more))
    }

    /// Trains until the log has `steps` steps more than now, then sends the signal.
    fn end_by(&self, signal: Signal, name: &str, steps: usize, more: &[&str]) {
        // A resumed run removes the steps after its checkpoint.
        let steps = steps + self.checkpoints(name).last().map_or(0, |&step| step as usize);
        let log = self.path(name).join("log.jsonl");
        end_by(signal, self.arguments(name, more), &log, steps);
    }

    /// Continues a run that cannot write files of more than `kilobytes`.
    fn resume_with_file_limit(&self, name: &str, kilobytes: u64) -> Output {
        Command::new("bash")
            // A write beyond the limit is an error, and no signal.
            .args(["-c", "trap '' XFSZ; ulimit -f \"$0\"; exec \"$@\""])
            .arg(kilobytes.to_string())
            .arg(env!("CARGO_BIN_EXE_hipvit"))
            .args(self.arguments(name, &["--resume"]))
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// Returns the steps of the checkpoints, in order.
    fn checkpoints(&self, name: &str) -> Vec<u64> {
        let Ok(entries) = fs::read_dir(self.path(name).join("checkpoints")) else {
            return Vec::new();
        };
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut steps: Vec<u64> = names
            .filter_map(|name| name.strip_prefix("step-")?.parse().ok())
            .collect();
        steps.sort_unstable();
        steps
    }

    /// Returns the steps of a log with their losses, and the validation accuracy of each epoch.
    pub(crate) fn log(&self, name: &str) -> (Vec<(u64, f64)>, Vec<f64>) {
        let text = fs::read_to_string(self.path(name).join("log.jsonl")).unwrap();
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let of = |event: &'static str| lines.iter().filter(move |line| line["event"] == event);
        let steps = of("step").map(|line| (line["step"].as_u64().unwrap(), line["loss"].as_f64().unwrap()));
        let accuracies = of("epoch").map(|line| line["val_accuracy"].as_f64().unwrap());
        (steps.collect(), accuracies.collect())
    }

    /// Returns the first line of a log.
    fn memory(&self, name: &str) -> Value {
        let text = fs::read_to_string(self.path(name).join("log.jsonl")).unwrap();
        let line: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!(line["event"], "memory");
        line
    }

    /// Returns the number of TensorBoard's event files.
    fn event_files(&self, name: &str) -> usize {
        let entries = fs::read_dir(self.path(name)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names
            .filter(|name| name.starts_with("events.out.tfevents."))
            .count()
    }

    pub(crate) fn weights(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name).join("model/model.safetensors")).unwrap()
    }
}

/// Runs the program until a log has `steps` steps, then sends the signal.
fn end_by(signal: Signal, arguments: Vec<OsString>, log: &Path, steps: usize) {
    let logged = || {
        fs::read_to_string(log)
            .unwrap_or_default()
            .matches("\"event\":\"step\"")
            .count()
    };
    let mut child = Command::new(env!("CARGO_BIN_EXE_hipvit"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while logged() < steps {
        assert!(child.try_wait().unwrap().is_none(), "ended before the interrupt");
        sleep(Duration::from_millis(1));
    }
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, signal).unwrap();
    assert!(!child.wait().unwrap().success());
}

/// Checks the report of a complete run, which is well-formed and loads nothing.
fn check_report(page: &str) {
    let names = elements(page);
    let count = |name: &str| names.iter().filter(|n| *n == name).count();
    // The charts, and the pictures of all 24 validation images.
    assert_eq!((count("svg"), count("img")), (5, 24));
    assert_eq!(page.matches(" src=\"data:image/png;base64,").count(), 24);
    for forbidden in ["script", "link", "iframe", "object", "use"] {
        assert_eq!(count(forbidden), 0, "{forbidden}");
    }
    for expected in [
        "epoch 40 of 40, step 120 of 120",
        "All 40 epochs",
        "of 24 validation images are classified correctly",
        "Confusion matrix",
        "vit_tiny_patch16_224",
        "crop = &quot;padded&quot;",
    ] {
        assert!(page.contains(expected), "{expected}");
    }
}

fn assert_success(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
}

#[test]
fn it_learns_and_a_resumed_run_has_the_bits_of_an_uninterrupted_one() {
    let set = Set::new();
    assert_success(&set.train("whole", &[]));
    let (steps, accuracies) = set.log("whole");
    assert_eq!((steps.len(), accuracies.len()), (120, 40));
    let mean = |steps: &[(u64, f64)]| steps.iter().map(|(_, loss)| loss).sum::<f64>() / steps.len() as f64;
    let (first, last) = (mean(&steps[..3]), mean(&steps[117..]));
    assert!(last < 0.75 * first, "the loss is {last}, and was {first}");
    assert!(accuracies[39] > 0.7, "{accuracies:?}");
    let report = |name: &str| fs::read_to_string(set.path(name).join("report.html")).unwrap();
    check_report(&report("whole"));
    let evaluation = fs::read(set.path("whole/evaluation.json")).unwrap();
    let evaluation: Value = serde_json::from_slice(&evaluation).unwrap();
    let share = evaluation["correct"].as_f64().unwrap() / evaluation["images"].as_f64().unwrap();
    assert_eq!((&evaluation["step"], share), (&value!(120), accuracies[39]));

    // The process is killed in the middle of an epoch. Recomputed activations change no bit.
    let memory = set.memory("whole");
    assert_eq!(memory["parts"]["recomputation"]["ops"], value!({}));
    let limit = (memory["bytes"].as_u64().unwrap() * 9 / 10).to_string();
    set.end_by(Signal::KILL, "parts", 7, &["--memory", &limit]);
    // Each epoch has three steps and a checkpoint, and the last two are kept.
    let killed = set.checkpoints("parts");
    assert!(
        killed.iter().all(|step| step % 3 == 0) && killed.len() <= 2,
        "{killed:?}"
    );
    let kept = *killed.last().unwrap();
    assert!(kept >= 3, "{killed:?}");
    let memory = set.memory("parts");
    assert!(
        memory["bytes"].as_u64().unwrap() <= limit.parse().unwrap(),
        "{memory}"
    );
    assert!(memory["additional_flops"].as_f64().unwrap() > 0.0, "{memory}");

    // A checkpoint that cannot be written leaves those before it, and no part of itself.
    let states = set.path(&format!("parts/checkpoints/step-{kept:09}/states.safetensors"));
    let size = fs::metadata(states).unwrap().len();
    let output = set.resume_with_file_limit("parts", size / 1024 - 1);
    assert_eq!(output.status.code(), Some(1));
    let error = stderr(&output);
    assert!(
        error.contains("states.safetensors") && error.contains("large"),
        "{error}"
    );
    assert_eq!(set.checkpoints("parts"), killed);
    let entries = fs::read_dir(set.path("parts/checkpoints")).unwrap();
    assert_eq!(entries.count(), killed.len());

    set.end_by(Signal::INT, "parts", 4, &["--resume", "--memory", &limit]);
    let kept = set.log("parts").0.len();
    assert!((7..120).contains(&kept), "{kept}");
    // The interrupted run has a report too.
    let position = format!("step {kept} of 120");
    assert!(report("parts").contains(&position), "{position}");
    assert_success(&set.train("parts", &["--resume"]));
    assert_eq!(set.log("parts"), (steps, accuracies));
    assert_eq!(set.weights("parts"), set.weights("whole"));
    let checkpoints = fs::read_dir(set.path("parts/checkpoints")).unwrap().count();
    assert_eq!(checkpoints, 2);
    assert_eq!((set.event_files("whole"), set.event_files("parts")), (1, 4));
    check_report(&report("parts"));

    // The model is an ordinary one, with the names of the directories.
    let (image, model) = (set.path("data/val/0"), set.path("whole/model"));
    let output = hipvit([
        "classify".as_ref(),
        image.as_os_str(),
        "--json".as_ref(),
        "-m".as_ref(),
        model.as_os_str(),
    ]);
    assert_success(&output);
    let first: Value = serde_json::from_str(stdout(&output).lines().next().unwrap()).unwrap();
    assert!(
        ["0", "1", "2"]
            .map(Value::from)
            .contains(&first["top"][0]["label"]),
        "{first}"
    );
}

#[test]
fn fine_tuning_replaces_the_classifier_by_one_for_the_classes_of_the_data() {
    let set = Set::new();
    let output = hipvit([
        "train".as_ref(),
        set.path("data").as_os_str(),
        "-o".as_ref(),
        set.path("run").as_os_str(),
        OsStr::new("-m"),
        at("assets/tinyvit32").as_os_str(),
        OsStr::new("--recipe"),
        OsStr::new("fine-tune"),
        OsStr::new("--epochs"),
        OsStr::new("1"),
        OsStr::new("--batch"),
        OsStr::new("16"),
        OsStr::new("--accumulate"),
        OsStr::new("2"),
        OsStr::new("--device"),
        OsStr::new("cpu"),
        OsStr::new("--json"),
    ]);
    assert_success(&output);
    assert!(
        stderr(&output).contains("the classifier is new, for 3 classes: head.bias, head.weight"),
        "{}",
        stderr(&output)
    );
    let report = json(stdout(&output));
    assert_eq!((&report["epochs"], &report["steps"]), (&value!(1), &value!(3)));
    let config: Value =
        serde_json::from_slice(&fs::read(set.path("run/model/config.json")).unwrap()).unwrap();
    assert_eq!(config["label_names"], value!(["0", "1", "2"]));
}

#[test]
fn a_broken_image_ends_the_run_by_name_or_is_skipped_and_counted() {
    let set = Set::new();
    let broken = set.path("data/train/1/05.png");
    fs::write(&broken, "not an image").unwrap();
    let recipe = "epochs = 1\nbatch = 16\n";
    set.write_recipe(recipe);
    let output = set.train("strict", &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("1/05.png"), "{}", stderr(&output));
    let output = set.train("lenient", &["--skip-broken", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("1/05.png"), "{}", stderr(&output));
    assert_eq!(json(stdout(&output))["skipped"], 1);
}

#[test]
fn frozen_layers_keep_their_weights_and_an_adapter_has_the_rest() {
    let set = Set::new();
    let recipe = "epochs = 2\nbatch = 16\nema_decay = 0.5\n[optimizer]\nkind = \"lion\"\nlr = 1e-3\n[schedule]\nwarmup_epochs = 0\n";
    set.write_recipe(recipe);
    assert_success(&set.train("head", &["--freeze", "backbone"]));
    let output = set.train("lora", &["--lora", "2"]);
    assert_success(&output);
    assert!(
        stderr(&output).contains("not trained, because"),
        "{}",
        stderr(&output)
    );
    let tensors = |directory: &str| -> BTreeMap<String, Vec<u8>> {
        let bytes = fs::read(set.path(directory).join("model.safetensors")).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        tensors
            .iter()
            .map(|(name, view)| (name.to_owned(), view.data().to_vec()))
            .collect()
    };
    // The seed is that of both runs.
    let initial = tensors("lora/base");
    let changed = |trained: BTreeMap<String, Vec<u8>>| -> Vec<String> {
        let names = trained.iter().filter(|(name, values)| initial[*name] != **values);
        names.map(|(name, _)| name.clone()).collect()
    };
    // The norm of the pooled tokens belongs to the head, as in timm.
    let head = ["fc_norm.bias", "fc_norm.weight", "head.bias", "head.weight"].map(String::from);
    assert_eq!(changed(tensors("head/model")), head);
    let updated =
        ["attn.proj", "attn.qkv", "mlp.fc1", "mlp.fc2"].map(|layer| format!("blocks.0.{layer}.weight"));
    assert_eq!(changed(tensors("lora/model")), [&updated[..], &head].concat());

    // The log has the accuracies of the averages, and of the weights that they are of.
    let log = fs::read_to_string(set.path("lora/log.jsonl")).unwrap();
    let epochs = log.lines().filter(|line| line.contains("\"event\":\"epoch\""));
    let keys = ["\"val_accuracy\":", "\"unaveraged_val_accuracy\":"];
    assert!(
        epochs
            .clone()
            .all(|line| keys.iter().all(|key| line.contains(key)))
            && epochs.count() == 2
    );

    // hipvit merges the adapter into its base with the bits of the model that training has merged.
    let classify = |model: &str| {
        let output = hipvit([
            OsStr::new("classify"),
            set.path("data/val/0/17.png").as_os_str(),
            OsStr::new("--device"),
            OsStr::new("cpu"),
            OsStr::new("--logits"),
            OsStr::new("--json"),
            OsStr::new("-m"),
            set.path(model).as_os_str(),
        ]);
        assert_success(&output);
        serde_json::from_str::<Value>(stdout(&output).lines().next().unwrap()).unwrap()["logits"].clone()
    };
    let logits = classify("lora/adapter");
    assert_eq!(logits.as_array().unwrap().len(), 3);
    assert_eq!(logits, classify("lora/model"));
    assert_ne!(logits, classify("lora/base"));
}

/// A student that starts as its teacher has the teacher's logits for the same augmented images, so a comparison finds no difference at first.
#[test]
fn a_student_learns_from_a_teacher_with_the_same_classes() {
    let set = Set::new();
    let augmentation = "[augmentation]\ncrop = \"padded\"\nflip = 0.5\n";
    set.write_recipe(&format!("epochs = 2\nbatch = 16\n{augmentation}"));
    assert_success(&set.train("teacher", &[]));
    let teacher = set.path("teacher/model");
    let first_loss = |run: &str| -> f64 {
        let log = fs::read_to_string(set.path(run).join("log.jsonl")).unwrap();
        let step = log
            .lines()
            .find(|line| line.contains("\"event\":\"step\""))
            .unwrap();
        serde_json::from_str::<Value>(step).unwrap()["loss"]
            .as_f64()
            .unwrap()
    };
    let recipe = format!(
        "epochs = 1\nbatch = 16\n[distillation]\nkind = \"soft\"\nalpha = 1.0\ntemperature = 2.0\n[optimizer]\nkind = \"lamb\"\n{augmentation}"
    );
    set.write_recipe(&recipe);
    let student = ["-m", teacher.to_str().unwrap(), "--recipe"].map(OsString::from);
    let run = |name: &str, teacher: &Path| {
        let mut arguments: Vec<OsString> = vec!["train".into(), set.path("data").into()];
        arguments.extend(["--device", "cpu", "--threads", "2", "--log-every", "1", "-o"].map(OsString::from));
        arguments.push(set.path(name).into());
        arguments.extend(student.clone());
        arguments.push(set.path("recipe.toml").into());
        arguments.extend(["--teacher".into(), teacher.into()]);
        hipvit(arguments)
    };
    assert_success(&run("student", &teacher));
    let written = fs::read_to_string(set.path("student/recipe.toml")).unwrap();
    assert!(written.contains(teacher.to_str().unwrap()), "{written}");
    let loss = first_loss("student");
    assert!(loss.abs() < 1e-6, "{loss}");
    // Erased rectangles are in normalised images.
    set.write_recipe(&format!("{recipe}erasing = 1.0\n"));
    assert_success(&run("erased", &teacher));
    let loss = first_loss("erased");
    assert!(loss.abs() < 1e-6, "{loss}");

    let other = run("refused", &at("assets/tinyvit32"));
    assert_ne!(other.status.code(), Some(0));
    let reason = "has 10 classes, but the student has 3";
    assert!(stderr(&other).contains(reason), "{}", stderr(&other));
}

#[test]
fn a_run_whose_loss_is_not_finite_ends_and_names_the_layer() {
    let set = Set::new();
    let recipe = "epochs = 40\nbatch = 16\n[optimizer]\nlr = 1e38\n[schedule]\nwarmup_epochs = 0\nkind = \"constant\"\n";
    set.write_recipe(recipe);
    let output = set.train("strict", &[]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(
        text.contains("step 2 of epoch 1") && text.contains("first in the output of"),
        "{text}"
    );
    set.write_recipe(&format!("skip_nonfinite = true\n{recipe}"));
    let output = set.train("lenient", &[]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(text.contains("step 2 is left out"), "{text}");
    // A hundred steps in a row may be left out, and not one more.
    assert!(text.contains("step 102 of epoch 34"), "{text}");
}

#[test]
fn what_cannot_be_trained_is_refused_by_name() {
    let set = Set::new();
    let refused = |output: &Output, reason: &str| {
        assert_ne!(output.status.code(), Some(0));
        assert!(stderr(output).contains(reason), "{}", stderr(output));
    };
    // The model does not load before the recipe is valid.
    set.write_recipe("epochs = 1\n[optimizer]\ndampening = 0.9\n");
    let output = set.train("run", &[]);
    refused(&output, "recipe.toml, line 3: unknown key `dampening`");
    set.write_recipe("epochs = 1\nbatch = 16\n[lora]\nrank = 2\ntargets = [\"query\"]\n");
    refused(&set.train("other", &[]), "`query` is the name of no linear layer");
    set.write_recipe("epochs = 1\nbatch = 16\n");
    refused(
        &set.train("frozen", &["--freeze", "5"]),
        "the model has 2 layers before the classifier",
    );
    refused(&set.train("run", &["--resume"]), "has no run");
    fs::create_dir(set.path("data/train/empty")).unwrap();
    refused(&set.train("run", &[]), "train/empty: this class has no images");
    assert!(!set.path("run").exists());
    fs::remove_dir(set.path("data/train/empty")).unwrap();
    fs::create_dir(set.path("run")).unwrap();
    fs::write(set.path("run/notes.txt"), "mine").unwrap();
    refused(&set.train("run", &[]), "is not empty");
}
