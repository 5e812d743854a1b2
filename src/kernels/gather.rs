//! `gather`: slices of a tensor by their indices.

use hipvit_graph::op::Gather;

use super::bindings::{GATHER_THREADS, GatherArgs, VEC128_BYTES};
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};

impl GatherArgs {
    /// Creates the arguments for `x` `[outer, extent, inner]` with elements of `element` bytes, and `count` indices.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub fn new(
        [x, indices, out]: [DeviceAddress; 3],
        [outer, axis, inner]: [usize; 3],
        count: usize,
        element: usize,
    ) -> Result<Self, KernelError> {
        let (inner, element) = (extent(inner)?, extent(element)?);
        let vec = VEC128_BYTES / element;
        Ok(Self {
            x,
            indices,
            out,
            outer: extent(outer)?,
            extent: extent(axis)?,
            inner,
            count: extent(count)?,
            element,
            // 8 bytes, which the kernel does not take for a vector.
            width: if inner.is_multiple_of(vec) { vec } else { vec / 2 },
        })
    }
}

// SAFETY: see hip/gather.hip. Threads beyond the last slice return. Indices beyond an end become those of the first or last slice.
unsafe impl KernelArguments for GatherArgs {
    const FILE: &'static str = "gather";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        if [self.outer, self.extent, self.inner, self.count].contains(&0) {
            return Err("gathers no elements".into());
        }
        let slices = u64::from(self.outer).saturating_mul(self.count.into());
        let per_slice = self.inner.div_ceil(self.width);
        target.threads(slices.saturating_mul(per_slice.into()), GATHER_THREADS)
    }

    fn accesses(&self, _element: usize, visit: &mut dyn FnMut(Access)) {
        let element = self.element as usize;
        let x = bytes(element, &[self.outer, self.extent, self.inner]);
        let out = bytes(element, &[self.outer, self.count, self.inner]);
        visit(Access::read("x", self.x, x));
        visit(Access::read("indices", self.indices, bytes(4, &[self.count])));
        visit(Access::write("out", self.out, out));
    }
}

impl Lower for Gather {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("gather"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let shape = step.shape_of(0)?;
        let (outer, inner) = (&shape[..self.axis], &shape[self.axis + 1..]);
        let extents = [outer.iter().product(), shape[self.axis], inner.iter().product()];
        let count = step.shape_of(1)?.iter().product();
        let addresses = [step.address(0)?, step.integers(1)?, step.out];
        one(GatherArgs::new(addresses, extents, count, step.moved_element())?)
    }
}
