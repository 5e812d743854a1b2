//! `hipvit classify`.

use std::io::Write;
use std::time::{Duration, Instant};

use anstyle::{AnsiColor, Style};
use anyhow::{Result, bail};
use hipvit::pipeline::Item;
use hipvit::timing::Phase;
use hipvit::{Prediction, Session, digits};
use serde::Serialize;
use serde_json::json;

use super::inputs::{Inputs, Listing};
use super::labels::LabelArgs;
use super::record::{self, Record};
use super::{Outcome, RunArgs, Usage, one_line, output, report_fallback};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    model: RunArgs,
    #[command(flatten)]
    labels: LabelArgs,
    /// Number of labels to show
    #[arg(long, short = 'k', default_value_t = 5, value_name = "K", value_parser = super::positive)]
    top: usize,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    /// Print the time of each phase, with --json as the last line. Phases overlap: their sum may exceed the wall time
    #[arg(long)]
    timing: bool,
}

const NAME: Style = Style::new().bold();
const BEST: Style = AnsiColor::Green.on_default();

#[derive(Serialize)]
struct Scored {
    logits: Vec<f32>,
    top: Vec<Prediction>,
}

impl Args {
    pub fn run(&self) -> Result<Outcome> {
        let images = self.images()?;
        let session = self.model.load_with(self.labels.apply(self.model.builder())?)?;
        if session.labels().is_empty() {
            bail!(
                "{}: model has no classification head; use `hipvit embed`",
                session.name()
            );
        }
        let mut out = output::stdout();
        let limits = self.inputs.limits.limits();
        let mut softmax = Duration::ZERO;
        let (mut timing, outcome) = images.run(&session, limits, self.timing, |item| {
            self.print(&mut out, &session, item, &mut softmax)
        })?;
        if self.timing {
            timing.add(Phase::Softmax, softmax);
            let hip_graphs = session.hip_graphs();
            match self.json {
                true => record::write(&mut out, &json!({ "timing": timing, "hip_graphs": &hip_graphs }))?,
                false => output::warn(&timing),
            }
            if let Some(hip_graphs) = hip_graphs.filter(|_| !self.json) {
                output::warn(hip_graphs);
            }
        }
        report_fallback(&session);
        out.flush()?;
        Ok(outcome)
    }

    fn images(&self) -> Result<Listing> {
        if !self.inputs.is_empty() {
            return self.inputs.list();
        }
        if !self.model.is_embedded() {
            return Err(Usage(
                "an image, a directory, a glob pattern or - is required: the bundled samples are for the embedded model",
            )
            .into());
        }
        Ok(digits::samples().collect())
    }

    fn print(
        &self,
        out: &mut impl Write,
        session: &Session,
        item: &Item,
        softmax: &mut Duration,
    ) -> Result<()> {
        let start = Instant::now();
        let top = item.top(self.top);
        *softmax += start.elapsed();
        let name = item.name();
        if self.json {
            // A session with labels has logits.
            let logits = item.logits().map(|logits| logits.to_vec()).unwrap_or_default();
            return record::write(out, &Record::new(session, name, Scored { logits, top }));
        }
        writeln!(out, "{NAME}{}{NAME:#}", one_line(name))?;
        for (rank, p) in top.iter().enumerate() {
            let style = if rank == 0 { BEST } else { Style::new() };
            let percent = 100.0 * p.probability;
            let label = one_line(&p.label);
            writeln!(out, "  {style}{percent:>6.2} %  {label}{style:#}")?;
        }
        Ok(())
    }
}
