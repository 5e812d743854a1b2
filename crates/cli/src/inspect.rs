//! `hipvit inspect`.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use clap_complete::engine::ArgValueCandidates;
use hipvit::exec::select::SelectOptions;
use hipvit::exec::{ExecutorOptions, HipExecutor, constant_bytes};
use hipvit::graph::plan::Plan;
use hipvit::graph::{Float8, Passes, optimize};
use hipvit::inspection::{Inspection, parts};
use hipvit::model::{Info, LoadOptions};
use hipvit::{DType, Degrees, Device, Parallelism, Session, Sparse};
use hipvit_diagnostics::inspection::{InspectionText as _, plot};
use hipvit_diagnostics::table::{Column, Table};
use serde::Serialize;

use super::labels::LabelArgs;
use super::output::Sink;
use super::{ImageSize, Outcome, Usage, choices, completions, lines, load_model, output, record};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Model directory, as timm or Hugging Face transformers write it, or a model of the Hugging Face hub that was downloaded:
    /// ORG/NAME or ORG/NAME@REVISION [default: the embedded TinyViT32]
    #[arg(value_name = "MODEL")]
    positional: Option<PathBuf>,
    /// As MODEL
    #[arg(long, short, value_name = "MODEL", conflicts_with = "positional")]
    model: Option<PathBuf>,
    /// Load the model onto a GPU and show its memory there: hip (the first GPU) or hip:N
    #[arg(long, default_value = "cpu", value_name = "DEVICE", value_parser = choices::device(), add = ArgValueCandidates::new(completions::devices))]
    device: Device,
    /// Compute precision: f32, f16 or bf16; on the CPU f16 is that of the weights alone
    #[arg(long, default_value = "f32", value_name = "DTYPE", value_parser = choices::dtype())]
    dtype: DType,
    /// Batch size of the plan
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = super::positive)]
    batch: usize,
    /// Image size, if not the model's own; position embeddings are interpolated
    #[arg(long, value_name = "N or HxW", value_parser = super::image_size)]
    image_size: Option<ImageSize>,
    #[command(flatten)]
    labels: LabelArgs,
    /// Select kernels as for results that have the same bits at any batch size
    #[arg(long)]
    reproducible: bool,
    /// Show the graph before and after the passes instead of the page
    #[arg(long)]
    graph: bool,
    /// Show the plan's steps, with their cost and their place in memory, instead of the page
    #[arg(long)]
    plan: bool,
    /// Show every parameter and where it is stored instead of the page
    #[arg(long)]
    parameters: bool,
    /// Show the kernels that compute each step on the GPU instead of the page
    #[arg(long)]
    kernels: bool,
    /// With 2:4 sparse weights on a GPU, which of them stay packed: auto, on, builtin, off; see classify
    #[arg(long, default_value = "auto", value_name = "WHEN", value_parser = choices::sparse())]
    sparse: Sparse,
    /// Print everything as one JSON object
    #[arg(long, conflicts_with_all = ["graph", "plan", "parameters", "kernels"])]
    json: bool,
    /// Write a drawing of the arena's use over time
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Also show what each GPU would have, as in `tensor=2`, `pipeline=4` or both; needs no GPU.
    #[arg(long, value_name = "KIND=N")]
    parallel: Option<Parallelism>,
}

#[derive(Serialize)]
struct Report<'a> {
    info: &'a Info,
    /// Where the classes' names come from; of a model without classes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<String>,
    preprocess: String,
    /// The weights' bytes on the CPU, and what linear layers have them in.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_weights: Option<CpuWeights>,
    #[serde(flatten)]
    inspection: Inspection,
}

#[derive(Serialize)]
struct CpuWeights {
    bytes: usize,
    dtype: DType,
    /// The narrower types of a quantised model's weights.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    quantized: Vec<&'static str>,
}

/// Part of an inspection as text, for a width.
type Section = fn(&Inspection, Option<usize>) -> String;

