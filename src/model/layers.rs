//! Layers that models with graphs of their own share. Maps have their channels last.

use super::weights::Weights;
use crate::error::{Error, Result};
use crate::graph::{Graph, Provenance, Role, ValueId};
use crate::ops::{Activation, Add, Attention, AttentionOperands, LayerNorm, Linear, Op, Reshape};
use crate::tensor::Tensor;

/// Appends layers to a graph, with the weights of a file.
pub(super) struct Layers<'a> {
    pub(super) graph: Graph,
    pub(super) weights: &'a mut Weights,
}

impl Layers<'_> {
    /// Adds a tensor of the file as a constant.
    pub(super) fn constant(&mut self, name: &str, shape: &[usize]) -> Result<ValueId> {
        let tensor = self.weights.take(name, shape)?;
        Ok(self.graph.constant(name, tensor))
    }

    /// Adds a constant that was computed from tensors of the file.
    pub(super) fn computed(
        &mut self,
        name: &str,
        of: &[&str],
        shape: &[usize],
        values: Vec<f32>,
    ) -> Result<ValueId> {
        let tensor = Tensor::from_f32(shape, values);
        let tensor = tensor.ok_or_else(|| Error::graph(name, "does not have the elements of its shape"))?;
        let of: Vec<Provenance> = of.iter().map(|&tensor| tensor.into()).collect();
        Ok(self.graph.constant(Provenance::computed(name, of), tensor))
    }

    pub(super) fn push(
        &mut self,
        role: Role,
        step: &str,
        op: impl Into<Op>,
        inputs: impl Into<Vec<ValueId>>,
    ) -> Result<ValueId> {
        Ok(self.graph.push(role, step, op, inputs)?)
    }

    /// Adds the linear layer `tensor`.
    pub(super) fn linear(
        &mut self,
        role: Role,
        step: &str,
        x: ValueId,
        tensor: &str,
        [outputs, inputs]: [usize; 2],
    ) -> Result<ValueId> {
        let weight = self.constant(&format!("{tensor}.weight"), &[outputs, inputs])?;
        let bias = self.constant(&format!("{tensor}.bias"), &[outputs])?;
        self.linear_of(role, step, vec![x, weight, bias])
    }

    /// Adds a linear layer of these operands: x, the weight, and the bias if there is one.
    pub(super) fn linear_of(&mut self, role: Role, step: &str, operands: Vec<ValueId>) -> Result<ValueId> {
        let op = Linear {
            bias: operands.len() > 2,
            ..Linear::default()
        };
        self.push(role, step, op, operands)
    }

    pub(super) fn activation(
        &mut self,
        role: Role,
        step: &str,
        x: ValueId,
        activation: Activation,
    ) -> Result<ValueId> {
        self.push(role, step, Op::Activation(activation), [x])
    }

    /// Adds layer norm over the last axis.
    pub(super) fn norm(
        &mut self,
        step: &str,
        x: ValueId,
        tensor: &str,
        dim: usize,
        epsilon: f32,
    ) -> Result<ValueId> {
        let weight = self.constant(&format!("{tensor}.weight"), &[dim])?;
        let bias = self.constant(&format!("{tensor}.bias"), &[dim])?;
        self.push(Role::Other, step, LayerNorm { epsilon }, [x, weight, bias])
    }

    /// Adds `x + y`.
    pub(super) fn add(&mut self, role: Role, step: &str, x: ValueId, y: ValueId) -> Result<ValueId> {
        self.push(role, step, Add, [x, y])
    }

    /// Gives `x` another shape, whose first extent grows with the batch.
    pub(super) fn reshaped(
        &mut self,
        role: Role,
        step: &str,
        x: ValueId,
        extents: &[usize],
    ) -> Result<ValueId> {
        let op = Reshape {
            extents: extents.to_vec(),
            batch: Some(0),
        };
        self.push(role, step, op, [x])
    }

    /// Adds a feed-forward network of two linear layers, whose tensors are given.
    pub(super) fn network(
        &mut self,
        step: &str,
        x: ValueId,
        [first, second]: [String; 2],
        [dim, hidden]: [usize; 2],
        activation: Activation,
    ) -> Result<ValueId> {
        let role = Role::Ffn;
        let x = self.linear(role, &format!("{step}.fc1"), x, &first, [hidden, dim])?;
        let x = self.activation(role, &format!("{step}.act"), x, activation)?;
        self.linear(role, &format!("{step}.fc2"), x, &second, [dim, hidden])
    }

    /// Adds attention of `[q, k, v]` with `dim` channels, which is narrowed to `channels`.
    pub(super) fn attention(
        &mut self,
        step: &str,
        qkv: [ValueId; 3],
        tensors: &str,
        [dim, channels, heads]: [usize; 3],
    ) -> Result<ValueId> {
        let mut operands = Vec::with_capacity(3);
        for (letter, x) in ["q", "k", "v"].into_iter().zip(qkv) {
            let tensor = format!("{tensors}.{letter}_proj");
            operands.push(self.linear(
                Role::Qkv,
                &format!("{step}.{letter}"),
                x,
                &tensor,
                [channels, dim],
            )?);
        }
        let head_dim = channels / heads;
        let op = Attention {
            heads,
            head_dim,
            scale: (head_dim as f64).sqrt().recip() as f32,
            operands: AttentionOperands::Separate,
            ..Attention::default()
        };
        let x = self.push(Role::Attention, step, op, operands)?;
        let tensor = format!("{tensors}.out_proj");
        self.linear(
            Role::Attention,
            &format!("{step}.proj"),
            x,
            &tensor,
            [dim, channels],
        )
    }
}
