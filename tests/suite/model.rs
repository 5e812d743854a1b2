//! Loading: every golden directory builds, accounts for all its tensors and computes what its library computes; every
//! broken one is an error that names the file and the cause.

use std::fs;
use std::path::{Path, PathBuf};

use hipvit::graph::{self, OutputKind, Passes};
use hipvit::model::{self, Family, InputKind, Library, LoadOptions, Model};
use hipvit::reference;
use hipvit::tensor::Input;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};

fn golden(case: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(case)
}

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn cases() -> Vec<Value> {
    read_json(&golden("cases.json")).as_array().unwrap().clone()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap()
}

fn load_case(case: &Value) -> Model {
    let size: Vec<usize> = serde_json::from_value(case["image_size"].clone()).unwrap();
    let options = LoadOptions {
        image_size: Some([size[0], size[1]]),
        input: InputKind::PixelValues,
        ..LoadOptions::default()
    };
    model::load(&golden(text(case, "name")), &options).unwrap()
}

/// How far a golden's output may be from the graph's, relative to the largest.
///
/// Both compute in double precision from the same f32 (or narrower) weights and pixels, but the graph keeps two
/// kinds of numbers in f32: attention's scale 1/√head_dim and interpolated positions, each off by up to 2⁻²⁵ ≈ 3e-8
/// of itself. A score of 10 so moves the softmax's weights by 3e-7, but a weight's loss is another's gain, and values
/// that are random average out: 2e-8 is the most that is seen.
///
/// timm interpolates in f32, with a kernel whose weights are f32 as well and err by several units in the last place:
/// up to 6e-7 of the positions, which go through two norms whose deviation is about theirs.
fn tolerance(case: &Value, model: &Model) -> f64 {
    match (text(case, "library"), model.info.interpolated) {
        ("timm", Some(_)) => 2e-6,
        _ => 1e-7,
    }
}

/// One f64 or f32 tensor, widened.
fn numbers(tensors: &SafeTensors<'_>, name: &str) -> Vec<f64> {
    let tensor = tensors.tensor(name).unwrap();
    match tensor.dtype() {
        Dtype::F64 => tensor
            .data()
            .as_chunks()
            .0
            .iter()
            .map(|&b| f64::from_le_bytes(b))
            .collect(),
        Dtype::F32 => floats(&tensor).into_iter().map(f64::from).collect(),
        other => panic!("{name} is {other}"),
    }
}

fn floats(tensor: &TensorView<'_>) -> Vec<f32> {
    tensor
        .data()
        .as_chunks()
        .0
        .iter()
        .map(|&b| f32::from_le_bytes(b))
        .collect()
}

#[test]
fn every_golden_model_computes_what_its_library_computes_before_and_after_the_passes() {
    let mut compared = 0;
    for case in cases() {
        let name = text(&case, "name");
        let model = load_case(&case);
        let bytes = fs::read(golden(name).join("golden.safetensors")).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let pixels = tensors.tensor("pixel_values").unwrap();
        let batch = pixels.shape()[0];
        let outputs = graph::interpret(&model.graph, batch, Input::Values(&floats(&pixels))).unwrap();

        let output = text(&case, "output");
        let kind = if output == "logits" {
            OutputKind::Logits
        } else {
            OutputKind::Embedding
        };
        let (_, result) = outputs.iter().find(|(k, _)| *k == kind).unwrap();
        // Of a model that gives all its tokens the embedding is the first, the class token.
        let width = *tensors.tensor(output).unwrap().shape().last().unwrap();
        let expected = numbers(&tensors, output);
        let expected: Vec<f64> = expected
            .chunks(expected.len() / batch)
            .flat_map(|image| image[..width].to_vec())
            .collect();
        let close = reference::check_close(result.as_slice().unwrap(), &expected, tolerance(&case, &model));
        assert!(close.is_ok(), "{name}: {}", close.unwrap_err());

        let (optimized, _) = graph::optimize(model.graph, &Passes::default()).unwrap();
        let optimized = graph::interpret(&optimized, batch, Input::Values(&floats(&pixels))).unwrap();
        for ((kind, optimized), (_, result)) in optimized.iter().zip(&outputs) {
            // Folded weights are rounded to f32 once more: 2⁻²⁵ of each, whose errors average out in the sums.
            let close =
                reference::check_close(optimized.as_slice().unwrap(), result.as_slice().unwrap(), 5e-7);
            assert!(
                close.is_ok(),
                "{name} optimised, {kind:?}: {}",
                close.unwrap_err()
            );
        }
        compared += 1;
    }
    assert!(compared >= 50, "{compared} cases");
}

