//! Configurations of new models, and of models with other classes.

use serde_json::{Map, Value, json};

/// Mean and standard deviation of ImageNet's pixels, with which new models normalise images.
const MEAN: [f64; 3] = [0.485, 0.456, 0.406];
const DEVIATION: [f64; 3] = [0.229, 0.224, 0.225];
/// timm's default share of the image's side that evaluation keeps.
const CROP: f64 = 0.875;
const IMAGE_SIZE: usize = 224;
/// LayerScale of architectures whose configuration does not set it.
const LAYER_SCALE: f32 = 1e-5;

/// Returns the configuration of a timm architecture with new weights. A small image is not cropped.
pub(super) fn architecture_config(name: &str, image_size: Option<usize>) -> Value {
    let side = image_size.or_else(|| size_in_name(name)).unwrap_or(IMAGE_SIZE);
    let crop = if side < IMAGE_SIZE { 1.0 } else { CROP };
    let arguments = image_size.map_or(json!({}), |side| json!({ "img_size": side }));
    json!({
        "architecture": name,
        "model_args": arguments,
        "pretrained_cfg": {
            "input_size": [3, side, side],
            "fixed_input_size": true,
            "interpolation": "bicubic",
            "crop_pct": crop,
            "crop_mode": "center",
            "mean": MEAN,
            "std": DEVIATION,
        },
    })
}

/// Returns the image size at the end of an architecture's name, as in `vit_small_patch16_384`.
fn size_in_name(name: &str) -> Option<usize> {
    let size = name.rsplit('_').find_map(|part| part.parse().ok());
    size.filter(|size| (32..=2048).contains(size))
}

/// Returns `config` with these classes.
pub(super) fn for_classes(config: &Value, classes: &[String]) -> Value {
    let mut config = config.as_object().cloned().unwrap_or_default();
    if config.contains_key("architecture") {
        set_timm_classes(&mut config, classes);
    } else {
        set_transformers_classes(&mut config, classes);
    }
    Value::Object(config)
}

fn set_timm_classes(config: &mut Map<String, Value>, classes: &[String]) {
    let names = config.get("label_names").and_then(Value::as_array);
    let is_equal = names.is_some_and(|names| {
        names
            .iter()
            .map(Value::as_str)
            .eq(classes.iter().map(|name| Some(name.as_str())))
    });
    if is_equal {
        return;
    }
    config.insert("num_classes".into(), classes.len().into());
    config.insert("label_names".into(), classes.into());
    config.remove("label_descriptions");
    for (key, always) in [("model_args", true), ("pretrained_cfg", false)] {
        let Some(Value::Object(section)) = config.get_mut(key) else {
            continue;
        };
        if always || section.contains_key("num_classes") {
            section.insert("num_classes".into(), classes.len().into());
        }
        for label in ["label_names", "label_descriptions"] {
            section.remove(label);
        }
    }
}

fn set_transformers_classes(config: &mut Map<String, Value>, classes: &[String]) {
    let id2label: Map<String, Value> = classes
        .iter()
        .enumerate()
        .map(|(index, name)| (index.to_string(), name.as_str().into()))
        .collect();
    let label2id: Map<String, Value> = classes
        .iter()
        .enumerate()
        .map(|(index, name)| (name.clone(), index.into()))
        .collect();
    config.remove("num_labels");
    config.insert("id2label".into(), id2label.into());
    config.insert("label2id".into(), label2id.into());
    let class = config
        .get("architectures")
        .and_then(|list| list.get(0))
        .and_then(Value::as_str);
    if let Some(class) = class.and_then(classifier_class) {
        config.insert("architectures".into(), json!([class]));
    }
}

/// Returns the name of the classifier of a class of transformers, if the class is not a classifier.
fn classifier_class(class: &str) -> Option<String> {
    const CLASSIFIER: &str = "ForImageClassification";
    if class.contains(CLASSIFIER) {
        return None;
    }
    const ENDS: [&str; 5] = [
        "ForMaskedImageModeling",
        "VisionModelWithProjection",
        "VisionModel",
        "ForPreTraining",
        "Model",
    ];
    let trunk = ENDS.iter().find_map(|end| class.strip_suffix(end))?;
    Some(format!("{trunk}{CLASSIFIER}"))
}

/// Returns the initial LayerScale of a configuration.
pub(super) fn layer_scale(config: &Value) -> f32 {
    let keys = [
        "/model_args/init_values",
        "/layerscale_value",
        "/layer_scale_init_value",
        "/backbone_config/layerscale_value",
    ];
    let value = keys.iter().find_map(|key| config.pointer(key)?.as_f64());
    value.map_or(LAYER_SCALE, |value| value as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes() -> [String; 2] {
        ["cat", "dog"].map(String::from)
    }

    #[test]
    fn timm_classes_replace_count_and_labels() {
        let config = json!({
            "architecture": "vit_tiny_patch16_224",
            "num_classes": 1000,
            "label_descriptions": { "a": "b" },
            "model_args": { "depth": 2 },
            "pretrained_cfg": { "num_classes": 1000, "label_names": ["a"] },
        });
        let expected = json!({
            "architecture": "vit_tiny_patch16_224",
            "num_classes": 2,
            "label_names": ["cat", "dog"],
            "model_args": { "depth": 2, "num_classes": 2 },
            "pretrained_cfg": { "num_classes": 2 },
        });
        let changed = for_classes(&config, &classes());
        assert_eq!(changed, expected);
        assert_eq!(for_classes(&changed, &classes()), changed);
    }

    #[test]
    fn transformers_classes_replace_labels_and_the_class() {
        let config = json!({ "model_type": "dinov2", "architectures": ["Dinov2Model"], "num_labels": 7 });
        let expected = json!({
            "model_type": "dinov2",
            "architectures": ["Dinov2ForImageClassification"],
            "id2label": { "0": "cat", "1": "dog" },
            "label2id": { "cat": 0, "dog": 1 },
        });
        assert_eq!(for_classes(&config, &classes()), expected);
        assert_eq!(
            classifier_class("CLIPVisionModelWithProjection").as_deref(),
            Some("CLIPForImageClassification")
        );
        assert_eq!(classifier_class("ViTForImageClassification"), None);
    }

    #[test]
    fn the_image_size_is_in_the_name() {
        assert_eq!(size_in_name("vit_small_patch16_384"), Some(384));
        assert_eq!(size_in_name("vit_base_patch32_plus_256"), Some(256));
        assert_eq!(size_in_name("deit3_tiny"), None);
    }
}
