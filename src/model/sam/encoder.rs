//! Graph of SAM's image encoder: a ViT with attention inside of windows, and a neck of convolutions.
//!
//! Scores have a bias that depends on the query (<https://arxiv.org/abs/2112.01526>): `q·R_h[Δrow] + q·R_w[Δcolumn]`. Both products are
//! computed for each query and each row, or column, of keys. Attention adds them to the scores in a fused kernel.

use hipvit_graph::pattern::{Int, Pattern, floats, ints, scores};

use super::config::Vision;
use super::layers::mlp_tensors;
use super::outputs::EMBEDDING;
use crate::error::{Error, Result};
use crate::graph::{Change, Graph, Provenance, Role, ValueId};
use crate::model::layers::Layers;
use crate::model::weights::Weights;
use crate::ops::{
    Attention, AttentionOperands, BatchMatMul, Gather, PatchConv, PatternAttention, Permute, PermuteTokens,
    TokenOrder,
};
use crate::tensor::{DType, Tensor};

/// Epsilon of the neck's norms.
const NECK_EPSILON: f32 = 1e-6;

/// Builds the graph from pixel values, f32 `[1, 3, H, W]`, to the embedding, `[1, rows · columns, channels]`.
pub(super) fn encoder(name: &str, vision: &Vision, weights: &mut Weights) -> Result<Graph> {
    let Vision {
        dim, image, patch, ..
    } = *vision;
    let mut encoder = Encoder {
        layers: Layers {
            graph: Graph::new(name, [1, 3, image, image], DType::F32),
            weights,
        },
        vision,
    };
    let layers = &mut encoder.layers;
    let pixels = layers.graph.input();
    let weight = layers.constant(
        "vision_encoder.patch_embed.projection.weight",
        &[dim, 3, patch, patch],
    )?;
    let bias = layers.constant("vision_encoder.patch_embed.projection.bias", &[dim])?;
    let op = PatchConv {
        patch: [patch; 2],
        bias: true,
    };
    let mut x = layers.push(Role::Patch, "patch_embed", op, [pixels, weight, bias])?;
    if vision.absolute {
        let positions = encoder.positions()?;
        x = encoder.layers.add(Role::Patch, "positions", x, positions)?;
    }
    for block in 0..vision.depth {
        x = encoder.block(block, x)?;
    }
    let x = encoder.neck(x)?;
    let mut graph = encoder.layers.graph;
    graph.add_output(EMBEDDING, x)?;
    Ok(graph)
}

struct Encoder<'a> {
    layers: Layers<'a>,
    vision: &'a Vision,
}

