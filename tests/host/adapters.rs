//! LoRA adapters: outputs equal those of peft in double precision, for each kind of adapter and models of
//! each family. Adapters that cannot be merged are refused with a reason.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use hipvit::image::Limits;
use hipvit::model::{self, InputKind, LoadOptions};
use hipvit::ndarray::Array2;
use hipvit::{RunInput, RunOptions, Session};
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::at;
use crate::support::program::{hipvit, stderr, stdout};

#[derive(Deserialize)]
struct Case {
    name: String,
    base: String,
    output: String,
}

fn cases() -> Vec<Case> {
    let text = fs::read_to_string(at("tests/golden/adapters/cases.json")).unwrap();
    let cases: Vec<Case> = serde_json::from_str(&text).unwrap();
    assert!(cases.len() > 30);
    cases
}

fn adapter(name: &str) -> PathBuf {
    at("tests/golden/adapters").join(name)
}

/// Copies the files of `from` without the goldens.
fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if !entry.file_name().to_str().unwrap().starts_with("golden") {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

/// Creates a directory with a model and an adapter.
fn beside(base: &str, adapter_name: &str) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    copy(&at("tests/golden").join(base), directory.path());
    copy(&adapter(adapter_name), directory.path());
    directory
}

fn tensor(file: &Path, name: &str) -> (Vec<usize>, Vec<f64>) {
    let bytes = fs::read(file).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let tensor = tensors.tensor(name).unwrap();
    let values = match tensor.dtype() {
        safetensors::Dtype::F64 => tensor
            .data()
            .as_chunks()
            .0
            .iter()
            .map(|&b| f64::from_le_bytes(b))
            .collect(),
        _ => tensor
            .data()
            .as_chunks()
            .0
            .iter()
            .map(|&b| f64::from(f32::from_le_bytes(b)))
            .collect(),
    };
    (tensor.shape().to_vec(), values)
}

/// The tolerance is 3e-5 of the largest value: that of the models' goldens, and the rounding of the merged
/// weights to f32.
fn check(case: &str, got: &Array2<f32>, (shape, expected): &(Vec<usize>, Vec<f64>)) {
    assert_eq!([got.nrows(), got.ncols()], shape[..], "{case}");
    let largest = expected
        .iter()
        .fold(0f64, |largest, value| largest.max(value.abs()));
    for (index, (&got, expected)) in got.iter().zip(expected).enumerate() {
        let error = (f64::from(got) - expected).abs() / largest;
        assert!(
            error <= 3e-5,
            "{case} {index}: {got}, expected {expected}: {error:e}"
        );
    }
}

#[test]
fn outputs_of_adapted_models_are_those_of_peft() {
    for case in cases() {
        let directory = beside(&case.base, &case.name);
        let session = Session::builder()
            .input(InputKind::PixelValues)
            .load(directory.path());
        let session = session.unwrap_or_else(|error| panic!("{}: {error}", case.name));
        let (_, pixels) = tensor(
            &at("tests/golden").join(&case.base).join("golden.safetensors"),
            "pixel_values",
        );
        let pixels: Vec<f32> = pixels.iter().map(|&value| value as f32).collect();
        let outputs = session
            .run_with(RunInput::Values(&pixels), RunOptions::new())
            .unwrap();
        let got = match case.output.as_str() {
            "logits" => outputs.logits().unwrap(),
            _ => outputs.embeddings(),
        };
        let golden = adapter(&case.name).join("golden.safetensors");
        check(&case.name, got, &tensor(&golden, "output"));
        if case.output == "text_embeds" {
            let texts = crate::support::zero_shot::golden("hf_clip").texts;
            let embeddings = session.embed_texts(&texts).unwrap().embeddings;
            check(&case.name, &embeddings, &tensor(&golden, "text_embeds"));
        }
        let info = session.info().to_string();
        assert!(
            info.contains(&format!("LoRA adapter of golden/{}: merged into ", case.base)),
            "{info}"
        );
    }
}

