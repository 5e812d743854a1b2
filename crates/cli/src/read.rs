//! `hipvit read` and `hipvit caption`.

use std::io::{IsTerminal as _, Write};
use std::path::PathBuf;

use anyhow::Result;
use hipvit::run_config::parsers::positive;
use hipvit_generate::{Finish, GenerateOptions, Generated, Generator, Sampling, Speculation, TextStream};
use serde::Serialize;

use super::escape::one_line;
use super::format::{self, Format, Formats, OutputArgs};
use super::inputs::{Batch, Inputs};
use super::model_args::{ModelArgs, report_fallback};
use super::outcome::{Outcome, Usage};
use super::output::{self, Sink};
use super::record::{self, Record};
use super::results::note_failed;

pub(crate) const CAPTIONS: &str = "\
Examples:
  hipvit caption photo.jpg -m Salesforce/blip-image-captioning-base
  hipvit caption photo.jpg -m HuggingFaceTB/SmolVLM-256M-Instruct --prompt 'What is in the picture?'
  hipvit caption photos/ -m MODEL --device hip --dtype bf16 --batch 32 --max-tokens 30 -o captions.csv";

pub(crate) const LINES: &str = "\
Examples:
  hipvit read line.png -m microsoft/trocr-base-printed
  hipvit read lines/ -m MODEL --device hip --dtype bf16 --batch 32 -o lines.csv
  hipvit read receipt.jpg -m naver-clova-ix/donut-base-finetuned-cord-v2 --prompt '<s_cord-v2>' --max-tokens 512";

/// Decoded images in memory, as a multiple of the batch size.
const BATCHES_IN_MEMORY: usize = 4;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    model: ModelArgs,
    /// Maximum number of tokens of a text [default: the model's]
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Output")]
    max_tokens: Option<usize>,
    /// Text that the model continues: a task of Donut, or a question
    ///
    /// Donut's tasks are like `<s_docvqa><s_question>What is the total?</s_question><s_answer>`. SmolVLM answers questions. The text of an image does not repeat the prompt.
    #[arg(long, value_name = "TEXT", help_heading = "Input")]
    prompt: Option<String>,
    /// Print each token when it is known [default: on a terminal]
    ///
    /// Only for one image, in the text format.
    #[arg(long, help_heading = "Output")]
    stream: bool,
    /// Continue the N most likely texts together, and take the best [default: the model's]
    ///
    /// Beam search. With --speculate or random tokens the default is 1.
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Output")]
    beams: Option<usize>,
    /// Guess up to N tokens, and check them in one step
    ///
    /// They are guessed from repetitions in the text, or by --draft-model. The text is the same, and takes fewer steps if guesses are right. Not with random tokens.
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Output", conflicts_with_all = ["temperature", "top_k", "top_p"])]
    speculate: Option<usize>,
    /// Smaller model of the same tokens, which guesses them
    ///
    /// It runs on the same device. By default tokens are looked up in the text.
    #[arg(
        long,
        value_name = "MODEL",
        help_heading = "Output",
        requires = "speculate",
        hide_short_help = true
    )]
    draft_model: Option<PathBuf>,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    output: OutputArgs<Lines>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Sampling")]
struct SamplingArgs {
    /// Choose tokens at random, with logits divided by T
    ///
    /// Without this option, --top-k and --top-p, each token is the most likely one.
    #[arg(long, value_name = "T")]
    temperature: Option<f64>,
    /// Choose among the K most likely tokens
    #[arg(long, value_name = "K", value_parser = positive)]
    top_k: Option<usize>,
    /// Choose among the most likely tokens of total probability P
    #[arg(long, value_name = "P")]
    top_p: Option<f64>,
    /// Seed of the random choice
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

impl SamplingArgs {
    fn sampling(&self) -> Option<Sampling> {
        Sampling::by_rules(self.temperature, self.top_k, self.top_p, self.seed)
    }
}

#[derive(Clone, Debug)]
struct Lines;

impl Formats for Lines {
    const FORMATS: &'static [Format] = &[Format::Text, Format::Json, Format::Csv];
}

/// A text as `--json` writes it.
#[derive(Serialize)]
struct Made<'a> {
    text: &'a str,
    tokens: usize,
    finish: &'static str,
}

/// Writer of the texts in one format.
enum Writer {
    Text(Sink),
    Json(Sink),
    Csv(Box<csv::Writer<Sink>>),
}

