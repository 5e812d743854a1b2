//! `add`: `factor · gamma · x + y`, with optional `gamma` and `y`.

use hipvit_graph::op::{Add, Affine, MulScalar, Scale};

use super::Unit;
use super::bindings::AddArgs;
use super::lower::{Call, Lower, Lowering, one, rows};
use super::{Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, bytes, extent, optional};

impl AddArgs {
    /// Creates the arguments for `x` and `out` `[rows, channels]`. `gamma` `[channels]` may be null. `y` is an address and its number of
    /// rows, which repeat.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub fn new(
        [x, out]: [DeviceAddress; 2],
        [rows, channels]: [usize; 2],
        factor: f32,
        gamma: DeviceAddress,
        y: Option<(DeviceAddress, usize)>,
    ) -> Result<Self, KernelError> {
        let (y, y_rows) = y.unwrap_or_default();
        Ok(Self {
            x,
            gamma,
            y,
            out,
            rows: extent(rows)?,
            channels: extent(channels)?,
            y_rows: extent(y_rows)?,
            factor,
        })
    }
}

// SAFETY: see hip/add.hip. Threads beyond the last row return.
unsafe impl KernelArguments for AddArgs {
    const FILE: &'static str = "add";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        if !self.y.is_null() && self.y_rows == 0 {
            return Err("the second operand has no rows".into());
        }
        target.elementwise(self.rows.into(), self.channels)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let all = bytes(element, &[self.rows, self.channels]);
        let gamma = bytes(element, &[self.channels]);
        let y = bytes(element, &[self.y_rows.min(self.rows), self.channels]);
        visit(Access::read("x", self.x, all));
        visit(optional(Access::read("gamma", self.gamma, gamma)));
        visit(optional(Access::read("y", self.y, y)));
        visit(Access::write("out", self.out, all));
    }
}

impl Lower for Add {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("add"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let y = (step.address(1)?, rows(step.shape_of(1)?)?);
        one(AddArgs::new(
            [step.address(0)?, step.out],
            step.matrix()?,
            1.0,
            DeviceAddress::NULL,
            Some(y),
        )?)
    }
}

impl Lower for Scale {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("add"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let gamma = step.address(1)?;
        one(AddArgs::new(
            [step.address(0)?, step.out],
            step.matrix()?,
            1.0,
            gamma,
            None,
        )?)
    }
}

impl Lower for Affine {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("add"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let (gamma, y) = (step.address(1)?, (step.address(2)?, 1));
        one(AddArgs::new(
            [step.address(0)?, step.out],
            step.matrix()?,
            1.0,
            gamma,
            Some(y),
        )?)
    }
}

impl Lower for MulScalar {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("add"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        one(AddArgs::new(
            [step.address(0)?, step.out],
            step.matrix()?,
            self.0,
            DeviceAddress::NULL,
            None,
        )?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn required_operands_are_accessed_even_at_null() {
        let (null, out) = (DeviceAddress::NULL, DeviceAddress::from_raw(256));
        let arguments = AddArgs::new([null, out], [3, 5], 1.0, null, None).unwrap();
        let mut accesses = Vec::new();
        arguments.accesses(2, &mut |access| {
            accesses.push((access.field, access.bytes, access.written));
        });
        let all = 3 * 5 * 2;
        assert_eq!(
            accesses,
            [
                ("x", all, false),
                ("gamma", 0, false),
                ("y", 0, false),
                ("out", all, true)
            ]
        );
    }
}
