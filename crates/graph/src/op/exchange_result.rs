//! End of an exchange of tensors among the ranks of a training step.

use std::fmt;
use std::ops::Range;

use super::exchange::{ExchangeKind, part_len};
use super::operands::{exactly, expect};
use super::{Definition, Locality, OpError, Shape};
use crate::array::{Array, Real};
use crate::dtype::DType;

/// `(bucket [n]) → (tensors …)`: waits for the end of the [`Exchange`](super::Exchange) with the same id, and returns its tensors: sums, this
/// rank's part of the sums, or whole tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExchangeResult {
    /// Number of the exchange.
    pub id: u32,
    /// What the ranks compute.
    pub kind: ExchangeKind,
    /// Number of ranks that divide a tensor.
    pub ranks: usize,
    /// Shapes of the whole tensors.
    pub shapes: Vec<Shape>,
    /// True if the tensors are in f32 in plans of any dtype.
    pub f32_tensors: bool,
}

impl ExchangeResult {
    /// Returns the number of elements of each tensor's part.
    fn part_lens(&self) -> impl Iterator<Item = usize> {
        let elements = self.shapes.iter().map(|shape| shape.iter().product::<usize>());
        elements.map(|elements| part_len(elements, self.ranks))
    }

    /// Returns the pieces of each result in order, as places in the elements that the exchange leaves to rank `rank`.
    pub fn pieces(&self, rank: usize) -> Vec<Vec<Range<usize>>> {
        let stride: usize = self.part_lens().sum();
        let mut start = 0;
        let pieces = |(shape, part): (&Shape, usize)| {
            let elements: usize = shape.iter().product();
            let (first, ranks, len) = match self.kind {
                ExchangeKind::Sum => (0, 1, elements),
                ExchangeKind::Scatter => (rank, 1, part),
                ExchangeKind::Gather => (0, self.ranks, part),
            };
            let at = start;
            start += len;
            let piece = |number: usize| {
                let begin = (first + number) * stride + at;
                // The last parts may be padded.
                let padding = if ranks == 1 {
                    0
                } else {
                    (len * (number + 1)).saturating_sub(elements)
                };
                begin..begin + len.saturating_sub(padding)
            };
            (0..ranks).map(piece).collect()
        };
        self.shapes.iter().zip(self.part_lens()).map(pieces).collect()
    }

    fn bucket(&self) -> usize {
        match self.kind {
            ExchangeKind::Sum => self
                .shapes
                .iter()
                .map(|shape| shape.iter().product::<usize>())
                .sum(),
            ExchangeKind::Scatter | ExchangeKind::Gather => self.part_lens().sum::<usize>() * self.ranks,
        }
    }
}

impl Definition for ExchangeResult {
    const NAME: &'static str = "exchange_result";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {} {} of {} ranks", self.id, self.kind, self.ranks)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [bucket] = exactly(operands)?;
        if self.ranks == 0 {
            return Err("has no ranks".into());
        }
        expect("bucket", bucket, &[self.bucket()])?;
        Ok(match self.kind {
            ExchangeKind::Sum | ExchangeKind::Gather => self.shapes.clone(),
            ExchangeKind::Scatter => self.part_lens().map(|len| vec![len]).collect(),
        })
    }

    fn operand_dtype(&self, _index: usize, dtype: DType) -> DType {
        self.result_dtype(0, dtype)
    }

    fn result_dtype(&self, _index: usize, dtype: DType) -> DType {
        if self.f32_tensors { DType::F32 } else { dtype }
    }

    fn flops(&self, _operands: &[&[usize]], _results: &[Shape]) -> u64 {
        0
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Whole
    }

    /// Computes the results of rank 0.
    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        self.copy(0, operands[0], results);
    }

    fn eval_ranks<T: Real>(&self, ranks: &[Vec<&Array<T>>]) -> Result<Vec<Vec<Array<T>>>, OpError> {
        let result = |(rank, operands): (usize, &Vec<&Array<T>>)| {
            let shapes: Vec<&[usize]> = operands.iter().map(|operand| operand.shape()).collect();
            let mut results: Vec<Array<T>> = self.shapes(&shapes)?.into_iter().map(Array::zeros).collect();
            self.copy(rank, operands[0], &mut results);
            Ok(results)
        };
        ranks.iter().enumerate().map(result).collect()
    }

    /// Elements are moved.
    fn tolerance(&self, _index: usize, _operands: &[&Array], _dtype: DType) -> f64 {
        0.0
    }
}

impl ExchangeResult {
    fn copy<T: Real>(&self, rank: usize, bucket: &Array<T>, results: &mut [Array<T>]) {
        for (result, pieces) in results.iter_mut().zip(self.pieces(rank)) {
            let values = pieces.into_iter().flat_map(|piece| &bucket.values()[piece]);
            for (result, &value) in result.values_mut().iter_mut().zip(values) {
                *result = value;
            }
        }
    }
}
