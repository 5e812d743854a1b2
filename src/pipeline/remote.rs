//! Serialised results of one image, to send them to another process with the same model.

use std::fmt;
use std::sync::Arc;

use ndarray::{Array, ArrayView, Axis, Dimension, IntoDimension};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::Item;
use crate::error::{Error, Result};
use crate::outputs::Outputs;
use crate::session::Session;

/// Name and arrays of an [`Item`], without attention statistics.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ItemParts {
    name: String,
    embedding: Values,
    logits: Option<Values>,
    /// All tokens, including those before the patches.
    tokens: Option<Values>,
    /// Hidden layers by block.
    hidden_layers: Vec<(usize, Values)>,
}

impl Item {
    /// Returns the parts of the item. [`from_parts`](Self::from_parts) restores the item from them, bit for bit.
    pub fn parts(&self) -> ItemParts {
        let Outputs {
            embeddings,
            logits,
            tokens,
            hidden_layers,
            ..
        } = &*self.outputs;
        let row = |array| Values::of_row(array, self.row);
        ItemParts {
            name: self.name.clone(),
            embedding: Values::of_row(embeddings.view(), self.row),
            logits: logits
                .as_ref()
                .map(|logits| Values::of_row(logits.view(), self.row)),
            tokens: tokens.as_ref().map(|tokens| row(tokens.view())),
            hidden_layers: hidden_layers
                .iter()
                .map(|(block, tokens)| (*block, row(tokens.view())))
                .collect(),
        }
    }

    /// Creates the item from another process's parts, with the labels of `session`. Both must have the same model.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for arrays that do not fit the session's model or options.
    pub fn from_parts(session: &Session, index: usize, parts: ItemParts) -> Result<Self> {
        let like = session.no_outputs()?;
        let width = |array: &Values| array.shape.last().copied().unwrap_or(0);
        let columns = |shape: &[usize]| shape.last().copied().unwrap_or(0);
        let layers = like.hidden_layers.iter();
        let received = parts.hidden_layers.iter();
        let same = like.embeddings.ncols() == width(&parts.embedding)
            && like.logits.as_ref().map(|logits| columns(logits.shape())) == parts.logits.as_ref().map(width)
            && like.tokens.as_ref().map(|tokens| columns(tokens.shape())) == parts.tokens.as_ref().map(width)
            && layers
                .map(|(block, tokens)| (*block, columns(tokens.shape())))
                .eq(received.map(|(block, tokens)| (*block, width(tokens))));
        if !same {
            return Err(Error::argument(
                "results",
                "are of another model or of other options",
            ));
        }
        let outputs = Outputs {
            embeddings: parts.embedding.into_array()?,
            logits: parts.logits.map(Values::into_array).transpose()?,
            tokens: parts.tokens.map(Values::into_array).transpose()?,
            hidden_layers: parts
                .hidden_layers
                .into_iter()
                .map(|(block, tokens)| Ok((block, tokens.into_array()?)))
                .collect::<Result<_>>()?,
            attention_statistics: Vec::new(),
            ..like
        };
        Ok(Self {
            index,
            name: parts.name,
            outputs: Arc::new(outputs),
            row: 0,
        })
    }

    /// Returns the item at another position among the sources.
    #[must_use]
    pub fn with_index(self, index: usize) -> Self {
        Self { index, ..self }
    }
}

/// Array of one image.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Values {
    shape: Vec<usize>,
    #[serde(serialize_with = "to_bytes", deserialize_with = "from_bytes")]
    values: Vec<f32>,
}

impl Values {
    fn of_row<D: ndarray::RemoveAxis>(array: ArrayView<'_, f32, D>, row: usize) -> Self {
        let array = array.index_axis_move(Axis(0), row);
        Self {
            shape: array.shape().to_vec(),
            values: array.iter().copied().collect(),
        }
    }

    /// Returns the values as the array of one image.
    fn into_array<D: Dimension>(self) -> Result<Array<f32, D>> {
        let shape = [&[1], &self.shape[..]].concat();
        Array::from_shape_vec(shape.into_dimension(), self.values)
            .and_then(Array::into_dimensionality)
            .map_err(|error| Error::argument("results", error))
    }
}

/// Writes the values as little-endian bytes. Separate numbers would be a byte longer each, and slower to read.
fn to_bytes<S: Serializer>(values: &[f32], serializer: S) -> Result<S::Ok, S::Error> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    serializer.serialize_bytes(&bytes)
}

fn from_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f32>, D::Error> {
    struct Bytes;

    impl Visitor<'_> for Bytes {
        type Value = Vec<f32>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the bytes of f32 values")
        }

        fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Vec<f32>, E> {
            match bytes.as_chunks() {
                (values, []) => Ok(values.iter().map(|&value| f32::from_le_bytes(value)).collect()),
                _ => Err(E::invalid_length(bytes.len(), &self)),
            }
        }
    }

    deserializer.deserialize_bytes(Bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::Pipeline;

    fn items(session: &Session) -> Vec<Item> {
        let results = Pipeline::new(session).run(["assets/samples/3.png", "assets/samples/7.png"]);
        results.unwrap().map(Result::unwrap).collect()
    }

    #[test]
    fn an_item_has_the_same_results_in_another_process() {
        let session = Session::builder()
            .tokens(true)
            .hidden_layers([0, 2])
            .tinyvit32()
            .unwrap();
        for item in items(&session) {
            let received = Item::from_parts(&session, 5, item.parts()).unwrap();
            assert_eq!((received.index(), received.name()), (5, item.name()));
            let (was, is) = (item.outputs(), received.outputs());
            assert_eq!(was.embedding(), is.embedding());
            assert_eq!(was.top(10), is.top(10));
            assert_eq!(was.tokens(), is.tokens());
            assert_eq!(was.prefix_tokens(), is.prefix_tokens());
            assert_eq!(was.feature_map(), is.feature_map());
            for block in [0, 2] {
                assert_eq!(was.hidden_layer(block), is.hidden_layer(block));
            }
        }
    }
    #[test]
    fn results_of_other_options_are_refused() {
        let session = Session::tinyvit32().unwrap();
        let with_tokens = Session::builder().tokens(true).tinyvit32().unwrap();
        for (from, to) in [(&session, &with_tokens), (&with_tokens, &session)] {
            let parts = items(from)[0].parts();
            let refused = Item::from_parts(to, 0, parts).unwrap_err();
            assert_eq!(
                refused.to_string(),
                "results: are of another model or of other options"
            );
        }
    }
}
