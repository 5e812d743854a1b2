//! Recipes: everything that determines a training run, apart from model, data and device. They are TOML files.

mod keys;
mod optimizer;
mod overrides;
mod quantization;
mod ranks;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use hipvit_files::regular_file;

pub use self::keys::{
    AugmentOn, Augmentation, Checkpoints, Crop, Depth, Distillation, Dropout, EvaluationKeys, Freeze, Lora,
    Loss, LossKind, Optimizer, OptimizerKind, Policy, Recipe, ScheduleKeys,
};
pub use self::overrides::Overrides;
pub use self::quantization::{Float8Scales, Float8Selection, Quantization, QuantizationKind};
pub use self::ranks::{Compression, RankKeys, Shard, Wire};
use crate::optimizer::Moments;
use crate::schedule::Schedule;

/// Shipped recipes, by name.
const SHIPPED: [(&str, &str); 6] = [
    ("digits", include_str!("../recipes/digits.toml")),
    ("scratch-small", include_str!("../recipes/scratch-small.toml")),
    ("fine-tune", include_str!("../recipes/fine-tune.toml")),
    ("pairs", include_str!("../recipes/pairs.toml")),
    ("texts", include_str!("../recipes/texts.toml")),
    ("maps", include_str!("../recipes/maps.toml")),
];

/// The reason why a recipe cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecipeError {
    /// The file cannot be read.
    #[error("{}: {source}", file.display())]
    Io {
        /// The recipe.
        file: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The file is not TOML, or has an unknown key or a value of another type.
    #[error("{}, line {line}: {reason}", file.display())]
    Syntax {
        /// The recipe.
        file: PathBuf,
        /// Line of the file, counted from 1.
        line: usize,
        /// Cause, with the key.
        reason: String,
    },
    /// A value is out of range.
    #[error("{}: `{key}` {reason}", file.display())]
    Value {
        /// The recipe.
        file: PathBuf,
        /// Key with its section.
        key: &'static str,
        /// Cause.
        reason: String,
    },
    /// A value that overrides a key is invalid.
    #[error("options of the recipe: {reason}")]
    Override {
        /// Cause, with the key.
        reason: String,
    },
    /// No file and no shipped recipe has the name.
    #[error(
        "{name}: neither a file nor a shipped recipe. The shipped recipes are {}",
        Names
    )]
    Unknown {
        /// The name.
        name: String,
    },
}

/// The names of the shipped recipes, as text.
struct Names;

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Recipe::shipped().collect::<Vec<_>>().join(", "))
    }
}

