//! Builds the unoptimised [`Graph`] of every family from a [`Vit`], a library's [`Names`] and the [`Weights`].
//!
//! The graph has the steps of the library one by one. [`crate::graph`] makes it fast.

mod blocks;
mod depth;
mod head;
mod hiera;
mod packed;
mod swin;
mod text;

use std::path::Path;

use super::depth::DepthHead;
use super::hierarchy::Hierarchy;
use super::invalid::Invalid;
use super::names::{Embeddings, Names};
use super::norm::{Norm, NormKind};
use super::options::LoadOptions;
use super::packing::Packing;
use super::patches;
use super::positions::{self, GridTable, Resample};
use super::swin::Windows;
use super::vit::{Positions, Vit};
use super::weights::Weights;
use crate::error::{Error, Result};
use crate::graph::{Change, Graph, Layout, OutputKind, Provenance, Role, ValueId};
use crate::ops::{
    Activation, Add, Affine, GridMask, GridPositions, LayerNorm, Linear, Op, PatchConv, Prepend, Reshape,
    RmsNorm,
};
use crate::tensor::Tensor;

pub(super) use text::build_text;

/// Grids between which a position table was interpolated: the stored grid and the image's.
pub(super) type Interpolated = ([usize; 2], [usize; 2]);

/// Facts about a graph that was built.
pub(super) struct Built {
    pub(super) interpolated: Option<Interpolated>,
    pub(super) packing: Option<Packing>,
}

/// A model to build.
#[derive(Clone, Copy)]
pub(super) struct Blueprint<'a> {
    pub(super) vit: &'a Vit,
    /// Neck and head of a model that estimates depth.
    pub(super) depth: Option<&'a DepthHead>,
    pub(super) names: &'a Names,
    /// Prefix of the trunk's tensor names.
    pub(super) prefix: &'a str,
}

/// Appends the model to `graph`. Its last value so far, `pixels`, must be f32 `[1,3,H,W]`, or `[1,H,W,3]` if
/// [patches overlap](Vit::has_overlapping_patches).
///
/// # Errors
///
/// Returns [`Error::Tensor`] for a weight that is missing or has a wrong shape, or for a position table that cannot be
/// fitted.
pub(super) fn build(
    graph: &mut Graph,
    pixels: ValueId,
    model: Blueprint<'_>,
    options: &LoadOptions,
    weights: &mut Weights,
) -> Result<Built> {
    let Blueprint {
        vit,
        depth,
        names,
        prefix,
    } = model;
    let stages = vit.stages();
    let mut builder = Builder {
        graph,
        weights,
        // The embedding has the channels of the first stage.
        vit: stages.first().unwrap_or(vit),
        names,
        prefix,
        windows: None,
        hidden_layers: Vec::new(),
        interpolated: None,
        rotary_tables: Vec::new(),
        shared_bias: None,
        key_mask: None,
        documents: None,
        packing: None,
    };
    let embedded = match &vit.hierarchy {
        Some(Hierarchy::Hiera(hiera)) => builder.overlapping_patches(pixels, hiera)?,
        _ => builder.embed(pixels)?,
    };
    let tokens = match &vit.hierarchy {
        Some(Hierarchy::Swin(swin)) => builder.stages(embedded, swin, &stages, &options.hidden_layers)?,
        Some(Hierarchy::Hiera(hiera)) => {
            builder.hiera_stages(embedded, hiera, &stages, &options.hidden_layers)?
        }
        None => builder.blocks(embedded)?,
    };
    match depth {
        Some(head) => builder.depth(embedded, head)?,
        None => builder.head(tokens)?,
    }
    let Builder {
        graph,
        hidden_layers,
        interpolated,
        packing,
        ..
    } = builder;
    if options.embedded_tokens {
        graph.set_output(OutputKind::EmbeddedTokens, embedded);
    }
    if options.tokens {
        graph.set_output(OutputKind::Tokens, tokens);
    }
    for (block, &value) in hidden_layers.iter().enumerate() {
        if options.hidden_layers.contains(&block) {
            graph.set_output(OutputKind::HiddenLayer(block), value);
        }
    }
    Ok(Built {
        interpolated,
        packing,
    })
}

