//! `hipvit preprocess`: writes pixel values, to compare them with those of other libraries.

use std::path::PathBuf;

use anyhow::Result;
use hipvit::image::Resize;
use hipvit::model::LoadOptions;
use hipvit::run_config::ImageSize;

use super::arrays::{Npy, Tensors};
use super::format::{self, Format, Formats, OutputArgs};
use super::inputs::Inputs;
use super::model_args::load_model;
use super::outcome::{Outcome, Usage};
use super::output::Sink;
use super::results::note_failed;

const EXAMPLES: &str = "\
Examples:
  hipvit preprocess photos/ -m MODEL -o pixels.safetensors    # pixel_values [N, 3, H, W]
  hipvit preprocess cat.jpg -m MODEL -o pixels.npy";

#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    inputs: Inputs,
    /// Model directory, or ORG/NAME on the hub [default: TinyViT32]
    #[arg(long, short, value_name = "MODEL", help_heading = "Model")]
    model: Option<PathBuf>,
    /// Image size [default: the model's]
    #[arg(long, value_name = "N|HxW", help_heading = "Model")]
    image_size: Option<ImageSize>,
    #[command(flatten)]
    output: OutputArgs<PixelValues>,
}

/// Pixel values in f32 of shape `[N, 3, H, W]`, named `pixel_values` in safetensors. A model for images of any aspect
/// ratio has `[N, patches, p·p·3]`, and `spatial_shapes` `[N, 2]`.
#[derive(Clone, Debug)]
struct PixelValues;

impl Formats for PixelValues {
    const FORMATS: &'static [Format] = &[Format::Safetensors, Format::Npy];
}

enum Writer {
    Npy(Npy<Sink>),
    Safetensors(Sink, Tensors),
}

impl Args {
    pub(crate) fn run(&self) -> Result<Outcome> {
        self.inputs.require()?;
        let (format, sink) = self.output.open()?;
        let names = self.output.open_names(format, Some(&sink))?;
        let images = self.inputs.list()?;
        self.inputs
            .check_outputs(&images, std::iter::once(&sink).chain(&names))?;
        let listed = images.len();
        let options = LoadOptions {
            image_size: self.image_size.map(|size| size.0),
            ..LoadOptions::default()
        };
        let model = load_model(self.model.as_ref(), &options)?;
        let rule = &model.preprocess;
        let decode = self.inputs.decode.options();
        let directory = sink.directory();
        let mut writer = match format {
            Format::Npy => Writer::Npy(Npy::new(sink, names, &directory)),
            _ => Writer::Safetensors(sink, Tensors::new(&directory)),
        };
        // Shape of the pixel values: the number of images, then the extents of one image.
        let mut extents = vec![0];
        let outcome = images.for_each(
            |source| {
                let image = source.resize(&source.decode(decode)?, rule)?;
                if let Some((Resize::Patches { patch, max_patches }, _)) = rule.resize() {
                    let (values, grid) = rule.normalize_patches(&image.data)?;
                    return Ok((vec![max_patches, patch * patch * 3], values, Some(grid)));
                }
                let mut values = vec![0.0; image.data.len()];
                rule.normalize(&image.data, &mut values)?;
                Ok((vec![3, image.height, image.width], values, None))
            },
            |_, name, (shape, values, grid)| {
                if let [_, before @ ..] = &extents[..]
                    && !before.is_empty()
                    && before != shape
                {
                    let text = format!(
                        "{name} becomes {}, and the images before {}: the model keeps their aspect ratio. Give all images one size with --image-size",
                        format::shape(&shape),
                        format::shape(before)
                    );
                    return Err(Usage(text).into());
                }
                extents = [&[extents[0] + 1], &shape[..]].concat();
                match &mut writer {
                    Writer::Npy(npy) => npy.push(name, &shape, &values)?,
                    Writer::Safetensors(_, tensors) => {
                        tensors.image(name);
                        tensors.push("pixel_values", &shape, &values)?;
                        if let Some(grid) = grid {
                            tensors.push("spatial_shapes", &[2], &grid.map(|n| n as f32))?;
                        }
                    }
                }
                Ok(())
            },
        )?;
        let files = match writer {
            Writer::Npy(npy) => npy.finish()?,
            Writer::Safetensors(mut sink, mut tensors) => {
                tensors.write(&mut sink)?;
                vec![sink]
            }
        };
        note_failed(listed - extents[0], listed);
        let outcome = format::finish(files, outcome, extents[0])?;
        self.output.wrote(&format::shape(&extents));
        Ok(outcome)
    }
}
