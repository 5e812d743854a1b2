//! `hipvit inspect`.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use hipvit::exec::{ExecutorOptions, HipExecutor, constant_bytes};
use hipvit::graph::plan::Plan;
use hipvit::graph::{Float8, Graph, PassReport, Passes, optimize};
use hipvit::inspection::{Inspection, parts};
use hipvit::model::{Checkpoint, Info, LoadOptions, OnnxInfo};
use hipvit::{DType, Degrees, Device, RunConfig, Session};
use hipvit_diagnostics::inspection::{InspectionText as _, plot};
use hipvit_diagnostics::table::{Column, Table};
use hipvit_train::{AdamWOptions, Moments, OptimizerOptions, TensorRule, TrainOptions, step_graph};
use serde::Serialize;

use super::escape::lines;
use super::labels::LabelArgs;
use super::model_args::{NamedModel, load_model};
use super::outcome::{Outcome, Usage};
use super::output::Sink;
use super::{output, record};

const EXAMPLES: &str = "\
Examples:
  hipvit inspect MODEL
  hipvit inspect MODEL --graph                              # or --plan, --parameters, --plot arena.svg
  hipvit inspect MODEL --device hip --dtype f16 --kernels
  hipvit inspect MODEL --training --plan                    # a step of training: gradients, updates, states
  hipvit inspect MODEL --parallel tensor=2,pipeline=2       # share of each GPU; works without GPUs";

#[derive(Debug, clap::Args)]
#[command(
    after_long_help = EXAMPLES,
    mut_arg("device", |arg| arg.default_value("cpu").help("GPU to load the model onto")),
    mut_arg("batch", |arg| arg.default_value("1").help("Batch size of the plan")),
)]
pub(crate) struct Args {
    #[command(flatten)]
    model: NamedModel,
    #[command(flatten)]
    config: RunConfig,
    #[command(flatten)]
    labels: LabelArgs,
    /// Inspect a step of training by AdamW instead
    #[arg(long, help_heading = "Model", conflicts_with = "parallel")]
    training: bool,
    /// Form of AdamW's moments in a step: f32, bf16 or int8
    #[arg(
        long,
        value_name = "FORM",
        default_value = "f32",
        requires = "training",
        hide_short_help = true,
        help_heading = "Model"
    )]
    states: Moments,
    /// Show the graph before and after optimisation
    #[arg(long, help_heading = "Output")]
    graph: bool,
    /// Show the plan's steps with their cost and memory
    #[arg(long, help_heading = "Output")]
    plan: bool,
    /// Show every parameter and where it is stored
    #[arg(long, help_heading = "Output")]
    parameters: bool,
    /// Show the kernels of each step on the GPU
    #[arg(long, help_heading = "Output")]
    kernels: bool,
    /// Print everything as one JSON object
    #[arg(long, conflicts_with_all = ["graph", "plan", "parameters", "kernels"], help_heading = "Output")]
    json: bool,
    /// Write a drawing of the memory arena over time
    #[arg(long, value_name = "FILE.svg", help_heading = "Output")]
    plot: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report<'a> {
    info: &'a Info,
    /// Source of the class names; `None` for a model without classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<String>,
    preprocess: String,
    /// Size of the weights on the CPU, and the dtype of the linear layers' weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_weights: Option<CpuWeights>,
    #[serde(flatten)]
    inspection: Inspection,
}

#[derive(Serialize)]
struct CpuWeights {
    bytes: usize,
    dtype: DType,
    /// Narrower dtypes of a quantised model's weights.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    quantized: Vec<&'static str>,
}

/// Formats a part of an inspection as text of the given width.
type Section = fn(&Inspection, Option<usize>) -> String;

