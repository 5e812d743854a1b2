//! `hipvit segment`.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use hipvit::image::{RgbImage, encode_gray_png, encode_png};
use hipvit::ndarray::{Array3, Axis};
use hipvit::pipeline::Source;
use hipvit::segment::{Mask, Prompt, Segmentation, Segmenter};
use hipvit::{ImageErrorKind, TensorArray};
use serde::Serialize;

use super::detect::colour;
use super::image_files::ImageFiles;
use super::inputs::Inputs;
use super::model_args::{ModelArgs, report_fallback};
use super::outcome::{Outcome, Usage};
use super::output::{self, Stdout};
use super::record::{self, Record};
use super::results::note_failed;
use super::{escape, npy};

const EXAMPLES: &str = "\
Examples:
  hipvit segment photo.jpg -m facebook/sam-vit-base --point 320,240 -o masks/
  hipvit segment photo.jpg -m MODEL --point 320,240 --point 80,60:0 --overlay -o masks/
  hipvit segment photo.jpg -m MODEL --box 20,30,200,180 --box 210,30,400,190 --json -o masks/";

#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    model: ModelArgs,
    /// Point of the object in pixels; X,Y:0 is not of it
    ///
    /// Repeat it for several points of one object.
    #[arg(
        long,
        value_name = "X,Y[:LABEL]",
        value_parser = point,
        allow_hyphen_values = true,
        help_heading = "Input"
    )]
    point: Vec<Point>,
    /// Box around an object in pixels: left, top, right, bottom
    ///
    /// Repeat it for several objects. Points belong to the only box.
    #[arg(
        long,
        value_name = "X0,Y0,X1,Y1",
        value_parser = corners,
        allow_hyphen_values = true,
        help_heading = "Input"
    )]
    r#box: Vec<Corners>,
    /// Write all masks of each object instead of the best
    #[arg(long, help_heading = "Output")]
    all: bool,
    /// Add NAME.overlay.png: the masks as colours over the image
    #[arg(long, help_heading = "Output")]
    overlay: bool,
    /// Print the results as JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Directory for NAME.mask.png, NAME.masks.npy and .json
    ///
    /// The PNG is white in the object. Several masks are NAME.mask1.png, NAME.mask2.png and so on. The npy file has all masks as truth values.
    /// The JSON file has their scores, areas, boxes and run lengths. NAME is the image's name without its extension.
    #[arg(long, short, value_name = "DIR", help_heading = "Output")]
    output: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    x: f32,
    y: f32,
    is_inside: bool,
}

type Corners = [f32; 4];

/// Parses coordinates that commas separate.
fn coordinates<const N: usize>(text: &str, expected: &str) -> Result<[f32; N], String> {
    let number = |part: &str| {
        part.trim()
            .parse::<f32>()
            .ok()
            .filter(|number| number.is_finite())
    };
    let numbers: Option<Vec<f32>> = text.split(',').map(number).collect();
    let numbers = numbers.and_then(|numbers| <[f32; N]>::try_from(numbers).ok());
    numbers.ok_or_else(|| format!("expected {expected}, numbers in pixels"))
}

fn point(text: &str) -> Result<Point, String> {
    let (place, label) = text.rsplit_once(':').unwrap_or((text, "1"));
    let is_inside = match label {
        "1" => true,
        "0" => false,
        other => {
            return Err(format!(
                "the label is {other}, expected 1 for a point of the object or 0 for one outside of it"
            ));
        }
    };
    let [x, y] = coordinates(place, "X,Y or X,Y:LABEL")?;
    Ok(Point { x, y, is_inside })
}

fn corners(text: &str) -> Result<Corners, String> {
    let corners: Corners = coordinates(text, "X0,Y0,X1,Y1")?;
    let [left, top, right, bottom] = corners;
    if right > left && bottom > top {
        Ok(corners)
    } else {
        Err("the box has no area. Give left, top, right and bottom, in this order".to_owned())
    }
}

/// The masks of an image.
#[derive(Serialize)]
struct Masks {
    width: usize,
    height: usize,
    masks: Vec<Described>,
    files: Vec<String>,
}