#[test]
fn pixels_that_the_graph_normalises_give_the_same_as_pixel_values() {
    for name in [
        "timm_vit_class_token",
        "hf_clip_projection",
        "hf_deit_teacher_interpolated",
    ] {
        let pixels = model::load(&golden(name), &LoadOptions::default()).unwrap();
        let options = LoadOptions {
            input: InputKind::PixelValues,
            ..LoadOptions::default()
        };
        let values = model::load(&golden(name), &options).unwrap();
        let (height, width) = pixels.preprocess.output_size();
        assert_eq!(pixels.info.image_size, [height, width]);
        let bytes: Vec<u8> = (0..height * width * 3)
            .map(|index| (index * 37 % 256) as u8)
            .collect();
        let mut floats = vec![0.0; bytes.len()];
        values.preprocess.normalize(&bytes, &mut floats).unwrap();
        let expected = graph::interpret(&values.graph, 1, Input::Values(&floats)).unwrap();
        let result = graph::interpret(&pixels.graph, 1, Input::Pixels(&bytes)).unwrap();
        for ((kind, result), (_, expected)) in result.iter().zip(&expected) {
            // Each pixel value is rounded a few times here and there, by 2⁻²⁴ of 2 or so.
            let close =
                reference::check_close(result.as_slice().unwrap(), expected.as_slice().unwrap(), 2e-6);
            assert!(close.is_ok(), "{name} {kind:?}: {}", close.unwrap_err());
        }
    }
}

#[test]
fn the_embedded_model_and_its_directory_are_one() {
    let model = model::tinyvit32(&LoadOptions::default()).unwrap();
    assert_eq!(
        (model.name.as_str(), model.info.parameters),
        ("tinyvit32", 141_898)
    );
    assert_eq!(
        model.labels.iter().collect::<Vec<_>>()[..3],
        ["zero", "one", "two"]
    );
    assert_eq!(model.labels.get(10), "?");

    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets");
    let bytes = fs::read(root.join("digits/heldout.safetensors")).unwrap();
    let heldout = SafeTensors::deserialize(&bytes).unwrap();
    let batch = 6;
    let grey = &heldout.tensor("images").unwrap().data()[..batch * 32 * 32];
    let pixels: Vec<u8> = grey.iter().flat_map(|&value| [value; 3]).collect();
    for (name, model) in [
        ("tinyvit32", model),
        (
            "tinyvit32",
            model::load(&root.join("tinyvit32/model.safetensors"), &LoadOptions::default()).unwrap(),
        ),
        (
            "tinyvit32_odd",
            model::load(&root.join("tinyvit32_odd"), &LoadOptions::default()).unwrap(),
        ),
    ] {
        let bytes = fs::read(root.join(name).join("golden.safetensors")).unwrap();
        let expected = numbers(&SafeTensors::deserialize(&bytes).unwrap(), "logits");
        let outputs = graph::interpret(&model.graph, batch, Input::Pixels(&pixels)).unwrap();
        let logits = outputs[0].1.as_slice().unwrap();
        // The library's pixel values are f32; these are not rounded but their factors are.
        reference::assert_close(logits, &expected[..logits.len()], 2e-6);
    }
}

#[test]
fn labels_come_from_the_configuration() {
    let labels = |name: &str| {
        model::load(&golden(name), &LoadOptions::default())
            .unwrap()
            .labels
    };
    assert_eq!(labels("timm_vit_class_token").get(3), "thing 3, or so");
    assert_eq!(labels("timm_vit_pre_logits").get(5), "kind 5");
    assert_eq!(labels("timm_deit").get(2), "class 2");
    assert_eq!(labels("hf_vit").get(4), "Zürich");
    assert_eq!(
        labels("hf_vit_no_qkv_bias").iter().collect::<Vec<_>>(),
        ["LABEL_0", "LABEL_1"]
    );
    assert!(labels("hf_clip").is_empty());
}

