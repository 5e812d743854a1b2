//! `lion`: a step of Lion.

use hipvit_graph::op::Lion;

use super::bindings::LionArgs;
use super::lower::{Call, Lower, Lowering, one};
use super::{
    Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent, optional,
};

impl Lower for Lion {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("lion"))
    }

    fn updates_in_place(&self) -> bool {
        true
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        one(LionArgs {
            weight: step.address(0)?,
            gradient: step.address(1)?,
            momentum: step.address(2)?,
            rate: step.address(3)?,
            factor: step.address(4)?,
            new_weight: step.result(0)?,
            new_momentum: step.result(1)?,
            rounded: if self.rounded {
                step.result(2)?
            } else {
                DeviceAddress::NULL
            },
            elements: extent(step.shape.iter().product())?,
            beta1: self.beta1,
            beta2: self.beta2,
            weight_decay: self.weight_decay,
            rate_factor: self.rate_factor,
            f32_gradient: self.f32_gradient.into(),
        })
    }
}

// SAFETY: see hip/lion.hip. Threads access no element beyond the last one.
unsafe impl KernelArguments for LionArgs {
    const FILE: &'static str = "lion";

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
        visit(Access::read("momentum", self.momentum, all));
        visit(Access::read("rate", self.rate, single));
        visit(Access::read("factor", self.factor, single));
        visit(Access::write("new_weight", self.new_weight, all));
        visit(Access::write("new_momentum", self.new_momentum, all));
        visit(optional(Access::write("rounded", self.rounded, rounded)));
    }
}