/// Facts about a mask.
#[derive(Serialize)]
struct Described {
    /// Index of the object, in the order of the boxes.
    object: usize,
    /// Index among the object's masks.
    index: usize,
    score: f32,
    area: usize,
    /// Left, top, right, bottom in pixels. Null for a mask without pixels.
    r#box: Option<[usize; 4]>,
    rle: RunLengths,
    file: String,
}

/// Runs of equal pixels, column by column, as in COCO's uncompressed format.
#[derive(Serialize)]
struct RunLengths {
    size: [usize; 2],
    counts: Vec<usize>,
}

const NPY: &str = ".masks.npy";
const JSON: &str = ".masks.json";
const OVERLAY: &str = ".overlay.png";

impl Args {
    pub(crate) fn run(&self) -> Result<Outcome> {
        self.inputs.require()?;
        let Some(path) = &self.model.model else {
            let reason =
                "-m MODEL is required: the embedded model does not segment. `facebook/sam-vit-base` does";
            return Err(Usage(reason.to_owned()).into());
        };
        let prompts = self.prompts()?;
        let images = self.inputs.list()?;
        let listed = images.len();
        let segmenter = Segmenter::load(path, &self.model.builder())?;
        self.model.note(segmenter.session());
        let count = prompts.len() * if self.all { segmenter.masks_per_prompt() } else { 1 };
        let masks: Vec<String> = match count {
            1 => vec![".mask.png".to_owned()],
            count => (1..=count).map(|number| format!(".mask{number}.png")).collect(),
        };
        let suffixes = masks.iter().map(String::as_str).chain([NPY, JSON, OVERLAY]);
        // Fail before the work if the files cannot be written.
        let files = ImageFiles::plan(&self.output, &suffixes.collect::<Vec<_>>(), &images)?;
        let decode = self.inputs.decode.options();
        let mut out = output::stdout();
        let mut written = 0;
        let outcome = images.for_each(
            |source| {
                let image = source.decode(decode)?;
                let size = [image.height, image.width];
                let checked = prompts.iter().try_for_each(|prompt| prompt.check(size));
                let checked = checked.and_then(|()| segmenter.check(&image));
                checked.map_err(|error| named(source, &error))?;
                Ok(image)
            },
            |index, name, image| {
                written += 1;
                let embedding = segmenter.encode(&image)?;
                let found = segmenter.segment(&embedding, &prompts)?;
                self.write(
                    &segmenter,
                    (name, index, &image),
                    &found,
                    (&files, &masks),
                    &mut out,
                )
            },
        )?;
        report_fallback(segmenter.session());
        note_failed(listed - written, listed);
        Ok(outcome)
    }

    /// Returns the prompt of each object.
    fn prompts(&self) -> Result<Vec<Prompt>> {
        let with_points = |prompt: Prompt| {
            let points = self.point.iter();
            points.fold(prompt, |prompt, &Point { x, y, is_inside }| {
                prompt.point(x, y, is_inside)
            })
        };
        let text = match (self.point.as_slice(), self.r#box.as_slice()) {
            ([], []) => "--point or --box is required: it says what to segment",
            (_, []) => return Ok(vec![with_points(Prompt::new())]),
            (_, &[corners]) => return Ok(vec![with_points(Prompt::new().within(corners))]),
            ([], boxes) => {
                let prompts = boxes.iter().map(|&corners| Prompt::new().within(corners));
                return Ok(prompts.collect());
            }
            _ => {
                "--point with several --box: it is not known to which box the points belong. Run each box by itself"
            }
        };
        Err(Usage(text.to_owned()).into())
    }

