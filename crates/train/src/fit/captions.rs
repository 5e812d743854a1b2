//! The captions of a run on pairs of images and texts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use hipvit::error::Error;
use hipvit::model::{LoadOptions, TextInput, TextTower, Tokenizer, load};
use hipvit_data::{Dataset, Splits};
use rayon::prelude::*;

use super::error::FitError;
use super::kind::DataKind;
use crate::recipe::{self, Crop, Freeze, Policy, QuantizationKind, Recipe};
use crate::{ContrastiveOptions, PairOptions};

/// Token counts of steps are multiples of this, as far as the context allows.
const TOKENS_STEP: usize = 8;

/// Captions as tokens, and the loss of the model's family.
#[derive(Debug)]
pub(super) struct Captions {
    /// By the number of the caption.
    train: BTreeMap<usize, TextInput>,
    validation: BTreeMap<usize, TextInput>,
    truncated: usize,
    /// True if the token that represents a text depends on the text.
    has_places: bool,
    pub(super) pairs: PairOptions,
}

/// Captions of a batch.
#[derive(Debug, Default)]
pub(super) struct CaptionBatch {
    /// `[images, tokens]`.
    pub(super) tokens: Vec<i32>,
    /// `[images, tokens]`, or empty.
    pub(super) places: Vec<f32>,
}

impl Captions {
    /// Converts the captions of the splits by the tokenizer of the model in `directory`.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for a model without a text tower. The errors of loading the model and of the tokenizer.
    pub(super) fn open(directory: &Path, splits: &Splits) -> Result<Self, FitError> {
        let model = load(directory, &LoadOptions::default())?;
        let tower = text_tower(model.text.as_ref(), directory)?;
        let tokenizer = tower.tokenizer()?;
        let (train, truncated) = inputs(tower, &tokenizer, &*splits.train)?;
        let validation = match &splits.validation {
            Some(set) => inputs(tower, &tokenizer, &**set)?.0,
            None => BTreeMap::new(),
        };
        let texts = train.values().chain(validation.values());
        let longest = texts.map(|text| text.ids.len()).max();
        let tokens = tower.needed(longest.unwrap_or(1).next_multiple_of(TOKENS_STEP));
        Ok(Self {
            train,
            validation,
            truncated,
            has_places: tower.pools_by_text(),
            pairs: PairOptions::of(tower, tokens),
        })
    }

    /// Returns the number of training captions that are longer than the model's context.
    pub(super) fn truncated(&self) -> usize {
        self.truncated
    }

    /// Returns the function of similarities, with the values before training.
    pub(super) fn contrastive(&self) -> &ContrastiveOptions {
        &self.pairs.contrastive
    }

    /// Returns the captions with these numbers as inputs of a step.
    pub(super) fn batch(&self, labels: &[usize]) -> CaptionBatch {
        let width = self.pairs.tokens;
        let mut batch = CaptionBatch::default();
        for (row, &label) in labels.iter().enumerate() {
            let TextInput { ids, place } = &self.train[&label];
            batch.tokens.extend(ids.iter().take(width).map(|&id| id as i32));
            batch.tokens.resize((row + 1) * width, 0);
            if self.has_places {
                batch.places.resize((row + 1) * width, 0.0);
                batch.places[row * width + place] = 1.0;
            }
        }
        batch
    }

    /// Returns the ids of a validation caption.
    pub(super) fn validation(&self, label: usize) -> &[u32] {
        &self.validation[&label].ids
    }
}

/// Returns the text tower of a model.
///
/// # Errors
///
/// [`Error::Argument`] if it has none.
pub(crate) fn text_tower<'a>(tower: Option<&'a TextTower>, directory: &Path) -> Result<&'a TextTower, Error> {
    tower.ok_or_else(|| {
        let reason = format!(
            "{} has no text tower, which training on pairs of images and captions needs. CLIP and SigLIP models with both towers have one",
            directory.display()
        );
        Error::argument("model", reason)
    })
}

