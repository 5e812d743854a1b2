//! `top_k`: the largest or smallest elements of rows.

use std::borrow::Cow;

use hipvit_graph::op::TopK;

use super::bindings::{TOP_K_FEW, TOP_K_FEW_THREADS, TOP_K_LONG, TOP_K_THREADS, TopKArgs};
use super::lower::{Call, Lower, Lowering, one, rows};
use super::{Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};
use crate::tensor::DType;

/// Value of `TopKArgs::kind` for elements in f32.
const SINGLE: u32 = 1;
/// Value of `TopKArgs::kind` for elements in i32.
const INTEGER: u32 = 2;

impl TopKArgs {
    /// Creates the arguments for `x` `[rows, length]`, and `values` and `indices` `[rows, k]`. Elements have `dtype`, or that of the model if it
    /// is `None`.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub fn new(
        [x, values, indices]: [DeviceAddress; 3],
        [rows, length]: [usize; 2],
        op: TopK,
        dtype: Option<DType>,
    ) -> Result<Self, KernelError> {
        Ok(Self {
            x,
            values,
            indices,
            rows: extent(rows)?,
            length: extent(length)?,
            k: extent(op.k)?,
            largest: op.largest.into(),
            kind: match dtype {
                None => 0,
                Some(DType::I32) => INTEGER,
                Some(_) => SINGLE,
            },
            reserved: 0,
        })
    }

    /// Returns true if a block takes few elements of a long row.
    fn takes_few(&self) -> bool {
        self.k <= TOP_K_FEW && self.length >= TOP_K_LONG
    }
}

// SAFETY: see hip/top_k.hip. Blocks beyond the last row return. Places of the elements of a row are different, and only those below k are
// written. Rows of `top_k_few` have an element for each of k groups of threads.
unsafe impl KernelArguments for TopKArgs {
    const FILE: &'static str = "top_k";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok(if self.takes_few() { "top_k_few" } else { "top_k" }.into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        if [self.rows, self.length, self.k].contains(&0) || self.k > self.length {
            return Err("takes no elements, or more than there are".into());
        }
        if self.takes_few() {
            return target.blocks(self.rows.into(), TOP_K_FEW_THREADS);
        }
        let parts = u64::from(self.length.div_ceil(TOP_K_THREADS));
        target.blocks(parts.saturating_mul(self.rows.into()), TOP_K_THREADS)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let element = if self.kind == 0 { element } else { 4 };
        let result = [self.rows, self.k];
        visit(Access::read(
            "x",
            self.x,
            bytes(element, &[self.rows, self.length]),
        ));
        visit(Access::write("values", self.values, bytes(element, &result)));
        visit(Access::write("indices", self.indices, bytes(4, &result)));
    }
}

impl Lower for TopK {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("top_k"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let x = step.shape_of(0)?;
        let length = x.last().copied().unwrap_or(0);
        let addresses = [step.address(0)?, step.out, step.result(1)?];
        let dtype = step.plan.buffer(step.step.output()).dtype;
        let own = (dtype != step.plan.dtype()).then_some(dtype);
        one(TopKArgs::new(addresses, [rows(x)?, length], *self, own)?)
    }
}
