//! Biases of attention's scores by relative position.

mod attributes;

use std::fmt;

pub use self::attributes::RelativeBias;
use super::operands::{count, exactly, one};
use super::{
    Definition, Gradients, GraphBuilder, Locality, NodeValues, OpError, RelativeBiasBackward, Shape,
    only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{Cases, Scale, parameter};
use crate::dtype::DType;
use crate::tolerance::rounded;
use crate::value::ValueId;

impl RelativeBias {
    /// Appends the cases of the op or its derivative. `add` is called with an op and the extents of its table.
    pub(super) fn for_each_case<O>(
        cases: &mut Cases<O>,
        mut add: impl FnMut(&mut Cases<O>, Self, [usize; 2]),
    ) {
        let grids = match cases.scale() {
            Scale::Model { sizes, .. } => {
                let side = sizes.tokens.isqrt().max(1);
                vec![([side, side], sizes.heads)]
            }
            Scale::Awkward => vec![([1, 1], 3), ([2, 3], 1), ([1, 7], 2), ([5, 4], 3), ([7, 11], 2)],
            Scale::Heads => return,
        };
        for (grid, heads) in grids {
            let [rows, columns] = grid;
            for (class_token, shift) in [
                (false, None),
                (true, None),
                (false, Some([rows / 2, columns / 2])),
                (false, Some([0, columns / 2])),
            ] {
                let op = Self {
                    grid,
                    class_token,
                    shift,
                };
                add(cases, op, [op.table_rows(), heads]);
            }
        }
    }
}

impl Definition for RelativeBias {
    const NAME: &'static str = "relative_bias";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {}×{}", self.grid[0], self.grid[1])?;
        f.write_str(if self.class_token { " +class-token" } else { "" })?;
        match self.shift {
            Some([down, right]) => write!(f, " shifted by {down}×{right}"),
            None => Ok(()),
        }
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [table] = exactly(operands)?;
        match *table {
            [rows, heads] if rows == self.table_rows() => one(self.bias_shape(heads)),
            _ => Err(OpError::layout(
                "the table",
                table,
                format!("[{}, heads]", self.table_rows()),
            )),
        }
    }

    fn flops(&self, _operands: &[&[usize]], results: &[Shape]) -> u64 {
        // Only parts of shifted windows are changed.
        if self.shift.is_some() {
            count(&results[0])
        } else {
            0
        }
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let table = operands[0].values();
        let [_, heads] = operands[0].extents();
        let tokens = self.tokens();
        let hidden = T::from_f32(Self::HIDDEN);
        for (row, biases) in results[0].values_mut().chunks_exact_mut(tokens).enumerate() {
            let (kind, head, query) = (row / tokens / heads, row / tokens % heads, row % tokens);
            for (key, bias) in biases.iter_mut().enumerate() {
                *bias = table[self.row_of(query, key) * heads + head];
                if !self.is_visible(kind, query, key) {
                    *bias += hidden;
                }
            }
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        Self::for_each_case(cases, |cases, op, table| cases.push(op, vec![parameter(&table)]));
    }

    /// Elements are moved. Hidden ones, which are the largest, are sums.
    fn tolerance(&self, _index: usize, _operands: &[&Array], dtype: DType) -> f64 {
        if self.shift.is_some() {
            rounded(dtype, 1.0)
        } else {
            0.0
        }
    }

    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        _node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        let d_table = builder.push(RelativeBiasBackward(*self), [only_gradient(gradients)?])?;
        Ok(vec![Some(d_table)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(grid: [usize; 2]) -> RelativeBias {
        RelativeBias {
            grid,
            class_token: false,
            shift: None,
        }
    }

    /// Returns the bias of a table for one head.
    fn bias(op: RelativeBias, table: Vec<f64>) -> Vec<f64> {
        let table = Array::new([table.len(), 1], table).unwrap();
        op.eval(&[&table]).unwrap()[0].values().to_vec()
    }

    fn ramp(len: usize) -> Vec<f64> {
        (0..len).map(|row| row as f64).collect()
    }

    #[test]
    fn biases_in_windows_are_those_of_the_distance() {
        // timm.models.swin_transformer.get_relative_position_index(1, 3) and (2, 2).
        let found = bias(windows([1, 3]), ramp(5));
        assert_eq!(found, [2.0, 1.0, 0.0, 3.0, 2.0, 1.0, 4.0, 3.0, 2.0]);
        let expected = [
            [4.0, 3.0, 1.0, 0.0],
            [5.0, 4.0, 2.0, 1.0],
            [7.0, 6.0, 4.0, 3.0],
            [8.0, 7.0, 5.0, 4.0],
        ];
        assert_eq!(bias(windows([2, 2]), ramp(9)), expected.as_flattened());
    }

    #[test]
    fn parts_of_windows_at_the_edges_do_not_see_each_other() {
        let op = RelativeBias {
            shift: Some([1, 0]),
            ..windows([2, 2])
        };
        let (seen, hidden) = ([0.0; 4], f64::from(RelativeBias::HIDDEN));
        let split = [
            [0.0, 0.0, hidden, hidden],
            [0.0, 0.0, hidden, hidden],
            [hidden, hidden, 0.0, 0.0],
            [hidden, hidden, 0.0, 0.0],
        ];
        // Columns are not shifted, so the right edge is like the inside.
        let expected = [[seen; 4], [seen; 4], split, split];
        assert_eq!(bias(op, vec![0.0; 9]), expected.as_flattened().as_flattened());
    }

    /// Every row of the table for 2×3 patches has a different number.
    #[test]
    fn biases_with_a_class_token_are_those_of_beit() {
        let op = RelativeBias {
            class_token: true,
            ..windows([2, 3])
        };
        assert_eq!(op.table_rows(), 18);
        let table: Vec<f64> = (0..18)
            .flat_map(|row| [f64::from(row), -f64::from(row)])
            .collect();
        let table = Array::new([18, 2], table).unwrap();
        let result = op.eval(&[&table]).unwrap().remove(0);
        assert_eq!(result.shape(), [2, 7, 7]);
        // timm.models.beit.gen_relative_position_index((2, 3)).
        let index = [
            [17, 15, 15, 15, 15, 15, 15],
            [16, 7, 6, 5, 2, 1, 0],
            [16, 8, 7, 6, 3, 2, 1],
            [16, 9, 8, 7, 4, 3, 2],
            [16, 12, 11, 10, 7, 6, 5],
            [16, 13, 12, 11, 8, 7, 6],
            [16, 14, 13, 12, 9, 8, 7],
        ];
        let of_head = |sign: f64| index.as_flattened().iter().map(move |&row| sign * f64::from(row));
        let expected: Vec<f64> = of_head(1.0).chain(of_head(-1.0)).collect();
        assert_eq!(result.values(), expected);
    }

    #[test]
    fn a_table_of_another_grid_is_refused() {
        let error = windows([2, 2]).shapes(&[&[8, 3]]).unwrap_err().to_string();
        assert!(error.contains("[9, heads]"), "{error}");
    }
}
