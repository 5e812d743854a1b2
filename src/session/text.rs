//! Embeddings of texts by the text tower of a dual encoder. [`Session::embed_texts`] frees the tower's memory when it returns. A
//! [`TextEncoder`] keeps the tower for further calls.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use ndarray::Array2;
use parking_lot::Mutex;

use super::Session;
use crate::error::{Error, Result};
use crate::exec::{Executor, ExecutorOptions, HipExecutor, Placement, RunOutput};
use crate::graph::plan::Plan;
use crate::graph::{self, Float8, Graph, OutputKind, Passes};
use crate::hip;
use crate::model::TextTower;
use crate::tensor::{DType, Input};

/// Token counts of plans are multiples of this, so that texts of similar lengths share plans.
const TOKENS_STEP: usize = 8;

/// Maximum number of plans of an encoder.
const MAX_PLANS: usize = 64;

/// Embeddings of texts, from [`Session::embed_texts`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TextEmbeddings {
    /// `[texts, D]`, in the space of the images' [embeddings](crate::Outputs::embeddings). Not normalised.
    pub embeddings: Array2<f32>,
    /// Indices, from 0, of the texts that were truncated to the tower's context length.
    pub truncated: Vec<usize>,
}

impl Session {
    /// Returns the text tower.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the model has no text tower.
    pub fn text_tower(&self) -> Result<&TextTower> {
        self.loaded.model.text.as_ref().ok_or_else(|| {
            let reason = format!(
                "{} has no text tower; a CLIP or SigLIP model with both towers has one, such as openai/clip-vit-base-patch32 \
                 or google/siglip-base-patch16-224",
                self.name()
            );
            Error::argument("texts", reason)
        })
    }

    /// Embeds texts with the text tower of the model (CLIP or SigLIP), as transformers' `get_text_features` does.
    ///
    /// The text tower runs on the session's device, the first of several, and uses its memory only during this call.
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
    /// - [`Error::Argument`] if the model has no text tower, or if a text for SigLIP contains a special token.
    /// - [`Error::Config`] if the tokenizer is missing or unusable.
    /// - [`Error::Weights`] if an embedding is NaN or infinite.
    /// - A device error.
    pub fn embed_texts<T: AsRef<str>>(&self, texts: impl IntoIterator<Item = T>) -> Result<TextEmbeddings> {
        let tower = self.text_tower()?;
        let tokenizer = tower.tokenizer()?;
        let texts: Vec<T> = texts.into_iter().collect();
        let tokens = texts.iter().map(|text| tokenizer.encode(text.as_ref()));
        let tokens = tokens.collect::<Result<Vec<_>>>()?;
        let truncated = tokens.iter().enumerate().filter(|(_, tokens)| tokens.truncated);
        let truncated = truncated.map(|(index, _)| index).collect();
        let ids: Vec<&[u32]> = tokens.iter().map(|tokens| tokens.ids.as_slice()).collect();
        let longest = ids.iter().map(|ids| ids.len()).max().unwrap_or(1);
        let encoder = TextEncoder::for_tokens(self, tower.needed(longest))?;
        let embeddings = encoder.embed(&ids)?;
        for (text, row) in texts.iter().zip(embeddings.rows()) {
            if row.iter().any(|value| !value.is_finite()) {
                let text = text.as_ref();
                let reason = format!(
                    "the embedding of \"{text}\" is NaN or infinite; f32 rules out an overflow of {}, else the weights of the text \
                     tower are damaged",
                    self.dtype()
                );
                return Err(Error::weights(self.name(), reason));
            }
        }
        Ok(TextEmbeddings {
            embeddings,
            truncated,
        })
    }
}

/// A text tower that is ready to run, with its weights in the memory of the session's device.
pub struct TextEncoder {
    session: Session,
    executor: Arc<dyn Executor>,
    /// Optimised graph for `tokens` tokens.
    graph: Arc<Graph>,
    tokens: usize,
    /// Dtype of the activations in plans.
    dtype: DType,
    /// Plans by number of tokens and number of texts.
    plans: Mutex<HashMap<(usize, usize), Arc<Plan>>>,
}

