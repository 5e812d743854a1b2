//! Rotary position embedding: rotates pairs of channels of queries and keys by angles that depend on the token's position.

use hipvit_graph::op::{OpError, Rope, RopePairs};

use super::rows::{Source, block_len, in_blocks};
use super::{CpuOp, Operands};

impl CpuOp for Rope {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let (&[_, tokens, channels], &[_, places, _]) = (operands.shape(0)?, operands.shape(1)?) else {
            return Err("takes tokens and a table".into());
        };
        let extents = [tokens, channels, places];
        rope(
            self,
            operands.source(0)?,
            operands.values(1)?,
            extents,
            results[0],
        );
        Ok(())
    }
}

/// Rotates `[B, tokens, channels]`. The table has the angles of the last `places` tokens.
fn rope(spec: &Rope, x: Source<'_>, table: &[f32], [tokens, channels, places]: [usize; 3], out: &mut [f32]) {
    let Rope {
        heads,
        head_dim,
        rotated,
        pairs,
    } = *spec;
    let stride = table.len() / places;
    in_blocks(x, out, block_len(channels), |start, block| {
        for (row, x) in block.chunks_mut(channels).enumerate() {
            let token = (start / channels + row) % tokens;
            let Some(place) = (token + places).checked_sub(tokens) else {
                continue;
            };
            let table = &table[place * stride..][..stride];
            let heads = x[..rotated * heads * head_dim].chunks_mut(head_dim);
            for (x, table) in heads.zip(table.chunks(head_dim).cycle()) {
                let (cosine, sine) = table.split_at(head_dim / 2);
                rotate(pairs, x, cosine, sine);
            }
        }
    });
}

fn rotate(pairs: RopePairs, x: &mut [f32], cosine: &[f32], sine: &[f32]) {
    let angles = cosine.iter().zip(sine);
    let turn = |a: &mut f32, b: &mut f32, (&cosine, &sine): (&f32, &f32)| {
        (*a, *b) = (*a * cosine - *b * sine, *b * cosine + *a * sine);
    };
    match pairs {
        RopePairs::Halves => {
            let (first, second) = x.split_at_mut(cosine.len());
            let both = first.iter_mut().zip(second);
            both.zip(angles).for_each(|((a, b), angle)| turn(a, b, angle));
        }
        RopePairs::Interleaved => {
            for (pair, angle) in x.chunks_exact_mut(2).zip(angles) {
                if let [a, b] = pair {
                    turn(a, b, angle);
                }
            }
        }
    }
}
