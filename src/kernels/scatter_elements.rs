//! `scatter_elements`: elements that are replaced or combined with others, by indices of their own.

use hipvit_graph::op::{ScatterElements, ScatterReduction};

use super::bindings::{SCATTER_AXES, SCATTER_ELEMENTS_THREADS, ScatterElementsArgs};
use super::gather_elements::{aligned, check_extents};
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};
use crate::tensor::DType;

/// Number of axes of the kernel.
const AXES: usize = SCATTER_AXES as usize;
/// Value of `ScatterElementsArgs::kind` for elements in f32.
const SINGLE: u32 = 1;
/// Value of `ScatterElementsArgs::kind` for elements in i32.
const INTEGER: u32 = 2;

impl ScatterElementsArgs {
    /// Creates the arguments for x and indices of these shapes, which have as many axes. Elements have `dtype`, or that of the model if it is
    /// `None`.
    ///
    /// # Errors
    ///
    /// The operands have more axes than the kernel, or an extent exceeds 32 bits.
    pub fn new(
        [x, indices, updates, out]: [DeviceAddress; 4],
        [of_x, of_indices]: [&[usize]; 2],
        op: ScatterElements,
        dtype: Option<DType>,
    ) -> Result<Self, KernelError> {
        let missing = AXES.saturating_sub(of_x.len());
        let [from, extents] = [aligned(of_x)?, aligned(of_indices)?];
        Ok(Self {
            x,
            indices,
            updates,
            out,
            from,
            extents,
            axis: extent(missing + op.axis)?,
            reduction: match op.reduction {
                ScatterReduction::Replace => 0,
                ScatterReduction::Add => 1,
                ScatterReduction::Mul => 2,
                ScatterReduction::Max => 3,
                ScatterReduction::Min => 4,
            },
            kind: match dtype {
                None => 0,
                Some(DType::I32) => INTEGER,
                Some(_) => SINGLE,
            },
            reserved: 0,
        })
    }
}

// SAFETY: see hip/scatter_elements.hip. Threads beyond the last element return. `plan` checks that the indices have no more places than x, so
// that each thread reads indices and updates within their extents.
unsafe impl KernelArguments for ScatterElementsArgs {
    const FILE: &'static str = "scatter_elements";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        check_extents(&self.from, &self.extents, self.axis)?;
        let elements = self.from.iter().map(|&extent| u64::from(extent));
        target.threads(elements.fold(1, u64::saturating_mul), SCATTER_ELEMENTS_THREADS)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let element = if self.kind == 0 { element } else { 4 };
        visit(Access::read("x", self.x, bytes(element, &self.from)));
        visit(Access::read("indices", self.indices, bytes(4, &self.extents)));
        visit(Access::read(
            "updates",
            self.updates,
            bytes(element, &self.extents),
        ));
        visit(Access::write("out", self.out, bytes(element, &self.from)));
    }
}

impl Lower for ScatterElements {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("scatter_elements"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let shapes = [step.shape_of(0)?, step.shape_of(1)?];
        let dtype = step.plan.buffer(step.step.output()).dtype;
        if dtype.size() == 1 || step.dtype_of(2)? != dtype {
            let reason = "combines elements of a dtype that has no kernel";
            return Err(KernelError::unsupported(reason));
        }
        let own = (dtype != step.plan.dtype()).then_some(dtype);
        let addresses = [step.address(0)?, step.integers(1)?, step.address(2)?, step.out];
        one(ScatterElementsArgs::new(addresses, shapes, *self, own)?)
    }
}
