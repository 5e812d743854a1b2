//! Builds the graph of the text tower, from embedded tokens through the blocks to the embeddings of texts.

use super::Builder;
use crate::error::Result;
use crate::graph::{Graph, OutputKind};
use crate::model::text::spec::{TextPooling, TextSpec};
use crate::model::weights::Weights;
use crate::ops::Pool;

/// Builds the graph from the embedded tokens `[1, context, D]`, with positions added, to the embeddings of texts.
///
/// The output is `[1, width]`. If the token to use depends on the text, the output is `[1, context, width]`, with the
/// embedding for each token.
///
/// # Errors
///
/// Returns the errors of [`build`](super::build).
pub(in crate::model) fn build_text(name: &str, spec: &TextSpec, weights: &mut Weights) -> Result<Graph> {
    let mut graph = Graph::of_tokens(name, [spec.context, spec.trunk.dim]);
    let input = graph.input();
    let mut builder = Builder {
        graph: &mut graph,
        weights,
        vit: &spec.trunk,
        names: spec.names,
        prefix: spec.prefix,
        windows: None,
        hidden_layers: Vec::new(),
        interpolated: None,
        rotary_tables: Vec::new(),
        shared_bias: None,
        key_mask: None,
        documents: None,
        packing: None,
    };
    let tokens = builder.blocks(input)?;
    let (kind, pooled) = match spec.pooling {
        TextPooling::Last => {
            let last = Pool::Token(spec.context - 1);
            (OutputKind::Embedding, builder.pool("pool", tokens, last)?)
        }
        TextPooling::Largest | TextPooling::First(_) => (OutputKind::Tokens, tokens),
    };
    let extents = [spec.width, spec.trunk.dim];
    let embedding = builder.projection(pooled, spec.projection, extents, spec.projection_bias)?;
    graph.set_output(kind, embedding);
    Ok(graph)
}
