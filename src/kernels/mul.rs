//! `mul`: elementwise product, in which the second operand may repeat.

use hipvit_graph::op::Mul;

use super::Unit;
use super::bindings::MulArgs;
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, bytes, extent};

impl MulArgs {
    /// Creates the arguments for `x` and `out` `[rows, channels]`, and `y` `[y_rows, channels]`, whose rows repeat.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub fn new(
        [x, y, out]: [DeviceAddress; 3],
        [rows, channels]: [usize; 2],
        y_rows: usize,
    ) -> Result<Self, KernelError> {
        Ok(Self {
            x,
            y,
            out,
            rows: extent(rows)?,
            channels: extent(channels)?,
            y_rows: extent(y_rows)?,
            reserved: 0,
        })
    }
}

// SAFETY: see hip/mul.hip. Threads beyond the last row return.
unsafe impl KernelArguments for MulArgs {
    const FILE: &'static str = "mul";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        if self.y_rows == 0 {
            return Err("the second operand has no rows".into());
        }
        target.elementwise(self.rows.into(), self.channels)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let all = bytes(element, &[self.rows, self.channels]);
        let y = bytes(element, &[self.y_rows.min(self.rows), self.channels]);
        visit(Access::read("x", self.x, all));
        visit(Access::read("y", self.y, y));
        visit(Access::write("out", self.out, all));
    }
}

impl Lower for Mul {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("mul"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let [elements, y_elements]: [usize; 2] =
            [step.shape, step.shape_of(1)?].map(|shape| shape.iter().product());
        // y is a scalar, or has whole rows of x.
        let channels = step.shape.last().copied().unwrap_or(1).min(y_elements).max(1);
        let addresses = [step.address(0)?, step.address(1)?, step.out];
        let extents = [elements / channels, channels];
        one(MulArgs::new(addresses, extents, y_elements / channels)?)
    }
}
