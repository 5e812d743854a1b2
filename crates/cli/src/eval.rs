//! `hipvit eval`.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use console::{Alignment, pad_str};
use hipvit::digits;
use hipvit::evaluate::{ClassEvaluation, ClassMap, Evaluation, LabelledSet, Tally};
use hipvit::labels::Labels;
use hipvit::pipeline::Source;
use hipvit_files::regular_file;
use serde::Serialize;

use super::decode_args::DecodeArgs;
use super::errors::report;
use super::escape::one_line;
use super::inputs::images_below;
use super::labels::LabelArgs;
use super::launcher::DistributedArgs;
use super::model_args::{RunArgs, report_fallback};
use super::outcome::{Outcome, Usage, refused};
use super::ranks::{Ranks, Work};
use super::{output, record};

const EXAMPLES: &str = "\
Examples:
  hipvit eval imagenet/val -m timm/vit_base_patch16_224
  hipvit eval photos/ -m MODEL --class-map classes.txt --skip-unknown";

#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Directory of images, or safetensors file [default: held-out digits]
    ///
    /// A directory has one subdirectory per class, named by WordNet id (n01440764), label or index. A safetensors file
    /// has `images` u8 [N,H,W] or [N,H,W,3] and `labels` [N].
    #[arg(value_name = "DIR|FILE", help_heading = "Input")]
    data: Option<PathBuf>,
    #[command(flatten)]
    model: RunArgs,
    #[command(flatten)]
    labels: LabelArgs,
    /// File that maps subdirectories to classes
    ///
    /// Either a text file or a JSON object that maps a name to an index, id or label. A text file has one name per line
    /// in the order of the classes, or a name and a class per line.
    #[arg(long, value_name = "FILE", help_heading = "Input")]
    class_map: Option<PathBuf>,
    /// Skip subdirectories without a class, and report them
    #[arg(long, help_heading = "Input")]
    skip_unknown: bool,
    /// Print one JSON object
    #[arg(long, help_heading = "Output")]
    json: bool,
    #[command(flatten)]
    decode: DecodeArgs,
    #[command(flatten)]
    distributed: DistributedArgs,
}

/// Images of a directory with their classes, and the entries that were left out.
#[derive(Default)]
struct Listing {
    set: LabelledSet,
    /// Number of entries that could not be listed. They have been reported.
    unlisted: usize,
    /// Subdirectories without a class.
    skipped: Vec<String>,
}

#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    result: &'a Evaluation,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    skipped: &'a [String],
}

impl Args {
    pub(crate) fn run(&self) -> Result<Outcome> {
        self.distributed.run(&self.model, |ranks| self.run_at(ranks))
    }

    fn run_at(&self, ranks: &mut Ranks) -> Result<Outcome> {
        let model = self.model.at(ranks)?;
        let session = model.load_with(self.labels.apply(model.builder())?)?;
        let directory = self.data.as_deref().filter(|path| path.is_dir());
        if directory.is_none() && (self.class_map.is_some() || self.skip_unknown) {
            return Err(Usage("--class-map and --skip-unknown need a directory of images").into());
        }
        let Listing {
            set,
            unlisted,
            skipped,
        } = match &self.data {
            Some(path) if path.is_dir() => self.read_directory(path, session.labels())?,
            Some(path) => {
                let bytes = regular_file::read(path).map_err(refused(path))?;
                LabelledSet::from_safetensors(path, &bytes)?.into()
            }
            None if self.model.is_embedded() => digits::held_out()?.into(),
            None => {
                return Err(Usage(
                    "a directory or a safetensors file is required: the held-out digits only work with the embedded model",
                )
                .into());
            }
        };
        let (sources, classes): (Vec<_>, Vec<_>) = set.into_iter().unzip();
        let mut tally = Tally::new(&session, classes)?;
        let work = Work::new("eval", &session, &model, sources, &self.decode);
        let Some(mut results) = ranks.results(work)? else {
            return Ok(Outcome::Complete);
        };
        let failed = results.visit(|item| {
            tally.add(item);
            Ok(())
        })?;
        let result = tally.finish(failed);
        report_fallback(&session);
        let mut out = output::stdout();
        if self.json {
            let (result, skipped) = (&result, &skipped[..]);
            record::write(&mut out, &Report { result, skipped })?;
        } else {
            print(&mut out, &result, session.labels().len())?;
        }
        Ok(Outcome::of(result.failed + unlisted))
    }

