//! The graph of whole texts: all tokens of a text at once, as training reads them.

use hipvit::error::{Error, Result};
use hipvit::graph::{Graph, OutputKind, Role, ValueId};
use hipvit::model::Checkpoint;
use hipvit::ops::{Attention, AttentionOperands, Linear};
use hipvit::tensor::DType;

use super::{Builder, PROJECTION};
use crate::spec::DecoderSpec;

/// Names of the inputs beside the images, each i32 `[images, tokens]`.
pub(crate) mod inputs {
    /// Ids of the tokens that the decoder reads: the first token, then those of the text.
    pub(crate) const TOKENS: &str = "text_tokens";
    /// Rows of the table of positions.
    pub(crate) const POSITIONS: &str = "text_positions";
}

/// Appends the decoder to the graph of its encoder, for texts of `tokens` tokens. The only output is [`OutputKind::Logits`], `[B,T,V]`: what
/// follows each token of a text, given the tokens before it.
///
/// # Errors
///
/// [`Error::Tensor`] for a tensor that is missing or has another shape.
pub(crate) fn append_sequence(
    graph: Graph,
    spec: &DecoderSpec,
    weights: &Checkpoint,
    tokens: usize,
) -> Result<Graph> {
    let mut outputs = graph.outputs().iter();
    let encoded = outputs.find(|(kind, _)| *kind == OutputKind::Tokens);
    let &(_, encoded) =
        encoded.ok_or_else(|| Error::internal("decoder", "the encoder's graph has no tokens"))?;
    let mut builder = Builder::new(graph, spec, weights);
    let logits = builder.sequence(encoded, tokens)?;
    let mut graph = builder.graph;
    graph.retain_outputs(|_| false);
    graph.set_output(OutputKind::Logits, logits);
    Ok(graph)
}

impl Builder<'_> {
    fn sequence(&mut self, mut encoded: ValueId, tokens: usize) -> Result<ValueId> {
        let mut input = |name: &str| self.graph.add_input(name, [1, tokens], DType::I32);
        let (ids, positions) = (input(inputs::TOKENS)?, input(inputs::POSITIONS)?);
        let (mut x, head) = self.embedded(ids, positions)?;
        let (channels, width) = (self.spec.encoder_width, self.spec.width);
        let mut keys = channels;
        if self.spec.projects_encoder {
            let shape = [width, channels];
            encoded = self.linear(Role::Other, PROJECTION, shape, encoded, Linear::default())?;
            keys = width;
        }
        let names = self.spec.names;
        for layer in 0..self.spec.layers {
            let q = self.query(layer, &names.own, x)?;
            let kv = self.keys_and_values(layer, &names.own, width, x)?;
            let attended = self.attend(&format!("blocks.{layer}.text.self"), true, [q, kv])?;
            x = self.attended(layer, &names.own, attended, x)?;
            let q = self.query(layer, &names.cross, x)?;
            let kv = self.keys_and_values(layer, &names.cross, keys, encoded)?;
            let attended = self.attend(&format!("blocks.{layer}.text.cross"), false, [q, kv])?;
            x = self.attended(layer, &names.cross, attended, x)?;
            x = self.feed_forward(layer, x)?;
        }
        self.head(x, head)
    }

    /// Attention of all tokens of a text to its own tokens up to each, or to those of the encoder.
    fn attend(&mut self, name: &str, causal: bool, operands: [ValueId; 2]) -> Result<ValueId> {
        let head_dim = self.spec.head_dim();
        let op = Attention {
            heads: self.spec.heads,
            head_dim,
            scale: 1.0 / (head_dim as f32).sqrt(),
            operands: AttentionOperands::PackedKv,
            causal,
            ..Attention::default()
        };
        self.push(Role::Attention, name, op, &operands)
    }
}