impl Recipe {
    /// Returns the names of the shipped recipes.
    pub fn shipped() -> impl Iterator<Item = &'static str> {
        SHIPPED.iter().map(|(name, _)| *name)
    }

    /// Reads a recipe: a file, or a shipped recipe by its name. A file comes first, but not a directory, such as one of the data.
    ///
    /// # Errors
    ///
    /// Returns a [`RecipeError`] that names the file and the key.
    pub fn open(path: &Path) -> Result<Self, RecipeError> {
        let shipped = SHIPPED.iter().find(|(name, _)| Path::new(name) == path);
        let text = match (regular_file::read(path), shipped) {
            (Ok(bytes), _) => String::from_utf8_lossy(&bytes).into_owned(),
            (Err(error), Some((_, text))) if error.kind() == io::ErrorKind::NotFound || path.is_dir() => {
                (*text).to_owned()
            }
            (Err(error), None) if error.kind() == io::ErrorKind::NotFound => {
                return Err(RecipeError::Unknown {
                    name: path.display().to_string(),
                });
            }
            (Err(source), _) => {
                let file = path.to_owned();
                return Err(RecipeError::Io { file, source });
            }
        };
        Self::parse(path, &text)
    }

    /// Parses the text of a recipe. Errors name `file`.
    ///
    /// # Errors
    ///
    /// Returns [`RecipeError::Syntax`] for an unknown key and [`RecipeError::Value`] for a value out of range.
    pub fn parse(file: &Path, text: &str) -> Result<Self, RecipeError> {
        let recipe: Self = toml::from_str(text).map_err(|error| RecipeError::Syntax {
            file: file.to_owned(),
            line: error.span().map_or(1, |span| line_of(text, span.start)),
            reason: error.message().replace("unknown field", "unknown key"),
        })?;
        recipe.check(file)?;
        Ok(recipe)
    }

    /// Returns the number of images of a micro-batch.
    #[must_use]
    pub fn micro_batch(&self) -> usize {
        self.batch.div_ceil(self.accumulate.max(1))
    }

    /// Checks the ranges of all values. Errors name `file`.
    ///
    /// # Errors
    ///
    /// Returns [`RecipeError::Value`] for the first value out of range.
    pub fn check(&self, file: &Path) -> Result<(), RecipeError> {
        for (key, is_valid, expected) in self.ranges() {
            if !is_valid {
                return Err(RecipeError::Value {
                    file: file.to_owned(),
                    key,
                    reason: format!("is out of range: expected {expected}"),
                });
            }
        }
        Ok(())
    }

    /// Returns each key that has a range, whether its value is inside, and the range.
    fn ranges(&self) -> impl Iterator<Item = (&'static str, bool, &'static str)> {
        let Self {
            optimizer,
            schedule,
            augmentation,
            ..
        } = self;
        let positive = |value: f64| value > 0.0 && value.is_finite();
        let not_negative = |value: f64| value >= 0.0 && value.is_finite();
        let share = |value: f64| (0.0..=1.0).contains(&value);
        let increasing = |[low, high]: [f64; 2]| positive(low) && low <= high && high.is_finite();
        let below_1 = |value: f64| (0.0..1.0).contains(&value);
        const POSITIVE: &str = "a number above 0";
        const NOT_NEGATIVE: &str = "0 or a number above 0";
        const SHARE: &str = "a number from 0 to 1";
        const BELOW_1: &str = "a number from 0 to below 1";
        const RANGE: &str = "two numbers above 0, the smaller first";
        let betas = optimizer.betas.into_iter().all(below_1);
        let jitter = augmentation.color_jitter;
        [
            ("epochs", self.epochs > 0, "at least 1"),
            // TOML has signed integers.
            (
                "seed",
                i64::try_from(self.seed).is_ok(),
                "at most 9223372036854775807",
            ),
            ("batch", self.batch > 0, "at least 1"),
            (
                "accumulate",
                self.accumulate <= self.batch,
                "at most the number of images per step",
            ),
            ("clip_norm", not_negative(self.clip_norm), NOT_NEGATIVE),
            ("lora.alpha", positive(self.lora.alpha), POSITIVE),
            ("quantization.max_rate", share(self.quantization.max_rate), SHARE),
            (
                "layer_decay",
                positive(self.layer_decay) && self.layer_decay <= 1.0,
                "a number above 0, at most 1",
            ),
            ("drop_path", below_1(self.drop_path), BELOW_1),
            ("ema_decay", below_1(self.ema_decay), BELOW_1),
            ("dropout.drop_rate", below_1(self.dropout.drop_rate), BELOW_1),
            (
                "dropout.proj_drop_rate",
                below_1(self.dropout.proj_drop_rate),
                BELOW_1,
            ),
            (
                "dropout.attn_drop_rate",
                self.dropout.attn_drop_rate == 0.0,
                "0, as attention is computed without storing the probabilities that would be dropped",
            ),
            (
                "dropout.pos_drop_rate",
                below_1(self.dropout.pos_drop_rate),
                BELOW_1,
            ),
            (
                "loss.label_smoothing",
                below_1(self.loss.label_smoothing),
                BELOW_1,
            ),
            ("distillation.alpha", share(self.distillation.alpha), SHARE),
            (
                "distillation.temperature",
                positive(self.distillation.temperature),
                POSITIVE,
            ),
            (
                "optimizer.states",
                optimizer.states == Moments::F32 || optimizer.kind == OptimizerKind::AdamW,
                "f32, or the kind adamw",
            ),
            ("optimizer.lr", positive(optimizer.lr), POSITIVE),
            ("optimizer.betas", betas, "two numbers from 0 to below 1"),
            ("optimizer.eps", positive(optimizer.eps), POSITIVE),
            ("optimizer.momentum", below_1(optimizer.momentum), BELOW_1),
            (
                "optimizer.nesterov",
                !optimizer.nesterov || (optimizer.kind == OptimizerKind::Sgd && optimizer.momentum > 0.0),
                "false, or the kind sgd with a momentum above 0",
            ),
            (
                "optimizer.weight_decay",
                not_negative(optimizer.weight_decay),
                NOT_NEGATIVE,
            ),
            (
                "schedule.warmup_epochs",
                not_negative(schedule.warmup_epochs),
                NOT_NEGATIVE,
            ),
            (
                "schedule.warmup_lr",
                not_negative(schedule.warmup_lr),
                NOT_NEGATIVE,
            ),
            ("schedule.min_lr", not_negative(schedule.min_lr), NOT_NEGATIVE),
            (
                "augmentation.scale",
                increasing(augmentation.scale) && augmentation.scale[1] <= 1.0,
                "two numbers above 0, at most 1, the smaller first",
            ),
            ("augmentation.ratio", increasing(augmentation.ratio), RANGE),
            ("augmentation.flip", share(augmentation.flip), SHARE),
            (
                "augmentation.vertical_flip",
                share(augmentation.vertical_flip),
                SHARE,
            ),
            (
                "augmentation.magnitude",
                augmentation.magnitude <= 30,
                "at most 30",
            ),
            (
                "augmentation.color_jitter",
                jitter[..3].iter().all(|&v| not_negative(v)) && (0.0..=0.5).contains(&jitter[3]),
                "four numbers: three not below 0, and a hue of at most 0.5",
            ),
            ("augmentation.erasing", share(augmentation.erasing), SHARE),
            (
                "augmentation.mixup",
                not_negative(augmentation.mixup),
                NOT_NEGATIVE,
            ),
            (
                "augmentation.cutmix",
                not_negative(augmentation.cutmix),
                NOT_NEGATIVE,
            ),
            ("depth.scale", positive(self.depth.scale), POSITIVE),
            ("evaluation.every", self.evaluation.every > 0, "at least 1"),
            ("checkpoints.every", self.checkpoints.every > 0, "at least 1"),
            ("checkpoints.keep", self.checkpoints.keep > 0, "at least 1"),
        ]
        .into_iter()
    }

    /// Returns the recipe as a TOML file with all keys.
    pub fn to_toml(&self) -> String {
        // Every value is a number, a string, a boolean or an array of numbers, which TOML can represent.
        toml::to_string(self).unwrap_or_default()
    }

    /// Returns the learning rate schedule of a run with `steps_per_epoch` steps per epoch.
    #[must_use]
    pub fn schedule(&self, steps_per_epoch: u64) -> Schedule {
        Schedule {
            decay: self.schedule.kind,
            peak: self.optimizer.lr,
            minimum: self.schedule.min_lr,
            warmup_start: self.schedule.warmup_lr,
            warmup_steps: (self.schedule.warmup_epochs * steps_per_epoch as f64).round() as u64,
            steps: self.epochs * steps_per_epoch,
        }
    }
}

