use std::path::Path;

use serde_json::{Map, Value, json};

use super::architectures::{Arguments, EPSILON, Gating, lookup};
use super::vision_transformer::{APPLIED, apply};
use super::*;
use crate::model::norm::{Norm, NormKind};
use crate::model::swin::Version;
use crate::model::vit::{BlockForm, Mlp, Pooling, Vit};
use crate::ops::Activation;

/// Returns timm's own arguments of every architecture of the two modules. A script in the folder of the file writes
/// them.
fn registry() -> Map<String, Value> {
    let text = include_str!("../../../tests/data/model/timm_architectures.json");
    serde_json::from_str(text).unwrap()
}

/// Returns the arguments that timm passes for one architecture.
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
    assert!(fields.keys().all(|key| APPLIED.contains(&key)), "{passed:?}");
    apply(fields, &mut arguments).unwrap();
    arguments
}

/// Reads a norm that timm passes as a class. Only `apply` accepts a name alone.
fn norm_layer(value: &Value) -> Option<Norm> {
    let (kind, epsilon) = match value {
        Value::Object(norm) => match norm.get("layer_norm") {
            Some(epsilon) => (NormKind::Layer, epsilon.as_f64()?),
            None => (NormKind::Rms, norm["rms_norm"].as_f64()?),
        },
        Value::String(name) if name == "RmsNorm" => (NormKind::Rms, EPSILON),
        _ => return None,
    };
    Some(Norm { kind, epsilon })
}

/// Removes the value of `key` if `read` accepts it.
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
fn every_architecture_of_eva_stands_for_what_timm_says() {
    let text = include_str!("../../../tests/data/model/timm_eva.json");
    let registry: Map<String, Value> = serde_json::from_str(text).unwrap();
    assert_eq!(registry.len(), 65);
    for (name, passed) in &registry {
        let mut expected = eva::Arguments::default();
        let mut rest = passed.as_object().unwrap().clone();
        if let Some(norm) = take(&mut rest, "norm_layer", norm_layer) {
            expected.norm_layer = norm;
        }
        let rest = Value::Object(rest);
        eva::apply(Fields::new(Path::new("timm"), &rest).unwrap(), &mut expected).unwrap();
        // Some architectures state the default explicitly.
        let explicit = |arguments: eva::Arguments| eva::Arguments {
            use_fc_norm: Some(arguments.fc_norm()),
            ..arguments
        };
        assert_eq!(
            eva::lookup(name).map(explicit),
            Some(explicit(expected)),
            "{name}"
        );
    }
    assert_eq!(eva::all().count(), registry.len());
}

#[test]
fn every_architecture_of_swin_stands_for_what_timm_says() {
    let text = include_str!("../../../tests/data/model/timm_swin.json");
    let registry: Map<String, Value> = serde_json::from_str(text).unwrap();
    for (name, passed) in &registry {
        // Every architecture passes its sizes. What it does not pass is the class's default.
        let mut expected = swin::lookup("swin_tiny_patch4_window7_224").unwrap();
        if name.starts_with("swinv2") {
            expected.version = Version::V2;
        }
        swin::apply(Fields::new(Path::new("timm"), passed).unwrap(), &mut expected).unwrap();
        assert_eq!(swin::lookup(name), Some(expected), "{name}");
    }
    assert_eq!(swin::all().count(), registry.len());
}

#[test]
fn every_architecture_of_hiera_stands_for_what_timm_says() {
    let text = include_str!("../../../tests/data/model/timm_hiera.json");
    let registry: Map<String, Value> = serde_json::from_str(text).unwrap();
    assert_eq!(registry.len(), 8);
    for (name, passed) in &registry {
        // What an architecture does not pass is the class's default.
        let mut expected = hiera::lookup("hiera_tiny_224").unwrap();
        hiera::apply(Fields::new(Path::new("timm"), passed).unwrap(), &mut expected).unwrap();
        assert_eq!(hiera::lookup(name), Some(expected), "{name}");
    }
    assert_eq!(hiera::all().count(), registry.len());
}

#[test]
fn every_architecture_of_naflexvit_stands_for_what_timm_says() {
    let text = include_str!("../../../tests/data/model/timm_naflex.json");
    let registry: Map<String, Value> = serde_json::from_str(text).unwrap();
    assert_eq!(registry.len(), 14);
    for (name, passed) in &registry {
        let fields = Fields::new(Path::new("timm"), passed).unwrap();
        assert!(fields.keys().all(|key| naflex::APPLIED.contains(&key)), "{name}");
        let mut expected = naflex::Arguments::default();
        naflex::apply(fields, &mut expected).unwrap();
        assert_eq!(naflex::lookup(name), Some(expected), "{name}");
    }
    assert_eq!(naflex::all().count(), registry.len());
}

