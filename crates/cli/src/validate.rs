//! `hipvit validate`.

use std::ffi::OsStr;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Error, Result};
use clap::builder::{PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser};
use clap_complete::engine::ArgValueCandidates;
use hipvit::image::Limits;
use hipvit::{DType, Device, Session};
use hipvit_diagnostics::certificate::Certificate;
use hipvit_diagnostics::validate::{
    Baseline, Config, LayerReport, ModelOptions, Options, Report as OpsReport, Tier, ops, validate,
    validate_model,
};
use serde::Serialize;

use super::format::{self, Format, Formats, OutputArgs};
use super::output::Sink;
use super::progress::Progress;
use super::{ImageSize, Outcome, Usage, choices, completions, inputs, output, report};

const AFTER_HELP: &str = "\
Without --model, --against or --tier the ops are checked against the f64 reference. With --model or --against a whole model is run on the \
device and as a baseline, on the same images, and compared after every layer; the first layer beyond its tolerance is named. --tier does \
both: unit takes less than 30 s, integration less than 5 min, stress less than 30 min.";

#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Check a whole model layer by layer: its directory, or its name on the Hugging Face hub, ORG/NAME or ORG/NAME@REVISION
    /// [default with --against or --tier: the embedded TinyViT32]
    #[arg(long, short, value_name = "MODEL")]
    model: Option<PathBuf>,
    /// What the model is compared with: cpu (in f32), unoptimized (the same device and dtype without fusion, fused kernels, graphs
    /// and reuse of memory), eager (the same, launched step by step), or another provider, as emu:gfx942, cuda or the path of a library
    /// [default: cpu for a GPU, unoptimized for the CPU]
    #[arg(long, value_name = "BASELINE", value_parser = StringValueParser::new().try_map(|text| text.parse::<Baseline>()))]
    against: Option<Baseline>,
    /// The baseline's files, if not the model's own: another model of the same form, as one before it was quantized
    #[arg(long, value_name = "MODEL")]
    baseline: Option<PathBuf>,
    /// Images or directories of them to compare on [default: the embedded digits, or random structured images]
    #[arg(long, value_name = "IMAGE|DIR", num_args = 1..)]
    images: Vec<PathBuf>,
    /// Image size, if not the model's own
    #[arg(long, value_name = "N or HxW", value_parser = super::image_size)]
    image_size: Option<ImageSize>,
    /// Check ops and a model, as much as the tier has: unit (< 30 s), integration (< 5 min), stress (< 30 min)
    #[arg(long, value_name = "TIER", value_parser = TierParser)]
    tier: Option<Tier>,
    /// Write what was checked, on which device, driver and libraries, the worst errors, and the SHA-256 of the code, as JSON
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// Where to run: auto, cpu, hip (the first GPU) or hip:N
    #[arg(long, default_value = "auto", value_name = "DEVICE", value_parser = choices::device(), add = ArgValueCandidates::new(completions::devices))]
    device: Device,
    /// Compute precisions: f32, f16, bf16 [default: all that the device supports]
    #[arg(long, value_name = "DTYPE,…", value_delimiter = ',', value_parser = choices::dtype())]
    dtype: Vec<DType>,
    /// Sizes to check, by name or as batch × heads × tokens × channels per head (8x12x197x64) [default: all named ones on a
    /// GPU; micro, small, awkward and heads on the CPU]
    #[arg(long, value_name = "CONFIG,…", value_delimiter = ',', value_parser = ConfigParser)]
    config: Vec<Config>,
    /// Ops to check [default: all]
    #[arg(long, value_name = "OP,…", value_delimiter = ',', value_parser = PossibleValuesParser::new(ops()))]
    op: Vec<String>,
    #[command(flatten)]
    output: OutputArgs<Report>,
    /// Number of compute threads on the CPU [default: number of cores]
    #[arg(long, value_name = "N", value_parser = super::positive)]
    threads: Option<usize>,
    /// Check results without timing
    #[arg(long)]
    untimed: bool,
}

