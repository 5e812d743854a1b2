//! Layers of SAM's encoder and decoder. Maps have their channels last.

use crate::error::{Error, Result};
use crate::graph::{Change, Graph, Layout, Provenance, Role, ValueId};
use crate::model::channels_last::channels_last;
use crate::model::weights::Weights;
use crate::ops::{
    Activation, Add, Attention, AttentionOperands, Conv, ConvTranspose, LayerNorm, Linear, Op, Reshape,
};
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

    /// Adds a feed-forward network of two layers.
    pub(super) fn network(
        &mut self,
        step: &str,
        x: ValueId,
        tensors: &str,
        [dim, hidden]: [usize; 2],
        activation: Activation,
    ) -> Result<ValueId> {
        let role = Role::Ffn;
        let x = self.linear(
            role,
            &format!("{step}.fc1"),
            x,
            &format!("{tensors}.lin1"),
            [hidden, dim],
        )?;
        let x = self.activation(role, &format!("{step}.act"), x, activation)?;
        self.linear(
            role,
            &format!("{step}.fc2"),
            x,
            &format!("{tensors}.lin2"),
            [dim, hidden],
        )
    }

    /// Adds attention of the decoder, `[q, k, v]` with `dim` channels, which is narrowed to `channels`.
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

    /// Adds a convolution of 1×1 without a bias, which is a linear layer of the channels.
    pub(super) fn pointwise(
        &mut self,
        step: &str,
        x: ValueId,
        tensor: &str,
        [outputs, inputs]: [usize; 2],
    ) -> Result<ValueId> {
        let name = format!("{tensor}.weight");
        let stored = self.weights.take(&name, &[outputs, inputs, 1, 1])?;
        let flat = stored.reshaped([outputs, inputs]);
        let flat = flat.ok_or_else(|| Error::graph(&name, "does not have the elements of its shape"))?;
        let provenance = Provenance::from(name).then(Change::Layout(Layout::Flat));
        let weight = self.graph.constant(provenance, flat);
        self.linear_of(Role::Other, step, vec![x, weight])
    }

    /// Adds a convolution of 3×3 without a bias that keeps the map's size and channels.
    pub(super) fn conv(&mut self, step: &str, x: ValueId, tensor: &str, channels: usize) -> Result<ValueId> {
        let shape = [channels, channels, 3, 3];
        let (provenance, weight) =
            channels_last(self.weights, &format!("{tensor}.weight"), shape, |pair| pair)?;
        let weight = self.graph.constant(provenance, weight);
        let op = Conv {
            padding: [[1; 2]; 2],
            ..Conv::new([3; 2])
        };
        self.push(Role::Other, step, op, [x, weight])
    }

    /// Adds a transposed convolution that doubles the map's size.
    pub(super) fn doubled(
        &mut self,
        step: &str,
        x: ValueId,
        tensor: &str,
        [outputs, inputs]: [usize; 2],
    ) -> Result<ValueId> {
        let name = format!("{tensor}.weight");
        let order = |[input, output]: [usize; 2]| [output, input];
        let (provenance, weight) = channels_last(self.weights, &name, [inputs, outputs, 2, 2], order)?;
        let weight = self.graph.constant(provenance, weight);
        let bias = self.constant(&format!("{tensor}.bias"), &[outputs])?;
        let op = ConvTranspose {
            stride: [2; 2],
            bias: true,
            ..ConvTranspose::new([2; 2])
        };
        self.push(Role::Other, step, op, [x, weight, bias])
    }
}
