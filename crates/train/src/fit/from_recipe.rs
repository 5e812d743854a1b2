//! The trainer that a recipe describes.

use hipvit::error::Error;
use hipvit::model::{Checkpoint, InputKind};

use super::ranks::images_per_run;
use super::teacher::objective;
use super::{FitError, FitOptions};
use crate::dropout::DropOptions;
use crate::groups::{decays, levels, rate_factors};
use crate::micro_batches;
use crate::ranks::Ranks;
use crate::recipe::{self, Freeze, Recipe};
use crate::step_graph::{TensorInfo, TensorRule};
use crate::trainer::{TrainOptions, Trainer};
use crate::{LoraOptions, LossKind, MemoryBudget, PrecisionOptions};

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
        recipe::LossKind::CrossEntropy => LossKind::CrossEntropy,
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

/// Creates the trainer that the recipe describes.
pub(super) fn new_trainer(
    checkpoint: Checkpoint,
    recipe: &Recipe,
    options: &FitOptions,
    ranks: Option<Ranks>,
) -> Result<Trainer, FitError> {
    let names: Vec<String> = checkpoint.names().map(str::to_owned).collect();
    let views: Vec<&str> = names.iter().map(String::as_str).collect();
    let factors = rate_factors(&views, recipe.layer_decay);
    let (levels, head) = levels(&views);
    let frozen = match recipe.freeze {
        Freeze::Layers(layers) if layers > head => {
            let reason = format!("is {layers}, but the model has {head} layers before the classifier");
            return Err(Error::argument("freeze", reason).into());
        }
        Freeze::Layers(layers) if recipe.lora.rank == 0 => layers,
        _ => head,
    };
    let optimizer = &recipe.optimizer;
    let rule = |tensor: &TensorInfo<'_>| {
        let decayed = optimizer.decay_all || decays(tensor.name, tensor.shape);
        // The checkpoint's names are sorted.
        let place = names.binary_search_by(|name| name.as_str().cmp(tensor.name));
        TensorRule {
            trained: place.map_or(true, |index| levels[index] >= frozen),
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
        loss: objective(recipe),
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