impl TextEncoder {
    /// Prepares the text tower of a session for texts of any length.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the model has no text tower, or a device error.
    pub fn new(session: &Session) -> Result<Self> {
        let tower = session.text_tower()?;
        Self::for_tokens(session, tower.needed(usize::MAX))
    }

    /// Prepares the text tower for texts of up to `tokens` tokens.
    fn for_tokens(session: &Session, tokens: usize) -> Result<Self> {
        let tower = session.text_tower()?;
        let dtype = session.dtype();
        let first = session.executor();
        let gpu = first.gpu();
        let passes = Passes {
            fold_normalize: dtype == DType::F32,
            float8: gpu.map_or(Float8::Rounded, |gpu| HipExecutor::float8(gpu, dtype)),
            rounded_rows: gpu.is_some(),
            optimizations: session.graph().optimizations(),
            ..Passes::default()
        };
        let (graph, _) = graph::optimize(tower.graph.with_tokens(tokens)?, &passes)?;
        let threads = Some(session.threads());
        let options = ExecutorOptions {
            threads,
            select: session.loaded.select,
            ..ExecutorOptions::new(dtype)
        };
        let placement = gpu.map_or(Placement::Host, Placement::gpu);
        let executor = placement.executor(&graph, &options)?;
        Ok(Self {
            session: session.clone(),
            dtype: executor.info().activations,
            executor,
            graph: Arc::new(graph),
            tokens,
            plans: Mutex::default(),
        })
    }

    /// Returns the embeddings of texts with token ids `ids`.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a token that the model does not know, or a device error.
    pub fn embed(&self, ids: &[&[u32]]) -> Result<Array2<f32>> {
        let tower = self.session.text_tower()?;
        let mut rows: Vec<f32> = Vec::new();
        for batch in ids.chunks(self.session.batch()) {
            let longest = batch.iter().map(|ids| ids.len()).max().unwrap_or(1);
            let tokens = self.tokens_for(tower.needed(longest));
            let plan = self.plan(tokens, batch.len())?;
            let mut values = Vec::new();
            for ids in batch {
                tower.embed(ids, tokens, &mut values)?;
            }
            for RunOutput { kind, values: output } in
                self.executor.run(&plan, Input::Values(&values), None)?
            {
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
        Array2::from_shape_vec((ids.len(), width), rows).map_err(|e| Error::internal("texts", e))
    }

    /// Returns the number of tokens to run for texts that need `needed`. The executor of a GPU only supports one number.
    fn tokens_for(&self, needed: usize) -> usize {
        if self.executor.gpu().is_some() {
            self.tokens
        } else {
            needed.next_multiple_of(TOKENS_STEP).min(self.tokens)
        }
    }

    fn plan(&self, tokens: usize, texts: usize) -> Result<Arc<Plan>> {
        if let Some(plan) = self.plans.lock().get(&(tokens, texts)) {
            return Ok(plan.clone());
        }
        let graph = if tokens == self.tokens {
            self.graph.clone()
        } else {
            Arc::new(self.graph.with_tokens(tokens)?)
        };
        let plan = Arc::new(Plan::new(graph, texts, self.dtype)?);
        let mut plans = self.plans.lock();
        if plans.len() >= MAX_PLANS {
            plans.clear();
        }
        plans.insert((tokens, texts), plan.clone());
        Ok(plan)
    }

    /// Returns the GPU that the text tower runs on. `None` on the CPU.
    pub fn gpu(&self) -> Option<&hip::Device> {
        self.executor.gpu()
    }
}

impl fmt::Debug for TextEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextEncoder")
            .field("tokens", &self.tokens)
            .finish_non_exhaustive()
    }
}
