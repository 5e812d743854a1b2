//! Infers all shapes, drops nodes that no output needs, and verifies the result; runs before and after the other passes.

use crate::error::Result;
use crate::graph::Graph;
use crate::rewrite::{Rewritten, rewrite};

/// Counts the nodes that no output needed.
pub(crate) fn run(graph: &Graph) -> Result<Rewritten> {
    graph.verify()?;
    let rewritten = rewrite(graph, |_, _| Ok(None))?;
    Ok(Rewritten {
        changes: graph.nodes().len() - rewritten.graph.nodes().len(),
        ..rewritten
    })
}
