//! Rotary position embedding.

use super::Array;
use crate::ops::{Rope, RopePairs};

pub(super) fn rope(spec: &Rope, x: &Array, table: &Array, y: &mut Array) {
    let d = spec.head_dim;
    let [tokens, channels] = [1, 2].map(|axis| x.shape()[axis]);
    let [places, stride] = [1, 2].map(|axis| table.shape()[axis]);
    let x = x.values();
    for (i, v) in y.values_mut().iter_mut().enumerate() {
        let (token, channel) = (i / channels % tokens, i % channels);
        if token < tokens - places || channel >= spec.rotated * spec.heads * d {
            *v = x[i];
            continue;
        }
        let (head, within) = (channel / d, channel % d);
        // The pair's number, whether the element is the first of the two, and how far apart they are.
        let (pair, first, apart) = match spec.pairs {
            RopePairs::Interleaved => (within / 2, within % 2 == 0, 1),
            RopePairs::Halves => (within % (d / 2), within < d / 2, d / 2),
        };
        let angles = &table.values()[(token + places - tokens) * stride + head * d % stride..];
        let (cosine, sine) = (angles[pair], angles[d / 2 + pair]);
        *v = if first {
            x[i] * cosine - x[i + apart] * sine
        } else {
            x[i] * cosine + x[i - apart] * sine
        };
    }
}