#[test]
fn what_is_ignored_is_listed_with_its_reason() {
    let info = |name: &str| model::load(&golden(name), &LoadOptions::default()).unwrap().info;
    let clip = info("hf_clip");
    let reason = |tensor: &str| {
        clip.ignored
            .iter()
            .find(|ignored| ignored.tensor == tensor)
            .map(|i| i.reason)
    };
    assert_eq!(
        reason("text_projection.weight"),
        Some("the text tower does not affect an image's embedding")
    );
    assert_eq!(
        reason("vision_model.embeddings.position_ids"),
        Some("a buffer of consecutive numbers")
    );
    assert!(clip.ignored.iter().all(|i| i.tensor.starts_with("text_")
        || i.tensor.contains("position_ids")
        || i.tensor == "logit_scale"));
    assert_eq!((clip.library, clip.family), (Library::Transformers, Family::Clip));
    let dinov2 = info("hf_dinov2_model");
    assert_eq!(dinov2.ignored.len(), 1);
    assert_eq!(dinov2.interpolated, Some(([5, 5], [4, 4])));
    let vit = info("timm_vit_non_square");
    assert_eq!((vit.image_size, vit.patch, vit.tokens), ([32, 60], [8, 12], 21));
    assert_eq!(vit.ignored, []);
}

