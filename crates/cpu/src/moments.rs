//! The operands and the moments that AdamW and LAMB share.

use hipvit_graph::op::OpError;

use super::Operands;

/// Operands of a step.
pub(super) struct Step<'a> {
    pub(super) weight: &'a [f32],
    pub(super) gradient: &'a [f32],
    pub(super) first: &'a [f32],
    pub(super) second: &'a [f32],
    pub(super) rate: f32,
    /// `1 − beta1^t` and `1 − beta2^t`.
    pub(super) corrections: [f32; 2],
    /// Factor of the gradient. NaN if nothing changes.
    pub(super) factor: f32,
}

impl<'a> Step<'a> {
    pub(super) fn new(operands: &Operands<'a>) -> Result<Self, OpError> {
        let (&[rate, correction1, correction2], &[factor]) = (operands.values(4)?, operands.values(5)?)
        else {
            return Err("takes three rates and one factor".into());
        };
        Ok(Self {
            weight: operands.values(0)?,
            gradient: operands.values(1)?,
            first: operands.values(2)?,
            second: operands.values(3)?,
            rate,
            corrections: [correction1, correction2],
            factor,
        })
    }
}

/// Returns the new first and second moment for a gradient, with the decays `betas`.
pub(super) fn moments(betas: [f32; 2], gradient: f32, [first, second]: [f32; 2]) -> [f32; 2] {
    [
        first + (gradient - first) * (1.0 - betas[0]),
        second * betas[1] + gradient * gradient * (1.0 - betas[1]),
    ]
}
