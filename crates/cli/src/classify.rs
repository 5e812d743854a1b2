//! `hipvit classify`.

use std::io::Write;
use std::time::{Duration, Instant};

use anstyle::{AnsiColor, Style};
use anyhow::{Result, bail};
use hipvit::pipeline::Item;
use hipvit::run_config::parsers::positive;
use hipvit::timing::{Phase, Timing};
use hipvit::{Prediction, Replays, Session, ZeroShot, digits};
use serde::Serialize;
use serde_json::json;

use super::escape::one_line;
use super::format::{self, Format, Formats, OutputArgs};
use super::inputs::{Inputs, Listing};
use super::labels::LabelArgs;
use super::launcher::DistributedArgs;
use super::model_args::{RunArgs, report_fallback};
use super::outcome::{Outcome, Usage};
use super::output::{self, Sink};
use super::partial::ResumeArgs;
use super::ranks::{Ranks, Work};
use super::record::{self, Record};
use super::texts::TextArgs;

#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    model: RunArgs,
    #[command(flatten)]
    labels: LabelArgs,
    #[command(flatten)]
    texts: TextArgs,
    /// Number of labels to show
    #[arg(long, short = 'k', default_value_t = 5, value_name = "K", value_parser = positive, help_heading = "Output")]
    top: usize,
    /// Add the logits of all classes to the JSON output
    #[arg(long, help_heading = "Output")]
    logits: bool,
    #[command(flatten)]
    output: OutputArgs<Lines>,
    #[command(flatten)]
    resume: ResumeArgs,
    /// Print the time of each phase (phases overlap)
    #[arg(long, help_heading = "Output")]
    timing: bool,
    #[command(flatten)]
    distributed: DistributedArgs,
}

const EXAMPLES: &str = "\
Examples:
  hipvit classify photos/ -m timm/vit_base_patch16_224 -o results.csv
  hipvit classify cat.jpg -m MODEL --device hip --dtype bf16 --json
  hipvit classify cat.jpg -m openai/clip-vit-base-patch32 --template \"a photo of a {}.\" --text cat dog
  find . -name '*.jpg' -print0 | hipvit classify --files-from - -0 -m MODEL";

#[derive(Clone, Debug)]
struct Lines;

impl Formats for Lines {
    const FORMATS: &'static [Format] = &[Format::Text, Format::Json, Format::Csv];
}

const NAME: Style = Style::new().bold();
const BEST: Style = AnsiColor::Green.on_default();

#[derive(Serialize)]
struct Scored {
    #[serde(skip_serializing_if = "Option::is_none")]
    logits: Option<Vec<f32>>,
    top: Vec<Prediction>,
}

/// Writer of the results in one format.
enum Writer {
    Text(Sink),
    Json(Sink),
    Csv(Box<csv::Writer<Sink>>),
}

impl Args {
    pub(crate) fn run(&self) -> Result<Outcome> {
        self.distributed.run(&self.model, |ranks| self.run_at(ranks))
    }

    fn run_at(&self, ranks: &mut Ranks) -> Result<Outcome> {
        let (format, sink) = self.output.open_at(ranks)?;
        if self.logits && format != Format::Json {
            return Err(Usage("--logits needs JSON output: add --json, or --output FILE.jsonl").into());
        }
        let texts = self.texts()?;
        let partial = self.resume.open(sink.as_ref())?;
        let images = self.images(ranks)?;
        self.inputs.check_outputs(&images, &sink)?;
        let model = self.model.at(ranks)?;
        let session = model.load_with(self.labels.apply(model.builder())?)?;
        let zero_shot = match &texts {
            Some(texts) if ranks.writes() => Some(self.texts.zero_shot(&session, texts)?),
            _ => None,
        };
        if texts.is_none() && session.labels().is_empty() {
            let instead = match session.info().text {
                Some(_) => "give labels with --text, or use `hipvit embed`",
                None => "use `hipvit embed`",
            };
            bail!("{}: model has no classification head; {instead}", session.name());
        }
        let (sources, unlisted) = images.into_sources();
        let work = Work::new("classify", &session, &model, sources, &self.inputs.decode);
        let results = ranks.results(work.timed(self.timing).resumable(partial))?;
        let Some((mut results, sink)) = results.zip(sink) else {
            return Ok(Outcome::Complete);
        };
        let mut writer = Writer::new(format, sink)?;
        let mut softmax = Duration::ZERO;
        let mut classified = 0;
        let failed = results.visit(|item| {
            if classified == 0 && !self.inputs.is_empty() {
                model.note_embedded();
            }
            classified += 1;
            self.print(&mut writer, &session, zero_shot.as_ref(), item, &mut softmax)
        })?;
        let timed = self.timing.then(|| {
            let mut timing = results.timing().clone();
            timing.add(Phase::Softmax, softmax);
            (timing, session.hip_graphs())
        });
        let sink = writer.finish(timed)?;
        report_fallback(&session);
        let outcome = format::finish(vec![sink], Outcome::of(failed + unlisted), classified)?;
        results.complete()?;
        self.output.wrote(&format!("{classified} images"));
        Ok(outcome)
    }