impl Args {
    pub(crate) fn run(&self) -> Result<Outcome> {
        let RunConfig {
            device,
            dtype,
            batch,
            execution,
            calibrate: _,
        } = &self.config;
        let (dtype, batch) = (dtype.fixed()?, *batch);
        let device = device.as_ref().and_then(|devices| devices.set().device());
        let session = Session::builder()
            .device(device.unwrap_or(Device::Cpu))
            .dtype(dtype);
        let gpu = session.open_device()?;
        if self.kernels && gpu.is_none() {
            return Err(Usage("--kernels needs a GPU: add --device hip").into());
        }
        let plot_file = self.plot.as_deref().map(Sink::file).transpose()?;
        let options = LoadOptions {
            image_size: execution.image_size.map(|size| size.0),
            // The model is not run.
            max_flops: Some(u64::MAX),
            extents: execution.onnx.extents(),
            image_rule: execution.onnx.image_rule(),
            ..LoadOptions::default()
        };
        let model = load_model(self.model.path(), &options)?;
        let labels = self.labels.read()?.unwrap_or_else(|| model.labels.clone());
        labels.check(model.labels.len())?;
        let passes = Passes {
            float8: match &gpu {
                Some(gpu) => HipExecutor::float8(gpu, dtype),
                None => Float8::default(),
            },
            rounded_rows: gpu.is_some(),
            ..session.passes()
        };
        // On the CPU, activations are stored as f32.
        let activations = if gpu.is_some() { dtype } else { DType::F32 };
        let (graph, passes) = if self.training {
            self.training_step(activations)?
        } else {
            optimize(model.graph.clone(), &passes)?
        };
        let plan = Plan::new(Arc::new(graph), batch, activations)?;
        let cpu_weights = (gpu.is_none() && !self.training).then(|| CpuWeights {
            bytes: constant_bytes(plan.graph(), dtype),
            dtype,
            quantized: narrow_types(&model.info),
        });
        if let Some(file) = plot_file {
            file.write_whole(plot(&plan).as_bytes())?;
        }
        let mut inspection = Inspection::new(&model.graph, &passes, &plan);
        // The graph of an ONNX file often has a name such as `main_graph`.
        inspection.model.clone_from(&model.name);
        if !execution.parallel.is_data() {
            let Degrees { tensor, pipeline, .. } = execution.parallel.least();
            inspection.parts = parts(plan.graph(), tensor, pipeline, batch, dtype)?;
        }
        if let Some(gpu) = gpu {
            let options = ExecutorOptions {
                select: execution.select(),
                ..ExecutorOptions::new(dtype)
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

    /// Returns the graph of a training step.
    fn training_step(&self, dtype: DType) -> Result<(Graph, Vec<PassReport>)> {
        let checkpoint = Checkpoint::open(self.model.path().map(PathBuf::as_path))?;
        let options = TrainOptions {
            dtype,
            clip_norm: Some(1.0),
            optimizer: OptimizerOptions::AdamW(AdamWOptions {
                moments: self.states,
                ..AdamWOptions::default()
            }),
            ..TrainOptions::default()
        };
        Ok(step_graph(&checkpoint, &options, &|_| TensorRule::default())?)
    }

    /// Returns the requested sections, or the summary if none was requested.
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

/// Returns the dtypes of a quantised model's weights that are narrower than the compute precision.
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

/// Returns the dtypes of all weights, such as `int8 and f32`.
fn with_narrow_types(info: &Info, dtype: DType) -> String {
    let dtype = dtype.to_string();
    let mut types = narrow_types(info);
    if !types.contains(&dtype.as_str()) {
        types.push(&dtype);
    }
    types.join(" and ")
}

/// Returns the inputs and outputs of an ONNX model.
fn onnx_facts(fact: &mut impl FnMut(&str, String), onnx: &OnnxInfo, report: &Report<'_>) {
    fact("file", format!("ONNX, opset {}, {}", onnx.opset, onnx.producer));
    for input in &onnx.inputs {
        fact("input", input.to_string());
    }
    for output in &onnx.outputs {
        fact("output", output.to_string());
    }
    let [height, width] = report.info.image_size;
    let images = match &onnx.no_images {
        None => format!("{height}×{width}, {}", report.preprocess),
        Some(reason) => format!("not taken: {reason}"),
    };
    fact("images", images);
    let operators = onnx.operators.iter();
    let operators: Vec<String> = operators.map(|(name, count)| format!("{count} {name}")).collect();
    fact("operators", operators.join(", "));
}

/// Returns the family and sizes of a Vision Transformer.
fn vit_facts(fact: &mut impl FnMut(&str, String), report: &Report<'_>) {
    let Report { info, preprocess, .. } = report;
    let [height, width] = info.image_size;
    let [patch_height, patch_width] = info.patch;
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
    let tokens = if let Some([rows, columns]) = info.merged_grid {
        format!(
            "{}: {rows}×{columns}, merged from patches of {patch_height}×{patch_width}",
            info.tokens
        )
    } else {
        format!(
            "{}: {} before the patches, {} patches of {patch_height}×{patch_width}",
            info.tokens,
            info.prefix_tokens,
            info.tokens - info.prefix_tokens
        )
    };
    fact("tokens", tokens);
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
}

/// Returns the model's family, sizes and input, one per line.
fn facts(report: &Report<'_>) -> Table {
    let Report {
        info,
        labels,
        cpu_weights,
        inspection,
        ..
    } = report;
    let stored: usize = inspection
        .parameters
        .iter()
        .map(|parameter| parameter.bytes)
        .sum();
    let mut table = Table::new([Column::left(""), Column::left("").wraps(20)]);
    let mut fact = |name: &str, value: String| {
        table.row([name.to_owned(), value]);
    };
    match &info.onnx {
        Some(onnx) => onnx_facts(&mut fact, onnx, report),
        None => vit_facts(&mut fact, report),
    }
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
    // A vision tower can leave hundreds of tensors unused for the same reason.
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
