//! Builds the stages of Swin and Swin V2: windows of tokens, attention inside of them, and the merging of patches.
//!
//! The tokens stay in the order of a block's windows until a block has other windows, because norms, linear layers and
//! residuals work on each token.

use std::path::Path;
use std::sync::Arc;

use hipvit_graph::pattern::{Int, Number, Pattern, Scalar, floats, ints, scores};

use super::Builder;
use super::blocks::{Packed, attention_spec};
use crate::error::{Error, Result};
use crate::graph::{Provenance, Role, ValueId};
use crate::model::names::Merging;
use crate::model::positions;
use crate::model::relative::TableFitting;
use crate::model::swin::{self, Stage, Swin, Version, Windows};
use crate::model::vit::Vit;
use crate::ops::{
    Activation, Affine, Attention, AttentionOperands, MulScalar, PatternAttention, PermuteTokens,
    RelativeBias, RmsNorm, Scale, TokenOrder,
};
use crate::tensor::Tensor;

/// Maximum of the logarithm of Swin V2's temperature: ln 100.
const LARGEST_LOGIT_SCALE: f32 = 4.605_170_2;

/// Smallest length by which a head's vector is divided: PyTorch's `normalize`.
const SMALLEST_LENGTH: f32 = 1e-12;

impl<'a> Builder<'a> {
    /// Returns the tokens after all stages and the final norm. `vits` describe the stages. `wanted` are the blocks
    /// whose tokens are an output.
    pub(super) fn stages(
        &mut self,
        mut x: ValueId,
        swin: &'a Swin,
        vits: &'a [Vit],
        wanted: &[usize],
    ) -> Result<ValueId> {
        let mut before: Option<(&Stage, TokenOrder)> = None;
        for (index, (stage, vit)) in swin.stages.iter().zip(vits).enumerate() {
            if let Some((last, order)) = before {
                x = self.merge(x, swin, index, (last, order), stage.dim)?;
            }
            self.vit = vit;
            let rows = TokenOrder::rows(stage.grid);
            let mut order = rows;
            for inner in 0..stage.depth {
                let mut windows = Windows {
                    swin,
                    stage,
                    is_shifted: stage.is_shifted(inner),
                    stream: rows,
                };
                if !stage.is_padded() {
                    windows.stream = windows.order();
                }
                let number = self.hidden_layers.len();
                let step = format!("blocks.{number}");
                x = self.permuted(&format!("{step}.windows"), x, stage, [order, windows.stream])?;
                order = windows.stream;
                self.windows = Some(windows);
                let tensors = self.trunk(&format!("{}{index}.blocks.{inner}.", self.names.blocks));
                x = match swin.version {
                    Version::V1 => self.pre_norm_block(x, inner, &step, &tensors)?,
                    Version::V2 => self.post_norm_block(x, inner, &step, &tensors)?,
                };
                let hidden = if wanted.contains(&number) {
                    self.permuted(&format!("{step}.rows"), x, stage, [order, rows])?
                } else {
                    x
                };
                self.hidden_layers.push(hidden);
            }
            self.windows = None;
            before = Some((stage, order));
        }
        if let Some((stage, order)) = before {
            x = self.permuted("rows", x, stage, [order, TokenOrder::rows(stage.grid)])?;
        }
        if self.vit.norm {
            x = self.norm("norm", x, &self.trunk(self.names.norm), self.vit.dim)?;
        }
        Ok(x)
    }

    /// Adds the merging of 2 × 2 patches before stage `index`, which has `dim` channels. The patches are of the stage
    /// `last`, in this order.
    fn merge(
        &mut self,
        x: ValueId,
        swin: &Swin,
        index: usize,
        (last, order): (&Stage, TokenOrder),
        dim: usize,
    ) -> Result<ValueId> {
        let step = format!("stages.{index}.merging");
        let holder = if swin.merges_after { index - 1 } else { index };
        let Merging { norm, projection } = self.names.merging;
        let [norm, projection] =
            [norm, projection].map(|name| self.trunk(&format!("{}{holder}.{name}", self.names.blocks)));
        let merged = TokenOrder::merged(last.grid, [2, 2]);
        let mut x = self.permuted(&step, x, last, [order, merged])?;
        let width = 4 * last.dim;
        let norm_step = format!("{step}.norm");
        if swin.version == Version::V1 {
            x = self.norm_of(swin.merging_norm, Role::Other, &norm_step, x, &norm, width)?;
        }
        x = self.linear(
            Role::Other,
            &format!("{step}.projection"),
            x,
            &projection,
            [dim, width],
            false,
        )?;
        if swin.version == Version::V2 {
            x = self.norm_of(swin.merging_norm, Role::Other, &norm_step, x, &norm, dim)?;
        }
        Ok(x)
    }

