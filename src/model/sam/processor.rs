//! Reads the configuration of transformers' `SamImageProcessor`.

use serde_json::{Map, Value, json};

use crate::error::{Error, Result};
use crate::image::{Filter, Preprocess, Resize};
use crate::model::document::Document;
use crate::model::fields::Fields;
use crate::model::preprocessing;

/// Names of the class. Files of older versions append the backend.
const CLASSES: [&str; 3] = [
    "SamImageProcessor",
    "SamImageProcessorFast",
    "SamImageProcessorPil",
];
const DEFAULT_SIDE: usize = 1024;

/// Reads the rule for images of `side` rows and columns: an image without padding is resized so that its longer side is `side`.
///
/// # Errors
///
/// [`Error::Config`] if the processor makes images of another size, or for a value that is not supported.
pub(super) fn read(document: &Document, side: usize) -> Result<Preprocess> {
    let fields = document.fields()?;
    let class = fields.text("image_processor_type")?;
    let class = class.or(fields.text("feature_extractor_type")?);
    if let Some(class) = class.filter(|class| !CLASSES.contains(class)) {
        let reason = format_args!("is \"{class}\"; SAM's is \"{}\"", CLASSES[0]);
        return Err(fields.error("image_processor_type", reason));
    }
    for (key, expected) in [("do_resize", true), ("do_pad", true), ("do_center_crop", false)] {
        // Null is false, as in the library.
        let default = expected && !fields.has(key);
        if fields.flag(key)?.unwrap_or(default) != expected {
            let reason = format_args!("is {}, which is not supported for SAM", !expected);
            return Err(fields.error(key, reason));
        }
    }
    check_size(fields, side)?;
    // The other keys have the meaning that they have for other processors.
    let mut keys = Map::new();
    for key in [
        "resample",
        "do_rescale",
        "rescale_factor",
        "do_normalize",
        "image_mean",
        "image_std",
    ] {
        if let Some(value) = document.value.get(key) {
            keys.insert(key.to_owned(), value.clone());
        }
    }
    for (key, default) in [
        ("image_mean", json!([0.485, 0.456, 0.406])),
        ("image_std", json!([0.229, 0.224, 0.225])),
        ("image_processor_type", json!("ViTImageProcessor")),
        ("size", json!({ "height": side, "width": side })),
    ] {
        keys.entry(key).or_insert(default);
    }
    Ok(Preprocess::from_hf(&document.file, &Value::Object(keys), None)?)
}

/// Checks that images have their longer side, and all sides after padding, equal to `side`.
fn check_size(fields: Fields<'_>, side: usize) -> Result<()> {
    let wrong = |key: &str, found: String| {
        let reason = format_args!("is {found}, but the model takes images of {side}×{side}");
        Err(fields.error(key, reason))
    };
    for key in ["size", "pad_size"] {
        if fields.has(key) && fields.get(key).is_none() {
            return Err(fields.error(key, "is null. Set it, or remove the key for the default"));
        }
    }
    let longest = match fields.object("size")? {
        Some(size) => match size.size("longest_edge")? {
            Some(longest) => longest,
            None => return Err(fields.error("size", "has no `longest_edge`")),
        },
        None => DEFAULT_SIDE,
    };
    if longest != side {
        return wrong("size", longest.to_string());
    }
    let padded = match fields.object("pad_size")? {
        Some(size) => match (size.size("height")?, size.size("width")?) {
            (Some(height), Some(width)) => [height, width],
            _ => return Err(fields.error("pad_size", "has no `height` and `width`")),
        },
        None => [DEFAULT_SIDE; 2],
    };
    if padded != [side; 2] {
        return wrong("pad_size", format!("{}×{}", padded[0], padded[1]));
    }
    Ok(())
}

/// Returns height and width of an image of this size after the resize.
pub(super) fn resized([height, width]: [usize; 2], side: usize) -> [usize; 2] {
    let scale = side as f64 / height.max(width) as f64;
    [height, width].map(|extent| (extent as f64 * scale + 0.5) as usize)
}

/// Returns the rule that resizes to this height and width, with the values of `rule`.
pub(super) fn exact(rule: &Preprocess, [height, width]: [usize; 2]) -> Result<Preprocess> {
    let filter = rule.resize().map_or(Filter::Bilinear, |(_, filter)| filter);
    let resize = Resize::Exact { height, width };
    let fitted = Preprocess::new(Some((resize, filter)), None, preprocessing::values(rule));
    fitted.map_err(|_| {
        let reason = format!("an image would shrink to {height}×{width}");
        Error::argument("preprocessing", reason)
    })
}
