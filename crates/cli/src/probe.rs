//! `hipvit probe` measures frozen features by a k-NN and a linear classifier.

use std::io::Write;
use std::sync::Arc;

use anyhow::Result;
use console::{Alignment, pad_str};
use hipvit::run_config::parsers;
use hipvit::{DType, Error, Session};
use hipvit_data::{Batch, Dataset};
use hipvit_train::probe::{Accuracy, Features, KnnResult, LinearOptions, LinearResult, Probe, TEMPERATURE};
use rayon::ThreadPoolBuilder;
use serde::Serialize;

use super::data_args::DataArgs;
use super::errors::report;
use super::escape::one_line;
use super::model_args::{RunArgs, report_fallback};
use super::outcome::{Outcome, Usage};
use super::progress::Progress;
use super::{output, record};

const EXAMPLES: &str = "\
Examples:
  hipvit probe imagenet/ -m facebook/dinov2-small --device hip --dtype bf16 --batch 64
  hipvit probe photos/ -m run/model --holdout 20%
  hipvit probe photos/ -m MODEL --holdout 20% --knn 5,20 --l2 0.01 --json

docs/training.md describes the layouts of datasets, and how each classifier works.";

#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    model: RunArgs,
    #[command(flatten)]
    classifiers: ClassifierArgs,
    /// Print one JSON object
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// Options of the classifiers.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Classifiers")]
struct ClassifierArgs {
    /// Numbers of nearest neighbours [default: 10,20,100,200]
    ///
    /// The default leaves out numbers that exceed the training images.
    #[arg(long, value_name = "K,…", value_delimiter = ',', value_parser = parsers::positive)]
    knn: Vec<usize>,
    /// Temperature of the neighbours' votes
    #[arg(long, value_name = "T", default_value_t = TEMPERATURE, value_parser = parse_positive, hide_short_help = true)]
    temperature: f64,
    /// L2 strengths to select from [default: powers of ten, 1 to 1e-6]
    ///
    /// Each is tried on a part of the training images. A single strength is used without a trial.
    #[arg(long, value_name = "L2,…", value_delimiter = ',', value_parser = parse_positive)]
    l2: Vec<f64>,
    /// Seed that determines which images are held out
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,
}

/// Output of the command.
#[derive(Serialize)]
struct Report<'a> {
    model: &'a str,
    device: String,
    dtype: DType,
    train_images: usize,
    val_images: usize,
    /// Number of broken images.
    skipped: usize,
    classes: usize,
    channels: usize,
    knn: Vec<KnnResult>,
    linear: LinearResult,
}

impl Args {
    pub(crate) fn run(&self) -> Result<Outcome> {
        let splits = self.data.open(self.classifiers.seed)?;
        let Some(validation) = splits.validation else {
            return Err(Usage("DATA has no validation set. Hold images out, such as --holdout 20%").into());
        };
        let classes = validation.classes().len();
        let session = self.model.load_with(self.model.builder())?;
        self.model.note_embedded();
        let mut skipped = 0;
        let train = self.extract(&session, splits.train, &mut skipped)?;
        let validation = self.extract(&session, validation, &mut skipped)?;
        report_fallback(&session);
        let probe = Probe::new(train, validation)?;
        let threads = ThreadPoolBuilder::new().num_threads(session.threads()).build();
        let threads = threads.map_err(|error| Error::resource("threads", error))?;
        let (knn, linear) = threads.install(|| self.classifiers.evaluate(&probe))?;
        if !linear.converged {
            output::warning(
                "the linear classifier has not converged: its accuracy may be too low. Give a larger strength with --l2",
            );
        }
        let report = Report {
            model: session.name(),
            device: session.devices().to_string(),
            dtype: session.dtype(),
            train_images: probe.train().len(),
            val_images: probe.validation().len(),
            skipped,
            classes,
            channels: probe.train().channels(),
            knn,
            linear,
        };
        let mut out = output::stdout();
        if self.json {
            record::write(&mut out, &report)?;
        } else {
            print(&mut out, &report)?;
        }
        Ok(Outcome::of(skipped))
    }

    /// Computes the embeddings of a dataset, and reports broken images.
    fn extract(&self, session: &Session, dataset: Arc<dyn Dataset>, skipped: &mut usize) -> Result<Features> {
        let progress = Progress::images(dataset.len());
        let mut on_batch = |batch: &Batch| {
            (0..batch.len() + batch.broken.len()).for_each(|_| progress.step());
            *skipped += batch.broken.len();
            for broken in &batch.broken {
                progress.report(|| report(anyhow::anyhow!("{}", broken.error)));
            }
        };
        Ok(Features::extract(
            session,
            dataset,
            self.data.skip_broken,
            &mut on_batch,
        )?)
    }
}

impl ClassifierArgs {
    fn evaluate(&self, probe: &Probe) -> Result<(Vec<KnnResult>, LinearResult)> {
        let neighbours = if self.knn.is_empty() {
            probe.default_neighbours()
        } else {
            self.knn.clone()
        };
        let knn = probe.knn(&neighbours, self.temperature)?;
        let mut options = LinearOptions {
            seed: self.seed,
            ..LinearOptions::default()
        };
        if !self.l2.is_empty() {
            options.l2.clone_from(&self.l2);
        }
        let progress = Progress::counting(options.l2.len() + 1, "linear classifiers");
        let linear = probe.linear(&options, &mut || progress.step())?;
        Ok((knn, linear))
    }
}

/// Prints the table. Top-5 accuracy is left out for few classes.
fn print(out: &mut impl Write, report: &Report<'_>) -> Result<()> {
    writeln!(
        out,
        "{}: {} training and {} validation images, {} classes, {} channels",
        one_line(report.model),
        report.train_images,
        report.val_images,
        report.classes,
        report.channels
    )?;
    let has_top5 = report.linear.accuracy.accuracy_top5.is_some();
    let heads: &[&str] = if has_top5 { &["top-1", "top-5"] } else { &["top-1"] };
    row(out, "classifier", heads.iter().map(ToString::to_string))?;
    for result in &report.knn {
        let name = format!("k-NN, k = {}", result.k);
        row(out, &name, percentages(&result.accuracy))?;
    }
    let name = format!("linear, L2 = {}", report.linear.l2);
    row(out, &name, percentages(&report.linear.accuracy))
}

fn percentages(accuracy: &Accuracy) -> impl Iterator<Item = String> {
    let shares = [Some(accuracy.accuracy), accuracy.accuracy_top5];
    let percent = |share: f64| format!("{:.2} %", 100.0 * share);
    shares.into_iter().flatten().map(percent)
}

fn row(out: &mut impl Write, name: &str, cells: impl Iterator<Item = String>) -> Result<()> {
    write!(out, "{}", pad_str(name, 24, Alignment::Left, None))?;
    for cell in cells {
        write!(out, " {cell:>9}")?;
    }
    writeln!(out)?;
    Ok(())
}

/// Parses a positive number.
fn parse_positive(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
        _ => Err("expected a positive number, such as 0.01".into()),
    }
}
