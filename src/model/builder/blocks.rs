//! Builds the blocks in each [`BlockForm`]: attention or another mixing of tokens, and a feed-forward network, with
//! norms, scales and residuals.

mod differential;
mod mixer;
mod parallel;
mod relative;
mod rotary;

use super::{Builder, TwoLayers};
use crate::error::{Error, Result};
use crate::graph::{Change, Provenance, Role, ValueId};
use crate::model::names::Qkv;
use crate::model::vit::{BlockForm, Mlp, Vit};
use crate::ops::{Add, Attention, AttentionOperands, Linear, Op, Scale, SwiGlu};
use crate::tensor::Tensor;

/// A layer whose outputs are several parts, one after the other, with provenance and tensors of its weight and bias.
pub(super) struct Packed {
    pub(super) weight: (Provenance, Tensor),
    pub(super) bias: Option<(Provenance, Tensor)>,
}

impl Packed {
    /// Returns the layer of some of the outputs.
    fn part(&self, rows: std::ops::Range<usize>) -> Result<Self> {
        let part = |(provenance, tensor): &(Provenance, Tensor)| -> Result<_> {
            let part = tensor.rows(rows.clone());
            let part = part.ok_or_else(|| Error::graph(provenance.to_string(), "has too few rows"))?;
            let mut provenance = provenance.clone();
            if rows.len() != tensor.shape()[0] {
                provenance = provenance.then(Change::Rows(rows.clone()));
            }
            Ok((provenance, part))
        };
        Ok(Self {
            weight: part(&self.weight)?,
            bias: self.bias.as_ref().map(part).transpose()?,
        })
    }
}

/// Joins the layers of all parts. If only some have a bias, the others get zeros.
fn joined(parts: &[Packed]) -> Result<Packed> {
    let join = |parts: Vec<(Provenance, Tensor)>| {
        let (of, tensors): (Vec<Provenance>, Vec<Tensor>) = parts.into_iter().unzip();
        let provenance = Provenance::Joined(of);
        match Tensor::concat_rows(&tensors.iter().collect::<Vec<_>>()) {
            Some(tensor) => Ok((provenance, tensor)),
            None => Err(Error::graph(provenance.to_string(), "have different sizes")),
        }
    };
    let weight = join(parts.iter().map(|part| part.weight.clone()).collect())?;
    let biases = parts.iter().map(|part| match &part.bias {
        Some(bias) => Ok(bias.clone()),
        None => {
            let rows = part.weight.1.shape()[0];
            let zeros = Tensor::from_f32([rows], vec![0.0; rows]);
            let zeros = zeros.ok_or_else(|| Error::graph(part.weight.0.to_string(), "has no rows"))?;
            Ok((Provenance::Number(0.0), zeros))
        }
    });
    let bias = if parts.iter().any(|part| part.bias.is_some()) {
        Some(join(biases.collect::<Result<_>>()?)?)
    } else {
        None
    };
    Ok(Packed { weight, bias })
}

/// Returns the attention of `dim` channels in total.
pub(super) fn attention_spec(dim: usize, heads: usize, operands: AttentionOperands) -> Attention {
    let head_dim = dim / heads;
    Attention {
        heads,
        head_dim,
        scale: (head_dim as f64).sqrt().recip() as f32,
        operands,
        ..Attention::default()
    }
}