    /// Returns the images in the subdirectories of `path`.
    fn read_directory(&self, path: &Path, labels: &Labels) -> Result<Listing> {
        let map = match &self.class_map {
            Some(file) => Some(ClassMap::from_file(file, labels)?),
            None => None,
        };
        let class_of = |directory: &Path| match &map {
            Some(map) => map.class_of(directory),
            None => LabelledSet::class_of(directory, labels),
        };
        let mut directories: Vec<PathBuf> = fs::read_dir(path)
            .and_then(|entries| entries.map(|entry| entry.map(|e| e.path())).collect())
            .map_err(refused(path))?;
        directories.retain(|p| p.is_dir());
        directories.sort();
        let (mut known, mut unknown) = (Vec::new(), Vec::new());
        for directory in directories {
            match class_of(&directory) {
                Ok(class) => known.push((directory, class)),
                Err(error) => unknown.push((directory, error)),
            }
        }
        if let Some((_, error)) = unknown.first()
            && !self.skip_unknown
        {
            let others = match unknown.len() - 1 {
                0 => String::new(),
                more => format!(" (and {more} more like it)"),
            };
            bail!("{error}{others}; map them to classes with --class-map, or skip them with --skip-unknown");
        }
        let mut listing = Listing::default();
        for (directory, error) in &unknown {
            output::note(&format!("skipped: {error}"));
            listing.skipped.push(directory.display().to_string());
        }
        for (directory, class) in known {
            let (files, errors) = images_below(&directory);
            listing.unlisted += errors.len();
            errors.into_iter().for_each(report);
            for file in files {
                listing.set.push(Source::File(file), class);
            }
        }
        if listing.set.is_empty() {
            bail!("{}: no subdirectory is a class with images", path.display());
        }
        Ok(listing)
    }
}

/// Converts a set that was read as a whole.
impl From<LabelledSet> for Listing {
    fn from(set: LabelledSet) -> Self {
        Self {
            set,
            ..Self::default()
        }
    }
}

/// Prints the table. Top-5 accuracy is left out for a model with so few classes that it says nothing.
fn print(out: &mut impl Write, result: &Evaluation, logits: usize) -> Result<()> {
    let names: Vec<String> = result.classes.iter().map(name).collect();
    let widest = names.iter().map(|name| console::measure_text_width(name)).max();
    let width = widest.unwrap_or(0).clamp(24, 46);
    let top5 = logits > 5;
    let mut row = |name: &str, [images, correct, correct_top5]: [&dyn std::fmt::Display; 3]| -> Result<()> {
        let name = pad_str(name, width, Alignment::Left, Some("…"));
        if top5 {
            writeln!(out, "{name} {images:>8} {correct:>8} {correct_top5:>8}")?;
        } else {
            writeln!(out, "{name} {images:>8} {correct:>8}")?;
        }
        Ok(())
    };
    row("class", [&"images", &"top-1", &"top-5"])?;
    for (class, name) in result.classes.iter().zip(&names) {
        row(name, [&class.images, &class.correct, &class.correct_top5])?;
    }
    row("all", [&result.images, &result.correct, &result.correct_top5])?;
    let percent = |share: f64| format!("{:.2} %", 100.0 * share);
    write!(out, "accuracy: top-1 {}", percent(result.accuracy))?;
    if top5 {
        write!(out, ", top-5 {}", percent(result.accuracy_top5))?;
    }
    writeln!(out)?;
    Ok(())
}

fn name(class: &ClassEvaluation) -> String {
    one_line(&match &class.id {
        Some(id) => format!("{id} {}", class.label),
        None => class.label.clone(),
    })
}
