//! `gemv`: a linear layer of few rows, such as a token of a decoder, with bias, activation and residual.

use std::borrow::Cow;

use super::activation_code::activation_code;
use super::bindings::{GEMV_CHANNELS, GEMV_ROWS, GEMV_THREADS, GemvArgs};
use super::{
    Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, bytes, extent, visit_epilogue,
};
use crate::ops::Activation;

/// Maximum number of rows that the kernel computes.
pub(crate) const MAX_ROWS: usize = GEMV_ROWS as usize;

impl GemvArgs {
    /// Creates the arguments for `x` `[m, k]`, a weight `[n, k]`, and `out` and `residual` `[m, n]`. `bias` `[n]` and `residual` may be
    /// null. `out` may alias `residual`.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub(crate) fn new(
        [x, weight, bias, residual, out]: [DeviceAddress; 5],
        [m, n, k]: [usize; 3],
        activation: Option<Activation>,
    ) -> Result<Self, KernelError> {
        Ok(Self {
            x,
            weight,
            bias,
            residual,
            out,
            rows: extent(m)?,
            channels: extent(n)?,
            inner: extent(k)?,
            activation: activation_code(activation) as u32,
        })
    }
}

// SAFETY: see hip/gemv.hip. Rows and channels beyond the last one are read at the last one, and not written.
unsafe impl KernelArguments for GemvArgs {
    const FILE: &'static str = "gemv";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok(match self.rows {
            0 | 1 => "gemv_1",
            2 => "gemv_2",
            _ => "gemv_4",
        }
        .into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        if self.rows == 0 || self.channels == 0 || self.rows > GEMV_ROWS {
            return Err(KernelError::unsupported(
                "has no rows, or more than the kernel computes",
            ));
        }
        target.blocks(u64::from(self.channels.div_ceil(GEMV_CHANNELS)), GEMV_THREADS)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let [m, n, k] = [self.rows, self.channels, self.inner];
        visit(Access::read("x", self.x, bytes(element, &[m, k])));
        visit(Access::read("weight", self.weight, bytes(element, &[n, k])));
        let epilogue = [self.bias, self.residual, self.out];
        visit_epilogue(epilogue, [element; 2], [m, n], visit);
    }
}
