//! Attention of single queries over keys and values in pages.

use hipvit_graph::op::{OpError, PagedAttention};
use rayon::prelude::*;

use super::rows::{SharedLoop, dot};
use super::{CpuOp, Operands};

impl CpuOp for PagedAttention {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        attend(self, operands, results, |_, _| Ok(true))
    }
}

/// Computes attention. `apply` changes the scores of a row and head, and returns true if a key is visible.
pub(super) fn attend(
    op: &PagedAttention,
    operands: &Operands<'_>,
    results: &mut [&mut [f32]],
    apply: impl Fn([usize; 2], &mut [f32]) -> Result<bool, OpError> + Sync,
) -> Result<(), OpError> {
    let values = |index| operands.values(index);
    let (q, cache, table, lengths) = (values(0)?, values(1)?, values(2)?, values(3)?);
    let (d, width) = (op.head_dim, op.kv_heads * op.head_dim);
    let pages = table.len() / lengths.len().max(1);
    let columns = operands.shape(0)?[1];
    let heads = results[0].par_chunks_mut(d).enumerate();
    heads.try_for_each_item(|(index, out)| {
        let (row, head) = (index / op.heads, index % op.heads);
        let table = &table[row * pages..][..pages];
        let rows: Vec<usize> = op.rows(table, lengths[row], cache.len() / (2 * width)).collect();
        out.fill(0.0);
        if rows.is_empty() {
            return Ok(());
        }
        let q = &q[row * columns + head * d..][..d];
        let first = head / (op.heads / op.kv_heads) * d;
        let mut weights: Vec<f32> = rows
            .iter()
            .map(|&at| op.scale * dot(q, &cache[at * 2 * width + first..][..d]))
            .collect();
        if !apply([row, head], &mut weights)? {
            return Ok(());
        }
        let largest = weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        weights
            .iter_mut()
            .for_each(|weight| *weight = (*weight - largest).exp());
        let sum: f32 = weights.iter().sum();
        for (&at, weight) in rows.iter().zip(&weights) {
            let value = &cache[(at * 2 + 1) * width + first..][..d];
            out.iter_mut()
                .zip(value)
                .for_each(|(out, value)| *out += weight * value);
        }
        out.iter_mut().for_each(|out| *out /= sum);
        Ok(())
    })
}
