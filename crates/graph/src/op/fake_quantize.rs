//! Rounding to int8 in quantisation-aware training.

use std::fmt;

use super::operands::{count, exactly, one};
use super::{
    Definition, Division, FakeQuantizeBackward, Gradients, GraphBuilder, Int8Grid, Levels, Locality,
    NodeValues, OpError, OperandShare, Shape, only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{Cases, Operand, activation, parameter};
use crate::dtype::DType;
use crate::int8::RowGrid;
use crate::op::linear::LEVELS;
use crate::tolerance::rounded;
use crate::value::ValueId;

/// `(x [..,K]) → the int8 level next to x, as a float`: `scale · (q − zero)` with the [`Int8Grid`] of each row. A [`Linear`](super::Linear)
/// layer of such operands has the results of the layer in int8.
///
/// The derivative is 1, and 0 for a number beyond the levels, as that of PyTorch's `fake_quantize`. The scale counts as a constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FakeQuantize {
    /// The levels.
    pub grid: Int8Grid,
}

/// Formats the levels.
pub(super) fn fmt_grid(grid: Int8Grid, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(match grid {
        Int8Grid::Activations(Levels::Range) => " int8",
        Int8Grid::Activations(Levels::Magnitude) => " int8 symmetric",
        Int8Grid::Activations(Levels::Fixed { .. }) => " int8 static",
        Int8Grid::Weights => " int8 weight",
    })
}

impl Definition for FakeQuantize {
    const NAME: &'static str = "fake_quantize";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_grid(self.grid, f)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x] = exactly(operands)?;
        if x.is_empty() {
            return Err("x is a scalar".into());
        }
        one(x)
    }

    /// Range, quotient, rounding, limits and product.
    fn flops(&self, _operands: &[&[usize]], results: &[Shape]) -> u64 {
        8 * count(&results[0])
    }

    fn may_alias(&self) -> Option<usize> {
        Some(0)
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Rows { parameters: 0..0 }
    }

    fn tokenwise(&self) -> Option<Vec<usize>> {
        Some(vec![0])
    }

    /// A row has one range, so ranks cannot divide it.
    fn division(&self, _blocks: usize) -> Option<Division> {
        None
    }

    fn operand_share(&self, _index: usize, _shape: &[usize]) -> OperandShare {
        OperandShare::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let channels = operands[0].shape().last().copied().unwrap_or(1).max(1);
        let rows = operands[0].values().chunks(channels);
        for (y, x) in results[0].values_mut().chunks_mut(channels).zip(rows) {
            let grid = RowGrid::of(x.iter().map(|x| x.to_f32()), self.grid);
            let scale = T::from_f32(grid.scale);
            for (y, x) in y.iter_mut().zip(x) {
                *y = T::from_f32(grid.level(x.to_f32())) * scale;
            }
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        for_each_grid(cases, |cases, grid, x, in_arena| {
            if in_arena {
                cases.push_in_arena(Self { grid }, vec![x]);
            } else {
                cases.push(Self { grid }, vec![x]);
            }
        });
    }

    /// The level is exact. The product with the scale is rounded to f32, and then to the dtype.
    fn tolerance(&self, _index: usize, _operands: &[&Array], dtype: DType) -> f64 {
        rounded(dtype, 2.0)
    }

    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        let gradient = only_gradient(gradients)?;
        // The largest magnitude is a level, so no weight is beyond the levels.
        if self.grid == Int8Grid::Weights {
            return Ok(vec![Some(gradient)]);
        }
        let backward = FakeQuantizeBackward { grid: self.grid };
        let d_x = builder.push(backward, [node.inputs[0], gradient])?;
        Ok(vec![Some(d_x)])
    }
}

