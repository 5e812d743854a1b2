//! Compares each key of each class with transformers, and tests how a class is found.

use serde::Deserialize;
use serde_json::json;

use super::*;
use crate::noise::noise;
use crate::rgb_image::RgbImage;

/// Cases of a class in `tests/data/image/processors.json`, which `make_processors.py` writes.
#[derive(Deserialize)]
struct Cases {
    class: String,
    base: Map<String, Value>,
    crc32: u32,
    cases: Vec<(Map<String, Value>, Expected)>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Expected {
    Crc32(u32),
    /// "error" if transformers raises, "refused" if only hipvit does.
    Refused(String),
}

fn rules(config: &Value, model: Option<&str>) -> Result<Preprocess> {
    Preprocess::from_hf(Path::new("DIR/preprocessor_config.json"), config, model)
}

fn message(config: &Value) -> String {
    let error = rules(config, Some("clip")).unwrap_err().to_string();
    error
        .strip_prefix("DIR/preprocessor_config.json: ")
        .unwrap()
        .to_owned()
}

/// Returns the CRC of the pixel values of `images`, in transformers' order.
fn crc32(rules: &Preprocess, images: &[RgbImage]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for image in images {
        let bytes = rules.apply(image).unwrap().data;
        let values = if rules.patch().is_some() {
            rules.normalize_patches(&bytes).unwrap().0
        } else {
            let mut values = vec![f32::NAN; bytes.len()];
            rules.normalize(&bytes, &mut values).unwrap();
            values
        };
        values
            .iter()
            .for_each(|value| hasher.update(&value.to_le_bytes()));
    }
    hasher.finalize()
}

#[test]
fn each_key_does_what_it_does_in_transformers() {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/data/image/processors.json"
    );
    let text = std::fs::read_to_string(file).unwrap();
    let classes: Vec<Cases> = serde_json::from_str(&text).unwrap();
    let images = [noise(70, 50, 1), noise(33, 64, 2)];
    let (mut wrong, mut count) = (Vec::new(), 0);
    for Cases {
        class,
        base,
        crc32: unchanged,
        cases,
    } in classes
    {
        for (edit, expected) in std::iter::once((Map::new(), Expected::Crc32(unchanged))).chain(cases) {
            let mut config = base.clone();
            config.insert("image_processor_type".to_owned(), json!(class));
            config.extend(edit.clone());
            let right = match (rules(&Value::Object(config), None), &expected) {
                (Ok(rules), Expected::Crc32(expected)) => crc32(&rules, &images) == *expected,
                (Err(error), Expected::Refused(_)) => {
                    let text = error.to_string();
                    edit.keys().any(|key| text.contains(&format!("`{key}")))
                }
                // A key that is not needed is not read here, but transformers still checks it.
                (Ok(rules), Expected::Refused(by)) => {
                    by == "error" && crc32(&rules, &images) == unchanged && unread(&class, &edit)
                }
                (Err(_), Expected::Crc32(_)) => false,
            };
            count += 1;
            if !right {
                let name = Value::Object(edit);
                wrong.push(format!("{class} {name}"));
            }
        }
    }
    assert!(count > 1000, "{count}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns true for keys that SigLIP 2's class checks but does not use.
fn unread(class: &str, edit: &Map<String, Value>) -> bool {
    class == "Siglip2ImageProcessor" && (edit.contains_key("size") || edit.contains_key("do_center_crop"))
}

#[test]
fn nulls_say_what_needs_the_value() {
    for (config, expected) in [
        (
            json!({"size": null}),
            "`size` is null, but `do_resize` needs it. Set it, or remove the key for the class's default.",
        ),
        (
            json!({"do_center_crop": null}),
            "`size` (shortest edge to 224) keeps the aspect ratio and `do_center_crop` is false, but the model takes images of \
             one size. Give `size` a height and a width, or set `do_center_crop`.",
        ),
        (
            json!({"do_resize": null, "do_center_crop": null}),
            "`do_resize` and `do_center_crop` are false, but the model takes images of one size. Set one of them to true.",
        ),
        (
            json!({"size": {"max_height": 9, "max_width": 9}}),
            "`size` is {\"max_height\":9,\"max_width\":9}, expected height and width",
        ),
        (
            json!({"do_rescale": "false"}),
            "`do_rescale` is \"false\", expected true or false",
        ),
        (
            json!({"do_pad": 1, "pad_size": 300}),
            "`pad_size` is 300, and padding images of 224×224 is not supported. Set `do_pad` to false.",
        ),
        (
            json!({"image_processor_type": "DINOv3ViTImageProcessor", "do_rescale": null}),
            "`do_rescale` is false, but DINOv3's processor resizes rescaled images",
        ),
        (
            json!({"image_processor_type": "FooImageProcessor"}),
            "`image_processor_type` is \"FooImageProcessor\", which is not supported; supported are the image processors ViT, DeiT, \
             Beit, Bit, Blip, DINOv3ViT, CLIP, Siglip, Siglip2, ConvNext, DPT, Donut, SmolVLM, Idefics3, RTDetr, Detr, ConditionalDetr, DeformableDetr \
             and Yolos",
        ),
        (
            json!([]),
            "the image processor's configuration is not a JSON object",
        ),
    ] {
        assert_eq!(message(&config), expected);
    }
}

#[test]
fn nan_is_no_number() {
    for (text, expected) in [
        (
            r#"{"rescale_factor": NaN}"#,
            "`rescale_factor` is NaN, expected a number",
        ),
        (
            r#"{"image_std": [0.5, -Infinity, 0.5]}"#,
            "`image_std` is [0.5,-Infinity,0.5], expected a number or a list of three",
        ),
        (
            r#"{"size": {"shortest_edge": Infinity}}"#,
            "`size.shortest_edge` is Infinity, expected a number of pixels",
        ),
        (
            r#"{"do_resize": NaN}"#,
            "`do_resize` is NaN, expected true or false",
        ),
    ] {
        assert_eq!(message(&json::parse(text.as_bytes()).unwrap()), expected);
    }
    let unused = r#"{"do_normalize": false, "image_mean": NaN, "loss": [NaN, Infinity]}"#;
    assert!(rules(&json::parse(unused.as_bytes()).unwrap(), Some("clip")).is_ok());
}

#[test]
fn the_class_is_the_files_or_that_of_config_json() {
    let filter = |config: Value, model| rules(&config, model).map(|rules| rules.resize().unwrap().1);
    // ViT's class is bilinear, DeiT's is bicubic.
    let older = json!({"feature_extractor_type": "DeiTFeatureExtractor"});
    assert_eq!(filter(older.clone(), Some("vit")).unwrap(), Filter::Bicubic);
    let both = json!({"image_processor_type": "ViTImageProcessor", "feature_extractor_type": "DeiTFeatureExtractor"});
    assert_eq!(filter(both, None).unwrap(), Filter::Bilinear);
    let nulls = json!({"image_processor_type": null, "feature_extractor_type": null});
    assert_eq!(filter(nulls, Some("vit")).unwrap(), Filter::Bilinear);
    let own_code = json!({"feature_extractor_type": "DeiTFeatureExtractor", "auto_map": {"AutoImageProcessor": "module.Class"}});
    assert_eq!(filter(own_code, Some("vit")).unwrap(), Filter::Bilinear);
    // `image_processor_type` of config.json.
    assert_eq!(
        filter(json!({}), Some("BeitImageProcessor")).unwrap(),
        Filter::Bicubic
    );
    assert_eq!(
        filter(json!({}), Some("aimv2_vision_model")).unwrap(),
        Filter::Bicubic
    );
    let error = filter(json!({}), Some("resnet")).unwrap_err().to_string();
    assert!(
        error.ends_with("`image_processor_type` is missing, and unknown for `resnet` in config.json"),
        "{error}"
    );
}