/// A copy of a golden directory, changed by `edit`, and what loading it says; the copy's path is left out of it.
fn refusal(case: &str, edit: impl FnOnce(&Path)) -> String {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(golden(case)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    edit(copy.path());
    message(copy.path(), copy.path())
}

/// What loading `path` says, without `root`.
fn message(path: &Path, root: &Path) -> String {
    let text = model::load(path, &LoadOptions::default())
        .unwrap_err()
        .to_string();
    assert!(!text.contains('\n'), "{text}");
    text.replace(root.to_str().unwrap(), "DIR")
}

/// Sets (or, with `null`, removes) a key of `config.json`; `key` may reach into objects with dots.
fn set(directory: &Path, key: &str, value: Value) {
    let file = directory.join("config.json");
    let mut config = read_json(&file);
    let mut place = &mut config;
    for part in key.split('.') {
        place = &mut place[part];
    }
    *place = value;
    fs::write(file, config.to_string()).unwrap();
}

#[test]
fn what_cannot_be_built_is_refused() {
    for (case, key, value, expected) in [
        (
            "timm_vit_avg_pool",
            "model_args.num_heads",
            json!(5),
            "24 channels do not divide among 5 heads",
        ),
        (
            "hf_vit",
            "num_attention_heads",
            json!(7),
            "24 channels do not divide among 7 heads",
        ),
        (
            "hf_vit",
            "num_attention_heads",
            json!(0),
            "`num_attention_heads` is 0",
        ),
        (
            "hf_vit",
            "patch_size",
            json!(64),
            "a patch of 64×64 does not fit an image of 32×32",
        ),
        (
            "hf_vit",
            "hidden_size",
            json!(24.5),
            "`hidden_size` is 24.5, expected a whole number",
        ),
        (
            "hf_vit",
            "hidden_act",
            json!("mish"),
            "`hidden_act` is \"mish\", which is not supported",
        ),
        (
            "hf_vit",
            "num_channels",
            json!(1),
            "`num_channels` is 1; only 3 are supported",
        ),
        (
            "hf_vit",
            "architectures",
            Value::Null,
            "`architectures` is missing, so the model's head is unknown",
        ),
        (
            "hf_vit",
            "architectures",
            json!(["ViTForMaskedImageModeling"]),
            "`architectures` is \"ViTForMaskedImageModeling\"; supported for vit are ViTModel, ViTForImageClassification",
        ),
        (
            "hf_vit",
            "model_type",
            json!("swin"),
            "`model_type` is \"swin\", which is not supported; supported are vit, deit, dinov2, dinov2_with_registers, clip, clip_vision_model, siglip, siglip_vision_model",
        ),
        (
            "timm_deit",
            "architecture",
            json!("resnet50"),
            "`architecture` is \"resnet50\", which is not supported; supported are the architectures of timm's modules vision_transformer and deit",
        ),
        (
            "timm_deit",
            "model_args.img_size",
            json!([48, -1]),
            "`model_args.img_size` is -1, expected a whole number",
        ),
        (
            "hf_clip",
            "vision_config.image_size",
            json!("big"),
            "`vision_config.image_size` is \"big\", expected a whole number",
        ),
    ] {
        let text = refusal(case, |directory| set(directory, key, value));
        assert_eq!(text, format!("DIR/config.json: {expected}"), "{case} {key}");
    }
}

#[test]
fn weights_that_do_not_fit_the_configuration_are_named() {
    for (case, key, value, expected) in [
        (
            "timm_deit",
            "model_args.patch_size",
            json!(12),
            "`patch_embed.proj.weight`: has shape [24, 3, 8, 8], but the configuration makes it [24, 3, 12, 12]",
        ),
        (
            "hf_vit",
            "intermediate_size",
            json!(61),
            "`vit.encoder.layer.0.intermediate.dense.weight`: has shape [60, 24], but the configuration makes it [61, 24]",
        ),
        (
            "hf_vit",
            "image_size",
            json!(40),
            "`vit.embeddings.position_embeddings`: has 16 positions, but the configuration makes it 5×5",
        ),
        (
            "hf_vit",
            "num_hidden_layers",
            json!(3),
            "`vit.encoder.layer.2.layernorm_before.weight`: is missing; expected with shape [24]",
        ),
        (
            "hf_vit",
            "num_hidden_layers",
            json!(1),
            "`vit.encoder.layer.1.attention.attention.key.bias`: is unexpected: the configuration has no place for it (nor for 15 more: `vit.encoder.layer.1.attention.attention.key.weight`, `vit.encoder.layer.1.attention.attention.query.bias`, `vit.encoder.layer.1.attention.attention.query.weight`, …)",
        ),
        (
            "hf_vit",
            "qkv_bias",
            json!(false),
            "`vit.encoder.layer.0.attention.attention.key.bias`: is unexpected: the configuration has no place for it (nor for 5 more: `vit.encoder.layer.0.attention.attention.query.bias`, `vit.encoder.layer.0.attention.attention.value.bias`, `vit.encoder.layer.1.attention.attention.key.bias`, …)",
        ),
        (
            "timm_vit_resampled_up",
            "model_args.class_token",
            json!(false),
            "there is no class token to pool",
        ),
    ] {
        let text = refusal(case, |directory| set(directory, key, value));
        let file = if expected.starts_with('`') {
            "model.safetensors: tensor "
        } else {
            "config.json: "
        };
        assert_eq!(text, format!("DIR/{file}{expected}"), "{case} {key}");
    }
}

/// Before files are missed, which would not help.
#[test]
fn a_family_that_is_not_supported_is_said_first_with_those_near() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    for (config, expected) in [
        (
            json!({ "model_type": "dinov3_vit", "architectures": ["DINOv3ViTModel"] }),
            "`model_type` is \"dinov3_vit\", which is not supported; near it: dinov2; supported are vit, deit, ",
        ),
        (
            json!({ "model_type": "vit", "architectures": ["ViTForMaskedImageModeling"] }),
            "`architectures` is \"ViTForMaskedImageModeling\"; supported for vit are ViTModel",
        ),
        (
            json!({ "architecture": "vit_base_patch16_242" }),
            "`architecture` is \"vit_base_patch16_242\", which is not supported; near it: vit_base_patch16_2",
        ),
        (
            json!({ "architecture": "resnet50" }),
            "`architecture` is \"resnet50\", which is not supported; supported are the architectures of timm's modules",
        ),
    ] {
        fs::write(root.join("config.json"), config.to_string()).unwrap();
        let text = message(root, root);
        assert!(
            text.starts_with(&format!("DIR/config.json: {expected}")),
            "{text}"
        );
    }
}