impl Args {
    pub fn run(&self) -> Result<Outcome> {
        let session = Session::builder().device(self.device).dtype(self.dtype);
        let gpu = session.open_device()?;
        if self.kernels && gpu.is_none() {
            return Err(Usage("--kernels needs a GPU: name it by --device hip").into());
        }
        let plot_file = self.plot.as_deref().map(Sink::file).transpose()?;
        let options = LoadOptions {
            image_size: self.image_size.map(|s| s.0),
            // Nothing is run.
            max_flops: Some(u64::MAX),
            ..LoadOptions::default()
        };
        let model = load_model(self.model.as_ref().or(self.positional.as_ref()), &options)?;
        let labels = self.labels.read()?.unwrap_or_else(|| model.labels.clone());
        labels.check(model.labels.len())?;
        let passes = Passes {
            float8: match &gpu {
                Some(gpu) => HipExecutor::float8(gpu, self.dtype),
                None => Float8::default(),
            },
            rounded_rows: gpu.is_some(),
            ..session.passes()
        };
        let (graph, passes) = optimize(model.graph.clone(), &passes)?;
        // The CPU's activations are in f32 in memory.
        let activations = if gpu.is_some() { self.dtype } else { DType::F32 };
        let plan = Plan::new(Arc::new(graph), self.batch, activations)?;
        let cpu_weights = gpu.is_none().then(|| CpuWeights {
            bytes: constant_bytes(plan.graph(), self.dtype),
            dtype: self.dtype,
            quantized: narrow_types(&model.info),
        });
        if let Some(file) = plot_file {
            file.write_whole(plot(&plan).as_bytes())?;
        }
        let mut inspection = Inspection::new(&model.graph, &passes, &plan);
        if let Some(parallelism) = self.parallel {
            let Degrees { tensor, pipeline, .. } = parallelism.least();
            inspection.parts = parts(plan.graph(), tensor, pipeline, self.batch, self.dtype)?;
        }
        if let Some(gpu) = gpu {
            let select = SelectOptions {
                reproducible: self.reproducible,
                sparse: self.sparse,
                ..SelectOptions::default()
            };
            let options = ExecutorOptions {
                select,
                ..ExecutorOptions::new(self.dtype)
            };
            let executor = HipExecutor::new(plan.graph(), &gpu, &options)?;
            let kernels = executor.kernels(&plan)?;
            inspection = inspection
                .with_kernels(kernels, executor.selection().note())
                .on_device(executor.memory(&plan)?);
        }
        let report = Report {
            info: &model.info,
            labels: (!labels.is_empty()).then(|| labels.source().to_string()),
            preprocess: model.preprocess.to_string(),
            cpu_weights,
            inspection,
        };
        let mut out = output::stdout();
        if self.json {
            record::write(&mut out, &report)?;
        } else {
            out.write_all(lines(&self.text(&report, output::width())).as_bytes())?;
        }
        Ok(Outcome::Complete)
    }

    /// The sections that were asked for, or the page.
    fn text(&self, report: &Report<'_>, width: Option<usize>) -> String {
        let Inspection {
            model, batch, dtype, ..
        } = &report.inspection;
        let inspection = &report.inspection;
        let dtypes = with_narrow_types(report.info, *dtype);
        let mut text = format!("{model}, batch {batch}, {dtypes}\n");
        let sections: [(bool, Section); 4] = [
            (self.graph, Inspection::graphs),
            (self.plan, Inspection::plan),
            (self.parameters, Inspection::parameters),
            (self.kernels, Inspection::kernels),
        ];
        if sections.iter().all(|(asked, _)| !asked) {
            text += &format!("\n{}\n", facts(report).text(width));
            text += &inspection.work(width);
            text += &inspection.memory(width);
            text += &inspection.passes(width);
        }
        text += &inspection.division(width);
        for (asked, section) in sections {
            if asked {
                text += &section(inspection, width);
            }
        }
        text
    }
}

