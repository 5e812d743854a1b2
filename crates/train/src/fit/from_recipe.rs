//! The trainer that a recipe describes.

use hipvit::error::Error;
use hipvit::model::{Checkpoint, InputKind};

use super::error::FitError;
use super::options::FitOptions;
use crate::dropout::DropOptions;
use crate::groups::{Tower, decays, levels, rate_factors};
use crate::micro_batches;
use crate::ranks::Ranks;
use crate::recipe::{self, Freeze, Recipe};
use crate::trained::{TensorInfo, TensorRule};
use crate::trainer::{TrainOptions, Trainer};
use crate::{DistillationLoss, LoraOptions, LossKind, MemoryBudget, Objective, PrecisionOptions};

/// Returns the form of the images. Erased rectangles are in normalised images.
pub(super) fn input_kind(recipe: &Recipe) -> InputKind {
    if recipe.augmentation.erasing > 0.0 {
        InputKind::PixelValues
    } else {
        InputKind::Pixels
    }
}

pub(super) fn loss_kind(recipe: &Recipe) -> LossKind {
    match recipe.loss.kind {
        // Evaluations on pairs compare an image with all captions.
        recipe::LossKind::CrossEntropy | recipe::LossKind::Contrastive => LossKind::CrossEntropy,
        recipe::LossKind::Bce => LossKind::BinaryCrossEntropy,
        recipe::LossKind::Mse => LossKind::MeanSquaredError,
    }
}

fn drop_options(recipe: &Recipe) -> DropOptions {
    let recipe::Dropout {
        drop_rate,
        proj_drop_rate,
        pos_drop_rate,
        ..
    } = recipe.dropout;
    DropOptions {
        path: recipe.drop_path as f32,
        head: drop_rate as f32,
        projections: proj_drop_rate as f32,
        positions: pos_drop_rate as f32,
    }
}

/// Returns for each tensor whether it is trained, and the factor of its learning rate.
fn of_layers(names: &[&str], recipe: &Recipe) -> Result<(Vec<bool>, Vec<f64>), FitError> {
    let (levels, head) = levels(names);
    let frozen = match recipe.freeze {
        Freeze::Layers(layers) if layers > head => {
            let reason = format!("is {layers}, but the model has {head} layers before the classifier");
            return Err(Error::argument("freeze", reason).into());
        }
        Freeze::Layers(layers) if recipe.lora.rank == 0 => layers,
        _ => head,
    };
    let trained = levels.iter().map(|&level| level >= frozen).collect();
    Ok((trained, rate_factors(names, recipe.layer_decay)))
}

/// Returns for each tensor of a model with two halves, such as a dual encoder, whether it is trained, and the factor of its learning rate. Each tower has its own layers.
fn of_towers(names: &[&str], recipe: &Recipe) -> (Vec<bool>, Vec<f64>) {
    let (mut trained, mut factors) = (vec![true; names.len()], vec![1.0; names.len()]);
    for (tower, freeze) in [(Tower::Image, Freeze::Image), (Tower::Text, Freeze::Text)] {
        let is_of_tower = |place: &usize| Tower::of(names[*place]) == Some(tower);
        let places: Vec<usize> = (0..names.len()).filter(is_of_tower).collect();
        let own: Vec<&str> = places.iter().map(|&place| names[place]).collect();
        let (levels, head) = levels(&own);
        let rates = rate_factors(&own, recipe.layer_decay);
        for ((&place, level), rate) in places.iter().zip(levels).zip(rates) {
            let is_frozen = recipe.freeze == freeze || (recipe.lora.rank > 0 && level < head);
            trained[place] = !is_frozen;
            factors[place] = rate;
        }
    }
    (trained, factors)
}

/// Returns what the steps of a recipe minimise.
fn objective(recipe: &Recipe) -> Objective {
    let base = loss_kind(recipe);
    let keys = &recipe.distillation;
    if keys.teacher.is_empty() {
        return base.into();
    }
    Objective::Distillation(DistillationLoss {
        base,
        kind: keys.kind,
        alpha: keys.alpha as f32,
        temperature: keys.temperature as f32,
    })
}

/// Returns the number of images of a micro-batch of a rank.
pub(super) fn images_per_run(recipe: &Recipe, ranks: Option<&Ranks>) -> Result<usize, FitError> {
    let images = match ranks {
        Some(ranks) => ranks.plan.share(recipe.batch)?,
        None => recipe.batch,
    };
    Ok(images.div_ceil(recipe.accumulate.max(1)))
}

/// Creates the trainer that the recipe describes. Without `objective`, the data have classes.
pub(super) fn new_trainer(
    checkpoint: Checkpoint,
    recipe: &Recipe,
    options: &FitOptions,
    ranks: Option<Ranks>,
    of_data: Option<Objective>,
) -> Result<Trainer, FitError> {
    let names: Vec<String> = checkpoint.names().map(str::to_owned).collect();
    let views: Vec<&str> = names.iter().map(String::as_str).collect();
    let (trained, factors) = match of_data {
        Some(Objective::Pairs(_) | Objective::Texts(_) | Objective::Masks) => of_towers(&views, recipe),
        _ => of_layers(&views, recipe)?,
    };
    let optimizer = &recipe.optimizer;
    let rule = |tensor: &TensorInfo<'_>| {
        let decayed = optimizer.decay_all || decays(tensor.name, tensor.shape);
        // The checkpoint's names are sorted.
        let place = names.binary_search_by(|name| name.as_str().cmp(tensor.name));
        TensorRule {
            trained: place.map_or(true, |index| trained[index]),
            weight_decay: if decayed {
                optimizer.weight_decay as f32
            } else {
                0.0
            },
            rate_factor: place.map_or(1.0, |index| factors[index] as f32),
        }
    };
    let mut options = TrainOptions {
        device: options.device,
        dtype: options.dtype,
        threads: options.threads,
        input: input_kind(recipe),
        image_size: None,
        loss: of_data.unwrap_or_else(|| objective(recipe)),
        optimizer: optimizer.into(),
        ema_decay: (recipe.ema_decay > 0.0).then_some(recipe.ema_decay as f32),
        precision: PrecisionOptions {
            quantization: (&recipe.quantization).into(),
            ..PrecisionOptions::default()
        },
        accumulate: recipe.accumulate.max(1),
        clip_norm: (recipe.clip_norm > 0.0).then_some(recipe.clip_norm as f32),
        drop: drop_options(recipe),
        lora: (recipe.lora.rank > 0).then(|| LoraOptions {
            rank: recipe.lora.rank,
            alpha: recipe.lora.alpha as f32,
            targets: recipe.lora.targets.clone(),
            rule: TensorRule {
                weight_decay: optimizer.weight_decay as f32,
                ..TensorRule::default()
            },
        }),
        memory: Some(MemoryBudget {
            limit: recipe.memory,
            images: images_per_run(recipe, ranks.as_ref())?,
        }),
        seed: recipe.seed,
    };
    if recipe.accumulate == 0 {
        let images = images_per_run(recipe, ranks.as_ref())?;
        let plan = ranks.as_ref().map(|ranks| ranks.plan);
        let count = micro_batches::choose(&checkpoint, &options, &rule, images, plan)?;
        options.accumulate = count;
        options.memory = options.memory.map(|budget| MemoryBudget {
            images: images.div_ceil(count),
            ..budget
        });
    }
    Ok(Trainer::with_ranks(checkpoint, options, &rule, ranks)?)
}
