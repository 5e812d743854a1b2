//! `gather_elements`: elements of a tensor by indices of their own.

use hipvit_graph::op::GatherElements;

use super::bindings::{GATHER_AXES, GATHER_ELEMENTS_THREADS, GatherElementsArgs};
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};

/// Number of axes of the kernel.
const AXES: usize = GATHER_AXES as usize;

/// Returns the extents with those of missing outer axes, which are 1.
pub(super) fn aligned<const N: usize>(shape: &[usize]) -> Result<[u32; N], KernelError> {
    let Some(missing) = N.checked_sub(shape.len()) else {
        let reason = format!("has {} axes, the kernel at most {N}", shape.len());
        return Err(KernelError::Unsupported(reason));
    };
    let mut extents = [1; N];
    for (to, &from) in extents[missing..].iter_mut().zip(shape) {
        *to = extent(from)?;
    }
    Ok(extents)
}

/// Checks that no extent is 0, and that indices have no more places than x but for the axis.
pub(super) fn check_extents(x: &[u32], indices: &[u32], axis: u32) -> Result<(), KernelError> {
    let mut pairs = x.iter().zip(indices).zip(0..);
    let fits = |((&of_x, &of_indices), at)| of_x > 0 && of_indices > 0 && (of_indices <= of_x || at == axis);
    if pairs.all(fits) {
        return Ok(());
    }
    Err("has indices that do not fit its operand".into())
}

impl GatherElementsArgs {
    /// Creates the arguments for operands of these shapes, which have as many axes, and elements of `element` bytes.
    ///
    /// # Errors
    ///
    /// The operands have more axes than the kernel, or an extent exceeds 32 bits.
    pub fn new(
        [x, indices, out]: [DeviceAddress; 3],
        [of_x, of_indices]: [&[usize]; 2],
        axis: usize,
        element: usize,
    ) -> Result<Self, KernelError> {
        let missing = AXES.saturating_sub(of_x.len());
        let [from, extents] = [aligned(of_x)?, aligned(of_indices)?];
        Ok(Self {
            x,
            indices,
            out,
            from,
            extents,
            axis: extent(missing + axis)?,
            element: extent(element)?,
        })
    }
}

// SAFETY: see hip/gather_elements.hip. Threads beyond the last element return. `plan` checks that the indices have no more places than x, and
// indices beyond an end become those of the first or last element.
unsafe impl KernelArguments for GatherElementsArgs {
    const FILE: &'static str = "gather_elements";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        check_extents(&self.from, &self.extents, self.axis)?;
        let elements = self.extents.iter().map(|&extent| u64::from(extent));
        target.threads(elements.fold(1, u64::saturating_mul), GATHER_ELEMENTS_THREADS)
    }

    fn accesses(&self, _element: usize, visit: &mut dyn FnMut(Access)) {
        let element = self.element as usize;
        visit(Access::read("x", self.x, bytes(element, &self.from)));
        visit(Access::read("indices", self.indices, bytes(4, &self.extents)));
        visit(Access::write("out", self.out, bytes(element, &self.extents)));
    }
}

impl Lower for GatherElements {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("gather_elements"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let shapes = [step.shape_of(0)?, step.shape_of(1)?];
        let addresses = [step.address(0)?, step.integers(1)?, step.out];
        one(GatherElementsArgs::new(
            addresses,
            shapes,
            self.axis,
            step.moved_element(),
        )?)
    }
}
