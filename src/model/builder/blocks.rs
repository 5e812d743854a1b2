//! The blocks: attention and feed-forward network with their norms, scales and residuals, in each [`BlockForm`].

mod differential;
mod parallel;

use super::{Builder, TwoLayers};
use crate::error::{Error, Result};
use crate::graph::{Role, ValueId};
use crate::model::names::Qkv;
use crate::model::vit::{BlockForm, Mlp, Vit};
use crate::ops::{Attention, AttentionOperands, Linear, Op};
use crate::tensor::Tensor;

/// A layer whose outputs are several things, one after the other: names and tensors of its weight and bias.
pub(super) struct Packed {
    pub(super) weight: (String, Tensor),
    pub(super) bias: Option<(String, Tensor)>,
}

impl Builder<'_> {
    /// The tokens after all blocks and the final norm.
    pub(super) fn blocks(&mut self, mut x: ValueId) -> Result<ValueId> {
        for index in 0..self.vit.depth {
            let block = format!("blocks.{index}");
            let tensors = self.trunk(&format!("{}{index}.", self.names.blocks));
            x = match self.vit.blocks.form {
                BlockForm::PreNorm => self.pre_norm_block(x, index, &block, &tensors)?,
                BlockForm::PostNorm => self.post_norm_block(x, index, &block, &tensors)?,
                BlockForm::Parallel => self.parallel_block(x, index, &block, &tensors)?,
                BlockForm::Pairs => self.block_of_pairs(x, index, &block, &tensors)?,
            };
            self.hidden_layers.push(x);
        }
        if self.vit.norm {
            x = self.norm("norm", x, &self.trunk(self.names.norm), self.vit.dim)?;
        }
        Ok(x)
    }

    /// `x + scale1 · attention(norm1(x))`, then `x + scale2 · mlp(norm2(x))`.
    fn pre_norm_block(&mut self, x: ValueId, index: usize, block: &str, tensors: &str) -> Result<ValueId> {
        let (names, dim) = (self.names, self.vit.dim);
        let step = format!("{block}.norm1");
        let normed = self.norm(&step, x, &format!("{tensors}{}", names.norm1), dim)?;
        let y = self.attention(normed, index, &format!("{block}.attn"), tensors)?;
        let scale = format!("{tensors}{}", names.scale1);
        let y = self.layer_scale(Role::Attention, &format!("{block}.ls1"), y, &scale)?;
        let step = format!("{block}.attn.residual");
        let x = self.graph.push(Role::Attention, step, Op::Add, [x, y])?;
        let step = format!("{block}.norm2");
        let normed = self.norm(&step, x, &format!("{tensors}{}", names.norm2), dim)?;
        let y = self.feed_forward(normed, &format!("{block}.mlp"), tensors)?;
        let scale = format!("{tensors}{}", names.scale2);
        let y = self.layer_scale(Role::Ffn, &format!("{block}.ls2"), y, &scale)?;
        let step = format!("{block}.mlp.residual");
        self.graph.push(Role::Ffn, step, Op::Add, [x, y])
    }

    /// `x + norm1(attention(x))`, then `x + norm2(mlp(x))`; the norms' weights are the scales.
    fn post_norm_block(&mut self, x: ValueId, index: usize, block: &str, tensors: &str) -> Result<ValueId> {
        let (names, dim) = (self.names, self.vit.dim);
        let y = self.attention(x, index, &format!("{block}.attn"), tensors)?;
        let step = format!("{block}.norm1");
        let y = self.norm(&step, y, &format!("{tensors}{}", names.norm1), dim)?;
        let step = format!("{block}.attn.residual");
        let x = self.graph.push(Role::Attention, step, Op::Add, [x, y])?;
        let y = self.feed_forward(x, &format!("{block}.mlp"), tensors)?;
        let step = format!("{block}.norm2");
        let y = self.norm(&step, y, &format!("{tensors}{}", names.norm2), dim)?;
        let step = format!("{block}.mlp.residual");
        self.graph.push(Role::Ffn, step, Op::Add, [x, y])
    }

    /// Attention of `x`, which is normed, through its output projection; `step` names it, `tensors` stands before its
    /// tensors' names.
    fn attention(&mut self, x: ValueId, index: usize, step: &str, tensors: &str) -> Result<ValueId> {
        let Vit { dim, qkv_bias, .. } = *self.vit;
        let mut y = match self.names.qkv {
            Qkv::Packed(name) => {
                let qkv = self.packed(&format!("{tensors}{name}"), [3 * dim, dim], qkv_bias)?;
                if self.vit.blocks.differential {
                    self.differential_attention(x, index, step, &format!("{tensors}attn."), (&qkv, 0))?
                } else {
                    self.packed_attention(x, step, tensors, (&qkv, 0), self.names.qk_norms)?
                }
            }
            Qkv::Separate(names) => {
                let mut inputs = Vec::with_capacity(3);
                for (letter, name) in ["q", "k", "v"].into_iter().zip(names) {
                    let step = format!("{step}.{letter}");
                    let tensor = format!("{tensors}{name}");
                    inputs.push(self.linear(Role::Qkv, &step, x, &tensor, [dim, dim], qkv_bias)?);
                }
                let op = self.attention_op(AttentionOperands::Separate);
                self.graph.push(Role::Attention, step, op, inputs)?
            }
        };
        if self.vit.blocks.attention_norm {
            let name = format!("{tensors}{}", self.names.attention_norm);
            y = self.norm(&format!("{step}.norm"), y, &name, dim)?;
        }
        let tensor = format!("{tensors}{}", self.names.attention_output);
        let bias = self.vit.block_bias;
        self.linear(
            Role::Attention,
            &format!("{step}.proj"),
            y,
            &tensor,
            [dim, dim],
            bias,
        )
    }

    /// Attention whose queries, keys and values are the outputs of `packed` from row `first` on.
    fn packed_attention(
        &mut self,
        x: ValueId,
        step: &str,
        tensors: &str,
        (packed, first): (&Packed, usize),
        norms: [&str; 2],
    ) -> Result<ValueId> {
        let Vit { dim, heads, .. } = *self.vit;
        let (operands, inputs) = if self.vit.blocks.qk_norm {
            let mut inputs = Vec::with_capacity(3);
            for (part, letter) in ["q", "k", "v"].into_iter().enumerate() {
                let rows = first + part * dim..first + (part + 1) * dim;
                let mut y = self.rows(Role::Qkv, &format!("{step}.{letter}"), x, packed, rows)?;
                if let Some(norm) = norms.get(part) {
                    let step = format!("{step}.{letter}_norm");
                    y = self.norm(&step, y, &format!("{tensors}{norm}"), dim / heads)?;
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
            (AttentionOperands::PackedQkv, vec![qkv])
        };
        let op = self.attention_op(operands);
        self.graph.push(Role::Attention, step, op, inputs)
    }

    /// The feed-forward network of `x`, which is normed.
    fn feed_forward(&mut self, x: ValueId, step: &str, tensors: &str) -> Result<ValueId> {
        let Vit {
            dim,
            hidden,
            block_bias,
            ..
        } = *self.vit;
        let (names, role) = (self.names, Role::Ffn);
        let (mut y, output) = match self.vit.mlp {
            Mlp::Plain(activation) => {
                let name = format!("{tensors}{}", names.fc1);
                let y = self.linear(role, &format!("{step}.fc1"), x, &name, [hidden, dim], block_bias)?;
                let op = Op::Activation(activation);
                (self.graph.push(role, format!("{step}.act"), op, [y])?, names.fc2)
            }
            Mlp::SwiGluPacked | Mlp::SwiGlu => {
                let fc1 = format!("{step}.fc1");
                let packed = if self.vit.mlp == Mlp::SwiGlu {
                    let parts = [names.gate, names.value].map(|name| format!("{tensors}{name}"));
                    let layer = self.concatenated(&parts, [hidden, dim], block_bias)?;
                    self.rows(role, &fc1, x, &layer, 0..2 * hidden)?
                } else {
                    let name = format!("{tensors}{}", names.gate_and_value);
                    self.linear(role, &fc1, x, &name, [2 * hidden, dim], block_bias)?
                };
                let gated = self
                    .graph
                    .push(role, format!("{step}.gate"), Op::SwiGlu, [packed])?;
                (gated, names.gated_output)
            }
        };
        if self.vit.blocks.mlp_norm {
            let name = format!("{tensors}{}", names.mlp_norm);
            y = self.norm(&format!("{step}.norm"), y, &name, hidden)?;
        }
        let name = format!("{tensors}{output}");
        self.linear(role, &format!("{step}.fc2"), y, &name, [dim, hidden], block_bias)
    }

    /// `gamma · x`, if the model has LayerScale.
    fn layer_scale(&mut self, role: Role, step: &str, x: ValueId, tensor: &str) -> Result<ValueId> {
        if !self.vit.layer_scale {
            return Ok(x);
        }
        let gamma = self.constant(tensor, &[self.vit.dim])?;
        self.graph.push(role, step, Op::Scale, [x, gamma])
    }

    /// `fc2(activation(fc1(x)))`; `tensors` stands before the layers' names.
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

    pub(super) fn attention_op(&self, operands: AttentionOperands) -> Op {
        Op::Attention(self.attention_spec(operands))
    }

    pub(super) fn attention_spec(&self, operands: AttentionOperands) -> Attention {
        let head_dim = self.vit.dim / self.vit.heads;
        Attention {
            heads: self.vit.heads,
            head_dim,
            scale: (head_dim as f64).sqrt().recip() as f32,
            operands,
            first_key: 0,
        }
    }

    /// The tensors of the layer `name`.
    fn packed(&mut self, name: &str, [outputs, inputs]: [usize; 2], bias: bool) -> Result<Packed> {
        let (weight, bias_name) = (format!("{name}.weight"), format!("{name}.bias"));
        let tensor = self.weights.take(&weight, &[outputs, inputs])?;
        let bias = match bias {
            true => Some((bias_name.clone(), self.weights.take(&bias_name, &[outputs])?)),
            false => None,
        };
        Ok(Packed {
            weight: (weight, tensor),
            bias,
        })
    }

    /// Several layers of the same extents as one.
    fn concatenated(&mut self, names: &[String], extents: [usize; 2], bias: bool) -> Result<Packed> {
        let parts = names
            .iter()
            .map(|name| self.packed(name, extents, bias))
            .collect::<Result<Vec<_>>>()?;
        let joined = |tensors: Vec<&(String, Tensor)>| {
            let name = tensors.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>();
            let name = name.join(" + ");
            let tensors: Vec<&Tensor> = tensors.iter().map(|(_, tensor)| tensor).collect();
            match Tensor::concat_rows(&tensors) {
                Some(tensor) => Ok((name, tensor)),
                None => Err(Error::graph(&name, "have different extents")),
            }
        };
        Ok(Packed {
            weight: joined(parts.iter().map(|part| &part.weight).collect())?,
            bias: match bias {
                true => Some(joined(
                    parts.iter().filter_map(|part| part.bias.as_ref()).collect(),
                )?),
                false => None,
            },
        })
    }

    /// The linear layer of some of a layer's outputs.
    pub(super) fn rows(
        &mut self,
        role: Role,
        step: &str,
        x: ValueId,
        layer: &Packed,
        rows: std::ops::Range<usize>,
    ) -> Result<ValueId> {
        let mut inputs = vec![x];
        for (name, tensor) in std::iter::once(&layer.weight).chain(&layer.bias) {
            let part = tensor
                .rows(rows.clone())
                .ok_or_else(|| Error::graph(name, "has too few rows"))?;
            let name = match rows.len() == tensor.shape()[0] {
                true => name.clone(),
                false => format!("{name}[{}..{}]", rows.start, rows.end),
            };
            inputs.push(self.graph.constant(name, part));
        }
        let op = Op::Linear(Linear {
            bias: layer.bias.is_some(),
            ..Linear::default()
        });
        self.graph.push(role, step, op, inputs)
    }
}
