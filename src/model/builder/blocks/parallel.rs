//! Blocks with parallel branches: timm's `ParallelScalingBlock`, `DiffParallelScalingBlock` and `ParallelThingsBlock`,
//! with timm's tensor names.
//!
//! A sum of branches is emitted as a chain of residuals, so that each addition can be fused into a GEMM.

use super::{Builder, Packed};
use crate::error::{Error, Result};
use crate::graph::{Change, Provenance, Role, ValueId};
use crate::model::vit::{Mlp, Vit};
use crate::ops::{Add, Op, Scale};
use crate::tensor::Tensor;

/// Number of branches of each kind in a block of pairs.
const BRANCHES: usize = 2;

impl Builder<'_> {
    /// Adds `x + scale · (attention(y) + mlp(y))` with `y = norm(x)`. The first layers of both are one layer.
    pub(super) fn parallel_block(
        &mut self,
        x: ValueId,
        index: usize,
        block: &str,
        tensors: &str,
    ) -> Result<ValueId> {
        let Vit {
            dim,
            hidden,
            qkv_bias,
            projection_bias,
            mlp_bias,
            ..
        } = *self.vit;
        let qkv_bias = qkv_bias == [true; 3];
        let Mlp::Plain(activation) = self.vit.mlp else {
            return Err(Error::graph(block, "a parallel block has no gated network"));
        };
        let step = format!("{block}.norm");
        let y = self.norm(&step, x, &format!("{tensors}in_norm"), dim)?;
        let layer = self.packed(&format!("{tensors}in_proj"), [hidden + 3 * dim, dim], qkv_bias)?;
        let differential = self.vit.blocks.differential;

        let step = format!("{block}.attn");
        let attended = if differential {
            self.differential_attention(y, index, &step, tensors, (&layer, hidden))?
        } else {
            self.packed_attention(y, index, &step, tensors, (&layer, hidden), ["q_norm", "k_norm"])?
        };
        let step = format!("{block}.mlp.fc1");
        let first = if qkv_bias {
            self.rows(Role::Ffn, &step, y, &layer, 0..hidden)?
        } else {
            // Queries, keys and values have no bias, but the network has one.
            let name = format!("{tensors}mlp_bias");
            let bias = self.weights.take(&name, &[hidden])?;
            let rows = layer.weight.1.rows(0..hidden);
            let rows = rows.ok_or_else(|| Error::graph(layer.weight.0.to_string(), "has too few rows"))?;
            let layer = Packed {
                weight: (layer.weight.0.clone().then(Change::Rows(0..hidden)), rows),
                bias: Some((name.into(), bias)),
            };
            self.rows(Role::Ffn, &step, y, &layer, 0..hidden)?
        };
        let activated = self.graph.push(
            Role::Ffn,
            format!("{block}.mlp.act"),
            Op::Activation(activation),
            [first],
        )?;

        let (attention_step, mlp_step) = (format!("{block}.attn.proj"), format!("{block}.mlp.fc2"));
        let [attended, fed] = if differential {
            // One layer over both results, joined, equals the sum of a layer of each.
            let layer = self.packed(
                &format!("{tensors}out_proj"),
                [dim, dim + hidden],
                projection_bias,
            )?;
            let (of, weight) = &layer.weight;
            let columns = |range: std::ops::Range<usize>| -> Result<(Provenance, Tensor)> {
                let provenance = of.clone().then(Change::Columns(range.clone()));
                let part = weight.columns(range);
                let part = part.ok_or_else(|| Error::graph(provenance.to_string(), "has too few columns"))?;
                Ok((provenance, part))
            };
            let of_attention = Packed {
                weight: columns(0..dim)?,
                bias: layer.bias.clone(),
            };
            let of_network = Packed {
                weight: columns(dim..dim + hidden)?,
                bias: None,
            };
            [
                self.rows(Role::Attention, &attention_step, attended, &of_attention, 0..dim)?,
                self.rows(Role::Ffn, &mlp_step, activated, &of_network, 0..dim)?,
            ]
        } else {
            let names = ["attn_out_proj", "mlp_out_proj"].map(|name| format!("{tensors}{name}"));
            [
                self.linear(
                    Role::Attention,
                    &attention_step,
                    attended,
                    &names[0],
                    [dim, dim],
                    projection_bias,
                )?,
                self.linear(
                    Role::Ffn,
                    &mlp_step,
                    activated,
                    &names[1],
                    [dim, hidden],
                    mlp_bias,
                )?,
            ]
        };
        let [attended, fed] = if !self.vit.layer_scale[0] {
            [attended, fed]
        } else {
            let gamma = self.constant(&format!("{tensors}ls.gamma"), &[dim])?;
            let steps = [(Role::Attention, "attn", attended), (Role::Ffn, "mlp", fed)];
            let mut scaled = [attended, fed];
            for (scaled, (role, branch, y)) in scaled.iter_mut().zip(steps) {
                let step = format!("{block}.{branch}.ls");
                *scaled = self.graph.push(role, step, Op::Scale(Scale), [y, gamma])?;
            }
            scaled
        };
        let step = format!("{block}.attn.residual");
        let x = self
            .graph
            .push(Role::Attention, step, Op::Add(Add), [x, attended])?;
        let step = format!("{block}.mlp.residual");
        Ok(self.graph.push(Role::Ffn, step, Op::Add(Add), [x, fed])?)
    }

    /// Adds `x + Σ scale · attention(norm(x))`, then `x + Σ scale · mlp(norm(x))`.
    pub(super) fn block_of_pairs(
        &mut self,
        mut x: ValueId,
        index: usize,
        block: &str,
        tensors: &str,
    ) -> Result<ValueId> {
        for (role, branch, list) in [(Role::Attention, "attn", "attns"), (Role::Ffn, "mlp", "ffns")] {
            let mut sum = x;
            for number in 0..BRANCHES {
                let (step, tensors) = (
                    format!("{block}.{branch}{number}"),
                    format!("{tensors}{list}.{number}."),
                );
                let norm = format!("{tensors}norm");
                let normed = self.norm(&format!("{step}.norm"), x, &norm, self.vit.dim)?;
                let y = match role {
                    Role::Attention => self.attention(normed, index, &step, &tensors)?,
                    _ => self.feed_forward(normed, &step, &tensors)?,
                };
                let y = self.layer_scale(role, &format!("{step}.ls"), y, &format!("{tensors}ls.gamma"))?;
                sum = self
                    .graph
                    .push(role, format!("{step}.residual"), Op::Add(Add), [sum, y])?;
            }
            x = sum;
        }
        Ok(x)
    }
}
