//! Derivative of rounding to int8.

use std::fmt;

use super::fake_quantize::{fmt_grid, for_each_grid};
use super::operands::{count, exactly, expect, one};
use super::{Definition, Int8Grid, Locality, OpError, Shape};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation};
use crate::dtype::DType;
use crate::int8::RowGrid;

/// `(x [..,K], dy [..,K]) → dy, or 0 where x is beyond the levels` of a [`FakeQuantize`](super::FakeQuantize).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FakeQuantizeBackward {
    /// The levels.
    pub grid: Int8Grid,
}

impl Definition for FakeQuantizeBackward {
    const NAME: &'static str = "fake_quantize_backward";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_grid(self.grid, f)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x, dy] = exactly(operands)?;
        if x.is_empty() {
            return Err("x is a scalar".into());
        }
        expect("dy", dy, x)?;
        one(x)
    }

    /// Range, quotient, rounding and limits.
    fn flops(&self, _operands: &[&[usize]], results: &[Shape]) -> u64 {
        7 * count(&results[0])
    }

    fn may_alias(&self) -> Option<usize> {
        Some(1)
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Rows { parameters: 0..0 }
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let channels = operands[0].shape().last().copied().unwrap_or(1).max(1);
        let (x, dy) = (operands[0].values(), operands[1].values());
        let rows = x.chunks(channels).zip(dy.chunks(channels));
        for ((x, dy), dx) in rows.zip(results[0].values_mut().chunks_mut(channels)) {
            let grid = RowGrid::of(x.iter().map(|x| x.to_f32()), self.grid);
            for (dx, (x, &dy)) in dx.iter_mut().zip(x.iter().zip(dy)) {
                *dx = if grid.clips(x.to_f32()) { T::ZERO } else { dy };
            }
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        for_each_grid(cases, |cases, grid, x, in_arena| {
            if grid == Int8Grid::Weights {
                return;
            }
            let operands = vec![x.clone(), activation(&x.shape)];
            if in_arena {
                cases.push_in_arena(Self { grid }, operands);
            } else {
                cases.push(Self { grid }, operands);
            }
        });
    }

    /// Gradients are moved, or 0.
    fn tolerance(&self, _index: usize, _operands: &[&Array], _dtype: DType) -> f64 {
        0.0
    }
}
