//! From a [`Vit`], a library's [`Names`] and the [`Weights`] to the unoptimised [`Graph`]: one builder for every
//! family. It emits what the libraries compute, step by step; making that fast is the part of [`crate::graph`].

use super::names::{Embeddings, Names, PoolProjections, Qkv};
use super::positions::{self, Fit};
use super::vit::{Mlp, Neck, Pooling, Vit};
use super::weights::Weights;
use crate::error::{Error, Result};
use crate::graph::{
    Activation, Attention, AttentionOperands, Graph, Linear, Op, OutputKind, PatchConv, Pool, Role, Tensor,
    ValueId,
};

/// The grids between which a position table was interpolated: the stored one, the image's.
pub(super) type Interpolated = ([usize; 2], [usize; 2]);

/// Appends the model to `graph`, whose last value so far, `pixels`, is f32 `[1,3,H,W]`.
///
/// # Errors
///
/// [`Error::Tensor`] for a weight that is missing or misshapen, or a position table that cannot be fitted.
pub(super) fn build(
    graph: &mut Graph,
    pixels: ValueId,
    vit: &Vit,
    names: &Names,
    prefix: &str,
    weights: &mut Weights,
) -> Result<Option<Interpolated>> {
    let mut builder = Builder {
        graph,
        weights,
        vit,
        names,
        prefix,
        interpolated: None,
    };
    let tokens = builder.embed(pixels)?;
    let tokens = builder.blocks(tokens)?;
    builder.head(tokens)?;
    Ok(builder.interpolated)
}

struct Builder<'a> {
    graph: &'a mut Graph,
    weights: &'a mut Weights,
    vit: &'a Vit,
    names: &'a Names,
    prefix: &'a str,
    interpolated: Option<Interpolated>,
}

