//! Weights prepacked for many GEMMs, and these GEMMs with their [`Tail`].

use std::ops::Range;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use hipvit_graph::op::OpError;
use ndarray::parallel::prelude::*;
use ndarray::{ArrayView2, ArrayViewMut2, Axis, s};
use rayon::prelude::*;
use rten_tensor::Matrix;

use super::gemm::{self, BLOCK_ROWS, Blocks, Epilogue, PackedBMatrix};
use super::products::Products;
use super::rows::{SharedLoop, with_scratch};
use super::tail::{Tail, finish, residual_of};
use hipvit_graph::non_finite;
use hipvit_graph::tensor::DType;

/// Formats the extents.
impl std::fmt::Debug for PrepackedWeight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PrepackedWeight[{}, {}]", self.n, self.k)
    }
}

/// A weight `[N,K]`, prepacked for many GEMMs.
#[derive(Clone)]
pub struct PrepackedWeight {
    n: usize,
    k: usize,
    finite: bool,
    panels: Panels,
}

#[derive(Clone)]
enum Panels {
    /// Panels of `width` output channels each. The last one may have fewer.
    F32 {
        width: usize,
        panels: Vec<PackedBMatrix<f32>>,
    },
    /// Rows stored in 16 bits. Panels are widened and prepacked when they are multiplied.
    F16(Vec<f16>),
    Bf16(Vec<bf16>),
    /// Panels in bf16, which are multiplied as they are.
    #[cfg(target_arch = "x86_64")]
    Products(super::bf16::Weight),
}

impl PrepackedWeight {
    /// Prepacks `weight` in parallel, into panels that the threads of the pool can share evenly. f16 and bf16 weights stay in 16 bits.
    pub fn new(weight: &[f32], n: usize, k: usize, dtype: DType) -> Result<Self, OpError> {
        if n == 0 || k == 0 || weight.len() != n * k {
            return Err(format!("the weight has {} elements, expected {n} × {k}", weight.len()).into());
        }
        let (panels, finite) = match (dtype, Products::new(dtype)) {
            #[cfg(target_arch = "x86_64")]
            (_, Products::Bf16(isa)) => {
                let packed = super::bf16::Weight::new(weight, n, k, isa);
                (Panels::Products(packed), is_finite(weight))
            }
            (DType::BF16, _) => (Panels::Bf16(narrow(weight)), is_finite(weight)),
            (DType::F16, _) => (Panels::F16(narrow(weight)), is_finite(weight)),
            _ => {
                let width = panel_width(n, rayon::current_num_threads());
                let panels = weight
                    .par_chunks(width * k)
                    // Check while the rows are in the cache.
                    .map(|rows| Ok((prepack(rows, k)?, is_finite(rows))))
                    .collect::<Result<Vec<_>, OpError>>()?;
                let finite = panels.iter().all(|(_, finite)| *finite);
                let panels = panels.into_iter().map(|(panel, _)| panel).collect();
                (Panels::F32 { width, panels }, finite)
            }
        };
        Ok(Self { n, k, finite, panels })
    }

    /// Returns true if all values are finite.
    pub(crate) fn is_finite(&self) -> bool {
        self.finite
    }

    /// Returns true if each GEMM packs the weight again.
    pub(super) fn is_repacked(&self) -> bool {
        matches!(self.panels, Panels::F16(_) | Panels::Bf16(_))
    }

    /// Returns the number of input channels.
    pub(crate) fn k(&self) -> usize {
        self.k
    }

    /// Returns the number of output channels.
    pub(crate) fn n(&self) -> usize {
        self.n
    }
}

/// Prepacks rows of `k` input channels as a panel of the f32 GEMM.
fn prepack(rows: &[f32], k: usize) -> Result<PackedBMatrix<f32>, OpError> {
    Ok(gemm::prepack(
        gemm::strided(rows, rows.len() / k, k, k)?.transposed(),
    ))
}

fn is_finite(values: &[f32]) -> bool {
    values
        .par_chunks(1 << 16)
        .all(|part| non_finite::count(part.iter().copied()) == 0)
}

/// Rounds the values to 16 bits (to nearest, ties to even).
fn narrow<T: Copy + Default + Send>(values: &[f32]) -> Vec<T>
where
    [T]: HalfFloatSliceExt,
{
    let mut narrow = vec![T::default(); values.len()];
    let parts = narrow.par_chunks_mut(1 << 16).zip(values.par_chunks(1 << 16));
    parts.for_each_item(|(narrow, values)| narrow.convert_from_f32_slice(values));
    narrow
}

