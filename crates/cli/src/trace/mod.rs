//! `hipvit trace`: follows one pixel through the model, as text (`text`), JSON or a page (`html`). `places` adds memory
//! addresses, and `machine` the instructions of an emulated GPU.

mod html;
mod machine;
mod places;
mod report;
mod text;

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use hipvit_explain::Explainer;

use super::decode_args::DecodeArgs;
use super::escape::lines;
use super::format::{Format, Formats, OutputArgs};
use super::inputs;
use super::labels::LabelArgs;
use super::model_args::ModelArgs;
use super::outcome::Outcome;
use super::output::Sink;
use super::{output, record};
use machine::Machine;
use places::{Memory, Places};
use report::Report;

const EXAMPLES: &str = "\
Examples:
  hipvit trace cat.jpg --pixel 120,80 -m MODEL
  hipvit trace cat.jpg --pixel 120,80 -m MODEL --html trace.html";

#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Image file, or - for standard input
    #[arg(value_name = "IMAGE|-", help_heading = "Input")]
    image: PathBuf,
    /// Column and row of the pixel, counted from 0
    #[arg(long, value_name = "X,Y", value_parser = pixel, help_heading = "Input")]
    pixel: Pixel,
    #[command(flatten)]
    decode: DecodeArgs,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    labels: LabelArgs,
    /// Class to follow, by name or number [default: most likely]
    #[arg(long, value_name = "CLASS", help_heading = "Output")]
    class: Option<String>,
    /// Show the memory address and the kernel of each step
    #[arg(long, help_heading = "Output")]
    memory: bool,
    #[command(flatten)]
    output: OutputArgs<Journey>,
    /// Write an HTML page with the picture and the attention maps
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    html: Option<PathBuf>,
    /// Run the model on an emulated GPU that follows the pixel; used by the child process
    #[arg(long, hide = true)]
    follow: bool,
}

/// Column and row of a pixel.
#[derive(Clone, Copy, Debug)]
struct Pixel([usize; 2]);

fn pixel(text: &str) -> Result<Pixel, String> {
    let (x, y) = text.split_once(',').ok_or("is not of the form X,Y")?;
    let number = |text: &str| {
        text.trim()
            .parse()
            .map_err(|e: std::num::ParseIntError| e.to_string())
    };
    Ok(Pixel([number(x)?, number(y)?]))
}

#[derive(Clone, Debug)]
struct Journey;

impl Formats for Journey {
    const FORMATS: &'static [Format] = &[Format::Text, Format::Json];
}

impl Args {
    pub(crate) fn run(&self) -> Result<Outcome> {
        if self.follow {
            return Machine::run(&self.model);
        }
        let (format, mut sink) = self.output.open()?;
        let page = self.html.as_deref().map(Sink::file).transpose()?;
        let source = inputs::source(&self.image)?;
        let image = source.decode(self.decode.options())?;
        let session = self.model.load_with(self.labels.apply(self.model.builder())?)?;
        let class = self
            .class
            .as_deref()
            .map(|text| session.labels().find(text))
            .transpose()?;
        let memory = Memory::of(&session)?;
        let trace = Explainer::new(&session)?.trace(&image, self.pixel.0, class)?;
        let places = Places::new(&session, &memory, &trace);
        let report = Report {
            image: &source.name(),
            trace: &trace,
            memory: &places,
            machine: Machine::follow(&session, &trace)?,
        };
        if let Some(page) = page {
            page.write_whole(html::page(&report)?.as_bytes())?;
        }
        match format {
            Format::Json => record::write(&mut sink, &report)?,
            _ => {
                let text = text::text(&report, self.output.width(), self.memory);
                sink.write_all(lines(&text).as_bytes())?;
            }
        }
        sink.finish()?;
        if let Some(file) = &self.html {
            output::wrote(file, "a page for a browser");
        }
        self.output.wrote(&format!("one pixel of {}", source.name()));
        Ok(Outcome::Complete)
    }
}