impl Builder<'_> {
    /// Pixels to tokens: `[1,3,H,W] → [1,prefix+N,D]`.
    fn embed(&mut self, pixels: ValueId) -> Result<ValueId> {
        let Vit {
            patch,
            dim,
            patch_bias,
            ..
        } = *self.vit;
        let name = self.trunk(self.names.patch);
        let weight = self.constant(&format!("{name}.weight"), &[dim, 3, patch[0], patch[1]])?;
        let mut inputs = vec![pixels, weight];
        if patch_bias {
            inputs.push(self.constant(&format!("{name}.bias"), &[dim])?);
        }
        let conv = PatchConv {
            patch,
            bias: patch_bias,
        };
        let mut x = self
            .graph
            .push(Role::Patch, "patch_embed", Op::PatchConv(conv), inputs)?;
        let (mut prefix_positions, patch_positions) = self.positions()?;
        if let Some(positions) = patch_positions {
            x = self
                .graph
                .push(Role::Patch, "positions", Op::Add, [x, positions])?;
        }
        let mut tokens = Vec::new();
        for (present, count, step, name) in [
            (self.vit.class_token, 1, "tokens.class", self.names.class_token),
            (
                self.vit.distillation_token,
                1,
                "tokens.distillation",
                self.names.distillation_token,
            ),
            (
                self.vit.registers > 0,
                self.vit.registers,
                "tokens.registers",
                self.names.registers,
            ),
        ] {
            if !present {
                continue;
            }
            let mut token = self.token(name, count)?;
            if let Some((start, table)) = prefix_positions.as_mut() {
                let rows = *start..*start + count;
                if let Some(rows_of_token) = table.rows(rows.clone()) {
                    *start = rows.end;
                    let name = format!(
                        "{}[{}..{}]",
                        self.trunk(self.names.positions),
                        rows.start,
                        rows.end
                    );
                    let position = self.derived(name, rows_of_token, &[1, count, dim])?;
                    token = self.graph.push(Role::Patch, step, Op::Add, [token, position])?;
                }
            }
            tokens.push(token);
        }
        if !tokens.is_empty() {
            tokens.push(x);
            x = self.graph.push(Role::Patch, "tokens", Op::Prepend, tokens)?;
        }
        if self.vit.pre_norm {
            x = self.layer_norm("norm_pre", x, &self.trunk(self.names.pre_norm))?;
        }
        Ok(x)
    }

    /// A constant `[1, count, D]` token.
    fn token(&mut self, name: &str, count: usize) -> Result<ValueId> {
        let (name, dim) = (self.trunk(name), self.vit.dim);
        match self.names.embeddings {
            Embeddings::Batched => self.constant(&name, &[1, count, dim]),
            Embeddings::Flat => {
                let tensor = self.weights.take(&name, &[dim])?;
                self.derived(name, tensor, &[1, 1, dim])
            }
        }
    }

    /// The positions of the prefix tokens, as a table with a cursor, and those of the patches, `[1,N,D]`.
    fn positions(&mut self) -> Result<(Option<(usize, Tensor)>, Option<ValueId>)> {
        let Some(spec) = self.vit.positions else {
            return Ok((None, None));
        };
        let (name, dim, grid) = (self.trunk(self.names.positions), self.vit.dim, self.vit.grid());
        let rows = match (self.names.embeddings, self.weights.shape(&name)) {
            (Embeddings::Batched, Some(&[_, rows, _])) | (Embeddings::Flat, Some(&[rows, _])) => rows,
            // No such table: let `take` report it with the shape that it should have.
            _ => spec.prefix + grid[0] * grid[1],
        };
        let file = self
            .weights
            .file(&name)
            .unwrap_or(std::path::Path::new(""))
            .to_owned();
        let error = |reason: String| Error::tensor(&file, &name, reason);
        let stored = match self.names.embeddings {
            Embeddings::Batched => self.weights.take(&name, &[1, rows, dim])?,
            Embeddings::Flat => self.weights.take(&name, &[rows, dim])?,
        };
        let cells = rows.checked_sub(spec.prefix).ok_or_else(|| {
            error(format!(
                "has {rows} positions, too few for {} tokens",
                spec.prefix
            ))
        })?;
        let fit = spec.fitting.fit(cells, grid).map_err(error)?;
        let table = stored
            .reshaped([rows, dim])
            .ok_or_else(|| error("does not have the elements of its shape".into()))?;
        let prefix = (spec.prefix > 0).then(|| table.rows(0..spec.prefix)).flatten();
        let patches = table
            .rows(spec.prefix..rows)
            .ok_or_else(|| error("has too few rows".into()))?;
        let patches = match fit {
            Fit::Keep if spec.prefix == 0 => self.derived(name, patches, &[1, cells, dim])?,
            Fit::Keep => self.derived(format!("{name}[{}..]", spec.prefix), patches, &[1, cells, dim])?,
            Fit::Resample { from, antialias } => {
                self.interpolated = Some((from, grid));
                let values = positions::resample(&patches.to_f32(), dim, from, grid, antialias);
                let shape = [1, grid[0] * grid[1], dim];
                let tensor =
                    Tensor::from_f32(shape, values).ok_or_else(|| error("cannot be interpolated".into()))?;
                let [[rows, columns], [to_rows, to_columns]] = [from, grid];
                let name = format!("{name} {rows}×{columns}→{to_rows}×{to_columns}");
                self.derived(name, tensor, &shape)?
            }
        };
        Ok((prefix.map(|table| (0, table)), Some(patches)))
    }

    fn blocks(&mut self, mut x: ValueId) -> Result<ValueId> {
        for index in 0..self.vit.depth {
            let block = format!("blocks.{index}");
            let tensors = self.trunk(&format!("{}{index}.", self.names.blocks));
            x = self.attention(x, &block, &tensors)?;
            x = self.feed_forward(x, &block, &tensors)?;
        }
        if self.vit.norm {
            x = self.layer_norm("norm", x, &self.trunk(self.names.norm))?;
        }
        Ok(x)
    }

    /// `x + scale1 · output(attention(qkv(norm1(x))))`.
    fn attention(&mut self, x: ValueId, block: &str, tensors: &str) -> Result<ValueId> {
        let Vit { dim, qkv_bias, .. } = *self.vit;
        let normed = self.layer_norm(
            &format!("{block}.norm1"),
            x,
            &format!("{tensors}{}", self.names.norm1),
        )?;
        let (operands, inputs) = match self.names.qkv {
            Qkv::Packed(name) => {
                let step = format!("{block}.attn.qkv");
                let tensor = format!("{tensors}{name}");
                let qkv = self.linear(Role::Qkv, &step, normed, &tensor, [3 * dim, dim], qkv_bias)?;
                (AttentionOperands::PackedQkv, vec![qkv])
            }
            Qkv::Separate(names) => {
                let mut inputs = Vec::with_capacity(3);
                for (letter, name) in ["q", "k", "v"].into_iter().zip(names) {
                    let step = format!("{block}.attn.{letter}");
                    let tensor = format!("{tensors}{name}");
                    inputs.push(self.linear(Role::Qkv, &step, normed, &tensor, [dim, dim], qkv_bias)?);
                }
                (AttentionOperands::Separate, inputs)
            }
        };
        let op = self.attention_op(operands);
        let attended = self
            .graph
            .push(Role::Attention, format!("{block}.attn"), op, inputs)?;
        let step = format!("{block}.attn.proj");
        let tensor = format!("{tensors}{}", self.names.attention_output);
        let mut y = self.linear(
            Role::Attention,
            &step,
            attended,
            &tensor,
            [dim, dim],
            self.vit.block_bias,
        )?;
        if self.vit.layer_scale {
            let gamma = self.constant(&format!("{tensors}{}", self.names.scale1), &[dim])?;
            y = self
                .graph
                .push(Role::Attention, format!("{block}.ls1"), Op::Scale, [y, gamma])?;
        }
        self.graph
            .push(Role::Attention, format!("{block}.attn.residual"), Op::Add, [x, y])
    }

    /// `x + scale2 · mlp(norm2(x))`.
    fn feed_forward(&mut self, x: ValueId, block: &str, tensors: &str) -> Result<ValueId> {
        let Vit {
            dim,
            hidden,
            block_bias,
            ..
        } = *self.vit;
        let normed = self.layer_norm(
            &format!("{block}.norm2"),
            x,
            &format!("{tensors}{}", self.names.norm2),
        )?;
        let mut y = match self.vit.mlp {
            Mlp::Plain(activation) => {
                let (fc1, fc2) = (self.names.fc1, self.names.fc2);
                let layers = [fc1, fc2].map(|name| format!("{tensors}{name}"));
                let sizes = [dim, hidden];
                self.mlp(
                    Role::Ffn,
                    &format!("{block}.mlp"),
                    normed,
                    &layers,
                    sizes,
                    block_bias,
                    activation,
                )?
            }
            Mlp::SwiGlu => {
                let name = format!("{tensors}{}", self.names.gate_and_value);
                let step = format!("{block}.mlp.fc1");
                let packed = self.linear(Role::Ffn, &step, normed, &name, [2 * hidden, dim], block_bias)?;
                let gated = self
                    .graph
                    .push(Role::Ffn, format!("{block}.mlp.gate"), Op::SwiGlu, [packed])?;
                let name = format!("{tensors}{}", self.names.gated_output);
                self.linear(
                    Role::Ffn,
                    &format!("{block}.mlp.fc2"),
                    gated,
                    &name,
                    [dim, hidden],
                    block_bias,
                )?
            }
        };
        if self.vit.layer_scale {
            let gamma = self.constant(&format!("{tensors}{}", self.names.scale2), &[dim])?;
            y = self
                .graph
                .push(Role::Ffn, format!("{block}.ls2"), Op::Scale, [y, gamma])?;
        }
        self.graph
            .push(Role::Ffn, format!("{block}.mlp.residual"), Op::Add, [x, y])
    }

    /// Tokens to the embedding, and to logits if there is a classifier.
    fn head(&mut self, tokens: ValueId) -> Result<()> {
        let Vit { dim, classes, .. } = *self.vit;
        let other = Role::Other;
        let mut width = dim;
        let mut x = match self.vit.pooling {
            Pooling::ClassAndDistillation => return self.two_heads(tokens),
            Pooling::Class => self.pool("pool", tokens, Pool::Token(0))?,
            Pooling::Mean { skip } => self.pool("pool", tokens, Pool::Mean { skip })?,
            Pooling::ClassAndMean => {
                width = 2 * dim;
                let class = self.pool("pool.class", tokens, Pool::Token(0))?;
                let skip = self.vit.prefix();
                let mean = self.pool("pool.mean", tokens, Pool::Mean { skip })?;
                self.graph
                    .push(other, "pool", Op::ConcatChannels, [class, mean])?
            }
            Pooling::Attention { hidden, activation } => self.attention_pool(tokens, hidden, activation)?,
        };
        if self.vit.pooled_norm {
            x = self.layer_norm("fc_norm", x, &self.trunk(self.names.pooled_norm))?;
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
                x = self.linear(
                    other,
                    "projection",
                    x,
                    self.names.projection,
                    [outputs, width],
                    false,
                )?;
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

    /// DeiT's two classifiers, on the class and the distillation token, averaged.
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
            .push(Role::Other, format!("{name}.sum"), Op::Add, [x, y])?;
        self.graph.push(Role::Other, name, Op::MulScalar(0.5), [sum])
    }

    fn pool(&mut self, name: &str, tokens: ValueId, pool: Pool) -> Result<ValueId> {
        self.graph.push(Role::Other, name, Op::Pool(pool), [tokens])
    }

    /// `y + mlp(norm(y))` with `y = output(attention(q(query), kv(tokens)))`.
    fn attention_pool(&mut self, tokens: ValueId, hidden: usize, activation: Activation) -> Result<ValueId> {
        let (dim, names, other) = (self.vit.dim, &self.names.pool, Role::Other);
        let query = self.constant(&self.trunk(names.query), &[1, 1, dim])?;
        let [q, kv] = match names.projections {
            PoolProjections::QueryAndKv(q, kv) => {
                let (q_name, kv_name) = (self.trunk(q), self.trunk(kv));
                let q = self.linear(other, "attn_pool.q", query, &q_name, [dim, dim], true)?;
                let kv = self.linear(other, "attn_pool.kv", tokens, &kv_name, [2 * dim, dim], true)?;
                [q, kv]
            }
            PoolProjections::Packed { weight, bias } => {
                let (weight, bias) = (self.trunk(weight), self.trunk(bias));
                let weights = self.weights.take(&weight, &[3 * dim, dim])?;
                let biases = self.weights.take(&bias, &[3 * dim])?;
                let mut part = |step, x, from, to| -> Result<ValueId> {
                    let mut inputs = vec![x];
                    for (name, tensor) in [(&weight, &weights), (&bias, &biases)] {
                        let rows = tensor
                            .rows(from..to)
                            .ok_or_else(|| Error::graph(name, "has too few rows"))?;
                        inputs.push(self.graph.constant(format!("{name}[{from}..{to}]"), rows));
                    }
                    let op = Op::Linear(Linear {
                        bias: true,
                        ..Linear::default()
                    });
                    self.graph.push(other, step, op, inputs)
                };
                [
                    part("attn_pool.q", query, 0, dim)?,
                    part("attn_pool.kv", tokens, dim, 3 * dim)?,
                ]
            }
        };
        let op = self.attention_op(AttentionOperands::PackedKv);
        let x = self.graph.push(other, "attn_pool", op, [q, kv])?;
        let x = self.linear(
            other,
            "attn_pool.proj",
            x,
            &self.trunk(names.output),
            [dim, dim],
            true,
        )?;
        let y = self.layer_norm("attn_pool.norm", x, &self.trunk(names.norm))?;
        let layers = [names.fc1, names.fc2].map(|name| self.trunk(name));
        let y = self.mlp(
            other,
            "attn_pool.mlp",
            y,
            &layers,
            [dim, hidden],
            true,
            activation,
        )?;
        let x = self.graph.push(other, "attn_pool.residual", Op::Add, [x, y])?;
        self.pool("pool", x, Pool::Token(0))
    }

    /// `fc2(activation(fc1(x)))` from `dim` to `hidden` channels and back.
    #[expect(
        clippy::too_many_arguments,
        reason = "a layer's name, place, sizes and options; private to the builder"
    )]
    fn mlp(
        &mut self,
        role: Role,
        step: &str,
        x: ValueId,
        [fc1, fc2]: &[String; 2],
        [dim, hidden]: [usize; 2],
        bias: bool,
        activation: Activation,
    ) -> Result<ValueId> {
        let x = self.linear(role, &format!("{step}.fc1"), x, fc1, [hidden, dim], bias)?;
        let x = self
            .graph
            .push(role, format!("{step}.act"), Op::Activation(activation), [x])?;
        self.linear(role, &format!("{step}.fc2"), x, fc2, [dim, hidden], bias)
    }

    fn attention_op(&self, operands: AttentionOperands) -> Op {
        let head_dim = self.vit.dim / self.vit.heads;
        Op::Attention(Attention {
            heads: self.vit.heads,
            head_dim,
            scale: (head_dim as f64).sqrt().recip() as f32,
            operands,
        })
    }

    fn linear(
        &mut self,
        role: Role,
        step: &str,
        x: ValueId,
        tensor: &str,
        [outputs, inputs]: [usize; 2],
        bias: bool,
    ) -> Result<ValueId> {
        let mut operands = vec![x, self.constant(&format!("{tensor}.weight"), &[outputs, inputs])?];
        if bias {
            operands.push(self.constant(&format!("{tensor}.bias"), &[outputs])?);
        }
        let op = Op::Linear(Linear {
            bias,
            ..Linear::default()
        });
        self.graph.push(role, step, op, operands)
    }

    fn layer_norm(&mut self, step: &str, x: ValueId, tensor: &str) -> Result<ValueId> {
        let weight = self.constant(&format!("{tensor}.weight"), &[self.vit.dim])?;
        let bias = self.constant(&format!("{tensor}.bias"), &[self.vit.dim])?;
        let epsilon = self.vit.epsilon as f32;
        self.graph
            .push(Role::Other, step, Op::LayerNorm { epsilon }, [x, weight, bias])
    }

    /// The tensor `name` of the weight file.
    fn constant(&mut self, name: &str, shape: &[usize]) -> Result<ValueId> {
        let tensor = self.weights.take(name, shape)?;
        Ok(self.graph.constant(name, tensor))
    }

    /// A constant made from a tensor of the weight file, under another shape.
    fn derived(&mut self, name: String, tensor: Tensor, shape: &[usize]) -> Result<ValueId> {
        let tensor = tensor.reshaped(shape).ok_or_else(|| {
            Error::graph(
                &name,
                format_args!("{tensor:?} has not the elements of {shape:?}"),
            )
        })?;
        Ok(self.graph.constant(name, tensor))
    }

    /// A name below the trunk's prefix.
    fn trunk(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}
