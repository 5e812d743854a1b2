//! `accumulate`: a sum of gradients.

use hipvit_graph::op::Accumulate;

use super::bindings::AccumulateArgs;
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};

impl Lower for Accumulate {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("accumulate"))
    }

    fn updates_in_place(&self) -> bool {
        true
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        one(AccumulateArgs {
            sum: step.address(0)?,
            gradient: step.address(1)?,
            keep: step.address(2)?,
            out: step.out,
            elements: extent(step.shape.iter().product())?,
            reserved: 0,
        })
    }
}

// SAFETY: see hip/accumulate.hip. Threads access no element beyond the last one.
unsafe impl KernelArguments for AccumulateArgs {
    const FILE: &'static str = "accumulate";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        target.update(self.elements)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let single = size_of::<f32>();
        let all = bytes(single, &[self.elements]);
        visit(Access::read("sum", self.sum, all));
        visit(Access::read(
            "gradient",
            self.gradient,
            bytes(element, &[self.elements]),
        ));
        visit(Access::read("keep", self.keep, single));
        visit(Access::write("out", self.out, all));
    }
}
