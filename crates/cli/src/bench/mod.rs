//! `hipvit bench`: times models without files, for all combinations of models, batch sizes, dtypes and devices.

mod format;
mod ladder;
mod roofline;
mod table;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow};
use hipvit::hip::{Runtime, World};
use hipvit::run_config::Devices;
use hipvit::run_config::parsers::{self, positive};
use hipvit::{DType, Device, DeviceSet, ExecutionConfig, Parallelism};
use hipvit_diagnostics::bench::{Bench, Row, Settings, Spec, ladder};

use super::errors::report;
use super::escape::lines;
use super::format::{self as formats, Format, Formats, OutputArgs};
use super::launcher::DistributedArgs;
use super::model_args::{note_no_gpu, warn_fallback};
use super::outcome::{Outcome, Usage};
use super::output::Sink;
use super::progress::Progress;
use super::record;

const AFTER_HELP: &str = "\
Times are end to end, from pixels in host memory to logits in host memory.

  device ms  GPU time between the copies
  MFU %      fraction of the datasheet's peak, or of a measured GEMM's
  GB/s       bytes that all steps read and write per second
  noise %    half the range of the repetitions' medians
  scaling    speed-up over the first GPU alone

With several GPUs, images/s counts all of them, MFU % and MiB each one.
Columns that do not fit the terminal are left out; --json has all of them.

Examples:
  hipvit bench MODEL --batches 1,8,64 --dtype bf16 --device hip
  hipvit bench MODEL --batches 64 --roofline       # each step and the device's peaks
  hipvit bench MODEL --batches 64 --ladder         # gain of each optimisation
  hipvit bench MODEL --device hip:0,1 --parallel tensor";

const DISTRIBUTED: &str = "When to divide the model among a launcher's processes";

#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_HELP, mut_arg("distributed", |arg| arg.help(DISTRIBUTED).long_help(DISTRIBUTED)))]
pub(crate) struct Args {
    /// Model directories, or ORG/NAME on the hub [default: TinyViT32]
    #[arg(value_name = "MODEL", help_heading = "Model")]
    models: Vec<PathBuf>,
    /// Same as the MODEL arguments; repeatable
    #[arg(
        long = "model",
        short,
        value_name = "MODEL",
        help_heading = "Model",
        hide_short_help = true
    )]
    model: Vec<PathBuf>,
    /// One or several devices [default: auto]
    ///
    /// hip:0,hip:1 measures one GPU after the other. hip:0,1 and hip:all measure the first GPU alone, then all GPUs at
    /// once.
    #[arg(long, value_name = "DEVICE,…", value_parser = parsers::device_sets(), help_heading = "Device")]
    device: Vec<Devices>,
    /// Compute precisions
    #[arg(long, default_value = "f32", value_name = "DTYPE,…", value_delimiter = ',', value_parser = parsers::dtype(), help_heading = "Device")]
    dtype: Vec<DType>,
    /// Batch sizes
    #[arg(long, alias = "batch", default_value = "8", value_name = "N,…", value_delimiter = ',', value_parser = positive, help_heading = "Device")]
    batches: Vec<usize>,
    #[command(flatten)]
    execution: ExecutionConfig,
    #[command(flatten)]
    measurement: MeasurementArgs,
    /// Time each step, and add up the parts of the model
    #[arg(long, help_heading = "Output")]
    breakdown: bool,
    /// Time each step, and compare it with the device's peaks
    #[arg(long, help_heading = "Output")]
    roofline: bool,
    /// Add one optimisation at a time to a naive execution
    #[arg(long, help_heading = "Output")]
    ladder: bool,
    #[command(flatten)]
    output: OutputArgs<Tables>,
    #[command(flatten)]
    distributed: DistributedArgs,
}

/// Number and duration of the measurements.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Measurement")]
struct MeasurementArgs {
    /// Threads that call the model concurrently, per GPU
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = positive)]
    in_flight: usize,
    /// Number of repetitions; each one measures all rows in turn
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = positive)]
    repeat: usize,
    /// Seconds per repetition, which has at least 5 runs
    #[arg(long, default_value_t = 1.0, value_name = "S", value_parser = seconds, conflicts_with = "runs")]
    seconds: f64,
    /// Timed runs per repetition, instead of --seconds
    #[arg(long, value_name = "N", value_parser = positive)]
    runs: Option<usize>,
    /// Minimum number of warm-up runs, for 0.2 s at least
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = positive, hide_short_help = true)]
    warm_up: usize,
    /// Seconds to sample the GPU's power and clocks; 0 to skip
    #[arg(long, default_value_t = 1.0, value_name = "S", value_parser = seconds, hide_short_help = true)]
    power_seconds: f64,
    /// Skip measuring the peaks of the devices
    #[arg(long)]
    no_peaks: bool,
}

#[derive(Clone, Debug)]
struct Tables;

impl Formats for Tables {
    const FORMATS: &'static [Format] = &[Format::Text, Format::Json, Format::Csv, Format::Md];
}

/// Returns the ordinals of a set of several GPUs.
fn ordinals(devices: &[Device]) -> Vec<usize> {
    let ordinal = |device: &Device| match device {
        Device::Hip(ordinal) => Some(*ordinal),
        _ => None,
    };
    match devices {
        [_] => Vec::new(),
        set => set.iter().filter_map(ordinal).collect(),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => Ok(seconds),
        Ok(_) => Err("must be from 0 to a day".into()),
        Err(error) => Err(format!("{error}")),
    }
}

