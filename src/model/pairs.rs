//! The graph of both towers of a dual encoder, for training on pairs of images and texts.

use super::loaded::Model;
use super::splice::splice;
use super::text::TextTower;
use crate::error::{Error, Result};
use crate::graph::{Graph, Role, ValueId};
use crate::ops::{BatchMatMul, Gather, Reshape, Slice, Tokens};
use crate::tensor::DType;

/// Output of [`Model::pairs`] with the embeddings of texts.
pub const TEXT_EMBEDDING: &str = "text_embedding";

/// Names of the inputs of [`Model::pairs`] beside the images.
pub mod pair_inputs {
    /// i32 `[texts, tokens]`: ids of the tokens, of any value after a text's last one.
    pub const TOKENS: &str = "text_tokens";
    /// f32 `[texts, 1, tokens]`: 1 for the token that represents the text, and 0 for the others. Only if the token depends on the text.
    pub const PLACES: &str = "text_places";
}

/// A text as an input of [`Model::pairs`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextInput {
    /// Ids of the tokens.
    pub ids: Vec<u32>,
    /// Index of the token that represents the text.
    pub place: usize,
}

impl Model {
    /// Returns the graph of both towers for texts of `tokens` tokens. Its outputs are those of the images' graph, and the
    /// [`TEXT_EMBEDDING`]s `[texts, D]`, which are not normalised. [`pair_inputs`] names the inputs of texts.
    ///
    /// Nodes of the text tower are named `text.…`, and `blocks.<index>.text.…` in its blocks.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the model has no text tower, or if its context is not as long. [`Error::Op`] for an invalid graph.
    pub fn pairs(&self, tokens: usize) -> Result<Graph> {
        let Some(tower) = &self.text else {
            let reason = format!("{} has no text tower, as CLIP and SigLIP models have", self.name);
            return Err(Error::argument("model", reason));
        };
        let mut graph = self.graph.clone();
        let embedding = tower.append(&mut graph, tokens)?;
        graph.add_output(TEXT_EMBEDDING, embedding)?;
        Ok(graph)
    }
}

impl TextTower {
    /// Returns a text with token ids `ids` as an input of [`Model::pairs`].
    pub fn pair_input(&self, ids: Vec<u32>) -> TextInput {
        TextInput {
            place: self.pooled(&ids),
            ids,
        }
    }

    /// Appends the tower to the graph of an image tower. Returns the embeddings of texts.
    fn append(&self, graph: &mut Graph, tokens: usize) -> Result<ValueId> {
        let (context, width) = (self.context(), self.width());
        if tokens == 0 || tokens > context {
            let reason = format!("of {tokens} tokens do not fit the context of {context} tokens");
            return Err(Error::argument("texts", reason));
        }
        let tower = self.graph.with_tokens(tokens)?;
        let embedded = self.append_embedding(graph, tokens)?;
        let outputs = splice(graph, &tower, &[(tower.input(), embedded)], "text")?;
        let output = outputs.first().copied();
        let output = output.ok_or_else(|| Error::graph(tower.name(), "has no output"))?;
        if !self.pools_by_text() {
            return Ok(output);
        }
        let places = graph.add_input(pair_inputs::PLACES, [1, 1, tokens], DType::F32)?;
        let product = BatchMatMul::default();
        let pooled = graph.push(Role::Other, "text.pool", product, [places, output])?;
        let reshape = Reshape {
            extents: vec![1, width],
            batch: Some(0),
        };
        Ok(graph.push(Role::Other, "text.embedding", reshape, [pooled])?)
    }

    /// Appends the tokens' embeddings, with their positions.
    fn append_embedding(&self, graph: &mut Graph, tokens: usize) -> Result<ValueId> {
        let [(of_tokens, table), (of_positions, positions)] = self.tables();
        let ids = graph.add_input(pair_inputs::TOKENS, [1, tokens], DType::I32)?;
        let table = graph.constant(of_tokens, table.clone());
        let positions = positions.reshaped([&[1], positions.shape()].concat());
        let positions = positions.ok_or_else(|| Error::graph(of_positions, "is no table of positions"))?;
        let mut positions = graph.constant(of_positions, positions);
        if tokens < self.context() {
            let first = Slice::new(1, 0, tokens);
            positions = graph.push(Role::Patch, "text.positions", first, [positions])?;
        }
        let gather = Gather { axis: 0 };
        let rows = graph.push(Role::Patch, "text.tokens", gather, [table, ids])?;
        let add = Tokens {
            prefix: false,
            position: true,
        };
        Ok(graph.push(Role::Patch, "text.embedded", add, [rows, positions])?)
    }
}