#[test]
fn a_directory_without_a_model_says_what_is_missing() {
    let nothing = tempfile::tempdir().unwrap();
    let root = nothing.path();
    assert_eq!(
        message(root, root),
        "DIR: is missing config.json, so it is not a model directory"
    );
    assert!(message(&root.join("absent"), root).starts_with("DIR/absent: "));
    fs::write(root.join("notes.txt"), "").unwrap();
    assert_eq!(
        message(&root.join("notes.txt"), root),
        "DIR/notes.txt: is neither a model directory nor a .safetensors file"
    );
    fs::write(root.join("open_clip_config.json"), "{}").unwrap();
    assert!(
        message(root, root).starts_with("DIR: is an open_clip model (open_clip_config.json, no config.json)")
    );
    let config = json!({ "model_type": "vit", "architectures": ["ViTModel"] });
    fs::write(root.join("config.json"), config.to_string()).unwrap();
    assert_eq!(
        message(root, root),
        "DIR: is missing model.safetensors, and has no model.safetensors.index.json instead"
    );
    fs::write(root.join("model.fp16.safetensors"), "").unwrap();
    assert_eq!(
        message(root, root),
        "DIR: has neither model.safetensors nor model.safetensors.index.json; to use model.fp16.safetensors, name the file \
         instead of the directory"
    );
    fs::write(root.join("pytorch_model-00001-of-00002.bin"), "").unwrap();
    let text = message(root, root);
    assert!(
        text.starts_with("DIR: has its weights in PyTorch's format only (pytorch_model*.bin)")
            && text.contains("python3 -c 'import pathlib, sys, torch;")
            && text.ends_with("d / \"model.safetensors\")' DIR"),
        "{text}"
    );

    let remove = |name: &'static str| move |directory: &Path| fs::remove_file(directory.join(name)).unwrap();
    assert_eq!(
        refusal("hf_vit", remove("preprocessor_config.json")),
        "DIR: is missing preprocessor_config.json, which says how images are prepared"
    );
    let write =
        |text: &'static str| move |directory: &Path| fs::write(directory.join("config.json"), text).unwrap();
    assert_eq!(
        refusal("hf_vit", write("{\n  \"model_type\": vit\n}")),
        "DIR/config.json: is not valid JSON: expected value at line 2 column 17"
    );
    assert_eq!(
        refusal("hf_vit", write("[]")),
        "DIR/config.json: is not a JSON object"
    );
    assert_eq!(
        refusal("hf_vit", write("{}")),
        "DIR/config.json: has neither timm's `architecture` nor transformers' `model_type`"
    );
}

/// A safetensors file: the header's length, the header, the data.
fn safetensors(header: &str, data: usize) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.resize(file.len() + data, 0);
    file
}