impl Builder<'_> {
    /// Returns the tokens after all blocks and the final norm.
    pub(super) fn blocks(&mut self, mut x: ValueId) -> Result<ValueId> {
        for index in 0..self.vit.depth {
            let block = format!("blocks.{index}");
            let tensors = self.trunk(&format!("{}{index}.", self.names.blocks));
            x = match self.vit.blocks.form {
                BlockForm::PreNorm => self.pre_norm_block(x, index, &block, &tensors)?,
                BlockForm::PostNorm => self.post_norm_block(x, index, &block, &tensors)?,
                BlockForm::Parallel => self.parallel_block(x, index, &block, &tensors)?,
                BlockForm::Pairs => self.block_of_pairs(x, index, &block, &tensors)?,
                BlockForm::Mixer { hidden } => self.mixer_block(x, hidden, &block, &tensors)?,
                BlockForm::ResMlp => self.res_mlp_block(x, &block, &tensors)?,
                BlockForm::SpatialGating => self.spatial_gating_block(x, &block, &tensors)?,
            };
            self.hidden_layers.push(x);
        }
        if self.vit.norm {
            x = self.norm("norm", x, &self.trunk(self.names.norm), self.vit.dim)?;
        }
        Ok(x)
    }

    /// Adds `x + scale1 · attention(norm1(x))`, then `x + scale2 · mlp(norm2(x))`.
    pub(super) fn pre_norm_block(
        &mut self,
        x: ValueId,
        index: usize,
        block: &str,
        tensors: &str,
    ) -> Result<ValueId> {
        let (names, dim) = (self.names, self.vit.dim);
        let step = format!("{block}.norm1");
        let normed = self.norm(&step, x, &format!("{tensors}{}", names.norm1), dim)?;
        let y = self.attention(normed, index, &format!("{block}.attn"), tensors)?;
        self.pre_norm_residuals(x, y, block, tensors)
    }

    /// Adds `x + scale1 · y`, then `x + scale2 · mlp(norm2(x))`.
    pub(super) fn pre_norm_residuals(
        &mut self,
        x: ValueId,
        y: ValueId,
        block: &str,
        tensors: &str,
    ) -> Result<ValueId> {
        let (names, dim) = (self.names, self.vit.dim);
        let scale = format!("{tensors}{}", names.scale1);
        let y = self.layer_scale(Role::Attention, &format!("{block}.ls1"), y, &scale)?;
        let step = format!("{block}.attn.residual");
        let x = self.graph.push(Role::Attention, step, Op::Add(Add), [x, y])?;
        let step = format!("{block}.norm2");
        let normed = self.norm(&step, x, &format!("{tensors}{}", names.norm2), dim)?;
        let y = self.feed_forward(normed, &format!("{block}.mlp"), tensors)?;
        let scale = format!("{tensors}{}", names.scale2);
        let y = self.layer_scale(Role::Ffn, &format!("{block}.ls2"), y, &scale)?;
        let step = format!("{block}.mlp.residual");
        Ok(self.graph.push(Role::Ffn, step, Op::Add(Add), [x, y])?)
    }

    /// Adds `x + norm1(attention(x))`, then `x + norm2(mlp(x))`. The weights of the norms are the scales.
    pub(super) fn post_norm_block(
        &mut self,
        x: ValueId,
        index: usize,
        block: &str,
        tensors: &str,
    ) -> Result<ValueId> {
        let (names, dim) = (self.names, self.vit.dim);
        let y = self.attention(x, index, &format!("{block}.attn"), tensors)?;
        let step = format!("{block}.norm1");
        let y = self.norm(&step, y, &format!("{tensors}{}", names.norm1), dim)?;
        let step = format!("{block}.attn.residual");
        let x = self.graph.push(Role::Attention, step, Op::Add(Add), [x, y])?;
        let y = self.feed_forward(x, &format!("{block}.mlp"), tensors)?;
        let step = format!("{block}.norm2");
        let y = self.norm(&step, y, &format!("{tensors}{}", names.norm2), dim)?;
        let step = format!("{block}.mlp.residual");
        Ok(self.graph.push(Role::Ffn, step, Op::Add(Add), [x, y])?)
    }

    /// Adds attention of the normed `x`, with its output projection. `step` is its name, `tensors` the prefix of its
    /// tensors' names.
    fn attention(&mut self, x: ValueId, index: usize, step: &str, tensors: &str) -> Result<ValueId> {
        let Vit { dim, qkv_bias, .. } = *self.vit;
        let x = self.partition_windows(step, x)?;
        let mut y = match self.names.qkv {
            // If the results of the layers are processed further, the packed form is used.
            Qkv::Separate(names)
                if self.vit.rotary.is_none()
                    && self.vit.kv_heads.is_none()
                    && !self.vit.blocks.qk_norm
                    && !self.has_cosine_attention()
                    && self.documents.is_none() =>
            {
                let mut inputs = Vec::with_capacity(3);
                for ((letter, name), bias) in ["q", "k", "v"].into_iter().zip(names).zip(qkv_bias) {
                    let step = format!("{step}.{letter}");
                    let tensor = format!("{tensors}{name}");
                    inputs.push(self.linear(Role::Qkv, &step, x, &tensor, [dim, dim], bias)?);
                }
                self.scored(step, tensors, AttentionOperands::Separate, inputs)?
            }
            Qkv::Packed(_) | Qkv::PackedTensors { .. } | Qkv::Separate(_) => {
                let qkv = self.qkv(index, tensors)?;
                if self.vit.blocks.differential {
                    self.differential_attention(x, index, step, &format!("{tensors}attn."), (&qkv, 0))?
                } else {
                    self.packed_attention(x, index, step, tensors, (&qkv, 0), self.names.qk_norms)?
                }
            }
        };
        if self.vit.blocks.attention_norm {
            let name = format!("{tensors}{}", self.names.attention_norm);
            y = self.norm(&format!("{step}.norm"), y, &name, dim)?;
        }
        let tensor = format!("{tensors}{}", self.names.attention_output);
        let bias = self.vit.projection_bias;
        let y = self.linear(
            Role::Attention,
            &format!("{step}.proj"),
            y,
            &tensor,
            [dim, dim],
            bias,
        )?;
        self.reverse_windows(step, y)
    }

    /// Adds attention whose queries, keys and values are the outputs of `packed`, from row `first` on.
    fn packed_attention(
        &mut self,
        x: ValueId,
        index: usize,
        step: &str,
        tensors: &str,
        (packed, first): (&Packed, usize),
        norms: [&str; 2],
    ) -> Result<ValueId> {
        let Vit { dim, heads, .. } = *self.vit;
        let table = self.rotary_table(index)?;
        let (operands, inputs) = if self.has_cosine_attention() {
            let inputs = self.cosine_operands(x, step, tensors, (packed, first))?;
            (AttentionOperands::Separate, inputs)
        } else if self.vit.blocks.qk_norm {
            let mut inputs = Vec::with_capacity(3);
            for (part, letter) in ["q", "k", "v"].into_iter().enumerate() {
                let rows = first + part * dim..first + (part + 1) * dim;
                let mut y = self.rows(Role::Qkv, &format!("{step}.{letter}"), x, packed, rows)?;
                if let Some(norm) = norms.get(part) {
                    let step = format!("{step}.{letter}_norm");
                    y = self.norm(&step, y, &format!("{tensors}{norm}"), dim / heads)?;
                }
                if part < 2 {
                    y = self.rotated(&format!("{step}.{letter}_rope"), y, 1, table)?;
                }
                inputs.push(y);
            }
            (AttentionOperands::Separate, inputs)
        } else {
            let qkv = self.rows(
                Role::Qkv,
                &format!("{step}.qkv"),
                x,
                packed,
                first..first + 3 * dim,
            )?;
            let qkv = self.rotated(&format!("{step}.rope"), qkv, 2, table)?;
            (AttentionOperands::PackedQkv, vec![qkv])
        };
        self.scored(step, tensors, operands, inputs)
    }

    /// Adds attention with the block's bias of the scores.
    fn scored(
        &mut self,
        step: &str,
        tensors: &str,
        operands: AttentionOperands,
        mut inputs: Vec<ValueId>,
    ) -> Result<ValueId> {
        if let Some(windows) = self.windows {
            return self.window_attention(windows, step, tensors, operands, inputs);
        }
        if let Some(documents) = self.documents {
            return self.document_attention(step, documents, operands, inputs);
        }
        let bias = self.score_bias(step, tensors)?;
        inputs.extend(bias);
        inputs.extend(self.key_mask);
        let op = Op::Attention(Attention {
            key_mask: self.key_mask.is_some(),
            bias: bias.is_some(),
            causal: self.vit.blocks.causal,
            ..attention_spec(self.vit.dim, self.vit.heads, operands)
        });
        Ok(self.graph.push(Role::Attention, step, op, inputs)?)
    }

    /// Adds the feed-forward network of the normed `x`.
    fn feed_forward(&mut self, x: ValueId, step: &str, tensors: &str) -> Result<ValueId> {
        self.network(x, step, tensors, [self.vit.dim, self.vit.hidden])
    }

    /// Adds a feed-forward network with `dim` input and output channels, and `hidden` channels between its layers.
    fn network(
        &mut self,
        x: ValueId,
        step: &str,
        tensors: &str,
        [dim, hidden]: [usize; 2],
    ) -> Result<ValueId> {
        let mlp_bias = self.vit.mlp_bias;
        let (names, role) = (self.names, Role::Ffn);
        let (mut y, output) = match self.vit.mlp {
            Mlp::Plain(activation) => {
                let name = format!("{tensors}{}", names.fc1);
                let y = self.linear(role, &format!("{step}.fc1"), x, &name, [hidden, dim], mlp_bias)?;
                let op = Op::Activation(activation);
                (self.graph.push(role, format!("{step}.act"), op, [y])?, names.fc2)
            }
            Mlp::SwiGluPacked | Mlp::SwiGluGateLast | Mlp::SwiGlu => {
                let fc1 = format!("{step}.fc1");
                let name = format!("{tensors}{}", names.gate_and_value);
                let packed = match self.vit.mlp {
                    Mlp::SwiGlu => {
                        let parts = [names.gate, names.value].map(|name| format!("{tensors}{name}"));
                        let layer = self.concatenated(&parts, [hidden, dim], mlp_bias)?;
                        self.rows(role, &fc1, x, &layer, 0..2 * hidden)?
                    }
                    Mlp::SwiGluGateLast => {
                        let layer = self.packed(&name, [2 * hidden, dim], mlp_bias)?;
                        let (value, gate) = (layer.part(0..hidden)?, layer.part(hidden..2 * hidden)?);
                        self.rows(role, &fc1, x, &joined(&[gate, value])?, 0..2 * hidden)?
                    }
                    _ => self.linear(role, &fc1, x, &name, [2 * hidden, dim], mlp_bias)?,
                };
                let gated = self
                    .graph
                    .push(role, format!("{step}.gate"), Op::SwiGlu(SwiGlu), [packed])?;
                (gated, names.gated_output)
            }
        };
        if self.vit.blocks.mlp_norm {
            let name = format!("{tensors}{}", names.mlp_norm);
            y = self.norm(&format!("{step}.norm"), y, &name, hidden)?;
        }
        let name = format!("{tensors}{output}");
        self.linear(role, &format!("{step}.fc2"), y, &name, [dim, hidden], mlp_bias)
    }

    /// Adds `gamma · x`, if the model has LayerScale.
    fn layer_scale(&mut self, role: Role, step: &str, x: ValueId, tensor: &str) -> Result<ValueId> {
        if !self.vit.layer_scale[usize::from(role == Role::Ffn)] {
            return Ok(x);
        }
        let gamma = self.constant(tensor, &[self.vit.dim])?;
        Ok(self.graph.push(role, step, Op::Scale(Scale), [x, gamma])?)
    }

    /// Adds `fc2(activation(fc1(x)))`. `tensors` is the prefix of the layers' names.
    pub(super) fn two_layers(
        &mut self,
        role: Role,
        step: &str,
        x: ValueId,
        tensors: &str,
        layers: &TwoLayers<'_>,
    ) -> Result<ValueId> {
        let TwoLayers {
            names,
            dim,
            hidden,
            bias,
            activation,
        } = *layers;
        let [fc1, fc2] = names.map(|name| format!("{tensors}{name}"));
        let x = self.linear(role, &format!("{step}.fc1"), x, &fc1, [hidden, dim], bias)?;
        let x = self
            .graph
            .push(role, format!("{step}.act"), Op::Activation(activation), [x])?;
        self.linear(role, &format!("{step}.fc2"), x, &fc2, [dim, hidden], bias)
    }

    /// Takes the tensors of the layer `name`.
    pub(super) fn packed(&mut self, name: &str, [outputs, inputs]: [usize; 2], bias: bool) -> Result<Packed> {
        let (weight, bias_name) = (format!("{name}.weight"), format!("{name}.bias"));
        let tensor = self.weights.take(&weight, &[outputs, inputs])?;
        let bias = if bias {
            let bias = self.weights.take(&bias_name, &[outputs])?;
            Some((bias_name.into(), bias))
        } else {
            None
        };
        Ok(Packed {
            weight: (weight.into(), tensor),
            bias,
        })
    }

    /// Joins several layers of equal sizes.
    fn concatenated(&mut self, names: &[String], extents: [usize; 2], bias: bool) -> Result<Packed> {
        let parts = names
            .iter()
            .map(|name| self.packed(name, extents, bias))
            .collect::<Result<Vec<_>>>()?;
        joined(&parts)
    }

    /// Adds the linear layer of some of a layer's outputs.
    pub(super) fn rows(
        &mut self,
        role: Role,
        step: &str,
        x: ValueId,
        layer: &Packed,
        rows: std::ops::Range<usize>,
    ) -> Result<ValueId> {
        let mut inputs = vec![x];
        let part = layer.part(rows)?;
        for (provenance, tensor) in std::iter::once(part.weight).chain(part.bias) {
            inputs.push(self.graph.constant(provenance, tensor));
        }
        let op = Op::Linear(Linear {
            bias: layer.bias.is_some(),
            rounding: self.weights.rounding(&layer.weight.0, layer.weight.1.dtype())?,
            ..Linear::default()
        });
        Ok(self.graph.push(role, step, op, inputs)?)
    }
}
