//! `adamw_bf16`: a step of AdamW with moments in bf16.

use hipvit_graph::op::AdamWBf16;

use super::bindings::AdamWBf16Args;
use super::lower::{Call, Lower, Lowering, one};
use super::{
    Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent, optional,
};

impl Lower for AdamWBf16 {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("adamw_bf16"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let op = &self.0;
        one(AdamWBf16Args {
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
            reserved: 0,
        })
    }
}

// SAFETY: see hip/adamw_bf16.hip. Threads access no element beyond the last one.
unsafe impl KernelArguments for AdamWBf16Args {
    const FILE: &'static str = "adamw_bf16";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        target.update(self.elements)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let single = size_of::<f32>();
        let all = bytes(single, &[self.elements]);
        let rounded = bytes(element, &[self.elements]);
        let gradient = if self.f32_gradient == 1 { all } else { rounded };
        visit(Access::read("weight", self.weight, all));
        visit(Access::read("gradient", self.gradient, gradient));
        visit(Access::read("moments", self.moments, all));
        visit(Access::read("rates", self.rates, 4 * single));
        visit(Access::read("factor", self.factor, single));
        visit(Access::write("new_weight", self.new_weight, all));
        visit(Access::write("new_moments", self.new_moments, all));
        visit(optional(Access::write("rounded", self.rounded, rounded)));
    }
}
