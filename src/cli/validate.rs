//! `hipvit validate`.

use std::ffi::OsStr;
use std::io::Write;

use anyhow::Result;
use clap::builder::{PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser};
use clap_complete::engine::ArgValueCandidates;
use hipvit::validate::{Config, Options, ops, validate};
use hipvit::{DType, Device};

use super::format::{self, Format, Formats, OutputArgs};
use super::progress::Progress;
use super::{Outcome, choices, completions, report};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where to run: auto, cpu, hip (the first GPU) or hip:N
    #[arg(long, default_value = "auto", value_name = "DEVICE", value_parser = choices::device(), add = ArgValueCandidates::new(completions::devices))]
    device: Device,
    /// Compute precisions: f32; on a GPU also f16 and bf16 [default: all that the device supports]
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

impl Args {
    pub fn run(&self) -> Result<Outcome> {
        let (format, mut sink) = self.output.open()?;
        let options = Options {
            device: self.device,
            dtypes: self.dtype.clone(),
            configs: self.config.clone(),
            ops: self.op.clone(),
            threads: self.threads,
            untimed: self.untimed,
        };
        let mut progress = None;
        let found = validate(&options, &mut |total, _| {
            progress
                .get_or_insert_with(|| Progress::counting(total, "cases"))
                .step();
        })?;
        drop(progress);
        match format {
            Format::Json => writeln!(sink, "{}", serde_json::to_string(&found)?)?,
            Format::Csv => format::csv(&mut sink, &FIELDS, &found.rows)?,
            _ => sink.write_all(found.text(self.output.width()).as_bytes())?,
        }
        // The text says it already, where one sees it.
        if format != Format::Text || self.output.file().is_some() {
            found.complaints().for_each(report);
        }
        sink.finish()?;
        Ok(match found.is_clean() {
            true => Outcome::Complete,
            false => Outcome::SomeFailed,
        })
    }
}