#[test]
fn every_architecture_of_beit_stands_for_what_timm_says() {
    let text = include_str!("../../../tests/data/model/timm_beit.json");
    let registry: Map<String, Value> = serde_json::from_str(text).unwrap();
    assert_eq!(registry.len(), 7);
    for (name, passed) in &registry {
        let mut expected = beit::Arguments::default();
        beit::apply(Fields::new(Path::new("timm"), passed).unwrap(), &mut expected).unwrap();
        assert_eq!(beit::lookup(name), Some(expected), "{name}");
    }
    assert_eq!(beit::all().count(), registry.len());
}

#[test]
fn every_architecture_of_mlp_mixer_stands_for_what_timm_says() {
    let text = include_str!("../../../tests/data/model/timm_mixer.json");
    let registry: Map<String, Value> = serde_json::from_str(text).unwrap();
    assert_eq!(registry.len(), 15);
    for (name, passed) in &registry {
        let mut rest = passed.as_object().unwrap().clone();
        let text = |rest: &mut Map<String, Value>, key| take(rest, key, |v| v.as_str().map(str::to_owned));
        let layers = ["block_layer", "mlp_layer", "norm_layer", "act_layer"].map(|key| text(&mut rest, key));
        let block = match layers.each_ref().map(Option::as_deref) {
            [None, None, None, None] => mixer::Block::Mixer,
            [None, Some("GluMlp"), None, Some("silu")] => mixer::Block::GluMixer,
            [Some("ResBlock"), None, Some("Affine"), None] => mixer::Block::ResMlp,
            [Some("SpatialGatingBlock"), Some("GatedMlp"), None, None] => mixer::Block::SpatialGating,
            other => panic!("{other:?}"),
        };
        // Defaults of timm's class.
        let mut expected = mixer::Arguments {
            patch_size: [16, 16],
            num_blocks: 8,
            embed_dim: 512,
            mlp_ratio: [0.5, 4.0],
            block,
            stem_norm: false,
        };
        let rest = Value::Object(rest);
        let fields = Fields::new(Path::new("timm"), &rest).unwrap();
        assert!(fields.keys().all(|key| mixer::APPLIED.contains(&key)), "{name}");
        mixer::apply(fields, &mut expected).unwrap();
        assert_eq!(mixer::lookup(name), Some(expected), "{name}");
    }
    assert_eq!(mixer::all().count(), registry.len());
}

