//! Texts through the text tower of a dual encoder. Its executor lives as long as it takes: texts are embedded once, and the
//! GPU's memory is the images' then.

use std::sync::Arc;

use ndarray::Array2;

use super::Session;
use crate::error::{Error, Result};
use crate::exec::{Executor, HipExecutor};
use crate::graph::plan::Plan;
use crate::graph::{self, Float8, OutputKind, Passes};
use crate::model::TextTower;
use crate::tensor::{DType, Input};

/// The embeddings of some texts. Made by [`Session::embed_texts`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TextEmbeddings {
    /// `[texts, D]`, in the space of the images' [embeddings](crate::Outputs::embeddings); not of unit length.
    pub embeddings: Array2<f32>,
    /// Which texts, counted from 0, were longer than the tower's context: their ends were left out.
    pub truncated: Vec<usize>,
}

impl Session {
    /// The text tower.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the model has none.
    pub(crate) fn text_tower(&self) -> Result<&TextTower> {
        self.loaded.text.as_ref().ok_or_else(|| {
            let reason = format!(
                "{} has no text tower; a CLIP or SigLIP model with both towers has one, such as openai/clip-vit-base-patch32 \
                 or google/siglip-base-patch16-224",
                self.name()
            );
            Error::argument("texts", reason)
        })
    }

    /// Embeds texts with the text tower of a model that has one, CLIP's or SigLIP's, as transformers' `get_text_features` does.
    ///
    /// The text tower runs on the session's device, the first of several, and takes its memory only for this call.
    ///
    /// ```
    /// # fn main() -> hipvit::Result<()> {
    /// use hipvit::Session;
    ///
    /// let session = Session::load("tests/golden/zero_shot/hf_clip")?;
    /// let texts = session.embed_texts(["a photo of a cat", "a photo of a dog"])?;
    /// assert_eq!(texts.embeddings.nrows(), 2);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the model has no text tower, [`Error::Config`] if it has no tokenizer or one that is unusable; an
    /// error of the device.
    pub fn embed_texts<T: AsRef<str>>(&self, texts: impl IntoIterator<Item = T>) -> Result<TextEmbeddings> {
        let tower = self.text_tower()?;
        let tokenizer = tower.tokenizer()?;
        let texts: Vec<T> = texts.into_iter().collect();
        let tokens = texts.iter().map(|text| tokenizer.encode(text.as_ref()));
        let tokens = tokens.collect::<Result<Vec<_>>>()?;
        let truncated = tokens.iter().enumerate().filter(|(_, tokens)| tokens.truncated);
        let truncated = truncated.map(|(index, _)| index).collect();
        let ids: Vec<&[u32]> = tokens.iter().map(|tokens| tokens.ids.as_slice()).collect();
        let embeddings = self.embed_tokens(tower, &ids)?;
        for (text, row) in texts.iter().zip(embeddings.rows()) {
            if row.iter().any(|value| !value.is_finite()) {
                let text = text.as_ref();
                let reason = format!(
                    "the embedding of \"{text}\" is NaN or infinite; f32 rules out an overflow of {}, else the weights of the text \
                     tower are damaged",
                    self.dtype()
                );
                return Err(Error::argument("texts", reason));
            }
        }
        Ok(TextEmbeddings {
            embeddings,
            truncated,
        })
    }

    /// The embeddings of texts whose tokens are `ids`.
    fn embed_tokens(&self, tower: &TextTower, ids: &[&[u32]]) -> Result<Array2<f32>> {
        let longest = ids.iter().map(|ids| ids.len()).max().unwrap_or(1);
        let tokens = tower.needed(longest);
        let gpu = self.executor().gpu();
        let passes = Passes {
            fold_normalize: self.dtype() == DType::F32,
            float8: gpu.map_or(Float8::Rounded, |gpu| HipExecutor::float8(gpu, self.dtype())),
            rounded_rows: gpu.is_some(),
            optimizations: self.graph().optimizations(),
            ..Passes::default()
        };
        let (graph, _) = graph::optimize(tower.graph.with_tokens(tokens)?, &passes)?;
        let first = self.executor();
        let executor = match first.gpu() {
            None => Executor::cpu(&graph, self.dtype(), Some(self.threads()))?,
            Some(gpu) => {
                let select = self.loaded.select;
                Executor::hip(&graph, gpu, self.dtype(), Some(self.threads()), select)?
            }
        };
        let graph = Arc::new(graph);
        let dtype = executor.activations(self.dtype());
        let mut rows: Vec<f32> = Vec::new();
        let mut plan: Option<Arc<Plan>> = None;
        for batch in ids.chunks(self.batch()) {
            let plan = match plan.take().filter(|plan| plan.batch() == batch.len()) {
                Some(same) => plan.insert(same),
                None => plan.insert(Arc::new(Plan::new(graph.clone(), batch.len(), dtype)?)),
            };
            let mut values = Vec::new();
            for ids in batch {
                tower.embed(ids, tokens, &mut values)?;
            }
            for (kind, output) in executor.run(plan, Input::Values(&values), None)? {
                match kind {
                    OutputKind::Embedding => rows.extend(output.iter()),
                    OutputKind::Tokens => {
                        for (index, ids) in batch.iter().enumerate() {
                            rows.extend(output.row(index * tokens + tower.pooled(ids)));
                        }
                    }
                    _ => {}
                }
            }
        }
        let width = rows.len() / ids.len().max(1);
        Array2::from_shape_vec((ids.len(), width), rows).map_err(|e| Error::argument("texts", e))
    }
}
