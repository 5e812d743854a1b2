//! The directory of a training run: its recipe, log, checkpoints, model and report.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hipvit::error::{Error, Result};
use hipvit_files::regular_file;
use serde::{Deserialize, Serialize};

use crate::fit::{FitError, newest_checkpoint};
use crate::initial::InitialModel;
use crate::recipe::Recipe;
use crate::trainer::Trainer;

const RECIPE: &str = "recipe.toml";
const FACTS: &str = "run.json";
const LOG: &str = "log.jsonl";
const EVALUATION: &str = "evaluation.json";
const REPORT: &str = "report.html";
const CHECKPOINTS: &str = "checkpoints";
const MODEL: &str = "model";
const BASE: &str = "base";
const ADAPTER: &str = "adapter";

/// Facts that must not change when a run is resumed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFacts {
    /// Names of the classes.
    pub classes: Vec<String>,
    /// Number of training images.
    pub train_images: usize,
    /// Number of validation images.
    pub val_images: usize,
    /// Dtype of activations and gradients.
    pub dtype: String,
    /// Share of the images that is held out for validation, as text.
    pub holdout: String,
}

/// Directory of a run.
#[derive(Clone, Debug)]
pub struct RunDirectory {
    path: PathBuf,
}

impl RunDirectory {
    /// Creates the directory with the recipe and the initial model.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] if the directory is not empty, and [`Error::Io`] if it cannot be written.
    pub fn create(path: &Path, recipe: &Recipe, facts: &RunFacts, model: &InitialModel) -> Result<Self> {
        let run = Self::at(path);
        run.check_new()?;
        fs::create_dir_all(path).map_err(|error| Error::io(path, error))?;
        run.replace(MODEL, |directory| model.write(directory))?;
        if recipe.lora.rank > 0 {
            run.replace(BASE, |directory| model.write(directory))?;
        }
        let text = serde_json::to_string_pretty(facts).map_err(|error| Error::internal("run", error))?;
        // The recipe is last. A run without one was not created completely.
        for (name, text) in [(FACTS, text + "\n"), (RECIPE, recipe.to_toml())] {
            let file = path.join(name);
            fs::write(&file, text).map_err(|error| Error::io(&file, error))?;
        }
        Ok(run)
    }

    /// Returns the directory at `path`, which need not exist.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }

