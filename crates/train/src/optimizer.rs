//! Optimisers: their constants, and the ops that update a weight.

use std::str::FromStr;

use hipvit::graph::compact_moments::{BLOCK, BLOCK_WORDS};
use hipvit::ops::{AdamW, AdamWBf16, AdamWInt8, Lamb, Lion, Op, Sgd};
use serde::{Deserialize, Serialize};

use crate::trained::TensorRule;

/// Optimiser, with the constants that all tensors share.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum OptimizerOptions {
    /// Adam with decoupled weight decay, as `torch.optim.AdamW` computes it.
    AdamW(AdamWOptions),
    /// LAMB, as `timm.optim.Lamb` computes it without its own clipping: AdamW's moments, and a step that is proportional to the norm of the
    /// weight. A constant of the graph that several tensors are part of, such as queries, keys and values, has one norm.
    Lamb(LambOptions),
    /// SGD with momentum, as `torch.optim.SGD` computes it. The weight decay is added to the gradient.
    Sgd(SgdOptions),
    /// Lion with decoupled weight decay, as `timm.optim.Lion` computes it.
    Lion(LionOptions),
}

impl Default for OptimizerOptions {
    fn default() -> Self {
        Self::AdamW(AdamWOptions::default())
    }
}

/// Constants of AdamW.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWOptions {
    /// Decay of the mean of the gradients.
    pub beta1: f32,
    /// Decay of the mean of their squares.
    pub beta2: f32,
    /// Added to the root of the mean of squares.
    pub epsilon: f32,
    /// Form of both means.
    pub moments: Moments,
}

/// Form in which AdamW keeps its moments.
///
/// 16 and 8 bits round at random, by numbers that the update and the element determine. See
/// [`compact_moments`](hipvit::graph::compact_moments).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Moments {
    /// 8 bytes for each element.
    #[default]
    F32,
    /// 4 bytes for each element.
    Bf16,
    /// 2.03 bytes for each element: 8 bits for each moment, and two scales for 256 elements.
    Int8,
}

impl FromStr for Moments {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "f32" => Ok(Self::F32),
            "bf16" => Ok(Self::Bf16),
            "int8" => Ok(Self::Int8),
            _ => Err(format!("`{text}` is none of f32, bf16 and int8")),
        }
    }
}

impl Default for AdamWOptions {
    fn default() -> Self {
        Self {
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            moments: Moments::F32,
        }
    }
}

/// Constants of LAMB.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LambOptions {
    /// Decay of the mean of the gradients.
    pub beta1: f32,
    /// Decay of the mean of their squares.
    pub beta2: f32,
    /// Added to the root of the mean of squares.
    pub epsilon: f32,
}

impl Default for LambOptions {
    fn default() -> Self {
        Self {
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-6,
        }
    }
}

/// Constants of SGD.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SgdOptions {
    /// Decay of the sum of the gradients. 0 for SGD without momentum.
    pub momentum: f32,
    /// True for Nesterov's momentum.
    pub nesterov: bool,
}

impl Default for SgdOptions {
    fn default() -> Self {
        Self {
            momentum: 0.9,
            nesterov: false,
        }
    }
}

/// Constants of Lion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LionOptions {
    /// Share of the mean of the gradients in the update.
    pub beta1: f32,
    /// Decay of the mean of the gradients.
    pub beta2: f32,
}

impl Default for LionOptions {
    fn default() -> Self {
        Self {
            beta1: 0.9,
            beta2: 0.99,
        }
    }
}

/// Dtypes of the operands and results of an update.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UpdateForm {
    /// True if the last result is the weight in the dtype of activations.
    pub(crate) rounded: bool,
    /// True if the gradient is in f32.
    pub(crate) f32_gradient: bool,
}

impl OptimizerOptions {
    /// Returns the names of the states of a weight, in the order of the op's operands.
    pub(crate) fn states(&self) -> &'static [&'static str] {
        match self {
            Self::AdamW(AdamWOptions {
                moments: Moments::Bf16,
                ..
            }) => &["moments_bf16"],
            Self::AdamW(AdamWOptions {
                moments: Moments::Int8,
                ..
            }) => &["moments_int8"],
            Self::AdamW(_) | Self::Lamb(_) => &["first_moment", "second_moment"],
            Self::Sgd(_) | Self::Lion(_) => &["momentum"],
        }
    }

    /// Returns true if both moments are in one state, rounded.
    pub(crate) fn has_compact_moments(&self) -> bool {
        matches!(self, Self::AdamW(options) if options.moments != Moments::F32)
    }

    /// Returns the shape of a state of a weight.
    pub(crate) fn state_shape(&self, weight: &[usize]) -> Vec<usize> {
        match self {
            Self::AdamW(AdamWOptions {
                moments: Moments::Int8,
                ..
            }) => vec![weight.iter().product::<usize>().div_ceil(BLOCK), BLOCK_WORDS],
            _ => weight.to_vec(),
        }
    }

    /// Returns the op that updates a weight.
    pub(crate) fn op(&self, rule: &TensorRule, form: UpdateForm) -> Op {
        let TensorRule {
            weight_decay,
            rate_factor,
            ..
        } = *rule;
        let UpdateForm {
            rounded,
            f32_gradient,
        } = form;
        match *self {
            Self::AdamW(AdamWOptions {
                beta1,
                beta2,
                epsilon,
                moments,
            }) => {
                let op = AdamW {
                    beta1,
                    beta2,
                    epsilon,
                    weight_decay,
                    rate_factor,
                    rounded,
                    f32_gradient,
                };
                match moments {
                    Moments::F32 => op.into(),
                    Moments::Bf16 => AdamWBf16(op).into(),
                    Moments::Int8 => AdamWInt8(op).into(),
                }
            }
            Self::Lamb(LambOptions {
                beta1,
                beta2,
                epsilon,
            }) => Lamb {
                beta1,
                beta2,
                epsilon,
                weight_decay,
                rate_factor,
                rounded,
                f32_gradient,
            }
            .into(),
            Self::Sgd(SgdOptions { momentum, nesterov }) => Sgd {
                momentum,
                weight_decay,
                nesterov,
                rate_factor,
                rounded,
                f32_gradient,
            }
            .into(),
            Self::Lion(LionOptions { beta1, beta2 }) => Lion {
                beta1,
                beta2,
                weight_decay,
                rate_factor,
                rounded,
                f32_gradient,
            }
            .into(),
        }
    }

    /// Returns the number of [`rates`](Self::rates).
    pub(crate) fn rate_count(&self) -> usize {
        self.rates(0.0, 1).len()
    }

    /// Returns the rates of the update `update`, counted from 1: the learning rate, and what depends on the number of the update.
    pub(crate) fn rates(&self, learning_rate: f32, update: u64) -> Vec<f32> {
        match self {
            Self::AdamW(AdamWOptions { beta1, beta2, .. }) | Self::Lamb(LambOptions { beta1, beta2, .. }) => {
                let mut rates = vec![
                    learning_rate,
                    correction(*beta1, update),
                    correction(*beta2, update),
                ];
                if self.has_compact_moments() {
                    // Integers that f32 represents.
                    rates.push((update % (1 << 24)) as f32);
                }
                rates
            }
            Self::Sgd(_) | Self::Lion(_) => vec![learning_rate],
        }
    }
}

/// Returns `1 − beta^step`.
fn correction(beta: f32, step: u64) -> f32 {
    let power = i32::try_from(step).map_or(0.0, |step| f64::from(beta).powi(step));
    (1.0 - power) as f32
}