    /// Returns the texts that serve as labels, if there are any.
    fn texts(&self) -> Result<Option<Vec<String>>> {
        if self.texts.has_templates() && !self.texts.is_given() {
            return Err(Usage("--template needs --text or --text-file").into());
        }
        if self.texts.is_given() && self.labels.is_given() {
            return Err(
                Usage("--labels and --text exclude each other: --labels names the classes of a classifier, --text replaces them").into(),
            );
        }
        self.texts.read(!self.inputs.is_empty())
    }

    fn images(&self, ranks: &mut Ranks) -> Result<Listing> {
        if !self.inputs.is_empty() {
            return self.inputs.list_at(ranks);
        }
        if !self.model.is_embedded() {
            return Err(Usage(
                "an image, a directory, a glob pattern, - or --files-from is required: the bundled samples only work with the \
                 embedded model",
            )
            .into());
        }
        Ok(digits::samples().collect())
    }

    fn print(
        &self,
        writer: &mut Writer,
        session: &Session,
        zero_shot: Option<&ZeroShot>,
        item: &Item,
        softmax: &mut Duration,
    ) -> Result<()> {
        let start = Instant::now();
        let logits = zero_shot.map(|labels| labels.logits(item.embedding()));
        let top = match (zero_shot, &logits) {
            (Some(labels), Some(logits)) => labels.scores().top(logits.view(), self.top, labels.labels()),
            _ => item.top(self.top),
        };
        *softmax += start.elapsed();
        let name = item.name();
        match writer {
            Writer::Json(out) => {
                let logits = logits.as_ref().map(|logits| logits.view()).or(item.logits());
                let logits = logits.filter(|_| self.logits).map(|logits| logits.to_vec());
                record::write(out, &Record::new(session, name, Scored { logits, top }))?;
            }
            Writer::Csv(out) => {
                for (rank, p) in top.iter().enumerate() {
                    let Prediction {
                        index,
                        label,
                        logit,
                        probability,
                        ..
                    } = p;
                    format::written(out.write_record([
                        name,
                        &(rank + 1).to_string(),
                        &index.to_string(),
                        label,
                        &logit.to_string(),
                        &probability.to_string(),
                    ]))?;
                }
            }
            Writer::Text(out) => {
                writeln!(out, "{NAME}{}{NAME:#}", one_line(name))?;
                for (rank, p) in top.iter().enumerate() {
                    let style = if rank == 0 { BEST } else { Style::new() };
                    let percent = 100.0 * p.probability;
                    let label = one_line(&p.label);
                    writeln!(out, "  {style}{percent:>6.2} %  {label}{style:#}")?;
                }
            }
        }
        Ok(())
    }
}

impl Writer {
    fn new(format: Format, sink: Sink) -> Result<Self> {
        Ok(match format {
            Format::Json => Self::Json(sink),
            Format::Csv => {
                let mut writer = csv::Writer::from_writer(sink);
                format::written(writer.write_record([
                    "image",
                    "rank",
                    "index",
                    "label",
                    "logit",
                    "probability",
                ]))?;
                Self::Csv(Box::new(writer))
            }
            _ => Self::Text(sink),
        })
    }

    /// Finishes the output. The times of the phases are the last line of JSON, or go to standard error in other
    /// formats.
    fn finish(self, timed: Option<(Timing, Option<Replays>)>) -> Result<Sink> {
        match (self, timed) {
            (Self::Json(mut sink), Some((timing, hip_graphs))) => {
                record::write(&mut sink, &json!({ "timing": timing, "hip_graphs": &hip_graphs }))?;
                Ok(sink)
            }
            (writer, timed) => {
                if let Some((timing, hip_graphs)) = timed {
                    output::say(&timing.to_string());
                    hip_graphs
                        .into_iter()
                        .for_each(|graphs| output::say(&graphs.to_string()));
                }
                match writer {
                    Self::Text(sink) | Self::Json(sink) => Ok(sink),
                    Self::Csv(writer) => Ok(writer.into_inner().map_err(csv::IntoInnerError::into_error)?),
                }
            }
        }
    }
}
