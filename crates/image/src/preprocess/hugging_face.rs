//! Reads configurations of transformers' image processors, as `save_pretrained` writes them. The rules are those of the
//! Pillow-backed classes (transformers 5.23).
//!
//! Keys are read as in transformers:
//!
//! - A missing key takes the default of the class.
//! - A null is false for a flag, and an error for a value that is needed.
//! - Keys without an effect on pixel values are ignored: `device`, `return_tensors`, `data_format`,
//!   `input_data_format`, `disable_grouping`, `do_reduce_labels`, and keys of other classes.
//!
//! Every image is RGB here, so `do_convert_rgb` has no effect. In transformers it blends an image with alpha over
//! white. [`crate::decode()`] drops alpha, as transformers' own `load_image` does before the processor.

mod class;
#[cfg(test)]
mod tests;

use std::path::Path;

use serde_json::{Map, Value};

use self::class::{Class, Variant, square};
use super::Preprocess;
use super::geometry::{Crop, Resize, Rounding};
use super::tiling::{FirstResize, Tiling};
use super::values::{Rescale, ValueRule};
use crate::Filter;
use crate::{Error, Result};
use hipvit_files::json;

/// Names that [`Class::by_name`] accepts, without `ImageProcessor`, for errors.
const SUPPORTED: &str = "the image processors ViT, DeiT, Beit, Bit, Blip, DINOv3ViT, CLIP, Siglip, Siglip2, ConvNext, DPT, Donut, SmolVLM, Idefics3, RTDetr, Detr, \
     ConditionalDetr, DeformableDetr and Yolos";

impl Preprocess {
    /// Creates the rule of a transformers image processor. Errors name `file`.
    ///
    /// `config` is `preprocessor_config.json`, or `image_processor` in `processor_config.json`. Missing keys take the
    /// defaults of the processor's class.
    ///
    /// `model` is the `image_processor_type` of the model's `config.json`, or its `model_type`. It selects the class if
    /// the processor's configuration does not.
    ///
    /// Supported are the processors of ViT, DeiT, BEiT, DINOv2 (BiT's), DINOv3, CLIP, SigLIP, SigLIP 2, ConvNeXt, DPT, Donut, SmolVLM, and
    /// of detectors (RT-DETR, DETR, YOLOS) with a fixed size.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Config`] with the key whose value is unsupported or of the wrong type.
    pub fn from_hf(file: &Path, config: &Value, model: Option<&str>) -> Result<Self> {
        parse(file, config, model)
    }
}

impl Tiling {
    /// Creates the rule by which a processor of SmolVLM or Idefics3 divides images. Arguments are those of [`Preprocess::from_hf`], whose rule takes the tiles.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Config`] with the key whose value is unsupported or of the wrong type, or for a processor that does not divide images.
    pub fn from_hf(file: &Path, config: &Value, model: Option<&str>) -> Result<Self> {
        let Value::Object(keys) = config else {
            let reason = "the image processor's configuration is not a JSON object";
            return Err(Error::config(file, reason));
        };
        let config = Config { file, keys };
        let class = config.class(model)?;
        if class.variant != Variant::Tiles {
            return Err(config.error(
                "image_processor_type",
                "is of a processor that does not divide images",
            ));
        }
        Ok(Self {
            first: config.first_resize()?,
            tile: config.tile(class)?,
            filter: config.filter(class)?,
            splits: config.flag("do_image_splitting", true)?,
        })
    }
}

fn parse(file: &Path, config: &Value, model: Option<&str>) -> Result<Preprocess> {
    let Value::Object(keys) = config else {
        let reason = "the image processor's configuration is not a JSON object";
        return Err(Error::config(file, reason));
    };
    let config = Config { file, keys };
    let class = config.class(model)?;
    let (resize, crop) = match class.variant {
        Variant::Siglip2 {
            patch_size,
            max_num_patches,
        } => (Some(config.patches(patch_size, max_num_patches)?), None),
        Variant::Dpt => (Some(config.multiples(class)?), None),
        Variant::Donut => config.thumbnail(class)?,
        Variant::Tiles => (Some(square(config.tile(class)?)), None),
        _ => config.resize_and_crop(class)?,
    };
    let resize = match resize {
        Some(resize) => Some((resize, config.filter(class)?)),
        None => None,
    };
    let crop = crop.map(|[height, width]| Crop {
        height,
        width,
        rounding: match class.variant {
            // Half of an odd padding is rounded down.
            Variant::Donut => Rounding::Torchvision,
            _ => Rounding::Transformers,
        },
        fill: [0; 3],
    });
    let keys = match class.variant {
        Variant::Dpt => "`size`, `ensure_multiple_of`",
        _ => "`patch_size`, `max_num_patches`",
    };
    let rules = Preprocess::new(resize, crop, config.values(class)?)
        .map_err(|error| Error::config(file, format!("{keys}: {error}")))?;
    config.check_padding(class, rules.output_size())?;
    Ok(rules)
}

