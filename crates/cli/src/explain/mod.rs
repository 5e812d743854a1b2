//! `hipvit explain`: explains a model's result for an image, as pictures and arrays. `overview` combines them in one
//! drawing.

mod overview;
mod statistics;

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::ValueEnum;
use hipvit::Prediction;
use hipvit::image::{RgbImage, encode_png};
use hipvit::ndarray::Array2;
use hipvit::run_config::parsers::positive;
use hipvit_explain::{Baseline, ExplainOptions, Explainer, Explanation, Method, Target};
use hipvit_explain::{enlarge, heat, signed, tiles};
use serde::Serialize;

use super::arrays::{Npy, Tensors};
use super::decode_args::DecodeArgs;
use super::escape::lines;
use super::inputs;
use super::labels::LabelArgs;
use super::model_args::ModelArgs;
use super::outcome::{Outcome, refused};
use super::{output, record};

const EXAMPLES: &str = "\
Examples:
  hipvit explain cat.jpg -m MODEL -o why/
  hipvit explain cat.jpg -m MODEL --class \"tabby cat\" --method integrated-gradients -o why/";

#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Image file, or - for standard input
    #[arg(value_name = "IMAGE|-", help_heading = "Input")]
    image: PathBuf,
    #[command(flatten)]
    decode: DecodeArgs,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    labels: LabelArgs,
    /// Class to explain, by name or number [default: most likely]
    #[arg(long, value_name = "CLASS", help_heading = "Output")]
    class: Option<String>,
    /// Explanation method
    #[arg(
        long,
        value_enum,
        default_value = "attnlrp",
        value_name = "METHOD",
        help_heading = "Output"
    )]
    method: Choice,
    /// Baseline image of integrated gradients
    #[arg(
        long,
        value_enum,
        default_value = "mean",
        value_name = "COLOUR",
        help_heading = "Output"
    )]
    baseline: Colour,
    /// Number of steps of integrated gradients
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = positive, help_heading = "Output")]
    steps: usize,
    /// Print the result as JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Directory for the pictures and arrays
    #[arg(long, short, value_name = "DIR", help_heading = "Output")]
    output: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Choice {
    /// Attention maps of each head and layer
    Attention,
    /// Also attention rollout (Abnar & Zuidema 2020)
    Rollout,
    /// Also the pixels of a logit, by AttnLRP (Achtibat et al. 2024)
    Attnlrp,
    /// Also integrated gradients (Sundararajan et al. 2017); many passes
    IntegratedGradients,
    /// Also conservative propagation (Ali et al. 2022)
    Conservative,
    /// Log-sum-exp, largest probability and entropy per attention row
    Statistics,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Colour {
    /// The mean colour that preprocessing subtracts
    Mean,
    /// Black
    Black,
    /// White
    White,
}

#[derive(Serialize)]
struct Report<'a> {
    image: &'a str,
    model: &'a str,
    target: &'a Target,
    top: &'a [Prediction],
    grid: [usize; 2],
    patch: [usize; 2],
    #[serde(skip_serializing_if = "Option::is_none")]
    attribution: Option<Summary>,
    files: Vec<String>,
}

#[derive(Serialize)]
struct Summary {
    method: Method,
    source: &'static str,
    output: f64,
    pixels: f64,
    constant: Option<f64>,
    gap: Option<f64>,
}

