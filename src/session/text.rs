//! Embeddings of texts by the text tower of a dual encoder. [`Session::embed_texts`] keeps the tower on the session's device for further calls,
//! as a [`TextEncoder`] does for token ids.

use std::fmt;
use std::sync::Arc;

use ndarray::Array2;
use rayon::prelude::*;

use super::Session;
use super::text_runner::{TextDevice, TextRunner};
use crate::error::{Error, Result};
use crate::hip;
use crate::model::TextTower;

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
    /// The text tower runs on the session's device, the first of several. It is put there by the first call, and stays.
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
        let most = self.text_tower()?.needed(usize::MAX);
        self.embed_by(texts, |needed| {
            self.loaded
                .texts
                .get([needed, most], |tokens| self.text_runner(tokens))
        })
    }

    /// Embeds texts as [`embed_texts`](Self::embed_texts), but frees the text tower's memory before it returns.
    pub(crate) fn embed_texts_once<T: AsRef<str>>(
        &self,
        texts: impl IntoIterator<Item = T>,
    ) -> Result<TextEmbeddings> {
        self.embed_by(texts, |needed| Ok(Arc::new(self.text_runner(needed)?)))
    }

    fn text_runner(&self, tokens: usize) -> Result<TextRunner> {
        let on = TextDevice {
            gpu: self.executor().gpu(),
            dtype: self.dtype(),
            optimizations: self.graph().optimizations(),
            threads: self.threads(),
            select: self.loaded.select,
        };
        TextRunner::new(self.text_tower()?, tokens, on)
    }

    fn embed_by<T: AsRef<str>>(
        &self,
        texts: impl IntoIterator<Item = T>,
        runner: impl FnOnce(usize) -> Result<Arc<TextRunner>>,
    ) -> Result<TextEmbeddings> {
        let tower = self.text_tower()?;
        let tokenizer = tower.tokenizer()?;
        let texts: Vec<T> = texts.into_iter().collect();
        let plain: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
        let encode = || plain.par_iter().map(|text| tokenizer.encode(text)).collect();
        let tokens: Result<Vec<_>> = self.executor().info().host.install(encode);
        let tokens = tokens?;
        let truncated = tokens.iter().enumerate().filter(|(_, tokens)| tokens.truncated);
        let truncated = truncated.map(|(index, _)| index).collect();
        let ids: Vec<&[u32]> = tokens.iter().map(|tokens| tokens.ids.as_slice()).collect();
        let longest = ids.iter().map(|ids| ids.len()).max().unwrap_or(1);
        let embeddings = runner(tower.needed(longest))?.embed(tower, &ids, self.batch())?;
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
    runner: TextRunner,
}

impl TextEncoder {
    /// Prepares the text tower of a session for texts of any length.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the model has no text tower, or a device error.
    pub fn new(session: &Session) -> Result<Self> {
        let tokens = session.text_tower()?.needed(usize::MAX);
        Ok(Self {
            session: session.clone(),
            runner: session.text_runner(tokens)?,
        })
    }

    /// Returns the embeddings of texts with token ids `ids`.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a token that the model does not know, or a device error.
    pub fn embed(&self, ids: &[&[u32]]) -> Result<Array2<f32>> {
        let tower = self.session.text_tower()?;
        self.runner.embed(tower, ids, self.session.batch())
    }

    /// Returns the GPU that the text tower runs on. `None` on the CPU.
    pub fn gpu(&self) -> Option<&hip::Device> {
        self.runner.gpu()
    }
}

impl fmt::Debug for TextEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextEncoder")
            .field("tokens", &self.runner.tokens())
            .finish_non_exhaustive()
    }
}
