//! `hipvit depth`.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use hipvit::depth::DepthEstimator;
use hipvit::image::{RgbImage, encode_gray16_png, encode_png};
use hipvit::ndarray::Array2;
use hipvit::{Session, TensorArray};
use hipvit_explain::heat;
use serde::Serialize;

use super::image_files::ImageFiles;
use super::inputs::{Batch, Inputs};
use super::model_args::{ModelArgs, report_fallback};
use super::outcome::{Outcome, Usage};
use super::output::{self, Stdout};
use super::record::{self, Record};
use super::results::note_failed;
use super::{escape, npy};

const EXAMPLES: &str = "\
Examples:
  hipvit depth photo.jpg -m depth-anything/Depth-Anything-V2-Small-hf -o depths/
  hipvit depth photos/ -m MODEL --device hip --dtype bf16 --overlay -o depths/
  hipvit depth photo.jpg -m depth.onnx --json -o depths/";

#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    model: ModelArgs,
    /// Add NAME.overlay.png: the depths as colours over the image
    ///
    /// Near points are bright. With an ONNX file, large values are bright.
    #[arg(long, help_heading = "Output")]
    overlay: bool,
    /// Print the results as JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Directory for NAME.depth.png, .npy and .json
    ///
    /// The PNG has 16 bits of grey, from the smallest depth to the largest. The JSON file has both numbers. The npy file has the depths in
    /// f32. NAME is the image's name without its extension.
    #[arg(long, short, value_name = "DIR", help_heading = "Output")]
    output: PathBuf,
}

/// Facts about the depths of an image.
#[derive(Serialize)]
struct Summary {
    width: usize,
    height: usize,
    /// Smallest and largest depth: black and white of the PNG.
    min: f32,
    max: f32,
    /// True if depths are in metres. Not known for ONNX files.
    #[serde(skip_serializing_if = "Option::is_none")]
    metric: Option<bool>,
    /// Height and width of the model's input.
    model_size: [usize; 2],
    files: Vec<String>,
}

impl Args {
    pub(crate) fn run(&self) -> Result<Outcome> {
        self.inputs.require()?;
        let Some(path) = &self.model.model else {
            let reason = "-m MODEL is required: the embedded model estimates no depth. `depth-anything/Depth-Anything-V2-Small-hf` does";
            return Err(Usage(reason.to_owned()).into());
        };
        let images = self.inputs.list()?;
        let listed = images.len();
        let estimator = DepthEstimator::load(path, &self.model.builder())?;
        // Fail before the work if the files cannot be written.
        let files = ImageFiles::plan(&self.output, &SUFFIXES, &images)?;
        let decode = self.inputs.decode.options();
        let mut session = None;
        let mut out = output::stdout();
        let (outcome, written) = images.for_each_batch(
            self.model.config.batch,
            |source| {
                let image = source.decode(decode)?;
                // An image that cannot be resized is reported here, with its name.
                estimator.preprocess().for_image(image.height, image.width)?;
                Ok(image)
            },
            |batch| self.write(&estimator, batch, &files, &mut out, &mut session),
        )?;
        if let Some(session) = &session {
            report_fallback(session);
        }
        note_failed(listed - written, listed);
        Ok(outcome)
    }

    /// Writes the files of images. `last` is the session of the image before, if there is one.
    fn write(
        &self,
        estimator: &DepthEstimator,
        batch: Batch,
        files: &ImageFiles<'_>,
        out: &mut Stdout,
        last: &mut Option<Session>,
    ) -> Result<()> {
        let Batch {
            names,
            indices,
            images,
        } = batch;
        // What is written of a session is the same for all sizes.
        let session = match last {
            Some(session) => session.clone(),
            None => {
                let session = estimator.session(&images[0])?;
                self.model.note(&session);
                last.insert(session).clone()
            }
        };
        let depths = estimator.estimate(&images)?;
        for (index, (image, depth)) in images.iter().zip(&depths).enumerate() {
            let name = &names[index];
            let of_image = (name.as_str(), indices[index], image);
            let summary = self.write_one(estimator, &session, of_image, depth, files)?;
            if self.json {
                record::write(out, &Record::new(&session, name, summary))?;
                continue;
            }
            let Summary {
                width,
                height,
                min,
                max,
                ..
            } = summary;
            let unit = if summary.metric == Some(true) { " m" } else { "" };
            let line = format!(
                "{name}: {width}×{height}, {min:.4} to {max:.4}{unit}, {}",
                files.path(indices[index], PNG).display()
            );
            writeln!(out, "{}", escape::one_line(&line))?;
        }
        Ok(())
    }

