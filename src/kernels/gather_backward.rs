//! `gather_backward`: the sums of slices with equal indices.

use hipvit_graph::op::GatherBackward;

use super::bindings::{GATHER_BACKWARD_CHANNELS, GATHER_BACKWARD_THREADS, GatherBackwardArgs};
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};

impl Lower for GatherBackward {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("gather_backward"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let inner: usize = step.shape.iter().skip(1).product();
        one(GatherBackwardArgs {
            indices: step.integers(0)?,
            dy: step.address(1)?,
            out: step.out,
            rows: extent(self.rows)?,
            inner: extent(inner)?,
            count: extent(step.shape_of(0)?.iter().product())?,
            reserved: 0,
        })
    }
}

// SAFETY: see hip/gather_backward.hip. Waves beyond the last row return, and channels beyond the last one are neither read nor written.
unsafe impl KernelArguments for GatherBackwardArgs {
    const FILE: &'static str = "gather_backward";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        if [self.rows, self.inner].contains(&0) {
            return Err("adds slices to no elements".into());
        }
        let of_wave = GATHER_BACKWARD_CHANNELS * target.wave_size;
        let waves = u64::from(self.rows).saturating_mul(self.inner.div_ceil(of_wave).into());
        target.threads(
            waves.saturating_mul(target.wave_size.into()),
            GATHER_BACKWARD_THREADS,
        )
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        visit(Access::read("indices", self.indices, bytes(4, &[self.count])));
        visit(Access::read(
            "dy",
            self.dy,
            bytes(element, &[self.count, self.inner]),
        ));
        visit(Access::write(
            "out",
            self.out,
            bytes(element, &[self.rows, self.inner]),
        ));
    }
}
