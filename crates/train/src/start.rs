//! Starts and resumes runs, from the options that the command line and Python take.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use hipvit::error::Error;
use hipvit::exec::Collectives;
use hipvit_data::Splits;

use crate::fit::{DataKind, Fit, FitError, FitOptions, check_recipe, divided, open_splits};
use crate::initial::{InitialModel, Start};
use crate::ranks::files;
use crate::ranks::messages::agree;
use crate::recipe::{Overrides, Recipe};
use crate::run_directory::{RunDirectory, RunFacts};
use crate::{MemoryLimit, RankPlan};

/// Data, model, recipe and output directory of a run.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Directory or file of the dataset.
    pub data: PathBuf,
    /// Share of the images that is held out for validation.
    pub holdout: f64,
    /// Output directory.
    pub output: PathBuf,
    /// Memory limit that takes precedence over the recipe's, also of a run that is resumed.
    pub memory: Option<MemoryLimit>,
    /// How the run starts.
    pub origin: Origin,
}

/// How a run starts.
#[derive(Clone, Debug, Default)]
pub enum Origin {
    /// After the newest checkpoint in the output directory.
    #[default]
    Checkpoint,
    /// As a new run in an empty directory.
    New {
        /// Model to fine-tune, or configuration or timm architecture without weights.
        model: PathBuf,
        /// Image size of a timm architecture.
        image_size: Option<usize>,
        /// TOML file, or name of a shipped recipe. By default `scratch-small`, `pairs` for pairs of images and captions, `texts` for a model that
        /// makes texts, or `maps` for one that predicts maps.
        recipe: Option<PathBuf>,
        /// Values that take precedence over the recipe's values.
        overrides: Overrides,
    },
}

/// A run that is ready.
#[derive(Debug)]
pub struct ReadyRun {
    /// The run.
    pub fit: Fit,
    /// Tensors of a checkpoint's classifier that were replaced for the classes of the dataset.
    pub replaced: Vec<String>,
    /// Directory of the model.
    pub model: PathBuf,
}

impl RunOptions {
    /// Opens the data and the model, and creates or reads the output directory.
    ///
    /// # Errors
    ///
    /// Returns a [`FitError`] for an option, a file or a device that cannot be used.
    pub fn ready(&self, options: FitOptions) -> Result<ReadyRun, FitError> {
        if let Some(collectives) = options.collectives.clone().filter(|ranks| ranks.rank() > 0) {
            return self.follow(&collectives, options);
        }
        let run = RunDirectory::at(&self.output);
        let model = run.model();
        let Origin::New {
            model: initial,
            image_size,
            recipe,
            overrides,
        } = &self.origin
        else {
            let recipe = self.limited(run.recipe()?);
            let splits = open_splits(&self.data, self.holdout, recipe.seed)?;
            run.check(&self.facts(&splits, &options))?;
            self.lead(&run, &splits, &options)?;
            let fit = Fit::new(run, recipe, splits, options, true)?;
            return Ok(ReadyRun {
                fit,
                replaced: Vec::new(),
                model,
            });
        };
        run.check_new()?;
        let splits = hipvit_data::open(&self.data)?;
        let kind = DataKind::of(&splits, initial)?;
        let recipe = Recipe::open(recipe.as_deref().unwrap_or(Path::new(kind.recipe())))?.with(overrides)?;
        let recipe = self.limited(recipe);
        check_recipe(&recipe, kind, options.collectives.is_some())?;
        if let Some(ranks) = &options.collectives {
            // Before the directory is created.
            RankPlan::new(ranks.rank(), ranks.ranks(), &recipe.ranks)?.share(recipe.batch)?;
        }
        let splits = divided(splits, &self.data, self.holdout, recipe.seed)?;
        let facts = self.facts(&splits, &options);
        let (initial, replaced) = initialize(initial, *image_size, (kind, &facts.classes), recipe.seed)?;
        let run = RunDirectory::create(&self.output, &recipe, &facts, &initial)?;
        self.lead(&run, &splits, &options)?;
        let fit = Fit::new(run, recipe, splits, options, false)?;
        Ok(ReadyRun { fit, replaced, model })
    }

