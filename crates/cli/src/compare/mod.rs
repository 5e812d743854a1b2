//! `hipvit compare`: rows of `hipvit bench` and benches/peers side by side.

mod comparison;
mod html;
mod plots;
mod rows;
mod text;

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, anyhow};

use self::comparison::{Comparison, Regression};
use super::errors::report;
use super::format::{Format, Formats, OutputArgs};
use super::outcome::{Outcome, Usage};
use super::output::Sink;

const EXAMPLES: &str = "\
Rows are matched by model, batch size and dtype. Each engine in each file is a column, compared with the first column.

Examples:
  hipvit compare before.jsonl after.jsonl --html report.html
  hipvit compare before.jsonl after.jsonl --fail-above 5";

#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Results of `hipvit bench --json` or benches/peers
    #[arg(required = true, value_name = "FILE.jsonl", help_heading = "Input")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    output: OutputArgs<Tables>,
    /// Write a report with plots
    #[arg(long, value_name = "FILE.html", help_heading = "Output")]
    html: Option<PathBuf>,
    /// Exit with 1 if a row is slower by more than this
    ///
    /// The slowdown must also exceed the noise of both rows. A missing or failed row counts as a regression.
    #[arg(long, value_name = "PERCENT", value_parser = percent, help_heading = "Output")]
    fail_above: Option<f64>,
}

#[derive(Clone, Debug)]
struct Tables;

impl Formats for Tables {
    const FORMATS: &'static [Format] = &[Format::Text, Format::Json, Format::Csv, Format::Md];
}

fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').trim().parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        Ok(_) => Err("must be at least 0".into()),
        Err(e) => Err(e.to_string()),
    }
}

impl Args {
    pub(crate) fn run(&self) -> Result<Outcome> {
        let (format, mut sink) = self.output.open()?;
        let html = self.html.as_deref().map(Sink::file).transpose()?;
        let mut files = Vec::with_capacity(self.files.len());
        for path in &self.files {
            files.push((path.as_path(), rows::read(path)?));
        }
        let comparison = Comparison::new(files);
        let regressions = match self.fail_above.map(|percent| comparison.regressions(percent)) {
            Some(None) => {
                return Err(Usage(
                    "--fail-above needs a second file with rows of the same engine and device as the first file",
                )
                .into());
            }
            Some(found) => found,
            None => None,
        };
        if let Some(html) = html {
            let page = html::page(&comparison, regressions.as_deref());
            html.write_whole(page.as_bytes())?;
        }
        let printed = match format {
            Format::Json => text::json(&comparison, regressions.as_deref())? + "\n",
            Format::Csv => text::csv(&comparison)?,
            Format::Md => text::markdown(&comparison),
            _ => text::table(&comparison, self.output.width()),
        };
        sink.write_all(printed.as_bytes())?;
        sink.finish()?;
        let regressions = regressions.unwrap_or_default();
        for regression in &regressions {
            report(anyhow!(regression.to_string()));
        }
        Ok(if regressions.is_empty() {
            Outcome::Complete
        } else {
            Outcome::SomeFailed
        })
    }
}

impl std::fmt::Display for Regression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            model,
            batch,
            dtype,
            column,
            reason,
            ..
        } = self;
        write!(f, "{model}, batch {batch}, {dtype} in {column}: {reason}")
    }
}
