//! The optimiser that a recipe describes.

use super::keys::{Optimizer, OptimizerKind};
use crate::optimizer::{AdamWOptions, LambOptions, LionOptions, OptimizerOptions, SgdOptions};

impl From<&Optimizer> for OptimizerOptions {
    fn from(keys: &Optimizer) -> Self {
        let [beta1, beta2] = keys.betas.map(|beta| beta as f32);
        match keys.kind {
            OptimizerKind::AdamW => Self::AdamW(AdamWOptions {
                beta1,
                beta2,
                epsilon: keys.eps as f32,
                moments: keys.states,
            }),
            OptimizerKind::Lamb => Self::Lamb(LambOptions {
                beta1,
                beta2,
                epsilon: keys.eps as f32,
            }),
            OptimizerKind::Sgd => Self::Sgd(SgdOptions {
                momentum: keys.momentum as f32,
                nesterov: keys.nesterov,
            }),
            OptimizerKind::Lion => Self::Lion(LionOptions { beta1, beta2 }),
        }
    }
}
