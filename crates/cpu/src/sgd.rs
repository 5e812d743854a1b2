//! Updates of weights by SGD.

use hipvit_graph::op::{OpError, Sgd};

use super::momentum::Step;
use super::{CpuOp, Operands};

impl CpuOp for Sgd {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let step = Step::new(operands)?;
        let rate = step.rate * self.rate_factor;
        step.run(results, |[weight, gradient, momentum]| {
            let gradient = gradient + self.weight_decay * weight;
            let momentum = self.momentum * momentum + gradient;
            let direction = if self.nesterov {
                gradient + self.momentum * momentum
            } else {
                momentum
            };
            [weight - rate * direction, momentum]
        })
    }
}
