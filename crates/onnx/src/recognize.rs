//! Finds hipvit's ops in what exporters write: functions and norms in several steps, biases as
//! additions, attention as products of matrices.
//!
//! The graph computes the same before and after, up to rounding.

mod activations;
mod attention;
mod biases;
mod norms;
mod patches;
mod steps;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests;
mod tokens;
mod view;

use hipvit_graph::{Graph, Result};

/// Replaces patterns by the ops that compute them. `pixels`: see [`Options`](crate::Options::pixels).
pub(crate) fn run(graph: &Graph, pixels: bool) -> Result<Graph> {
    let graph = activations::run(graph)?;
    let graph = norms::run(&graph)?;
    let graph = biases::run(&graph)?;
    let graph = attention::run(&graph)?;
    let graph = tokens::run(&graph)?;
    if pixels { patches::run(&graph) } else { Ok(graph) }
}
