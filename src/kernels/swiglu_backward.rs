//! `swiglu_backward`: the gradients of gates and values.

use hipvit_graph::op::SwiGluBackward;

use super::Unit;
use super::bindings::SwiGluBackwardArgs;
use super::lower::{Call, Lower, Lowering, one, rows};
use super::{Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, bytes, extent};

impl SwiGluBackwardArgs {
    /// Creates the arguments for `x` and `dx` `[rows, 2·channels]`, and `dy` `[rows, channels]`.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub fn new(
        [x, dy, dx]: [DeviceAddress; 3],
        [rows, channels]: [usize; 2],
        backward: SwiGluBackward,
    ) -> Result<Self, KernelError> {
        Ok(Self {
            x,
            dy,
            dx,
            rows: extent(rows)?,
            channels: extent(channels)?,
            secant: backward.secant.into(),
            reserved: 0,
        })
    }
}

// SAFETY: see hip/swiglu_backward.hip. Threads beyond the last row return.
unsafe impl KernelArguments for SwiGluBackwardArgs {
    const FILE: &'static str = "swiglu_backward";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        target.elementwise(self.rows.into(), self.channels)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let all = bytes(element, &[self.rows, 2, self.channels]);
        visit(Access::read("x", self.x, all));
        visit(Access::read("dy", self.dy, all / 2));
        visit(Access::write("dx", self.dx, all));
    }
}

impl Lower for SwiGluBackward {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("swiglu_backward"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let dy = step.shape_of(1)?;
        let extents = [rows(dy)?, *dy.last().ok_or("its gradient is a scalar")?];
        let addresses = [step.address(0)?, step.address(1)?, step.out];
        one(SwiGluBackwardArgs::new(addresses, extents, *self)?)
    }
}
