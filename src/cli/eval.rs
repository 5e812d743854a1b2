//! `hipvit eval`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use hipvit::digits;
use hipvit::evaluate::{LabelledSet, evaluate};
use hipvit::model::Labels;
use hipvit::pipeline::Source;

use super::inputs::{LimitArgs, images_below};
use super::progress::Progress;
use super::{ModelArgs, Outcome, report};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A directory with one subdirectory of images a class (named by label or index), or a safetensors file with
    /// `images` u8 [N,H,W] or [N,H,W,3] and `labels` [N]; the embedded held-out digits if left out
    #[arg(value_name = "DIR|FILE.safetensors")]
    data: Option<PathBuf>,
    #[command(flatten)]
    model: ModelArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    limits: LimitArgs,
}

impl Args {
    pub fn run(&self) -> Result<Outcome> {
        let session = self.model.load()?;
        let set = match &self.data {
            Some(path) if path.is_dir() => read_directory(path, session.labels())?,
            Some(path) => {
                let bytes = fs::read(path).with_context(|| path.display().to_string())?;
                LabelledSet::from_safetensors(path, &bytes)?
            }
            None if self.model.model.is_none() => digits::held_out()?,
            None => bail!(
                "name a directory or a safetensors file: the held-out digits are for the embedded model"
            ),
        };
        let progress = Progress::images(set.len());
        let result = evaluate(&session, set, &self.limits.limits(), |item| {
            progress.step();
            if let Err(error) = item.result {
                progress.report(|| report(error));
            }
        })?;
        drop(progress);
        if self.json {
            println!("{}", serde_json::to_string(&result)?);
        } else {
            println!("{:<24} {:>7} {:>8}", "class", "images", "correct");
            for class in &result.classes {
                println!("{:<24} {:>7} {:>8}", class.label, class.images, class.correct);
            }
            println!("{:<24} {:>7} {:>8}", "all", result.images, result.correct);
            println!("accuracy {:.2} %", 100.0 * result.accuracy);
        }
        Ok(if result.failed == 0 {
            Outcome::Complete
        } else {
            Outcome::SomeFailed
        })
    }
}

fn read_directory(path: &Path, labels: &Labels) -> Result<LabelledSet> {
    let mut set = LabelledSet::default();
    let entries = fs::read_dir(path).with_context(|| path.display().to_string())?;
    let mut directories: Vec<PathBuf> = entries
        .map(|entry| entry.map(|e| e.path()))
        .collect::<Result<_, _>>()
        .with_context(|| path.display().to_string())?;
    directories.retain(|p| p.is_dir());
    directories.sort();
    for directory in directories {
        let class = LabelledSet::class_of(&directory, labels)?;
        for file in images_below(&directory)? {
            set.push(Source::File(file), class);
        }
    }
    if set.is_empty() {
        bail!(
            "{}: no subdirectory with images in this directory",
            path.display()
        );
    }
    Ok(set)
}
