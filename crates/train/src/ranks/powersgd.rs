//! Compression of gradients between ranks by PowerSGD: products of two matrices of low rank, with error feedback.
//! <https://arxiv.org/abs/1905.13727>, algorithm 1.
//!
//! For the gradient `G` of a matrix, each rank adds the error `E` of its last step: `M = G + E`. With the matrix `Q` of the last step, the
//! ranks sum `P = M · Q`, make its columns orthonormal, and sum `Q = Mᵀ · P`. Then `S = P · Qᵀ` approximates the sum of all `M`, and the
//! error of a rank is `E = M − S / ranks`.

use std::collections::BTreeMap;

use hipvit::error::{Error, Result};
use hipvit::graph::{Graph, Role, ValueId};
use hipvit::ops::exchange::ExchangeKind;
use hipvit::ops::{Add, Linear, MatMul, MovingAverage, MulScalar, Op, RankPart};
use hipvit::tensor::Tensor;
use hipvit_data::random::philox4x32_10;

use super::compression_states::Updates;
use super::graph::Exchanges;
use super::orthogonal::Orthonormalize;

/// End of the names of the states with errors. Each rank has its own.
const ERROR: &str = ".compression_error";

/// End of the names of the states with the matrices `Q`, which all ranks have.
const BASIS: &str = ".compression_basis";

/// Returns true if a state belongs to the compression. Runs without it have none.
pub(crate) fn is_of_compression(state: &str) -> bool {
    state.ends_with(ERROR) || state.ends_with(BASIS)
}

/// Returns the errors of `shape`, `[ranks, …]`, from those of a run with another number of ranks. Their sum stays. `None` if the state is
/// no such error.
pub(crate) fn redistributed(state: &str, saved: (&[usize], Vec<f32>), shape: &[usize]) -> Option<Vec<f32>> {
    let (saved_shape, values) = saved;
    let (Some((_, old)), Some((&ranks, new))) = (saved_shape.split_first(), shape.split_first()) else {
        return None;
    };
    if !state.ends_with(ERROR) || old != new {
        return None;
    }
    let mut sum = vec![0.0; new.iter().product()];
    for part in values.chunks_exact(sum.len().max(1)) {
        sum.iter_mut().zip(part).for_each(|(sum, value)| *sum += value);
    }
    sum.iter_mut().for_each(|value| *value /= ranks as f32);
    Some(sum.repeat(ranks))
}

/// Returns true if factors of rank `rank` have at most half of the elements of a tensor.
fn is_compressed(shape: &[usize], rank: usize) -> bool {
    match *shape {
        [rows, columns] => rank <= rows.min(columns) && 2 * rank * (rows + columns) <= rows * columns,
        _ => false,
    }
}

/// Returns numbers from -1 to 1 that depend on the name and the shape.
fn random(name: &str, len: usize) -> Vec<f32> {
    // FNV-1a.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let key = [hash as u32, (hash >> 32) as u32];
    let block = |index: usize| philox4x32_10([index as u32, 0, 0, 0], key);
    let bits = (0..len.div_ceil(4)).flat_map(block);
    bits.map(|bits| (bits >> 8) as f32 / (1 << 23) as f32 - 1.0)
        .take(len)
        .collect()
}

fn zeros(len: usize) -> Vec<f32> {
    vec![0.0; len]
}

/// A gradient that is compressed.
struct Matrix {
    index: usize,
    name: String,
    /// Gradient and error.
    sum: ValueId,
    error: ValueId,
    basis: ValueId,
}