/// Multiplies `x [M,K]` by the weight.
///
/// A task is a block of rows times a panel of the weight. Bias, activation and residual are applied while the result is in the L2 cache.
pub fn run(x: &[f32], weight: &PrepackedWeight, tail: Tail<'_>, out: &mut [f32]) -> Result<(), OpError> {
    let PrepackedWeight { n, k, .. } = *weight;
    match &weight.panels {
        Panels::F32 { width, panels } => run_f32(x, (*width, panels), [n, k], tail, out),
        Panels::F16(rows) => run_widened(x, rows, [n, k], tail, out),
        Panels::Bf16(rows) => run_widened(x, rows, [n, k], tail, out),
        #[cfg(target_arch = "x86_64")]
        Panels::Products(weight) => super::bf16::run(x, weight, tail, out),
    }
}

/// Multiplies `x [M,K]`, rounded to bf16 ([`Rounding::Bf16`](hipvit_graph::op::Rounding::Bf16)), by a weight in bf16. Processors without bf16 dot products sum the same
/// products in another order.
pub fn run_bf16(x: &[f32], weight: &PrepackedWeight, tail: Tail<'_>, out: &mut [f32]) -> Result<(), OpError> {
    match &weight.panels {
        // The GEMM rounds x itself.
        #[cfg(target_arch = "x86_64")]
        Panels::Products(_) => run(x, weight, tail, out),
        _ => with_scratch(x.len(), |rounded| {
            let parts = rounded.par_chunks_mut(1 << 16).zip(x.par_chunks(1 << 16));
            parts.for_each_item(|(rounded, x)| {
                for (rounded, x) in rounded.iter_mut().zip(x) {
                    *rounded = bf16::from_f32(*x).to_f32();
                }
            });
            run(rounded, weight, tail, out)
        }),
    }
}

fn run_f32(
    x: &[f32],
    (width, panels): (usize, &[PackedBMatrix<f32>]),
    [n, k]: [usize; 2],
    tail: Tail<'_>,
    out: &mut [f32],
) -> Result<(), OpError> {
    let rows = out.len() / n;
    let (block, _) = BLOCKS.divide(rows, panels.len(), rayon::current_num_threads());
    let residual = residual_of(tail, [rows, n])?;
    let mut out = ArrayViewMut2::from_shape((rows, n), out).map_err(OpError::memory)?;
    let blocks = out.axis_chunks_iter_mut(Axis(0), block).into_par_iter();
    let blocks = blocks.zip(x.par_chunks(block * k)).enumerate();
    blocks.try_for_each_item(|(i, (mut out, x))| {
        let x = gemm::strided(x, out.nrows(), k, k)?;
        let columns = out.axis_chunks_iter_mut(Axis(1), width).into_par_iter();
        let columns = columns.zip(panels).enumerate();
        columns.try_for_each_item(|(j, (out, panel))| {
            let (rows, columns) = (
                i * block..i * block + out.nrows(),
                j * width..j * width + out.ncols(),
            );
            task(x, panel, (tail, residual), [rows, columns], out)
        })
    })
}

/// Multiplies by the rows of a 16-bit weight. A task is a panel, so that each panel is widened once.
fn run_widened<T: Sync>(
    x: &[f32],
    weight: &[T],
    [n, k]: [usize; 2],
    tail: Tail<'_>,
    out: &mut [f32],
) -> Result<(), OpError>
where
    [T]: HalfFloatSliceExt,
{
    let rows = out.len() / n;
    let (block, _) = BLOCKS.divide(rows, 1, 1);
    let width = n
        .div_ceil(rayon::current_num_threads())
        .next_multiple_of(32)
        .min(PANEL_WIDTH);
    let residual = residual_of(tail, [rows, n])?;
    let mut out = ArrayViewMut2::from_shape((rows, n), out).map_err(OpError::memory)?;
    let columns = out.axis_chunks_iter_mut(Axis(1), width).into_par_iter();
    let columns = columns.zip(weight.par_chunks(width * k)).enumerate();
    columns.try_for_each_item(|(j, (mut out, panel))| {
        let columns = j * width..j * width + out.ncols();
        let panel = with_scratch(panel.len(), |values| {
            panel.convert_to_f32_slice(values);
            prepack(values, k)
        })?;
        let blocks = out.axis_chunks_iter_mut(Axis(0), block);
        for (i, (out, x)) in blocks.zip(x.chunks(block * k)).enumerate() {
            let rows = i * block..i * block + out.nrows();
            let x = gemm::strided(x, out.nrows(), k, k)?;
            task(x, &panel, (tail, residual), [rows, columns.clone()], out)?;
        }
        Ok(())
    })
}

