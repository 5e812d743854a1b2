//! All-reduce of a tensor-parallel model, with fused bias and residual.

use std::fmt;

use super::operands::{Rest, count, expect, one};
use super::{Definition, Locality, OpError, Shape};
use crate::array::{Array, Real};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};

/// `(x [..,D], bias [D]?, residual [..,D]?) → Σ x + bias + residual`, summed over the ranks of a tensor-parallel model. Each rank has its
/// own graph. Bias and residual are equal on all ranks and added once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllReduce {
    /// Number of ranks.
    pub ranks: usize,
    /// True if the operand `bias` exists.
    pub bias: bool,
    /// True if the operand `residual`, added last, exists.
    pub residual: bool,
}

impl AllReduce {
    /// Sums the first operand of each rank. `rest` has the bias and the residual.
    fn sum<T: Real>(&self, partials: &[&Array<T>], rest: &[&Array<T>]) -> Result<Array<T>, OpError> {
        let Some((first, others)) = partials.split_first().filter(|_| partials.len() == self.ranks) else {
            let given = partials.len();
            return Err(format!("sums over {} ranks, but has {given}", self.ranks).into());
        };
        let shapes: Vec<&[usize]> = [*first].iter().chain(rest).map(|array| array.shape()).collect();
        let shapes = self.shapes(&shapes)?;
        if let Some(other) = others.iter().find(|other| other.shape() != first.shape()) {
            let (shape, expected) = (other.shape(), first.shape());
            return Err(format!("a rank has {shape:?}, the first has {expected:?}").into());
        }
        let mut result = Array::zeros(shapes.into_iter().flatten().collect());
        let bias = self.bias.then(|| rest[0].values());
        let residual = self.residual.then(|| rest[rest.len() - 1].values());
        for (i, value) in result.values_mut().iter_mut().enumerate() {
            let sum: T = partials.iter().map(|partial| partial.values()[i]).sum();
            let bias = bias.map_or(T::ZERO, |bias| bias[i % bias.len()]);
            *value = sum + bias + residual.map_or(T::ZERO, |residual| residual[i]);
        }
        Ok(result)
    }
}

impl Definition for AllReduce {
    const NAME: &'static str = "all_reduce";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {} ranks", self.ranks)?;
        f.write_str(if self.bias { " +bias" } else { "" })?;
        f.write_str(if self.residual { " +residual" } else { "" })
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let mut rest = Rest::new(operands);
        let x = rest.required("x")?;
        let bias = rest.optional(self.bias, "bias")?;
        let residual = rest.optional(self.residual, "residual")?;
        rest.finish()?;
        let Some(&channels) = x.last() else {
            return Err("x is a scalar".into());
        };
        if let Some(bias) = bias {
            expect("bias", bias, &[channels])?;
        }
        if let Some(residual) = residual {
            expect("residual", residual, x)?;
        }
        one(x)
    }

    /// The operations of one rank if each sums its part, and those after the sum.
    fn flops(&self, _operands: &[&[usize]], results: &[Shape]) -> u64 {
        let sums = u64::from(self.ranks > 1);
        (sums + u64::from(self.bias) + u64::from(self.residual)) * count(&results[0])
    }

    fn may_alias(&self) -> Option<usize> {
        Some(0)
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Rows { parameters: 0..0 }
    }

    /// Computes the sum of a single rank.
    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        if let Ok(sum) = self.sum(&operands[..1], &operands[1..]) {
            results[0] = sum;
        }
    }

    fn eval<T: Real>(&self, operands: &[&Array<T>]) -> Result<Vec<Array<T>>, OpError> {
        let (x, rest) = operands.split_at_checked(1).ok_or(OpError::Missing("x"))?;
        Ok(vec![self.sum(x, rest)?])
    }

    fn eval_ranks<T: Real>(&self, ranks: &[Vec<&Array<T>>]) -> Result<Vec<Vec<Array<T>>>, OpError> {
        let partials = ranks.iter().map(|operands| operands.first().copied());
        let partials = partials
            .collect::<Option<Vec<&Array<T>>>>()
            .ok_or(OpError::Missing("x"))?;
        let sum = |operands: &Vec<&Array<T>>| Ok(vec![self.sum(&partials, &operands[1..])?]);
        ranks.iter().map(sum).collect()
    }

    /// Each rank's part was rounded. The sum is rounded at most once per rank, the result once.
    fn tolerance(&self, _index: usize, _operands: &[&Array], dtype: DType) -> f64 {
        narrow(dtype) * (self.ranks + 1) as f64 + tolerance(DType::F32, self.ranks)
    }
}
