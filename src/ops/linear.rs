//! Linear layers: a GEMM with its epilogue of bias, activation and residual.

use ndarray::parallel::prelude::*;
use ndarray::{ArrayView2, ArrayViewMut2, Axis, s};
use rayon::prelude::*;
use rten_tensor::Matrix;

use super::gemm::{self, Epilogue, PackedBMatrix, ROW_TILE};
use super::rows::{Source, with_scratch};
use super::{Shape, activation, count, expect, finished, optional};
use crate::non_finite;
use crate::ops::{Activation, Linear};

pub(super) fn shape(spec: &Linear, inputs: &[&[usize]]) -> Result<Shape, String> {
    let mut rest = inputs.iter();
    let x = optional(&mut rest, true, "x")?.unwrap_or_default();
    let weight = optional(&mut rest, true, "weight")?.unwrap_or_default();
    let bias = optional(&mut rest, spec.bias, "bias")?;
    let residual = optional(&mut rest, spec.residual, "residual")?;
    finished(&rest)?;
    let Some((&k, outer)) = x.split_last() else {
        return Err("x is a scalar".into());
    };
    let [n, width] = *weight else {
        return Err(format!("`weight` has shape {weight:?}, expected [N, {k}]"));
    };
    expect("weight", &[n, width], &[n, k])?;
    if let Some(bias) = bias {
        expect("bias", bias, &[n])?;
    }
    let output: Shape = outer.iter().copied().chain([n]).collect();
    if let Some(residual) = residual {
        expect("residual", residual, &output)?;
    }
    Ok(output)
}

pub(super) fn flops(spec: &Linear, weight: &[usize], output: &[usize]) -> u64 {
    let per_element = spec.activation.map_or(0, activation::flops_per_element) + u64::from(spec.residual);
    matmul_flops(output, weight[1], spec.bias) + per_element * count(output)
}

/// `2·k` operations per element, and one for the bias.
pub(super) fn matmul_flops(output: &[usize], k: usize, bias: bool) -> u64 {
    count(output) * (2 * k as u64 + u64::from(bias))
}

/// A weight `[N,K]`, prepacked for many GEMMs.
#[derive(Clone)]
pub(crate) struct PrepackedWeight {
    n: usize,
    k: usize,
    /// Output channels of each panel but the last, which may have fewer.
    width: usize,
    panels: Vec<PackedBMatrix<f32>>,
    finite: bool,
}

impl PrepackedWeight {
    /// Prepacks `weight`, in parallel, into panels that this pool's threads can share evenly.
    pub(crate) fn new(weight: &[f32], n: usize, k: usize) -> Result<Self, String> {
        if n == 0 || k == 0 || weight.len() != n * k {
            return Err(format!(
                "the weight has {} elements, expected {n} × {k}",
                weight.len()
            ));
        }
        let width = panel_width(n, rayon::current_num_threads());
        let panels = weight
            .par_chunks(width * k)
            .map(|rows| {
                let panel = gemm::prepack(gemm::strided(rows, rows.len() / k, k, k)?.transposed());
                // As long as the cache has them.
                let finite = non_finite::count(rows.iter().copied()) == 0;
                Ok((panel, finite))
            })
            .collect::<Result<Vec<_>, String>>()?;
        let finite = panels.iter().all(|(_, finite)| *finite);
        let panels = panels.into_iter().map(|(panel, _)| panel).collect();
        Ok(Self {
            n,
            k,
            width,
            panels,
            finite,
        })
    }

    /// Whether no value is NaN or infinite.
    pub(crate) fn is_finite(&self) -> bool {
        self.finite
    }

    /// Input channels.
    pub(crate) fn k(&self) -> usize {
        self.k
    }

    /// Output channels.
    pub(crate) fn n(&self) -> usize {
        self.n
    }
}

/// What follows the GEMM.
#[derive(Clone, Copy)]
pub(crate) struct Tail<'a> {
    pub(crate) bias: Option<&'a [f32]>,
    pub(crate) activation: Option<Activation>,
    pub(crate) residual: Option<Source<'a>>,
}

