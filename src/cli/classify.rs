//! `hipvit classify`.

use std::io::Write;
use std::time::{Duration, Instant};

use anstream::eprintln;
use anstyle::{AnsiColor, Style};
use anyhow::{Result, bail};
use hipvit::timing::Phase;
use hipvit::{Outputs, Prediction, Session, digits};
use serde::Serialize;
use serde_json::json;

use super::inputs::{Inputs, Listing};
use super::record::{self, Record};
use super::{Outcome, RunArgs, Usage, output, report_fallback};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    model: RunArgs,
    /// How many labels to show
    #[arg(long, short = 'k', default_value_t = 5, value_name = "K", value_parser = super::positive)]
    top: usize,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    /// Show where the time went; with --json as a last line of its own. Phases overlap: their sum may exceed the wall time
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
        let session = self.model.load()?;
        if session.labels().is_empty() {
            bail!(
                "{}: the model has no head to classify with; try `hipvit embed`",
                session.name()
            );
        }
        let mut out = output::stdout();
        let limits = self.inputs.limits.limits();
        let mut softmax = Duration::ZERO;
        let (mut timing, outcome) = images.run(&session, limits, self.timing, |name, outputs, row| {
            self.print(&mut out, &session, name, outputs, row, &mut softmax)
        })?;
        if self.timing {
            timing.add(Phase::Softmax, softmax);
            let replays = session.replays();
            match self.json {
                true => record::write(&mut out, &json!({ "timing": timing, "graph": &replays }))?,
                false => eprintln!("{timing}"),
            }
            if let Some(replays) = replays.filter(|_| !self.json) {
                eprintln!("{replays}");
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
                "name an image, a directory, a glob pattern or -: the bundled samples are for the embedded model",
            )
            .into());
        }
        Ok(digits::samples().collect())
    }

    fn print(
        &self,
        out: &mut impl Write,
        session: &Session,
        name: &str,
        outputs: &Outputs,
        row: usize,
        softmax: &mut Duration,
    ) -> Result<()> {
        // A session with labels has logits.
        let Some(logits) = outputs.logits().map(|l| l.row(row)) else {
            return Ok(());
        };
        let start = Instant::now();
        let top = session.scores().top(logits, self.top, session.labels());
        *softmax += start.elapsed();
        if self.json {
            let logits = logits.to_vec();
            return record::write(out, &Record::new(session, name, Scored { logits, top }));
        }
        writeln!(out, "{NAME}{name}{NAME:#}")?;
        for (rank, p) in top.iter().enumerate() {
            let style = if rank == 0 { BEST } else { Style::new() };
            let percent = 100.0 * p.probability;
            writeln!(out, "  {style}{percent:>6.2} %  {}{style:#}", p.label)?;
        }
        Ok(())
    }
}
