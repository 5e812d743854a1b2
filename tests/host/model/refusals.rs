//! Every broken model directory is an error that names the file and the cause.

use std::fs;
use std::path::Path;

use hipvit::model::{self, LoadOptions};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};

use super::{golden, read_json};

/// Returns the error of loading a copy of a golden directory that `edit` has changed, without the path of the
/// copy.
fn refusal(case: &str, edit: impl FnOnce(&Path)) -> String {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(golden(case)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    edit(copy.path());
    message(copy.path(), copy.path())
}

/// Returns the error of loading `path`, without `root`.
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
            "hf_aimv2_native",
            "hidden_act",
            json!("gelu"),
            "`hidden_act` is gelu; only silu is supported",
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
            json!("resnet"),
            "`model_type` is \"resnet\", which is not supported; supported are vit, deit, dinov2, dinov2_with_registers, dinov3_vit, beit, swin, swinv2, clip, clip_vision_model, siglip, siglip_vision_model, siglip2, siglip2_vision_model, aimv2, aimv2_vision_model",
        ),
        (
            "timm_swin",
            "architecture",
            json!("swinv2_cr_tiny_224"),
            "`architecture` is \"swinv2_cr_tiny_224\", which is not supported: its blocks and position networks are not those of Swin V2, despite the name",
        ),
        (
            "timm_hiera",
            "model_args.q_stride",
            json!([1, 2]),
            "`model_args.q_stride` is [1,2], expected [2,2]: nothing else is supported",
        ),
        (
            "timm_hiera",
            "model_args.sep_pos_embed",
            json!(true),
            "`model_args.sep_pos_embed` is true, expected false: it is not supported",
        ),
        (
            "timm_hiera",
            "model_args.stages",
            json!([1, 2]),
            "`stages` has 2 numbers, expected 4",
        ),
        (
            "timm_hiera",
            "model_args.img_size",
            json!([64, 48]),
            "an image of 64×48 is not divided into windows of 32×32 pixels: use, for example, 64×64",
        ),
        (
            "timm_hiera",
            "model_args.global_pool",
            json!("token"),
            "`global_pool` of this architecture is \"avg\", \"max\" or \"avgmax\"",
        ),
        (
            "timm_swin",
            "model_args.head_dim",
            json!(8),
            "`model_args.head_dim` is 8, expected false: it is not supported",
        ),
        (
            "timm_swin",
            "model_args.window_size",
            json!([4, 4, 4]),
            "`depths`, `num_heads` and `window_size` have different numbers of stages",
        ),
        (
            "timm_swin",
            "model_args.strict_img_size",
            json!(false),
            "`model_args.strict_img_size` is false, which is only supported as `dynamic_img_size`: true",
        ),
        (
            "hf_swin",
            "window_size",
            json!(5),
            "`window_size` is 5, more than stage 1 has rows or columns for an image of 32×32",
        ),
        (
            "hf_swin",
            "patch_size",
            json!(3),
            "`patch_size` is 3×3, but images of 32×32 are no multiple of it; padding them is not supported",
        ),
        (
            "hf_swinv2",
            "use_absolute_embeddings",
            json!(true),
            "`use_absolute_embeddings` is true, but the library adds one position too many for swinv2 and fails",
        ),
        (
            "hf_swinv2",
            "depths",
            json!([2, 2, 2]),
            "`depths` has another number of stages than `num_heads` or `pretrained_window_sizes`",
        ),
        (
            "timm_deit",
            "architecture",
            json!("resnet50"),
            "`architecture` is \"resnet50\", which is not supported; supported are the architectures of timm's modules vision_transformer, deit, eva, beit, mlp_mixer, naflexvit, swin_transformer, swin_transformer_v2 and hiera",
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
            "hf_vit",
            "patch_size",
            json!(16),
            "`vit.embeddings.patch_embeddings.projection.weight`: has shape [24, 3, 8, 8], but the configuration makes it [24, 3, 16, 16]",
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

/// This is reported before missing files, which would be misleading.
#[test]
fn a_family_that_is_not_supported_is_said_first_with_those_near() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    for (config, expected) in [
        (
            json!({ "model_type": "dinov3_convnext", "architectures": ["DINOv3ConvNextModel"] }),
            "`model_type` is \"dinov3_convnext\", which is not supported; near it: dinov3_vit",
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
        "DIR: is missing preprocessor_config.json, which says how images are prepared, and has no processor_config.json instead"
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
        (vec![], "DIR/model.safetensors: is an empty file. Download or copy it again".to_owned()),
        (
            lying,
            "DIR/model.safetensors: is truncated: it has 10 of 1048584 bytes. Download or copy it again".to_owned(),
        ),
        (
            vec![255; 64],
            "DIR/model.safetensors: its header is larger than 100 MB: not a safetensors file".to_owned(),
        ),
        (
            good[..cut].to_vec(),
            format!("DIR/model.safetensors: is truncated: it has {cut} of {length} bytes. Download or copy it again"),
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
        "DIR/model.safetensors: tensor `classifier.bias`: has dtype I64, expected F64, F32, F16 or BF16"
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

/// timm interpolates positions of windows only.
#[test]
fn an_image_size_that_does_not_fit_hiera_is_refused() {
    for (case, size, expected) in [
        (
            "timm_hiera",
            [64, 64],
            "image size: 64×64 pixels are 256 tokens, but hiera_tiny_224 has positions for 128, and timm does not interpolate them: use 64×32, or a model with abswin in its name",
        ),
        (
            "timm_hiera_abswin",
            [64, 80],
            "image size: an image of 64×80 is not divided into windows of 32×32 pixels: use, for example, 64×96",
        ),
    ] {
        let options = LoadOptions {
            image_size: Some(size),
            ..LoadOptions::default()
        };
        let text = model::load(&golden(case), &options).unwrap_err().to_string();
        assert_eq!(text, expected);
    }
}
