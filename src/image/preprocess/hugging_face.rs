//! The image processors of transformers, from a `preprocessor_config.json`: what their Pillow-backed classes do with it
//! (transformers 5.23). Keys that a class does not know are ignored, as there.
//!
//! Every image is RGB here, so `do_convert_rgb` has no effect; in transformers it blends an image with alpha over
//! white, while [`crate::image::decode()`] drops alpha, as `Image.convert("RGB")` before the processor does.

use std::path::Path;

use serde_json::Value;

use super::Preprocess;
use super::geometry::{Crop, Resize, Rounding};
use super::values::{Rescale, ValueRule};
use crate::image::Filter;
use crate::{Error, Result};

const STANDARD: [f64; 3] = [0.5; 3];
const IMAGENET_MEAN: [f64; 3] = [0.485, 0.456, 0.406];
const IMAGENET_STD: [f64; 3] = [0.229, 0.224, 0.225];
const CLIP_MEAN: [f64; 3] = [0.481_454_66, 0.457_827_5, 0.408_210_73];
const CLIP_STD: [f64; 3] = [0.268_629_54, 0.261_302_58, 0.275_777_11];

/// A processor class's defaults.
struct Class {
    filter: Filter,
    mean: [f64; 3],
    std: [f64; 3],
    size: Size,
    /// Whether a single number is the size of a square, or of the shorter edge.
    square: bool,
    crop: Option<usize>,
    /// ConvNeXt's resize below 384 pixels: larger by this part, then cropped.
    crop_pct: Option<f64>,
}

/// The meanings of `size`.
#[derive(Clone, Copy)]
enum Size {
    Exact {
        height: usize,
        width: usize,
    },
    Shortest {
        edge: usize,
        longest: Option<usize>,
    },
    /// Whole patches, as `patch_size` and `max_num_patches` say.
    Patches {
        patch: usize,
        max_patches: usize,
    },
}

const VIT: Class = Class {
    filter: Filter::Bilinear,
    mean: STANDARD,
    std: STANDARD,
    size: Size::Exact {
        height: 224,
        width: 224,
    },
    square: true,
    crop: None,
    crop_pct: None,
};
/// Resizes as Pillow does, in 8 bits; the library's own resizes what has been rescaled, in f32, which differs by a level of
/// 255 at most.
const DINOV3: Class = Class {
    mean: IMAGENET_MEAN,
    std: IMAGENET_STD,
    square: false,
    ..VIT
};
const DEIT: Class = Class {
    filter: Filter::Bicubic,
    size: Size::Exact {
        height: 256,
        width: 256,
    },
    crop: Some(224),
    ..VIT
};
const BEIT: Class = Class {
    filter: Filter::Bicubic,
    ..VIT
};
const SIGLIP: Class = Class {
    filter: Filter::Bicubic,
    square: false,
    ..VIT
};
const SIGLIP2: Class = Class {
    size: Size::Patches {
        patch: 16,
        max_patches: 256,
    },
    ..VIT
};
const CLIP: Class = Class {
    filter: Filter::Bicubic,
    mean: CLIP_MEAN,
    std: CLIP_STD,
    size: Size::Shortest {
        edge: 224,
        longest: None,
    },
    square: false,
    crop: Some(224),
    crop_pct: None,
};
const CONVNEXT: Class = Class {
    filter: Filter::Bicubic,
    size: Size::Shortest {
        edge: 384,
        longest: None,
    },
    square: false,
    crop_pct: Some(224.0 / 256.0),
    ..VIT
};

