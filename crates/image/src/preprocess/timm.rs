//! Reads timm's evaluation transform from a `pretrained_cfg`, as `resolve_data_config` and `create_transform` do (timm
//! 1.0).

use std::path::Path;

use serde_json::Value;

use super::Preprocess;
use super::geometry::{Crop, Resize, Rounding};
use super::values::{Rescale, ValueRule};
use crate::Filter;
use crate::{Error, Result};
use hipvit_files::json::is_true;

/// Options that override the configuration, like timm's own arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimmOptions {
    /// Height and width of the input, in place of the configured size.
    pub input_size: Option<(usize, usize)>,
    /// If true, the configuration's `test_input_size` and `test_crop_pct` take precedence where present.
    pub use_test_size: bool,
}

const DEFAULT_CROP_PCT: f64 = 0.875;
const IMAGENET_MEAN: [f64; 3] = [0.485, 0.456, 0.406];
const IMAGENET_STD: [f64; 3] = [0.229, 0.224, 0.225];

impl Preprocess {
    /// Creates the rule of timm's evaluation transform for a `pretrained_cfg`. Missing keys take timm's defaults.
    /// Errors name `file`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Config`] with the key whose value is unsupported or of the wrong type.
    pub fn from_timm(file: &Path, pretrained_cfg: &Value, options: &TimmOptions) -> Result<Self> {
        parse(file, pretrained_cfg, options)
    }
}

fn parse(file: &Path, cfg: &Value, options: &TimmOptions) -> Result<Preprocess> {
    let cfg = Cfg { file, cfg, options };
    let (height, width) = cfg.input_size()?;
    let crop_pct = cfg.crop_pct()?;
    let scaled = |side: usize| (side as f64 / crop_pct).floor() as usize;
    let (scaled_height, scaled_width) = (scaled(height), scaled(width));
    let filter = cfg.filter()?;
    let mean = cfg.three("mean", IMAGENET_MEAN)?;
    let std = cfg.three("std", IMAGENET_STD)?;

    let mut fill = [0; 3];
    // timm crops at the centre for any name that it does not know.
    let resize = match cfg.get("crop_mode").and_then(Value::as_str) {
        Some("squash") => Resize::Exact {
            height: scaled_height,
            width: scaled_width,
        },
        Some("border") => {
            if !cfg.get("mean").is_none_or(Value::is_array) {
                return Err(cfg.error("mean", "must be a list of numbers, as `crop_mode` is \"border\""));
            }
            fill = mean.map(|value| (255.0 * value).round_ties_even() as u8);
            Resize::Contain {
                height: scaled_height,
                width: scaled_width,
            }
        }
        _ if scaled_height == scaled_width => Resize::Shortest {
            edge: scaled_height,
            longest: None,
        },
        _ => Resize::Cover {
            height: scaled_height,
            width: scaled_width,
        },
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

    /// Returns the key's value, unless it is missing or falsy in Python: null, 0, false, or an empty text or list.
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.cfg.get(key).filter(|value| is_true(value))
    }

    /// Returns the value of `test_{key}` if it is preferred and present.
    fn get_for_test(&self, key: &str) -> Option<&'a Value> {
        let preferred = if self.options.use_test_size {
            self.get(&format!("test_{key}"))
        } else {
            None
        };
        preferred.or_else(|| self.get(key))
    }

    fn input_size(&self) -> Result<(usize, usize)> {
        if let Some((height, width)) = self.options.input_size {
            return match height.min(width) {
                0 => Err(self.error("input_size", format!("{height}×{width} is empty"))),
                _ => Ok((height, width)),
            };
        }
        let size = match self.get_for_test("input_size") {
            None => [3, 224, 224],
            Some(value) => serde_json::from_value::<[usize; 3]>(value.clone())
                .map_err(|_| self.error("input_size", format!("{value} is not [channels, height, width]")))?,
        };
        match size {
            [3, height, width] if height > 0 && width > 0 => Ok((height, width)),
            [3, height, width] => Err(self.error("input_size", format!("{height}×{width} is empty"))),
            [channels, ..] => {
                let reason = format!("{channels} channels; only RGB is supported");
                Err(self.error("input_size", reason))
            }
        }
    }

    fn crop_pct(&self) -> Result<f64> {
        match self.get_for_test("crop_pct") {
            None => Ok(DEFAULT_CROP_PCT),
            Some(value) => number(value)
                .filter(|pct| *pct > 0.0)
                .ok_or_else(|| self.error("crop_pct", format!("{value} is not a positive number"))),
        }
    }

    fn text(&self, key: &str) -> Result<Option<&'a str>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.error(key, format!("{other} is not a text"))),
        }
    }

    fn filter(&self) -> Result<Filter> {
        let name = self.text("interpolation")?.unwrap_or("bicubic");
        Filter::from_name(name)
            .ok_or_else(|| self.error("interpolation", format!("`{name}` is not a known filter")))
    }

    /// Reads three numbers, or one for all channels.
    fn three(&self, key: &str, default: [f64; 3]) -> Result<[f64; 3]> {
        let numbers = match self.get(key) {
            None => return Ok(default),
            Some(Value::Array(list)) => list.iter().map(number).collect::<Option<Vec<f64>>>(),
            Some(value) => number(value).map(|all| vec![all]),
        };
        match numbers.as_deref() {
            Some(&[all]) => Ok([all; 3]),
            Some(&[red, green, blue]) => Ok([red, green, blue]),
            _ => Err(self.error(key, "is neither a number nor a list of three")),
        }
    }
}

/// Returns a number. As in Python, true is 1.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Bool(flag) => Some(f64::from(u8::from(*flag))),
        other => other.as_f64(),
    }
}
