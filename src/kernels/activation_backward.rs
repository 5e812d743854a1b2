//! `activation_backward`: the derivative of an activation function, times the gradient of its result. With sums of chunks of rows, which
//! `column_sum` adds up.

use std::borrow::Cow;

use hipvit_graph::op::ActivationBackward;

use super::Unit;
use super::activation_code::activation_code;
use super::bindings::{ActivationBackwardArgs, ColumnSumArgs};
use super::column_sum;
use super::lower::{Call, Lower, Lowering, one, shape_of};
use super::{Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, bytes, extent, optional};
use crate::graph::plan::{Plan, Step};

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
            sums: DeviceAddress::NULL,
            rows: extent(rows)?,
            channels: extent(channels)?,
            activation: activation_code(Some(backward.activation)) as u32,
            secant: backward.secant.into(),
            chunk: extent(column_sum::chunk(rows))?,
            reserved: 0,
        })
    }
}

// SAFETY: see hip/activation_backward.hip. Threads beyond the last row return.
unsafe impl KernelArguments for ActivationBackwardArgs {
    const FILE: &'static str = "activation_backward";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        let entry = if self.sums.is_null() {
            "activation_backward"
        } else {
            "activation_backward_sums"
        };
        Ok(entry.into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        if !self.sums.is_null() {
            return column_sum::launch(target, [self.rows, self.channels], self.chunk);
        }
        target.elementwise(self.rows.into(), self.channels)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let all = bytes(element, &[self.rows, self.channels]);
        visit(Access::read("x", self.x, all));
        visit(Access::read("dy", self.dy, all));
        visit(Access::write("dx", self.dx, all));
        let chunks = self.rows.div_ceil(self.chunk).max(1);
        let sums = bytes(size_of::<f32>(), &[chunks, self.channels]);
        visit(optional(Access::write("sums", self.sums, sums)));
    }
}

impl Lower for ActivationBackward {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("activation_backward"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let addresses = [step.address(0)?, step.address(1)?, step.out];
        let extents = step.matrix()?;
        let arguments = ActivationBackwardArgs::new(addresses, extents, *self)?;
        if !self.sums {
            return one(arguments);
        }
        let sums = step.addresses.scratch;
        let arguments = ActivationBackwardArgs { sums, ..arguments };
        let chunks = column_sum::chunks(extents[0]);
        let total = ColumnSumArgs::total([sums, step.result(1)?], [chunks, extents[1]])?;
        Ok(vec![arguments.into(), total.into()])
    }

    fn scratch_bytes(&self, plan: &Plan, step: &Step) -> usize {
        match step.inputs.first() {
            Some(&x) if self.sums => {
                let x = shape_of(plan, x);
                let channels = x.last().copied().unwrap_or(1).max(1);
                column_sum::chunks(x.iter().product::<usize>() / channels) * channels * size_of::<f32>()
            }
            _ => 0,
        }
    }
}
