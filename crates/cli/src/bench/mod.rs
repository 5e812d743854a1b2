//! `hipvit bench`: times models alone, without files: all combinations of models, batch sizes, dtypes and devices.

mod format;
mod ladder;
mod roofline;
mod table;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow};
use clap_complete::engine::ArgValueCandidates;
use hipvit::hip::{Runtime, World};
use hipvit::{DType, Device, DeviceSet, GraphMode, Parallelism, Sparse};
use hipvit_diagnostics::bench::{Bench, Row, Settings, Spec, ladder};

use super::choices::DeviceSets;
use super::format::{self as formats, Format, Formats, OutputArgs};
use super::launcher::DistributedArgs;
use super::output::Sink;
use super::progress::Progress;
use super::{
    ImageSize, Outcome, ParallelArgs, Usage, choices, completions, lines, note_no_gpu, record, report,
    warn_fallback,
};

const AFTER_HELP: &str = "\
Times are end to end: from the bytes of images in host memory to logits in host memory. device ms is a GPU's time between the \
copies. MFU % is the share of the datasheet's peak in that dtype, of a measured GEMM's where there is no datasheet; of the \
device's time where it is known. GB/s is what all steps read and write, by the same time. MiB is the device memory that the session took. noise % is half the range of the \
repetitions' medians. For several GPUs images/s is that of all, MFU % and MiB are of each, and scaling is how many times as many \
images per second as on the first one alone. What does not fit the terminal is left out; --json has everything.

Of --ladder, activations are the MiB that they are planned to take, and difference is how far the outputs are from the first rung's, \
relative to the largest.";

const DISTRIBUTED: &str = "With --parallel tensor, divide the model among the processes of a launcher (torchrun --no-python, mpirun, \
srun, or whatever sets RANK and WORLD_SIZE), rank 0 measuring: auto where one has started several, off never";

#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP, mut_arg("distributed", |arg| arg.help(DISTRIBUTED)))]
pub struct Args {
    /// Model directories, or models of the Hugging Face hub that were downloaded (ORG/NAME) [default: the embedded TinyViT32]
    #[arg(value_name = "MODEL")]
    models: Vec<PathBuf>,
    /// As MODEL
    #[arg(long = "model", short, value_name = "MODEL")]
    model: Vec<PathBuf>,
    /// Batch sizes
    #[arg(long, default_value = "8", value_name = "N,…", value_delimiter = ',', value_parser = super::positive)]
    batch: Vec<usize>,
    /// Compute precisions: f32, f16, bf16; on the CPU f16 is that of the weights alone
    #[arg(long, default_value = "f32", value_name = "DTYPE,…", value_delimiter = ',', value_parser = choices::dtype())]
    dtype: Vec<DType>,
    /// Where to run: auto (the first GPU, else the CPU), cpu, hip (the first GPU), hip:N; or several GPUs at once: hip:all, hip:0,1.
    /// These are measured after their first one alone. hip:0,hip:1 are one GPU after the other [default: auto]
    #[arg(long, value_name = "DEVICE,…", value_parser = choices::device_sets(), add = ArgValueCandidates::new(completions::device_sets))]
    device: Vec<DeviceSets>,
    #[command(flatten)]
    parallel: ParallelArgs,
    /// On a GPU, keep 2:4 sparse weights packed in f16 and bf16 and skip their zeros: auto (where tune has measured that to be faster),
    /// on (by hipSPARSELt or cuSPARSELt, or without it by the crate's kernel), builtin (by the crate's kernel), off; not with several GPUs
    /// for one model
    #[arg(long, default_value = "auto", value_name = "WHEN", value_parser = choices::sparse())]
    sparse: Sparse,
    /// Replay captured HIP graphs on a GPU: auto does so where possible
    #[arg(long, default_value = "auto", value_name = "WHEN", value_parser = choices::hip_graphs())]
    hip_graphs: GraphMode,
    /// On a GPU, give an image the same bits at any batch size
    #[arg(long)]
    reproducible: bool,
    /// Number of compute threads [default: number of cores]
    #[arg(long, value_name = "N", value_parser = super::positive)]
    threads: Option<usize>,
    /// Image size, if not the model's own; position embeddings are interpolated
    #[arg(long, value_name = "N or HxW", value_parser = super::image_size)]
    image_size: Option<ImageSize>,
    /// Threads that call the model at once, so that copies and computation overlap; for several GPUs as many for each
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = super::positive)]
    in_flight: usize,
    /// The fewest runs before any is timed; they take 0.2 s at least
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = super::positive)]
    warm_up: usize,
    /// Number of timed runs in a repetition, instead of --seconds
    #[arg(long, value_name = "N", value_parser = super::positive)]
    runs: Option<usize>,
    /// Time of a repetition's runs, of which there are 5 at least
    #[arg(long, default_value_t = 1.0, value_name = "S", value_parser = seconds, conflicts_with = "runs")]
    seconds: f64,
    /// Number of repetitions, each of all rows in turn; how far they are apart is the noise
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = super::positive)]
    repeat: usize,
    /// Time of a run that samples power, load and clocks of a GPU; 0 samples nothing
    #[arg(long, default_value_t = 1.0, value_name = "S", value_parser = seconds)]
    power_seconds: f64,
    /// Do not measure the peaks of the devices
    #[arg(long)]
    no_peaks: bool,
    /// Time each step, launched one by one, and sum up the parts of the model
    #[arg(long)]
    breakdown: bool,
    /// Time each step, and show beside it the larger of operations per peak and bytes per bandwidth
    #[arg(long)]
    roofline: bool,
    /// From a naive execution to the full one, one optimisation at a time
    #[arg(long)]
    ladder: bool,
    #[command(flatten)]
    output: OutputArgs<Tables>,
    #[command(flatten)]
    distributed: DistributedArgs,
}