    fn write(
        &self,
        segmenter: &Segmenter,
        (name, index, image): (&str, usize, &RgbImage),
        found: &[Segmentation],
        (files, suffixes): (&ImageFiles<'_>, &[String]),
        out: &mut Stdout,
    ) -> Result<()> {
        let mut masks: Vec<(usize, usize, Mask)> = Vec::with_capacity(suffixes.len());
        for (object, segmentation) in found.iter().enumerate() {
            if self.all {
                let all = segmentation.masks().into_iter().enumerate();
                masks.extend(all.map(|(number, mask)| (object, number, mask)));
            } else {
                masks.push((object, segmentation.best_index(), segmentation.best()));
            }
        }
        let (width, height) = (image.width, image.height);
        let mut contents: Vec<(&str, Vec<u8>)> = Vec::with_capacity(masks.len() + 3);
        let mut array = Array3::from_elem((masks.len(), height, width), false);
        let mut described = Vec::with_capacity(masks.len());
        for (number, ((object, of_object, mask), suffix)) in masks.iter().zip(suffixes).enumerate() {
            let grey: Vec<u8> = mask.pixels.iter().map(|&pixel| 255 * u8::from(pixel)).collect();
            contents.push((suffix, encode_gray_png(width, height, &grey)?));
            array.index_axis_mut(Axis(0), number).assign(&mask.pixels);
            described.push(Described {
                object: *object,
                index: *of_object,
                score: mask.score,
                area: mask.area(),
                r#box: mask.bounding_box(),
                rle: RunLengths {
                    size: [height, width],
                    counts: mask.run_lengths(),
                },
                file: files.path(index, suffix).display().to_string(),
            });
        }
        contents.push((NPY, npy::bytes(&TensorArray::Bool(array.into_dyn()))));
        if self.overlay {
            contents.push((OVERLAY, encode_png(&painted(image, &masks))?));
        }
        let paths = contents.iter().map(|&(suffix, _)| suffix).chain([JSON]);
        let paths = paths.map(|suffix| files.path(index, suffix).display().to_string());
        let results = Masks {
            width,
            height,
            files: paths.collect(),
            masks: described,
        };
        let record = Record::new(segmenter.session(), name, &results);
        let mut json = Vec::new();
        record::write(&mut json, &record)?;
        contents.push((JSON, json));
        files.write(index, &contents)?;
        if self.json {
            return record::write(out, &record);
        }
        let count = match results.masks.len() {
            1 => "1 mask".to_owned(),
            count => format!("{count} masks"),
        };
        writeln!(
            out,
            "{}",
            escape::one_line(&format!("{name}: {width}×{height}, {count}"))
        )?;
        for Described {
            score,
            area,
            r#box,
            file,
            ..
        } in &results.masks
        {
            let place = match r#box {
                Some([left, top, right, bottom]) => format!("at {left}, {top} to {right}, {bottom}"),
                None => "nowhere".to_owned(),
            };
            let line = format!("  {score:.3} {area} pixels {place}, {file}");
            writeln!(out, "{}", escape::one_line(&line))?;
        }
        Ok(())
    }
}

/// Returns the error that a prompt or an image does not fit, with the name of the image.
fn named(source: &Source, error: &hipvit::Error) -> hipvit::Error {
    hipvit::Error::Image {
        name: source.name(),
        kind: ImageErrorKind::Size,
        reason: error.to_string(),
    }
}

/// Mixes half of each object's colour into the image. The first masks are on top.
fn painted(image: &RgbImage, masks: &[(usize, usize, Mask)]) -> RgbImage {
    let mut painted = image.clone();
    for (number, (_, _, mask)) in masks.iter().enumerate().rev() {
        let colour = colour(number);
        let (pixels, _) = painted.data.as_chunks_mut::<3>();
        let originals = image.data.as_chunks::<3>().0;
        for ((pixel, original), _) in pixels
            .iter_mut()
            .zip(originals)
            .zip(&mask.pixels)
            .filter(|(_, inside)| **inside)
        {
            *pixel = [0, 1, 2].map(|channel| original[channel].midpoint(colour[channel]));
        }
    }
    painted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_have_labels() {
        let found = |text| point(text).map(|Point { x, y, is_inside }| (x, y, is_inside));
        assert_eq!(found("3,4.5"), Ok((3.0, 4.5, true)));
        assert_eq!(found("3, 4:1"), Ok((3.0, 4.0, true)));
        assert_eq!(found("-3,4:0"), Ok((-3.0, 4.0, false)));
        for text in ["3", "3,4,5", "x,4", "3,inf", "3,4:"] {
            assert!(found(text).is_err(), "{text}");
        }
        assert!(found("3,4:2").unwrap_err().contains("the label is 2, expected 1"));
    }

    #[test]
    fn boxes_have_an_area() {
        assert_eq!(corners("1,2,3.5,4"), Ok([1.0, 2.0, 3.5, 4.0]));
        assert!(corners("1,2,3").unwrap_err().contains("expected X0,Y0,X1,Y1"));
        for text in ["3,2,1,4", "1,4,3,2", "1,2,1,4"] {
            assert!(corners(text).unwrap_err().contains("no area"), "{text}");
        }
    }
}
