//! Pooling of tokens to one vector per image, and the concatenation of channels.

use super::*;

pub(super) fn shape(spec: &Pool, [x]: [&[usize]; 1]) -> Result<Shape, String> {
    let [b, n, d] = *x else {
        return Err(format!("x has shape {x:?}, expected [B, N, D]"));
    };
    let wanted = match *spec {
        Pool::Token(index) => index,
        Pool::Mean { skip } | Pool::Max { skip } => skip,
    };
    if wanted < n {
        Ok(vec![b, d])
    } else {
        Err(format!("there is no token {wanted} among {n}"))
    }
}

pub(super) fn flops(spec: &Pool, x: &[usize]) -> u64 {
    match *spec {
        Pool::Token(_) => 0,
        Pool::Mean { skip } | Pool::Max { skip } => (x[0] * (x[1] - skip) * x[2]) as u64,
    }
}

pub(super) fn concat_shape([x, y]: [&[usize]; 2]) -> Result<Shape, String> {
    match (x, y) {
        (&[b, m], &[batch, n]) if b == batch => Ok(vec![b, m + n]),
        _ => Err(format!("cannot concatenate the channels of {x:?} and {y:?}")),
    }
}