#[derive(Clone, Debug)]
struct Tables;

impl Formats for Tables {
    const FORMATS: &'static [Format] = &[Format::Text, Format::Json, Format::Csv, Format::Md];
}

/// The ordinals of a set of several GPUs.
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
    pub fn run(&self) -> Result<Outcome> {
        let (format, mut sink) = self.output.open()?;
        let settings = Settings {
            warm_up_runs: self.warm_up,
            runs: self.runs,
            time: Duration::from_secs_f64(self.seconds),
            repeat: self.repeat,
            power: Duration::from_secs_f64(self.power_seconds),
            steps: self.breakdown || self.roofline,
            peaks: !self.no_peaks,
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
        let progress = Progress::counting(specs.len() * self.repeat, "measurements");
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

    /// Every combination, the batch sizes of one model, dtype and device beside each other.
    fn specs(&self) -> Result<Vec<Spec>> {
        let named = self.models.iter().chain(&self.model).cloned().map(Some);
        let mut models: Vec<Option<PathBuf>> = named.collect();
        if models.is_empty() {
            models.push(None);
        }
        let world = self.world()?;
        let devices = match &world {
            // Rank 0 measures, and there is no row for its GPU alone.
            Some(world) => vec![vec![Device::of_process(world)?]],
            None => self.devices()?,
        };
        if self.ladder && world.is_some() {
            return Err(Usage("--ladder is measured by one process").into());
        }
        if self.ladder && devices.iter().any(|gpus| gpus.len() > 1) {
            return Err(Usage("--ladder is measured on one GPU: name it by --device hip:N").into());
        }
        let mut specs = Vec::new();
        for model in &models {
            for gpus in &devices {
                let device = gpus[0];
                for &dtype in &self.dtype {
                    for &batch in &self.batch {
                        let full = Spec {
                            model: model.clone(),
                            batch,
                            dtype,
                            device,
                            gpus: ordinals(gpus),
                            parallelism: match gpus.len() {
                                1 if world.is_none() => Parallelism::default(),
                                _ => self.parallel.kind,
                            },
                            world: world.clone(),
                            meeting_timeout: Some(self.distributed.timeout()),
                            threads: self.threads,
                            image_size: self.image_size.map(|size| size.0),
                            hip_graphs: self.hip_graphs,
                            reproducible: self.reproducible,
                            all_reduce: self.parallel.all_reduce,
                            sparse: self.sparse,
                            in_flight: self.in_flight,
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

    /// The processes that divide each model, if a launcher has started several, with a GPU each.
    fn world(&self) -> Result<Option<World>> {
        let sets = self.device.iter().flat_map(|DeviceSets(sets)| sets);
        if self.parallel.kind.is_data() || sets.into_iter().any(|set| set.device().is_none()) {
            return Ok(None);
        }
        self.distributed.world()
    }

    /// The devices of each row, none of them `auto`: before a set the first of its GPUs, which it is compared with.
    fn devices(&self) -> Result<Vec<Vec<Device>>> {
        let given: Vec<DeviceSet> = match self.device.as_slice() {
            [] => vec![Device::Auto.into()],
            sets => sets.iter().flat_map(|DeviceSets(sets)| sets).cloned().collect(),
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