impl Exchanges {
    /// Returns the [sums](Self::sums) of gradients, those of large matrices by PowerSGD if the ranks compress. `names` are those of the
    /// weights.
    pub(crate) fn compressed_sums(
        &mut self,
        graph: &mut Graph,
        (names, gradients): (&[String], &[Option<ValueId>]),
        condition: Option<ValueId>,
        f32: bool,
    ) -> Result<Vec<Option<ValueId>>> {
        let Some(rank) = self.plan.powersgd_rank else {
            return self.sums(graph, gradients, condition, f32);
        };
        let mut rest = gradients.to_vec();
        let mut matrices = Vec::new();
        for (index, (name, gradient)) in names.iter().zip(&mut rest).enumerate() {
            let found = gradient.take_if(|id| is_compressed(&graph.value(*id).shape, rank));
            if let Some(gradient) = found {
                matrices.push(self.matrix(graph, (index, name), gradient, rank)?);
            }
        }
        let mut sums = self.sums(graph, &rest, condition, f32)?;
        let columns = matrices.iter().map(|matrix| {
            let operands = [matrix.sum, matrix.basis];
            push(graph, &matrix.name, "p", MatMul::default(), &operands)
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let columns = self.whole_sums(graph, columns, condition, f32)?;
        let mut bases = Vec::with_capacity(matrices.len());
        let mut orthonormal = Vec::with_capacity(matrices.len());
        for (matrix, columns) in matrices.iter().zip(columns) {
            let columns = push(
                graph,
                &matrix.name,
                "orthonormal",
                Orthonormalize::op(),
                &[columns],
            )?;
            bases.push(push(
                graph,
                &matrix.name,
                "q",
                MatMul::TRANSPOSED,
                &[matrix.sum, columns],
            )?);
            orthonormal.push(columns);
        }
        let bases = self.whole_sums(graph, bases, condition, f32)?;
        for ((matrix, columns), basis) in matrices.iter().zip(orthonormal).zip(bases) {
            let Matrix { index, name, .. } = matrix;
            let sum = push(graph, name, "sum", Linear::default(), &[columns, basis])?;
            let mean = MulScalar(-1.0 / self.plan.ranks as f32);
            let mean = push(graph, name, "negative_mean", mean, &[sum])?;
            let error = push(graph, name, "error", Add, &[matrix.sum, mean])?;
            self.updates
                .states
                .extend([(matrix.error, error), (matrix.basis, basis)]);
            let part = RankPart {
                ranks: self.plan.group,
            };
            sums[*index] = Some(if self.plan.divides_states() {
                push(graph, name, "part", part, &[sum])?
            } else {
                sum
            });
        }
        Ok(sums)
    }

    /// Adds the states of a gradient, and the sum of gradient and error.
    fn matrix(
        &mut self,
        graph: &mut Graph,
        (index, name): (usize, &str),
        gradient: ValueId,
        rank: usize,
    ) -> Result<Matrix> {
        let shape = graph.value(gradient).shape.clone();
        let columns = shape.last().copied().unwrap_or(0);
        let mut state = |name: String, shape: &[usize], values: Vec<f32>| {
            let initial = Tensor::from_f32(shape, values);
            let initial = initial.ok_or_else(|| Error::graph(&name, "has a shape without elements"))?;
            Ok::<_, Error>(graph.state(name, initial))
        };
        let of_error = format!("{name}{ERROR}");
        let error = state(of_error.clone(), &shape, zeros(shape.iter().product()))?;
        let basis = state(
            format!("{name}{BASIS}"),
            &[columns, rank],
            random(name, columns * rank),
        )?;
        let of_all = [&[self.plan.ranks], shape.as_slice()].concat();
        self.updates.divided.insert(of_error, of_all);
        Ok(Matrix {
            index,
            name: name.to_owned(),
            sum: push(graph, name, "with_error", Add, &[gradient, error])?,
            error,
            basis,
        })
    }

    /// Returns the sums of tensors over all ranks, which each rank has.
    fn whole_sums(
        &mut self,
        graph: &mut Graph,
        tensors: Vec<ValueId>,
        condition: Option<ValueId>,
        f32: bool,
    ) -> Result<Vec<ValueId>> {
        let tensors: Vec<Option<ValueId>> = tensors.into_iter().map(Some).collect();
        let sums = self.exchanged(graph, &tensors, (ExchangeKind::Sum, condition, f32))?;
        let missing = || Error::internal("ranks", "an exchange has no result");
        sums.into_iter().map(|sum| sum.ok_or_else(missing)).collect()
    }

    /// Updates the states of the compression in steps that update the weights. `factor` is NaN in the others. Returns the shapes of the states
    /// of all ranks together, by their names.
    pub(crate) fn update_states(
        &mut self,
        graph: &mut Graph,
        factor: ValueId,
    ) -> Result<BTreeMap<String, Vec<usize>>> {
        let Updates { states, divided } = std::mem::take(&mut self.updates);
        for (state, next) in states {
            let name = graph.value(state).name.clone();
            // Takes the next value, or keeps the state.
            let op = MovingAverage { decay: 0.0 };
            let next = push(graph, &name, "next", op, &[state, next, factor])?;
            graph.update(state, next)?;
        }
        Ok(divided)
    }
}

fn push(
    graph: &mut Graph,
    name: &str,
    part: &str,
    op: impl Into<Op>,
    operands: &[ValueId],
) -> Result<ValueId> {
    let op: Op = op.into();
    Ok(graph.push(
        Role::Other,
        format!("{name}.powersgd.{part}"),
        op,
        operands.to_vec(),
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrices_whose_factors_are_small_are_compressed() {
        assert!(is_compressed(&[768, 768], 4));
        assert!(is_compressed(&[32, 32], 8));
        assert!(!is_compressed(&[32, 32], 9));
        assert!(!is_compressed(&[3, 768], 4));
        assert!(!is_compressed(&[768], 1));
        assert!(!is_compressed(&[1, 197, 768], 1));
    }

    #[test]
    fn errors_of_another_number_of_ranks_keep_their_sum() {
        let saved = (&[3, 1, 2][..], vec![1.0, 10.0, 2.0, 20.0, 3.0, 30.0]);
        let name = format!("weight{ERROR}");
        let found = redistributed(&name, saved.clone(), &[2, 1, 2]);
        assert_eq!(found, Some(vec![3.0, 30.0, 3.0, 30.0]));
        assert_eq!(redistributed(&name, saved.clone(), &[2, 2, 1]), None);
        assert_eq!(redistributed("weight.moment", saved, &[2, 1, 2]), None);
    }

    #[test]
    fn numbers_depend_on_the_name_and_cover_the_range() {
        let numbers = random("a", 4099);
        assert!(numbers.iter().all(|number| (-1.0..1.0).contains(number)));
        let mean = numbers.iter().sum::<f32>() / 4099.0;
        // Six deviations of the mean.
        assert!(mean.abs() < 6.0 * (1.0 / 3.0_f32).sqrt() / 64.0, "{mean}");
        assert_eq!(random("a", 5)[..], numbers[..5]);
        assert_ne!(random("b", 5)[..], numbers[..5]);
    }
}
