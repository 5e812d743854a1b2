//! The graph passes in order: they turn the graph of a model builder into the graph that an executor runs.

use crate::error::Result;
use crate::graph::Graph;
use crate::optimizations::Optimizations;
use crate::passes::{
    attention_statistics, bias_gradients, cancel_permutes, float8, fold_constants, fold_scales,
    fuse_activations, fuse_elementwise, fuse_gates, fuse_patches, fuse_residuals, fuse_roundings,
    fuse_tokens, infer_shapes, pack_qkv, pad_hidden, pad_tokens, prune_tokens, round_rows,
};
use crate::rewrite::Rewritten;

/// Options of the passes. Passes without an option always run, since executors rely on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passes {
    /// Fold the normalisation of pixels into the weights of the patch embedding. Half-precision executors normalise during patch extraction
    /// instead.
    pub fold_normalize: bool,
    /// Compute only the token that the head reads in the last block, if the head reads one token.
    pub prune_tokens: bool,
    /// Pad the hidden channels of feed-forward networks, and rows of tokens if linear layers mix tokens, to whole vectors of 16-bit
    /// elements. Fast GEMMs require this. Executors in f32 gain less, since their vectors have fewer elements.
    pub whole_vectors: bool,
    /// Make the softmax statistics of each attention layer outputs. They cover all queries, so that no token is pruned.
    pub attention_statistics: bool,
    /// Computation of FP8 layers.
    pub float8: Float8,
    /// Let norms write 8 bits if only linear layers read them that [round row by row](crate::op::Rounding::is_of_rows). For GPUs.
    pub rounded_rows: bool,
    /// Optimisations of the graph and its executor. Without [`Optimizations::fusion`] only the passes run that executors rely on.
    pub optimizations: Optimizations,
}

/// Computation of linear layers that [round to FP8](crate::op::Rounding::Float8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Float8 {
    /// Each layer rounds its operands. For the CPU.
    #[default]
    Rounded,
    /// GEMMs multiply FP8. A value that only such layers read, with one scale, is stored in FP8 by the op that computes it, as are the
    /// results of [`RoundFloat8`](crate::op::RoundFloat8). For GPUs with FP8 GEMMs, in f16 and bf16.
    Stored,
    /// Only the weights are in FP8, and dequantised. For other GPUs and for f32.
    Weights,
}

impl Default for Passes {
    fn default() -> Self {
        Self {
            fold_normalize: true,
            prune_tokens: true,
            whole_vectors: false,
            attention_statistics: false,
            float8: Float8::default(),
            rounded_rows: false,
            optimizations: Optimizations::default(),
        }
    }
}

/// Statistics of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct PassReport {
    /// Name of the pass, which is its file's name without extension.
    pub name: &'static str,
    /// Purpose in a few words.
    pub purpose: &'static str,
    /// Number of times that the pass applied.
    pub changes: usize,
    /// Number of nodes before the pass.
    pub nodes_before: usize,
    /// Number of nodes after the pass.
    pub nodes_after: usize,
}

struct Pass {
    name: &'static str,
    purpose: &'static str,
    enabled: fn(&Passes) -> bool,
    run: fn(&Graph, &Passes) -> Result<Rewritten>,
}

const ALWAYS: fn(&Passes) -> bool = |_| true;
const FUSION: fn(&Passes) -> bool = |passes| passes.optimizations.fusion;

