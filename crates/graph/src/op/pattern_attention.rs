//! Multi-head attention with a pattern.

mod attributes;
pub mod cases;
mod rows;

use std::fmt;

use rayon::prelude::*;

pub use self::attributes::PatternAttention;
pub(super) use self::rows::PatternRows;
use super::attention_heads::{Heads, Place, softmax_rows};
use super::operands::count;
use super::{
    Definition, Gradients, GraphBuilder, Locality, NodeValues, OpError, PatternAttentionBackward, Shape,
    only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::Cases;
use crate::dtype::DType;
use crate::matmul::product;
use crate::pattern::{PatternError, check_tokens};
use crate::softmax::log_sum_exp;
use crate::tolerance::tolerance;
use crate::value::ValueId;

impl Definition for PatternAttention {
    const NAME: &'static str = "pattern_attention";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.plain().fmt_attributes(f)?;
        match self.program.name() {
            Some(name) => write!(f, " {name}")?,
            None => {
                f.write_str(if self.program.score().is_some() {
                    " +score"
                } else {
                    ""
                })?;
                f.write_str(if self.program.mask().is_some() {
                    " +mask"
                } else {
                    ""
                })?;
            }
        }
        f.write_str(if self.log_sum_exp { " +log-sum-exp" } else { "" })
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let attended = operands.get(..self.operands.count()).unwrap_or(operands);
        let mut shapes = self.plain().shapes(attended)?;
        let pattern = |error: PatternError| OpError::from(error.to_string());
        self.program
            .check_tensors(self.captured(operands))
            .map_err(pattern)?;
        self.program.check_scalars(&self.scalars).map_err(pattern)?;
        let queries = if shapes[0].len() == 3 { shapes[0][1] } else { 1 };
        check_tokens(queries.max(self.plain().keys(attended))).map_err(pattern)?;
        if self.log_sum_exp {
            shapes.push(vec![shapes[0][0], self.heads, queries]);
        }
        Ok(shapes)
    }

    fn result_dtype(&self, index: usize, dtype: DType) -> DType {
        if index == 0 { dtype } else { DType::F32 }
    }

    /// Two GEMMs, and four operations and the pattern's steps per score. The mask's effect depends on the tensors, so all keys count.
    fn flops(&self, operands: &[&[usize]], results: &[Shape]) -> u64 {
        let scores = count(&results[0]) / self.head_dim as u64 * self.plain().keys(operands) as u64;
        scores * (4 * self.head_dim as u64 + 4 + self.program.steps().len() as u64)
    }

    fn locality(&self, _index: usize) -> Locality {
        // A pattern may depend on the index of an image.
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let plain = self.plain();
        let heads = Heads::new(&plain, operands);
        let rows = PatternRows::new(self, operands, heads.extents());
        let indices = (0..heads.images() * self.heads).into_par_iter();
        let of_heads: Vec<_> = indices
            .map(|index| {
                let at = [index / self.heads, index % self.heads];
                let mut scores = heads.scores(at);
                rows.clone().apply(at, &mut scores);
                let sums: Vec<T> = scores
                    .rows()
                    .into_iter()
                    .map(|row| log_sum_exp(row.iter().copied()))
                    .collect();
                softmax_rows(scores.view_mut());
                (product(scores.view(), heads.of(&heads.v, at)), sums)
            })
            .collect();
        let place = Place::new((0, 0), results[0].shape());
        for (index, (attended, sums)) in of_heads.into_iter().enumerate() {
            let at = [index / self.heads, index % self.heads];
            place.add(results[0].values_mut(), at, &attended);
            if let Some(result) = results.get_mut(1) {
                result.values_mut()[index * sums.len()..][..sums.len()].copy_from_slice(&sums);
            }
        }
    }

    fn cases(list: &mut Cases<Self>) {
        cases::add(list);
    }

    /// Needs [`log_sum_exp`](Self::log_sum_exp).
    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        if gradients.get(1).is_some_and(Option::is_some) {
            return Err(OpError::derivative("log-sum-exp has no derivative"));
        }
        if !self.log_sum_exp {
            let reason = "has no derivative without log-sum-exp. Set `PatternAttention::log_sum_exp`";
            return Err(OpError::derivative(reason));
        }
        let gradient = only_gradient(gradients)?;
        let operands = [node.inputs, node.outputs, &[gradient]].concat();
        let backward = PatternAttentionBackward(self.clone());
        let of_operand: Vec<Option<usize>> = (0..node.inputs.len())
            .map(|index| backward.result_of(index))
            .collect();
        let results = builder.push_node(backward, operands)?;
        Ok(of_operand
            .into_iter()
            .map(|index| index.map(|index| results[index]))
            .collect())
    }

    fn tolerance(&self, index: usize, operands: &[&Array], dtype: DType) -> f64 {
        let keys = operands[self.operands.keys()].shape()[1];
        if index == 1 {
            // An error of a score is one of ln Σ e^s. Neither the scores nor the pattern's arithmetic are rounded to the dtype.
            return 4.0 * tolerance(DType::F32, keys + self.head_dim);
        }
        // An error of a score, which grows with head_dim, is one of its exponential too. The pattern's arithmetic may multiply it.
        (2.0 + f64::from(self.program.score().is_some())) * tolerance(dtype, keys + self.head_dim)
    }
}