#[test]
fn a_broken_weight_file_is_named_with_the_cause() {
    let good = fs::read(golden("hf_vit/model.safetensors")).unwrap();
    let entry = |dtype: &str, begin: usize, end: usize| {
        format!("{{\"dtype\":\"{dtype}\",\"shape\":[1],\"data_offsets\":[{begin},{end}]}}")
    };
    let two = |second: String| format!("{{\"a\":{},\"b\":{second}}}", entry("F32", 0, 4));
    let lying = [&u64::to_le_bytes(1 << 20)[..], b"{}"].concat();
    let length = good.len();
    let (cut, appended) = (length - 1, length + 1);
    for (bytes, expected) in [
        (vec![1, 2, 3], "DIR/model.safetensors: is truncated: 3 bytes are too few for a safetensors file".to_owned()),
        (vec![], "DIR/model.safetensors: is truncated: 0 bytes are too few for a safetensors file".to_owned()),
        (
            lying,
            "DIR/model.safetensors: its header exceeds the file's 10 bytes: truncated, or not a safetensors file".to_owned(),
        ),
        (
            vec![255; 64],
            "DIR/model.safetensors: its header is larger than 100 MB: not a safetensors file".to_owned(),
        ),
        (
            good[..cut].to_vec(),
            format!("DIR/model.safetensors: its tensors do not end at its {cut} bytes: truncated, or data was appended"),
        ),
        (
            [&good[..], &[0]].concat(),
            format!("DIR/model.safetensors: its tensors do not end at its {appended} bytes: truncated, or data was appended"),
        ),
        (
            safetensors(&two(entry("F32", 2, 6)), 6),
            "DIR/model.safetensors: tensor `b`: overlaps another tensor, or leaves a gap before it".to_owned(),
        ),
        (
            safetensors(&two(entry("F32", 4, 12)), 12),
            "DIR/model.safetensors: its header gives a tensor a byte range that does not fit its shape and dtype".to_owned(),
        ),
    ] {
        let text = refusal("hf_vit", |directory| fs::write(directory.join("model.safetensors"), bytes).unwrap());
        assert_eq!(text, expected);
    }
    let unknown = safetensors(&two(entry("X7", 4, 8)), 8);
    let text = refusal("hf_vit", |directory| {
        fs::write(directory.join("model.safetensors"), unknown).unwrap();
    });
    assert!(
        text.starts_with("DIR/model.safetensors: its header is wrong: unknown variant `X7`"),
        "{text}"
    );

    // A dtype that safetensors knows but a model cannot have.
    let text = refusal("hf_vit", |directory| {
        let file = directory.join("model.safetensors");
        let tensors = SafeTensors::deserialize(&good).unwrap();
        let name = "classifier.bias";
        let integers = vec![0u8; 7 * 8];
        let wrong = TensorView::new(Dtype::I64, vec![7], &integers).unwrap();
        let all = tensors
            .iter()
            .map(|(n, view)| (n, if n == name { wrong.clone() } else { view }));
        safetensors::serialize_to_file(all, None, &file).unwrap();
    });
    assert_eq!(
        text,
        "DIR/model.safetensors: tensor `classifier.bias`: has dtype I64, expected F32, F16 or BF16"
    );
}

#[test]
fn a_broken_index_of_shards_is_named_with_the_cause() {
    let edit = |change: fn(&mut Value)| {
        move |directory: &Path| {
            let file = directory.join("model.safetensors.index.json");
            let mut index = read_json(&file);
            change(&mut index);
            fs::write(file, index.to_string()).unwrap();
        }
    };
    let refusal = |change| refusal("hf_vit_sharded", edit(change));
    assert_eq!(
        refusal(|index| index["weight_map"] = Value::Null),
        "DIR/model.safetensors.index.json: has no `weight_map`"
    );
    assert_eq!(
        refusal(|index| index["weight_map"]["classifier.bias"] = json!("../model.safetensors")),
        "DIR/model.safetensors.index.json: `weight_map.classifier.bias` is \"../model.safetensors\", expected a file name"
    );
    assert_eq!(
        refusal(|index| index["weight_map"]["more"] = json!("model-00001-of-00003.safetensors")),
        "DIR/model-00001-of-00003.safetensors: tensor `more`: is missing, but model.safetensors.index.json puts it there"
    );
    let text = refusal(|index| index["weight_map"]["more"] = json!("absent.safetensors"));
    assert_eq!(
        text,
        "DIR: is missing absent.safetensors, which model.safetensors.index.json lists"
    );
}

#[test]
fn an_image_size_that_cannot_be_is_refused() {
    for (size, expected) in [
        ([0, 32], "image size: 0×32 is not between 1 and 1048576 pixels"),
        ([7, 32], "a patch of 8×8 does not fit an image of 7×32"),
        (
            [1 << 40, 32],
            "image size: 1099511627776×32 is not between 1 and 1048576 pixels",
        ),
        (
            [1 << 20, 1 << 20],
            "131072×131072 patches of 24 channels are too many",
        ),
    ] {
        for case in ["timm_vit_avg_pool", "hf_vit"] {
            let options = LoadOptions {
                image_size: Some(size),
                ..LoadOptions::default()
            };
            let text = model::load(&golden(case), &options).unwrap_err().to_string();
            assert!(text.ends_with(expected), "{text}");
        }
    }
}
