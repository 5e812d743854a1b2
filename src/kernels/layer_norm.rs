//! `layer_norm`, of x or of x + residual, over the channels.

use super::bindings::LayerNormArgs;
use super::{Access, KernelArguments, Launch, Target, bytes, extent, optional};

impl LayerNormArgs {
    /// For `x` and `out` `[rows, channels]`, `weight` and `bias` `[channels]`.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub(crate) fn new(
        [x, weight, bias, out]: [u64; 4],
        [rows, channels]: [usize; 2],
        epsilon: f32,
    ) -> Result<Self, String> {
        Ok(Self {
            x,
            residual: 0,
            weight,
            bias,
            sum: 0,
            out,
            rows: extent(rows)?,
            channels: extent(channels)?,
            epsilon,
            whole_block: 0,
        })
    }

    /// The same of x + `residual`, which is stored in `sum`.
    pub(crate) fn of_sum(self, residual: u64, sum: u64) -> Self {
        Self {
            residual,
            sum,
            ..self
        }
    }
}

// SAFETY: hip/layer_norm.hip; waves and blocks beyond the last row return.
unsafe impl KernelArguments for LayerNormArgs {
    const FILE: &'static str = "layer_norm";

    fn plan(&mut self, target: &Target) -> Result<Launch, String> {
        let (launch, whole_block) = target.rows(self.rows.into(), self.channels)?;
        self.whole_block = whole_block;
        Ok(launch)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let all = bytes(element, &[self.rows, self.channels]);
        let row = bytes(element, &[self.channels]);
        visit(Access::read("x", self.x, all));
        visit(optional(Access::read("residual", self.residual, all)));
        visit(Access::read("weight", self.weight, row));
        visit(Access::read("bias", self.bias, row));
        visit(optional(Access::write("sum", self.sum, all)));
        visit(Access::write("out", self.out, all));
    }
}
