//! `hipvit classify`.

use std::io::Write;

use anstream::eprintln;
use anstyle::{AnsiColor, Style};
use anyhow::{Result, bail};
use hipvit::pipeline::{Pipeline, Source};
use hipvit::{Session, digits};
use serde_json::json;

use super::inputs::Inputs;
use super::progress::Progress;
use super::{ModelArgs, Outcome, report};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    model: ModelArgs,
    /// How many labels to show
    #[arg(long, short = 'k', default_value_t = 5, value_name = "K", value_parser = super::positive)]
    top: usize,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    /// Show where the time went
    #[arg(long)]
    timing: bool,
}

const NAME: Style = Style::new().bold();
const BEST: Style = AnsiColor::Green.on_default();

impl Args {
    pub fn run(&self) -> Result<Outcome> {
        let (sources, unlisted) = self.sources()?;
        unlisted.iter().for_each(report);
        let session = self.model.load()?;
        if session.labels().is_empty() {
            bail!(
                "{}: the model has no head to classify with; try `hipvit embed`",
                session.name()
            );
        }
        let mut out = anstream::AutoStream::auto(std::io::stdout().lock());
        let progress = Progress::images(sources.len());
        let mut failed = unlisted.len();
        let timing = Pipeline::new(&session)
            .limits(self.inputs.limits.limits())
            .run(sources, |item| {
                progress.step();
                match item.result {
                    Ok((outputs, row)) => {
                        progress.print(|| self.print(&mut out, &session, item.name, outputs, row))?;
                    }
                    Err(error) => {
                        failed += 1;
                        progress.report(|| report(error));
                    }
                }
                anyhow::Ok(())
            })?;
        drop(progress);
        if self.timing {
            match self.json {
                true => writeln!(out, "{}", json!({ "timing": timing }))?,
                false => eprintln!("{timing}"),
            }
        }
        out.flush()?;
        Ok(if failed == 0 {
            Outcome::Complete
        } else {
            Outcome::SomeFailed
        })
    }

    fn sources(&self) -> Result<(Vec<Source>, Vec<anyhow::Error>)> {
        if !self.inputs.is_empty() {
            return Ok(self.inputs.sources());
        }
        if self.model.model.is_some() {
            bail!(
                "name an image, a directory, a glob pattern or -: the bundled samples are for the embedded model"
            );
        }
        Ok((digits::samples().collect(), Vec::new()))
    }

    fn print(
        &self,
        out: &mut impl Write,
        session: &Session,
        name: &str,
        outputs: &hipvit::Outputs,
        row: usize,
    ) -> Result<()> {
        // A session with labels has logits.
        let Some(logits) = outputs.logits().map(|l| l.row(row)) else {
            return Ok(());
        };
        let top = session.scores().top(logits, self.top, session.labels());
        if self.json {
            let line = json!({
                "image": name,
                "model": session.name(),
                "device": session.device().to_string(),
                "dtype": session.dtype().to_string(),
                "logits": logits.to_vec(),
                "top": top,
            });
            writeln!(out, "{line}")?;
        } else {
            writeln!(out, "{NAME}{name}{NAME:#}")?;
            for (rank, p) in top.iter().enumerate() {
                let style = if rank == 0 { BEST } else { Style::new() };
                writeln!(
                    out,
                    "  {style}{:>6.2} %  {}{style:#}",
                    100.0 * p.probability,
                    p.label
                )?;
            }
        }
        Ok(())
    }
}
