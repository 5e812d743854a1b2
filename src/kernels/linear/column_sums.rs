//! The sums of columns that a backward pass needs beside a GEMM.

use super::call::LinearCall;
use crate::hip::Gemm;
use crate::kernels::bindings::ColumnSumArgs;
use crate::kernels::call::Call;
use crate::kernels::{KernelError, column_sum};

impl LinearCall {
    /// Returns the bytes of scratch memory for partial sums of columns.
    pub(crate) fn partial_sum_bytes(&self) -> usize {
        let Gemm { m, n, k, a, b, .. } = self.gemm;
        match (a.transposed, b.transposed) {
            (true, _) => column_sum::partial_bytes([k, m]),
            (false, false) => column_sum::partial_bytes([m, n]),
            (false, true) => 0,
        }
    }

    /// Returns the calls that sum columns after the GEMM, if a backward pass needs the sums: of x, unless the epilogue computes them, or of
    /// the result.
    pub(crate) fn column_sums(&self, epilogue: bool) -> Result<Vec<Call>, KernelError> {
        let Gemm { m, n, k, a, b, .. } = self.gemm;
        match (a.transposed, b.transposed) {
            _ if self.bias.is_null() => Ok(Vec::new()),
            (true, _) if !epilogue => ColumnSumArgs::calls([self.x, self.scratch, self.bias], [k, m]),
            (false, false) => ColumnSumArgs::calls([self.out, self.scratch, self.bias], [m, n]),
            _ => Ok(Vec::new()),
        }
    }
}
