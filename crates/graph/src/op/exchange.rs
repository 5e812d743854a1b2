//! Exchange of tensors among the ranks of a training step.

mod parts;

use std::fmt;

pub use self::parts::{ExchangeKind, part_len};
use self::parts::{padded, padded_part};
use super::operands::{count, one};
use super::{Definition, Locality, OpError, Shape};
use crate::array::{Array, Real};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};

/// `(scale [1]?, tensors …) → (bucket [n])`: starts to exchange tensors among the ranks of a data-parallel training step. The node
/// [`ExchangeResult`](super::ExchangeResult) with the same id waits for the end, and returns the tensors. Nodes between the two are
/// computed during the exchange. Each rank has the same graph.
///
/// The bucket has the elements in flight. Only the [`ExchangeResult`](super::ExchangeResult) reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Number that identifies the exchange in the graph.
    pub id: u32,
    /// What the ranks compute.
    pub kind: ExchangeKind,
    /// Number of ranks that divide a tensor. For [`ExchangeKind::Sum`], the number of all ranks.
    pub ranks: usize,
    /// True if the operand `scale` exists. If it is NaN, nothing is exchanged, and the results are those of this rank alone.
    pub conditional: bool,
    /// True if the tensors are in f32 in plans of any dtype.
    pub f32_tensors: bool,
    /// True if ranks send elements rounded to bf16. They are summed in f32.
    pub bf16_wire: bool,
}

impl Exchange {
    /// Returns the number of elements in flight for tensors with these shapes.
    fn bucket(&self, tensors: &[&[usize]]) -> usize {
        let elements = tensors.iter().map(|shape| shape.iter().product::<usize>());
        match self.kind {
            ExchangeKind::Sum => elements.sum(),
            ExchangeKind::Scatter => elements.map(|n| part_len(n, self.ranks) * self.ranks).sum(),
            ExchangeKind::Gather => elements.map(|n| n * self.ranks).sum(),
        }
    }

    /// Returns the elements in flight of a rank: of the tensors one after the other, or divided, with the first rank's parts first.
    fn flat<T: Real>(&self, tensors: &[&Array<T>]) -> Vec<T> {
        match self.kind {
            ExchangeKind::Sum | ExchangeKind::Gather => tensors
                .iter()
                .flat_map(|tensor| tensor.values())
                .copied()
                .collect(),
            ExchangeKind::Scatter => padded(tensors, self.ranks),
        }
    }
}

impl Definition for Exchange {
    const NAME: &'static str = "exchange";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {} {} of {} ranks", self.id, self.kind, self.ranks)?;
        f.write_str(if self.bf16_wire { " in bf16" } else { "" })
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let tensors = match operands {
            [[1], tensors @ ..] if self.conditional => tensors,
            [scale, ..] if self.conditional => return Err(OpError::layout("the scale", scale, "[1]")),
            tensors => tensors,
        };
        if tensors.is_empty() || self.ranks == 0 {
            return Err("takes at least one tensor of at least one rank".into());
        }
        one([self.bucket(tensors)])
    }

    fn operand_dtype(&self, index: usize, dtype: DType) -> DType {
        if self.f32_tensors || (self.conditional && index == 0) {
            DType::F32
        } else {
            dtype
        }
    }

    fn result_dtype(&self, _index: usize, dtype: DType) -> DType {
        if self.f32_tensors { DType::F32 } else { dtype }
    }

    /// The additions of one rank if each sums its part.
    fn flops(&self, _operands: &[&[usize]], results: &[Shape]) -> u64 {
        match self.kind {
            ExchangeKind::Sum | ExchangeKind::Scatter => count(&results[0]),
            ExchangeKind::Gather => 0,
        }
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Whole
    }

    /// Computes the exchange of a single rank.
    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let flat = self.flat(&operands[usize::from(self.conditional)..]);
        results[0].values_mut().copy_from_slice(&flat);
    }

    fn eval<T: Real>(&self, operands: &[&Array<T>]) -> Result<Vec<Array<T>>, OpError> {
        let mut results = self.eval_ranks(&[operands.to_vec()])?;
        Ok(results.pop().unwrap_or_default())
    }

    fn eval_ranks<T: Real>(&self, ranks: &[Vec<&Array<T>>]) -> Result<Vec<Vec<Array<T>>>, OpError> {
        if ranks.len() != self.ranks {
            let reason = format!("is of {} ranks, but {} take part", self.ranks, ranks.len());
            return Err(reason.into());
        }
        let mut flats = Vec::with_capacity(ranks.len());
        for operands in ranks {
            let shapes: Vec<&[usize]> = operands.iter().map(|operand| operand.shape()).collect();
            self.shapes(&shapes)?;
            flats.push(self.flat(&operands[usize::from(self.conditional)..]));
        }
        let is_skipped = self.conditional && ranks[0][0].values()[0].to_f64().is_nan();
        let flats = match self.kind {
            _ if is_skipped => flats,
            ExchangeKind::Sum | ExchangeKind::Scatter => {
                let sum = |index: usize| flats.iter().map(|flat| flat[index]).sum();
                vec![(0..flats[0].len()).map(sum).collect(); ranks.len()]
            }
            ExchangeKind::Gather => vec![flats.concat(); ranks.len()],
        };
        let result = |flat: Vec<T>| Ok(vec![parts::array([flat.len()], flat)?]);
        flats.into_iter().map(result).collect()
    }

    /// Each rank's part was rounded, and is rounded once more for the wire. The result is not rounded, or once for the wire.
    fn tolerance(&self, _index: usize, _operands: &[&Array], dtype: DType) -> f64 {
        let wire = if self.bf16_wire { DType::BF16 } else { dtype };
        match self.kind {
            ExchangeKind::Gather => 0.0,
            _ => narrow(wire) * (self.ranks + 1) as f64 + tolerance(DType::F32, self.ranks),
        }
    }
}

