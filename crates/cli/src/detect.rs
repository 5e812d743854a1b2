//! `hipvit detect`.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use hipvit::detect::{Detection, Detector};
use hipvit::image::{RgbImage, encode_png};
use serde::Serialize;

use super::escape;
use super::image_files::ImageFiles;
use super::inputs::{Batch, Inputs};
use super::model_args::{ModelArgs, report_fallback};
use super::outcome::{Outcome, Usage};
use super::output::{self, Stdout};
use super::record::{self, Record};
use super::results::note_failed;

const EXAMPLES: &str = "\
Examples:
  hipvit detect street.jpg -m PekingU/rtdetr_r50vd
  hipvit detect photos/ -m PekingU/rtdetr_r50vd --threshold 0.7 --json
  hipvit detect photos/ -m detr/model.onnx --device hip -o boxes/";

#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    model: ModelArgs,
    /// Leave out objects with scores up to T
    #[arg(long, value_name = "T", default_value_t = 0.5, help_heading = "Output")]
    threshold: f32,
    /// Print the results as JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Directory for NAME.boxes.png and NAME.boxes.json
    ///
    /// The PNG has the boxes drawn on the image, in a colour for each class. NAME is the image's name without its extension.
    #[arg(long, short, value_name = "DIR", help_heading = "Output")]
    output: Option<PathBuf>,
}

/// The objects of an image.
#[derive(Serialize)]
struct Objects<'a> {
    width: usize,
    height: usize,
    objects: Vec<Object<'a>>,
}

#[derive(Serialize)]
struct Object<'a> {
    class: usize,
    label: &'a str,
    score: f32,
    /// Left, top, right, bottom in pixels.
    r#box: [f32; 4],
}

const PNG: &str = ".boxes.png";
const JSON: &str = ".boxes.json";

impl Args {
    pub(crate) fn run(&self) -> Result<Outcome> {
        self.inputs.require()?;
        let Some(path) = &self.model.model else {
            let reason = "-m MODEL is required: the embedded model detects no objects. Name a detector, such as PekingU/rtdetr_r50vd, or an ONNX file";
            return Err(Usage(reason.to_owned()).into());
        };
        if !(0.0..=1.0).contains(&self.threshold) {
            let text = format!("--threshold {}: is not from 0 to 1", self.threshold);
            return Err(Usage(text).into());
        }
        let images = self.inputs.list()?;
        let listed = images.len();
        let detector = Detector::load(path, &self.model.builder())?;
        self.model.note(detector.session());
        // Fail before the work if the files cannot be written.
        let files = match &self.output {
            Some(directory) => Some(ImageFiles::plan(directory, &[PNG, JSON], &images)?),
            None => None,
        };
        let decode = self.inputs.decode.options();
        let mut out = output::stdout();
        let (outcome, written) = images.for_each_batch(
            detector.session().batch(),
            |source| source.decode(decode),
            |batch| self.write(&detector, batch, files.as_ref(), &mut out),
        )?;
        report_fallback(detector.session());
        note_failed(listed - written, listed);
        Ok(outcome)
    }

    fn write(
        &self,
        detector: &Detector,
        batch: Batch,
        files: Option<&ImageFiles<'_>>,
        out: &mut Stdout,
    ) -> Result<()> {
        let Batch {
            names,
            indices,
            images,
        } = batch;
        let detections = detector.detect(&images, self.threshold)?;
        for (((name, index), image), found) in names.iter().zip(indices).zip(&images).zip(&detections) {
            let objects = found.iter().map(|object| Object {
                class: object.class,
                label: &object.name,
                score: object.score,
                r#box: object.corners,
            });
            let objects = Objects {
                width: image.width,
                height: image.height,
                objects: objects.collect(),
            };
            let record = Record::new(detector.session(), name, &objects);
            if let Some(files) = files {
                let mut json = Vec::new();
                record::write(&mut json, &record)?;
                let png = encode_png(&drawn(image, found))?;
                files.write(index, &[(PNG, png), (JSON, json)])?;
            }
            if self.json {
                record::write(out, &record)?;
                continue;
            }
            let count = match objects.objects.len() {
                1 => "1 object".to_owned(),
                count => format!("{count} objects"),
            };
            writeln!(out, "{}", escape::one_line(&format!("{name}: {count}")))?;
            for Object {
                label, score, r#box, ..
            } in &objects.objects
            {
                let [left, top, right, bottom] = r#box.map(f32::round);
                let line = format!("  {score:.3} {label} at {left}, {top} to {right}, {bottom}");
                writeln!(out, "{}", escape::one_line(&line))?;
            }
        }
        Ok(())
    }
}

/// Draws the boxes on an image, the best last.
fn drawn(image: &RgbImage, found: &[Detection]) -> RgbImage {
    let mut drawn = image.clone();
    let width = (image.width.min(image.height) / 200).max(1) as i64;
    for object in found.iter().rev() {
        // Far edges are cut, so that sums cannot overflow.
        let edge = |edge: f32| edge.round().clamp(-1e6, 1e6) as i64;
        let [left, top, right, bottom] = object.corners.map(edge);
        let colour = colour(object.class);
        for inset in 0..width {
            let (left, top, right, bottom) = (left + inset, top + inset, right - inset, bottom - inset);
            for x in left.max(0)..=right.min(image.width as i64 - 1) {
                put(&mut drawn, x, top, colour);
                put(&mut drawn, x, bottom, colour);
            }
            for y in top.max(0)..=bottom.min(image.height as i64 - 1) {
                put(&mut drawn, left, y, colour);
                put(&mut drawn, right, y, colour);
            }
        }
    }
    drawn
}

/// Sets a pixel, if it is in the image.
fn put(image: &mut RgbImage, x: i64, y: i64, colour: [u8; 3]) {
    let (Ok(x), Ok(y)) = (usize::try_from(x), usize::try_from(y)) else {
        return;
    };
    if x < image.width && y < image.height {
        let at = 3 * (y * image.width + x);
        image.data[at..at + 3].copy_from_slice(&colour);
    }
}

/// Returns a bright colour. Neighbouring classes have distant hues.
pub(super) fn colour(class: usize) -> [u8; 3] {
    // The golden ratio spreads hues evenly, however many there are.
    let hue = 6.0 * (class as f64 * 0.618_033_988_749_895).fract();
    let channel = |offset: f64| {
        let place = (hue + offset).rem_euclid(6.0);
        let share = (2.0 - (place - 3.0).abs()).clamp(0.0, 1.0);
        (55.0 + 200.0 * share) as u8
    };
    [channel(3.0), channel(1.0), channel(5.0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_are_cut_at_the_image() {
        let image = RgbImage::new(4, 3, vec![0; 36]).unwrap();
        let mut put_at = image.clone();
        for (x, y) in [(-1, 0), (0, -1), (4, 0), (0, 3), (i64::MAX, 1), (3, 2)] {
            put(&mut put_at, x, y, [9; 3]);
        }
        assert_eq!(put_at.data.iter().filter(|&&value| value == 9).count(), 3);
        assert_eq!(put_at.data[33..], [9; 3]);
    }

    #[test]
    fn classes_have_different_colours() {
        assert_eq!(colour(0), [255, 55, 55]);
        let mut all: Vec<_> = (0..80).map(colour).collect();
        all.sort_unstable();
        all.dedup();
        assert!(all.len() > 70);
    }
}
