//! The plan cache on disk: equal results, and no use after any other change.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use hipvit::graph::Optimizations;
use hipvit::image::{Limits, RgbImage, open};
use hipvit::model::InputKind;
use hipvit::{Device, Labels, Outputs, PlanCache, Session, SessionBuilder};
use safetensors::SafeTensors;
use serde_json::Value;

use crate::support::program::{stderr, stdout};
use crate::support::{at, goldens, profile};

const MODEL: &str = "tests/golden/timm_vit_class_token";

fn builder() -> SessionBuilder {
    Session::builder().device(Device::Cpu).threads(1).batch(1)
}

fn image() -> RgbImage {
    open(at("tests/golden/images/wide.png"), Limits::default()).unwrap()
}

/// Returns the bits of all results.
fn bits(outputs: &Outputs) -> Vec<u32> {
    let logits = outputs.logits().into_iter().flatten();
    logits.chain(outputs.embeddings()).map(|x| x.to_bits()).collect()
}

fn run(session: &Session) -> Vec<u32> {
    bits(&session.run([image()]).unwrap())
}

fn is_cached(session: &Session) -> bool {
    matches!(session.plan_cache(), Some(PlanCache::Cached { .. }))
}

/// Returns the file that a load wrote, and the reason if it replaced another one.
#[track_caller]
fn written(session: &Session) -> (&Path, Option<&str>) {
    match session.plan_cache() {
        Some(PlanCache::Written {
            file,
            bytes,
            replaced,
            ..
        }) => {
            assert_eq!(fs::metadata(file).unwrap().len(), *bytes);
            (file, replaced.as_deref())
        }
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn not_written(session: &Session) -> &str {
    match session.plan_cache() {
        Some(PlanCache::NotWritten { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

fn age(file: &Path, modified: SystemTime) {
    File::options()
        .write(true)
        .open(file)
        .unwrap()
        .set_modified(modified)
        .unwrap();
}

/// Creates a copy of a model with a modification time one hour ago.
fn copy(model: impl AsRef<Path>, directory: &Path) -> SystemTime {
    let then = SystemTime::now() - Duration::from_secs(3600);
    fs::create_dir_all(directory).unwrap();
    for entry in fs::read_dir(at(model)).unwrap() {
        let entry = entry.unwrap();
        let file = directory.join(entry.file_name());
        fs::write(&file, fs::read(entry.path()).unwrap()).unwrap();
        age(&file, then);
    }
    then
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn every_golden_model_gives_the_same_bits_from_a_cached_graph() {
    let folder = tempfile::tempdir().unwrap();
    let floating = goldens::cases()
        .into_iter()
        .map(|case| (at("tests/golden").join(&case.name), case.builder()));
    let quantized = fs::read_dir(at("tests/golden/quantized"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .map(|path| (path, Session::builder()));
    let mut models = 0;
    for (model, builder) in floating.chain(quantized) {
        let builder = builder.device(Device::Cpu).threads(1).batch(1);
        let name = model.display();
        let expected = run(&builder.load(&model).unwrap());
        let cached = builder.plan_cache(folder.path());
        let first = cached.load(&model).unwrap();
        // The same model may be there twice, with other images.
        if !is_cached(&first) {
            assert_eq!(written(&first).1, None, "{name}");
        }
        let second = cached.load(&model).unwrap();
        assert!(is_cached(&second), "{name}: {:?}", second.plan_cache());
        assert!(run(&first) == expected && run(&second) == expected, "{name}");
        models += 1;
    }
    assert!(models > 90, "{models}");
    assert!(entries(folder.path()).len() > 80);
}

#[test]
fn the_same_files_with_other_options_are_another_graph() {
    let folder = tempfile::tempdir().unwrap();
    let cached = || builder().plan_cache(folder.path());
    let none = Optimizations::NONE;
    let packed = Optimizations {
        memory_reuse: false,
        ..Optimizations::default()
    };
    let others = [
        cached(),
        cached().image_size([48, 64]),
        cached().input(InputKind::PixelValues),
        cached().tokens(true),
        cached().hidden_layers([0]),
        cached().hidden_layers([1]),
        cached().optimizations(none),
        cached().optimizations(packed),
    ];
    for (index, builder) in others.iter().enumerate() {
        written(&builder.load(at(MODEL)).unwrap());
        assert_eq!(entries(folder.path()).len(), index + 1);
        assert!(is_cached(&builder.load(at(MODEL)).unwrap()));
    }
    let hidden = others[5].load(at(MODEL)).unwrap().run([image()]).unwrap();
    assert!(hidden.hidden_layer(1).is_some() && hidden.hidden_layer(0).is_none());
    // What the graph does not depend on.
    let labels =
        Labels::from_iter((0..others[0].load(at(MODEL)).unwrap().info().classes).map(|n| n.to_string()));
    for builder in [
        cached().batch(5),
        cached().threads(2),
        cached().strict(true),
        cached().labels(labels),
    ] {
        assert!(is_cached(&builder.load(at(MODEL)).unwrap()));
    }
    // Neither a folder nor files.
    assert!(
        builder()
            .plan_cache("")
            .load(at(MODEL))
            .unwrap()
            .plan_cache()
            .is_none()
    );
    assert!(cached().tinyvit32().unwrap().plan_cache().is_none());
}

/// The cache checks the file system's metadata of weights and shards, not their content.
#[test]
fn weights_that_have_changed_are_used() {
    for (model, weights) in [
        ("tests/golden/hf_vit", "model.safetensors"),
        ("tests/golden/hf_vit_sharded", "model-00002-of-00003.safetensors"),
    ] {
        let root = tempfile::tempdir().unwrap();
        let (model_copy, folder) = (root.path().join("model"), root.path().join("plans"));
        let then = copy(model, &model_copy);
        let cached = builder().plan_cache(&folder);
        let old = cached.load(&model_copy).unwrap();
        written(&old);
        assert!(is_cached(&cached.load(&model_copy).unwrap()));

        // In place, as many bytes, and with the same time of modification.
        let file = model_copy.join(weights);
        let mut bytes = fs::read(&file).unwrap();
        let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        for value in bytes[header..].chunks_exact_mut(4) {
            // The sign.
            value[3] ^= 0x80;
        }
        fs::write(&file, &bytes).unwrap();
        age(&file, then);
        let new = cached.load(&model_copy).unwrap();
        assert_eq!(written(&new).1, None);
        assert_ne!(run(&new), run(&old), "{model}");
        assert_eq!(run(&new), run(&builder().load(&model_copy).unwrap()), "{model}");
        assert_eq!(entries(&folder).len(), 2);
    }
}

/// A file's time may stay the same after another change.
#[test]
fn a_model_that_was_modified_just_now_is_not_cached() {
    let root = tempfile::tempdir().unwrap();
    let (model, folder) = (root.path().join("model"), root.path().join("plans"));
    copy(MODEL, &model);
    age(&model.join("model.safetensors"), SystemTime::now());
    let session = builder().plan_cache(&folder).load(&model).unwrap();
    assert!(not_written(&session).ends_with("less than two seconds ago"));
    assert!(!folder.exists());
}

#[test]
fn configuration_and_preprocessing_are_told_apart() {
    let root = tempfile::tempdir().unwrap();
    let (model, folder) = (root.path().join("model"), root.path().join("plans"));
    copy("tests/golden/hf_vit", &model);
    let cached = builder().plan_cache(&folder);
    written(&cached.load(&model).unwrap());
    for (file, key, value) in [
        (
            "preprocessor_config.json",
            "image_mean",
            serde_json::json!([0.1, 0.2, 0.3]),
        ),
        ("config.json", "layer_norm_eps", serde_json::json!(0.25)),
    ] {
        let file = model.join(file);
        let mut document: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        document[key] = value;
        fs::write(&file, document.to_string()).unwrap();
        let session = cached.load(&model).unwrap();
        assert_eq!(written(&session).1, None, "{key}");
        assert_eq!(run(&session), run(&builder().load(&model).unwrap()), "{key}");
    }
}

#[test]
fn what_is_damaged_or_foreign_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let cached = builder().plan_cache(folder.path());
    // The queries, keys and values are packed: a constant of some size.
    let model = at("tests/golden/hf_vit");
    let first = cached.load(&model).unwrap();
    let (file, _) = written(&first);
    let expected = run(&first);
    let whole = fs::read(file).unwrap();
    let header = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;

    let other = builder().plan_cache(folder.path()).load(at(MODEL)).unwrap();
    let foreign = fs::read(written(&other).0).unwrap();
    let changed = |name: &str, value: &str| {
        let (_, metadata) = SafeTensors::read_metadata(&whole).unwrap();
        let mut entries: HashMap<String, String> = metadata.metadata().clone().unwrap();
        entries.insert(name.into(), value.into());
        safetensors::serialize(SafeTensors::deserialize(&whole).unwrap().tensors(), Some(entries)).unwrap()
    };
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        bytes
    };
    let cuts = [0, 1, 8, 9, header / 2, header, header + 4, whole.len() - 1];
    let damage = cuts.map(|at| (whole[..at].to_vec(), "")).into_iter().chain([
        (foreign, "it is of another model or other options"),
        (
            changed("format", "hipvit plan 0"),
            "its format is \"hipvit plan 0\"",
        ),
        (changed("sha256", ""), "its metadata does not have its checksum"),
        (changed("plan", "{}"), "its metadata does not have its checksum"),
        (flipped(header), "does not have its checksum"),
        (flipped(whole.len() - 1), "does not have its checksum"),
        ([&whole[..], b"x"].concat(), ""),
    ]);
    for (index, (bytes, reason)) in damage.enumerate() {
        fs::remove_file(file).unwrap();
        fs::write(file, bytes).unwrap();
        let session = cached.load(&model).unwrap();
        let replaced = written(&session).1.unwrap();
        assert!(replaced.contains(reason), "{index}: {replaced}");
        assert_eq!(run(&session), expected, "{index}");
        assert!(is_cached(&cached.load(&model).unwrap()), "{index}");
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_no_error() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    fs::write(&file, "").unwrap();
    let expected = run(&builder().load(at(MODEL)).unwrap());
    let session = builder().plan_cache(file.join("plans")).load(at(MODEL)).unwrap();
    assert!(not_written(&session).starts_with(file.to_str().unwrap()));
    assert_eq!(run(&session), expected);

    // The graph's path is a folder, which renaming does not replace.
    let folder = root.path().join("plans");
    let cached = builder().plan_cache(&folder);
    let path = written(&cached.load(at(MODEL)).unwrap()).0.to_owned();
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let session = cached.load(at(MODEL)).unwrap();
    not_written(&session);
    assert_eq!(run(&session), expected);
    assert_eq!(entries(&folder), [path]);
}

#[test]
fn many_may_write_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let model = at(MODEL);
    let expected = run(&builder().load(&model).unwrap());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..4 {
                    let session = builder().plan_cache(folder.path()).load(&model).unwrap();
                    assert!(is_cached(&session) || written(&session).1.is_none());
                    assert_eq!(run(&session), expected);
                }
            });
        }
    });
    assert_eq!(entries(folder.path()).len(), 1);

    // Processes, by the variable.
    let fresh = folder.path().join("new/folder");
    let classify = |plans: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hipvit"));
        command.args([
            "classify",
            "--device",
            "cpu",
            "--threads",
            "1",
            "--logits",
            "--json",
            "-m",
        ]);
        command.arg(&model).arg(at("tests/golden/images/wide.png"));
        command.env("HIPVIT_PLAN_CACHE", plans);
        command
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        command.spawn().unwrap()
    };
    let started: Vec<_> = [fresh.as_path(); 4].iter().map(|plans| classify(plans)).collect();
    let outputs: Vec<_> = started
        .into_iter()
        .map(|child| child.wait_with_output().unwrap())
        .collect();
    let without = classify(Path::new("")).wait_with_output().unwrap();
    for output in &outputs {
        assert_eq!((stdout(output), stderr(output)), (stdout(&without), ""));
    }
    assert_eq!(entries(&fresh).len(), 1);
}

#[test]
fn weights_that_are_no_numbers_are_told_from_a_cached_graph_too() {
    let root = tempfile::tempdir().unwrap();
    let (model, folder) = (root.path().join("model"), root.path().join("plans"));
    let then = copy("tests/golden/hf_vit", &model);
    let file = model.join("model.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    let end = bytes.len();
    bytes[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    fs::write(&file, bytes).unwrap();
    age(&file, then);
    let cached = builder().plan_cache(&folder);
    let names = |session: &Session| -> Vec<String> {
        session
            .non_finite_weights()
            .iter()
            .map(ToString::to_string)
            .collect()
    };
    let first = cached.load(&model).unwrap();
    written(&first);
    let second = cached.load(&model).unwrap();
    assert!(is_cached(&second));
    assert_eq!((names(&first).len(), names(&second)), (1, names(&first)));
    let errors = [&first, &second].map(|_| cached.clone().strict(true).load(&model).unwrap_err().to_string());
    let without = builder().strict(true).load(&model).unwrap_err().to_string();
    assert_eq!(errors, [without.clone(), without]);
}

#[test]
fn profile_tells_whether_the_graph_was_cached() {
    let folder = tempfile::tempdir().unwrap();
    let profiled = |json: bool| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hipvit"));
        command.args(["profile", "--device", "cpu", "--batches", "1", "--plan-cache"]);
        command.arg(folder.path());
        command.args(json.then_some("--json"));
        command.arg(at(MODEL)).arg(at("tests/golden/images/wide.png"));
        command.output().unwrap()
    };
    let optimisation = |report: &Value| {
        let parts = report["start_up"]["parts"].as_array().unwrap();
        let part = |name| parts.iter().find(|part| part["name"] == name).unwrap()["busy_ms"].as_f64();
        (part("graph optimisation").unwrap(), part("plan cache").unwrap())
    };
    let first = profile::report(&profiled(true));
    assert_eq!(first["plan_cache"]["state"], "written");
    let (passes, cache) = optimisation(&first);
    assert!(passes > 0.0 && cache > 0.0);
    let second = profile::report(&profiled(true));
    assert_eq!(second["plan_cache"]["state"], "cached");
    assert!(Path::new(second["plan_cache"]["file"].as_str().unwrap()).exists());
    let (passes, cache) = optimisation(&second);
    assert!(passes == 0.0 && cache > 0.0);
    let text = profiled(false);
    assert!(
        stdout(&text).contains("\nOptimised graph: cached in "),
        "{}",
        stdout(&text)
    );

    // Damage is reported, but is not an error.
    let file = &entries(folder.path())[0];
    fs::write(file, "").unwrap();
    let text = profiled(false);
    assert!(
        stdout(&text).contains("in place of one that was not used"),
        "{}",
        stdout(&text)
    );
    assert!(
        stderr(&text).starts_with("note: optimised graph: written to "),
        "{}",
        stderr(&text)
    );
}
