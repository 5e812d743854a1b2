//! `activation_backward`: the derivative of an activation function, times the gradient of its result.

use hipvit_graph::op::ActivationBackward;

use super::Unit;
use super::bias_activation::activation_code;
use super::bindings::ActivationBackwardArgs;
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, bytes, extent};

impl ActivationBackwardArgs {
    /// Creates the arguments for `x`, `dy` and `dx` `[rows, channels]`.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub fn new(
        [x, dy, dx]: [DeviceAddress; 3],
        [rows, channels]: [usize; 2],
        backward: ActivationBackward,
    ) -> Result<Self, KernelError> {
        Ok(Self {
            x,
            dy,
            dx,
            rows: extent(rows)?,
            channels: extent(channels)?,
            activation: activation_code(Some(backward.activation)) as u32,
            secant: backward.secant.into(),
        })
    }
}

// SAFETY: see hip/activation_backward.hip. Threads beyond the last row return.
unsafe impl KernelArguments for ActivationBackwardArgs {
    const FILE: &'static str = "activation_backward";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        target.elementwise(self.rows.into(), self.channels)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let all = bytes(element, &[self.rows, self.channels]);
        visit(Access::read("x", self.x, all));
        visit(Access::read("dy", self.dy, all));
        visit(Access::write("dx", self.dx, all));
    }
}

impl Lower for ActivationBackward {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("activation_backward"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let addresses = [step.address(0)?, step.address(1)?, step.out];
        one(ActivationBackwardArgs::new(addresses, step.matrix()?, *self)?)
    }
}
