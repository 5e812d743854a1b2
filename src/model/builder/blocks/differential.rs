//! Differential attention, `(softmax(Q₁·K₁ᵀ) − λ·softmax(Q₂·K₂ᵀ))·V`, as in timm's `DiffAttention`. Q₁ and Q₂ are the
//! halves of a head's queries. <https://arxiv.org/abs/2410.05258>
//!
//! Queries whose other half is zero turn each product into one of whole heads. Both terms are then ordinary attention
//! over the same keys and values.

use super::{Builder, Packed};
use crate::error::{Error, Result};
use crate::graph::{Change, Provenance, Role, ValueId};
use crate::model::vit::Vit;
use crate::ops::{Add, Attention, AttentionOperands, MulScalar, Op, RmsNorm};
use crate::tensor::Tensor;

/// Epsilon of the norm of each head's result, which is an RMS norm in every model.
const EPSILON: f32 = 1e-5;

impl Builder<'_> {
    /// Adds differential attention in block `index`, with the arguments of [`Builder::packed_attention`].
    pub(super) fn differential_attention(
        &mut self,
        x: ValueId,
        index: usize,
        step: &str,
        tensors: &str,
        (packed, first): (&Packed, usize),
    ) -> Result<ValueId> {
        let Vit { dim, heads, .. } = *self.vit;
        let head_dim = dim / heads;
        let half = head_dim / 2;
        let keys = first + dim..first + 3 * dim;
        let kv = self.rows(Role::Qkv, &format!("{step}.kv"), x, packed, keys)?;
        let mut attended = Vec::with_capacity(2);
        for part in 0..2 {
            let halved = |(of, tensor): &(Provenance, Tensor)| {
                let rows = tensor.rows(first..first + dim);
                let provenance = of.clone().then(Change::Rows(first..first + dim));
                let provenance = provenance.then(Change::HalfOfHeads(part));
                match rows.and_then(|rows| half_of_heads(&rows, head_dim, part)) {
                    Some(rows) => Ok((provenance, rows)),
                    None => Err(Error::graph(provenance.to_string(), "has too few rows")),
                }
            };
            let queries = Packed {
                weight: halved(&packed.weight)?,
                bias: packed.bias.as_ref().map(halved).transpose()?,
            };
            let step = format!("{step}.{}", part + 1);
            let q = self.rows(Role::Qkv, &format!("{step}.q"), x, &queries, 0..dim)?;
            let op = Op::Attention(Attention {
                heads,
                head_dim,
                scale: (half as f64).sqrt().recip() as f32,
                operands: AttentionOperands::PackedKv,
                ..Attention::default()
            });
            attended.push(self.graph.push(Role::Attention, step, op, [q, kv])?);
        }
        let initial = 0.8 - 0.6 * (-0.3 * index as f64).exp();
        let lambda = self.lambda(tensors, half)? + initial;
        let step_of = |name: &str| format!("{step}.{name}");
        let minus = Op::MulScalar(MulScalar(-lambda as f32));
        let second = self
            .graph
            .push(Role::Attention, step_of("minus_lambda"), minus, [attended[1]])?;
        let difference = [attended[0], second];
        let difference = self
            .graph
            .push(Role::Attention, step_of("difference"), Op::Add(Add), difference)?;

        // The norm's result is multiplied by 1 − the initial λ.
        let name = format!("{tensors}sub_norm.weight");
        let weight = self.weights.take(&name, &[head_dim])?;
        let factors = vec![(1.0 - initial) as f32; head_dim];
        let weight = weight
            .scale_rows(&factors)
            .ok_or_else(|| Error::graph(&name, "has another length"))?;
        let change = Change::Scaled(Box::new(Provenance::Number(factors[0])));
        let weight = self.graph.constant(Provenance::from(name).then(change), weight);
        let op = Op::RmsNorm(RmsNorm { epsilon: EPSILON });
        Ok(self
            .graph
            .push(Role::Attention, step_of("sub_norm"), op, [difference, weight])?)
    }

    /// Computes `exp(q1·k1) − exp(q2·k2)`, which is λ without its initial value.
    fn lambda(&mut self, tensors: &str, length: usize) -> Result<f64> {
        let mut dot = |part: usize| -> Result<f64> {
            let [q, k] = [
                format!("{tensors}lambda_q{part}"),
                format!("{tensors}lambda_k{part}"),
            ];
            let (q, k) = (
                self.weights.take(&q, &[length])?,
                self.weights.take(&k, &[length])?,
            );
            let (q, k) = (q.to_f32(), k.to_f32());
            Ok(q.iter()
                .zip(&*k)
                .map(|(&q, &k)| f64::from(q) * f64::from(k))
                .sum())
        };
        Ok(dot(1)?.exp() - dot(2)?.exp())
    }
}

/// Returns the rows of one half of each head, with zeros in place of the other half.
fn half_of_heads(rows: &Tensor, head_dim: usize, part: usize) -> Option<Tensor> {
    let factors: Vec<f32> = (0..*rows.shape().first()?)
        .map(|row| {
            if row % head_dim / (head_dim / 2) == part {
                1.0
            } else {
                0.0
            }
        })
        .collect();
    rows.scale_rows(&factors)
}
