//! timm's evaluation transform, from a `pretrained_cfg`: what `resolve_data_config` and `create_transform` make of it
//! (timm 1.0).

use std::path::Path;

use serde_json::Value;

use super::Preprocess;
use super::geometry::{Crop, Resize, Rounding};
use super::values::{Rescale, ValueRule};
use crate::image::Filter;
use crate::{Error, Result};

/// Options beyond the configuration, like timm's own arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimmOptions {
    /// Height and width of the input, instead of the configured size.
    pub input_size: Option<(usize, usize)>,
    /// Prefer the configuration's `test_input_size` and `test_crop_pct`, where it has them.
    pub use_test_size: bool,
}

const DEFAULT_CROP_PCT: f64 = 0.875;
const IMAGENET_MEAN: [f64; 3] = [0.485, 0.456, 0.406];
const IMAGENET_STD: [f64; 3] = [0.229, 0.224, 0.225];

pub(super) fn parse(file: &Path, cfg: &Value, options: &TimmOptions) -> Result<Preprocess> {
    let cfg = Cfg { file, cfg, options };
    let (height, width) = cfg.input_size()?;
    let crop_pct = cfg.crop_pct()?;
    let scaled = |side: usize| (side as f64 / crop_pct).floor() as usize;
    let (scaled_height, scaled_width) = (scaled(height), scaled(width));
    let filter = cfg.filter()?;
    let mean = cfg.three("mean", IMAGENET_MEAN)?;
    let std = cfg.three("std", IMAGENET_STD)?;

    let mut fill = [0; 3];
    let resize = match cfg.text("crop_mode")?.unwrap_or("center") {
        "squash" => Resize::Exact {
            height: scaled_height,
            width: scaled_width,
        },
        "border" => {
            fill = mean.map(|value| (255.0 * value).round_ties_even() as u8);
            Resize::Contain {
                height: scaled_height,
                width: scaled_width,
            }
        }
        "center" if scaled_height == scaled_width => Resize::Shortest {
            edge: scaled_height,
            longest: None,
        },
        "center" => Resize::Cover {
            height: scaled_height,
            width: scaled_width,
        },
        other => return Err(cfg.error("crop_mode", format!("`{other}` is not center, squash or border"))),
    };
    let crop = Crop {
        height,
        width,
        rounding: Rounding::Torchvision,
        fill,
    };
    let values = ValueRule {
        rescale: Rescale::DivideBy255,
        normalize: Some((mean, std)),
    };
    Preprocess::new(Some((resize, filter)), Some(crop), values).map_err(|error| Error::config(file, error))
}

struct Cfg<'a> {
    file: &'a Path,
    cfg: &'a Value,
    options: &'a TimmOptions,
}

impl<'a> Cfg<'a> {
    fn error(&self, key: &str, reason: impl std::fmt::Display) -> Error {
        Error::config(self.file, format!("pretrained_cfg.{key}: {reason}"))
    }

    /// The key's value, unless it is missing or null.
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.cfg.get(key).filter(|value| !value.is_null())
    }

    /// The value of `test_{key}` if it is preferred and present.
    fn get_for_test(&self, key: &str) -> Option<&'a Value> {
        let preferred = if self.options.use_test_size {
            self.get(&format!("test_{key}"))
        } else {
            None
        };
        preferred.or_else(|| self.get(key))
    }

    fn input_size(&self) -> Result<(usize, usize)> {
        let stored = self.get_for_test("input_size");
        let size = match stored {
            None => [3, 224, 224],
            Some(value) => serde_json::from_value::<[usize; 3]>(value.clone())
                .map_err(|_| self.error("input_size", format!("{value} is not [channels, height, width]")))?,
        };
        if size[0] != 3 {
            return Err(self.error(
                "input_size",
                format!("{} channels; only RGB is supported", size[0]),
            ));
        }
        let (height, width) = self.options.input_size.unwrap_or((size[1], size[2]));
        if height == 0 || width == 0 {
            return Err(self.error("input_size", format!("{height}×{width} is empty")));
        }
        Ok((height, width))
    }

    fn crop_pct(&self) -> Result<f64> {
        // timm takes 0 for missing.
        let stored = self
            .get_for_test("crop_pct")
            .filter(|value| value.as_f64() != Some(0.0));
        match stored.map(|value| (value, value.as_f64())) {
            None => Ok(DEFAULT_CROP_PCT),
            Some((_, Some(pct))) if pct > 0.0 => Ok(pct),
            Some((value, _)) => Err(self.error("crop_pct", format!("{value} is not a positive number"))),
        }
    }

    fn text(&self, key: &str) -> Result<Option<&'a str>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
            Some(other) => Err(self.error(key, format!("{other} is not a text"))),
        }
    }

    fn filter(&self) -> Result<Filter> {
        let name = self.text("interpolation")?.unwrap_or("bicubic");
        Filter::from_name(name)
            .ok_or_else(|| self.error("interpolation", format!("`{name}` is not a known filter")))
    }

    fn three(&self, key: &str, default: [f64; 3]) -> Result<[f64; 3]> {
        let numbers = match self.get(key) {
            None => return Ok(default),
            Some(Value::Array(list)) => list.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>(),
            Some(_) => None,
        };
        match numbers.as_deref() {
            Some([]) => Ok(default),
            Some(&[all]) => Ok([all; 3]),
            Some(&[red, green, blue]) => Ok([red, green, blue]),
            _ => Err(self.error(key, "not a list of three numbers")),
        }
    }
}