    fn write_one(
        &self,
        estimator: &DepthEstimator,
        session: &Session,
        (name, index, image): (&str, usize, &RgbImage),
        depth: &Array2<f32>,
        files: &ImageFiles<'_>,
    ) -> Result<Summary> {
        let range = Range::of(depth);
        let metric = session.info().depth_map.map(|map| map.is_metric);
        let (model_height, model_width) = estimator
            .preprocess()
            .for_image(image.height, image.width)?
            .output_size();
        let grey: Vec<u16> = depth.iter().map(|&value| range.grey(value)).collect();
        let mut contents = vec![
            (PNG, encode_gray16_png(image.width, image.height, &grey)?),
            (NPY, npy::bytes(&TensorArray::F32(depth.clone().into_dyn()))),
        ];
        if self.overlay {
            // Metric depths grow with the distance, relative ones shrink.
            let is_far = metric == Some(true);
            let near = depth.mapv(|value| {
                let share = range.share(value);
                if is_far { 1.0 - share } else { share }
            });
            contents.push((OVERLAY, encode_png(&heat(image, &near)?)?));
        }
        let paths = contents.iter().map(|&(suffix, _)| suffix).chain([JSON]);
        let paths = paths.map(|suffix| files.path(index, suffix).display().to_string());
        let summary = Summary {
            width: image.width,
            height: image.height,
            min: range.min,
            max: range.max,
            metric,
            model_size: [model_height, model_width],
            files: paths.collect(),
        };
        let mut json = Vec::new();
        record::write(&mut json, &Record::new(session, name, &summary))?;
        contents.push((JSON, json));
        files.write(index, &contents)?;
        Ok(summary)
    }
}

const PNG: &str = ".depth.png";
const NPY: &str = ".depth.npy";
const JSON: &str = ".depth.json";
const OVERLAY: &str = ".overlay.png";
const SUFFIXES: [&str; 4] = [PNG, NPY, JSON, OVERLAY];

/// Smallest and largest finite depth.
#[derive(Clone, Copy)]
struct Range {
    min: f32,
    max: f32,
}

impl Range {
    fn of(depth: &Array2<f32>) -> Self {
        let finite = depth.iter().copied().filter(|value| value.is_finite());
        let (min, max) = finite.fold((f32::INFINITY, f32::NEG_INFINITY), |(min, max), value| {
            (min.min(value), max.max(value))
        });
        Self { min, max }
    }

    /// Returns the place of a depth between the smallest and the largest, from 0 to 1.
    fn share(self, value: f32) -> f32 {
        let share = (f64::from(value) - f64::from(self.min)) / (f64::from(self.max) - f64::from(self.min));
        // Also where all depths are equal, or a depth is not a number.
        if share.is_nan() {
            0.0
        } else {
            share.clamp(0.0, 1.0) as f32
        }
    }

    fn grey(self, value: f32) -> u16 {
        (f64::from(self.share(value)) * f64::from(u16::MAX)).round() as u16
    }
}

#[cfg(test)]
mod tests {
    use hipvit::ndarray::array;

    use super::*;

    #[test]
    fn greys_span_the_finite_depths() {
        let depth = array![[1.0, f32::NAN, 3.0], [2.0, f32::INFINITY, 1.5]];
        let range = Range::of(&depth);
        assert_eq!((range.min, range.max), (1.0, 3.0));
        let greys: Vec<u16> = depth.iter().map(|&value| range.grey(value)).collect();
        assert_eq!(greys, [0, 0, 65535, 32768, 65535, 16384]);
        let flat = Range::of(&array![[2.0, 2.0]]);
        assert_eq!((flat.min, flat.max, flat.grey(2.0)), (2.0, 2.0, 0));
    }
}
