//! Infers every shape anew, drops what no output needs, and checks the result: what a graph must pass before and
//! after it is changed.

use crate::error::Result;
use crate::graph::Graph;
use crate::graph::rewrite::{Rewritten, rewrite};

/// Counts the nodes that no output needed.
pub(in crate::graph) fn run(graph: &Graph) -> Result<Rewritten> {
    graph.verify()?;
    let rewritten = rewrite(graph, |_, _| Ok(None))?;
    Ok(Rewritten {
        changes: graph.nodes().len() - rewritten.graph.nodes().len(),
        ..rewritten
    })
}
