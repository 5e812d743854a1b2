//! The graph passes, in order: from the graph of a model builder to the graph that an executor runs.

use super::Graph;
use super::passes::{
    attention_statistics, float8, fold_constants, fold_scales, fuse_activations, fuse_gates, fuse_patches,
    fuse_residuals, fuse_tokens, infer_shapes, pack_qkv, pad_hidden, pad_tokens, prune_tokens, round_rows,
};
use super::rewrite::Rewritten;
use crate::error::Result;

/// Which of the optional passes run; all others always run, since executors rely on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passes {
    /// Fold the normalisation of pixels into the weights of the patch embedding. Half-precision executors
    /// normalise during patch extraction instead.
    pub fold_normalize: bool,
    /// Where the head reads one token, compute only that token in the last block.
    pub prune_tokens: bool,
    /// Pad the hidden channels of feed-forward networks, and rows of tokens where linear layers mix tokens, to whole vectors of 16-bit
    /// elements, which fast GEMMs ask for. Executors in f32, whose vectors have fewer elements, gain less.
    pub whole_vectors: bool,
    /// Whether the statistics of each attention's softmax are outputs. No token is pruned then: they are of all queries.
    pub attention_statistics: bool,
    /// Who multiplies in FP8.
    pub float8: Float8,
    /// Whether norms write 8 bits where only linear layers read them, which [round row by row](crate::op::Rounding::is_of_rows): GPUs.
    pub rounded_rows: bool,
    /// What the graph and its executor do for speed; without [`Optimizations::fusion`] only the passes run that executors
    /// rely on.
    pub optimizations: Optimizations,
}

/// How linear layers that [round to FP8](crate::op::Rounding::Float8) are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Float8 {
    /// Each rounds what it multiplies: the CPU.
    #[default]
    Rounded,
    /// GEMMs take FP8, and what only such layers read, with one step, is stored so by whatever computes it: GPUs that have such
    /// GEMMs, in f16 and bf16.
    Stored,
    /// The weights alone are in FP8 and dequantised: other GPUs, and f32.
    Weights,
}

/// What is done for speed or memory, each of which can be left out to measure what it gains: `hipvit bench --ladder`.
/// Results stay within the tolerance of the dtype. All are on by default; replay of HIP graphs is an option of executors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Optimizations {
    /// The passes that fold scales, prune tokens, pack Q, K and V, and fuse activations and residuals into linear layers.
    pub fusion: bool,
    /// Attention as one kernel; else two GEMMs per head and a softmax between. GPUs only.
    pub fused_attention: bool,
    /// Bias, activation and residual in the epilogue of a GEMM, where a library has it. GPUs only.
    pub epilogues: bool,
    /// Activations share the arena's memory once they are no longer needed, and results overwrite operands.
    pub memory_reuse: bool,
    /// The measured choice among the candidates of a step, rather than the default one. GPUs only.
    pub selection: bool,
}

impl Default for Optimizations {
    fn default() -> Self {
        Self {
            fusion: true,
            fused_attention: true,
            epilogues: true,
            memory_reuse: true,
            selection: true,
        }
    }
}

impl Optimizations {
    /// None of them.
    pub const NONE: Self = Self {
        fusion: false,
        fused_attention: false,
        epilogues: false,
        memory_reuse: false,
        selection: false,
    };
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

/// The statistics of one pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct PassReport {
    /// The pass's name, its file's without extension.
    pub name: &'static str,
    /// Its purpose, in a few words.
    pub purpose: &'static str,
    /// How many times it applied.
    pub changes: usize,
    /// Nodes before it ran.
    pub nodes_before: usize,
    /// Nodes after it ran.
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
/// - Pruning precedes packing, since it separates queries from keys and values.
/// - Activations are fused before residuals, since a Linear applies them in that order.
/// - Padding follows the passes that change the layers it pads.
/// - Attention statistics come after these, so that they describe attention's final operands.
/// - FP8 and rows in 8 bits come last, since they depend on the readers of a value.
const PASSES: [Pass; 15] = [
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

/// Runs the passes over `graph`; the result computes the same outputs, up to rounding, and carries the
/// [`Optimizations`] for its plans and its executor.
///
/// # Errors
///
/// [`Error::Graph`](crate::Error::Graph), naming the node, if the graph is not sound.
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