struct Config<'a> {
    file: &'a Path,
    keys: &'a Map<String, Value>,
}

impl<'a> Config<'a> {
    fn error(&self, key: &str, reason: impl std::fmt::Display) -> Error {
        Error::config(self.file, format!("`{key}` {reason}"))
    }

    fn unexpected(&self, key: &str, value: &Value, expected: &str) -> Error {
        let shown: String = json::text(value).chars().take(60).collect();
        self.error(key, format_args!("is {shown}, expected {expected}"))
    }

    /// Returns the key's value if it is not null.
    fn given(&self, key: &str) -> Option<&'a Value> {
        self.keys.get(key).filter(|value| !value.is_null())
    }

    /// Returns the key's value, or `None` if the class's default applies. A null is an error that names `user`, which
    /// needs the value.
    fn needed(&self, key: &str, user: &str) -> Result<Option<&'a Value>> {
        match self.keys.get(key) {
            Some(Value::Null) => Err(self.error(
                key,
                format_args!(
                    "is null, but {user} needs it. Set it, or remove the key for the class's default."
                ),
            )),
            value => Ok(value),
        }
    }

    /// Finds the class. `model` is the class or the model type that `config.json` names.
    fn class(&self, model: Option<&str>) -> Result<&'static Class> {
        let key = "image_processor_type";
        // If the configuration has custom code, transformers does not read the older key.
        let older = match self
            .keys
            .get("auto_map")
            .and_then(|map| map.get("AutoImageProcessor"))
        {
            Some(_) => None,
            None => Some("feature_extractor_type"),
        };
        for key in [Some(key), older].into_iter().flatten() {
            if let Some(name) = self.given(key) {
                let class = name.as_str().and_then(Class::by_name);
                return class.ok_or_else(|| {
                    self.error(
                        key,
                        format_args!(
                            "is {}, which is not supported; supported are {SUPPORTED}",
                            json::text(name)
                        ),
                    )
                });
            }
        }
        match model {
            Some(model) => Class::by_model_type(model)
                .or_else(|| Class::by_name(model))
                .ok_or_else(|| {
                    self.error(
                        key,
                        format_args!("is missing, and unknown for `{model}` in config.json"),
                    )
                }),
            None => Err(self.error(key, "is missing")),
        }
    }

    /// Reads a boolean or a number. The number 0 and null are false.
    fn flag(&self, key: &str, default: bool) -> Result<bool> {
        match self.keys.get(key) {
            None => Ok(default),
            Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(Value::Number(number)) => Ok(number.as_f64() != Some(0.0)),
            Some(other) => Err(self.unexpected(key, other, "true or false")),
        }
    }

    fn number(&self, key: &str, user: &str) -> Result<Option<f64>> {
        let value = self.needed(key, user)?;
        let number = |value: &Value| {
            value
                .as_f64()
                .ok_or_else(|| self.unexpected(key, value, "a number"))
        };
        value.map(number).transpose()
    }

    /// Reads a number for each of red, green and blue, or one for all. It must be in f32's range.
    fn three(&self, key: &str, default: [f64; 3]) -> Result<[f64; 3]> {
        let Some(value) = self.needed(key, "`do_normalize`")? else {
            return Ok(default);
        };
        let numbers = match value {
            Value::Array(list) => list.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>(),
            value => value.as_f64().map(|all| vec![all]),
        };
        let three = match numbers.as_deref() {
            Some(&[red, green, blue]) => Some([red, green, blue]),
            Some(&[all]) => Some([all; 3]),
            _ => None,
        };
        three
            .filter(|numbers| numbers.iter().all(|&number| (number as f32).is_finite()))
            .ok_or_else(|| self.unexpected(key, value, "a number or a list of three"))
    }

    fn pixels(&self, key: &str, value: &Value) -> Result<usize> {
        let pixels = value.as_u64().filter(|pixels| (1..=1 << 24).contains(pixels));
        pixels
            .map(|pixels| pixels as usize)
            .ok_or_else(|| self.unexpected(key, value, "a number of pixels"))
    }

    /// Reads height and width: by name, as the first two entries of a list, or as one number for both.
    fn height_and_width(&self, key: &str, value: &Value) -> Result<[usize; 2]> {
        match value {
            Value::Object(entries) if has(entries, &["height", "width"]) => Ok([
                self.pixels(&format!("{key}.height"), &entries["height"])?,
                self.pixels(&format!("{key}.width"), &entries["width"])?,
            ]),
            Value::Object(_) => Err(self.unexpected(key, value, "height and width")),
            Value::Array(list) => match list.as_slice() {
                [height, width, ..] => Ok([self.pixels(key, height)?, self.pixels(key, width)?]),
                _ => Err(self.unexpected(key, value, "height and width")),
            },
            value => self.pixels(key, value).map(|side| [side, side]),
        }
    }
}

