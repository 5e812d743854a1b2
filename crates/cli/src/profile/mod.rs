//! `hipvit profile`: [`timeline`] shows where the time goes. With --counters, what a model's kernels execute: [`counters`] reads and
//! shows the emulated GPU's counts, [`hardware`] those of an AMD GPU.

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

use super::format::{Format, Formats, OutputArgs};
use super::inputs::Inputs;
use super::{Outcome, RunArgs, Usage, lines, record};
use counters::Counters;

/// The emulated GPU's settings: the file that it writes its counts to, and how many blocks of a grid run.
const RECORDS: &str = "HIP_EMU_PROFILE";
const SAMPLE: &str = "HIP_EMU_PROFILE_SAMPLE";
/// Devices that have counters, for errors.
const SOURCES: &str = "counters come from an AMD GPU, with rocprofiler-sdk of ROCm 7, or from an emulated one: set HIPVIT_PROVIDER=emu:gfx942 (MI300X) or emu:gfx1100 (RX 7900 XTX)";

/// Shows where the time goes from image files to labels.
///
/// The images are repeated to fill the batches. Batches overlap, and a GPU replays captured graphs.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct Args {
    /// Model; after --model, or with an image's name, an image
    #[arg(value_name = "MODEL", help_heading = "Input")]
    positional: Option<PathBuf>,
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    timeline: timeline::TimelineArgs,
    /// Count what each kernel executes in one batch
    ///
    /// An AMD GPU needs rocprofiler-sdk of ROCm 7. An emulated GPU (HIPVIT_PROVIDER=emu:gfx942) counts hipvit's own kernels.
    #[arg(long, help_heading = "Measurement")]
    counters: bool,
    /// Blocks of each grid that an emulated GPU runs to count
    ///
    /// Counts are scaled to the whole grid. GEMMs run with `all` only.
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

const AFTER_HELP: &str = "\
Elapsed time divides the wall time: each instant belongs to one activity. Busy time is an activity's own, on all threads and streams.
The times of kernels in a replayed graph are estimated from a run of single steps.

Examples:
  hipvit profile MODEL photos/ --device hip -o trace.json    # a timeline for ui.perfetto.dev; or trace.json.gz
  hipvit profile MODEL photos/ --json                        # the breakdown as JSON
  HIPVIT_PROVIDER=emu:gfx942 hipvit profile --counters MODEL --dtype f16";

/// How many blocks of a grid run at most; `None`: all.
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
    /// In the order of their first launches.
    kernels: Vec<Counters>,
}

impl Args {
    pub fn run(&self) -> Result<Outcome> {
        if !self.counters {
            return self.show_timeline();
        }
        if !self.inputs.is_empty() || self.run.model.model.is_some() && self.positional.is_some() {
            return Err(Usage("--counters counts on a grey image: leave out the images").into());
        }
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let sample = self.blocks.0.map(|blocks| blocks.to_string());
        match set(RECORDS) {
            // rocprofiler-sdk comes before the first call of the HIP runtime.
            None => match HardwareCounters::open() {
                Ok(Some(counters)) => self.count_on_hardware(counters),
                // The emulated GPU reads its settings when it is opened: another process has them from its start.
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

    /// Runs this command in a process whose emulated GPU counts.
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
            .context("running the model in a process of its own")?;
        match status.code() {
            Some(0) => Ok(Outcome::Complete),
            // It has said why.
            Some(_) => Ok(Outcome::SomeFailed),
            None => bail!("the process that ran the model has ended: {status}"),
        }
    }

    /// The GPU, which must be of this kind.
    fn device(&self, kind: &str) -> Result<DeviceInfo> {
        let builder = match self.run.model.config.device {
            Some(_) => self.run.model.builder(),
            // Not the CPU where there is none, so that the error says why.
            None => self.run.model.builder().device(Device::Hip(0)),
        };
        let device = builder
            .open_device()
            .map_err(|error| anyhow!("{error}; {SOURCES}"))?;
        let info = device.as_ref().map_or_else(DeviceInfo::cpu, DeviceInfo::gpu);
        if info.kind != kind {
            bail!("{}: does not count what kernels execute; {SOURCES}", info.name);
        }
        Ok(info)
    }

    /// The model on one GPU, and a batch of grey images.
    fn session(&self) -> Result<(Session, Vec<u8>)> {
        // A graph is checked against the eager run, which would count twice.
        let builder = self.run.model.builder().hip_graphs(GraphMode::Off);
        let mut model = self.run.model.clone();
        model.model = model.model.or_else(|| self.positional.clone());
        let session = model.load_with(builder)?;
        let degrees = session.degrees();
        if degrees.data * degrees.shards() > 1 {
            bail!("device: profile counts on one GPU: name it by --device hip:N");
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
        // The first run may launch more, to choose among kernels.
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
        let counted = fs::read_to_string(records).map_err(super::refused(records))?;
        let kernels = counters::sum(&counted)
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
            counters::text(kernels, self.output.width())
        );
        let blocks: u64 = kernels.iter().map(|kernel| kernel.blocks).sum();
        let ran: u64 = kernels.iter().map(|kernel| kernel.sampled_blocks).sum();
        text += "\nKernels of libraries, such as GEMMs, are not counted.";
        if ran < blocks {
            text += &format!(" Counts are scaled from {ran} of {blocks} blocks.");
        }
        text.push('\n');
        text
    }
}
