//! `adamw`: a step of AdamW.

use hipvit_graph::op::AdamW;

use super::bindings::AdamWArgs;
use super::lower::{Call, Lower, Lowering, one};
use super::{
    Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent, optional,
};

impl Lower for AdamW {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("adamw"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        one(AdamWArgs {
            weight: step.address(0)?,
            gradient: step.address(1)?,
            first: step.address(2)?,
            second: step.address(3)?,
            rates: step.address(4)?,
            factor: step.address(5)?,
            new_weight: step.result(0)?,
            new_first: step.result(1)?,
            new_second: step.result(2)?,
            rounded: if self.rounded {
                step.result(3)?
            } else {
                DeviceAddress::NULL
            },
            elements: extent(step.shape.iter().product())?,
            beta1: self.beta1,
            beta2: self.beta2,
            epsilon: self.epsilon,
            weight_decay: self.weight_decay,
            rate_factor: self.rate_factor,
            f32_gradient: self.f32_gradient.into(),
            reserved: 0,
        })
    }
}

// SAFETY: see hip/adamw.hip. Threads access no element beyond the last one.
unsafe impl KernelArguments for AdamWArgs {
    const FILE: &'static str = "adamw";

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
        visit(Access::read("first", self.first, all));
        visit(Access::read("second", self.second, all));
        visit(Access::read("rates", self.rates, 3 * single));
        visit(Access::read("factor", self.factor, single));
        visit(Access::write("new_weight", self.new_weight, all));
        visit(Access::write("new_first", self.new_first, all));
        visit(Access::write("new_second", self.new_second, all));
        visit(optional(Access::write("rounded", self.rounded, rounded)));
    }
}