#[test]
fn an_adapter_that_is_named_is_applied_to_its_base_model() {
    let root = tempfile::tempdir().unwrap();
    let (base, alone) = (root.path().join("base"), root.path().join("adapter"));
    fs::create_dir_all(&base).unwrap();
    fs::create_dir_all(&alone).unwrap();
    copy(&at("tests/golden/hf_vit"), &base);
    copy(&adapter("vit_plain"), &alone);
    set(&alone, "base_model_name_or_path", json!(base));
    let session = Session::load(&alone).unwrap();
    assert_eq!(session.name(), "adapter");
    let expected = beside("hf_vit", "vit_plain");
    let image = hipvit::image::open(at("tests/golden/images/small.png"), Limits::default()).unwrap();
    let logits = |session: &Session| session.run([&image]).unwrap().logits().unwrap().clone();
    assert_eq!(logits(&session), logits(&Session::load(expected.path()).unwrap()));
    let file = Session::load(alone.join("adapter_model.safetensors")).unwrap();
    assert_eq!(logits(&file), logits(&session));
    // The processor's file next to the adapter takes precedence over the base model's.
    let processor = fs::read_to_string(base.join("preprocessor_config.json")).unwrap();
    let mut processor: Value = serde_json::from_str(&processor).unwrap();
    processor["image_mean"] = json!([0.1, 0.2, 0.3]);
    fs::write(alone.join("preprocessor_config.json"), processor.to_string()).unwrap();
    assert_ne!(logits(&Session::load(&alone).unwrap()), logits(&session));
}