/// Returns the captions of a dataset's images as tokens, by their numbers, and how many of them are truncated.
fn inputs(
    tower: &TextTower,
    tokenizer: &Tokenizer,
    dataset: &dyn Dataset,
) -> Result<(BTreeMap<usize, TextInput>, usize), FitError> {
    // After a hold-out, both splits name the captions of all pairs.
    let labels: BTreeSet<usize> = (0..dataset.len()).map(|index| dataset.label(index)).collect();
    let encoded = labels.into_par_iter().map(|label| {
        let tokens = tokenizer.encode(&dataset.classes()[label])?;
        tower.check_ids(&tokens.ids)?;
        Ok::<_, Error>((label, tower.pair_input(tokens.ids), tokens.truncated))
    });
    let encoded: Vec<(usize, TextInput, bool)> = encoded.collect::<Result<_, _>>()?;
    let truncated = encoded.iter().filter(|(_, _, truncated)| *truncated).count();
    let texts = encoded.into_iter().map(|(label, text, _)| (label, text));
    Ok((texts.collect(), truncated))
}

/// Checks that the recipe fits the kind of the data.
///
/// # Errors
///
/// [`Error::Argument`] with the key.
pub(crate) fn check(recipe: &Recipe, kind: DataKind, has_ranks: bool) -> Result<(), Error> {
    let of_pairs = recipe.loss.kind == recipe::LossKind::Contrastive;
    let names_tower = matches!(recipe.freeze, Freeze::Image | Freeze::Text);
    if kind == DataKind::Texts {
        return check_texts(recipe, has_ranks);
    }
    if matches!(kind, DataKind::Depth | DataKind::Masks | DataKind::Boxes) {
        return check_maps(recipe, kind, has_ranks);
    }
    if kind == DataKind::Classes {
        return match (of_pairs, names_tower) {
            (true, _) => Err(Error::argument(
                "loss.kind",
                "is contrastive, but the data are images with classes, not with captions",
            )),
            (_, true) => Err(Error::argument(
                "freeze",
                "names a tower, but the data are images with classes, which train one tower. Give a number of layers, or backbone",
            )),
            _ => Ok(()),
        };
    }
    let augmentation = &recipe.augmentation;
    let of_layers = !names_tower && recipe.freeze != Freeze::default();
    let refusals = [
        (
            !of_pairs,
            "loss.kind",
            "is a loss of classes, but the data are pairs of images and captions. Set it to contrastive, or start from the recipe pairs",
        ),
        (
            recipe.loss.label_smoothing > 0.0,
            "loss.label_smoothing",
            "is for classes, but the data are pairs of images and captions. Set it to 0",
        ),
        (
            has_ranks,
            "ranks",
            "cannot train on pairs, whose loss compares all pairs of a batch in one process. Start one process",
        ),
        (
            recipe.accumulate != 1,
            "accumulate",
            "must be 1: a contrastive loss compares all pairs of a batch, which is not divided",
        ),
        (
            augmentation.mixup > 0.0 || augmentation.cutmix > 0.0,
            "augmentation.mixup",
            "mixes images of different classes. Pairs have captions: set mixup and cutmix to 0",
        ),
        (
            drops(recipe),
            "dropout",
            "and drop_path are not for training on pairs. Set them to 0",
        ),
        (
            !recipe.distillation.teacher.is_empty(),
            "distillation.teacher",
            "has classes, but the data are pairs of images and captions. Leave it out",
        ),
        (
            recipe.quantization.kind != QuantizationKind::None,
            "quantization.kind",
            "is not for training on pairs. Set it to none",
        ),
        (
            of_layers,
            "freeze",
            "is a number of layers of one tower. For pairs, name a tower: image or text",
        ),
        (
            names_tower && recipe.lora.rank > 0,
            "freeze",
            "names a tower, but LoRA trains both. Leave one of the two out",
        ),
    ];
    refuse_first(refusals)
}