    /// Checks that a new run can be created here.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] if the directory has a run or other files.
    pub fn check_new(&self) -> Result<()> {
        let refuse = |reason: &str| {
            let reason = format!("{} {reason}", self.path.display());
            Err(Error::argument("output directory", reason))
        };
        let mut entries = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(|error| Error::io(&self.path, error))?,
        };
        if self.path.join(RECIPE).exists() {
            return refuse("has a run already. Continue it with `resume`");
        }
        if entries.next().is_some() {
            return refuse("is not empty. Name an empty or a new directory");
        }
        Ok(())
    }

    /// Reads the recipe of the run.
    ///
    /// # Errors
    ///
    /// Returns a [`FitError`] if the directory has no run, or its recipe was changed to an invalid one.
    pub fn recipe(&self) -> Result<Recipe, FitError> {
        let file = self.path.join(RECIPE);
        if !file.exists() {
            let reason = format!("{} has no run. Start one without `resume`", self.path.display());
            return Err(Error::argument("resume", reason).into());
        }
        Ok(Recipe::open(&file)?)
    }

    /// Checks that data and dtype are those of the run.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] with the fact that differs.
    pub fn check(&self, facts: &RunFacts) -> Result<()> {
        let file = self.path.join(FACTS);
        let bytes = regular_file::read(&file).map_err(|error| Error::io(&file, error))?;
        let run: RunFacts = serde_json::from_slice(&bytes).map_err(|error| Error::config(&file, error))?;
        let differs = |what: &str, run: &dyn std::fmt::Display, now: &dyn std::fmt::Display| {
            let reason = format!(
                "{what} differ: the run has {run}, this command {now}. Resume with the data and options of the run"
            );
            Err(Error::argument("resume", reason))
        };
        match facts {
            _ if run.classes != facts.classes => {
                differs("the classes", &run.classes.join(", "), &facts.classes.join(", "))
            }
            _ if run.train_images != facts.train_images => differs(
                "the numbers of training images",
                &run.train_images,
                &facts.train_images,
            ),
            _ if run.val_images != facts.val_images => differs(
                "the numbers of validation images",
                &run.val_images,
                &facts.val_images,
            ),
            _ if run.dtype != facts.dtype => differs("the dtypes", &run.dtype, &facts.dtype),
            _ if run.holdout != facts.holdout => differs("the held-out shares", &run.holdout, &facts.holdout),
            _ => Ok(()),
        }
    }

    /// Returns the directory of the model.
    #[must_use]
    pub fn model(&self) -> PathBuf {
        self.path.join(MODEL)
    }

    /// Returns the directory of the model that training started from: of its own if the trained model does not have all of its weights.
    #[must_use]
    pub fn initial(&self) -> PathBuf {
        let base = self.path.join(BASE);
        if base.exists() { base } else { self.model() }
    }

    /// Returns the names of the files and directories that another rank of the run starts from.
    pub(crate) fn files_to_start(&self) -> Result<Vec<PathBuf>> {
        let initial = if self.path.join(BASE).exists() {
            BASE
        } else {
            MODEL
        };
        let mut names = vec![RECIPE.into(), FACTS.into(), initial.into()];
        if let Some(newest) = newest_checkpoint(self.checkpoints())? {
            names.extend(newest.file_name().map(|name| Path::new(CHECKPOINTS).join(name)));
        }
        Ok(names)
    }

    /// Returns the path of the log.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.path.join(LOG)
    }

    /// Returns the path of the last evaluation.
    #[must_use]
    pub fn evaluation(&self) -> PathBuf {
        self.path.join(EVALUATION)
    }

    /// Returns the path of the report.
    #[must_use]
    pub fn report(&self) -> PathBuf {
        self.path.join(REPORT)
    }

    /// Returns the name of the directory.
    #[must_use]
    pub fn name(&self) -> String {
        let path = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        let name = path.file_name().unwrap_or(path.as_os_str());
        name.to_string_lossy().into_owned()
    }

    /// Returns the directory of the checkpoints.
    #[must_use]
    pub fn checkpoints(&self) -> PathBuf {
        self.path.join(CHECKPOINTS)
    }

    /// Writes the model with the trainer's weights. Files that the trainer does not write, such as those of the tokenizer, are the initial model's.
    pub(crate) fn write_model(&self, trainer: &Trainer) -> Result<()> {
        self.replace(MODEL, |directory| {
            trainer.write_model(directory)?;
            copy_missing(&self.initial(), directory)
        })
    }

    /// Writes the trainer's updates of low rank, if there are any. The adapter names the initial model of this run as its base.
    pub(crate) fn write_adapter(&self, trainer: &Trainer) -> Result<()> {
        let base = self.path.join(BASE);
        if !base.exists() {
            return Ok(());
        }
        let base = base.canonicalize().map_err(|error| Error::io(&base, error))?;
        self.replace(ADAPTER, |directory| {
            trainer
                .write_adapter(directory, &base.to_string_lossy())
                .map(drop)
        })
    }

    /// Writes the directory `name` under another name, and then replaces the old one by it.
    fn replace(&self, name: &str, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        let [part, old] = ["part", "old"].map(|end| self.path.join(format!(".{name}.{end}")));
        let model = self.path.join(name);
        for left in [&part, &old] {
            if left.exists() {
                fs::remove_dir_all(left).map_err(|error| Error::io(left, error))?;
            }
        }
        fs::create_dir(&part).map_err(|error| Error::io(&part, error))?;
        if let Err(error) = write(&part) {
            let _ = fs::remove_dir_all(&part);
            return Err(error);
        }
        if model.exists() {
            fs::rename(&model, &old).map_err(|error| Error::io(&model, error))?;
        }
        fs::rename(&part, &model).map_err(|error| Error::io(&model, error))?;
        if old.exists() {
            fs::remove_dir_all(&old).map_err(|error| Error::io(&old, error))?;
        }
        Ok(())
    }
}

/// Copies the files of a directory that `to` lacks.
fn copy_missing(from: &Path, to: &Path) -> Result<()> {
    let io = |error| Error::io(from, error);
    for entry in fs::read_dir(from).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        let (source, copy) = (from.join(&name), to.join(&name));
        if !copy.exists() {
            fs::copy(&source, &copy).map_err(|error| Error::io(&source, error))?;
        }
    }
    Ok(())
}