#[derive(Clone, Debug)]
struct Report;

impl Formats for Report {
    const FORMATS: &'static [Format] = &[Format::Text, Format::Json, Format::Csv];
}

/// The fields of a row's JSON that are columns of CSV.
const FIELDS: [&str; 25] = [
    "op",
    "form",
    "in_place",
    "config",
    "dtype",
    "operands",
    "result",
    "status",
    "reason",
    "rows_checked",
    "rows",
    "elementwise_error",
    "normwise_error",
    "tolerance",
    "worst.index",
    "worst.got",
    "worst.want",
    "seconds",
    "runs",
    "flops",
    "bytes",
    "bytes_per_second",
    "flops_per_second",
    "limit",
    "of_peak",
];

/// Takes sizes too, beside the names that it offers.
#[derive(Clone, Debug)]
struct ConfigParser;

impl TypedValueParser for ConfigParser {
    type Value = Config;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> std::result::Result<Config, clap::Error> {
        let parser = StringValueParser::new().try_map(|text| text.parse::<Config>());
        parser.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(
            Config::ALL
                .into_iter()
                .map(|config| PossibleValue::new(config.name())),
        ))
    }
}

/// Offers the tiers.
#[derive(Clone, Debug)]
struct TierParser;

impl TypedValueParser for TierParser {
    type Value = Tier;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> std::result::Result<Tier, clap::Error> {
        let names = PossibleValuesParser::new(Tier::ALL.map(Tier::name));
        names
            .try_map(|name| name.parse::<Tier>())
            .parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(
            Tier::ALL.into_iter().map(|tier| PossibleValue::new(tier.name())),
        ))
    }
}

/// A tier's results.
#[derive(Serialize)]
struct Both<'a> {
    tier: Tier,
    seconds: f64,
    limit_seconds: f64,
    ops: Option<&'a OpsReport>,
    models: &'a [LayerReport],
}

impl Args {
    pub fn run(&self) -> Result<Outcome> {
        let start = Instant::now();
        let of_model = self.model.is_some() || self.against.is_some() || self.baseline.is_some();
        if of_model && self.tier.is_none() && !(self.op.is_empty() && self.config.is_empty()) {
            return Err(Usage(
                "--op and --config are of ops: leave out --model and --against, or add --tier",
            )
            .into());
        }
        if !of_model && self.tier.is_none() && !self.images.is_empty() {
            return Err(Usage("--images are for a model: add --model, --against or --tier").into());
        }
        let (format, mut sink) = self.output.open()?;
        let certificate_file = self.certificate.as_deref().map(Sink::file).transpose()?;
        if format == Format::Csv && (of_model || self.tier.is_some()) {
            return Err(Usage("CSV has the rows of ops alone: use --format json").into());
        }
        let ops = if self.tier.is_some() || !of_model {
            Some(self.ops()?)
        } else {
            None
        };
        let models = if self.tier.is_some() || of_model {
            self.models()?
        } else {
            Vec::new()
        };
        match format {
            Format::Json => self.json(&mut sink, ops.as_ref(), &models, start.elapsed())?,
            Format::Csv => format::csv(&mut sink, &FIELDS, ops.iter().flat_map(|ops| &ops.rows))?,
            _ => {
                let width = self.output.width();
                let texts = ops.iter().map(|ops| ops.text(width));
                let texts: Vec<String> = texts
                    .chain(models.iter().map(|model| model.text(width)))
                    .collect();
                sink.write_all(super::lines(&texts.join("\n")).as_bytes())?;
                if let Some(tier) = self.tier {
                    let (taken, limit) = (start.elapsed().as_secs_f64(), tier.limit().as_secs());
                    writeln!(sink, "\n{tier}: {taken:.1} s of {limit}")?;
                }
            }
        }
        // The text says it already, where one sees it.
        if format != Format::Text || self.output.file().is_some() {
            ops.iter()
                .flat_map(OpsReport::complaints)
                .map(Error::msg)
                .for_each(report);
            models
                .iter()
                .filter_map(LayerReport::complaint)
                .map(Error::msg)
                .for_each(report);
        }
        if let Some(tier) = self.tier.filter(|tier| start.elapsed() > tier.limit()) {
            output::note(&format!(
                "this machine takes longer than the {} s of {tier}",
                tier.limit().as_secs()
            ));
        }
        if let Some(file) = certificate_file {
            let certificate = Certificate::new(self.device, self.tier, ops.as_ref(), &models)?;
            let text = serde_json::to_string_pretty(&certificate)? + "\n";
            file.write_whole(text.as_bytes())?;
        }
        sink.finish()?;
        let clean = ops.iter().all(OpsReport::is_clean) && models.iter().all(LayerReport::is_clean);
        Ok(if clean {
            Outcome::Complete
        } else {
            Outcome::SomeFailed
        })
    }

