//! `adamw_bf16` and `adamw_int8`: a step of AdamW with moments in bf16 or in 8 bits.

use std::borrow::Cow;

use hipvit_graph::op::{AdamW, AdamWBf16, AdamWInt8};

use super::bindings::{CompactAdamWArgs, INT8_MOMENTS, INT8_MOMENTS_WORDS};
use super::lower::{Call, Lower, Lowering, one};
use super::{
    Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent, optional,
};

impl Lower for AdamWBf16 {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("compact_adamw"))
    }

    fn updates_in_place(&self) -> bool {
        true
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        one(CompactAdamWArgs::new(&self.0, step, false)?)
    }
}

impl Lower for AdamWInt8 {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("compact_adamw"))
    }

    fn updates_in_place(&self) -> bool {
        true
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        one(CompactAdamWArgs::new(&self.0, step, true)?)
    }
}

impl CompactAdamWArgs {
    fn new(op: &AdamW, step: &Lowering<'_>, int8: bool) -> Result<Self, KernelError> {
        Ok(Self {
            weight: step.address(0)?,
            gradient: step.address(1)?,
            moments: step.address(2)?,
            rates: step.address(3)?,
            factor: step.address(4)?,
            new_weight: step.result(0)?,
            new_moments: step.result(1)?,
            rounded: if op.rounded {
                step.result(2)?
            } else {
                DeviceAddress::NULL
            },
            elements: extent(step.shape.iter().product())?,
            beta1: op.beta1,
            beta2: op.beta2,
            epsilon: op.epsilon,
            weight_decay: op.weight_decay,
            rate_factor: op.rate_factor,
            f32_gradient: op.f32_gradient.into(),
            int8: int8.into(),
        })
    }

    /// Returns the number of blocks of moments in 8 bits.
    fn blocks(&self) -> u32 {
        self.elements.div_ceil(INT8_MOMENTS)
    }
}

// SAFETY: see hip/compact_adamw.hip. Threads access no element beyond the last one. In 8 bits, a block takes a block of moments, and exactly
// as many blocks are launched.
unsafe impl KernelArguments for CompactAdamWArgs {
    const FILE: &'static str = "compact_adamw";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        let entry = if self.int8 == 1 {
            "adamw_int8"
        } else {
            "adamw_bf16"
        };
        Ok(entry.into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        if self.int8 == 0 {
            return target.update(self.elements);
        }
        if self.elements == 0 {
            return Err("a weight has no elements".into());
        }
        target.blocks(self.blocks().into(), INT8_MOMENTS)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let single = size_of::<f32>();
        let all = bytes(single, &[self.elements]);
        let moments = if self.int8 == 1 {
            bytes(single, &[self.blocks(), INT8_MOMENTS_WORDS])
        } else {
            all
        };
        let rounded = bytes(element, &[self.elements]);
        let gradient = if self.f32_gradient == 1 { all } else { rounded };
        visit(Access::read("weight", self.weight, all));
        visit(Access::read("gradient", self.gradient, gradient));
        visit(Access::read("moments", self.moments, moments));
        visit(Access::read("rates", self.rates, 4 * single));
        visit(Access::read("factor", self.factor, single));
        visit(Access::write("new_weight", self.new_weight, all));
        visit(Access::write("new_moments", self.new_moments, moments));
        visit(optional(Access::write("rounded", self.rounded, rounded)));
    }
}
