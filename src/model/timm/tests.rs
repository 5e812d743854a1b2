use std::path::Path;

use serde_json::{Map, json};

use super::architectures::lookup;
use super::*;

/// timm's own arguments of every architecture of the two modules, see the script beside the file.
fn registry() -> Map<String, Value> {
    let text = include_str!("../../../tests/data/model/timm_architectures.json");
    serde_json::from_str(text).unwrap()
}

/// What timm passes for one architecture, or `None` if that is beyond what is supported.
fn timm_arguments(passed: &Map<String, Value>) -> Option<Arguments> {
    let mut arguments = Arguments::default();
    let mut rest = passed.clone();
    match rest.remove("norm_layer") {
        None => {}
        Some(norm) => arguments.epsilon = norm.get("layer_norm")?.as_f64()?,
    }
    match rest.remove("mlp_layer") {
        None => {}
        Some(mlp) => arguments.swiglu = (mlp == "swiglu_packed").then_some(true)?,
    }
    arguments.distilled = rest.remove("distilled").is_some();
    let rest = Value::Object(rest);
    let fields = Fields::new(Path::new("timm"), &rest).unwrap();
    check_supported(fields).ok()?;
    apply(fields, &mut arguments).ok()?;
    Some(arguments)
}

#[test]
fn every_architecture_stands_for_what_timm_says() {
    // Their positions are resampled in ways of their own, or they pool what the graph has no op for.
    let left_out = |name: &str| {
        name.starts_with("flexivit") || name.contains("radio") || name == "vit_so150m_patch16_reg4_map_256"
    };
    let mut supported = 0;
    for (name, passed) in registry() {
        let expected = timm_arguments(passed.as_object().unwrap()).filter(|_| !left_out(&name));
        assert_eq!(lookup(&name), expected, "{name}");
        supported += usize::from(expected.is_some());
    }
    assert_eq!(supported, 142);
}

#[test]
fn an_unknown_size_or_name_is_no_architecture() {
    for name in [
        "",
        "vit_base_patch16_225",
        "vit_base_patch16",
        "resnet50",
        "vit_base_patch14_dinov2_224",
    ] {
        assert!(lookup(name).is_none(), "{name}");
    }
}

/// `describe` of a minimal directory with these arguments.
fn described(arguments: &Value) -> Result<Vit> {
    let config = json!({
        "architecture": "vit_tiny_patch16_224",
        "num_classes": 7,
        "model_args": arguments,
        "pretrained_cfg": { "input_size": [3, 48, 32], "fixed_input_size": true },
    });
    describe(Fields::new(Path::new("config.json"), &config)?, None).map(|description| description.vit)
}

#[test]
fn arguments_override_the_architecture_and_null_means_what_it_means_in_python() {
    let vit = described(&json!({ "init_values": 0.1, "fc_norm": null, "drop_rate": 0.5, "qk_norm": false }))
        .unwrap();
    assert!(vit.layer_scale && vit.norm && !vit.pooled_norm);
    assert_eq!((vit.image, vit.dim, vit.classes), ([48, 32], 192, 7));
    let vit = described(&json!({ "init_values": null, "global_pool": "avg", "img_size": 64 })).unwrap();
    assert!(!vit.layer_scale && !vit.norm && vit.pooled_norm);
    assert_eq!((vit.image, vit.pooling), ([64, 64], Pooling::Mean { skip: 1 }));
    let vit =
        described(&json!({ "global_pool": "avg", "fc_norm": false, "pool_include_prefix": true })).unwrap();
    assert_eq!(
        (vit.norm, vit.pooled_norm, vit.pooling),
        (true, false, Pooling::Mean { skip: 0 })
    );
    let vit = described(&json!({ "global_pool": "avg", "final_norm": false, "pos_embed": "none" })).unwrap();
    assert!(!vit.norm && !vit.pooled_norm && vit.positions.is_none());
}

#[test]
fn what_is_not_supported_is_named() {
    for (arguments, expected) in [
        (
            json!({ "qk_norm": true }),
            "config.json: `model_args.qk_norm` is true, expected false: it is not supported",
        ),
        (
            json!({ "rope": 1 }),
            "config.json: `model_args.rope` is not a supported argument",
        ),
        (
            json!({ "in_chans": 1 }),
            "config.json: `model_args.in_chans` is 1; only 3 channels are supported",
        ),
        (
            json!({ "global_pool": "avgmax" }),
            "config.json: `model_args.global_pool` is \"avgmax\"; supported are \"token\", \"avg\", \"max\" and \"map\"",
        ),
        (
            json!({ "act_layer": "mish" }),
            "config.json: `model_args.act_layer` is \"mish\", which is not supported",
        ),
        (
            json!({ "norm_layer": "rmsnorm" }),
            "config.json: `model_args.norm_layer` is \"rmsnorm\"; only \"layernorm\" is supported",
        ),
        (
            json!({ "num_classes": 5 }),
            "config.json: `model_args.num_classes` is 5, but `num_classes` of the checkpoint is 7",
        ),
        (
            json!({ "global_pool": "map" }),
            "config.json: attention pooling that leaves the class or register tokens out is not supported",
        ),
    ] {
        assert_eq!(described(&arguments).unwrap_err().to_string(), expected);
    }
}