    /// The ops against the reference.
    fn ops(&self) -> Result<OpsReport> {
        let configs = match (self.config.as_slice(), self.tier) {
            ([], Some(tier)) => tier.configs().to_vec(),
            (configs, _) => configs.to_vec(),
        };
        let options = Options {
            device: self.device,
            dtypes: self.dtype.clone(),
            configs,
            ops: self.op.clone(),
            threads: self.threads,
            untimed: self.untimed || self.tier.is_some_and(|tier| !tier.times()),
        };
        let mut progress = None;
        Ok(validate(&options, &mut |total, _| {
            progress
                .get_or_insert_with(|| Progress::counting(total, "cases"))
                .step();
        })?)
    }

    /// A model in each dtype against each baseline.
    fn models(&self) -> Result<Vec<LayerReport>> {
        let on_gpu = Session::builder().device(self.device).open_device()?.is_some();
        let against: Vec<Option<Baseline>> = match (&self.against, self.tier) {
            (Some(baseline), _) => vec![Some(baseline.clone())],
            (None, Some(tier)) => tier.baselines(on_gpu).into_iter().map(Some).collect(),
            (None, None) => vec![None],
        };
        let dtypes = match (self.dtype.as_slice(), self.tier) {
            ([], Some(Tier::Integration | Tier::Stress)) if on_gpu => &[DType::F32, DType::F16, DType::BF16],
            ([], _) => &[DType::F32][..],
            (dtypes, _) => dtypes,
        };
        let mut images = Vec::new();
        for path in &self.images {
            let (files, errors) = inputs::files(path);
            if let Some(error) = errors.into_iter().next() {
                return Err(error);
            }
            for file in files {
                images.push(inputs::source(&file)?.decode(Limits::default())?);
            }
        }
        let mut reports = Vec::new();
        for &dtype in dtypes {
            for against in &against {
                reports.push(validate_model(&ModelOptions {
                    model: self.model.clone(),
                    baseline_model: self.baseline.clone(),
                    image_size: self.image_size.map(|size| size.0),
                    device: self.device,
                    dtype,
                    against: against.clone(),
                    images: images.clone(),
                    threads: self.threads,
                })?);
            }
        }
        Ok(reports)
    }

    fn json(
        &self,
        sink: &mut impl Write,
        ops: Option<&OpsReport>,
        models: &[LayerReport],
        taken: Duration,
    ) -> Result<()> {
        if let Some(tier) = self.tier {
            let both = Both {
                tier,
                seconds: taken.as_secs_f64(),
                limit_seconds: tier.limit().as_secs_f64(),
                ops,
                models,
            };
            writeln!(sink, "{}", serde_json::to_string(&both)?)?;
            return Ok(());
        }
        if let Some(ops) = ops {
            writeln!(sink, "{}", serde_json::to_string(ops)?)?;
        }
        for model in models {
            writeln!(sink, "{}", serde_json::to_string(model)?)?;
        }
        Ok(())
    }
}
