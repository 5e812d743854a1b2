//! Builds the stages of Hiera: patches that overlap, attention inside of windows, and queries that are pooled between
//! stages.
//!
//! The tokens are window by window. So the windows of the next stage, which are those of the pooled tokens, need no
//! other order: pooling sees each window as an image.

use super::Builder;
use super::blocks::attention_spec;
use crate::error::Result;
use crate::graph::{Provenance, Role, ValueId};
use crate::model::channels_last::channels_last;
use crate::model::hiera::{Hiera, KERNEL, PADDING, POOL, Stage};
use crate::model::positions::{self, Filter, Grid};
use crate::model::vit::Vit;
use crate::ops::{Add, AttentionOperands, AveragePool, Concat, Conv, MaxPool, Op, PermuteTokens, TokenOrder};

/// Name of the linear layer of a pooled block's residual, below the block's prefix.
const EXPANSION: &str = "proj";

/// Table of the positions in a window, with its channels first.
const WINDOW_POSITIONS: &str = "pos_embed_win";

/// A stage whose first block pools the queries, and the stage before, whose tokens the block reads.
#[derive(Clone, Copy)]
struct Transition<'a> {
    before: &'a Stage,
    stage: &'a Stage,
    /// True if the residual has a linear layer.
    expands: bool,
}

impl<'a> Builder<'a> {
    /// Converts normalised pixels to tokens with positions: `[1,H,W,3] → [1,N,D]`.
    pub(super) fn overlapping_patches(&mut self, pixels: ValueId, hiera: &Hiera) -> Result<ValueId> {
        let Vit { dim, patch, .. } = *self.vit;
        let role = Role::Patch;
        let [rows, columns] = self.vit.grid();
        let name = self.trunk(self.names.patch);
        let shape = [dim, 3, KERNEL[0], KERNEL[1]];
        let (provenance, weight) =
            channels_last(self.weights, &format!("{name}.weight"), shape, |pair| pair)?;
        let weight = self.graph.constant(provenance, weight);
        let bias = self.constant(&format!("{name}.bias"), &[dim])?;
        let conv = Conv {
            stride: patch,
            padding: [[PADDING; 2]; 2],
            bias: true,
            ..Conv::new(KERNEL)
        };
        let x = self
            .graph
            .push(role, "patch_embed", conv, [pixels, weight, bias])?;
        let x = self.reshaped(role, "patch_embed.tokens", x, &[1, rows * columns, dim])?;
        let name = self.trunk(self.names.positions);
        let table = match hiera.position_grid {
            None => self.constant(&name, &[1, rows * columns, dim])?,
            Some(stored) => {
                let window = hiera.stages.first().map_or([1, 1], |stage| stage.window);
                self.window_positions(&name, stored, window)?
            }
        };
        Ok(self.graph.push(role, "positions", Add, [x, table])?)
    }

    /// Returns the sum of the table `name`, interpolated to the grid, and the table of one window in each window.
    fn window_positions(&mut self, name: &str, stored: Grid, window: Grid) -> Result<ValueId> {
        let (dim, grid) = (self.vit.dim, self.vit.grid());
        let of_window = self.trunk(WINDOW_POSITIONS);
        let mut take = |name: &str, [rows, columns]: Grid| -> Result<Vec<f32>> {
            let (_, table) = channels_last(self.weights, name, [1, dim, rows, columns], |pair| pair)?;
            Ok(table.to_f32().into_owned())
        };
        let mut table = take(name, stored)?;
        let window_table = take(&of_window, window)?;
        if stored != grid {
            self.interpolated = Some((stored, grid));
            table = positions::resample(&table, dim, stored, grid, Filter::CubicAntialiased);
        }
        for (cell, values) in table.chunks_exact_mut(dim).enumerate() {
            let [row, column] = [cell / grid[1] % window[0], cell % grid[1] % window[1]];
            let place = (row * window[1] + column) * dim;
            let added = window_table.get(place..place + dim).unwrap_or_default();
            values.iter_mut().zip(added).for_each(|(x, y)| *x += y);
        }
        let of = [name, &of_window].map(Provenance::from);
        self.numbers(
            Provenance::computed("positions.table", of),
            &[1, grid[0] * grid[1], dim],
            table,
        )
    }

    /// Returns the tokens after all stages, in the order of the image. `vits` describe the stages. `wanted` are the
    /// blocks whose tokens are an output.
    pub(super) fn hiera_stages(
        &mut self,
        mut x: ValueId,
        hiera: &'a Hiera,
        vits: &'a [Vit],
        wanted: &[usize],
    ) -> Result<ValueId> {
        let mut before: Option<&Stage> = None;
        for (stage, vit) in hiera.stages.iter().zip(vits) {
            self.vit = vit;
            if before.is_none() {
                x = self.in_windows(x, stage)?;
            }
            for inner in 0..stage.sizes.depth {
                let number = self.hidden_layers.len();
                let step = format!("blocks.{number}");
                let tensors = self.trunk(&format!("{}{number}.", self.names.blocks));
                let pooled = before.filter(|_| inner == 0).map(|before| Transition {
                    before,
                    stage,
                    expands: hiera.expands,
                });
                let read = pooled.map_or(stage, |pooled| pooled.before);
                let shape = read.shape(read.is_windowed);
                x = self.reshaped(Role::Other, &format!("{step}.tokens"), x, &shape)?;
                x = match pooled {
                    Some(pooled) => self.pooled_block(x, pooled, &step, &tensors)?,
                    None => self.pre_norm_block(x, number, &step, &tensors)?,
                };
                let hidden = if wanted.contains(&number) {
                    self.in_rows(&format!("{step}.rows"), x, stage)?
                } else {
                    x
                };
                self.hidden_layers.push(hidden);
            }
            before = Some(stage);
        }
        match before {
            Some(stage) => self.in_rows("rows", x, stage),
            None => Ok(x),
        }
    }