#[test]
fn an_adapter_is_part_of_a_quantised_model() {
    let directory = beside("hf_vit", "vit_plain");
    let folder = tempfile::tempdir().unwrap();
    let image = hipvit::image::open(at("tests/golden/images/small.png"), Limits::default()).unwrap();
    let logits = || {
        let session = Session::load(directory.path()).unwrap();
        session.run([&image]).unwrap().logits().unwrap().clone()
    };
    let plain = logits();
    copy(&adapter("vit_rslora"), directory.path());
    assert_ne!(plain, logits());
    copy(&adapter("vit_plain"), directory.path());
    assert_eq!(plain, logits());

    let quantised = folder.path().join("quantised");
    let output = hipvit([
        OsStr::new("quantize"),
        directory.path().as_os_str(),
        "-o".as_ref(),
        quantised.as_os_str(),
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    let got = Session::load(&quantised)
        .unwrap()
        .run([&image])
        .unwrap()
        .logits()
        .unwrap()
        .clone();
    let close = got.iter().zip(&plain).all(|(a, b)| (a - b).abs() < 0.5);
    assert!(close, "{got} {plain}");
    // A quantised model takes no adapter.
    copy(&adapter("vit_plain"), &quantised);
    let message = refusal(&quantised);
    assert!(
        message.contains("cannot be merged into a quantised model (`quantization_config`"),
        "{message}"
    );
}

fn set(directory: &Path, key: &str, value: Value) {
    let file = directory.join("adapter_config.json");
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    config[key] = value;
    fs::write(file, config.to_string()).unwrap();
}

fn refusal(directory: &Path) -> String {
    let error = model::load(directory, &LoadOptions::default())
        .unwrap_err()
        .to_string();
    assert!(!error.contains('\n'), "{error}");
    error
}

/// Rewrites the adapter's tensors.
fn rename(directory: &Path, new: impl Fn(&str) -> Option<String>) {
    let file = directory.join("adapter_model.safetensors");
    let bytes = fs::read(&file).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let kept = tensors.iter().filter_map(|(name, tensor)| {
        let view = TensorView::new(tensor.dtype(), tensor.shape().to_vec(), tensor.data()).unwrap();
        Some((new(name)?, view))
    });
    let written = safetensors::serialize(kept, None).unwrap();
    fs::write(file, written).unwrap();
}

#[test]
fn what_cannot_be_merged_is_refused_by_name() {
    for (key, value, expected) in [
        (
            "peft_type",
            json!("IA3"),
            "`peft_type` is \"IA3\": of peft's adapters only LORA is supported",
        ),
        (
            "use_qalora",
            json!(true),
            "`use_qalora` is not supported in a LoRA adapter",
        ),
        (
            "init_lora_weights",
            json!("pissa"),
            "`init_lora_weights` is \"pissa\", which changes the base model's weights",
        ),
        (
            "r",
            json!(3),
            "has rank 2 (lora_A is [2, 24]), but adapter_config.json says 3",
        ),
        ("use_dora", json!(true), "has no lora_magnitude_vector"),
        (
            "target_modules",
            json!(["q_proj"]),
            "`target_modules` of adapter_config.json does not name it",
        ),
    ] {
        let directory = beside("hf_vit", "vit_plain");
        set(directory.path(), key, value);
        let message = refusal(directory.path());
        assert!(message.contains(expected), "{key}: {message}");
    }
    let renamed = |from: &'static str, to: &'static str, adapter: &str| {
        let directory = beside("hf_vit", adapter);
        rename(directory.path(), |name| Some(name.replace(from, to)));
        refusal(directory.path())
    };
    let message = renamed("q_proj", "k.q_proj", "vit_plain");
    assert!(
        message.contains("`vit.layers.0.attention.k.q_proj`: matches no module of the model"),
        "{message}"
    );
    let message = renamed("lora_A", "hada_w1", "vit_plain");
    assert!(message.contains("hada_w1.weight`: is unexpected"), "{message}");
    let message = renamed("classifier", "score.classifier", "vit_modules_to_save");
    assert!(
        message.contains("`score.classifier.bias`: has no place in the model"),
        "{message}"
    );
    let directory = beside("hf_vit", "vit_plain");
    rename(directory.path(), |name| {
        (!name.contains("lora_B")).then(|| name.to_owned())
    });
    let message = refusal(directory.path());
    assert!(message.contains("has only one of lora_A and lora_B"), "{message}");
}

/// In peft 0.21.2 the forward pass ignores the update of such a layer, and `merge_and_unload` applies it.
#[test]
fn the_output_projection_of_an_attention_alone_has_no_update() {
    let directory = beside("hf_siglip_vision", "siglip_pool");
    set(directory.path(), "target_modules", json!(["out_proj"]));
    rename(directory.path(), |name| {
        name.contains("out_proj").then(|| name.to_owned())
    });
    let message = refusal(directory.path());
    assert!(
        message.contains("head.attention.out_proj") && message.contains("ignores in the forward pass"),
        "{message}"
    );
    let file = directory.path().join("adapter_model.safetensors");
    let bytes = fs::read(&file).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let zeros = vec![0; bytes.len()];
    let zeroed = tensors.iter().map(|(name, tensor)| {
        let data = &zeros[..tensor.data().len()];
        let view = TensorView::new(tensor.dtype(), tensor.shape().to_vec(), data).unwrap();
        (name.to_owned(), view)
    });
    let written = safetensors::serialize(zeroed, None).unwrap();
    fs::write(file, written).unwrap();
    model::load(directory.path(), &LoadOptions::default()).unwrap();
}

#[test]
fn an_adapter_without_its_files_says_what_to_do() {
    let directory = beside("hf_vit", "vit_plain");
    let weights = directory.path().join("adapter_model.safetensors");
    fs::rename(&weights, directory.path().join("adapter_model.bin")).unwrap();
    let message = refusal(directory.path());
    assert!(
        message.contains("its weights are in PyTorch's format only (adapter_model.bin). Convert them"),
        "{message}"
    );
    fs::remove_file(directory.path().join("adapter_model.bin")).unwrap();
    let message = refusal(directory.path());
    assert!(
        message.contains("adapter_model.safetensors is missing in its directory"),
        "{message}"
    );
}

#[test]
fn an_adapter_alone_says_what_it_is_for() {
    let case = at("tests/cases/07_lora_adapter_only");
    let message = refusal(&case);
    for part in [
        "is a LoRA adapter of `../07_lora_beside_the_model`, without a model of its own",
        "there is no such directory",
        "merge_and_unload",
        "ViTForImageClassification ../07_lora_beside_the_model",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let alone = tempfile::tempdir().unwrap();
    copy(&adapter("vit_plain"), alone.path());
    set(
        alone.path(),
        "base_model_name_or_path",
        json!("no-such-org/vit-base"),
    );
    let message = refusal(alone.path());
    assert!(message.contains("hipvit pull no-such-org/vit-base"), "{message}");
    set(alone.path(), "base_model_name_or_path", Value::Null);
    let message = refusal(alone.path());
    assert!(
        message.contains("`base_model_name_or_path` is missing"),
        "{message}"
    );
    set(alone.path(), "peft_type", json!("LOKR"));
    let message = refusal(alone.path());
    assert!(message.contains("`peft_type` is \"LOKR\""), "{message}");
}

#[test]
fn an_adapter_beside_a_model_is_applied_by_the_command_line() {
    let case = at("tests/cases/07_lora_beside_the_model");
    let image = at("tests/cases/image.png");
    let output = hipvit([
        OsStr::new("classify"),
        image.as_os_str(),
        "-m".as_ref(),
        case.as_os_str(),
        "--json".as_ref(),
        "--logits".as_ref(),
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    let row: Value = serde_json::from_str(stdout(&output).lines().next().unwrap()).unwrap();
    let expected = [0.519828, -0.059919, -0.006217, -0.185303, -0.072895];
    for (got, expected) in row["logits"].as_array().unwrap().iter().zip(expected) {
        assert!((got.as_f64().unwrap() - expected).abs() < 2e-6, "{row}");
    }
    let output = hipvit([OsStr::new("inspect"), case.as_os_str()]);
    let text = stdout(&output);
    assert!(
        text.contains("merged into 2 layers, 0 tensors replaced"),
        "{text}"
    );
}