    /// Sends the run directory to the other ranks, and compares the data.
    fn lead(&self, run: &RunDirectory, splits: &Splits, options: &FitOptions) -> Result<(), FitError> {
        let Some(collectives) = &options.collectives else {
            return Ok(());
        };
        files::send(collectives, &self.output, &run.files_to_start()?)?;
        Ok(agree(collectives, &self.compared(splits, options))?)
    }

    /// Opens the data, and starts from the files of rank 0.
    fn follow(&self, collectives: &Collectives, options: FitOptions) -> Result<ReadyRun, FitError> {
        let directory = tempfile::tempdir().map_err(|error| Error::io("temporary directory", error))?;
        files::receive(collectives, directory.path())?;
        let run = RunDirectory::at(directory.path());
        let recipe = self.limited(run.recipe()?);
        let splits = open_splits(&self.data, self.holdout, recipe.seed)?;
        agree(collectives, &self.compared(&splits, &options))?;
        let model = run.model();
        let fit = Fit::new(run, recipe, splits, options, true)?.with_temporary(directory);
        Ok(ReadyRun {
            fit,
            replaced: Vec::new(),
            model,
        })
    }

    /// Returns what must be equal at all ranks.
    fn compared(&self, splits: &Splits, options: &FitOptions) -> Vec<(String, String)> {
        let mut digest = DefaultHasher::new();
        for set in std::iter::once(&splits.train).chain(&splits.validation) {
            for index in 0..set.len() {
                (set.name(index), set.label(index)).hash(&mut digest);
            }
        }
        let facts = self.facts(splits, options);
        let memory = self.memory.map_or_else(String::new, |memory| memory.to_string());
        let facts = [
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("classes", facts.classes.join(", ")),
            ("training images", facts.train_images.to_string()),
            ("validation images", facts.val_images.to_string()),
            ("names of images (digest)", format!("{:016x}", digest.finish())),
            ("--holdout", facts.holdout),
            ("--dtype", facts.dtype),
            ("--memory", memory),
            ("--skip-broken", options.skip_broken.to_string()),
        ];
        facts
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    fn limited(&self, recipe: Recipe) -> Recipe {
        Recipe {
            memory: self.memory.unwrap_or(recipe.memory),
            ..recipe
        }
    }

    /// Returns what must not change when the run is resumed.
    fn facts(&self, splits: &Splits, options: &FitOptions) -> RunFacts {
        RunFacts {
            classes: if splits.train.has_captions() {
                vec![format!("captions {:016x}", digest(splits.train.classes()))]
            } else {
                splits.train.classes().to_vec()
            },
            train_images: splits.train.len(),
            val_images: splits.validation.as_ref().map_or(0, |set| set.len()),
            dtype: options.dtype.to_string(),
            holdout: self.holdout.to_string(),
        }
    }
}

/// Returns a digest of captions: FNV-1a, which no version of a library changes.
fn digest(captions: &[String]) -> u64 {
    let bytes = captions.iter().flat_map(|caption| caption.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Creates the model that training starts from: a classifier of `classes`, both towers of a dual encoder, an encoder with its decoder, or a model of maps. Returns it with
/// the tensors of a checkpoint that were replaced.
fn initialize(
    model: &Path,
    image_size: Option<usize>,
    (kind, classes): (DataKind, &[String]),
    seed: u64,
) -> Result<(InitialModel, Vec<String>), FitError> {
    let start = Start::of(model, image_size);
    if image_size.is_some() && !matches!(start, Start::Architecture { .. }) {
        let reason = "needs the name of a timm architecture: other models have their size";
        return Err(Error::argument("image-size", reason).into());
    }
    match kind {
        DataKind::Classes => {}
        DataKind::Pairs => return Ok((InitialModel::of_pairs(start, seed)?, Vec::new())),
        DataKind::Texts => return Ok((InitialModel::of_texts(start)?, Vec::new())),
        DataKind::Depth | DataKind::Masks => return Ok((InitialModel::of_maps(start, seed)?, Vec::new())),
        DataKind::Boxes => return Ok((InitialModel::of_boxes(start)?, Vec::new())),
    }
    let model = InitialModel::new(start, classes, seed)?;
    let replaced = if start.is_from_scratch() {
        Vec::new()
    } else {
        model.new_tensors().to_vec()
    };
    Ok((model, replaced))
}
