//! Part of a tensor that a rank of a training step updates.

use std::fmt;

use super::exchange::{own_part, part_len};
use super::operands::{exactly, one};
use super::{Definition, Locality, OpError, Shape};
use crate::array::{Array, Real};
use crate::dtype::DType;

/// `(x f32) → (part [n / ranks] f32)`: this rank's part of a tensor that all ranks have, as
/// [`ExchangeKind::Scatter`](super::exchange::ExchangeKind::Scatter) divides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankPart {
    /// Number of ranks that divide the tensor.
    pub ranks: usize,
}

impl Definition for RankPart {
    const NAME: &'static str = "rank_part";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " of {} ranks", self.ranks)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x] = exactly(operands)?;
        if self.ranks == 0 {
            return Err("has no ranks".into());
        }
        one([part_len(x.iter().product(), self.ranks)])
    }

    fn operand_dtype(&self, _index: usize, _dtype: DType) -> DType {
        DType::F32
    }

    fn result_dtype(&self, _index: usize, _dtype: DType) -> DType {
        DType::F32
    }

    fn flops(&self, _operands: &[&[usize]], _results: &[Shape]) -> u64 {
        0
    }

    fn elements_read(&self, _index: usize, _operands: &[&[usize]], results: &[Shape]) -> usize {
        results[0].iter().product()
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Whole
    }

    /// Computes the part of rank 0.
    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let len = operands[0].values().len().min(results[0].values().len());
        results[0].values_mut()[..len].copy_from_slice(&operands[0].values()[..len]);
    }

    fn eval_ranks<T: Real>(&self, ranks: &[Vec<&Array<T>>]) -> Result<Vec<Vec<Array<T>>>, OpError> {
        let part =
            |(rank, operands): (usize, &Vec<&Array<T>>)| Ok(vec![own_part(operands[0], rank, self.ranks)?]);
        ranks.iter().enumerate().map(part).collect()
    }

    /// Elements are moved.
    fn tolerance(&self, _index: usize, _operands: &[&Array], _dtype: DType) -> f64 {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_equally_long_and_the_last_ones_are_padded() {
        let x = Array::new([5], vec![1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        let ranks = vec![vec![&x]; 4];
        let parts = RankPart { ranks: 4 }.eval_ranks(&ranks).unwrap();
        let parts: Vec<&[f64]> = parts.iter().map(|part| part[0].values()).collect();
        assert_eq!(parts, [[1.0, 2.0], [3.0, 4.0], [5.0, 0.0], [0.0, 0.0]]);
    }
}