/// Returns the types of a quantised model's weights that are narrower than the compute precision.
fn narrow_types(info: &Info) -> Vec<&'static str> {
    let Some(quantization) = &info.quantization else {
        return Vec::new();
    };
    let types = [
        ("int8", quantization.int8 + quantization.int8_weights),
        ("fp8", quantization.float8 + quantization.float8_weights),
        ("bf16", quantization.bf16),
    ];
    let used = types.into_iter().filter(|&(_, weights)| weights > 0);
    used.map(|(name, _)| name).collect()
}

/// Returns the types of quantised weights and the type of the others, such as `int8 and f32`.
fn with_narrow_types(info: &Info, dtype: DType) -> String {
    let dtype = dtype.to_string();
    let mut types = narrow_types(info);
    if !types.contains(&dtype.as_str()) {
        types.push(&dtype);
    }
    types.join(" and ")
}

/// The model's family, sizes and input, one to a line.
fn facts(report: &Report<'_>) -> Table {
    let Report {
        info,
        labels,
        preprocess,
        cpu_weights,
        inspection,
    } = report;
    let [height, width] = info.image_size;
    let [patch_height, patch_width] = info.patch;
    let stored: usize = inspection
        .parameters
        .iter()
        .map(|parameter| parameter.bytes)
        .sum();
    let mut table = Table::new([Column::left(""), Column::left("").wraps(20)]);
    let mut fact = |name: &str, value: String| table.row([name.to_owned(), value]);
    fact(
        "family",
        format!("{}, {} of {}", info.family, info.architecture, info.library),
    );
    let image = if info.any_aspect_ratio {
        format!("any aspect ratio, {preprocess}")
    } else {
        format!("{height}×{width}, {preprocess}")
    };
    fact("image", image);
    fact(
        "tokens",
        format!(
            "{}: {} before the patches, {} patches of {patch_height}×{patch_width}",
            info.tokens,
            info.prefix_tokens,
            info.tokens - info.prefix_tokens
        ),
    );
    if let Some(([rows, columns], [new_rows, new_columns])) = info.interpolated {
        fact(
            "positions",
            format!("interpolated from {rows}×{columns} to {new_rows}×{new_columns}"),
        );
    }
    fact(
        "blocks",
        if info.has_attention() {
            format!("{}, {} channels, {} heads", info.depth, info.dim, info.heads)
        } else {
            format!("{}, {} channels, no attention", info.depth, info.dim)
        },
    );
    fact("classes", info.classes.to_string());
    if let Some(source) = labels {
        fact("labels", source.clone());
    }
    fact(
        "parameters",
        format!(
            "{}, {:.1} MiB after the passes",
            info.parameters,
            stored as f64 / f64::from(1 << 20)
        ),
    );
    if let Some(weights) = cpu_weights {
        let mib = weights.bytes as f64 / f64::from(1 << 20);
        let dtypes = with_narrow_types(info, weights.dtype);
        fact("weights", format!("{mib:.1} MiB on the CPU in {dtypes}"));
    }
    fact(
        "operations",
        format!(
            "{:.3} GFLOP per image",
            inspection.total.flops as f64 * 1e-9 / inspection.batch as f64
        ),
    );
    if let Some(adapter) = &info.adapter {
        fact("adapter", adapter.clone());
    }
    // A vision tower may leave hundreds of tensors unused, for one reason.
    let mut reasons: Vec<(String, Vec<&str>)> = Vec::new();
    if let Some(quantization) = &info.quantization {
        fact("quantised", quantization.to_string());
    }
    if let Some(sparsity) = &info.sparsity {
        fact("sparse", sparsity.to_string());
    }
    for ignored in &info.ignored {
        let reason = ignored.reason.to_string();
        match reasons.iter_mut().find(|(other, _)| *other == reason) {
            Some((_, tensors)) => tensors.push(&ignored.tensor),
            None => reasons.push((reason, vec![&ignored.tensor])),
        }
    }
    for (reason, tensors) in reasons {
        let more = match tensors.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        fact("ignored", format!("{}{more}: {reason}", tensors[0]));
    }
    table
}
