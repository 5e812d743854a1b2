//! `hipvit inspect`.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use hipvit::DType;
use hipvit::graph::inspection::{Inspection, plot};
use hipvit::graph::plan::Plan;
use hipvit::graph::{Passes, optimize};
use hipvit::model::{self, Info, LoadOptions};
use serde::Serialize;

use super::{ImageSize, Outcome, output, record};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Model directory (timm's or Hugging Face's layout); the embedded TinyViT32 if left out
    model: Option<PathBuf>,
    /// The batch to plan for
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = super::positive)]
    batch: usize,
    /// Another image size than the model's own; position embeddings are interpolated
    #[arg(long, value_name = "N or HxW", value_parser = super::image_size)]
    image_size: Option<ImageSize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Draw the arena over time
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report<'a> {
    info: &'a Info,
    preprocess: String,
    #[serde(flatten)]
    inspection: Inspection,
}

impl Args {
    pub fn run(&self) -> Result<Outcome> {
        let options = LoadOptions {
            image_size: self.image_size.map(|s| s.0),
            ..LoadOptions::default()
        };
        let model = match &self.model {
            Some(path) => model::load(path, &options)?,
            None => model::tinyvit32(&options)?,
        };
        let (graph, passes) = optimize(model.graph.clone(), &Passes::default())?;
        let plan = Plan::new(Arc::new(graph), self.batch, DType::F32)?;
        if let Some(file) = &self.plot {
            output::write(file, plot(&plan).as_bytes())?;
        }
        let report = Report {
            info: &model.info,
            preprocess: model.preprocess.to_string(),
            inspection: Inspection::new(&model.graph, &passes, &plan),
        };
        let mut out = output::stdout();
        if self.json {
            record::write(&mut out, &report)?;
        } else {
            writeln!(
                out,
                "{}preprocess: {}\n\n{}",
                report.info, report.preprocess, report.inspection
            )?;
        }
        Ok(Outcome::Complete)
    }
}
