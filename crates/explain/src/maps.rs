//! Attention maps, and rollout of attention over all layers.

use ndarray::{Array2, Array3, ArrayView2, Axis};

use super::program::Run;
use hipvit::graph::Graph;
use hipvit::ops::Op;
use hipvit::reference::Real;

/// Attention probabilities of one layer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AttentionMap {
    /// Name of the layer, such as `blocks.3.attn`.
    pub name: String,
    /// Index of the layer's block, which may have several layers. `None` for a pooling layer.
    pub block: Option<usize>,
    /// Probabilities, `[heads, queries, keys]`. The rows sum to 1. A pooling layer has one query.
    pub weights: Array3<f32>,
}

impl AttentionMap {
    /// Returns the mean over the heads, `[queries, keys]`.
    pub fn mean(&self) -> Array2<f32> {
        self.weights.mean_axis(Axis(0)).unwrap_or_default()
    }

    /// Returns per attention head how much the tokens that the model's head uses read from each key, `[heads, keys]`.
    pub(super) fn by_head(&self, readout: &[f64]) -> Array2<f32> {
        let one = [1.0];
        let (heads, queries, keys) = self.weights.dim();
        let readout = if queries == 1 { &one[..] } else { readout };
        let rows = self.weights.outer_iter().flat_map(|head| read(head, readout));
        let values = rows.map(|v| v as f32).collect();
        Array2::from_shape_vec((heads, keys), values).unwrap_or_default()
    }
}

/// Returns how much `readout`, a distribution over queries, reads from each key.
fn read(weights: ArrayView2<'_, f32>, readout: &[f64]) -> Vec<f64> {
    let mut read = vec![0.0; weights.ncols()];
    for (row, &share) in weights.rows().into_iter().zip(readout) {
        let products = row.iter().map(|&w| share * f64::from(w));
        read.iter_mut().zip(products).for_each(|(sum, part)| *sum += part);
    }
    read
}

/// Returns the attention maps of a forward pass of one image, in the order of the layers.
pub(super) fn attention_maps<T: Real>(run: &Run<'_, T>) -> Vec<AttentionMap> {
    let mut maps = Vec::new();
    for node in run.graph().nodes() {
        if let Op::Attention(spec) = &node.op {
            let probabilities = spec.probabilities(&run.operands(node));
            let (shape, values) = (probabilities.shape(), probabilities.to_f32());
            let shape = (shape[1], shape[2], shape[3]);
            maps.push(AttentionMap {
                name: node.name.clone(),
                block: node.block(),
                weights: Array3::from_shape_vec(shape, values).unwrap_or_default(),
            });
        }
    }
    maps
}

/// Returns the share of each of the last block's tokens in the input of the model's head: one token, or several in equal parts.
pub(super) fn readout(graph: &Graph, tokens: usize) -> Vec<f64> {
    let mut read = vec![0.0; tokens];
    for node in graph.nodes() {
        let Op::Pool(pool) = &node.op else { continue };
        if graph.value(node.inputs[0]).shape.get(1) != Some(&tokens) {
            continue;
        }
        let range = pool.tokens(tokens);
        let share = 1.0 / range.len() as f64;
        range.for_each(|token| read[token] += share);
    }
    let sum: f64 = read.iter().sum();
    if sum == 0.0 {
        // Attention pooling: its map is one of the layers' maps.
        return vec![1.0 / tokens as f64; tokens];
    }
    read.iter().map(|share| share / sum).collect()
}

/// Computes attention rollout (Abnar & Zuidema, ACL 2020, <https://arxiv.org/abs/2005.00928>), one value per token: how much of each input
/// token reaches the model's head. Each block contributes half of the mean attention and half of the residual stream. The mean is over all
/// heads of all attention layers of the block.
pub(super) fn rollout(maps: &[AttentionMap], readout: &[f64]) -> Vec<f64> {
    let mut flow = readout.to_vec();
    for block in maps
        .chunk_by(|a, b| a.block.is_some() && a.block == b.block)
        .rev()
    {
        if let [pooling @ AttentionMap { block: None, .. }] = block {
            // Pooling has no residual stream.
            let queries = pooling.weights.dim().1;
            flow = read(pooling.mean().view(), &vec![1.0 / queries as f64; queries]);
            continue;
        }
        let share = 0.5 / block.len() as f64;
        let mut next: Vec<f64> = flow.iter().map(|flow| 0.5 * flow).collect();
        for map in block {
            let attended = read(map.mean().view(), &flow);
            next.iter_mut()
                .zip(attended)
                .for_each(|(next, a)| *next += share * a);
        }
        flow = next;
    }
    flow
}
