//! `hipvit advise`.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;
use clap_complete::engine::ArgValueCandidates;
use hipvit::graph::Optimizations;
use hipvit::{DType, Device};
use hipvit_diagnostics::advise::{Configuration, Options, advise, measure, plot};

use super::output::Sink;
use super::{ImageSize, Outcome, choices, completions, lines, output, record};

const AFTER_HELP: &str = "\
Predictions are those of the roofline model: a step takes the longer of its operations at the device's peak rate and its bytes at the \
memory's bandwidth, and its launches are added. They are bounds, not measurements. --gpu takes a datasheet, and needs no such device; \
otherwise a GPU's datasheet is used where there is one, and its peaks or the CPU's are measured. --measure runs the model as it is and \
each suggestion that can be tried, and puts the real gain beside the predicted one.";

#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Model directory, as timm or Hugging Face transformers write it, or a model of the Hugging Face hub that was downloaded:
    /// ORG/NAME or ORG/NAME@REVISION [default: the embedded TinyViT32]
    #[arg(value_name = "MODEL")]
    positional: Option<PathBuf>,
    /// As MODEL
    #[arg(long, short, value_name = "MODEL", conflicts_with = "positional")]
    model: Option<PathBuf>,
    /// Predict for the device that is there: auto, cpu, hip (the first GPU) or hip:N
    #[arg(long, default_value = "auto", value_name = "DEVICE", value_parser = choices::device(), add = ArgValueCandidates::new(completions::devices), conflicts_with = "gpu")]
    device: Device,
    /// Predict for a GPU or CPU by its datasheet, as MI300X, H100, "RX 7900 XTX" or "EPYC 9654"
    #[arg(long, value_name = "NAME", conflicts_with = "measure")]
    gpu: Option<String>,
    /// Batch size
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = super::positive)]
    batch: usize,
    /// Compute precision: f32; of a GPU also f16 or bf16
    #[arg(long, default_value = "f32", value_name = "DTYPE", value_parser = choices::dtype())]
    dtype: DType,
    /// Images per second that are wanted: what they need, and how many of which devices suffice
    #[arg(long, value_name = "IMAGES/S", value_parser = positive_number)]
    rate: Option<f64>,
    /// The part of its bound that a device is taken to reach for --rate [default: 0.4]
    #[arg(long, value_name = "PART", value_parser = positive_number)]
    efficiency: Option<f64>,
    /// Predict without these optimisations
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    without: Vec<Without>,
    /// What a launch costs, in microseconds [default: on a GPU 1.5 in a replayed graph, 5 eagerly; on a CPU 3]
    #[arg(long, value_name = "µS", value_parser = not_negative)]
    launch_us: Option<f64>,
    /// Image size, if not the model's own
    #[arg(long, value_name = "N or HxW", value_parser = super::image_size)]
    image_size: Option<ImageSize>,
    /// Number of compute threads on the CPU [default: number of cores]
    #[arg(long, value_name = "N", value_parser = super::positive)]
    threads: Option<usize>,
    /// Measure the model on the device, as it is and with each suggestion that can be tried
    #[arg(long)]
    measure: bool,
    /// Write the roofline with every step on it as a drawing
    #[arg(long, short, value_name = "FILE.svg")]
    output: Option<PathBuf>,
    /// Print everything as one JSON object
    #[arg(long)]
    json: bool,
}

/// An optimisation that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Without {
    /// The passes that fuse, pack, fold and prune
    Fusion,
    /// Attention as one kernel
    FusedAttention,
    /// Bias, activation and residual within the GEMM
    Epilogues,
    /// Reuse of the activations' memory
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
    pub fn run(&self) -> Result<Outcome> {
        let with = |optimization| !self.without.contains(&optimization);
        let options = Options {
            model: self.model.as_ref().or(self.positional.as_ref()).cloned(),
            image_size: self.image_size.map(|size| size.0),
            gpu: self.gpu.clone(),
            device: self.device,
            threads: self.threads,
            batch: self.batch,
            configuration: Configuration {
                dtype: self.dtype,
                optimizations: Optimizations {
                    fusion: with(Without::Fusion),
                    fused_attention: with(Without::FusedAttention),
                    epilogues: with(Without::Epilogues),
                    memory_reuse: with(Without::MemoryReuse),
                    selection: true,
                },
                hip_graphs: with(Without::HipGraphs),
            },
            rate: self.rate,
            efficiency: self.efficiency,
            launch_seconds: self.launch_us.map(|micro| 1e-6 * micro),
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
