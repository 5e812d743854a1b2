//! Updates of weights by Lion.

use hipvit_graph::op::{Lion, OpError};

use super::momentum::Step;
use super::{CpuOp, Operands};

impl CpuOp for Lion {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let step = Step::new(operands)?;
        let rate = step.rate * self.rate_factor;
        let kept = 1.0 - rate * self.weight_decay;
        step.run(results, |[weight, gradient, momentum]| {
            let update = self.beta1 * momentum + (1.0 - self.beta1) * gradient;
            let sign = if update == 0.0 { 0.0 } else { update.signum() };
            [
                weight * kept - rate * sign,
                self.beta2 * momentum + (1.0 - self.beta2) * gradient,
            ]
        })
    }
}
