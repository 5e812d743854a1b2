//! From a [`Vit`], a library's [`Names`] and the [`Weights`] to the unoptimised [`Graph`]: one builder for every
//! family. It emits what the libraries compute, step by step; making that fast is the part of [`crate::graph`].

mod head;

use std::path::Path;

use super::LoadOptions;
use super::names::{Embeddings, Names, Qkv};
use super::positions::{self, Fit};
use super::vit::{Mlp, Vit};
use super::weights::Weights;
use crate::error::{Error, Result};
use crate::graph::{Graph, OutputKind, Role, ValueId};
use crate::ops::{Activation, Attention, AttentionOperands, Linear, Op, PatchConv};
use crate::tensor::Tensor;

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
    options: &LoadOptions,
    weights: &mut Weights,
) -> Result<Option<Interpolated>> {
    let mut builder = Builder {
        graph,
        weights,
        vit,
        names,
        prefix,
        hidden_layers: Vec::new(),
        interpolated: None,
    };
    let tokens = builder.embed(pixels)?;
    let tokens = builder.blocks(tokens)?;
    builder.head(tokens)?;
    let Builder {
        graph,
        hidden_layers,
        interpolated,
        ..
    } = builder;
    if options.tokens {
        graph.set_output(OutputKind::Tokens, tokens);
    }
    for (block, &value) in hidden_layers.iter().enumerate() {
        if options.hidden_layers.contains(&block) {
            graph.set_output(OutputKind::HiddenLayer(block), value);
        }
    }
    Ok(interpolated)
}

/// Position embeddings, ready to be added.
struct Table {
    /// Those of the tokens before the patches, `[prefix, D]`, maybe none.
    prefix: Tensor,
    /// Those of the patches, `[1, N, D]`.
    patches: ValueId,
}

/// A feed-forward network of two layers.
struct TwoLayers<'n> {
    names: [&'n str; 2],
    dim: usize,
    hidden: usize,
    bias: bool,
    activation: Activation,
}

struct Builder<'a> {
    graph: &'a mut Graph,
    weights: &'a mut Weights,
    vit: &'a Vit,
    names: &'a Names,
    prefix: &'a str,
    /// The tokens after each block.
    hidden_layers: Vec<ValueId>,
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
        let positions = self.positions()?;
        if let Some(Table { patches, .. }) = positions {
            x = self.graph.push(Role::Patch, "positions", Op::Add, [x, patches])?;
        }
        let mut tokens = Vec::new();
        let mut row = 0;
        for (step, name, count) in [
            (
                "tokens.class",
                self.names.class_token,
                usize::from(self.vit.class_token),
            ),
            (
                "tokens.distillation",
                self.names.distillation_token,
                usize::from(self.vit.distillation_token),
            ),
            ("tokens.registers", self.names.registers, self.vit.registers),
        ] {
            if count == 0 {
                continue;
            }
            let rows = row..row + count;
            row = rows.end;
            let mut token = self.token(name, count)?;
            // Tokens beyond the table's prefix have no position.
            let position = positions
                .as_ref()
                .and_then(|table| table.prefix.rows(rows.clone()));
            if let Some(position) = position {
                let name = format!(
                    "{}[{}..{}]",
                    self.trunk(self.names.positions),
                    rows.start,
                    rows.end
                );
                let position = self.derived(name, &position, &[1, count, dim])?;
                token = self.graph.push(Role::Patch, step, Op::Add, [token, position])?;
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
                self.derived(name, &tensor, &[1, 1, dim])
            }
        }
    }

    /// The position table, its patches' part fitted to the image.
    fn positions(&mut self) -> Result<Option<Table>> {
        let Some(spec) = self.vit.positions else {
            return Ok(None);
        };
        let (name, dim, grid) = (self.trunk(self.names.positions), self.vit.dim, self.vit.grid());
        let rows = match (self.names.embeddings, self.weights.shape(&name)) {
            (Embeddings::Batched, Some(&[_, rows, _])) | (Embeddings::Flat, Some(&[rows, _])) => rows,
            // No such table: `take` reports it with the shape that it should have.
            _ => spec.prefix + grid[0] * grid[1],
        };
        let file = self.weights.file(&name).unwrap_or(Path::new("")).to_owned();
        let error = |reason: String| Error::tensor(&file, &name, reason);
        let stored = match self.names.embeddings {
            Embeddings::Batched => self.weights.take(&name, &[1, rows, dim])?,
            Embeddings::Flat => self.weights.take(&name, &[rows, dim])?,
        };
        let table = stored.reshaped([rows, dim]);
        let part = |rows| table.as_ref().and_then(|table| table.rows(rows));
        let (Some(prefix), Some(patches)) = (part(0..spec.prefix), part(spec.prefix..rows)) else {
            return Err(error(format!(
                "has {rows} positions, too few for {} tokens",
                spec.prefix
            )));
        };
        let cells = rows - spec.prefix;
        let patches = match spec.fitting.fit(cells, grid).map_err(error)? {
            Fit::Keep => {
                let name = match spec.prefix {
                    0 => name,
                    start => format!("{name}[{start}..{rows}]"),
                };
                self.derived(name, &patches, &[1, cells, dim])?
            }
            Fit::Resample { from, antialias } => {
                self.interpolated = Some((from, grid));
                let values = positions::resample(&patches.to_f32(), dim, from, grid, antialias);
                let [[rows, columns], [to_rows, to_columns]] = [from, grid];
                let name = format!("{name} {rows}×{columns}→{to_rows}×{to_columns}");
                let shape = [1, grid[0] * grid[1], dim];
                let tensor = Tensor::from_f32(shape, values)
                    .ok_or_else(|| Error::graph(&name, "the interpolated table has another size"))?;
                self.graph.constant(name, tensor)
            }
        };
        Ok(Some(Table { prefix, patches }))
    }

    fn blocks(&mut self, mut x: ValueId) -> Result<ValueId> {
        for index in 0..self.vit.depth {
            let block = format!("blocks.{index}");
            let tensors = self.trunk(&format!("{}{index}.", self.names.blocks));
            x = self.attention(x, &block, &tensors)?;
            x = self.feed_forward(x, &block, &tensors)?;
            self.hidden_layers.push(x);
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
                let names = [self.names.fc1, self.names.fc2];
                let layers = TwoLayers {
                    names,
                    dim,
                    hidden,
                    bias: block_bias,
                    activation,
                };
                self.two_layers(Role::Ffn, &format!("{block}.mlp"), normed, tensors, &layers)?
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

    /// `fc2(activation(fc1(x)))`; `tensors` stands before the layers' names.
    fn two_layers(
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

    fn attention_op(&self, operands: AttentionOperands) -> Op {
        let head_dim = self.vit.dim / self.vit.heads;
        Op::Attention(Attention {
            heads: self.vit.heads,
            head_dim,
            scale: (head_dim as f64).sqrt().recip() as f32,
            operands,
            first_key: 0,
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
    fn derived(&mut self, name: String, tensor: &Tensor, shape: &[usize]) -> Result<ValueId> {
        let tensor = tensor.reshaped(shape).ok_or_else(|| {
            Error::graph(
                &name,
                format_args!("{tensor:?} does not have the element count of {shape:?}"),
            )
        })?;
        Ok(self.graph.constant(name, tensor))
    }

    /// A name below the trunk's prefix.
    fn trunk(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}
