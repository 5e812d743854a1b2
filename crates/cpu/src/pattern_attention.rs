//! Multi-head attention with a pattern.

use std::ops::Range;

use hipvit_graph::op::{OpError, PatternAttention};
use hipvit_graph::pattern::{Captured, Evaluator, Extents, Row};
use ndarray::parallel::prelude::*;
use ndarray::{ArrayView2, ArrayViewMut2, ArrayViewMut4, Axis};
use rayon::slice::ParallelSliceMut;
use rten_simd::SimdOp;

use super::attention::heads::{SCORES, Tokens};
use super::attention::{QUERIES, SoftmaxRows};
use super::gemm::{self, Epilogue, ROW_TILE};
use super::rows::{SharedLoop, with_scratch};
use super::{CpuOp, Operands};

impl CpuOp for PatternAttention {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let operands = (0..operands.count())
            .map(|index| {
                let (shape, values) = (operands.batched_shape(index)?, operands.values(index)?);
                Ok(Captured { shape, values })
            })
            .collect::<Result<Vec<_>, OpError>>()?;
        attend(self, &operands, results)
    }
}

/// Computes attention from operands in memory, of which captured integers are floats.
///
/// # Errors
///
/// [`OpError`] if the operands do not fit the op.
pub fn attend(
    spec: &PatternAttention,
    operands: &[Captured<'_, f32>],
    results: &mut [&mut [f32]],
) -> Result<(), OpError> {
    let [q, k, v] = spec.plain().places().map(|(index, channel)| {
        let Captured { shape, values } = operands[index];
        Tokens::of_values(shape, values, channel)
    });
    let (q, k, v) = (q?, k?, v?);
    let captured = spec.captured(operands);
    let extents = Extents {
        heads: spec.heads,
        queries: q.count,
        keys: k.count,
    };
    let head = Head {
        spec,
        extents,
        score: evaluator(spec, spec.program.score(), captured, extents)?,
        mask: evaluator(spec, spec.program.mask(), captured, extents)?,
    };
    let batch = operands[spec.operands.keys()].shape[0];
    let (out, rest) = results.split_first_mut().ok_or("has no result")?;
    head.run_all([q, k, v], batch, out, rest.first_mut().map(|sums| &mut **sums))
}

fn evaluator<'a>(
    spec: &'a PatternAttention,
    step: Option<usize>,
    captured: &[Captured<'a, f32>],
    extents: Extents,
) -> Result<Option<(usize, Evaluator<'a, f32>)>, OpError> {
    let create = |step| {
        let evaluator = Evaluator::new(&spec.program, &[step], captured, &spec.scalars, extents);
        Ok((step, evaluator.map_err(|error| OpError::from(error.to_string()))?))
    };
    step.map(create).transpose()
}

/// Attention of one head, with its evaluators. Each task has a clone.
#[derive(Clone)]
struct Head<'a> {
    spec: &'a PatternAttention,
    extents: Extents,
    score: Option<(usize, Evaluator<'a, f32>)>,
    mask: Option<(usize, Evaluator<'a, f32>)>,
}

impl Head<'_> {
    /// Computes all heads of all images, each as a task.
    fn run_all(
        &self,
        [q, k, v]: [Tokens<'_>; 3],
        batch: usize,
        out: &mut [f32],
        sums: Option<&mut [f32]>,
    ) -> Result<(), OpError> {
        let (heads, d, queries) = (self.extents.heads, self.spec.head_dim, self.extents.queries);
        let mut by_head = ArrayViewMut4::from_shape((batch, queries, heads, d), out)
            .map_err(OpError::memory)?
            .permuted_axes([0, 2, 1, 3]);
        let mut none = vec![
            0.0;
            if sums.is_some() {
                0
            } else {
                batch * heads * queries
            }
        ];
        let sums = sums.unwrap_or(&mut none);
        let images = by_head.axis_iter_mut(Axis(0)).into_par_iter();
        let images = images.zip(sums.par_chunks_mut(heads * queries)).enumerate();
        images.try_for_each_item(|(b, (mut image, sums))| {
            let heads = image.axis_iter_mut(Axis(0)).into_par_iter();
            let heads = heads.zip(sums.par_chunks_mut(queries)).enumerate();
            heads.try_for_each_item(|(head, (out, sums))| {
                let channel = head * d;
                let qkv = [
                    q.of_image(b, channel)?,
                    k.of_image(b, channel)?,
                    v.of_image(b, channel)?,
                ];
                self.clone().run([b, head], qkv, out, sums)
            })
        })
    }

    /// Computes a head into `out [Nq, head_dim]` and `ln Σ e^s` into `sums`.
    fn run(
        mut self,
        at: [usize; 2],
        [q, k, v]: [Tokens<'_>; 3],
        mut out: ArrayViewMut2<'_, f32>,
        sums: &mut [f32],
    ) -> Result<(), OpError> {
        let (d, all) = (self.spec.head_dim, self.extents.keys);
        let tile = (SCORES / all).max(QUERIES).next_multiple_of(ROW_TILE);
        let prepack = |keys: &Range<usize>| {
            let (k, v) = (k.after(keys.start)?, v.after(keys.start)?);
            let [k, v] = [k.matrix(0, keys.len(), d)?, v.matrix(0, keys.len(), d)?];
            Ok::<_, OpError>((gemm::prepack(k.transposed()), gemm::prepack(v)))
        };
        let epilogue = |scale| Epilogue { scale, bias: None };
        let (mut packed, mut packed_keys) = (None, 0..0);
        let tiles = out.axis_chunks_iter_mut(Axis(0), tile).zip(sums.chunks_mut(tile));
        for (i, (mut out, sums)) in tiles.enumerate() {
            let (first, rows) = (i * tile, out.nrows());
            let visible = self.visible(at, first..first + rows);
            // Hidden keys at both ends are skipped. Packed keys are used again if few of them are hidden.
            let keys = visible.range();
            if keys.is_empty() {
                out.fill(0.0);
                sums.fill(f32::NEG_INFINITY);
                continue;
            }
            let fits = packed_keys.start <= keys.start && keys.end <= packed_keys.end;
            if !fits || 2 * keys.len() < packed_keys.len() {
                packed_keys = if 2 * keys.len() > all { 0..all } else { keys };
                packed = Some(prepack(&packed_keys)?);
            }
            let Some((packed_k, packed_v)) = &packed else {
                continue;
            };
            let q = q.matrix(first, rows, d)?;
            let keys = packed_keys.clone();
            with_scratch(rows * (keys.len() + d), |scratch| {
                let (scores, result) = scratch.split_at_mut(rows * keys.len());
                gemm::multiply(q, packed_k, epilogue(self.spec.scale), scores)?;
                self.change(at, first, &keys, &visible, scores);
                if self.spec.log_sum_exp {
                    for (row, sum) in scores.chunks_exact(keys.len()).zip(sums) {
                        *sum = log_sum_exp(row);
                    }
                }
                softmax(scores, keys.len());
                let weights = gemm::strided(scores, rows, keys.len(), keys.len())?;
                gemm::multiply(weights, packed_v, epilogue(1.0), result)?;
                let result = ArrayView2::from_shape((rows, d), result).map_err(OpError::memory)?;
                out.assign(&result);
                Ok::<_, OpError>(())
            })?;
        }
        Ok(())
    }

    /// Evaluates the mask of a tile of queries.
    fn visible(&mut self, [batch, head]: [usize; 2], queries: Range<usize>) -> Visible {
        let keys = self.extents.keys;
        let mut visible = Visible { keys, of_rows: None };
        if let Some((step, evaluator)) = &mut self.mask {
            let mut of_rows = Vec::with_capacity(queries.len() * keys);
            for query in queries {
                evaluator.evaluate(Row { batch, head, query }, &[]);
                of_rows.extend((0..keys).map(|key| evaluator.is_true(*step, key)));
            }
            visible.of_rows = Some(of_rows);
        }
        visible
    }

    /// Applies score and mask to the scores of the keys `keys`, for the queries from `first` on.
    fn change(
        &mut self,
        [batch, head]: [usize; 2],
        first: usize,
        keys: &Range<usize>,
        visible: &Visible,
        scores: &mut [f32],
    ) {
        let mut before = vec![0.0; self.extents.keys];
        for (row, scores) in scores.chunks_exact_mut(keys.len()).enumerate() {
            if let Some((step, evaluator)) = &mut self.score {
                before[keys.clone()].copy_from_slice(scores);
                let query = first + row;
                evaluator.evaluate(Row { batch, head, query }, &before);
                evaluator.copy_floats(*step, keys.start, scores);
            }
            if let Some(of_rows) = &visible.of_rows {
                let of_row = &of_rows[row * visible.keys..][keys.clone()];
                for (score, _) in scores.iter_mut().zip(of_row).filter(|(_, seen)| !**seen) {
                    *score = f32::NEG_INFINITY;
                }
            }
        }
    }
}

/// Mask of a tile of queries.
struct Visible {
    keys: usize,
    /// `[queries, keys]`. `None` if all keys are visible.
    of_rows: Option<Vec<bool>>,
}

impl Visible {
    /// Returns the smallest range that has all visible keys.
    fn range(&self) -> Range<usize> {
        let Some(of_rows) = &self.of_rows else {
            return 0..self.keys;
        };
        let rows = of_rows.chunks_exact(self.keys);
        let ends = rows.filter_map(|row| {
            let first = row.iter().position(|&seen| seen)?;
            let last = row.iter().rposition(|&seen| seen)?;
            Some((first, last + 1))
        });
        ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
            .map_or(0..0, |(start, end)| start..end)
    }
}

fn log_sum_exp(scores: &[f32]) -> f32 {
    let row_max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if row_max == f32::NEG_INFINITY {
        return row_max;
    }
    let sum: f64 = scores.iter().map(|&score| f64::from(score - row_max).exp()).sum();
    (f64::from(row_max) + sum.ln()) as f32
}

/// Computes the softmax of rows of `keys` scores. A row without a visible key becomes zeros.
fn softmax(scores: &mut [f32], keys: usize) {
    let is_hidden: Vec<bool> = scores
        .chunks_exact(keys)
        .map(|row| row.iter().all(|&score| score == f32::NEG_INFINITY))
        .collect();
    SoftmaxRows { scores, keys }.dispatch();
    let rows = scores.chunks_exact_mut(keys).zip(is_hidden);
    rows.filter(|(_, is_hidden)| *is_hidden)
        .for_each(|(row, _)| row.fill(0.0));
}