    /// Puts the tokens of a stage into another order.
    fn permuted(
        &mut self,
        step: &str,
        x: ValueId,
        stage: &Stage,
        [from, to]: [TokenOrder; 2],
    ) -> Result<ValueId> {
        if from == to {
            return Ok(x);
        }
        let op = PermuteTokens {
            grid: stage.grid,
            from,
            to,
        };
        Ok(self.graph.push(Role::Other, step, op, [x])?)
    }

    /// Puts the tokens into the block's windows, unless they already are.
    pub(super) fn partition_windows(&mut self, step: &str, x: ValueId) -> Result<ValueId> {
        match self.windows {
            Some(w) => self.permuted(&format!("{step}.windows"), x, w.stage, [w.stream, w.order()]),
            None => Ok(x),
        }
    }

    /// Reverses [`partition_windows`](Self::partition_windows).
    pub(super) fn reverse_windows(&mut self, step: &str, x: ValueId) -> Result<ValueId> {
        match self.windows {
            Some(w) => self.permuted(&format!("{step}.rows"), x, w.stage, [w.order(), w.stream]),
            None => Ok(x),
        }
    }

    /// Returns true if attention compares queries and keys by the cosine of their angle.
    pub(super) fn has_cosine_attention(&self) -> bool {
        self.windows
            .is_some_and(|windows| windows.swin.version == Version::V2)
    }

    /// Returns queries and keys of length 1 and values. Queries are multiplied by the temperature.
    pub(super) fn cosine_operands(
        &mut self,
        x: ValueId,
        step: &str,
        tensors: &str,
        (packed, first): (&Packed, usize),
    ) -> Result<Vec<ValueId>> {
        let Vit { dim, heads, .. } = *self.vit;
        let head_dim = dim / heads;
        let root = (head_dim as f32).sqrt();
        let op = RmsNorm {
            epsilon: SMALLEST_LENGTH * SMALLEST_LENGTH / head_dim as f32,
        };
        let mut operands = Vec::with_capacity(3);
        for (part, letter) in ["q", "k", "v"].into_iter().enumerate() {
            let rows = first + part * dim..first + (part + 1) * dim;
            let mut y = self.rows(Role::Qkv, &format!("{step}.{letter}"), x, packed, rows)?;
            if part < 2 {
                // The length is the root mean square times √head_dim.
                let provenance = Provenance::computed(format!("{step}.{letter}_norm.length"), []);
                let weight = self.numbers(provenance, &[head_dim], vec![1.0 / root; head_dim])?;
                y = self
                    .graph
                    .push(Role::Qkv, format!("{step}.{letter}_norm"), op, [y, weight])?;
            }
            if part == 0 {
                let name = format!("{tensors}{}", self.names.logit_scale);
                let logarithms = self.weights.take(&name, &[heads, 1, 1])?;
                let factors = logarithms
                    .to_f32()
                    .iter()
                    .flat_map(|&logarithm| {
                        std::iter::repeat_n(logarithm.min(LARGEST_LOGIT_SCALE).exp(), head_dim)
                    })
                    .collect();
                let provenance = Provenance::computed(format!("temperature of {name}"), [name.into()]);
                let factors = self.numbers(provenance, &[dim], factors)?;
                y = self
                    .graph
                    .push(Role::Qkv, format!("{step}.temperature"), Scale, [y, factors])?;
            }
            operands.push(y);
        }
        Ok(operands)
    }

    /// Adds attention inside of windows, with the block's bias.
    pub(super) fn window_attention(
        &mut self,
        windows: Windows<'_>,
        step: &str,
        tensors: &str,
        operands: AttentionOperands,
        mut inputs: Vec<ValueId>,
    ) -> Result<ValueId> {
        let (Windows { swin, stage, .. }, role) = (windows, Role::Attention);
        let heads = stage.heads;
        let mut spec = Attention {
            bias: true,
            ..attention_spec(stage.dim, heads, operands)
        };
        if swin.version == Version::V2 {
            // Queries have the temperature.
            spec.scale = 1.0;
        }
        let table = match swin.version {
            Version::V1 => self.window_table(stage, swin.fitting, tensors)?,
            Version::V2 => self.continuous_table(stage, step, tensors)?,
        };
        let bias = RelativeBias {
            grid: stage.window,
            class_token: false,
            shift: windows.is_shifted.then_some(stage.shift),
        };
        inputs.push(self.graph.push(role, format!("{step}.bias"), bias, [table])?);
        if !windows.is_shifted {
            return Ok(self.graph.push(role, step, spec, inputs)?);
        }
        let program = shifted_windows()
            .compile()
            .map_err(|error| Error::graph(step, error))?;
        let [rows, columns] = windows.order().window_grid(stage.grid);
        let scalar = |scalar: &Scalar| Number::Int(if &*scalar.name == ROWS { rows } else { columns } as i32);
        let op = PatternAttention {
            heads,
            head_dim: spec.head_dim,
            scale: spec.scale,
            operands,
            scalars: program.scalars().iter().map(scalar).collect(),
            program: Arc::new(program),
            log_sum_exp: false,
        };
        Ok(self.graph.push(role, step, op, inputs)?)
    }

