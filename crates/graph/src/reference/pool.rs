//! Pooling of tokens, and the concatenation of channels.

use super::Array;
use super::array::extents;
use crate::ops::Pool;

pub(super) fn pool(spec: &Pool, x: &Array, y: &mut Array) {
    let [batch, n, d] = extents(x);
    let range = match *spec {
        Pool::Token(index) => index..index + 1,
        Pool::Mean { skip } | Pool::Max { skip } => skip..n,
    };
    for b in 0..batch {
        for c in 0..d {
            let channel = range.clone().map(|token| x.values()[(b * n + token) * d + c]);
            y.values_mut()[b * d + c] = match spec {
                Pool::Max { .. } => channel.fold(f64::NEG_INFINITY, f64::max),
                Pool::Token(_) | Pool::Mean { .. } => channel.sum::<f64>() / range.len() as f64,
            };
        }
    }
}

pub(super) fn concat_channels(x: &Array, addend: &Array, y: &mut Array) {
    let ([_, m], [_, n]) = (extents(x), extents(addend));
    for (b, row) in y.values_mut().chunks_mut(m + n).enumerate() {
        row[..m].copy_from_slice(&x.values()[b * m..(b + 1) * m]);
        row[m..].copy_from_slice(&addend.values()[b * n..(b + 1) * n]);
    }
}
