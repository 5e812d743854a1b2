//! `hipvit inspect`.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use hipvit::exec::HipExecutor;
use hipvit::exec::select::SelectOptions;
use hipvit::graph::inspection::{Inspection, plot};
use hipvit::graph::optimize;
use hipvit::graph::plan::Plan;
use hipvit::model::{self, Info, LoadOptions};
use hipvit::{DType, Device, Session};
use serde::Serialize;

use super::{ImageSize, Outcome, choices, lines, output, record};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Model directory, as timm or Hugging Face transformers write it [default: the embedded TinyViT32]
    model: Option<PathBuf>,
    /// Load the model onto a GPU and show its memory there: hip (the first GPU) or hip:N
    #[arg(long, default_value = "cpu", value_name = "DEVICE", value_parser = choices::device())]
    device: Device,
    /// Compute precision: f32; on a GPU also f16 or bf16
    #[arg(long, default_value = "f32", value_name = "DTYPE", value_parser = choices::dtype())]
    dtype: DType,
    /// Batch size of the plan
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = super::positive)]
    batch: usize,
    /// Image size, if not the model's own; position embeddings are interpolated
    #[arg(long, value_name = "N or HxW", value_parser = super::image_size)]
    image_size: Option<ImageSize>,
    /// Select kernels as for results that have the same bits at any batch size
    #[arg(long)]
    reproducible: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Write a drawing of the arena's use over time
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
        let session = Session::builder().device(self.device).dtype(self.dtype);
        let gpu = session.open_device()?;
        let options = LoadOptions {
            image_size: self.image_size.map(|s| s.0),
            // Nothing is run.
            max_flops: Some(u64::MAX),
            ..LoadOptions::default()
        };
        let model = match &self.model {
            Some(path) => model::load(path, &options)?,
            None => model::tinyvit32(&options)?,
        };
        let (graph, passes) = optimize(model.graph.clone(), &session.passes())?;
        let plan = Plan::new(Arc::new(graph), self.batch, self.dtype)?;
        if let Some(file) = &self.plot {
            output::write(file, plot(&plan).as_bytes())?;
        }
        let mut inspection = Inspection::new(&model.graph, &passes, &plan);
        if let Some(gpu) = gpu {
            let mut executor = HipExecutor::new(plan.graph(), &gpu, self.dtype)?;
            executor.set_selection(SelectOptions {
                reproducible: self.reproducible,
                ..SelectOptions::default()
            });
            let kernels = executor.kernels(&plan)?;
            inspection = inspection
                .with_kernels(kernels, executor.selection().note())
                .on_device(executor.memory(&plan)?);
        }
        let report = Report {
            info: &model.info,
            preprocess: model.preprocess.to_string(),
            inspection,
        };
        let mut out = output::stdout();
        if self.json {
            record::write(&mut out, &report)?;
        } else {
            let text = format!(
                "{}preprocess: {}\n\n{}",
                report.info, report.preprocess, report.inspection
            );
            writeln!(out, "{}", lines(&text))?;
        }
        Ok(Outcome::Complete)
    }
}