impl Class {
    /// The class of this name; older files call it a feature extractor, and some append the backend.
    fn by_name(name: &str) -> Option<&'static Self> {
        let name = name.trim_end_matches("Fast").trim_end_matches("Pil");
        let name = name
            .strip_suffix("ImageProcessor")
            .or_else(|| name.strip_suffix("FeatureExtractor"))?;
        Some(match name {
            "ViT" => &VIT,
            "DeiT" => &DEIT,
            "DINOv3ViT" => &DINOV3,
            "Bit" | "CLIP" => &CLIP,
            "Beit" => &BEIT,
            "Siglip" => &SIGLIP,
            "Siglip2" => &SIGLIP2,
            "ConvNext" => &CONVNEXT,
            _ => return None,
        })
    }

    /// The class that a model of this type uses.
    fn by_model_type(model_type: &str) -> Option<&'static Self> {
        Some(match model_type {
            "vit" | "vit_mae" | "vit_msn" | "ijepa" => &VIT,
            "deit" => &DEIT,
            "beit" => &BEIT,
            "dinov3_vit" => &DINOV3,
            "dinov2" | "dinov2_with_registers" | "clip" | "clip_vision_model" => &CLIP,
            "siglip" | "siglip_vision_model" => &SIGLIP,
            "siglip2" | "siglip2_vision_model" => &SIGLIP2,
            "convnext" | "convnextv2" => &CONVNEXT,
            _ => return None,
        })
    }
}

pub(super) fn parse(file: &Path, config: &Value, model_type: Option<&str>) -> Result<Preprocess> {
    let config = Config { file, config };
    if !config.config.is_object() {
        return Err(Error::config(file, "not a JSON object"));
    }
    let class = config.class(model_type)?;
    if config.flag("do_pad", false)? {
        return Err(config.error("do_pad", "padding is not supported"));
    }

    let mut crop = None;
    let mut resize = None;
    if config.flag("do_resize", true)? {
        let mut size = config.size(class)?;
        if let Some(default) = class.crop_pct {
            let Size::Shortest { edge, longest: None } = size else {
                return Err(config.error("size", "this processor needs a shortest_edge"));
            };
            if edge < 384 {
                let crop_pct = config.number("crop_pct")?.unwrap_or(default);
                size = Size::Shortest {
                    edge: (edge as f64 / crop_pct) as usize,
                    longest: None,
                };
                crop = Some((edge, edge));
            } else {
                size = Size::Exact {
                    height: edge,
                    width: edge,
                };
            }
        }
        let resized = match size {
            Size::Exact { height, width } => Resize::Exact { height, width },
            Size::Shortest { edge, longest } => Resize::Shortest { edge, longest },
            Size::Patches { patch, max_patches } => Resize::Patches { patch, max_patches },
        };
        resize = Some((resized, config.filter(class)?));
    }
    if let (Size::Patches { .. }, None) = (class.size, resize) {
        return Err(config.error(
            "do_resize",
            "is false; images that are not resized to patches are not supported",
        ));
    }
    if config.flag("do_center_crop", class.crop.is_some())? {
        if crop.is_some() {
            return Err(config.error("do_center_crop", "this processor crops already"));
        }
        crop = Some(config.crop_size(class)?);
    }
    let crop = crop.map(|(height, width)| Crop {
        height,
        width,
        rounding: Rounding::Transformers,
        fill: [0; 3],
    });

    let rescale = if config.flag("do_rescale", true)? {
        Rescale::Multiply(config.number("rescale_factor")?.unwrap_or(1.0 / 255.0))
    } else {
        Rescale::None
    };
    let normalize = if config.flag("do_normalize", true)? {
        Some((
            config.three("image_mean", class.mean)?,
            config.three("image_std", class.std)?,
        ))
    } else {
        None
    };
    Preprocess::new(resize, crop, ValueRule { rescale, normalize })
        .map_err(|error| Error::config(file, format!("size, crop_size, image_std: {error}")))
}

struct Config<'a> {
    file: &'a Path,
    config: &'a Value,
}

impl<'a> Config<'a> {
    fn error(&self, key: &str, reason: impl std::fmt::Display) -> Error {
        Error::config(self.file, format!("{key}: {reason}"))
    }

