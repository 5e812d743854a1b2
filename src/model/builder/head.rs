//! Builds what follows the blocks: pooling, the neck, the classifiers.

use super::blocks::{Packed, attention_spec};
use super::{Builder, TwoLayers};
use crate::error::{Error, Result};
use crate::graph::{Change, Layout, OutputKind, Provenance, Role, ValueId};
use crate::model::names::{PoolProjections, Projection};
use crate::model::vit::{Neck, Pooling, Vit};
use crate::ops::{Activation, Add, Attention, AttentionOperands, Concat, Linear, MulScalar, Op, Pool};
use crate::tensor::Tensor;

impl Builder<'_> {
    /// Converts tokens to the embedding, and to logits if there is a classifier.
    pub(super) fn head(&mut self, tokens: ValueId) -> Result<()> {
        let Vit { dim, classes, .. } = *self.vit;
        let other = Role::Other;
        let mut width = dim;
        let mut x = match self.vit.pooling {
            Pooling::ClassAndDistillation => return self.two_heads(tokens),
            Pooling::Class | Pooling::Mean { .. } if self.documents.is_some() => {
                self.pool_documents(tokens)?
            }
            Pooling::Class => self.pool("pool", tokens, Pool::Token(0))?,
            Pooling::Mean { skip } => match self.key_mask {
                Some(mask) => self.masked_mean(tokens, mask)?,
                None => self.pool("pool", tokens, Pool::Mean { skip })?,
            },
            Pooling::Max { skip } => self.pool("pool", tokens, Pool::Max { skip })?,
            Pooling::ClassAndMean => {
                width = 2 * dim;
                let class = self.pool("pool.class", tokens, Pool::Token(0))?;
                let skip = self.vit.prefix();
                let mean = self.pool("pool.mean", tokens, Pool::Mean { skip })?;
                self.graph
                    .push(other, "pool", Concat { axis: 1 }, [class, mean])?
            }
            Pooling::MeanAndMax { skip } => {
                let mean = self.pool("pool.mean", tokens, Pool::Mean { skip })?;
                let max = self.pool("pool.max", tokens, Pool::Max { skip })?;
                self.mean("pool", mean, max)?
            }
            Pooling::Attention {
                skip,
                heads,
                hidden,
                activation,
            } => self.attention_pool(tokens, skip, heads, hidden, activation)?,
            Pooling::Query { heads, bias } => self.query_pool(tokens, heads, bias)?,
            Pooling::SelfAttention => {
                let spec = attention_spec(dim, self.vit.heads, AttentionOperands::Separate);
                let op = Op::Attention(spec);
                let refined = self.graph.push(other, "attn_pool", op, [tokens; 3])?;
                let pool = if self.vit.class_token {
                    Pool::Token(0)
                } else {
                    Pool::Mean { skip: 0 }
                };
                self.pool("pool", refined, pool)?
            }
        };
        if self.vit.pooled_norm {
            x = self.norm("fc_norm", x, &self.trunk(self.names.pooled_norm), width)?;
        }
        match self.vit.neck {
            Neck::None => {}
            Neck::Pooler {
                width: outputs,
                activation,
            } => {
                let name = self.trunk(self.names.pooler);
                x = self.linear(other, "pooler", x, &name, [outputs, width], true)?;
                x = self
                    .graph
                    .push(other, "pooler.act", Op::Activation(activation), [x])?;
                width = outputs;
            }
            Neck::Projection { width: outputs } => {
                x = self.projection(x, self.names.projection, [outputs, width], false)?;
                width = outputs;
            }
        }
        if classes > 0 {
            let logits = self.linear(other, "head", x, self.names.head, [classes, width], true)?;
            self.graph.set_output(OutputKind::Logits, logits);
        }
        self.graph.set_output(OutputKind::Embedding, x);
        Ok(())
    }

    /// Projects into the space that images and texts share.
    pub(super) fn projection(
        &mut self,
        x: ValueId,
        projection: Projection,
        [outputs, inputs]: [usize; 2],
        bias: bool,
    ) -> Result<ValueId> {
        let (role, step) = (Role::Other, "projection");
        let name = match projection {
            Projection::Layer(name) => return self.linear(role, step, x, name, [outputs, inputs], bias),
            Projection::Matrix(name) => name,
        };
        let stored = self.weights.take(name, &[inputs, outputs])?;
        let values = stored.to_f32();
        let transposed: Vec<f32> = (0..outputs * inputs)
            .map(|at| values[at % inputs * outputs + at / inputs])
            .collect();
        let weight = Tensor::from_f32([outputs, inputs], transposed);
        let weight = weight.ok_or_else(|| Error::graph(name, "does not have the elements of its shape"))?;
        let weight = self.graph.constant(
            Provenance::from(name).then(Change::Layout(Layout::Transposed)),
            weight,
        );
        Ok(self
            .graph
            .push(role, step, Op::Linear(Linear::default()), [x, weight])?)
    }

    /// Adds DeiT's two classifiers, of the class and the distillation token, and averages them.
    fn two_heads(&mut self, tokens: ValueId) -> Result<()> {
        let Vit { dim, classes, .. } = *self.vit;
        let class = self.pool("pool.class", tokens, Pool::Token(0))?;
        let distillation = self.pool("pool.distillation", tokens, Pool::Token(1))?;
        if classes > 0 {
            let [first, second] = self.names.heads_of_two;
            let first = self.linear(Role::Other, "head.class", class, first, [classes, dim], true)?;
            let second = self.linear(
                Role::Other,
                "head.distillation",
                distillation,
                second,
                [classes, dim],
                true,
            )?;
            let logits = self.mean("head", first, second)?;
            self.graph.set_output(OutputKind::Logits, logits);
        }
        let embedding = self.mean("pool", class, distillation)?;
        self.graph.set_output(OutputKind::Embedding, embedding);
        Ok(())
    }

    fn mean(&mut self, name: &str, x: ValueId, y: ValueId) -> Result<ValueId> {
        let sum = self
            .graph
            .push(Role::Other, format!("{name}.sum"), Op::Add(Add), [x, y])?;
        Ok(self
            .graph
            .push(Role::Other, name, Op::MulScalar(MulScalar(0.5)), [sum])?)
    }

    pub(super) fn pool(&mut self, name: &str, tokens: ValueId, pool: Pool) -> Result<ValueId> {
        Ok(self.graph.push(Role::Other, name, Op::Pool(pool), [tokens])?)
    }

    /// Computes the mean of an image's own tokens, as attention with a query of zeros.
    fn masked_mean(&mut self, tokens: ValueId, mask: ValueId) -> Result<ValueId> {
        let (dim, heads) = (self.vit.dim, self.vit.heads);
        let zeros = Tensor::from_f32([1, 1, dim], vec![0.0; dim]);
        let zeros = zeros.ok_or_else(|| Error::graph("pool", "has no channels"))?;
        let query = self.graph.constant(Provenance::computed("pool.query", []), zeros);
        let op = Op::Attention(Attention {
            key_mask: true,
            ..attention_spec(dim, heads, AttentionOperands::Separate)
        });
        let mean = self
            .graph
            .push(Role::Other, "pool.mean", op, [query, tokens, tokens, mask])?;
        self.pool("pool", mean, Pool::Token(0))
    }

    /// Adds `output(attention(query, k(tokens), v(tokens)))`.
    fn query_pool(&mut self, tokens: ValueId, heads: usize, bias: bool) -> Result<ValueId> {
        let (dim, names, other) = (self.vit.dim, &self.names.pool, Role::Other);
        let PoolProjections::KeyAndValue(k, v) = names.projections else {
            return Err(Error::graph("attn_pool", "keys and values have no names"));
        };
        let query = self.constant(&self.trunk(names.query), &[1, 1, dim])?;
        let (k, v) = (self.trunk(k), self.trunk(v));
        let k = self.linear(other, "attn_pool.k", tokens, &k, [dim, dim], bias)?;
        let v = self.linear(other, "attn_pool.v", tokens, &v, [dim, dim], bias)?;
        let op = Op::Attention(attention_spec(dim, heads, AttentionOperands::Separate));
        let x = self.graph.push(other, "attn_pool", op, [query, k, v])?;
        let x = self.pool("pool", x, Pool::Token(0))?;
        let output = self.trunk(names.output);
        self.linear(other, "attn_pool.proj", x, &output, [dim, dim], true)
    }

    /// Adds `y + mlp(norm(y))` with `y = output(attention(q(query), kv(tokens)))`.
    fn attention_pool(
        &mut self,
        tokens: ValueId,
        skip: usize,
        heads: usize,
        hidden: usize,
        activation: Activation,
    ) -> Result<ValueId> {
        let (dim, names, other) = (self.vit.dim, &self.names.pool, Role::Other);
        let (name, packed) = (self.trunk(names.query), self.vit.packed());
        let query = match packed {
            Some(layout) => self.queries(&name, layout)?,
            None => self.constant(&name, &[1, 1, dim])?,
        };
        let [q, kv] = match names.projections {
            PoolProjections::QueryAndKv(q, kv) => {
                let (q_name, kv_name) = (self.trunk(q), self.trunk(kv));
                let q = self.linear(other, "attn_pool.q", query, &q_name, [dim, dim], true)?;
                let kv = self.linear(other, "attn_pool.kv", tokens, &kv_name, [2 * dim, dim], true)?;
                [q, kv]
            }
            PoolProjections::KeyAndValue(..) => {
                return Err(Error::graph("attn_pool", "the query has no projection"));
            }
            PoolProjections::Packed { weight, bias } => {
                let (weight, bias) = (self.trunk(weight), self.trunk(bias));
                let weights = self.weights.take(&weight, &[3 * dim, dim])?;
                let biases = self.weights.take(&bias, &[3 * dim])?;
                let layer = Packed {
                    weight: (weight.into(), weights),
                    bias: Some((bias.into(), biases)),
                };
                [
                    self.rows(other, "attn_pool.q", query, &layer, 0..dim)?,
                    self.rows(other, "attn_pool.kv", tokens, &layer, dim..3 * dim)?,
                ]
            }
        };
        let op = match packed {
            Some(layout) => Op::from(self.document_pool(layout, heads, skip)?),
            None => Op::Attention(Attention {
                first_key: skip,
                key_mask: self.key_mask.is_some(),
                ..attention_spec(dim, heads, AttentionOperands::PackedKv)
            }),
        };
        let masked = self.key_mask.or(self.documents);
        let operands: Vec<ValueId> = [q, kv].into_iter().chain(masked).collect();
        let x = self.graph.push(other, "attn_pool", op, operands)?;
        let x = self.linear(
            other,
            "attn_pool.proj",
            x,
            &self.trunk(names.output),
            [dim, dim],
            true,
        )?;
        let y = self.norm("attn_pool.norm", x, &self.trunk(names.norm), dim)?;
        let layers = TwoLayers {
            names: [names.fc1, names.fc2],
            dim,
            hidden,
            bias: true,
            activation,
        };
        let y = self.two_layers(other, "attn_pool.mlp", y, self.prefix, &layers)?;
        let x = self
            .graph
            .push(other, "attn_pool.residual", Op::Add(Add), [x, y])?;
        match packed {
            Some(_) => Ok(x),
            None => self.pool("pool", x, Pool::Token(0)),
        }
    }
}