impl Args {
    pub(crate) fn run(&self) -> Result<Outcome> {
        if self.method == Choice::Statistics {
            return self.statistics();
        }
        let source = inputs::source(&self.image)?;
        let image = source.decode(self.decode.options())?;
        let session = self.model.load_with(self.labels.apply(self.model.builder())?)?;
        let class = self
            .class
            .as_deref()
            .map(|text| session.labels().find(text))
            .transpose()?;
        let baseline = match self.baseline {
            Colour::Mean => Baseline::Mean,
            Colour::Black => Baseline::Black,
            Colour::White => Baseline::White,
        };
        let method = match self.method {
            Choice::IntegratedGradients => Method::IntegratedGradients,
            Choice::Conservative => Method::Conservative,
            Choice::Attention | Choice::Rollout | Choice::Attnlrp | Choice::Statistics => Method::AttnLrp,
        };
        let options = ExplainOptions::new()
            .class(class)
            .method(method)
            .baseline(baseline)
            .steps(self.steps);
        let explainer = Explainer::new(&session)?;
        let attends = explainer.info().has_attention();
        if !attends && !self.attributes() {
            bail!(
                "{} has no attention: use --method attnlrp, integrated-gradients or conservative",
                explainer.name()
            );
        }
        // Fail before the work if the directory cannot be created.
        fs::create_dir_all(&self.output).map_err(refused(&self.output))?;
        output::check(&self.output.join(REPORT))?;
        let explanation = explainer.explain_with(&image, &options)?;
        let name = source.name();
        let mut files = Files {
            directory: &self.output,
            written: Vec::new(),
        };
        self.write(&mut files, &name, &explanation)?;
        let report = Report {
            image: &name,
            model: session.name(),
            target: &explanation.target,
            top: &explanation.top,
            grid: explanation.grid,
            patch: explanation.patch,
            attribution: self.attributes().then(|| summary(&explanation)),
            files: files.written_with(REPORT),
        };
        files.add(REPORT, &serde_json::to_vec(&report)?)?;
        if let Some(summary) = &report.attribution {
            warn_incomplete(summary);
        }
        let mut out = output::stdout();
        if self.json {
            record::write(&mut out, &report)?;
        } else {
            out.write_all(lines(&self.text(&report)?).as_bytes())?;
        }
        Ok(Outcome::Complete)
    }

    /// Returns true if the method attributes the result to pixels.
    fn attributes(&self) -> bool {
        !matches!(self.method, Choice::Attention | Choice::Rollout)
    }

    fn write(&self, files: &mut Files<'_>, name: &str, explanation: &Explanation) -> Result<()> {
        /// Minimum length of a picture's shorter side in pixels.
        const LEGIBLE: usize = 224;
        let resized = &explanation.resized;
        let image = &enlarge(resized, LEGIBLE.div_ceil(resized.width.min(resized.height)));
        files.picture("image.png", image)?;
        let mut arrays = Tensors::new(&env::temp_dir());
        arrays.image(name);
        let mut all = Vec::new();
        for (layer, map) in explanation.attention.iter().enumerate() {
            let heads = explanation.attention_to_patches(layer);
            let maps = heads.iter().map(|map| heat(image, map));
            let maps = maps.collect::<hipvit::Result<Vec<_>>>()?;
            let shape = <[usize; 3]>::from(map.weights.dim());
            let values: Vec<f32> = map.weights.iter().copied().collect();
            arrays.push(&map.name, &shape, &values)?;
            files.picture(&format!("{}.png", map.name), &tiles(&maps, maps.len())?)?;
            all.push(maps);
        }
        // One row per layer. A pooling layer can have a different number of heads, so it has its own picture.
        let heads = all.first().map_or(1, Vec::len);
        let blocks: Vec<RgbImage> = all
            .into_iter()
            .filter(|maps| maps.len() == heads)
            .flatten()
            .collect();
        let attends = !blocks.is_empty();
        if attends {
            files.picture("attention.png", &tiles(&blocks, heads)?)?;
        }
        if attends && self.method != Choice::Attention {
            files.picture("rollout.png", &heat(image, &explanation.rollout)?)?;
            files.npy("rollout.npy", std::slice::from_ref(&explanation.rollout))?;
            let values: Vec<f32> = explanation.rollout.iter().copied().collect();
            arrays.push("rollout", &explanation.grid, &values)?;
        }
        if self.attributes() {
            let attribution = &explanation.attribution;
            files.picture("attribution.png", &signed(image, &attribution.by_pixel())?)?;
            let by_patch = attribution.by_patch(explanation.patch);
            files.picture("attribution_patches.png", &signed(image, &by_patch)?)?;
            let planes = attribution
                .values
                .outer_iter()
                .map(|plane| plane.mapv(|v| v as f32));
            let planes: Vec<Array2<f32>> = planes.collect();
            files.npy("attribution.npy", &planes)?;
            let values: Vec<f32> = planes.iter().flatten().copied().collect();
            arrays.push("attribution", &[3, resized.height, resized.width], &values)?;
        }
        let mut bytes = Vec::new();
        arrays.write(&mut bytes)?;
        files.add("explanation.safetensors", &bytes)?;
        let overview = overview::overview(explanation, self.attributes())?;
        files.add("overview.svg", overview.as_bytes())
    }