/// Computes one block of rows times one panel, into these rows and columns of the result. `residual` is one that is not in place.
pub(super) fn task(
    x: Matrix<'_>,
    panel: &PackedBMatrix<f32>,
    (tail, residual): (Tail<'_>, Option<ArrayView2<'_, f32>>),
    [rows, columns]: [Range<usize>; 2],
    out: ArrayViewMut2<'_, f32>,
) -> Result<(), OpError> {
    let epilogue = Epilogue {
        scale: 1.0,
        bias: tail.bias.map(|bias| &bias[columns.clone()]),
    };
    let stride = columns.len();
    let residual = residual.map(|residual| residual.slice_move(s![rows, columns]));
    with_scratch(out.len(), |result| {
        gemm::multiply(x, panel, epilogue, result)?;
        finish(tail, residual, result, stride, out)
    })
}

/// Returns the output channels of a panel: 256, or down to half of it if threads then share an image's work more evenly.
pub(super) fn panel_width(n: usize, threads: usize) -> usize {
    // The widest kernel computes 32 channels at once.
    let width = |panels: usize| n.div_ceil(panels).next_multiple_of(32);
    let fewest = n.div_ceil(PANEL_WIDTH);
    (fewest..=2 * fewest)
        .map(width)
        .min_by_key(|&width| width * BLOCKS.divide(IMAGE_ROWS, n.div_ceil(width), threads).1)
        .unwrap_or(PANEL_WIDTH)
}

/// Maximum channels of a panel, a multiple of every kernel's width.
const PANEL_WIDTH: usize = 256;

/// Rows of ViT-B/16's GEMMs at batch 1.
const IMAGE_ROWS: usize = 197;

/// Each block reads a panel of the weight. ViT-B/16 on two Zen 5 cores (AVX-512, 1 MiB of L2 cache each) takes 81 ms at batch 1, and 87 ms
/// with blocks of 102 rows. At batch 8 it takes 650 ms with either.
pub(super) const BLOCKS: Blocks = Blocks {
    most: BLOCK_ROWS,
    overhead: 16,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random;

    #[test]
    fn work_is_shared_out_evenly() {
        // Panels of ViT-B's GEMMs on 2 threads, and of its widest GEMM on 3.
        for (n, threads, panels) in [(768usize, 2, 4), (2304, 2, 12), (3072, 2, 12), (3072, 3, 12)] {
            assert_eq!(n.div_ceil(panel_width(n, threads)), panels, "{n} on {threads}");
        }
        // Eight threads: two blocks of four panels each, not one block of three.
        assert_eq!(panel_width(768, 8), 192);
        assert_eq!(BLOCKS.divide(197, 4, 8).0, 102);
        assert_eq!(panel_width(1, 8), 32);
        for (rows, expected) in [(1, 6), (197, 198), (205, 108), (1576, 198)] {
            assert_eq!(BLOCKS.divide(rows, 12, 2).0, expected, "{rows}");
        }
    }

    /// Covers the processor's bf16 instructions, if any, and stored rows. The products are the same, summed in f32.
    #[test]
    fn layers_in_bf16_are_exact_but_for_their_sums() {
        const SIZES: [usize; 6] = [1, 63, 64, 65, 197, 257];
        let rounded = |x: f32| bf16::from_f32(x).to_f64();
        for (i, m) in SIZES.into_iter().enumerate() {
            for (j, k) in SIZES.into_iter().enumerate() {
                let n = SIZES[(i + j) % SIZES.len()];
                let (x, values) = (random::floats(m * k, 1, -1.0), random::floats(n * k, 2, -1.0));
                let bias = random::floats(n, 3, -1.0);
                let packed = PrepackedWeight::new(&values, n, k, DType::BF16).unwrap();
                let at_rest = PrepackedWeight {
                    panels: Panels::Bf16(narrow(&values)),
                    ..packed.clone()
                };
                let tail = Tail {
                    bias: Some(&bias),
                    activation: None,
                    residual: None,
                };
                for weight in [packed, at_rest] {
                    // The elements behind the result must not be written.
                    let mut out = vec![f32::NAN; m * n + 40];
                    run_bf16(&x, &weight, tail, &mut out[..m * n]).unwrap();
                    assert!(out[m * n..].iter().all(|value| value.is_nan()));
                    for (at, &value) in out[..m * n].iter().enumerate() {
                        let products =
                            (0..k).map(|c| rounded(x[at / n * k + c]) * rounded(values[at % n * k + c]));
                        let start = (f64::from(bias[at % n]), f64::from(bias[at % n].abs()));
                        let (sum, magnitude) =
                            products.fold(start, |(sum, all), product| (sum + product, all + product.abs()));
                        let error = (f64::from(value) - sum).abs();
                        // Higham, Accuracy and Stability of Numerical Algorithms, 4.2.
                        let limit = (k as f64 + 2.0) * f64::from(f32::EPSILON) * magnitude;
                        assert!(error <= limit, "{m} × {k} × {n}, {at}: {error:e}");
                    }
                }
            }
        }
    }
}
