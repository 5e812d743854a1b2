//! Attention in bf16: products of packed queries, keys and values.

use hipvit_graph::op::{Attention, OpError};
use ndarray::{ArrayViewMut2, Axis};

use super::{CHANNELS, Isa, Job};
use crate::attention::heads::{Extras, SCORES, Tokens};
use crate::packed::{COLUMNS, with_lines};
use crate::rows::with_scratch;

/// Computes the queries of one head of one image from `first` on into `out [Nq, head_dim]`. The operands start at the head's first channel.
pub(crate) fn attend(
    (spec, isa): (&Attention, Isa),
    [q, k, v]: [Tokens<'_>; 3],
    extras: Extras<'_>,
    first: usize,
    mut out: ArrayViewMut2<'_, f32>,
) -> Result<(), OpError> {
    let (d, keys, strip_rows) = (spec.head_dim, k.count, isa.strip_rows());
    let (channels, padded) = (d.next_multiple_of(CHANNELS), keys.next_multiple_of(CHANNELS));
    let block = (SCORES / padded / strip_rows).max(1) * strip_rows;
    with_lines(padded * (channels + d.next_multiple_of(COLUMNS)), |panels| {
        let (packed_k, packed_v) = panels.split_at_mut(padded * channels);
        isa.pack_rows(k.rows(0, keys, d)?, [d, k.stride], packed_k);
        isa.pack_columns(v.rows(0, keys, d)?, [keys, d, v.stride], packed_v);
        let head = Head {
            spec,
            isa,
            keys,
            k: packed_k,
            v: packed_v,
        };
        for (i, out) in out.axis_chunks_iter_mut(Axis(0), block).enumerate() {
            head.attend(q, extras, first + i * block, out)?;
        }
        Ok(())
    })
}

/// Packed keys and values of a head.
struct Head<'a> {
    spec: &'a Attention,
    isa: Isa,
    keys: usize,
    k: &'a [u16],
    v: &'a [u16],
}

impl Head<'_> {
    /// Computes the queries from `first` on.
    fn attend(
        &self,
        q: Tokens<'_>,
        extras: Extras<'_>,
        first: usize,
        mut out: ArrayViewMut2<'_, f32>,
    ) -> Result<(), OpError> {
        let Self { spec, isa, keys, .. } = *self;
        let (rows, d) = out.dim();
        let (channels, padded) = (d.next_multiple_of(CHANNELS), keys.next_multiple_of(CHANNELS));
        let columns = d.next_multiple_of(COLUMNS);
        let strips = rows.next_multiple_of(isa.strip_rows());
        let multiply = |x: &[u16], panels, (channels, scale), result: &mut [f32]| {
            let bias = &[];
            isa.gemm(
                &Job {
                    x,
                    panels,
                    channels,
                    scale,
                    bias,
                },
                result,
            );
        };
        with_lines(strips * channels.max(padded), |x| {
            with_scratch(rows * (padded.max(columns) + 1), |scratch| {
                let (sums, results) = scratch.split_at_mut(rows);
                let queries = &mut x[..strips * channels];
                isa.pack_strips(q.rows(first, rows, d)?, [d, q.stride], queries);
                let scores = &mut results[..rows * padded];
                multiply(queries, self.k, (channels, spec.scale), scores);
                extras.add(spec, first, padded, scores)?;
                let weights = &mut x[..strips * padded];
                isa.pack_weights(scores, [keys, padded], weights, sums);
                let result = &mut results[..rows * columns];
                multiply(weights, self.v, (padded, 1.0), result);
                let rows = out.rows_mut().into_iter().zip(result.chunks_exact(columns));
                for ((mut out, result), sum) in rows.zip(&*sums) {
                    let scale = 1.0 / sum;
                    for (out, result) in out.iter_mut().zip(result) {
                        *out = result * scale;
                    }
                }
                Ok(())
            })
        })
    }
}