/// [`Op::Linear`](crate::ops::Op::Linear) on `x [M,K]`.
///
/// A task is a block of rows times a panel of the weight. Its result goes through bias, activation and residual while
/// it is in the L2 cache.
pub(crate) fn run(
    x: &[f32],
    weight: &PrepackedWeight,
    tail: Tail<'_>,
    out: &mut [f32],
) -> Result<(), String> {
    let PrepackedWeight { n, k, width, .. } = *weight;
    let rows = out.len() / n;
    let block = block_rows(rows);
    let residual = match tail.residual {
        Some(Source::At(residual)) => Some(view(residual, rows, n)?),
        _ => None,
    };
    let mut out = ArrayViewMut2::from_shape((rows, n), out).map_err(|e| e.to_string())?;
    let blocks = out.axis_chunks_iter_mut(Axis(0), block).into_par_iter();
    let blocks = blocks.zip(x.par_chunks(block * k)).enumerate();
    blocks.try_for_each(|(i, (mut out, x))| {
        let x = gemm::strided(x, out.nrows(), k, k)?;
        let columns = out.axis_chunks_iter_mut(Axis(1), width).into_par_iter();
        let columns = columns.zip(&weight.panels).enumerate();
        columns.try_for_each(|(j, (out, panel))| {
            let (rows, columns) = (
                i * block..i * block + out.nrows(),
                j * width..j * width + out.ncols(),
            );
            let bias = tail.bias.map(|bias| &bias[columns.clone()]);
            let residual = residual.map(|residual| residual.slice_move(s![rows, columns]));
            task(x, panel, Tail { bias, ..tail }, residual, out)
        })
    })
}

/// One block of rows times one panel; `residual` is the block of a residual that is not in place.
fn task(
    x: Matrix<'_>,
    panel: &PackedBMatrix<f32>,
    tail: Tail<'_>,
    residual: Option<ArrayView2<'_, f32>>,
    out: ArrayViewMut2<'_, f32>,
) -> Result<(), String> {
    let (rows, columns) = out.dim();
    let epilogue = Epilogue {
        scale: 1.0,
        bias: tail.bias,
    };
    with_scratch(rows * columns, |result| {
        gemm::multiply(x, panel, epilogue, result)?;
        finish(tail, residual, result, columns, out)
    })
}

/// Puts the rows of `result`, which are `stride` apart and have their bias, through the rest of the tail into `out`.
pub(super) fn finish(
    tail: Tail<'_>,
    residual: Option<ArrayView2<'_, f32>>,
    result: &mut [f32],
    stride: usize,
    mut out: ArrayViewMut2<'_, f32>,
) -> Result<(), String> {
    if let Some(activation) = tail.activation {
        activation::apply(activation, result);
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

fn view(values: &[f32], rows: usize, columns: usize) -> Result<ArrayView2<'_, f32>, String> {
    ArrayView2::from_shape((rows, columns), values).map_err(|e| e.to_string())
}

/// Output channels of a panel: 256, or somewhat fewer if that gives each thread as many panels as the others.
fn panel_width(n: usize, threads: usize) -> usize {
    // The widest kernel computes 32 channels at once.
    let width = |panels: usize| n.div_ceil(panels).next_multiple_of(32);
    let fewest = n.div_ceil(PANEL_WIDTH);
    (fewest..=2 * fewest)
        .map(width)
        .find(|&width| n.div_ceil(width).is_multiple_of(threads))
        .unwrap_or_else(|| width(fewest))
}

/// Channels of a panel: a multiple of every kernel's width.
const PANEL_WIDTH: usize = 256;

/// Rows of a block: with a panel's channels, few enough for the result to stay in the L2 cache, and enough
/// for each read of the weight to be worth it. ViT-B/16 on two Zen 5 cores (AVX-512, 1 MiB of L2 cache
/// each): 81 ms at batch 1, where 102 rows take 87 ms; 650 ms at batch 8 with either.
pub(super) const BLOCK_ROWS: usize = 204;

/// The rows of each of the equal blocks into which `rows` rows are divided.
fn block_rows(rows: usize) -> usize {
    let blocks = rows.div_ceil(BLOCK_ROWS).max(1);
    rows.div_ceil(blocks).next_multiple_of(ROW_TILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_shared_out_evenly() {
        // Panels of ViT-B's GEMMs on 2 threads, and of the widest on 3.
        for (n, threads, panels) in [(768usize, 2, 4), (2304, 2, 12), (3072, 2, 12), (3072, 3, 12)] {
            assert_eq!(n.div_ceil(panel_width(n, threads)), panels, "{n} on {threads}");
        }
        // More threads than panels of a sensible size.
        assert_eq!(panel_width(768, 64), PANEL_WIDTH);
        assert_eq!(panel_width(1, 8), 32);
        for (rows, expected) in [(1, 6), (197, 198), (205, 108), (1576, 198)] {
            assert_eq!(block_rows(rows), expected, "{rows}");
        }
    }
}
