//! `hipvit validate`.

use std::ffi::OsStr;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Error, Result};
use clap::builder::{PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser};
use hipvit::image::Limits;
use hipvit::run_config::{ImageSize, parsers};
use hipvit::{DType, Device, Session};
use hipvit_diagnostics::certificate::Certificate;
use hipvit_diagnostics::validate::{
    Baseline, Config, LayerReport, ModelOptions, Options, Report as OpsReport, Tier, ops, validate,
    validate_model,
};
use serde::Serialize;

use super::errors::report;
use super::format::{self, Format, Formats, OutputArgs};
use super::model_args::NamedModel;
use super::outcome::{Outcome, Usage};
use super::output::Sink;
use super::progress::Progress;
use super::{inputs, output};

const AFTER_HELP: &str = "\
Default: check the ops against the f64 reference. With MODEL or --against: compare a model with a baseline after every layer, \
and report the first layer beyond its tolerance. With --tier: do both.

Examples:
  hipvit validate --device hip --config small,awkward
  hipvit validate MODEL --device hip --against cpu
  hipvit validate --tier unit --device hip --certificate proof.json";

#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    model: NamedModel,
    /// Baseline of the model [default: cpu; on the CPU unoptimized]
    ///
    /// cpu: the CPU in f32. unoptimized: without fusion, fused kernels, graphs and memory reuse. eager: unoptimized,
    /// step by step. Otherwise a provider: emu:gfx942, cuda, or the path of a library.
    #[arg(long, value_name = "BASELINE", value_parser = StringValueParser::new().try_map(|text| text.parse::<Baseline>()), help_heading = "Model")]
    against: Option<Baseline>,
    /// Model of the baseline, e.g. before quantisation [default: MODEL]
    #[arg(long, value_name = "MODEL", help_heading = "Model")]
    baseline: Option<PathBuf>,
    /// Image size [default: the model's]
    #[arg(long, value_name = "N|HxW", help_heading = "Model")]
    image_size: Option<ImageSize>,
    /// Images to compare on [default: digits or random images]
    #[arg(long, value_name = "IMAGE|DIR", num_args = 1.., help_heading = "Input")]
    images: Vec<PathBuf>,
    #[command(flatten)]
    checks: CheckArgs,
    /// Device to check
    #[arg(long, default_value = "auto", value_name = "DEVICE", value_parser = parsers::device(), help_heading = "Device")]
    device: Device,
    /// Compute precisions [default: all that the device supports]
    #[arg(long, value_name = "DTYPE,…", value_delimiter = ',', value_parser = parsers::dtype(), help_heading = "Device")]
    dtype: Vec<DType>,
    /// Number of compute threads [default: all cores]
    #[arg(long, value_name = "N", value_parser = parsers::positive, help_heading = "Device")]
    threads: Option<usize>,
    #[command(flatten)]
    output: OutputArgs<Report>,
    /// Write the checks and their worst errors as JSON
    ///
    /// The certificate names the device, the driver and the libraries, and contains the SHA-256 of the code.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    certificate: Option<PathBuf>,
}

/// Checks to run.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Checks")]
struct CheckArgs {
    /// Check ops and a model within a time limit
    #[arg(long, value_name = "TIER", value_parser = TierParser)]
    tier: Option<Tier>,
    /// Ops to check [default: all]
    #[arg(long, value_name = "OP,…", value_delimiter = ',', value_parser = PossibleValuesParser::new(ops()), hide_possible_values = true)]
    op: Vec<String>,
    /// Sizes to check, e.g. small or 8x12x197x64 [default: by device]
    ///
    /// A size is a name, or batch × heads × tokens × channels per head. The default on a GPU is all names; on the CPU
    /// it is micro, small, awkward and heads.
    #[arg(long, value_name = "CONFIG,…", value_delimiter = ',', value_parser = ConfigParser)]
    config: Vec<Config>,
    /// Check results without timing
    #[arg(long)]
    untimed: bool,
}

#[derive(Clone, Debug)]
struct Report;

impl Formats for Report {
    const FORMATS: &'static [Format] = &[Format::Text, Format::Json, Format::Csv];
}

/// Fields of a row's JSON that become columns of CSV.
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

