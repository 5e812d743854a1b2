//! `relative_bias_backward`: the gradient of a table of biases.

use hipvit_graph::op::RelativeBiasBackward;

use super::bindings::{RELATIVE_THREADS, RelativeBiasBackwardArgs, RelativeGrid};
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, KernelArguments, KernelError, Launch, Target, Unit, bytes};

impl Lower for RelativeBiasBackward {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("relative_bias_backward"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let [_, heads] = step.matrix()?;
        one(RelativeBiasBackwardArgs {
            gradient: step.address(0)?,
            out: step.out,
            grid: RelativeGrid::new(&self.0, heads)?,
        })
    }
}

// SAFETY: see hip/relative_bias_backward.hip. Waves beyond the last element of the table return.
unsafe impl KernelArguments for RelativeBiasBackwardArgs {
    const FILE: &'static str = "relative_bias_backward";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        self.grid.bias()?;
        let elements: u64 = self.grid.table().into_iter().map(u64::from).product();
        target.threads(elements * u64::from(target.wave_size), RELATIVE_THREADS)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let bias = self.grid.bias().unwrap_or_default();
        visit(Access::read("gradient", self.gradient, bytes(element, &bias)));
        visit(Access::write("out", self.out, bytes(element, &self.grid.table())));
    }
}
