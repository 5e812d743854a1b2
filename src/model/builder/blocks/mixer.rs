//! Blocks without attention: timm's `MixerBlock`, `ResBlock` and `SpatialGatingBlock`, with timm's tensor names.
//!
//! Tokens are mixed by a linear layer between two transpositions.

use super::{Builder, Packed};
use crate::error::Result;
use crate::graph::{Role, ValueId};
use crate::model::norm::Norm;
use crate::model::vit::{Mlp, Vit};
use crate::ops::{Add, Combine, Op, Transpose};

impl Builder<'_> {
    /// Adds `x + mlp_tokens(norm1(x)ᵀ)ᵀ`, then `x + mlp_channels(norm2(x))`.
    pub(super) fn mixer_block(
        &mut self,
        x: ValueId,
        hidden: usize,
        block: &str,
        tensors: &str,
    ) -> Result<ValueId> {
        let step = format!("{block}.mlp_tokens");
        let x = self.token_mixing(x, block, tensors, &step, |builder, y| {
            let widths = [builder.tokens(), hidden];
            builder.network(y, &step, &format!("{tensors}mlp_tokens."), widths)
        })?;
        self.channel_mixing(x, block, tensors)
    }

    /// Adds `x + ls1 · linear_tokens(norm1(x)ᵀ)ᵀ`, then `x + ls2 · mlp_channels(norm2(x))`.
    pub(super) fn res_mlp_block(&mut self, x: ValueId, block: &str, tensors: &str) -> Result<ValueId> {
        let step = format!("{block}.linear_tokens");
        let x = self.token_mixing(x, block, tensors, &step, |builder, y| {
            let widths = [builder.tokens(); 2];
            builder.linear(
                Role::Ffn,
                &step,
                y,
                &format!("{tensors}linear_tokens"),
                widths,
                true,
            )
        })?;
        self.channel_mixing(x, block, tensors)
    }

    /// Adds `x + fc2(u · proj(norm(v)ᵀ)ᵀ)`, where `u` and `v` are the halves of `activation(fc1(norm(x)))`.
    pub(super) fn spatial_gating_block(&mut self, x: ValueId, block: &str, tensors: &str) -> Result<ValueId> {
        let Vit { dim, hidden, mlp, .. } = *self.vit;
        let (tokens, half) = (self.tokens(), hidden / 2);
        let (step, tensors_of_mlp) = (format!("{block}.mlp_channels"), format!("{tensors}mlp_channels."));
        let y = self.norm(&format!("{block}.norm"), x, &format!("{tensors}norm"), dim)?;
        let first = self.packed(&format!("{tensors_of_mlp}fc1"), [hidden, dim], true)?;
        let u = self.activated(&format!("{step}.u"), y, &first, 0..half, mlp)?;
        let v = self.activated(&format!("{step}.v"), y, &first, half..hidden, mlp)?;
        let gate = format!("{step}.gate");
        let tensors_of_gate = format!("{tensors_of_mlp}gate.");
        let name = format!("{tensors_of_gate}norm");
        let v = self.norm_of(Norm::PYTORCH, Role::Ffn, &format!("{gate}.norm"), v, &name, half)?;
        let v = self.transposed(&format!("{gate}.transpose"), v)?;
        let name = format!("{tensors_of_gate}proj");
        let v = self.linear(
            Role::Ffn,
            &format!("{gate}.proj"),
            v,
            &name,
            [tokens, tokens],
            true,
        )?;
        let op = Op::Transpose(Transpose {
            combine: Some(Combine::Multiply),
            ..Transpose::default()
        });
        let gated = self.graph.push(Role::Ffn, gate, op, [v, u])?;
        let name = format!("{tensors_of_mlp}fc2");
        let y = self.linear(Role::Ffn, &format!("{step}.fc2"), gated, &name, [dim, half], true)?;
        Ok(self
            .graph
            .push(Role::Ffn, format!("{step}.residual"), Op::Add(Add), [x, y])?)
    }

    /// Adds `x + ls1 · mix(norm1(x)ᵀ)ᵀ`.
    fn token_mixing(
        &mut self,
        x: ValueId,
        block: &str,
        tensors: &str,
        step: &str,
        mix: impl FnOnce(&mut Self, ValueId) -> Result<ValueId>,
    ) -> Result<ValueId> {
        let dim = self.vit.dim;
        let y = self.norm(&format!("{block}.norm1"), x, &format!("{tensors}norm1"), dim)?;
        let y = self.transposed(&format!("{step}.transpose"), y)?;
        let y = mix(self, y)?;
        let y = self.transposed(&format!("{step}.transpose_back"), y)?;
        let y = self.layer_scale(Role::Ffn, &format!("{step}.scale"), y, &format!("{tensors}ls1"))?;
        Ok(self
            .graph
            .push(Role::Ffn, format!("{step}.residual"), Op::Add(Add), [x, y])?)
    }

    /// Adds `x + ls2 · mlp_channels(norm2(x))`.
    fn channel_mixing(&mut self, x: ValueId, block: &str, tensors: &str) -> Result<ValueId> {
        let Vit { dim, hidden, .. } = *self.vit;
        let step = format!("{block}.mlp_channels");
        let y = self.norm(&format!("{block}.norm2"), x, &format!("{tensors}norm2"), dim)?;
        let y = self.network(y, &step, &format!("{tensors}mlp_channels."), [dim, hidden])?;
        let y = self.layer_scale(Role::Ffn, &format!("{step}.scale"), y, &format!("{tensors}ls2"))?;
        Ok(self
            .graph
            .push(Role::Ffn, format!("{step}.residual"), Op::Add(Add), [x, y])?)
    }

    /// Adds some outputs of a layer, and the network's activation of them.
    fn activated(
        &mut self,
        step: &str,
        x: ValueId,
        layer: &Packed,
        rows: std::ops::Range<usize>,
        mlp: Mlp,
    ) -> Result<ValueId> {
        let y = self.rows(Role::Ffn, step, x, layer, rows)?;
        match mlp {
            Mlp::Plain(activation) => {
                let op = Op::Activation(activation);
                Ok(self.graph.push(Role::Ffn, format!("{step}.act"), op, [y])?)
            }
            _ => Ok(y),
        }
    }

    fn transposed(&mut self, step: &str, x: ValueId) -> Result<ValueId> {
        let op = Op::Transpose(Transpose::default());
        Ok(self.graph.push(Role::Ffn, step, op, [x])?)
    }

    fn tokens(&self) -> usize {
        let [rows, columns] = self.vit.grid();
        rows * columns
    }
}
