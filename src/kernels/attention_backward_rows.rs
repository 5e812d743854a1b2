//! `attention_backward_rows` and `attention_backward_sum`: what comes before and after the derivative of attention.

use std::borrow::Cow;

use super::attention::check_not_empty;
use super::bindings::{
    ATTENTION_BACKWARD_LANES, ATTENTION_BACKWARD_THREADS, AttentionBackwardRowsArgs, AttentionBackwardSumArgs,
};
use super::{Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, bytes, extent};

impl AttentionBackwardRowsArgs {
    /// Creates the arguments for the forward pass's result, its gradient and its statistics, `row_statistics` for each query.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub fn new(
        [o, dy, statistics, rows]: [DeviceAddress; 4],
        [images, queries, heads, head_dim]: [usize; 4],
        row_statistics: u32,
    ) -> Result<Self, KernelError> {
        Ok(Self {
            o,
            dy,
            statistics,
            rows,
            images: extent(images)?,
            heads: extent(heads)?,
            queries: extent(queries)?,
            head_dim: extent(head_dim)?,
            row_statistics,
            reserved: 0,
        })
    }
}

impl AttentionBackwardSumArgs {
    /// Creates the arguments for f32 `[summands, elements]` at `x`.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub fn new([x, out]: [DeviceAddress; 2], [summands, elements]: [usize; 2]) -> Result<Self, KernelError> {
        Ok(Self {
            x,
            out,
            summands: extent(summands)?,
            elements: extent(elements)?,
        })
    }
}

// SAFETY: see hip/attention_backward_rows.hip. Threads beyond the last row access nothing.
unsafe impl KernelArguments for AttentionBackwardRowsArgs {
    const FILE: &'static str = "attention_backward_rows";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        check_not_empty([self.images, self.heads, self.queries, self.head_dim])?;
        let rows = u64::from(self.images) * u64::from(self.heads);
        // The kernel counts them in 32 bits.
        let rows = rows
            .checked_mul(self.queries.into())
            .filter(|&rows| rows <= u64::from(u32::MAX));
        let rows = rows.ok_or_else(|| KernelError::unsupported("there are too many queries"))?;
        target.threads(
            rows * u64::from(ATTENTION_BACKWARD_LANES),
            ATTENTION_BACKWARD_THREADS,
        )
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let rows = [self.images, self.heads, self.queries];
        let all = bytes(element * self.head_dim as usize, &rows);
        visit(Access::read("o", self.o, all));
        visit(Access::read("dy", self.dy, all));
        visit(Access::read(
            "statistics",
            self.statistics,
            bytes(self.row_statistics as usize * size_of::<f32>(), &rows),
        ));
        visit(Access::write(
            "rows",
            self.rows,
            bytes(2 * size_of::<f32>(), &rows),
        ));
    }
}

// SAFETY: see hip/attention_backward_rows.hip. Threads beyond the last element return.
unsafe impl KernelArguments for AttentionBackwardSumArgs {
    const FILE: &'static str = "attention_backward_rows";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok("attention_backward_sum".into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        target.threads(self.elements.into(), ATTENTION_BACKWARD_THREADS)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let x = bytes(size_of::<f32>(), &[self.summands, self.elements]);
        visit(Access::read("x", self.x, x));
        visit(Access::write("out", self.out, bytes(element, &[self.elements])));
    }
}