    /// The key's value; null stands for the class's default, like a missing key.
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.config.get(key).filter(|value| !value.is_null())
    }

    fn class(&self, model_type: Option<&str>) -> Result<&'static Class> {
        for key in ["image_processor_type", "feature_extractor_type"] {
            if let Some(name) = self.get(key) {
                let class = name.as_str().and_then(Class::by_name);
                return class.ok_or_else(|| self.error(key, format!("{name} is not supported")));
            }
        }
        match model_type {
            Some(model_type) => Class::by_model_type(model_type).ok_or_else(|| {
                self.error(
                    "image_processor_type",
                    format!("missing, and unknown for a `{model_type}` model"),
                )
            }),
            None => Err(self.error("image_processor_type", "missing")),
        }
    }

    fn flag(&self, key: &str, default: bool) -> Result<bool> {
        match self.get(key) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(self.error(key, format!("{other} is not true or false"))),
        }
    }

    fn number(&self, key: &str) -> Result<Option<f64>> {
        match self.get(key).map(|value| (value, value.as_f64())) {
            None => Ok(None),
            Some((_, Some(number))) if number > 0.0 => Ok(Some(number)),
            Some((value, _)) => Err(self.error(key, format!("{value} is not a positive number"))),
        }
    }

    fn three(&self, key: &str, default: [f64; 3]) -> Result<[f64; 3]> {
        let numbers = match self.get(key) {
            None => return Ok(default),
            Some(Value::Array(list)) => list.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>(),
            Some(value) => value.as_f64().map(|all| vec![all; 3]),
        };
        match numbers.as_deref() {
            Some(&[red, green, blue]) => Ok([red, green, blue]),
            _ => Err(self.error(key, "not a list of three numbers")),
        }
    }

    fn filter(&self, class: &Class) -> Result<Filter> {
        match self.get("resample") {
            None => Ok(class.filter),
            Some(value) => value
                .as_u64()
                .and_then(Filter::from_pillow_id)
                .ok_or_else(|| self.error("resample", format!("{value} is not a Pillow filter (0 to 5)"))),
        }
    }

    fn pixels(&self, key: &str, value: &Value) -> Result<usize> {
        let pixels = value.as_u64().filter(|pixels| (1..=1 << 24).contains(pixels));
        pixels
            .map(|pixels| pixels as usize)
            .ok_or_else(|| self.error(key, format!("{value} is not a number of pixels")))
    }

    fn size(&self, class: &Class) -> Result<Size> {
        let key = "size";
        if let Size::Patches { patch, max_patches } = class.size {
            let number = |key, default| self.get(key).map_or(Ok(default), |value| self.pixels(key, value));
            return Ok(Size::Patches {
                patch: number("patch_size", patch)?,
                max_patches: number("max_num_patches", max_patches)?,
            });
        }
        match self.get(key) {
            None => Ok(class.size),
            Some(Value::Object(entries)) => {
                let edge = |name: &str| match entries.get(name) {
                    None | Some(Value::Null) => Ok(None),
                    Some(value) => self.pixels(&format!("{key}.{name}"), value).map(Some),
                };
                match (
                    edge("shortest_edge")?,
                    edge("longest_edge")?,
                    edge("height")?,
                    edge("width")?,
                ) {
                    (Some(edge), longest, None, None) => Ok(Size::Shortest { edge, longest }),
                    (None, None, Some(height), Some(width)) => Ok(Size::Exact { height, width }),
                    _ => {
                        let names: Vec<&str> = entries.keys().map(String::as_str).collect();
                        Err(self.error(key, format!("the keys {} are not supported", names.join(", "))))
                    }
                }
            }
            Some(Value::Array(list)) if list.len() == 2 => Ok(Size::Exact {
                height: self.pixels(key, &list[0])?,
                width: self.pixels(key, &list[1])?,
            }),
            Some(value) => {
                let edge = self.pixels(key, value)?;
                let square = Size::Exact {
                    height: edge,
                    width: edge,
                };
                Ok(if class.square {
                    square
                } else {
                    Size::Shortest { edge, longest: None }
                })
            }
        }
    }

    fn crop_size(&self, class: &Class) -> Result<(usize, usize)> {
        let key = "crop_size";
        match (self.get(key), class.crop) {
            (None, Some(edge)) => Ok((edge, edge)),
            (None, None) => Err(self.error(key, "missing")),
            (Some(Value::Object(entries)), _) => match (entries.get("height"), entries.get("width")) {
                (Some(height), Some(width)) => Ok((self.pixels(key, height)?, self.pixels(key, width)?)),
                _ => Err(self.error(key, "needs height and width")),
            },
            (Some(Value::Array(list)), _) if list.len() == 2 => {
                Ok((self.pixels(key, &list[0])?, self.pixels(key, &list[1])?))
            }
            (Some(value), _) => {
                let edge = self.pixels(key, value)?;
                Ok((edge, edge))
            }
        }
    }
}