/// Position embeddings, ready to be added.
struct Table {
    /// Positions of the tokens before the patches, `[prefix, D]`, if the table has any.
    prefix: Option<Tensor>,
    /// Positions of the patches, `[1, N, D]`.
    patches: ValueId,
}

/// Bias of the scores that all blocks share.
#[derive(Clone, Copy)]
struct SharedBias {
    /// Table with a row for each distance.
    table: ValueId,
    /// The bias. `None` if blocks add tables of their own.
    bias: Option<ValueId>,
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
    /// Windows of the block that is being built, in Swin.
    windows: Option<Windows<'a>>,
    /// Tokens after each block.
    hidden_layers: Vec<ValueId>,
    interpolated: Option<Interpolated>,
    /// Table of each block's [`Op::Rope`], once created.
    rotary_tables: Vec<ValueId>,
    shared_bias: Option<SharedBias>,
    /// Mask of the tokens that are patches of the image, if images have different grids.
    key_mask: Option<ValueId>,
    /// Document of each token, if images are packed.
    documents: Option<ValueId>,
    packing: Option<Packing>,
}

impl Builder<'_> {
    /// Converts pixels to tokens: `[1,3,H,W] → [1,prefix+N,D]`.
    fn embed(&mut self, pixels: ValueId) -> Result<ValueId> {
        let Vit {
            patch,
            dim,
            patch_bias,
            ..
        } = *self.vit;
        let name = self.trunk(self.names.patch);
        let is_linear = self.vit.is_flexible() || self.names.embeddings == Embeddings::Grid;
        let weight = if is_linear {
            self.channels_first(&format!("{name}.weight"))?
        } else {
            self.patches(&format!("{name}.weight"))?
        };
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
        if let Some(norm) = self.vit.patch_norm {
            let name = self.trunk(self.names.patch_norm);
            x = self.norm_of(norm, Role::Patch, "patch_embed.norm", x, &name, dim)?;
        }
        if let Some(Positions::PerImage { side }) = self.vit.positions {
            x = self.positions_per_image(x, side)?;
        }
        if let Some(layout) = self.vit.packed() {
            x = self.packed_positions(x, layout)?;
        }
        let positions = self.positions()?;
        if let Some(Table { patches, .. }) = positions {
            x = self
                .graph
                .push(Role::Patch, "positions", Op::Add(Add), [x, patches])?;
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
                .and_then(|table| table.prefix.as_ref()?.rows(rows.clone()));
            if let Some(position) = position {
                let table = Provenance::from(self.trunk(self.names.positions));
                let provenance = table.then(Change::Rows(rows));
                let position = self.derived(provenance, &position, &[1, count, dim])?;
                token = self
                    .graph
                    .push(Role::Patch, step, Op::Add(Add), [token, position])?;
            }
            tokens.push(token);
        }
        if !tokens.is_empty() {
            tokens = tokens.repeat(self.vit.packed().map_or(1, |layout| layout.images));
            tokens.push(x);
            x = self
                .graph
                .push(Role::Patch, "tokens", Op::Prepend(Prepend), tokens)?;
        }
        if self.vit.pre_norm {
            x = self.norm("norm_pre", x, &self.trunk(self.names.pre_norm), dim)?;
        }
        Ok(x)
    }

    /// Returns the weights of the patch projection. Resamples them if they are for patches of another size.
    fn patches(&mut self, name: &str) -> Result<ValueId> {
        let Vit { dim, patch, .. } = *self.vit;
        let stored = match self.weights.shape(name) {
            Some(&[_, _, height, width]) => [height, width],
            _ => patch,
        };
        let Some(filter) = self.vit.patch_filter.filter(|_| stored != patch) else {
            return self.constant(name, &[dim, 3, patch[0], patch[1]]);
        };
        let error = |reason: Invalid| Error::tensor(self.weights.place(), name, reason);
        let resampling = patches::Resampling::new(stored, patch, filter).map_err(error)?;
        let weight = self.weights.take(name, &[dim, 3, stored[0], stored[1]])?;
        // timm keeps the stored type.
        let values = positions::rounded(resampling.apply(&weight.to_f32()), weight.dtype());
        let tensor = Tensor::from_f32([dim, 3, patch[0], patch[1]], values)
            .ok_or_else(|| Error::graph(name, "the resampled weights have another size"))?;
        let change = Change::Resampled {
            from: stored,
            to: patch,
        };
        Ok(self.graph.constant(Provenance::from(name).then(change), tensor))
    }

    /// Converts the patch projection of a linear layer, `[D, h·w·3]`, to that of a convolution, `[D,3,h,w]`.
    fn channels_first(&mut self, name: &str) -> Result<ValueId> {
        let Vit {
            dim,
            patch: [height, width],
            ..
        } = *self.vit;
        let area = height * width;
        let stored = self.weights.take(name, &[dim, area * 3])?;
        let values = stored.to_f32();
        let values = values.chunks_exact(area * 3);
        let planes = values.flat_map(|row| (0..3).flat_map(move |c| row.iter().skip(c).step_by(3).copied()));
        let weight = Tensor::from_f32([dim, 3, height, width], planes.collect::<Vec<f32>>());
        let weight = weight.ok_or_else(|| Error::graph(name, "does not have the elements of its shape"))?;
        let provenance = Provenance::from(name).then(Change::Layout(Layout::Chw));
        Ok(self.graph.constant(provenance, weight))
    }

    /// Adds the position table, resampled to each image's own grid, to `x`. Sets the mask of tokens for all attention
    /// after it.
    fn positions_per_image(&mut self, x: ValueId, side: usize) -> Result<ValueId> {
        let (name, dim, input) = (self.trunk(self.names.positions), self.vit.dim, self.graph.input());
        let table = self.weights.take(&name, &[side * side, dim])?;
        let table = self.derived(name.into(), &table, &[side, side, dim])?;
        self.key_mask = Some(
            self.graph
                .push(Role::Patch, "key_mask", Op::GridMask(GridMask), [input])?,
        );
        Ok(self.graph.push(
            Role::Patch,
            "positions",
            Op::GridPositions(GridPositions),
            [x, table, input],
        )?)
    }

    /// Returns a constant token, `[1, count, D]`.
    fn token(&mut self, name: &str, count: usize) -> Result<ValueId> {
        let (name, dim) = (self.trunk(name), self.vit.dim);
        match self.names.embeddings {
            Embeddings::Batched | Embeddings::Grid => self.constant(&name, &[1, count, dim]),
            Embeddings::Flat => {
                let tensor = self.weights.take(&name, &[dim])?;
                self.derived(name.into(), &tensor, &[1, 1, dim])
            }
        }
    }

    /// Returns the position table, with the rows of the patches fitted to the image.
    fn positions(&mut self) -> Result<Option<Table>> {
        let (name, dim, grid) = (self.trunk(self.names.positions), self.vit.dim, self.vit.grid());
        let (prefix_rows, fitting) = match self.vit.positions {
            None | Some(Positions::PerImage { .. } | Positions::Packed(_)) => return Ok(None),
            Some(Positions::Table { prefix, fitting }) => (prefix, fitting),
            Some(Positions::Grid(table)) => return self.grid_positions(&name, table).map(Some),
            Some(Positions::Sinusoidal) => {
                let name = "positions.sinusoidal";
                let values = positions::sinusoidal(grid, dim);
                let table = Tensor::from_f32([1, grid[0] * grid[1], dim], values);
                let table = table.ok_or_else(|| Error::graph(name, "the table has another size"))?;
                return Ok(Some(Table {
                    prefix: None,
                    patches: self.graph.constant(Provenance::computed(name, []), table),
                }));
            }
        };
        let rows = match (self.names.embeddings, self.weights.shape(&name)) {
            (Embeddings::Batched, Some(&[_, rows, _])) | (Embeddings::Flat, Some(&[rows, _])) => rows,
            // The table does not exist. `take` reports it with the expected shape.
            _ => prefix_rows + grid[0] * grid[1],
        };
        let file = self.weights.file(&name).unwrap_or(Path::new("")).to_owned();
        let error = |reason: Invalid| Error::tensor(&file, &name, reason);
        let stored = match self.names.embeddings {
            Embeddings::Batched | Embeddings::Grid => self.weights.take(&name, &[1, rows, dim])?,
            Embeddings::Flat => self.weights.take(&name, &[rows, dim])?,
        };
        let table = stored.reshaped([rows, dim]);
        let part = |rows| table.as_ref().and_then(|table| table.rows(rows));
        let (Some(prefix), Some(patches)) = (part(0..prefix_rows), part(prefix_rows..rows)) else {
            return Err(error(
                format!("has {rows} positions, too few for {prefix_rows} tokens").into(),
            ));
        };
        let cells = rows - prefix_rows;
        let steps = fitting.fit(cells, grid).map_err(error)?;
        let patches = match steps.first() {
            None => {
                let table = Provenance::from(&name);
                let provenance = if prefix_rows == 0 {
                    table
                } else {
                    table.then(Change::Rows(prefix_rows..rows))
                };
                self.derived(provenance, &patches, &[1, cells, dim])?
            }
            Some(&Resample { from, .. }) => {
                self.interpolated = Some((from, grid));
                let values = steps.iter().fold(patches.to_f32().into_owned(), |table, step| {
                    let fitted = positions::resample(&table, dim, step.from, step.to, step.filter);
                    if step.rounds {
                        positions::rounded(fitted, stored.dtype())
                    } else {
                        fitted
                    }
                });
                let shape = [1, grid[0] * grid[1], dim];
                let tensor = Tensor::from_f32(shape, values)
                    .ok_or_else(|| Error::graph(&name, "the interpolated table has another size"))?;
                let change = Change::Resampled { from, to: grid };
                self.graph.constant(Provenance::from(&name).then(change), tensor)
            }
        };
        Ok(Some(Table {
            prefix: Some(prefix),
            patches,
        }))
    }

    /// Returns the positions of a table of a grid, fitted to the image.
    fn grid_positions(&mut self, name: &str, spec: GridTable) -> Result<Table> {
        let (dim, grid) = (self.vit.dim, self.vit.grid());
        let (table, provenance) = self.grid_table(name, spec)?;
        let (values, provenance) = match spec.fit(&table, dim, grid) {
            None => (table, provenance),
            Some(fitted) => {
                let change = Change::Resampled {
                    from: spec.stored,
                    to: grid,
                };
                self.interpolated = Some((spec.stored, grid));
                (fitted, provenance.then(change))
            }
        };
        let tensor = Tensor::from_f32([1, grid[0] * grid[1], dim], values);
        let tensor = tensor.ok_or_else(|| Error::graph(name, "the interpolated table has another size"))?;
        Ok(Table {
            prefix: None,
            patches: self.graph.constant(provenance, tensor),
        })
    }

    /// Returns a table of a grid as stored, `[rows · columns, D]`.
    fn grid_table(&mut self, name: &str, spec: GridTable) -> Result<(Vec<f32>, Provenance)> {
        let (dim, [rows, columns]) = (self.vit.dim, spec.stored);
        if spec.is_factorized {
            let [of_rows, of_columns] = ["y", "x"].map(|axis| format!("{name}_{axis}"));
            let tables = [
                self.weights.take(&of_rows, &[1, rows, dim])?,
                self.weights.take(&of_columns, &[1, columns, dim])?,
            ];
            let [of_row, of_column] = tables.each_ref().map(Tensor::to_f32);
            let cells = of_row.chunks_exact(dim).flat_map(|row| {
                of_column
                    .chunks_exact(dim)
                    .flat_map(move |column| row.iter().zip(column).map(|(y, x)| y + x))
            });
            let sources = [of_rows, of_columns].map(Provenance::from);
            Ok((cells.collect(), Provenance::computed("positions", sources)))
        } else {
            let table = self.weights.take(name, &[1, rows, columns, dim])?;
            Ok((table.to_f32().into_owned(), Provenance::from(name)))
        }
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
        let weight = self.constant(&format!("{tensor}.weight"), &[outputs, inputs])?;
        let rounding = self
            .weights
            .rounding(&format!("{tensor}.weight").into(), self.graph.value(weight).dtype)?;
        let mut operands = vec![x, weight];
        if bias {
            operands.push(self.constant(&format!("{tensor}.bias"), &[outputs])?);
        }
        let op = Op::Linear(Linear {
            bias,
            rounding,
            ..Linear::default()
        });
        Ok(self.graph.push(role, step, op, operands)?)
    }

    /// Adds a norm over each `dim` channels.
    fn norm(&mut self, step: &str, x: ValueId, tensor: &str, dim: usize) -> Result<ValueId> {
        self.norm_of(self.vit.norms, Role::Other, step, x, tensor, dim)
    }

    fn norm_of(
        &mut self,
        norm: Norm,
        role: Role,
        step: &str,
        x: ValueId,
        tensor: &str,
        dim: usize,
    ) -> Result<ValueId> {
        let epsilon = norm.epsilon as f32;
        if norm.kind == NormKind::Affine {
            let mut inputs = vec![x];
            for part in ["alpha", "beta"] {
                let name = format!("{tensor}.{part}");
                let stored = self.weights.take(&name, &[1, 1, dim])?;
                inputs.push(self.derived(name.into(), &stored, &[dim])?);
            }
            return Ok(self.graph.push(role, step, Op::Affine(Affine), inputs)?);
        }
        let mut inputs = vec![x, self.constant(&format!("{tensor}.weight"), &[dim])?];
        let op = match norm.kind {
            NormKind::Rms => Op::RmsNorm(RmsNorm { epsilon }),
            NormKind::Layer | NormKind::Affine => {
                inputs.push(self.constant(&format!("{tensor}.bias"), &[dim])?);
                Op::LayerNorm(LayerNorm { epsilon })
            }
        };
        Ok(self.graph.push(role, step, op, inputs)?)
    }

    /// Adds the tensor `name` of the weight file as a constant.
    fn constant(&mut self, name: &str, shape: &[usize]) -> Result<ValueId> {
        let tensor = self.weights.take(name, shape)?;
        Ok(self.graph.constant(name, tensor))
    }

    /// Adds a constant with the values of a tensor of the weight file, and another shape.
    fn derived(&mut self, provenance: Provenance, tensor: &Tensor, shape: &[usize]) -> Result<ValueId> {
        let tensor = tensor.reshaped(shape).ok_or_else(|| {
            Error::graph(
                provenance.to_string(),
                format_args!("{tensor:?} does not have the element count of {shape:?}"),
            )
        })?;
        Ok(self.graph.constant(provenance, tensor))
    }

    /// Gives `x` another shape, whose first extent grows with the batch, unless it has the shape.
    fn reshaped(&mut self, role: Role, step: &str, x: ValueId, extents: &[usize]) -> Result<ValueId> {
        if self.graph.value(x).shape == extents {
            return Ok(x);
        }
        let op = Reshape {
            extents: extents.to_vec(),
            batch: Some(0),
        };
        Ok(self.graph.push(role, step, op, [x])?)
    }

    /// Returns a name with the trunk's prefix.
    fn trunk(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}
