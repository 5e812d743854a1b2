//! `hipvit profile`: [`timeline`] shows where time is spent. With --counters, [`counters`] shows the counts of an
//! emulated GPU, and [`hardware`] those of an AMD GPU.

mod counters;
mod hardware;
mod timeline;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context, Result, anyhow, bail};
use hipvit::hip::HardwareCounters;
use hipvit::run_config::parsers::positive;
use hipvit::{Device, GraphMode, RunInput, RunOptions, Session};
use hipvit_diagnostics::bench::DeviceInfo;
use hipvit_files::temporary::Listed;
use serde::Serialize;

use super::escape::lines;
use super::format::{Format, Formats, OutputArgs};
use super::inputs::Inputs;
use super::model_args::RunArgs;
use super::outcome::{Outcome, Usage};
use super::record;
use counters::Counters;

/// Settings of the emulated GPU: the file for its counts, and the number of blocks of a grid that run.
const RECORDS: &str = "HIP_EMU_PROFILE";
const SAMPLE: &str = "HIP_EMU_PROFILE_SAMPLE";
/// Devices that support counters, for error messages.
const SOURCES: &str = "counters come from an AMD GPU, with rocprofiler-sdk of ROCm 7, or from an emulated one: set HIPVIT_PROVIDER=emu:gfx942 (MI300X) or emu:gfx1100 (RX 7900 XTX)";

/// Shows where time is spent between image files and labels.
///
/// Images are repeated to fill the batches. Batches overlap, and a GPU replays captured graphs.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Model, or an image file (always an image with --model)
    #[arg(value_name = "MODEL", help_heading = "Input")]
    positional: Option<PathBuf>,
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    timeline: TimelineArgs,
    /// Count what each kernel executes in one batch
    ///
    /// An AMD GPU needs rocprofiler-sdk of ROCm 7. An emulated GPU (HIPVIT_PROVIDER=emu:gfx942) counts hipvit's own kernels.
    #[arg(long, help_heading = "Measurement")]
    counters: bool,
    /// Blocks of each grid that an emulated GPU runs
    ///
    /// Counts are extrapolated to the whole grid. GEMMs only run with `all`.
    #[arg(
        long,
        default_value = "96",
        value_name = "N|all",
        help_heading = "Measurement",
        hide_short_help = true
    )]
    blocks: Blocks,
    #[command(flatten)]
    output: OutputArgs<Counts>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Measurement")]
struct TimelineArgs {
    /// Number of batches to measure
    #[arg(long, alias = "batches", default_value_t = 10, value_name = "N", value_parser = positive)]
    runs: usize,
    /// Number of warm-up batches [default: 1, more on a GPU]
    ///
    /// The default on a GPU is 4 per batch in flight, so that graphs are captured.
    #[arg(long, value_name = "N")]
    warm_up: Option<usize>,
    /// Maximum batches in flight [default: 2, on a GPU 3]
    #[arg(long, value_name = "N", value_parser = positive)]
    in_flight: Option<usize>,
    /// Maximum number of tokens of a text, for a model of texts [default: the model's]
    #[arg(long, value_name = "N", value_parser = positive)]
    max_tokens: Option<usize>,
}

const AFTER_HELP: &str = "\
Elapsed times add up to the wall time: each instant counts for one activity. Busy time is the sum over all threads and streams.
Kernel times within a replayed graph are estimates from a run of single steps.

Examples:
  hipvit profile MODEL photos/ --device hip -o trace.json    # a timeline for ui.perfetto.dev; or trace.json.gz
  hipvit profile MODEL photos/ --json                        # the breakdown as JSON
  HIPVIT_PROVIDER=emu:gfx942 hipvit profile --counters MODEL --dtype f16";

/// Maximum number of blocks of a grid that run; `None` for all.
#[derive(Clone, Copy, Debug)]
struct Blocks(Option<usize>);

impl FromStr for Blocks {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Self(None)),
            number => positive(number).map(|number| Self(Some(number))),
        }
    }
}

#[derive(Clone, Debug)]
struct Counts;

impl Formats for Counts {
    const FORMATS: &'static [Format] = &[Format::Text, Format::Json];
}

#[derive(Serialize)]
struct Report<'a> {
    model: &'a str,
    batch: usize,
    dtype: String,
    device: &'a DeviceInfo,
    /// Kernels in the order of their first launches.
    kernels: Vec<Counters>,
}

impl Args {
    pub(crate) fn run(&self) -> Result<Outcome> {
        if !self.counters {
            return self.show_timeline();
        }
        if !self.inputs.is_empty() || self.run.model.model.is_some() && self.positional.is_some() {
            return Err(Usage("--counters uses a grey image: leave out the images").into());
        }
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let sample = self.blocks.0.map(|blocks| blocks.to_string());
        match set(RECORDS) {
            // rocprofiler-sdk must start before the first HIP call.
            None => match HardwareCounters::open() {
                Ok(Some(counters)) => self.count_on_hardware(counters),
                // The emulated GPU reads its settings when it is opened, so a child process counts.
                Ok(None) => self.run_counted(sample.as_deref()),
                Err(error) => bail!("{error}; {SOURCES}"),
            },
            Some(_) if set(SAMPLE) != sample.as_deref().map(Into::into) => {
                let wanted = sample.map_or_else(
                    || format!("unset {SAMPLE}"),
                    |sample| format!("set {SAMPLE}={sample}"),
                );
                let text = format!("{RECORDS} is set: {wanted} too, as --blocks says, or unset both");
                Err(Usage(text).into())
            }
            Some(records) => self.count(Path::new(&records)),
        }
    }

