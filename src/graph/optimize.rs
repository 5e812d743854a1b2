//! Makes the graph that a model builder wrote into the one that an executor runs: the list of passes, in order.

use super::Graph;
use super::passes::{
    fold_constants, fold_scales, fuse_activations, fuse_patches, fuse_residuals, fuse_tokens, infer_shapes,
    pack_qkv, prune_tokens,
};
use super::rewrite::Rewritten;
use crate::error::Result;

/// Which of the passes with a choice to run; all others always run, since executors rely on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passes {
    /// Fold the normalisation of pixels into the weights of the patch embedding. Executors of half precision had
    /// rather normalise while they extract patches.
    pub fold_normalize: bool,
    /// Where the head reads one token, compute only that token in the last block.
    pub prune_tokens: bool,
}

impl Default for Passes {
    fn default() -> Self {
        Self {
            fold_normalize: true,
            prune_tokens: true,
        }
    }
}

/// What one pass did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct PassReport {
    /// The pass, as its file is called.
    pub name: &'static str,
    /// What it is for, in a few words.
    pub purpose: &'static str,
    /// How many times it did that.
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

/// In this order: constants first, since fusion looks at them; pruning before packing, since it takes queries apart
/// from keys and values; activations before residuals, since a Linear applies them in that order.
const PASSES: [Pass; 9] = [
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
        enabled: ALWAYS,
        run: |graph, _| fold_scales::run(graph),
    },
    Pass {
        name: "prune_tokens",
        purpose: "compute only the token that the head reads",
        enabled: |passes| passes.prune_tokens,
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
        enabled: ALWAYS,
        run: |graph, _| pack_qkv::run(graph),
    },
    Pass {
        name: "fuse_activations",
        purpose: "activations into GEMMs",
        enabled: ALWAYS,
        run: |graph, _| fuse_activations::run(graph),
    },
    Pass {
        name: "fuse_residuals",
        purpose: "residuals into GEMMs",
        enabled: ALWAYS,
        run: |graph, _| fuse_residuals::run(graph),
    },
];

/// Runs the passes over `graph`; the result computes the same outputs, up to rounding.
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
    Ok((graph, reports))
}
