//! The texts of a run that trains a decoder of texts.

use std::collections::BTreeMap;
use std::path::Path;

use hipvit::error::Error;
use hipvit::model::{Checkpoint, Detokenizer};
use hipvit_data::{Dataset, Splits};
use hipvit_generate::TextDecoder;
use rayon::prelude::*;

use super::error::FitError;
use crate::TextOptions;

/// Token counts of steps are multiples of this, as far as the decoder has positions.
const TOKENS_STEP: usize = 8;

/// Texts as tokens, and the loss of their decoder.
#[derive(Debug)]
pub(super) struct Lines {
    decoder: TextDecoder,
    /// By the number of the caption.
    train: BTreeMap<usize, Vec<u32>>,
    longest: usize,
    pub(super) options: TextOptions,
}

/// Texts of a batch, each `[images, tokens]`.
#[derive(Debug, Default)]
pub(super) struct LineBatch {
    pub(super) tokens: Vec<i32>,
    pub(super) positions: Vec<i32>,
    pub(super) labels: Vec<i32>,
}

impl Lines {
    /// Converts the texts of the splits by the tokenizer of the model in `directory`.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] with the image of a text that is too long. The errors of the decoder's configuration and of the tokenizer.
    pub(super) fn open(directory: &Path, splits: &Splits) -> Result<Self, FitError> {
        let checkpoint = Checkpoint::open(Some(directory))?;
        let decoder = TextDecoder::open(directory, checkpoint.config())?;
        let tokenizer = Detokenizer::load(directory)?;
        let train = tokens(&decoder, &tokenizer, &*splits.train)?;
        let validation = match &splits.validation {
            Some(set) => tokens(&decoder, &tokenizer, &**set)?,
            None => BTreeMap::new(),
        };
        let longest = |texts: &BTreeMap<usize, Vec<u32>>| texts.values().map(Vec::len).max().unwrap_or(0);
        let trained = longest(&train);
        Ok(Self {
            options: TextOptions {
                tokens: trained.next_multiple_of(TOKENS_STEP).min(decoder.context()),
            },
            longest: trained.max(longest(&validation)),
            decoder,
            train,
        })
    }

    /// Returns the number of tokens of the longest text, and the maximum number that the model's files allow to be generated.
    pub(super) fn lengths(&self) -> [usize; 2] {
        [self.longest, self.decoder.generated()]
    }

    /// Returns the texts with these numbers as inputs of a step.
    pub(super) fn batch(&self, labels: &[usize]) -> LineBatch {
        let mut batch = LineBatch::default();
        for label in labels {
            let row = self.decoder.row(&self.train[label], self.options.tokens);
            batch.tokens.extend(row.tokens);
            batch.positions.extend(row.positions);
            batch.labels.extend(row.labels);
        }
        batch
    }
}

/// Returns the texts of a dataset's images as tokens, by their numbers.
fn tokens(
    decoder: &TextDecoder,
    tokenizer: &Detokenizer,
    dataset: &dyn Dataset,
) -> Result<BTreeMap<usize, Vec<u32>>, FitError> {
    // After a hold-out, both splits name the texts of all images.
    let mut images: BTreeMap<usize, usize> = BTreeMap::new();
    for index in 0..dataset.len() {
        images.entry(dataset.label(index)).or_insert(index);
    }
    let texts = images.into_par_iter().map(|(label, image)| {
        let tokens = decoder.tokens(tokenizer, &dataset.classes()[label]);
        let tokens = tokens.map_err(|error| match error {
            Error::Argument { what, reason } => {
                Error::argument(what, format!("of {} {reason}", dataset.name(image)))
            }
            other => other,
        })?;
        Ok::<_, FitError>((label, tokens))
    });
    texts.collect()
}
