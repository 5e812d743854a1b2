//! `cum_sum`: running sums along an axis.

use hipvit_graph::op::CumSum;

use super::bindings::{CUM_SUM_THREADS, CumSumArgs};
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};
use crate::tensor::DType;

/// Value of `CumSumArgs::kind` for elements in f32.
const SINGLE: u32 = 1;
/// Value of `CumSumArgs::kind` for elements in i32.
const INTEGER: u32 = 2;

impl CumSumArgs {
    /// Creates the arguments for `x` and `out` `[outer, length, inner]`. Their elements have `dtype`, or that of the model if it is `None`.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub fn new(
        [x, out]: [DeviceAddress; 2],
        [outer, length, inner]: [usize; 3],
        op: CumSum,
        dtype: Option<DType>,
    ) -> Result<Self, KernelError> {
        Ok(Self {
            x,
            out,
            outer: extent(outer)?,
            length: extent(length)?,
            inner: extent(inner)?,
            exclusive: op.exclusive.into(),
            reverse: op.reverse.into(),
            kind: match dtype {
                None => 0,
                Some(DType::I32) => INTEGER,
                Some(_) => SINGLE,
            },
        })
    }
}

// SAFETY: see hip/cum_sum.hip. Threads beyond the last row return.
unsafe impl KernelArguments for CumSumArgs {
    const FILE: &'static str = "cum_sum";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        if [self.outer, self.length, self.inner].contains(&0) {
            return Err("sums no elements".into());
        }
        let rows = u64::from(self.outer).saturating_mul(self.inner.into());
        target.threads(rows, CUM_SUM_THREADS)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let element = if self.kind == 0 { element } else { 4 };
        let all = bytes(element, &[self.outer, self.length, self.inner]);
        visit(Access::read("x", self.x, all));
        visit(Access::write("out", self.out, all));
    }
}

impl Lower for CumSum {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("cum_sum"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let (outer, rest) = step.shape.split_at(self.axis);
        let [length, inner @ ..] = rest else {
            return Err("has no such axis".into());
        };
        let extents = [outer.iter().product(), *length, inner.iter().product()];
        let dtype = step.plan.buffer(step.step.output()).dtype;
        let own = (dtype != step.plan.dtype()).then_some(dtype);
        one(CumSumArgs::new(
            [step.address(0)?, step.out],
            extents,
            *self,
            own,
        )?)
    }
}