    /// Runs this command in a child process whose emulated GPU counts.
    fn run_counted(&self, sample: Option<&str>) -> Result<Outcome> {
        self.device("emulated")?;
        let folder = tempfile::tempdir().context("a folder for the emulated GPU's records")?;
        let _listed = Listed::new(folder.path());
        let program = std::env::current_exe().context("the path of this program")?;
        let mut command = Command::new(program);
        command
            .args(std::env::args_os().skip(1))
            .env(RECORDS, folder.path().join("records.jsonl"));
        match sample {
            Some(sample) => command.env(SAMPLE, sample),
            None => command.env_remove(SAMPLE),
        };
        let status = command
            .status()
            .context("cannot run the model in a child process")?;
        match status.code() {
            Some(0) => Ok(Outcome::Complete),
            // The child has printed the reason.
            Some(_) => Ok(Outcome::SomeFailed),
            None => bail!("the process that ran the model failed: {status}"),
        }
    }

    /// Returns the GPU, which must be of the given kind.
    fn device(&self, kind: &str) -> Result<DeviceInfo> {
        let builder = match self.run.model.config.device {
            Some(_) => self.run.model.builder(),
            // Ask for a GPU, so that the error says why there is none.
            None => self.run.model.builder().device(Device::Hip(0)),
        };
        let device = builder
            .open_device()
            .map_err(|error| anyhow!("{error}; {SOURCES}"))?;
        let info = device.as_ref().map_or_else(DeviceInfo::cpu, DeviceInfo::gpu);
        if info.kind != kind {
            bail!("{}: this device has no counters; {SOURCES}", info.name);
        }
        Ok(info)
    }

    /// Returns a session on one GPU, and a batch of grey images.
    fn session(&self) -> Result<(Session, Vec<u8>)> {
        // Capturing a graph checks it against an eager run, which would count twice.
        let builder = self.run.model.builder().hip_graphs(GraphMode::Off);
        let mut model = self.run.model.clone();
        model.model = model.model.or_else(|| self.positional.clone());
        let session = model.load_with(builder)?;
        let degrees = session.degrees();
        if degrees.data * degrees.shards() > 1 {
            bail!("device: --counters needs a single GPU: select it with --device hip:N");
        }
        let (height, width) = session.preprocess().output_size();
        let grey = vec![0x80; session.batch() * height * width * 3];
        Ok((session, grey))
    }

    fn count_on_hardware(&self, mut counters: HardwareCounters) -> Result<Outcome> {
        let device = self.device("rocm")?;
        let (format, mut sink) = self.output.open()?;
        let (session, grey) = self.session()?;
        let run = || -> Result<()> {
            session.run_with(RunInput::Pixels(&grey), RunOptions::new())?;
            Ok(())
        };
        // The first run can launch more kernels, to select the fastest.
        run()?;
        let counted = counters.measure(&hardware::wanted(), run)?;
        let (model, batch) = (session.name(), session.batch());
        let dtype = session.dtype().to_string();
        match format {
            Format::Json => {
                let report = hardware::Report::new(model, batch, dtype, &device, &counted);
                record::write(&mut sink, &report)?;
            }
            _ => {
                let tables = hardware::text(&counted, self.output.width());
                let text = format!(
                    "{model}, batch {batch}, {dtype}, {} ({})\n\n{tables}",
                    device.name, device.arch
                );
                sink.write_all(lines(&text).as_bytes())?;
            }
        }
        sink.finish()?;
        Ok(Outcome::Complete)
    }

    fn count(&self, records: &Path) -> Result<Outcome> {
        let device = self.device("emulated")?;
        let (format, mut sink) = self.output.open()?;
        let (session, grey) = self.session()?;
        session.run_with(RunInput::Pixels(&grey), RunOptions::new())?;
        let counted = fs::read_to_string(records).map_err(super::outcome::refused(records))?;
        let kernels = counters::sum_by_kernel(&counted)
            .map_err(|(line, reason)| anyhow!("{}, line {line}: {reason}", records.display()))?;
        let report = Report {
            model: session.name(),
            batch: session.batch(),
            dtype: session.dtype().to_string(),
            device: &device,
            kernels,
        };
        match format {
            Format::Json => record::write(&mut sink, &report)?,
            _ => sink.write_all(lines(&self.text(&report)).as_bytes())?,
        }
        sink.finish()?;
        Ok(Outcome::Complete)
    }

    fn text(&self, report: &Report<'_>) -> String {
        let Report {
            model,
            batch,
            dtype,
            device,
            kernels,
        } = report;
        let mut text = format!(
            "{model}, batch {batch}, {dtype}, {} ({}, emulated)\n\n{}",
            device.name,
            device.arch,
            counters::format_tables(kernels, self.output.width())
        );
        let blocks: u64 = kernels.iter().map(|kernel| kernel.blocks).sum();
        let ran: u64 = kernels.iter().map(|kernel| kernel.sampled_blocks).sum();
        text += "\nLibrary kernels, such as GEMMs, are not counted.";
        if ran < blocks {
            text += &format!(" Counts are extrapolated from {ran} of {blocks} blocks.");
        }
        text.push('\n');
        text
    }
}
