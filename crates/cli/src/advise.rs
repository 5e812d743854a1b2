//! `hipvit advise`.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;
use hipvit::RunConfig;
use hipvit::graph::Optimizations;
use hipvit_diagnostics::advise::{Configuration, Options, advise, measure, plot};

use super::escape::lines;
use super::model_args::NamedModel;
use super::outcome::Outcome;
use super::output::Sink;
use super::{output, record};

const AFTER_HELP: &str = "\
Predictions are bounds of the roofline model, not measurements. A step takes the longer of two times, plus its launches: \
its operations at the peak rate, and its bytes at the memory's bandwidth. --measure shows measured next to predicted gains.

Examples:
  hipvit advise MODEL --gpu MI300X --batch 64 --dtype bf16    # works without this GPU
  hipvit advise MODEL --device hip --measure -o roofline.svg
  hipvit advise MODEL --gpu \"EPYC 9654\" --rate 1000";

#[derive(Debug, clap::Args)]
#[command(
    after_long_help = AFTER_HELP,
    mut_arg("device", |arg| arg.conflicts_with("gpu").help("Device of this machine to predict for [default: auto]")),
    mut_arg("batch", |arg| arg.help("Batch size")),
)]
pub(crate) struct Args {
    #[command(flatten)]
    model: NamedModel,
    #[command(flatten)]
    config: RunConfig,
    /// GPU or CPU to predict for, by its datasheet (e.g. MI300X)
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with = "measure",
        help_heading = "Device"
    )]
    gpu: Option<String>,
    #[command(flatten)]
    prediction: PredictionArgs,
    /// Measure the model, and each suggestion that can be tested
    #[arg(long, help_heading = "Output")]
    measure: bool,
    /// Write the roofline with all steps as SVG
    #[arg(long, short, value_name = "FILE.svg", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Print everything as one JSON object
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// Assumptions of a prediction.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Prediction")]
struct PredictionArgs {
    /// Target throughput in images per second
    #[arg(long, value_name = "IMAGES/S", value_parser = positive_number)]
    rate: Option<f64>,
    /// Fraction of the bound that a device reaches [default: 0.4]
    #[arg(long, value_name = "PART", value_parser = positive_number)]
    efficiency: Option<f64>,
    /// Optimisations to leave out
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    without: Vec<Without>,
    /// Launch overhead in microseconds [default: by device]
    ///
    /// The default is 1.5 on a GPU with HIP graphs, 5 on a GPU without them, and 3 on the CPU.
    #[arg(long, value_name = "µS", value_parser = not_negative)]
    launch_us: Option<f64>,
}

/// An optimisation that a prediction can leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Without {
    /// Fusion, packing, folding and pruning passes
    Fusion,
    /// Attention as a single kernel
    FusedAttention,
    /// Bias, activation and residual in the GEMM epilogue
    Epilogues,
    /// Reuse of activation memory
    MemoryReuse,
    /// Replay of captured HIP graphs
    HipGraphs,
}

fn number(text: &str, least: impl Fn(f64) -> bool, what: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && least(value) => Ok(value),
        Ok(_) => Err(format!("must be {what}")),
        Err(error) => Err(error.to_string()),
    }
}

fn positive_number(text: &str) -> Result<f64, String> {
    number(text, |value| value > 0.0, "above 0")
}

fn not_negative(text: &str) -> Result<f64, String> {
    number(text, |value| value >= 0.0, "0 or more")
}

impl Args {
    pub(crate) fn run(&self) -> Result<Outcome> {
        let device = self.config.device.as_ref();
        let device = device.and_then(|devices| devices.set().device());
        let with = |optimization| !self.prediction.without.contains(&optimization);
        let options = Options {
            model: self.model.path().cloned(),
            image_size: self.config.execution.image_size.map(|size| size.0),
            gpu: self.gpu.clone(),
            device: device.unwrap_or_default(),
            threads: self.config.execution.threads,
            batch: self.config.batch,
            configuration: Configuration {
                dtype: self.config.dtype.fixed()?,
                optimizations: Optimizations {
                    fusion: with(Without::Fusion),
                    fused_attention: with(Without::FusedAttention),
                    epilogues: with(Without::Epilogues),
                    memory_reuse: with(Without::MemoryReuse),
                    selection: true,
                },
                hip_graphs: with(Without::HipGraphs),
            },
            rate: self.prediction.rate,
            efficiency: self.prediction.efficiency,
            launch_seconds: self.prediction.launch_us.map(|micro| 1e-6 * micro),
        };
        let plot_file = self.output.as_deref().map(Sink::file).transpose()?;
        let mut advice = advise(&options)?;
        if self.measure {
            measure(&mut advice)?;
        }
        if let Some(file) = plot_file {
            file.write_whole(plot(&advice).as_bytes())?;
        }
        let mut out = output::stdout();
        if self.json {
            record::write(&mut out, &advice)?;
        } else {
            out.write_all(lines(&advice.text(output::width())).as_bytes())?;
        }
        if let Some(file) = &self.output {
            output::wrote(file, "a roofline plot");
        }
        Ok(Outcome::Complete)
    }
}
