//! `moving_average`: a moving average of a weight.

use hipvit_graph::op::MovingAverage;

use super::bindings::MovingAverageArgs;
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};

impl Lower for MovingAverage {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("moving_average"))
    }

    fn updates_in_place(&self) -> bool {
        true
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        one(MovingAverageArgs {
            average: step.address(0)?,
            weight: step.address(1)?,
            factor: step.address(2)?,
            out: step.out,
            elements: extent(step.shape.iter().product())?,
            decay: self.decay,
        })
    }
}

// SAFETY: see hip/moving_average.hip. Threads access no element beyond the last one.
unsafe impl KernelArguments for MovingAverageArgs {
    const FILE: &'static str = "moving_average";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        target.update(self.elements)
    }

    fn accesses(&self, _element: usize, visit: &mut dyn FnMut(Access)) {
        let single = size_of::<f32>();
        let all = bytes(single, &[self.elements]);
        visit(Access::read("average", self.average, all));
        visit(Access::read("weight", self.weight, all));
        visit(Access::read("factor", self.factor, single));
        visit(Access::write("out", self.out, all));
    }
}