#[test]
fn what_a_mixer_does_not_support_is_named() {
    for (architecture, arguments, expected) in [
        (
            "mixer_b16_224",
            json!({ "global_pool": "" }),
            "config.json: `model_args.global_pool` is \"\"; supported is \"avg\"",
        ),
        (
            "mixer_b16_224",
            json!({ "mlp_ratio": [0.5, 4, 1] }),
            "config.json: `model_args.mlp_ratio` is [0.5,4,1], expected a positive number or two",
        ),
        (
            "gmlp_s16_224",
            json!({ "num_heads": 3 }),
            "config.json: `model_args.num_heads` is not a supported argument",
        ),
        (
            "gmlp_s16_224",
            json!({ "embed_dim": 27, "mlp_ratio": 1 }),
            "config.json: a gate needs an even number of channels",
        ),
        (
            "mixer_s32_224",
            json!({ "mlp_ratio": [0.001, 4] }),
            "config.json: the network over the tokens has no channels",
        ),
    ] {
        let config = json!({ "architecture": architecture, "model_args": arguments });
        let fields = Fields::new(Path::new("config.json"), &config).unwrap();
        let error = describe(fields, None, &no_weights()).map(drop).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    let config = json!({ "architecture": "resmlp_12_224", "model_args": { "img_size": 64 } });
    let fields = Fields::new(Path::new("config.json"), &config).unwrap();
    assert_eq!(
        describe(fields, Some([64, 64]), &no_weights()).unwrap().vit.image,
        [64, 64]
    );
    let error = describe(fields, Some([96, 64]), &no_weights())
        .map(drop)
        .unwrap_err()
        .to_string();
    assert!(error.contains("96×64 is not 64×64, the model's own"), "{error}");
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

fn no_weights() -> Weights {
    Weights::new(Path::new("model.safetensors"))
}

/// Describes a minimal directory with these arguments.
fn described(arguments: &Value) -> Result<Vit> {
    let config = json!({
        "architecture": "vit_tiny_patch16_224",
        "num_classes": 7,
        "model_args": arguments,
        "pretrained_cfg": { "input_size": [3, 48, 32], "fixed_input_size": true, "classifier": "head" },
    });
    let fields = Fields::new(Path::new("config.json"), &config)?;
    describe(fields, None, &no_weights()).map(|description| description.vit)
}

#[test]
fn arguments_override_the_architecture_and_null_means_what_it_means_in_python() {
    let vit = described(&json!({ "init_values": 0.1, "fc_norm": null, "drop_rate": 0.5, "qk_norm": false }))
        .unwrap();
    assert!(vit.layer_scale == [true; 2] && vit.norm && !vit.pooled_norm);
    assert_eq!((vit.image, vit.dim, vit.classes), ([48, 32], 192, 7));
    let vit = described(&json!({ "init_values": null, "global_pool": "avg", "img_size": 64 })).unwrap();
    assert!(vit.layer_scale == [false; 2] && !vit.norm && vit.pooled_norm);
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
            json!({ "use_naflex": 1 }),
            "config.json: `model_args.use_naflex` is 1, expected false: it is not supported",
        ),
        (
            json!({ "features_only": true }),
            "config.json: `model_args.features_only` is true, expected false: it is not supported",
        ),
        (
            json!({ "dynamic_img_pad": true, "img_size": 50 }),
            "config.json: `model_args.dynamic_img_pad` pads an image of 50×50 to whole patches, which is not supported",
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
            "config.json: `model_args.num_classes` is 5, but `num_classes` of the checkpoint is 7: timm would give the model a random classifier",
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

#[test]
fn what_eva_does_not_support_is_named() {
    for (architecture, arguments, expected) in [
        (
            "vit_small_patch16_rope_224",
            json!({ "rope_type": "mrope" }),
            "config.json: `model_args.rope_type` is \"mrope\"; supported are \"cat\", \"mixed\" and \"dinov3\"",
        ),
        (
            "vit_small_patch16_rope_mixed_224",
            json!({ "rope_rotate_half": true }),
            "config.json: `rope_type` \"mixed\" needs `rope_rotate_half` to be false",
        ),
        (
            "eva02_tiny_patch14_224",
            json!({ "num_kv_heads": 1 }),
            "config.json: `num_kv_heads` needs `attn_type` \"rope\" and `qkv_fused` to be false",
        ),
        (
            "eva02_tiny_patch14_224",
            json!({ "gated_attn": true }),
            "config.json: `model_args.gated_attn` is not a supported argument",
        ),
    ] {
        let config = json!({ "architecture": architecture, "model_args": arguments });
        let fields = Fields::new(Path::new("config.json"), &config).unwrap();
        let error = describe(fields, None, &no_weights()).map(drop).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    // Fewer entries than blocks, and a head size without pairs for two coordinates.
    for (arguments, expected) in [
        (
            json!({ "depth": 2 }),
            "[12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12] heads of keys and values do not fit 2 blocks of 12 heads",
        ),
        (
            json!({ "embed_dim": 72 }),
            "rotary position embedding needs heads with a multiple of 4 channels, not 6",
        ),
    ] {
        let config = json!({ "architecture": "vit_base_patch16_sapiens2", "model_args": arguments });
        let fields = Fields::new(Path::new("config.json"), &config).unwrap();
        let vit = describe(fields, None, &no_weights()).unwrap().vit;
        assert_eq!(vit.check().unwrap_err().to_string(), expected);
    }
}

#[test]
fn a_tag_of_the_architecture_has_no_effect() {
    for (name, expected) in [
        ("vit_small_patch16_224.augreg_in21k", "vit_small_patch16_224"),
        ("vit_small_patch16_224.", "vit_small_patch16_224"),
        ("eva02_tiny_patch14_224.mim_in22k.x", "eva02_tiny_patch14_224"),
        ("beit_base_patch16_224.in22k", "beit_base_patch16_224"),
        ("mixer_b16_224.goog_in21k", "mixer_b16_224"),
    ] {
        let config = json!({ "architecture": name });
        let fields = Fields::new(Path::new("config.json"), &config).unwrap();
        check_architecture(fields).unwrap();
        let description = describe(fields, None, &no_weights()).unwrap();
        assert_eq!(description.architecture, expected);
    }
}

#[test]
fn flags_are_true_as_in_python() {
    let vit =
        described(&json!({ "qkv_bias": 0, "class_token": 1, "fc_norm": 1, "init_values": false })).unwrap();
    assert_eq!(
        (vit.qkv_bias, vit.class_token, vit.pooled_norm),
        ([false; 3], true, true)
    );
    assert_eq!(vit.layer_scale, [false; 2]);
    let config = |key: &str| json!({ "architecture": "test_vit3", "model_args": { key: null } });
    let skip = |config: &Value| {
        let fields = Fields::new(Path::new("config.json"), config).unwrap();
        describe(fields, None, &no_weights()).unwrap().vit.pooling
    };
    // The architecture also pools its register, unless the file says otherwise, which null does.
    assert!(matches!(
        skip(&config("drop_rate")),
        Pooling::Attention { skip: 0, .. }
    ));
    assert!(matches!(
        skip(&config("pool_include_prefix")),
        Pooling::Attention { skip: 1, .. }
    ));
}

#[test]
fn a_norm_or_activation_of_null_is_the_default_of_the_class() {
    let config = json!({
        "architecture": "vit_base_patch32_clip_quickgelu_224",
        "model_args": { "norm_layer": null, "act_layer": "" },
    });
    let vit = describe(
        Fields::new(Path::new("config.json"), &config).unwrap(),
        None,
        &no_weights(),
    )
    .unwrap()
    .vit;
    assert_eq!(
        (vit.norms.epsilon, vit.mlp),
        (EPSILON, Mlp::Plain(Activation::GeluErf))
    );
}

#[test]
fn sizes_follow_timm() {
    let sizes = |config: Value| {
        let fields = Fields::new(Path::new("config.json"), &config).unwrap();
        let sizes = Config::new(fields).unwrap().sizes(None, false);
        sizes.map(|sizes| [sizes.stored, sizes.model, sizes.image])
    };
    let cfg = |fixed: Value, input: Value, args: Value| {
        sizes(json!({ "pretrained_cfg": { "fixed_input_size": fixed, "input_size": input }, "model_args": args })).unwrap()
    };
    // The arguments replace the input size of a model of fixed size, whatever it is.
    assert_eq!(
        cfg(json!(1), json!([40]), json!({ "img_size": 48 })),
        [[48; 2]; 3]
    );
    assert_eq!(cfg(json!(true), json!([3, 48, 32]), json!({})), [[48, 32]; 3]);
    assert_eq!(
        cfg(json!(true), json!([1, 48, 32]), json!({ "in_chans": 3 })),
        [[48, 32]; 3]
    );
    // A model of any size is created for 224, unless the arguments say otherwise.
    let dynamic = json!({ "dynamic_img_size": true });
    assert_eq!(
        cfg(json!(true), json!([3, 64, 64]), dynamic),
        [[64; 2], [224; 2], [64; 2]]
    );
    let error = sizes(json!({ "pretrained_cfg": { "input_size": 224 } })).unwrap_err();
    assert!(
        error.to_string().contains("`pretrained_cfg.input_size` is 224"),
        "{error}"
    );
}

#[test]
fn the_arguments_decide_on_the_classes() {
    let classes = |config: Value| {
        let fields = Fields::new(Path::new("config.json"), &config).unwrap();
        let classes = Config::new(fields).unwrap().classes();
        classes.map(|classes| (classes.count, classes.ignored().count()))
    };
    let head = json!({ "classifier": "head", "num_classes": 7 });
    let zero = json!({ "num_classes": 0 });
    assert_eq!(
        classes(json!({ "pretrained_cfg": head, "model_args": zero })).unwrap(),
        (0, 2)
    );
    assert_eq!(
        classes(json!({ "model_args": { "num_classes": 5 } })).unwrap(),
        (5, 0)
    );
    assert_eq!(
        classes(json!({ "num_classes": 3, "pretrained_cfg": head })).unwrap(),
        (3, 0)
    );
    assert_eq!(classes(json!({ "pretrained_cfg": head })).unwrap(), (7, 0));
    assert_eq!(classes(json!({ "num_classes": -1 })).unwrap(), (1000, 0));
    assert!(classes(json!({ "pretrained_cfg": head, "model_args": { "num_classes": 5 } })).is_err());
}

#[test]
fn labels_have_holes_numbers_and_an_older_name() {
    let labels = |config: Value| {
        let fields = Fields::new(Path::new("config.json"), &config).unwrap();
        let labels = Config::new(fields).unwrap().labels(4).unwrap();
        labels.iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        labels(json!({ "labels": ["a", 7, null] })),
        ["a", "7", "class 2", "class 3"]
    );
    assert_eq!(
        labels(
            json!({ "labels": ["x"], "pretrained_cfg": {}, "label_names": { "3": "d", "9": "z", "1": "b" } })
        ),
        ["class 0", "b", "class 2", "d"]
    );
}