/// Calls `add` with each form of rounding, x, and true if the result may overwrite an operand.
pub(super) fn for_each_grid<O>(cases: &mut Cases<O>, add: impl Fn(&mut Cases<O>, Int8Grid, Operand, bool)) {
    cases.for_each_shape(|cases, shape, every_form| {
        let levels = if every_form { &LEVELS[..] } else { &LEVELS[..1] };
        for (index, &levels) in levels.iter().enumerate() {
            let grid = Int8Grid::Activations(levels);
            add(cases, grid, activation(&shape), index == 0);
        }
        add(cases, Int8Grid::Weights, parameter(&[shape[1], shape[2]]), false);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(columns: usize, values: &[f64]) -> Array {
        Array::new([values.len() / columns, columns], values.to_vec()).unwrap()
    }

    fn assert_close(found: &Array, expected: &[f64]) {
        assert_eq!(found.values().len(), expected.len());
        for (found, expected) in found.values().iter().zip(expected) {
            // The figures are f32.
            assert!(
                (found - expected).abs() <= 1e-6 * expected.abs(),
                "{found}, expected {expected}"
            );
        }
    }

    /// Figures of PyTorch 2.15: `fake_quantize_per_tensor_affine(x, 0.007, 120, 0, 255)` and its gradient.
    #[test]
    fn fixed_levels_and_their_gradients_are_those_of_pytorch() {
        let x = rows(8, &[-0.9, -0.8435, -0.843, -0.0035, 0.01, 0.5, 0.9449, 0.95]);
        let gradient = rows(8, &[0.5, -1.5, 2.0, 0.25, 1.0, -0.75, 3.0, -2.0]);
        let grid = Int8Grid::Activations(Levels::Fixed {
            scale: 0.007,
            zero: 120,
        });
        let y = FakeQuantize { grid }.eval(&[&x]).unwrap();
        let levels = [-120.0, -120.0, -120.0, 0.0, 1.0, 71.0, 135.0, 135.0];
        assert_close(&y[0], &levels.map(|level| level * 0.007));
        let dx = FakeQuantizeBackward { grid }.eval(&[&x, &gradient]).unwrap();
        assert_eq!(dx[0].values(), [0.0, -1.5, 2.0, 0.25, 1.0, -0.75, 3.0, 0.0]);
    }

    /// Figures of PyTorch 2.15: `fake_quantize_per_channel_affine(w, w.abs().amax(1) / 127, 0, 0, -127, 127)`, whose gradient is 1.
    #[test]
    fn weights_are_rounded_as_by_pytorch() {
        let w = [
            0.31, -1.27, 0.005, 0.635, -2.0, 0.3, 1.99, 0.0079, 1e-3, 2e-3, -3e-3, 2.5e-3,
        ];
        let grid = Int8Grid::Weights;
        let y = FakeQuantize { grid }.eval(&[&rows(4, &w)]).unwrap();
        let expected = [
            0.310_000_002_384_185_8,
            -1.269_999_980_926_513_7,
            0.0,
            0.639_999_985_694_885_3,
            -2.0,
            0.299_212_604_761_123_66,
            1.984_251_976_013_183_6,
            0.015_748_031_437_397_003,
            0.000_992_125_947_959_721,
            0.002_007_873_961_701_989,
            -0.003_000_000_026_077_032,
            0.002_503_937_110_304_832_5,
        ];
        assert_close(&y[0], &expected);
    }

    /// Figures of PyTorch 2.15 for the scale and the zero point of each row's range.
    #[test]
    fn the_range_of_a_row_is_rounded_as_by_pytorch() {
        let x = [
            -0.5, 0.25, 1.0, 0.3333, -0.1, -1.0, 1.0, 0.5, -0.25, 0.0039, 0.0, 2.0, 0.5, 0.1, 1.99,
        ];
        let grid = Int8Grid::Activations(Levels::Range);
        let y = FakeQuantize { grid }.eval(&[&rows(5, &x)]).unwrap();
        let expected = [
            -0.500_000_059_604_644_8,
            0.247_058_853_507_041_93,
            1.000_000_119_209_289_6,
            0.335_294_157_266_616_8,
            -0.100_000_008_940_696_72,
            -0.996_078_491_210_937_5,
            0.996_078_491_210_937_5,
            0.501_960_813_999_176,
            -0.250_980_406_999_588,
            0.0,
            0.0,
            2.0,
            0.501_960_813_999_176,
            0.101_960_793_137_550_35,
            1.992_156_982_421_875,
        ];
        assert_close(&y[0], &expected);
    }
}
