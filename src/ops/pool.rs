//! Pooling of tokens to one vector per image, and the concatenation of channels.

use rayon::prelude::*;

use crate::ops::Pool;

/// [`Op::Pool`](crate::ops::Op::Pool) of `x [B,N,D]` with these `[N,D]`.
pub(crate) fn run(spec: &Pool, x: &[f32], [n, d]: [usize; 2], out: &mut [f32]) {
    out.par_chunks_mut(d.max(1))
        .zip(x.par_chunks((n * d).max(1)))
        .for_each(|(y, x)| match *spec {
            Pool::Token(index) => y.copy_from_slice(&x[index * d..(index + 1) * d]),
            Pool::Mean { skip } => {
                y.fill(0.0);
                for token in x[skip * d..].chunks_exact(d) {
                    y.iter_mut().zip(token).for_each(|(y, x)| *y += x);
                }
                let tokens = (n - skip) as f32;
                y.iter_mut().for_each(|y| *y /= tokens);
            }
            Pool::Max { skip } => {
                y.copy_from_slice(&x[skip * d..(skip + 1) * d]);
                for token in x[(skip + 1) * d..].chunks_exact(d) {
                    y.iter_mut().zip(token).for_each(|(y, &x)| *y = y.max(x));
                }
            }
        });
}

/// [`Op::ConcatChannels`](crate::ops::Op::ConcatChannels) of rows of `m` and `n` channels.
pub(crate) fn run_concat([x, y]: [&[f32]; 2], [m, n]: [usize; 2], out: &mut [f32]) {
    for (i, row) in out.chunks_exact_mut((m + n).max(1)).enumerate() {
        row[..m].copy_from_slice(&x[i * m..(i + 1) * m]);
        row[m..].copy_from_slice(&y[i * n..(i + 1) * n]);
    }
}