    /// Returns the table of a block's bias, fitted to the stage's windows.
    fn window_table(
        &mut self,
        stage: &Stage,
        fitting: Option<TableFitting>,
        tensors: &str,
    ) -> Result<ValueId> {
        let name = format!("{tensors}{}", self.names.relative);
        let shape = [stage.distances(), stage.heads];
        let Some(fitting) = fitting else {
            return self.constant(&name, &shape);
        };
        let rows = match self.weights.shape(&name) {
            Some(&[rows, _]) => rows,
            // The table does not exist. `take` reports it with the expected shape.
            _ => shape[0],
        };
        let file = self.weights.file(&name).unwrap_or(Path::new("")).to_owned();
        let stored = self.weights.take(&name, &[rows, stage.heads])?;
        let fitted = fitting.fit_windows(&stored.to_f32(), stage.heads, stage.window);
        let (mut table, from) = fitted.map_err(|reason| Error::tensor(&file, &name, reason))?;
        if let Some(from) = from {
            self.interpolated = Some((from, stage.window));
            // timm keeps the stored type.
            table = positions::rounded(table, stored.dtype());
        }
        self.numbers(name.into(), &shape, table)
    }

    /// Returns the table of a block's bias that its network makes: `16 · σ(W₂ · relu(W₁ · coordinates + b))`, where `16 · σ(x)` is `8 ·
    /// tanh(x / 2) + 8`.
    fn continuous_table(&mut self, stage: &Stage, step: &str, tensors: &str) -> Result<ValueId> {
        let name = format!("{tensors}{}", self.names.position_network);
        let hidden = match self.weights.shape(&format!("{name}.0.bias")) {
            Some(&[hidden]) => hidden,
            _ => 512,
        };
        let (role, heads) = (Role::Attention, stage.heads);
        // Not a name of a block: the network is not quantised, as the linear layers of blocks may be.
        let network = format!("positions.{step}");
        let coordinates = swin::coordinates(stage.window, stage.trained_window);
        let provenance = Provenance::computed(format!("{network}.coordinates"), []);
        let x = self.numbers(provenance, &[stage.distances(), 2], coordinates)?;
        let first = format!("{network}.0");
        let x = self.linear(role, &first, x, &format!("{name}.0"), [hidden, 2], true)?;
        let x = self
            .graph
            .push(role, format!("{network}.act"), Activation::Relu, [x])?;
        let second = format!("{network}.2");
        let x = self.linear(role, &second, x, &format!("{name}.2"), [heads, hidden], false)?;
        let x = self
            .graph
            .push(role, format!("{network}.half"), MulScalar(0.5), [x])?;
        let x = self
            .graph
            .push(role, format!("{network}.tanh"), Activation::Tanh, [x])?;
        let provenance = Provenance::computed(format!("{network}.range"), []);
        let range = self.numbers(provenance, &[heads], vec![8.0; heads])?;
        Ok(self
            .graph
            .push(role, format!("{step}.table"), Affine, [x, range, range])?)
    }

    /// Adds a constant of these values.
    pub(super) fn numbers(
        &mut self,
        provenance: Provenance,
        shape: &[usize],
        values: Vec<f32>,
    ) -> Result<ValueId> {
        let tensor = Tensor::from_f32(shape, values);
        let tensor = tensor.ok_or_else(|| Error::graph(provenance.to_string(), "has another size"))?;
        Ok(self.graph.constant(provenance, tensor))
    }
}

const ROWS: &str = "window_rows";
const COLUMNS: &str = "window_columns";

/// Returns the pattern of attention in shifted windows. The scalars are the rows and columns of windows.
///
/// The captured tensor is the bias of each kind of windows. An image of the op is a window of a picture.
fn shifted_windows() -> Pattern {
    let [rows, columns] = [ROWS, COLUMNS].map(ints::scalar);
    let window = ints::batch().modulo(rows.clone() * columns.clone());
    let is_last = |index: Int, count: Int| index.equal(count - 1);
    let lower = is_last(window.floor_div(columns.clone()), rows);
    let right = is_last(window.modulo(columns.clone()), columns);
    let kind = Int::select(&lower, 2, 0) + Int::select(&right, 1, 0);
    let bias = floats::load("bias", [kind, ints::head(), ints::query(), ints::key()]);
    Pattern::new()
        .with_name("shifted windows")
        .with_score(scores::score() + bias)
}
