//! `swiglu`: the gate `silu(x[:, :channels] + bias) · (x[:, channels:] + bias)`.

use super::bindings::SwiGluArgs;
use super::{Access, KernelArguments, Launch, Target, bytes, extent, optional};

impl SwiGluArgs {
    /// For `x` `[rows, 2·channels]` and `out` `[rows, channels]`; `bias` `[2·channels]` may be 0.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub(crate) fn new([x, bias, out]: [u64; 3], [rows, channels]: [usize; 2]) -> Result<Self, String> {
        Ok(Self {
            x,
            bias,
            out,
            rows: extent(rows)?,
            channels: extent(channels)?,
        })
    }
}

// SAFETY: hip/swiglu.hip; threads beyond the last row return.
unsafe impl KernelArguments for SwiGluArgs {
    const FILE: &'static str = "swiglu";

    fn plan(&mut self, target: &Target) -> Result<Launch, String> {
        target.elementwise(self.rows.into(), self.channels)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let bytes = |extents: &[u32]| bytes(element, extents);
        visit(Access::read("x", self.x, bytes(&[self.rows, 2, self.channels])));
        visit(optional(Access::read(
            "bias",
            self.bias,
            bytes(&[2, self.channels]),
        )));
        visit(Access::write("out", self.out, bytes(&[self.rows, self.channels])));
    }
}
