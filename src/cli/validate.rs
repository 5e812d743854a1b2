//! `hipvit validate`.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::builder::{PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser};
use hipvit::validate::{Config, Options, ops, validate};
use hipvit::{DType, Device};

use super::progress::Progress;
use super::{Outcome, choices, output};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where to run: auto, cpu, hip (the first GPU) or hip:N
    #[arg(long, default_value = "auto", value_name = "DEVICE", value_parser = choices::device())]
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
    /// Write one JSON object to a file; - prints it instead of the table
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,
    /// Number of compute threads on the CPU [default: number of cores]
    #[arg(long, value_name = "N", value_parser = super::positive)]
    threads: Option<usize>,
    /// Check results without timing
    #[arg(long)]
    untimed: bool,
}

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
        let options = Options {
            device: self.device,
            dtypes: self.dtype.clone(),
            configs: self.config.clone(),
            ops: self.op.clone(),
            threads: self.threads,
            untimed: self.untimed,
        };
        let mut progress = None;
        let report = validate(&options, &mut |total, _| {
            progress
                .get_or_insert_with(|| Progress::counting(total, "cases"))
                .step();
        })?;
        drop(progress);
        let json = serde_json::to_string(&report)? + "\n";
        match &self.json {
            Some(path) if path == Path::new("-") => output::stdout().write_all(json.as_bytes())?,
            path => {
                if let Some(path) = path {
                    output::write(path, json.as_bytes())?;
                }
                write!(output::stdout(), "{report}")?;
            }
        }
        Ok(match report.is_clean() {
            true => Outcome::Complete,
            false => Outcome::SomeFailed,
        })
    }
}