/// Returns the line of the byte `offset` in `text`, counted from 1.
fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|&byte| byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Recipe, String> {
        Recipe::parse(Path::new("r.toml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn shipped_recipes_are_valid_and_have_names() {
        for (name, text) in SHIPPED {
            let recipe = Recipe::open(Path::new(name)).unwrap();
            assert_eq!(recipe, parse(text).unwrap(), "{name}");
            assert_ne!(recipe, Recipe::default(), "{name}");
        }
    }

    #[test]
    fn the_documented_keys_are_all_keys_with_their_defaults() {
        let page = include_str!("../../../docs/training.md");
        let (_, rest) = page.split_once("```toml\n").unwrap();
        let (text, _) = rest.split_once("```").unwrap();
        assert_eq!(parse(text).unwrap(), Recipe::default());
        let keys = |text: &str| -> toml::Table { toml::from_str(text).unwrap() };
        assert_eq!(keys(text), keys(&Recipe::default().to_toml()));
    }

    #[test]
    fn a_written_recipe_is_read_back() {
        let mut recipe = Recipe::open(Path::new("fine-tune")).unwrap();
        recipe.optimizer.lr = 1.0 / 3.0;
        recipe.augmentation.policy = Policy::TrivialAugmentWide;
        assert_eq!(parse(&recipe.to_toml()).unwrap(), recipe);
    }

    #[test]
    fn frozen_layers_are_a_number_the_backbone_or_a_tower() {
        for (text, freeze) in [
            ("freeze = \"image\"", Freeze::Image),
            ("freeze = \"text\"", Freeze::Text),
            ("freeze = 3", Freeze::Layers(3)),
            ("freeze = \"3\"", Freeze::Layers(3)),
            ("freeze = \"backbone\"", Freeze::Backbone),
        ] {
            let recipe = parse(text).unwrap();
            assert_eq!(recipe.freeze, freeze);
            assert_eq!(parse(&recipe.to_toml()).unwrap(), recipe);
        }
        for text in ["freeze = -1", "freeze = \"head\"", "freeze = true"] {
            let error = parse(text).unwrap_err();
            assert!(
                error.starts_with("r.toml, line 1:") && error.contains("backbone"),
                "{error}"
            );
        }
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_line() {
        let error = parse("epochs = 3\n[optimizer]\nlearning_rate = 1.0\n").unwrap_err();
        assert!(
            error.starts_with("r.toml, line 3: unknown key `learning_rate`"),
            "{error}"
        );
        let error = parse("epochs = 3\nmomentum = 0.9\n").unwrap_err();
        assert!(
            error.starts_with("r.toml, line 2: unknown key `momentum`"),
            "{error}"
        );
        let error = parse("[loss]\nkind = \"hinge\"\n").unwrap_err();
        assert!(
            error.contains("line 2") && error.contains("cross_entropy"),
            "{error}"
        );
    }

    #[test]
    fn a_value_out_of_range_is_refused_by_its_key() {
        for (text, key) in [
            ("epochs = 0", "epochs"),
            ("batch = 2\naccumulate = 3", "accumulate"),
            ("layer_decay = 1.5", "layer_decay"),
            ("[optimizer]\nlr = nan", "optimizer.lr"),
            ("[optimizer]\nbetas = [0.9, 1.0]", "optimizer.betas"),
            ("ema_decay = 1.0", "ema_decay"),
            ("[distillation]\nalpha = 1.5", "distillation.alpha"),
            ("[distillation]\ntemperature = 0.0", "distillation.temperature"),
            ("[optimizer]\nnesterov = true", "optimizer.nesterov"),
            (
                "[optimizer]\nkind = \"lion\"\nstates = \"bf16\"",
                "optimizer.states",
            ),
            ("[dropout]\ndrop_rate = 1.0", "dropout.drop_rate"),
            ("[dropout]\nproj_drop_rate = -0.1", "dropout.proj_drop_rate"),
            ("[dropout]\nattn_drop_rate = 0.1", "dropout.attn_drop_rate"),
            ("[dropout]\npos_drop_rate = 1.5", "dropout.pos_drop_rate"),
            ("[evaluation]\nevery = 0", "evaluation.every"),
            ("[augmentation]\nscale = [0.5, 0.1]", "augmentation.scale"),
            ("[checkpoints]\nkeep = 0", "checkpoints.keep"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(
                error.starts_with(&format!("r.toml: `{key}` is out of range")),
                "{error}"
            );
        }
    }

    #[test]
    fn a_name_that_is_no_recipe_is_refused_with_the_names() {
        let error = Recipe::open(Path::new("imagenet")).unwrap_err().to_string();
        assert!(
            error.contains("imagenet") && error.contains("fine-tune"),
            "{error}"
        );
    }
}