    /// Puts the tokens of an image, row by row, into the windows of the first stage.
    fn in_windows(&mut self, x: ValueId, stage: &Stage) -> Result<ValueId> {
        let op = PermuteTokens {
            grid: stage.grid,
            from: TokenOrder::rows(stage.grid),
            to: TokenOrder::windows(stage.grid, stage.window),
        };
        Ok(self.graph.push(Role::Other, "windows", op, [x])?)
    }

    /// Reverses [`in_windows`](Self::in_windows) for the tokens of any stage.
    fn in_rows(&mut self, step: &str, x: ValueId, stage: &Stage) -> Result<ValueId> {
        let rows = stage.shape(false);
        // Windows of one token are in the order by rows.
        if stage.window == [1, 1] {
            return self.reshaped(Role::Other, step, x, &rows);
        }
        let x = self.reshaped(Role::Other, &format!("{step}.windows"), x, &stage.shape(true))?;
        let op = PermuteTokens {
            grid: stage.grid,
            from: TokenOrder::windows(stage.grid, stage.window),
            to: TokenOrder::rows(stage.grid),
        };
        Ok(self.graph.push(Role::Other, step, op, [x])?)
    }

    /// Adds `r + scale1 · attention(norm1(x))` with pooled queries, then `x + scale2 · mlp(norm2(x))`. `r` is `pool(proj(norm1(x)))`, or the
    /// maxima and means of `x`.
    fn pooled_block(
        &mut self,
        x: ValueId,
        pooled: Transition<'_>,
        step: &str,
        tensors: &str,
    ) -> Result<ValueId> {
        let Transition {
            before,
            stage,
            expands,
        } = pooled;
        let (dim, inputs) = (stage.sizes.dim, before.sizes.dim);
        let normed = self.norm(
            &format!("{step}.norm1"),
            x,
            &format!("{tensors}{}", self.names.norm1),
            inputs,
        )?;
        let residual = if expands {
            let name = format!("{step}.expansion");
            let tensor = format!("{tensors}{EXPANSION}");
            let wide = self.linear(Role::Other, &name, normed, &tensor, [dim, inputs], true)?;
            self.pool_windows(&name, wide, pooled, MAX_POOL)?
        } else {
            let name = format!("{step}.pool");
            let maxima = self.pool_windows(&format!("{name}.max"), x, pooled, MAX_POOL)?;
            let means = self.pool_windows(&format!("{name}.mean"), x, pooled, MEAN_POOL)?;
            self.graph
                .push(Role::Other, name, Concat { axis: 2 }, [maxima, means])?
        };
        let attn = format!("{step}.attn");
        let qkv = self.packed(&format!("{tensors}attn.qkv"), [3 * dim, inputs], true)?;
        let q = self.rows(Role::Qkv, &format!("{attn}.q"), normed, &qkv, 0..dim)?;
        let q = self.pool_windows(&format!("{attn}.q"), q, pooled, MAX_POOL)?;
        let kv = self.rows(Role::Qkv, &format!("{attn}.kv"), normed, &qkv, dim..3 * dim)?;
        let spec = attention_spec(dim, stage.sizes.heads, AttentionOperands::PackedKv);
        let y = self.graph.push(Role::Attention, attn.clone(), spec, [q, kv])?;
        let y = self.linear(
            Role::Attention,
            &format!("{attn}.proj"),
            y,
            &format!("{tensors}{}", self.names.attention_output),
            [dim, dim],
            true,
        )?;
        self.pre_norm_residuals(residual, y, step, tensors)
    }

    /// Reduces the tokens of the stage before to those of the stage.
    fn pool_windows(
        &mut self,
        step: &str,
        x: ValueId,
        Transition { before, stage, .. }: Transition<'_>,
        pool: Op,
    ) -> Result<ValueId> {
        let role = Role::Other;
        let channels = self.graph.value(x).shape.last().copied().unwrap_or_default();
        let [rows, columns] = before.window;
        let images = [before.windows(), rows, columns, channels];
        let x = self.reshaped(role, &format!("{step}.images"), x, &images)?;
        let x = self.graph.push(role, format!("{step}.pooled"), pool, [x])?;
        let [windows, tokens, _] = stage.shape(before.is_windowed);
        self.reshaped(role, &format!("{step}.tokens"), x, &[windows, tokens, channels])
    }
}

const MAX_POOL: Op = Op::MaxPool(MaxPool {
    kernel: POOL,
    stride: POOL,
    dilation: [1; 2],
    padding: [[0; 2]; 2],
    ceil: false,
});

const MEAN_POOL: Op = Op::AveragePool(AveragePool {
    kernel: POOL,
    stride: POOL,
    dilation: [1; 2],
    padding: [[0; 2]; 2],
    ceil: false,
    count_padding: false,
});