impl Args {
    pub(crate) fn run(&self) -> Result<Outcome> {
        self.inputs.require()?;
        let Some(path) = &self.model.model else {
            let reason = "-m MODEL is required: the embedded model makes no text. `microsoft/trocr-base-printed` reads lines, `Salesforce/blip-image-captioning-base` describes images";
            return Err(Usage(reason.to_owned()).into());
        };
        let (format, sink) = self.output.open()?;
        let images = self.inputs.list()?;
        self.inputs.check_outputs(&images, std::iter::once(&sink))?;
        let listed = images.len();
        let streams = self.streams(format, &sink, listed)?;
        let mut generator = Generator::load(path, &self.model.builder(), &self.options(0))?;
        self.model.note(generator.session());
        if let Some(path) = &self.draft_model {
            generator.load_draft_model(path, &self.options(0))?;
        }
        let is_single = self.speculate.is_some() || self.sampling.sampling().is_some();
        if generator.beams() > 1 && self.beams.is_none() && is_single {
            let beams = generator.beams();
            output::note(&format!(
                "texts are decoded with one beam; the model's files ask for {beams}"
            ));
        }
        let decode = self.inputs.decode.options();
        let most = BATCHES_IN_MEMORY * generator.session().batch();
        let mut writer = Writer::new(format, sink)?;
        let mut first = 0;
        let (outcome, count) = images.for_each_batch(
            if streams { 1 } else { most },
            |source| source.decode(decode),
            |batch| {
                if streams {
                    return self.stream(&mut writer, &mut generator, &batch);
                }
                self.write(&mut writer, &mut generator, &batch, first)?;
                first += batch.images.len();
                Ok(())
            },
        )?;
        note_failed(listed - count, listed);
        report_fallback(generator.session());
        if self.speculate.is_some() {
            report_speculation(generator.speculation());
        }
        let outcome = format::finish(vec![writer.finish()?], outcome, count)?;
        self.output.wrote(&format!("{count} texts"));
        Ok(outcome)
    }

    /// Returns true if the text is written token by token.
    fn streams(&self, format: Format, sink: &Sink, images: usize) -> Result<bool> {
        let can = format == Format::Text && images == 1;
        if self.stream && !can {
            let reason = "--stream prints the text of one image. Leave it out for several images and for other formats";
            return Err(Usage(reason.to_owned()).into());
        }
        let shown = matches!(sink, Sink::Text(_)) && std::io::stdout().is_terminal();
        Ok(can && (self.stream || shown))
    }

    fn options(&self, first_index: usize) -> GenerateOptions {
        GenerateOptions {
            max_tokens: self.max_tokens,
            prompt: self.prompt.clone(),
            sampling: self.sampling.sampling(),
            beams: self.beams,
            draft: self.speculate.unwrap_or(0),
            first_index,
        }
    }

    /// Reads the only image of a batch and writes its text, each part as soon as it is known.
    fn stream(&self, writer: &mut Writer, generator: &mut Generator, batch: &Batch) -> Result<()> {
        let Writer::Text(out) = writer else {
            return Ok(());
        };
        let mut write = |text: &str| -> Result<()> {
            out.write_all(text.as_bytes())?;
            Ok(out.flush()?)
        };
        write(&format!("{}: ", one_line(&batch.names[0])))?;
        let mut stream = TextStream::new(generator.detokenizer());
        let mut written = Ok(());
        generator.generate(&batch.images, &self.options(0), &mut |_, token| {
            if written.is_ok() {
                let part = stream.push(token);
                written = part.map_err(Into::into).and_then(|part| write(&one_line(&part)));
            }
        })?;
        written?;
        write(&format!("{}\n", one_line(&stream.finish()?)))
    }

    /// Reads the images and writes their texts. `first_index` is the index of the first among all images that were decoded.
    fn write(
        &self,
        writer: &mut Writer,
        generator: &mut Generator,
        batch: &Batch,
        first_index: usize,
    ) -> Result<()> {
        let texts = generator.generate(&batch.images, &self.options(first_index), &mut |_, _| {})?;
        for (name, text) in batch.names.iter().zip(&texts) {
            writer.write(generator, name, text)?;
        }
        Ok(())
    }
}

fn report_speculation(speculation: Speculation) {
    let Speculation {
        tokens,
        steps,
        drafted,
        accepted,
    } = speculation;
    let each = tokens as f64 / steps.max(1) as f64;
    output::note(&format!(
        "{each:.2} tokens in each step of a text; {accepted} of {drafted} guessed tokens were right"
    ));
}

impl Writer {
    fn new(format: Format, sink: Sink) -> Result<Self> {
        Ok(match format {
            Format::Json => Self::Json(sink),
            Format::Csv => {
                let mut writer = csv::Writer::from_writer(sink);
                format::written(writer.write_record(["image", "text", "tokens", "finish"]))?;
                Self::Csv(Box::new(writer))
            }
            _ => Self::Text(sink),
        })
    }

    fn write(&mut self, generator: &Generator, name: &str, generated: &Generated) -> Result<()> {
        let finish = match generated.finish {
            Finish::End => "end",
            Finish::Length => "length",
        };
        let (text, tokens) = (generated.text.as_str(), generated.tokens.len());
        match self {
            Self::Text(out) => writeln!(out, "{}: {}", one_line(name), one_line(text))?,
            Self::Json(out) => {
                let made = Made { text, tokens, finish };
                record::write(out, &Record::new(generator.session(), name, made))?;
            }
            Self::Csv(out) => {
                format::written(out.write_record([name, text, &tokens.to_string(), finish]))?;
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Sink> {
        Ok(match self {
            Self::Text(sink) | Self::Json(sink) => sink,
            Self::Csv(writer) => writer.into_inner().map_err(csv::IntoInnerError::into_error)?,
        })
    }
}
