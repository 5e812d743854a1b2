//! Operations after a GEMM: bias, activation and residual.

use std::ops::Range;

use hipvit_graph::op::{Activation, OpError};
use ndarray::{ArrayView2, ArrayViewMut2, s};

use super::activation::apply;
use super::rows::Source;

/// Operations after the GEMM.
#[derive(Clone, Copy, Debug)]
pub struct Tail<'a> {
    /// Bias `[N]`.
    pub bias: Option<&'a [f32]>,
    /// Activation, applied after the bias.
    pub activation: Option<Activation>,
    /// Residual `[M,N]`, added last.
    pub residual: Option<Source<'a>>,
}

impl<'a> Tail<'a> {
    /// Returns the tail of these rows of a result of `n` columns.
    pub(super) fn rows(self, rows: Range<usize>, n: usize) -> Self {
        let residual = self.residual.map(|residual| match residual {
            Source::At(values) => Source::At(&values[rows.start * n..rows.end * n]),
            Source::InPlace => Source::InPlace,
        });
        Self { residual, ..self }
    }
}

/// Returns the residual if it is not in place.
pub(super) fn residual_of(
    tail: Tail<'_>,
    [rows, n]: [usize; 2],
) -> Result<Option<ArrayView2<'_, f32>>, OpError> {
    match tail.residual {
        Some(Source::At(residual)) => view(residual, rows, n).map(Some),
        _ => Ok(None),
    }
}

/// Applies the rest of the tail to the rows of `result`, `stride` apart and with their bias. Writes them to `out`.
pub(super) fn finish(
    tail: Tail<'_>,
    residual: Option<ArrayView2<'_, f32>>,
    result: &mut [f32],
    stride: usize,
    mut out: ArrayViewMut2<'_, f32>,
) -> Result<(), OpError> {
    if let Some(activation) = tail.activation {
        apply(activation, result);
    }
    let result = view(result, out.nrows(), stride)?;
    let result = result.slice(s![.., ..out.ncols()]);
    if let Some(residual) = residual {
        out.assign(&residual);
    }
    if tail.residual.is_some() {
        out += &result;
    } else {
        out.assign(&result);
    }
    Ok(())
}

fn view(values: &[f32], rows: usize, columns: usize) -> Result<ArrayView2<'_, f32>, OpError> {
    ArrayView2::from_shape((rows, columns), values).map_err(OpError::memory)
}
