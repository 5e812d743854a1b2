//! Keys of `config.json` have the meaning of timm and transformers, or are refused by name. The tests edit
//! the configuration of golden models.

use std::fs;
use std::path::Path;

use hipvit::image::{Limits, open};
use hipvit::{Result, Session};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::at;

/// Returns a golden model with these values in its configuration, by JSON pointer.
fn edited(case: &str, edits: &[(&str, Value)]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(at("tests/golden").join(case)).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, directory.path().join(path.file_name().unwrap())).unwrap();
    }
    let file = directory.path().join("config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    for (pointer, value) in edits {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        config.pointer_mut(parent).unwrap()[key] = value.clone();
    }
    fs::write(&file, config.to_string()).unwrap();
    directory
}

fn load(case: &str, edits: &[(&str, Value)]) -> Result<Session> {
    Session::load(edited(case, edits).path())
}

fn refusal(case: &str, edits: &[(&str, Value)]) -> String {
    load(case, edits).map(drop).unwrap_err().to_string()
}

fn labels(case: &str, edits: &[(&str, Value)]) -> Vec<String> {
    let session = load(case, edits).unwrap();
    session.labels().iter().map(str::to_owned).collect()
}

/// Returns the logits or the embedding of one image.
fn output(directory: &Path) -> Vec<f32> {
    let session = Session::load(directory).unwrap();
    let image = open(at("tests/golden/images/small.png"), Limits::default()).unwrap();
    let outputs = session.run(&[image]).unwrap();
    match outputs.logits() {
        Some(logits) => logits.iter().copied().collect(),
        None => outputs.embeddings().iter().copied().collect(),
    }
}

/// transformers 5.23: `AutoConfig.from_pretrained(…).id2label`, and whether the model loads.
#[test]
fn label_maps_of_transformers_have_holes_and_other_lengths() {
    let names = ["cat", "dog", "okapi", "tench", "Z", "a:b"];
    let map = |last: &str| {
        let mut map: serde_json::Map<String, Value> = (0..6)
            .map(|index| (index.to_string(), json!(names[index])))
            .collect();
        map.insert(last.to_owned(), json!("last"));
        Value::Object(map)
    };
    let expected = |last: &'static str| [&names[..], &[last]].concat();
    // Seven names make seven classes, whatever their indices.
    for (key, last) in [
        ("6", "last"),
        ("06", "last"),
        (" 6 ", "last"),
        ("9", "LABEL_6"),
        ("-1", "LABEL_6"),
    ] {
        assert_eq!(
            labels("hf_vit", &[("/id2label", map(key))]),
            expected(last),
            "{key}"
        );
    }
    // A different `num_labels` replaces all names.
    let short = ("/id2label", json!({ "0": "a", "1": "b" }));
    let numbered: Vec<String> = (0..7).map(|index| format!("LABEL_{index}")).collect();
    assert_eq!(
        labels("hf_vit", &[short.clone(), ("/num_labels", json!(7))]),
        numbered
    );
    assert_eq!(
        labels("hf_vit", &[("/id2label", Value::Null), ("/num_labels", json!(7))]),
        numbered
    );
    let digits = json!({ "0": 0, "1": 1, "2": 2, "3": 3, "4": 4, "5": 5, "6": null });
    assert_eq!(
        labels("hf_vit", &[("/id2label", digits)]),
        ["0", "1", "2", "3", "4", "5", "LABEL_6"]
    );

    let error = refusal("hf_vit", &[short]);
    assert!(
        error.contains(
            "`id2label` makes it 2 classes, but the checkpoint's classifier, `classifier.weight`, has 7"
        ),
        "{error}"
    );
    let error = refusal("hf_vit", &[("/num_labels", json!(3))]);
    assert!(error.contains("`num_labels` makes it 3 classes"), "{error}");
    let error = refusal("hf_vit", &[("/id2label", map("x"))]);
    assert!(
        error.contains("`id2label` has the key \"x\", expected a whole number"),
        "{error}"
    );
    let error = refusal("hf_vit", &[("/id2label", json!({}))]);
    assert!(error.contains("`id2label` names no class"), "{error}");
}

#[test]
fn keys_that_transformers_follows_are_refused_by_name() {
    for (case, pointer) in [
        ("hf_vit", "/per_layer_config"),
        ("hf_clip", "/vision_config/per_layer_config"),
    ] {
        let key = pointer.rsplit_once('/').unwrap().1;
        let error = refusal(case, &[(pointer, json!({ "1": { "hidden_act": "relu" } }))]);
        assert!(error.contains(&format!("{key}` is not supported")), "{error}");
        assert!(load(case, &[(pointer, json!({}))]).is_ok());
    }
}

