//! Multi-head attention.

use super::{Shape, count, operands};
use crate::graph::{Attention, AttentionOperands};

pub(super) fn shape(spec: &Attention, inputs: &[&[usize]]) -> Result<Shape, String> {
    let c = spec.heads * spec.head_dim;
    if c == 0 {
        return Err("has no heads or no channels a head".into());
    }
    let (query, key) = match spec.operands {
        AttentionOperands::PackedQkv => {
            let [qkv] = operands(inputs)?;
            return match *qkv {
                [b, n, packed] if packed == 3 * c => Ok(vec![b, n, c]),
                _ => Err(format!("`qkv` has shape {qkv:?}, expected [B, N, {}]", 3 * c)),
            };
        }
        AttentionOperands::PackedKv => {
            let [q, kv] = operands(inputs)?;
            match *kv {
                [b, n, packed] if packed == 2 * c => (q, [b, n, c]),
                _ => return Err(format!("`kv` has shape {kv:?}, expected [B, N, {}]", 2 * c)),
            }
        }
        AttentionOperands::Separate => {
            let [q, k, v] = operands(inputs)?;
            match *k {
                [b, n, channels] if channels == c && v == k => (q, [b, n, c]),
                _ => {
                    return Err(format!(
                        "`k` and `v` have shapes {k:?} and {v:?}, expected [B, N, {c}]"
                    ));
                }
            }
        }
    };
    match *query {
        [b, n, channels] if channels == c && (b == 1 || b == key[0]) => Ok(vec![key[0], n, c]),
        [b, channels] if channels == c && b == key[0] => Ok(vec![b, c]),
        _ => Err(format!(
            "`q` has shape {query:?}, expected [{} or 1, N, {c}] or [{0}, {c}]",
            key[0]
        )),
    }
}

/// Both products, and four operations for the scale and softmax of each score.
pub(super) fn flops(spec: &Attention, inputs: &[&[usize]], output: &[usize]) -> u64 {
    let keys = inputs.last().map_or(0, |kv| kv[1]) as u64;
    let scores = count(output) / spec.head_dim as u64 * keys;
    scores * (4 * spec.head_dim as u64 + 4)
}
