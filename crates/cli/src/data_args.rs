//! Labelled images of the commands that train.

use std::path::PathBuf;

use anyhow::Result;
use hipvit_data::Splits;
use hipvit_train::fit::{FitError, open_splits};

use super::outcome::Usage;

/// Images for training and validation.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Input")]
pub(crate) struct DataArgs {
    /// Directory with one subdirectory per class, or another dataset
    ///
    /// Also a directory with `train` and `val`, MNIST's idx files, or tar files of WebDataset. hipvit train also takes pairs of images and
    /// captions: a CSV, TSV or JSON Lines file, or tar files with a .txt file per image.
    #[arg(value_name = "DATA")]
    pub(crate) data: PathBuf,
    /// Share of the images to hold out, without a validation set
    #[arg(long, value_name = "PERCENT", default_value = "0%", value_parser = parse_share)]
    pub(crate) holdout: f64,
    /// Skip broken images, and report them
    #[arg(long)]
    pub(crate) skip_broken: bool,
}

impl DataArgs {
    /// Opens a dataset with classes, and holds images out for validation. `seed` determines which.
    pub(crate) fn open(&self, seed: u64) -> Result<Splits> {
        let splits = open_splits(&self.data, self.holdout, seed).map_err(with_option)?;
        if splits.train.has_captions() {
            let reason = format!(
                "{} has captions in place of classes. Give images with classes",
                self.data.display()
            );
            return Err(Usage(reason).into());
        }
        Ok(splits)
    }
}

/// Returns the error of a run, which names the option of the command line if it is about one.
pub(crate) fn with_option(error: FitError) -> anyhow::Error {
    match error {
        FitError::Engine(hipvit::Error::Argument { what, reason }) if OPTIONS.contains(&what) => {
            Usage(format!("--{what} {reason}")).into()
        }
        other => other.into(),
    }
}

/// Options whose errors are errors of usage.
const OPTIONS: [&str; 2] = ["holdout", "image-size"];

/// Parses a share of less than all, such as `10%` or `0.1`.
fn parse_share(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.strip_suffix('%') {
        Some(number) => (number, 100.0),
        None => (text, 1.0),
    };
    match number.trim().parse::<f64>().map(|number| number / unit) {
        Ok(share) if (0.0..1.0).contains(&share) => Ok(share),
        _ => Err("expected a percentage below 100%, such as 10%".into()),
    }
}