/// Checks that the recipe fits a decoder of texts.
fn check_texts(recipe: &Recipe, has_ranks: bool) -> Result<(), Error> {
    let names_tower = matches!(recipe.freeze, Freeze::Image | Freeze::Text);
    let augmentation = &recipe.augmentation;
    refuse_first([
        (
            recipe.loss.kind != recipe::LossKind::CrossEntropy,
            "loss.kind",
            "is not for texts. Set it to cross_entropy, or start from the recipe texts",
        ),
        (
            recipe.loss.label_smoothing > 0.0,
            "loss.label_smoothing",
            "is for classes, but the model makes texts. Set it to 0",
        ),
        (
            has_ranks,
            "ranks",
            "cannot train on texts: the loss is the mean over the tokens of a batch, which one process counts. Start one process",
        ),
        (
            augmentation.mixup > 0.0 || augmentation.cutmix > 0.0,
            "augmentation.mixup",
            "mixes images of different classes. Images with texts have none: set mixup and cutmix to 0",
        ),
        (
            augmentation.flip > 0.0 || augmentation.vertical_flip > 0.0,
            "augmentation.flip",
            "mirrors the letters of texts. Set flip and vertical_flip to 0",
        ),
        (
            drops(recipe),
            "dropout",
            "and drop_path are not for training on texts. Set them to 0",
        ),
        (
            !recipe.distillation.teacher.is_empty(),
            "distillation.teacher",
            "has classes, but the model makes texts. Leave it out",
        ),
        (
            recipe.quantization.kind != QuantizationKind::None,
            "quantization.kind",
            "is not for training on texts. Set it to none",
        ),
        (
            recipe.lora.rank > 0,
            "lora.rank",
            "is not for training on texts. Set it to 0",
        ),
        (
            !names_tower && recipe.freeze != Freeze::default(),
            "freeze",
            "is a number of layers of one tower. For a model that makes texts, name a half: image (the encoder) or text (the decoder)",
        ),
    ])
}

/// Checks that the recipe fits a model of maps or boxes.
fn check_maps(recipe: &Recipe, kind: DataKind, has_ranks: bool) -> Result<(), Error> {
    let (names_tower, has_halves) = (
        matches!(recipe.freeze, Freeze::Image | Freeze::Text),
        kind == DataKind::Masks,
    );
    let augmentation = &recipe.augmentation;
    let moves = augmentation.crop != Crop::None
        || augmentation.flip > 0.0
        || augmentation.vertical_flip > 0.0
        || augmentation.policy != Policy::None;
    refuse_first([
        (
            recipe.loss.kind != recipe::LossKind::CrossEntropy || recipe.loss.label_smoothing > 0.0,
            "loss",
            "is for classes, but the model predicts maps or boxes, which have losses of their own. Leave kind out, and set label_smoothing to 0",
        ),
        (
            has_ranks,
            "ranks",
            "cannot train on maps or boxes, which one process evaluates. Start one process",
        ),
        (
            moves,
            "augmentation",
            "moves pixels, but not its maps or boxes. Set crop and policy to none, flip and vertical_flip to 0",
        ),
        (
            augmentation.mixup > 0.0 || augmentation.cutmix > 0.0,
            "augmentation.mixup",
            "mixes images of different classes. Images with maps or boxes have none: set mixup and cutmix to 0",
        ),
        (
            drops(recipe),
            "dropout",
            "and drop_path are not for training on maps or boxes. Set them to 0",
        ),
        (
            !recipe.distillation.teacher.is_empty(),
            "distillation.teacher",
            "has classes, but the model predicts maps or boxes. Leave it out",
        ),
        (
            recipe.quantization.kind != QuantizationKind::None,
            "quantization.kind",
            "is not for training on maps or boxes. Set it to none",
        ),
        (
            recipe.lora.rank > 0,
            "lora.rank",
            "is not for training on maps or boxes. Set it to 0",
        ),
        (
            names_tower && !has_halves,
            "freeze",
            "names a tower, but the model has one. Give a number of layers, or backbone",
        ),
        (
            has_halves && !names_tower && recipe.freeze != Freeze::default(),
            "freeze",
            "is a number of layers of one tower. For SAM, name a half: image (the encoder) or text (prompts and decoder)",
        ),
    ])
}

/// Returns true if the recipe has elements that become 0 at random.
fn drops(recipe: &Recipe) -> bool {
    let dropout = &recipe.dropout;
    let drops = [
        recipe.drop_path,
        dropout.drop_rate,
        dropout.proj_drop_rate,
        dropout.pos_drop_rate,
    ];
    drops.iter().any(|&probability| probability > 0.0)
}

/// Returns an error for the first refusal that applies. Each has a key and a reason.
fn refuse_first<const N: usize>(refusals: [(bool, &'static str, &'static str); N]) -> Result<(), Error> {
    match refusals.into_iter().find(|(is_refused, _, _)| *is_refused) {
        Some((_, key, reason)) => Err(Error::argument(key, reason)),
        None => Ok(()),
    }
}