/// The passes in the order in which they run:
///
/// - Constants are folded first, since fusion inspects them.
/// - Permutations that cancel would separate the ops that later passes fuse.
/// - Pruning precedes packing, since it separates queries from keys and values.
/// - Activations are fused before residuals, since a Linear applies them in that order.
/// - Elementwise ops are fused after those that become part of other ops.
/// - Padding follows the passes that change the layers it pads.
/// - Attention statistics come after these, so that they describe attention's final operands.
/// - FP8 and rows in 8 bits come last, since they depend on the readers of a value.
const PASSES: [Pass; 19] = [
    Pass {
        name: "infer_shapes",
        purpose: "infer and check all shapes, drop unused nodes",
        enabled: ALWAYS,
        run: |graph, _| infer_shapes::run(graph),
    },
    Pass {
        name: "fold_constants",
        purpose: "compute what does not depend on the image",
        enabled: ALWAYS,
        run: |graph, _| fold_constants::run(graph),
    },
    Pass {
        name: "cancel_permutes",
        purpose: "permutations of axes to where they cancel",
        enabled: FUSION,
        run: |graph, _| cancel_permutes::run(graph),
    },
    Pass {
        name: "fold_scales",
        purpose: "fold LayerScale and factors into weights",
        enabled: FUSION,
        run: |graph, _| fold_scales::run(graph),
    },
    Pass {
        name: "prune_tokens",
        purpose: "compute only the token that the head reads",
        enabled: |passes| passes.prune_tokens && !passes.attention_statistics && passes.optimizations.fusion,
        run: |graph, _| prune_tokens::run(graph),
    },
    Pass {
        name: "fuse_patches",
        purpose: "patch convolution as extraction and GEMM",
        enabled: ALWAYS,
        run: |graph, passes| fuse_patches::run(graph, passes.fold_normalize),
    },
    Pass {
        name: "fuse_tokens",
        purpose: "prefix tokens and positions in one step",
        enabled: ALWAYS,
        run: |graph, _| fuse_tokens::run(graph),
    },
    Pass {
        name: "pack_qkv",
        purpose: "queries, keys and values in one GEMM",
        enabled: FUSION,
        run: |graph, _| pack_qkv::run(graph),
    },
    Pass {
        name: "fuse_activations",
        purpose: "activations into linear layers",
        enabled: FUSION,
        run: |graph, _| fuse_activations::run(graph),
    },
    Pass {
        name: "fuse_gates",
        purpose: "norms of gates into the gates",
        enabled: FUSION,
        run: |graph, _| fuse_gates::run(graph),
    },
    Pass {
        name: "fuse_residuals",
        purpose: "residuals into linear layers",
        enabled: FUSION,
        run: |graph, _| fuse_residuals::run(graph),
    },
    Pass {
        name: "bias_gradients",
        purpose: "gradients of biases with those of weights",
        enabled: FUSION,
        run: |graph, _| bias_gradients::run(graph),
    },
    Pass {
        name: "fuse_roundings",
        purpose: "activations and slopes into roundings to FP8",
        enabled: FUSION,
        run: |graph, _| fuse_roundings::run(graph),
    },
    Pass {
        name: "fuse_elementwise",
        purpose: "chains of elementwise ops",
        enabled: FUSION,
        run: |graph, _| fuse_elementwise::run(graph),
    },
    Pass {
        name: "pad_hidden",
        purpose: "hidden channels as whole vectors",
        enabled: |passes| passes.whole_vectors && passes.optimizations.fusion,
        run: |graph, _| pad_hidden::run(graph),
    },
    Pass {
        name: "pad_tokens",
        purpose: "rows of tokens as whole vectors",
        enabled: |passes| passes.whole_vectors && passes.optimizations.fusion,
        run: |graph, _| pad_tokens::run(graph),
    },
    Pass {
        name: "attention_statistics",
        purpose: "statistics of each softmax beside attention",
        enabled: |passes| passes.attention_statistics,
        run: |graph, _| attention_statistics::run(graph),
    },
    Pass {
        name: "float8",
        purpose: "activations in FP8 where only FP8 layers read them",
        enabled: |passes| passes.float8 != Float8::Rounded,
        run: |graph, passes| float8::run(graph, passes.float8 == Float8::Stored),
    },
    Pass {
        name: "round_rows",
        purpose: "norms in 8 bits where only layers of such rows read them",
        enabled: |passes| passes.rounded_rows && passes.optimizations.fusion,
        run: |graph, _| Ok(round_rows::run(graph)),
    },
];

/// Runs the passes over `graph`. The result computes the same outputs, up to rounding, and has the [`Optimizations`] for its plans and its
/// executor.
///
/// # Errors
///
/// [`Error::Graph`](crate::Error::Graph), naming the node, if the graph is invalid.
pub fn optimize(mut graph: Graph, passes: &Passes) -> Result<(Graph, Vec<PassReport>)> {
    let mut reports = Vec::with_capacity(PASSES.len());
    for pass in PASSES.iter().filter(|pass| (pass.enabled)(passes)) {
        let rewritten = (pass.run)(&graph, passes)?;
        rewritten.graph.verify()?;
        reports.push(PassReport {
            name: pass.name,
            purpose: pass.purpose,
            changes: rewritten.changes,
            nodes_before: graph.nodes().len(),
            nodes_after: rewritten.graph.nodes().len(),
        });
        graph = rewritten.graph;
    }
    graph.optimizations = passes.optimizations;
    Ok((graph, reports))
}
