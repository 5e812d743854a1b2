//! Derivative of pooling.

use std::fmt;

use super::operands::{exactly, expect, one};
use super::{Definition, Locality, OpError, Pool, Shape};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};

/// `(x [B,N,D], dy [B,D]) → dx [B,N,D]` of a [`Pool`]. x is only read for a maximum, whose first token gets the gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolBackward(pub Pool);

impl Definition for PoolBackward {
    const NAME: &'static str = "pool_backward";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_attributes(f)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x, dy] = exactly(operands)?;
        expect("dy", dy, &self.0.shapes(&[x])?[0])?;
        one(x)
    }

    fn flops(&self, operands: &[&[usize]], results: &[Shape]) -> u64 {
        match self.0 {
            Pool::Token(_) => 0,
            Pool::Mean { .. } | Pool::Max { .. } => self.0.flops(&operands[..1], results),
        }
    }

    fn elements_read(&self, index: usize, operands: &[&[usize]], _results: &[Shape]) -> usize {
        match (index, self.0) {
            (0, Pool::Token(_) | Pool::Mean { .. }) => 0,
            _ => operands[index].iter().product(),
        }
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Images
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [_, n, d] = operands[0].extents();
        let range = self.0.tokens(n);
        let share = T::ONE / T::from_f64(range.len() as f64);
        let images = operands[0].values().chunks_exact(n * d);
        let images = images.zip(operands[1].values().chunks_exact(d));
        for (dx, (x, dy)) in results[0].values_mut().chunks_exact_mut(n * d).zip(images) {
            for (c, &dy) in dy.iter().enumerate() {
                match self.0 {
                    Pool::Max { .. } => {
                        let larger = |best: usize, token| {
                            if x[token * d + c] > x[best * d + c] {
                                token
                            } else {
                                best
                            }
                        };
                        dx[range.clone().fold(range.start, larger) * d + c] = dy;
                    }
                    Pool::Token(_) | Pool::Mean { .. } => {
                        range.clone().for_each(|token| dx[token * d + c] = share * dy);
                    }
                }
            }
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, shape, _| {
            let [batch, tokens, channels] = shape;
            let skip = tokens / 2;
            let pools = [Pool::Token(tokens - 1), Pool::Mean { skip }, Pool::Max { skip }];
            for pool in pools {
                let operands = vec![activation(&shape), activation(&[batch, channels])];
                cases.push(Self(pool), operands);
            }
        });
    }

    fn tolerance(&self, _index: usize, _operands: &[&Array], dtype: DType) -> f64 {
        match self.0 {
            Pool::Mean { .. } => narrow(dtype) + tolerance(DType::F32, 1),
            Pool::Token(_) | Pool::Max { .. } => 0.0,
        }
    }
}
