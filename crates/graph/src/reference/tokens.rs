//! Prefix tokens and position embeddings.

use super::Array;
use super::add::add;
use crate::ops::Tokens;

pub(super) fn prepend(operands: &[&Array], y: &mut Array) {
    let Some((x, prefixes)) = operands.split_last() else {
        return;
    };
    let batch = x.shape()[0];
    let image = x.values().len() / batch;
    let mut joined = Vec::with_capacity(y.values().len());
    for b in 0..batch {
        for prefix in prefixes {
            joined.extend_from_slice(prefix.values());
        }
        joined.extend_from_slice(&x.values()[b * image..(b + 1) * image]);
    }
    y.values_mut().copy_from_slice(&joined);
}

pub(super) fn tokens(spec: &Tokens, operands: &[&Array], y: &mut Array) {
    let mut x = operands[0].clone();
    if spec.position {
        add(operands[0], operands[operands.len() - 1], &mut x);
    }
    if spec.prefix {
        prepend(&[operands[1], &x], y);
    } else {
        *y = x;
    }
}
