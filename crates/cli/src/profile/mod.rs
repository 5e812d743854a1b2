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
/// What has the counters.
const SOURCES: &str = "counters come from an AMD GPU, with rocprofiler-sdk of ROCm 7, or from an emulated one: set HIPVIT_PROVIDER=emu:gfx942 (MI300X) or emu:gfx1100 (RX 7900 XTX)";

/// Where the time goes on the way of images through a model, as `classify` runs it: batches overlap, and a GPU replays captured
/// graphs. A run warms up; then batches are measured. The images are repeated to fill the batches.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// As --model; after --model, or with the name of an image file, the first image
    #[arg(value_name = "MODEL")]
    positional: Option<PathBuf>,
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    timeline: timeline::TimelineArgs,
    /// Count what each kernel executes in one batch: wave instructions by unit, memory accesses, LDS bank conflicts. On an AMD GPU
    /// its hardware counters, through rocprofiler-sdk of ROCm 7; on an emulated one (HIPVIT_PROVIDER=emu:gfx942), without any GPU,
    /// hipvit's kernels with active lanes and coalescing
    #[arg(long)]
    counters: bool,
    /// With --counters on an emulated GPU, how many blocks of a kernel's grid run, from which its counts are scaled; GEMMs do not run
    /// then, and values are zeros. all: every block, and GEMMs
    #[arg(long, default_value = "96", value_name = "N|all")]
    blocks: Blocks,
    #[command(flatten)]
    output: OutputArgs<Counts>,
}

const AFTER_HELP: &str = "\
The breakdown is printed, as a table or, with --json, as JSON. -o trace.json, or trace.json.gz, writes the timeline of threads, \
streams, copies and kernels; ui.perfetto.dev and chrome://tracing open it. With --counters, -o is for the counts.

Elapsed time divides the wall time: each instant belongs to one activity, the device's before the host's, so that the parts and \
what is unattributed sum to the total. Busy time is an activity's own, on all threads and streams; activities overlap.

Kernels within the replay of a captured graph cannot be timed: their times are those of a run of the steps one by one, scaled to \
the replay, and are marked as estimated.

Started by rocprofv3 or another profiler, every command gives it the same spans as roctx ranges (NVTX on NVIDIA GPUs). \
HIPVIT_ROCTX=1 does so always, 0 never.";

/// How many blocks of a grid run at most; `None`: all.
#[derive(Clone, Copy, Debug)]
struct Blocks(Option<usize>);

impl FromStr for Blocks {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Self(None)),
            number => super::positive(number).map(|number| Self(Some(number))),
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
        let builder = match self.run.model.device {
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
        let session = self
            .run
            .model
            .clone()
            .or_model(self.positional.as_ref())
            .load_with(builder)?;
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