/// Parser that accepts any size, and offers the named sizes.
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

/// Parser that accepts and offers the tiers.
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
        Some(Box::new(Tier::ALL.into_iter().map(|tier| {
            let limit = format!("Less than {} s", tier.limit().as_secs());
            PossibleValue::new(tier.name()).help(limit)
        })))
    }
}

/// Results of a tier.
#[derive(Serialize)]
struct Both<'a> {
    tier: Tier,
    seconds: f64,
    limit_seconds: f64,
    ops: Option<&'a OpsReport>,
    models: &'a [LayerReport],
}

impl Args {
    pub(crate) fn run(&self) -> Result<Outcome> {
        let start = Instant::now();
        let of_model = self.model.path().is_some() || self.against.is_some() || self.baseline.is_some();
        if of_model
            && self.checks.tier.is_none()
            && !(self.checks.op.is_empty() && self.checks.config.is_empty())
        {
            return Err(Usage(
                "--op and --config select ops: leave out the model and --against, or add --tier",
            )
            .into());
        }
        if !of_model && self.checks.tier.is_none() && !self.images.is_empty() {
            return Err(Usage("--images needs a model: add --model, --against or --tier").into());
        }
        let (format, mut sink) = self.output.open()?;
        let certificate_file = self.certificate.as_deref().map(Sink::file).transpose()?;
        if format == Format::Csv && (of_model || self.checks.tier.is_some()) {
            return Err(Usage("CSV only supports ops: use --format json").into());
        }
        let ops = if self.checks.tier.is_some() || !of_model {
            Some(self.ops()?)
        } else {
            None
        };
        let models = if self.checks.tier.is_some() || of_model {
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
                sink.write_all(super::escape::lines(&texts.join("\n")).as_bytes())?;
                if let Some(tier) = self.checks.tier {
                    let (taken, limit) = (start.elapsed().as_secs_f64(), tier.limit().as_secs());
                    writeln!(sink, "\n{tier}: {taken:.1} s of {limit}")?;
                }
            }
        }
        // Text output already says this on the terminal.
        if format != Format::Text || self.output.file().is_some() {
            ops.iter()
                .flat_map(OpsReport::failure_messages)
                .map(Error::msg)
                .for_each(report);
            models
                .iter()
                .filter_map(LayerReport::failure_message)
                .map(Error::msg)
                .for_each(report);
        }
        if let Some(tier) = self.checks.tier.filter(|tier| start.elapsed() > tier.limit()) {
            output::note(&format!(
                "this machine needs more than the {} s of {tier}",
                tier.limit().as_secs()
            ));
        }
        if let Some(file) = certificate_file {
            let certificate = Certificate::new(self.device, self.checks.tier, ops.as_ref(), &models)?;
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

    /// Checks the ops against the reference.
    fn ops(&self) -> Result<OpsReport> {
        let configs = match (self.checks.config.as_slice(), self.checks.tier) {
            ([], Some(tier)) => tier.configs().to_vec(),
            (configs, _) => configs.to_vec(),
        };
        let options = Options {
            device: self.device,
            dtypes: self.dtype.clone(),
            configs,
            ops: self.checks.op.clone(),
            threads: self.threads,
            untimed: self.checks.untimed || self.checks.tier.is_some_and(|tier| !tier.times()),
        };
        let mut progress = None;
        Ok(validate(&options, &mut |total, _| {
            progress
                .get_or_insert_with(|| Progress::counting(total, "cases"))
                .step();
        })?)
    }

    /// Checks a model in each dtype against each baseline.
    fn models(&self) -> Result<Vec<LayerReport>> {
        let on_gpu = Session::builder().device(self.device).open_device()?.is_some();
        let against: Vec<Option<Baseline>> = match (&self.against, self.checks.tier) {
            (Some(baseline), _) => vec![Some(baseline.clone())],
            (None, Some(tier)) => tier.baselines(on_gpu).into_iter().map(Some).collect(),
            (None, None) => vec![None],
        };
        let dtypes = match (self.dtype.as_slice(), self.checks.tier) {
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
                    model: self.model.path().cloned(),
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
        if let Some(tier) = self.checks.tier {
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
