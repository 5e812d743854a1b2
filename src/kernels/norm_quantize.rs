//! `norm_quantize`: a norm whose result is rounded to 8 bits row by row, as [`LayerNormArgs`] and then [`QuantizeArgs`].

use std::borrow::Cow;

use super::bindings::{
    FEW_ROWS_THREADS, LayerNormArgs, NormQuantizeArgs, QuantizeArgs, WIDE_ROW, WIDE_ROW_THREADS,
};
use super::{Access, KernelArguments, KernelError, Launch, Target};

impl NormQuantizeArgs {
    /// What `quantize`, of rows, makes of the result of `norm`, which is neither of a sum nor in FP8. Of the former x, and of the latter
    /// the result, are 0: it is not in memory.
    pub fn new(norm: LayerNormArgs, quantize: QuantizeArgs) -> Self {
        Self { norm, quantize }
    }
}

// SAFETY: hip/norm_quantize.hip; waves and blocks beyond the last row return.
unsafe impl KernelArguments for NormQuantizeArgs {
    const FILE: &'static str = "norm_quantize";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        let norm = if self.norm.bias == 0 {
            "rms_norm"
        } else {
            "layer_norm"
        };
        let quantize = self.quantize.entry()?;
        let rows = quantize.trim_start_matches("quantize_");
        let wide = if self.norm.is_wide() { "_wide" } else { "" };
        Ok(format!("{norm}_{rows}{wide}").into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        let Self { norm, quantize } = self;
        if norm.residual != 0 || norm.sum != 0 || norm.float8_factor != 0.0 || !quantize.is_of_rows() {
            return Err(KernelError::internal("rounds the rows of a plain norm alone"));
        }
        if [norm.rows, norm.channels] != [quantize.rows, quantize.channels] {
            return Err(KernelError::internal("rounds a matrix that is not the norm's"));
        }
        let (threads, of_wave) = if self.norm.is_wide() {
            (WIDE_ROW_THREADS, WIDE_ROW)
        } else {
            (FEW_ROWS_THREADS, target.row_of_wave())
        };
        let (rows, channels) = (self.norm.rows, self.norm.channels);
        let (launch, whole_block) = target.rows(rows.into(), channels, threads, of_wave)?;
        self.norm.whole_block = whole_block;
        Ok(launch)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        // The norm's result is not in memory.
        let mut visit_but = |field, access: Access| {
            if access.field != field {
                visit(access);
            }
        };
        self.norm
            .accesses(element, &mut |access| visit_but("out", access));
        self.quantize
            .accesses(element, &mut |access| visit_but("x", access));
    }
}