impl Encoder<'_> {
    /// Returns the position of each patch, `[1, N, D]`.
    fn positions(&mut self) -> Result<ValueId> {
        let (name, grid, dim) = ("vision_encoder.pos_embed", self.vision.grid(), self.vision.dim);
        let stored = self.layers.weights.take(name, &[1, grid, grid, dim])?;
        let table = stored.reshaped([1, grid * grid, dim]);
        let table = table.ok_or_else(|| Error::graph(name, "does not have the elements of its shape"))?;
        Ok(self.layers.graph.constant(name, table))
    }

    fn block(&mut self, index: usize, x: ValueId) -> Result<ValueId> {
        let Vision {
            dim,
            hidden,
            epsilon,
            activation,
            ..
        } = *self.vision;
        let (step, tensors) = (
            format!("blocks.{index}"),
            format!("vision_encoder.layers.{index}"),
        );
        let norm = self.layers.norm(
            &format!("{step}.norm1"),
            x,
            &format!("{tensors}.layer_norm1"),
            dim,
            epsilon,
        )?;
        let y = self.attention(&format!("{step}.attn"), norm, index, &format!("{tensors}.attn"))?;
        let x = self
            .layers
            .add(Role::Attention, &format!("{step}.attn.residual"), x, y)?;
        let norm = self.layers.norm(
            &format!("{step}.norm2"),
            x,
            &format!("{tensors}.layer_norm2"),
            dim,
            epsilon,
        )?;
        let mlp = format!("{step}.mlp");
        let y = self
            .layers
            .network(&mlp, norm, mlp_tensors(&tensors), [dim, hidden], activation)?;
        self.layers.add(Role::Ffn, &format!("{mlp}.residual"), x, y)
    }

    /// Adds attention inside of the block's windows. Padding of windows is zeros before the projections, and is attended to.
    fn attention(&mut self, step: &str, x: ValueId, index: usize, tensors: &str) -> Result<ValueId> {
        let (grid, side, dim) = (self.vision.grid(), self.vision.window_of(index), self.vision.dim);
        let grid = [grid; 2];
        let (rows, windows) = (TokenOrder::rows(grid), TokenOrder::windows(grid, [side; 2]));
        let permuted = |layers: &mut Layers<'_>, step: String, x, [from, to]: [TokenOrder; 2]| {
            if from == to {
                return Ok(x);
            }
            layers.push(Role::Attention, &step, PermuteTokens { grid, from, to }, [x])
        };
        let x = permuted(&mut self.layers, format!("{step}.windows"), x, [rows, windows])?;
        let operands = self.query_and_packed(step, x, &format!("{tensors}.qkv"))?;
        let y = self.scored(step, operands, side, tensors)?;
        let projection = format!("{tensors}.proj");
        let y = self.layers.linear(
            Role::Attention,
            &format!("{step}.proj"),
            y,
            &projection,
            [dim, dim],
        )?;
        permuted(&mut self.layers, format!("{step}.rows"), y, [windows, rows])
    }

    /// Returns the queries, and the keys and values as one tensor.
    fn query_and_packed(&mut self, step: &str, x: ValueId, tensors: &str) -> Result<[ValueId; 2]> {
        let dim = self.vision.dim;
        let weight = format!("{tensors}.weight");
        let mut stored = vec![(self.layers.weights.take(&weight, &[3 * dim, dim])?, weight)];
        if self.vision.qkv_bias {
            let bias = format!("{tensors}.bias");
            stored.push((self.layers.weights.take(&bias, &[3 * dim])?, bias));
        }
        let mut part = |name: &str, rows: std::ops::Range<usize>| {
            let mut operands = vec![x];
            for (tensor, name) in &stored {
                let part: Option<Tensor> = tensor.rows(rows.clone());
                let part = part.ok_or_else(|| Error::graph(name, "has too few rows"))?;
                let provenance = Provenance::from(name.as_str()).then(Change::Rows(rows.clone()));
                operands.push(self.layers.graph.constant(provenance, part));
            }
            self.layers
                .linear_of(Role::Qkv, &format!("{step}.{name}"), operands)
        };
        Ok([part("q", 0..dim)?, part("kv", dim..3 * dim)?])
    }

    /// Adds attention of windows of `side` rows and columns.
    fn scored(&mut self, step: &str, [q, kv]: [ValueId; 2], side: usize, tensors: &str) -> Result<ValueId> {
        let (heads, operands) = (self.vision.heads, AttentionOperands::PackedKv);
        let head_dim = self.vision.dim / heads;
        let scale = (head_dim as f64).sqrt().recip() as f32;
        if !self.vision.relative {
            let op = Attention {
                heads,
                head_dim,
                scale,
                operands,
                ..Attention::default()
            };
            return self.layers.push(Role::Attention, step, op, [q, kv]);
        }
        let windows = self.layers.graph.value(q).shape[0];
        let by_row = [windows, side, side * heads, head_dim];
        let rows = self
            .layers
            .reshaped(Role::Attention, &format!("{step}.query_rows"), q, &by_row)?;
        let of_rows = self.distances(
            &format!("{step}.rel_pos_h"),
            rows,
            &format!("{tensors}.rel_pos_h"),
            side,
        )?;
        let by_token = [windows, side, side, self.vision.dim];
        let columns = self
            .layers
            .reshaped(Role::Attention, &format!("{step}.query_grid"), q, &by_token)?;
        let permute = Permute {
            axes: vec![0, 2, 1, 3],
        };
        let columns = self.layers.push(
            Role::Attention,
            &format!("{step}.query_transposed"),
            permute,
            [columns],
        )?;
        let columns = self.layers.reshaped(
            Role::Attention,
            &format!("{step}.query_columns"),
            columns,
            &by_row,
        )?;
        let of_columns = self.distances(
            &format!("{step}.rel_pos_w"),
            columns,
            &format!("{tensors}.rel_pos_w"),
            side,
        )?;
        let pattern = relative_positions(side as i32, heads as i32);
        let op = PatternAttention::new((heads, head_dim), scale, operands, &pattern)
            .map_err(|error| Error::graph(step, error))?;
        let captured = [(ROWS, of_rows), (COLUMNS, of_columns)];
        let mut inputs = vec![q, kv];
        for tensor in op.program.tensors() {
            let found = captured.iter().find(|(name, _)| **name == *tensor.name);
            inputs.push(
                found
                    .ok_or_else(|| Error::graph(step, "captures an unknown tensor"))?
                    .1,
            );
        }
        self.layers.push(Role::Attention, step, op, inputs)
    }

    /// Returns the products of the queries with the vector of each distance, `[windows, side, side · heads, side]`.
    ///
    /// The queries are `[windows, side, side · heads, head_dim]`. The vectors depend on their second index and that of the key.
    fn distances(&mut self, step: &str, queries: ValueId, tensor: &str, side: usize) -> Result<ValueId> {
        let head_dim = self.vision.dim / self.vision.heads;
        let table = self.layers.constant(tensor, &[2 * side - 1, head_dim])?;
        let pairs = (0..side).flat_map(|query| (0..side).map(move |key| (query + side - 1 - key) as i32));
        let rows = Tensor::from_i32([side, side], &pairs.collect::<Vec<_>>());
        let rows = rows.ok_or_else(|| Error::graph(step, "has windows without patches"))?;
        let name = format!("{step}.distances");
        let rows = self.layers.graph.constant(Provenance::computed(name, []), rows);
        let (name, gather) = (format!("{step}.vectors"), Gather { axis: 0 });
        let vectors = self.layers.push(Role::Attention, &name, gather, [table, rows])?;
        let op = BatchMatMul {
            transpose_a: false,
            transpose_b: true,
        };
        self.layers.push(Role::Attention, step, op, [queries, vectors])
    }

    fn neck(&mut self, x: ValueId) -> Result<ValueId> {
        let (grid, dim, channels) = (self.vision.grid(), self.vision.dim, self.vision.output);
        let (layers, role) = (&mut self.layers, Role::Other);
        let x = layers.reshaped(role, "neck.map", x, &[1, grid, grid, dim])?;
        let x = layers.pointwise("neck.conv1", x, "vision_encoder.neck.conv1", [channels, dim])?;
        let norm = "vision_encoder.neck.layer_norm1";
        let x = layers.norm("neck.norm1", x, norm, channels, NECK_EPSILON)?;
        let x = layers.conv("neck.conv2", x, "vision_encoder.neck.conv2", channels)?;
        let norm = "vision_encoder.neck.layer_norm2";
        let x = layers.norm("neck.norm2", x, norm, channels, NECK_EPSILON)?;
        layers.reshaped(role, "neck.tokens", x, &[1, grid * grid, channels])
    }
}

/// Names of the captured tensors.
const ROWS: &str = "rows";
const COLUMNS: &str = "columns";

/// Adds the products of the query with the distances of rows and columns, in windows of `side` rows and columns.
fn relative_positions(side: i32, heads: i32) -> Pattern {
    let row = |token: Int| token.floor_div(side);
    let column = |token: Int| token.modulo(side);
    let (query, key) = (ints::query(), ints::key());
    let vertical = [
        ints::batch(),
        row(query.clone()),
        column(query.clone()) * heads + ints::head(),
        row(key.clone()),
    ];
    let horizontal = [
        ints::batch(),
        column(query.clone()),
        row(query) * heads + ints::head(),
        column(key),
    ];
    let score = scores::score() + floats::load(ROWS, vertical) + floats::load(COLUMNS, horizontal);
    Pattern::new().with_name("decomposed_relative").with_score(score)
}
