//! Attention of single queries over keys and values in pages.

use hipvit_graph::op::{OpError, PagedAttention};
use rayon::prelude::*;

use super::rows::{SharedLoop, dot};
use super::{CpuOp, Operands};

impl CpuOp for PagedAttention {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let values = |index| operands.values(index);
        let (q, cache, table, lengths) = (values(0)?, values(1)?, values(2)?, values(3)?);
        let (d, width) = (self.head_dim, self.kv_heads * self.head_dim);
        let pages = table.len() / lengths.len().max(1);
        let columns = operands.shape(0)?[1];
        let heads = results[0].par_chunks_mut(d).enumerate();
        heads.for_each_item(|(index, out)| {
            let (row, head) = (index / self.heads, index % self.heads);
            let table = &table[row * pages..][..pages];
            let rows: Vec<usize> = self
                .rows(table, lengths[row], cache.len() / (2 * width))
                .collect();
            let q = &q[row * columns + head * d..][..d];
            let first = head / (self.heads / self.kv_heads) * d;
            let mut weights: Vec<f32> = rows
                .iter()
                .map(|&at| self.scale * dot(q, &cache[at * 2 * width + first..][..d]))
                .collect();
            let largest = weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            weights
                .iter_mut()
                .for_each(|weight| *weight = (*weight - largest).exp());
            let sum: f32 = weights.iter().sum();
            out.fill(0.0);
            for (&at, weight) in rows.iter().zip(&weights) {
                let value = &cache[(at * 2 + 1) * width + first..][..d];
                out.iter_mut()
                    .zip(value)
                    .for_each(|(out, value)| *out += weight * value);
            }
            if !rows.is_empty() {
                out.iter_mut().for_each(|out| *out /= sum);
            }
        });
        Ok(())
    }
}