/// Returns the padded part of rank `rank` of a tensor, `[part_len]`.
pub(super) fn own_part<T: Real>(tensor: &Array<T>, rank: usize, ranks: usize) -> Result<Array<T>, OpError> {
    let part = padded_part(tensor.values(), rank, ranks);
    parts::array([part.len()], part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::ExchangeResult;

    fn array(values: &[f64]) -> Array {
        Array::new([values.len()], values.to_vec()).unwrap()
    }

    fn exchange(kind: ExchangeKind, conditional: bool) -> Exchange {
        Exchange {
            id: 0,
            kind,
            ranks: 2,
            conditional,
            f32_tensors: true,
            bf16_wire: false,
        }
    }

    /// Returns the tensors of each rank after an exchange.
    fn results(op: Exchange, shapes: &[Vec<usize>], ranks: &[Vec<&Array>]) -> Vec<Vec<Vec<f64>>> {
        let flats = op.eval_ranks(ranks).unwrap();
        let flats: Vec<Vec<&Array>> = flats.iter().map(|flat| flat.iter().collect()).collect();
        let result = ExchangeResult {
            id: 0,
            kind: op.kind,
            ranks: 2,
            shapes: shapes.to_vec(),
            f32_tensors: true,
        };
        let of_rank = |tensors: Vec<Array>| tensors.into_iter().map(|t| t.values().to_vec()).collect();
        result
            .eval_ranks(&flats)
            .unwrap()
            .into_iter()
            .map(of_rank)
            .collect()
    }

    #[test]
    fn sums_are_whole_or_divided_and_parts_are_gathered() {
        let shapes = [vec![3], vec![2]];
        let ranks = [
            [array(&[1.0, 2.0, 3.0]), array(&[4.0, 5.0])],
            [array(&[10.0, 20.0, 30.0]), array(&[40.0, 50.0])],
        ];
        let operands: Vec<Vec<&Array>> = ranks.iter().map(|rank| rank.iter().collect()).collect();
        let sums = results(exchange(ExchangeKind::Sum, false), &shapes, &operands);
        assert_eq!(sums, vec![vec![vec![11.0, 22.0, 33.0], vec![44.0, 55.0]]; 2]);
        let parts = results(exchange(ExchangeKind::Scatter, false), &shapes, &operands);
        assert_eq!(parts[0], [vec![11.0, 22.0], vec![44.0]]);
        // A part is padded with zeros.
        assert_eq!(parts[1], [vec![33.0, 0.0], vec![55.0]]);
        let parts: Vec<Vec<Array>> = parts
            .iter()
            .map(|rank| rank.iter().map(|part| array(part)).collect())
            .collect();
        let operands: Vec<Vec<&Array>> = parts.iter().map(|rank| rank.iter().collect()).collect();
        let whole = results(exchange(ExchangeKind::Gather, false), &shapes, &operands);
        assert_eq!(whole, sums);
    }

    #[test]
    fn nothing_is_exchanged_if_the_scale_is_nan() {
        let (nan, one) = (array(&[f64::NAN]), array(&[1.0]));
        let values = [array(&[1.0, 2.0]), array(&[10.0, 20.0])];
        let op = exchange(ExchangeKind::Sum, true);
        let sums = |scale: &Array| {
            let operands: Vec<Vec<&Array>> = values.iter().map(|value| vec![scale, value]).collect();
            results(op, &[vec![2]], &operands)
        };
        assert_eq!(sums(&one), [[[11.0, 22.0]], [[11.0, 22.0]]]);
        assert_eq!(sums(&nan), [[[1.0, 2.0]], [[10.0, 20.0]]]);
    }

    #[test]
    fn other_numbers_of_ranks_are_refused() {
        let op = exchange(ExchangeKind::Sum, false);
        let error = op.eval(&[&array(&[1.0])]).unwrap_err().to_string();
        assert_eq!(error, "is of 2 ranks, but 1 take part");
        assert!(op.shapes(&[]).is_err());
    }
}
