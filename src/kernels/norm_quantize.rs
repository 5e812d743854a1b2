//! `norm_quantize`: a norm whose result is rounded to 8 bits row by row, [`LayerNormArgs`] followed by [`QuantizeArgs`].

use std::borrow::Cow;

use super::bindings::{
    FEW_ROWS_THREADS, LayerNormArgs, NormQuantizeArgs, QuantizeArgs, WIDE_ROW, WIDE_ROW_THREADS,
};
use super::{Access, KernelArguments, KernelError, Launch, Target};

impl NormQuantizeArgs {
    /// Fuses `norm` with `quantize`, which quantises its result by rows. The norm has no residual and no FP8 result. The result of `norm`
    /// and `quantize`'s x are 0, since the normalised rows are not stored.
    pub fn new(norm: LayerNormArgs, quantize: QuantizeArgs) -> Self {
        Self { norm, quantize }
    }
}

// SAFETY: see hip/norm_quantize.hip. Waves and blocks beyond the last row return.
unsafe impl KernelArguments for NormQuantizeArgs {
    const FILE: &'static str = "norm_quantize";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        let norm = if self.norm.bias.is_null() {
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
        if !norm.residual.is_null()
            || !norm.sum.is_null()
            || norm.float8_factor != 0.0
            || !quantize.is_of_rows()
        {
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
        // The norm's result is not stored.
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
