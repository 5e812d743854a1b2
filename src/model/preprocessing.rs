//! Reads a model's preprocessing from the configuration of its library, and adapts it to the requested image size.
//! [`crate::image`] implements the rules.

use super::document::Document;
use super::fields::Fields;
use super::source::Source;
use crate::error::{Error, Result};
use crate::image::{Crop, Filter, Preprocess, Rescale, Resize, TimmOptions, ValueRule};
use crate::ops::Normalize;

/// Returns timm's evaluation transform for images of the given height and width.
pub(super) fn timm(config: &Document, [height, width]: [usize; 2]) -> Result<Preprocess> {
    // Files older than timm's `pretrained_cfg` have its keys at the top level.
    let rules = config.value.get("pretrained_cfg").unwrap_or(&config.value);
    let options = TimmOptions {
        input_size: Some((height, width)),
        use_test_size: false,
    };
    Ok(Preprocess::from_timm(&config.file, rules, &options)?)
}

/// Returns true if a timm model wrapped by transformers has a processor of transformers. The wrapper's own processor
/// only repeats `config.json`.
pub(super) fn has_processor(source: &Source<'_>) -> Result<bool> {
    let document = source.preprocessor()?;
    let kind = document
        .as_ref()
        .and_then(|document| document.value.get("image_processor_type"));
    Ok(document.is_some() && kind.and_then(serde_json::Value::as_str) != Some("TimmWrapperImageProcessor"))
}

/// Returns transformers' image processor, for the processor's own image size unless `image_size` is given. `config` is
/// `config.json`.
pub(super) fn transformers(
    source: &Source<'_>,
    config: Fields<'_>,
    image_size: Option<[usize; 2]>,
) -> Result<Preprocess> {
    let Some(document) = source.preprocessor()? else {
        return Err(source.no_preprocessor());
    };
    let class = config.text("image_processor_type")?;
    let model = class.or(config.text("model_type")?);
    let rules = Preprocess::from_hf(&document.file, &document.value, model)?;
    if let (Some(_), Some((Resize::Patches { .. }, _))) = (image_size, rules.resize()) {
        let reason = format!(
            "the model takes images of any aspect ratio; {}: max_num_patches says how many patches they are resized to",
            document.file.display()
        );
        return Err(Error::argument("image size", reason));
    }
    match image_size {
        Some(size) => fit(&rules, size),
        None => Ok(rules),
    }
}

/// Returns the same rules for another output size. Scales the size before a crop accordingly.
fn fit(rules: &Preprocess, [height, width]: [usize; 2]) -> Result<Preprocess> {
    let (old_height, old_width) = rules.output_size();
    if let Some((Resize::Multiple { .. }, filter)) = rules.resize() {
        let resize = Resize::Exact { height, width };
        return Ok(Preprocess::new(Some((resize, filter)), None, values(rules))?);
    }
    if (old_height, old_width) == (height, width) {
        return Ok(rules.clone());
    }
    let scaled =
        |side: usize, to: usize, from: usize| (side as f64 * to as f64 / from as f64).round() as usize;
    let resize = rules.resize().map(|(resize, filter): (Resize, Filter)| {
        let (box_height, box_width) = match resize {
            Resize::Exact { height, width }
            | Resize::Cover { height, width }
            | Resize::Contain { height, width }
            | Resize::Thumbnail { height, width, .. } => (height, width),
            Resize::Shortest { edge, .. } => (edge, edge),
            // These rules have only one size.
            Resize::Patches { .. } | Resize::Multiple { .. } => return (resize, filter),
        };
        let box_height = scaled(box_height, height, old_height);
        let box_width = scaled(box_width, width, old_width);
        let resize = match resize {
            Resize::Exact { .. } => Resize::Exact {
                height: box_height,
                width: box_width,
            },
            Resize::Contain { .. } => Resize::Contain {
                height: box_height,
                width: box_width,
            },
            Resize::Thumbnail { rotate, .. } => Resize::Thumbnail {
                height: box_height,
                width: box_width,
                rotate,
            },
            Resize::Shortest { longest, .. } if box_height == box_width => {
                let longest = longest.map(|longest| scaled(longest, height, old_height));
                Resize::Shortest {
                    edge: box_height,
                    longest,
                }
            }
            Resize::Cover { .. }
            | Resize::Shortest { .. }
            | Resize::Patches { .. }
            | Resize::Multiple { .. } => Resize::Cover {
                height: box_height,
                width: box_width,
            },
        };
        (resize, filter)
    });
    let crop = rules.crop().map(|crop| Crop {
        height,
        width,
        ..crop
    });
    Ok(Preprocess::new(resize, crop, values(rules))?)
}

/// Returns the arithmetic of the rules. If they do not normalise, a mean of 0 and a deviation of 1 change no value.
pub(super) fn values(rules: &Preprocess) -> ValueRule {
    ValueRule {
        rescale: Rescale::Multiply(rules.rescale()),
        normalize: Some((rules.mean().map(f64::from), rules.std().map(f64::from))),
    }
}

/// Returns rescaling, mean and standard deviation as the graph's first op.
pub(super) fn normalize(rules: &Preprocess) -> Normalize {
    let (mean, std) = (rules.mean().map(f64::from), rules.std().map(f64::from));
    Normalize {
        scale: std.map(|std| (rules.rescale() / std) as f32),
        shift: [0, 1, 2].map(|channel| (-mean[channel] / std[channel]) as f32),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    #[test]
    fn another_size_scales_what_surrounds_the_crop() {
        let rules =
            |config| Preprocess::from_hf(Path::new("preprocessor_config.json"), &config, None).unwrap();
        let deit = json!({
            "image_processor_type": "DeiTImageProcessor",
            "size": { "height": 256, "width": 256 },
            "crop_size": { "height": 224, "width": 224 },
        });
        let clip = json!({
            "image_processor_type": "CLIPImageProcessor",
            "size": { "shortest_edge": 256 },
            "crop_size": { "height": 224, "width": 224 },
        });
        let resized = |config, size| fit(&rules(config), size).unwrap().resize().unwrap().0;
        assert_eq!(
            resized(deit.clone(), [448, 112]),
            Resize::Exact {
                height: 512,
                width: 128
            }
        );
        assert_eq!(
            resized(clip.clone(), [448, 112]),
            Resize::Cover {
                height: 512,
                width: 128
            }
        );
        assert_eq!(
            resized(clip.clone(), [112, 112]),
            Resize::Shortest {
                edge: 128,
                longest: None
            }
        );
        let (before, after) = (rules(clip.clone()), fit(&rules(clip), [112, 64]).unwrap());
        assert_eq!(after.output_size(), (112, 64));
        let (mut a, mut b) = (vec![0.0; 768], vec![0.0; 768]);
        let bytes: Vec<u8> = (0..=255).flat_map(|byte| [byte; 3]).collect();
        before.normalize(&bytes, &mut a).unwrap();
        after.normalize(&bytes, &mut b).unwrap();
        assert_eq!(a, b);
        let op = normalize(&before);
        for (index, value) in a.iter().enumerate() {
            let (channel, byte) = (index / 256, index % 256);
            let got = byte as f32 * op.scale[channel] + op.shift[channel];
            // One rounding of each constant and of each operation, on values up to 3.
            assert!((got - value).abs() <= 8.0 * f32::EPSILON, "{got} {value}");
        }
    }
}