/// transformers 5.23: `from_pretrained` raises for the first keys, and gives the model's own output for the others.
#[test]
fn null_is_refused_where_transformers_raises() {
    for (case, pointer, expected) in [
        ("hf_vit", "/hidden_act", "`hidden_act` is null, expected a string"),
        (
            "hf_vit",
            "/layer_norm_eps",
            "`layer_norm_eps` is null, expected a number",
        ),
        (
            "hf_vit",
            "/qkv_bias",
            "`qkv_bias` is null, expected true or false",
        ),
        (
            "hf_vit",
            "/image_size",
            "`image_size` is null, expected a whole number",
        ),
        (
            "hf_vit",
            "/num_labels",
            "`num_labels` is null, expected a whole number",
        ),
        (
            "hf_clip",
            "/vision_config/num_channels",
            "`vision_config.num_channels` is null, expected a whole number",
        ),
        (
            "hf_aimv2_native",
            "/rms_norm_eps",
            "`rms_norm_eps` is null, expected a number",
        ),
    ] {
        let error = refusal(case, &[(pointer, Value::Null)]);
        assert!(error.ends_with(expected), "{error}");
    }
    for (case, pointer) in [
        ("hf_vit", "/pooler_output_size"),
        ("hf_vit", "/problem_type"),
        ("hf_vit", "/mlp_ratio"),
        ("hf_clip", "/vision_config/attention_dropout"),
    ] {
        let changed = edited(case, &[(pointer, Value::Null)]);
        assert_eq!(
            output(changed.path()),
            output(edited(case, &[]).path()),
            "{pointer}"
        );
    }
}

#[test]
fn only_clip_reads_the_older_dict_of_a_tower() {
    let other = json!({ "hidden_act": "relu" });
    let plain = output(edited("hf_siglip", &[]).path());
    let ignored = edited("hf_siglip", &[("/vision_config_dict", other.clone())]);
    assert_eq!(output(ignored.path()), plain);
    let error = refusal("hf_clip", &[("/vision_config_dict", other)]);
    assert!(error.contains("patch_embedding.weight"), "{error}");
}

#[test]
fn names_of_one_activation_give_one_result() {
    let with = |name: &str| output(edited("hf_vit", &[("/hidden_act", json!(name))]).path());
    let tanh = with("gelu_pytorch_tanh");
    for name in ["gelu_new", "gelu_fast", "gelu_accurate", "gelu_python_tanh"] {
        assert_eq!(with(name), tanh, "{name}");
    }
    assert_ne!(with("gelu"), tanh);
}

#[test]
fn what_timm_ignores_changes_nothing() {
    let plain = output(edited("timm_vit_avg_pool", &[]).path());
    for (pointer, value) in [
        ("/architecture", json!("vit_small_patch16_224.some_tag")),
        ("/global_pool", json!("token")),
        ("/pretrained_cfg/tag", json!("other")),
        ("/pretrained_cfg/crop_mode", json!("unknown")),
        ("/pretrained_cfg/input_size", json!([3, 96, 96])),
        ("/pretrained_cfg/fixed_input_size", json!(1)),
        ("/model_args/out_indices", json!(3)),
        ("/model_args/features_only", json!(false)),
        ("/model_args/dynamic_img_pad", json!(true)),
        ("/model_args/act_layer", json!("")),
        ("/model_args/norm_layer", json!("layernorm_fp32")),
        ("/model_args/qkv_bias", json!(1)),
    ] {
        let changed = edited("timm_vit_avg_pool", &[(pointer, value)]);
        assert_eq!(output(changed.path()), plain, "{pointer}");
    }
}

#[test]
fn arguments_of_timm_that_are_not_followed_are_refused_by_name() {
    for (pointer, value, expected) in [
        (
            "/model_args/use_naflex",
            json!(true),
            "`model_args.use_naflex` is true, expected false",
        ),
        (
            "/model_args/act_layer",
            json!("mish"),
            "`model_args.act_layer` is \"mish\"",
        ),
        (
            "/model_args/num_classes",
            json!(5),
            "`model_args.num_classes` is 5, but `num_classes` of the checkpoint is 7",
        ),
        (
            "/pretrained_cfg/label_offset",
            json!(1),
            "`pretrained_cfg.label_offset` is not supported",
        ),
        ("/pretrained_cfg/mean", json!([0.5, 0.5]), "mean"),
        ("/pretrained_cfg/interpolation", json!("random"), "interpolation"),
    ] {
        let error = refusal("timm_vit_avg_pool", &[(pointer, value)]);
        assert!(
            error.contains("config.json") && error.contains(expected),
            "{error}"
        );
    }
    let error = refusal(
        "timm_pe_spatial",
        &[("/model_args/rope_grid_indexing", Value::Null)],
    );
    assert!(
        error.contains("`model_args.rope_grid_indexing` is null, expected a string"),
        "{error}"
    );
}

#[test]
fn patches_of_another_size_are_resampled_by_timm_alone() {
    let directory = edited(
        "hf_vit",
        &[("/patch_size", json!(16)), ("/image_size", json!(64))],
    );
    let error = Session::load(directory.path()).map(drop).unwrap_err().to_string();
    assert!(
        error.contains("has shape [24, 3, 8, 8], but the configuration makes it [24, 3, 16, 16]"),
        "{error}"
    );
    // timm 1.0.31: `resample_patch_embed` of the stored 8×8.
    let session = load("timm_vit_avg_pool", &[("/model_args/patch_size", json!(4))]).unwrap();
    assert_eq!(session.info().patch, [4, 4]);
}