impl Args {
    pub(crate) fn run(&self) -> Result<Outcome> {
        let (format, mut sink) = self.output.open()?;
        let settings = Settings {
            warm_up_runs: self.measurement.warm_up,
            runs: self.measurement.runs,
            time: Duration::from_secs_f64(self.measurement.seconds),
            repeat: self.measurement.repeat,
            power: Duration::from_secs_f64(self.measurement.power_seconds),
            steps: self.breakdown || self.roofline,
            peaks: !self.measurement.no_peaks,
            ..Settings::default()
        };
        let specs = self.specs()?;
        if specs
            .iter()
            .filter_map(|spec| spec.world.as_ref())
            .any(|world| world.rank() > 0)
        {
            Bench::follow(&specs)?;
            return Ok(Outcome::Complete);
        }
        let progress = Progress::counting(specs.len() * self.measurement.repeat, "measurements");
        let rows = Bench::new(settings).run(&specs, &mut |spec| progress.start(&spec.label()));
        drop(progress);
        let mut failed = 0;
        for (spec, row) in specs.iter().zip(&rows) {
            if let Some(error) = &row.error {
                report(anyhow!("{}: {error}", spec.label()));
                failed += 1;
            }
            warn_fallback(row.options.graphs_fallback.as_deref());
        }
        self.print(&rows, format, &mut sink)?;
        sink.finish()?;
        self.output.wrote(&format!("{} rows", rows.len()));
        Ok(Outcome::of(failed))
    }

    /// Returns all combinations. The batch sizes of one model, dtype and device are adjacent.
    fn specs(&self) -> Result<Vec<Spec>> {
        let named = self.models.iter().chain(&self.model).cloned().map(Some);
        let mut models: Vec<Option<PathBuf>> = named.collect();
        if models.is_empty() {
            models.push(None);
        }
        let world = self.world()?;
        let devices = match &world {
            // Rank 0 measures. It has no row for its GPU alone.
            Some(world) => vec![vec![Device::of_process(world)?]],
            None => self.devices()?,
        };
        if self.ladder && world.is_some() {
            return Err(Usage("--ladder needs a single process: leave out the launcher").into());
        }
        if self.ladder && devices.iter().any(|gpus| gpus.len() > 1) {
            return Err(Usage("--ladder needs a single GPU: select it with --device hip:N").into());
        }
        let mut specs = Vec::new();
        for model in &models {
            for gpus in &devices {
                let device = gpus[0];
                for &dtype in &self.dtype {
                    for &batch in &self.batches {
                        let full = Spec {
                            model: model.clone(),
                            batch,
                            dtype,
                            device,
                            gpus: ordinals(gpus),
                            execution: ExecutionConfig {
                                parallel: match gpus.len() {
                                    1 if world.is_none() => Parallelism::default(),
                                    _ => self.execution.parallel,
                                },
                                ..self.execution.clone()
                            },
                            world: world.clone(),
                            meeting_timeout: Some(self.distributed.timeout()),
                            in_flight: self.measurement.in_flight,
                            ..Spec::default()
                        };
                        if self.ladder {
                            specs.extend(ladder(&full, device));
                        } else {
                            specs.push(full);
                        }
                    }
                }
            }
        }
        Ok(specs)
    }

    /// Returns the processes that divide each model with one GPU each, if a launcher started several.
    fn world(&self) -> Result<Option<World>> {
        let sets = self.device.iter().flat_map(Devices::sets);
        if self.execution.parallel.is_data() || sets.into_iter().any(|set| set.device().is_none()) {
            return Ok(None);
        }
        self.distributed.world()
    }

    /// Returns the devices of each row, with `auto` resolved. A set of GPUs follows its first GPU, the baseline.
    fn devices(&self) -> Result<Vec<Vec<Device>>> {
        let given: Vec<DeviceSet> = match self.device.as_slice() {
            [] => vec![Device::Auto.into()],
            sets => sets.iter().flat_map(Devices::sets).cloned().collect(),
        };
        let concrete = |device| match device {
            Device::Auto => match Runtime::open().and_then(|runtime| runtime.device(0)) {
                Ok(gpu) => Device::Hip(gpu.ordinal()),
                Err(reason) => {
                    note_no_gpu(&reason, !self.device.is_empty());
                    Device::Cpu
                }
            },
            device => device,
        };
        let mut rows: Vec<Vec<Device>> = Vec::new();
        for set in given {
            let devices: Vec<Device> = set.resolve()?.into_iter().map(concrete).collect();
            for row in [vec![devices[0]], devices] {
                if !rows.contains(&row) {
                    rows.push(row);
                }
            }
        }
        Ok(rows)
    }

    fn print(&self, rows: &[Row], format: Format, out: &mut Sink) -> Result<()> {
        match format {
            Format::Json => rows.iter().try_for_each(|row| record::write(&mut *out, row))?,
            Format::Csv => formats::csv(out, &format::FIELDS, rows)?,
            Format::Md => write!(out, "{}", format::markdown(rows))?,
            _ => {
                let width = self.output.width();
                if self.ladder {
                    write!(out, "{}", lines(&ladder::text(rows, width)))?;
                } else {
                    write!(out, "{}", lines(&table::text(rows, width)))?;
                }
                for row in rows {
                    if self.breakdown {
                        write!(out, "{}", roofline::parts(row, width))?;
                    }
                    if self.roofline {
                        write!(out, "{}", roofline::steps(row, width))?;
                    }
                }
            }
        }
        Ok(())
    }
}