/// Preprocessing steps.
impl Config<'_> {
    fn filter(&self, class: &Class) -> Result<Filter> {
        let value = match class.variant {
            // Null means Pillow's bilinear, which is the default too.
            Variant::Siglip2 { .. } => self.given("resample"),
            _ => self.needed("resample", "`do_resize`")?,
        };
        match value {
            None => Ok(class.filter),
            Some(value) => value
                .as_u64()
                .and_then(Filter::from_pillow_id)
                .ok_or_else(|| self.unexpected("resample", value, "the number of a Pillow filter, 0 to 5")),
        }
    }

    /// Reads the resize, and height and width of the crop. The result must have a fixed size.
    fn resize_and_crop(&self, class: &Class) -> Result<(Option<Resize>, Option<[usize; 2]>)> {
        let (mut resize, mut crop) = (None, None);
        if self.flag("do_resize", true)? {
            let size = self.size(class)?;
            (resize, crop) = match class.variant {
                Variant::ConvNext { crop_pct } => self.conv_next(size, crop_pct)?,
                _ => (Some(size), None),
            };
        }
        if self.flag("do_center_crop", class.do_center_crop)? {
            if crop.is_some() {
                return Err(self.error("do_center_crop", "is true, but this processor crops already"));
            }
            crop = Some(self.crop_size(class)?);
        }
        match (resize, crop) {
            (_, Some(_)) | (Some(Resize::Exact { .. }), None) => Ok((resize, crop)),
            (Some(resize), None) => Err(self.error(
                "size",
                format_args!(
                    "({resize}) keeps the aspect ratio and `do_center_crop` is false, but the model takes images of one \
                     size. Give `size` a height and a width, or set `do_center_crop`."
                ),
            )),
            (None, None) => Err(self.error(
                "do_resize",
                "and `do_center_crop` are false, but the model takes images of one size. Set one of them to true.",
            )),
        }
    }

    fn size(&self, class: &Class) -> Result<Resize> {
        if class.variant == Variant::Clip && self.flag("use_square_size", false)? {
            return Ok(square(224));
        }
        let key = "size";
        match self.needed(key, "`do_resize`")? {
            None => Ok(class.size),
            Some(Value::Object(entries)) if entries.contains_key("shortest_edge") => {
                self.shortest_edge(entries)
            }
            Some(Value::Number(edge)) if !self.flag("default_to_square", class.default_to_square)? => {
                Ok(Resize::Shortest {
                    edge: self.pixels(key, &Value::Number(edge.clone()))?,
                    longest: None,
                })
            }
            Some(value) => {
                let [height, width] = self.height_and_width(key, value)?;
                Ok(Resize::Exact { height, width })
            }
        }
    }

    fn shortest_edge(&self, entries: &Map<String, Value>) -> Result<Resize> {
        let edge = |name: &str| match entries.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => self.pixels(&format!("size.{name}"), value).map(Some),
        };
        let known = has(entries, &["shortest_edge"]) || has(entries, &["shortest_edge", "longest_edge"]);
        match (edge("shortest_edge")?, edge("longest_edge")?) {
            (Some(edge), longest) if known => Ok(Resize::Shortest { edge, longest }),
            _ => {
                let value = Value::Object(entries.clone());
                Err(self.unexpected(
                    "size",
                    &value,
                    "height and width, or shortest_edge and maybe longest_edge",
                ))
            }
        }
    }

    /// Reads ConvNeXt's resize and the crop that belongs to it.
    fn conv_next(&self, size: Resize, crop_pct: f64) -> Result<(Option<Resize>, Option<[usize; 2]>)> {
        let Resize::Shortest { edge, .. } = size else {
            return Err(self.error("size", format_args!("is {size}, expected a shortest_edge")));
        };
        if edge >= 384 {
            return Ok((Some(square(edge)), None));
        }
        let crop_pct = self.number("crop_pct", "`size`")?.unwrap_or(crop_pct);
        if crop_pct <= 0.0 {
            return Err(self.error(
                "crop_pct",
                format_args!("is {crop_pct}, expected a positive number"),
            ));
        }
        let resize = Resize::Shortest {
            edge: (edge as f64 / crop_pct) as usize,
            longest: None,
        };
        Ok((Some(resize), Some([edge, edge])))
    }

    fn crop_size(&self, class: &Class) -> Result<[usize; 2]> {
        let key = "crop_size";
        match (self.needed(key, "`do_center_crop`")?, class.crop_size) {
            (Some(value), _) => self.height_and_width(key, value),
            (None, Some(side)) => Ok([side, side]),
            (None, None) => Err(self.error(key, "is missing, but `do_center_crop` needs it")),
        }
    }

    /// Reads SigLIP 2's resize.
    fn patches(&self, patch_size: usize, max_num_patches: usize) -> Result<Resize> {
        if !self.flag("do_resize", true)? {
            return Err(self.error(
                "do_resize",
                "is false, but images must be resized to whole patches",
            ));
        }
        let number = |key, default| match self.needed(key, "the resize to patches")? {
            None => Ok(default),
            Some(value) => self.pixels(key, value),
        };
        Ok(Resize::Patches {
            patch: number("patch_size", patch_size)?,
            max_patches: number("max_num_patches", max_num_patches)?,
        })
    }

    /// Reads the side of SmolVLM's tiles.
    fn tile(&self, class: &Class) -> Result<usize> {
        if self.flag("do_center_crop", false)? {
            let reason = "is true, which is not supported for a processor that divides images";
            return Err(self.error("do_center_crop", reason));
        }
        match (
            self.needed("max_image_size", "the division into tiles")?,
            class.size,
        ) {
            (Some(Value::Object(entries)), _) if has(entries, &["longest_edge"]) => {
                self.pixels("max_image_size.longest_edge", &entries["longest_edge"])
            }
            (Some(value), _) => Err(self.unexpected("max_image_size", value, "longest_edge")),
            (None, Resize::Exact { height, .. }) => Ok(height),
            (None, other) => Err(self.error("max_image_size", format_args!("is {other}"))),
        }
    }

    /// Reads the resize of SmolVLM's images before they are divided.
    fn first_resize(&self) -> Result<FirstResize> {
        if !self.flag("do_resize", true)? {
            let reason = "is false, so that large images would have any number of tiles. Set it to true.";
            return Err(self.error("do_resize", reason));
        }
        match self.needed("size", "`do_resize`")? {
            None => Ok(FirstResize::Longest(4 * 364)),
            Some(Value::Object(entries)) if has(entries, &["longest_edge"]) => {
                let longest = self.pixels("size.longest_edge", &entries["longest_edge"])?;
                Ok(FirstResize::Longest(longest))
            }
            Some(value) => Ok(FirstResize::Exact(self.height_and_width("size", value)?)),
        }
    }

    /// Reads Donut's resize, and the size that images are padded to.
    fn thumbnail(&self, class: &Class) -> Result<(Option<Resize>, Option<[usize; 2]>)> {
        for key in ["do_resize", "do_thumbnail", "do_pad"] {
            if !self.flag(key, true)? {
                let reason = "is false, but the model takes images of one size. Set it to true.";
                return Err(self.error(key, reason));
            }
        }
        if self.flag("do_center_crop", false)? {
            let reason = "is true, which is not supported for Donut's processor";
            return Err(self.error("do_center_crop", reason));
        }
        if self.given("resample").and_then(Value::as_u64) == Some(0) {
            let reason = "is 0, which the library takes for bicubic in one of two steps. Use another filter.";
            return Err(self.error("resample", reason));
        }
        let [height, width] = match (self.needed("size", "`do_resize`")?, class.size) {
            // The first processor wrote the width first.
            (Some(Value::Array(list)), _) => match list.as_slice() {
                [width, height] => [self.pixels("size", height)?, self.pixels("size", width)?],
                _ => {
                    let value = Value::Array(list.clone());
                    return Err(self.unexpected("size", &value, "width and height"));
                }
            },
            (Some(value), _) => self.height_and_width("size", value)?,
            (None, Resize::Exact { height, width }) => [height, width],
            (None, other) => return Err(self.error("size", format_args!("is {other}"))),
        };
        let rotate = self.flag("do_align_long_axis", false)?;
        let resize = Resize::Thumbnail {
            height,
            width,
            rotate,
        };
        Ok((Some(resize), Some([height, width])))
    }

    /// Reads DPT's resize.
    fn multiples(&self, class: &Class) -> Result<Resize> {
        if !self.flag("do_resize", true)? {
            let reason = "is false, but images must be resized to whole patches";
            return Err(self.error("do_resize", reason));
        }
        if self.flag("do_center_crop", false)? {
            return Err(self.error(
                "do_center_crop",
                "is true, which is not supported for DPT's processor",
            ));
        }
        let [height, width] = match self.size(class)? {
            Resize::Exact { height, width } => [height, width],
            other => return Err(self.error("size", format_args!("is {other}, expected height and width"))),
        };
        let multiple = match self.needed("ensure_multiple_of", "`do_resize`")? {
            None => 1,
            Some(value) => self.pixels("ensure_multiple_of", value)?,
        };
        if let Some(value) = self.given("size_divisor")
            && self.flag("do_pad", false)?
            && !multiple.is_multiple_of(self.pixels("size_divisor", value)?)
        {
            let reason = format_args!(
                "is {}, and padding images after the resize is not supported. Set `do_pad` to false.",
                json::text(value)
            );
            return Err(self.error("size_divisor", reason));
        }
        if self.flag("keep_aspect_ratio", false)? {
            return Ok(Resize::Multiple {
                height,
                width,
                multiple,
            });
        }
        // The library multiplies the image's side with a quotient, whose rounding then decides.
        if [height, width]
            .iter()
            .any(|side| 2 * (side % multiple) == multiple)
        {
            let reason = format_args!(
                "is {height}×{width}, halfway between multiples of {multiple}. Set `size` to multiples of `ensure_multiple_of`."
            );
            return Err(self.error("size", reason));
        }
        let nearest = |side: usize| (side + multiple / 2) / multiple * multiple;
        Ok(Resize::Exact {
            height: nearest(height),
            width: nearest(width),
        })
    }

    fn values(&self, class: &Class) -> Result<ValueRule> {
        let rescale = if self.flag("do_rescale", true)? {
            let factor = self.number("rescale_factor", "`do_rescale`")?;
            Rescale::Multiply(factor.unwrap_or(1.0 / 255.0))
        } else if class.variant == Variant::Dinov3 {
            return Err(self.error(
                "do_rescale",
                "is false, but DINOv3's processor resizes rescaled images",
            ));
        } else {
            Rescale::None
        };
        if !self.flag("do_normalize", class.do_normalize)? {
            return Ok(ValueRule {
                rescale,
                normalize: None,
            });
        }
        let (mean, std) = (
            self.three("image_mean", class.mean)?,
            self.three("image_std", class.std)?,
        );
        if std.iter().any(|&std| std as f32 == 0.0) {
            return Err(self.error(
                "image_std",
                format_args!("is {std:?}, expected numbers other than 0"),
            ));
        }
        Ok(ValueRule {
            rescale,
            normalize: Some((mean, std)),
        })
    }

    /// Checks that padding has no effect. All images have the same size, so padding to `pad_size` must keep that size.
    fn check_padding(&self, class: &Class, (height, width): (usize, usize)) -> Result<()> {
        let (key, pads) = (
            "pad_size",
            matches!(class.variant, Variant::Common | Variant::Clip),
        );
        match self.given(key) {
            Some(size) if pads && self.flag("do_pad", class.do_pad)? => {
                if self.height_and_width(key, size)? == [height, width] {
                    return Ok(());
                }
                Err(self.error(
                    key,
                    format_args!(
                        "is {}, and padding images of {height}×{width} is not supported. Set `do_pad` to false.",
                        json::text(size)
                    ),
                ))
            }
            _ => Ok(()),
        }
    }
}

/// Returns true if the object has exactly these keys.
fn has(entries: &Map<String, Value>, keys: &[&str]) -> bool {
    entries.len() == keys.len() && keys.iter().all(|key| entries.contains_key(*key))
}