    fn text(&self, report: &Report<'_>) -> Result<String> {
        let mut text = format!("{}\n", report.image);
        for p in report.top {
            writeln!(
                text,
                "  {:>6.2} %  {:>9.4}  {}",
                100.0 * p.probability,
                p.logit,
                p.label
            )?;
        }
        if let Some(summary) = &report.attribution {
            writeln!(
                text,
                "explained: {} = {:.6}, by {}",
                report.target, summary.output, summary.source
            )?;
            writeln!(text, "  pixels   {:>12.6}", summary.pixels)?;
            if let (Some(constant), Some(gap)) = (summary.constant, summary.gap) {
                writeln!(text, "  constant {constant:>12.6}")?;
                writeln!(text, "  gap      {gap:>12.1e}")?;
            }
        }
        writeln!(text, "{}: {}", self.output.display(), report.files.join(", "))?;
        Ok(text)
    }
}

fn summary(explanation: &Explanation) -> Summary {
    let attribution = &explanation.attribution;
    Summary {
        method: attribution.method,
        source: attribution.method.source(),
        output: attribution.output,
        pixels: attribution.sum(),
        constant: attribution.constant,
        gap: attribution.gap(),
    }
}

/// Warns if the attributions do not add up, because the quadrature is too coarse.
fn warn_incomplete(summary: &Summary) {
    const TOLERATED: f64 = 0.01;
    let (Some(gap), Some(constant)) = (summary.gap, summary.constant) else {
        return;
    };
    let difference = (summary.output - constant).abs();
    if gap.abs() > TOLERATED * difference {
        output::warning(&format!(
            "the contributions should add up to {difference:.3}, but are off by {gap:.1e}: increase --steps"
        ));
    }
}

/// Name of the file that describes the other files.
const REPORT: &str = "explanation.json";

/// Writer of the files in the directory.
struct Files<'a> {
    directory: &'a Path,
    written: Vec<String>,
}

impl Files<'_> {
    /// Returns the names of the files that are written, including `name`.
    fn written_with(&self, name: &str) -> Vec<String> {
        self.written.iter().cloned().chain([name.to_owned()]).collect()
    }

    fn add(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        output::write(&self.directory.join(name), bytes)?;
        self.written.push(name.to_owned());
        Ok(())
    }

    fn picture(&mut self, name: &str, image: &RgbImage) -> Result<()> {
        self.add(name, &encode_png(image)?)
    }

    /// Writes an array: `[rows, columns]` for one plane, `[planes, rows, columns]` for several.
    fn npy(&mut self, name: &str, planes: &[Array2<f32>]) -> Result<()> {
        let mut npy = Npy::new(Vec::new(), None, &env::temp_dir());
        match planes {
            [plane] => {
                for row in plane.rows() {
                    npy.push(name, &[plane.ncols()], &row.to_vec())?;
                }
            }
            _ => {
                for plane in planes {
                    let values: Vec<f32> = plane.iter().copied().collect();
                    npy.push(name, &[plane.nrows(), plane.ncols()], &values)?;
                }
            }
        }
        self.add(name, &npy.into_parts()?.0)
    }
}
