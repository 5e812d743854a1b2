use std::path::Path;

use serde_json::{Map, json};

use super::architectures::lookup;
use super::*;

/// timm's own arguments of every architecture of the two modules, see the script beside the file.
fn registry() -> Map<String, Value> {
    let text = include_str!("../../../tests/data/model/timm_architectures.json");
    serde_json::from_str(text).unwrap()
}

/// What timm passes for one architecture.
fn timm_arguments(passed: &Map<String, Value>) -> Arguments {
    let mut arguments = Arguments::default();
    let mut rest = passed.clone();
    if let Some(norm) = take(&mut rest, "norm_layer", norm_layer) {
        arguments.norm_layer = norm;
    }
    arguments.embed_norm_layer = take(&mut rest, "embed_norm_layer", norm_layer);
    if let Some(mlp) = rest.remove("mlp_layer") {
        arguments.mlp_layer = match mlp.as_str() {
            Some("swiglu_packed") => Gating::Packed,
            Some("SwiGLU") => Gating::Separate,
            _ => panic!("{mlp}"),
        };
    }
    if let Some(block) = rest.remove("block_fn") {
        arguments.block_fn = match block.as_str() {
            Some("ParallelScalingBlock" | "DiffParallelScalingBlock") => BlockForm::Parallel,
            Some("ParallelThingsBlock") => BlockForm::Pairs,
            Some("ResPostBlock") => BlockForm::PostNorm,
            _ => panic!("{block}"),
        };
        arguments.differential_block = block == "DiffParallelScalingBlock";
    }
    arguments.distilled = rest.remove("distilled").is_some();
    let rest = Value::Object(rest);
    let fields = Fields::new(Path::new("timm"), &rest).unwrap();
    check_supported(fields).unwrap();
    apply(fields, &mut arguments).unwrap();
    arguments
}

/// A norm that timm passes as a class; its name alone is for `apply`.
fn norm_layer(value: &Value) -> Option<Norm> {
    let (kind, epsilon) = match value {
        Value::Object(norm) => (NormKind::Layer, norm["layer_norm"].as_f64().unwrap()),
        Value::String(name) if name == "RmsNorm" => (NormKind::Rms, EPSILON),
        Value::String(name) if name.contains("RmsNorm'>, eps=1e-05") => (NormKind::Rms, 1e-5),
        _ => return None,
    };
    Some(Norm { kind, epsilon })
}

/// Removes what `read` knows.
fn take<T>(rest: &mut Map<String, Value>, key: &str, read: fn(&Value) -> Option<T>) -> Option<T> {
    let value = read(rest.get(key)?)?;
    rest.remove(key);
    Some(value)
}

#[test]
fn every_architecture_stands_for_what_timm_says() {
    let registry = registry();
    assert_eq!(registry.len(), 179);
    for (name, passed) in &registry {
        let expected = timm_arguments(passed.as_object().unwrap());
        assert_eq!(lookup(name), Some(expected), "{name}");
    }
    assert_eq!(architectures::names().count(), registry.len());
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
            json!({ "dynamic_img_pad": true }),
            "config.json: `model_args.dynamic_img_pad` is true, expected false: it is not supported",
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
            json!({ "global_pool": "median" }),
            "config.json: `model_args.global_pool` is \"median\"; supported are \"token\", \"avg\", \"max\", \"avgmax\", \"map\" and \"prr\"",
        ),
        (
            json!({ "act_layer": "mish" }),
            "config.json: `model_args.act_layer` is \"mish\", which is not supported",
        ),
        (
            json!({ "norm_layer": "batchnorm" }),
            "config.json: `model_args.norm_layer` is \"batchnorm\"; supported are \"layernorm\" and \"rmsnorm\"",
        ),
        (
            json!({ "num_classes": 5 }),
            "config.json: `model_args.num_classes` is 5, but `num_classes` of the checkpoint is 7",
        ),
        (
            json!({ "attn_layer": "diff", "qk_norm": true }),
            "config.json: differential attention with `qk_norm` is not supported",
        ),
        (
            json!({ "attn_layer": "linear" }),
            "config.json: `model_args.attn_layer` is \"linear\"; supported are \"attn\" and \"diff\"",
        ),
    ] {
        assert_eq!(described(&arguments).unwrap_err().to_string(), expected);
    }
}
