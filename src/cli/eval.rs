//! `hipvit eval`.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use hipvit::digits;
use hipvit::evaluate::{LabelledSet, evaluate};
use hipvit::labels::Labels;
use hipvit::pipeline::Source;

use super::inputs::{DecodeArgs, images_below};
use super::progress::Progress;
use super::{Outcome, RunArgs, Usage, output, record, refused, report, report_fallback};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A directory with one subdirectory per class (named by label or index), or a safetensors file with `images` u8
    /// [N,H,W] or [N,H,W,3] and `labels` [N] [default: the embedded held-out digits]
    #[arg(value_name = "DIR|FILE.safetensors")]
    data: Option<PathBuf>,
    #[command(flatten)]
    model: RunArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    decode: DecodeArgs,
}

impl Args {
    pub fn run(&self) -> Result<Outcome> {
        let session = self.model.load()?;
        let (set, unlisted) = match &self.data {
            Some(path) if path.is_dir() => read_directory(path, session.labels())?,
            Some(path) => {
                let bytes = fs::read(path).map_err(refused(path))?;
                (LabelledSet::from_safetensors(path, &bytes)?, 0)
            }
            None if self.model.is_embedded() => (digits::held_out()?, 0),
            None => {
                return Err(Usage(
                    "a directory or a safetensors file is required: the held-out digits are for the embedded model",
                )
                .into());
            }
        };
        let progress = Progress::images(set.len());
        let result = evaluate(&session, set, self.decode.options(), |item| {
            progress.step();
            if let Err(error) = item {
                progress.report(|| report(error));
            }
        })?;
        drop(progress);
        report_fallback(&session);
        let mut out = output::stdout();
        if self.json {
            record::write(&mut out, &result)?;
        } else {
            writeln!(out, "{:<24} {:>7} {:>8}", "class", "images", "correct")?;
            for class in &result.classes {
                writeln!(
                    out,
                    "{:<24} {:>7} {:>8}",
                    class.label, class.images, class.correct
                )?;
            }
            writeln!(out, "{:<24} {:>7} {:>8}", "all", result.images, result.correct)?;
            writeln!(out, "accuracy {:.2} %", 100.0 * result.accuracy)?;
        }
        Ok(Outcome::of(result.failed + unlisted))
    }
}

/// The images in `path`'s subdirectories, and the number of entries that could not be listed, which are reported.
fn read_directory(path: &Path, labels: &Labels) -> Result<(LabelledSet, usize)> {
    let (mut set, mut unlisted) = (LabelledSet::default(), 0);
    let mut directories: Vec<PathBuf> = fs::read_dir(path)
        .and_then(|entries| entries.map(|entry| entry.map(|e| e.path())).collect())
        .map_err(refused(path))?;
    directories.retain(|p| p.is_dir());
    directories.sort();
    for directory in directories {
        let class = LabelledSet::class_of(&directory, labels)?;
        let (files, errors) = images_below(&directory);
        unlisted += errors.len();
        errors.iter().for_each(report);
        for file in files {
            set.push(Source::File(file), class);
        }
    }
    if set.is_empty() {
        bail!(
            "{}: the directory has no subdirectory with images",
            path.display()
        );
    }
    Ok((set, unlisted))
}
