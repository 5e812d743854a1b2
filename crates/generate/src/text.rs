//! Texts in progress and their events.

use hipvit::error::Error;

use crate::prompt::First;
use crate::sampling::{Sampling, rules_of};
use crate::step_inputs::Row;

/// Identifies a text of a [`Generator`](crate::Generator). Later texts have larger ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TextId(pub(crate) u64);

/// A text of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generated {
    /// The text, without special tokens.
    pub text: String,
    /// The new tokens, with the one that ended the text.
    pub tokens: Vec<u32>,
    /// Why the text ended.
    pub finish: Finish,
    /// Number of tokens of the prompt, with those of an image in the text's sequence. 0 without a prompt.
    pub prompt_tokens: usize,
}

/// Why a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model ended it.
    End,
    /// It reached the maximum number of tokens.
    Length,
}

/// An event of a text in a [step](crate::Generator::step).
#[derive(Debug)]
pub struct Progress {
    /// The text.
    pub text: TextId,
    /// The event.
    pub event: Event,
}

/// Kind of [`Progress`].
#[derive(Debug)]
pub enum Event {
    /// The next token.
    Token(u32),
    /// The text is complete, and has left.
    Finished(Generated),
    /// The text has left because of an error that other texts do not have.
    Failed(Error),
}

/// Maximum number of tokens of a text that a step computes if the text has them already. A step's memory grows with its rows.
pub(crate) const KNOWN: usize = 32;

/// Rules of one text.
#[derive(Clone, Debug)]
pub(crate) struct TextRules {
    /// Tokens that the text begins with.
    pub(crate) first: First,
    /// Maximum number of tokens, with the first ones.
    pub(crate) length: usize,
    /// The last token of a text of this length, whatever the logits are.
    pub(crate) forced_end: Option<u32>,
    pub(crate) sampling: Option<Sampling>,
    /// Maximum tokens of a draft.
    pub(crate) draft: usize,
    /// Index of the image, for `sampling`.
    pub(crate) index: usize,
}

/// A text in progress.
#[derive(Clone, Debug)]
pub(crate) struct Sequence {
    pub(crate) id: TextId,
    pub(crate) rules: TextRules,
    /// Number of the image in the cache.
    pub(crate) image: usize,
    pub(crate) pages: Vec<u32>,
    pub(crate) tokens: Vec<u32>,
    /// Tokens whose keys and values are in the cache.
    pub(crate) cached: usize,
    /// Guessed tokens after `tokens`, which the next step checks.
    pub(crate) draft: Vec<u32>,
}

impl Sequence {
    /// Returns the sequence of the image with number `image`, with its first tokens.
    pub(crate) fn new(id: TextId, rules: TextRules, image: usize) -> Self {
        Self {
            id,
            image,
            pages: Vec::new(),
            tokens: rules.first.tokens.clone(),
            rules,
            cached: 0,
            draft: Vec::new(),
        }
    }

    /// Returns the maximum number of guessed tokens for the next step.
    pub(crate) fn draft_tokens(&self) -> usize {
        let rules = &self.rules;
        if rules.sampling.is_some() || self.cached + 1 < self.tokens.len() {
            return 0;
        }
        // The token after the draft is within the length too.
        let most = rules.length.saturating_sub(self.tokens.len() + 1);
        rules.draft.min(most)
    }

    /// Returns true if there is a page for the next token.
    pub(crate) fn is_computed(&self) -> bool {
        !self.pages.is_empty()
    }

    /// Returns the next token to compute.
    pub(crate) fn row(&self) -> Row<'_> {
        self.row_at(self.cached)
    }

    /// Returns a token of the text, or of its draft.
    fn row_at(&self, position: usize) -> Row<'_> {
        let guessed = (position + 1).saturating_sub(self.tokens.len());
        Row {
            token: match guessed {
                0 => self.tokens[position],
                _ => self.draft[guessed - 1],
            },
            position,
            pages: &self.pages,
            image: self.image,
            feature: self.rules.first.feature(position),
            rules: rules_of(self.rules.sampling.as_ref(), [position + 1, self.rules.index]),
            history: [&self.tokens[..position + 1 - guessed], &self.draft[..guessed]],
        }
    }

    /// Returns the number of the text's own tokens that the next step computes. It is 1 unless the text has a prompt, or lost its part of the cache.
    pub(crate) fn known(&self) -> usize {
        (self.tokens.len() - self.cached).min(KNOWN)
    }

    /// Returns the tokens that the next step computes: the text's own, then those of the draft.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        (self.cached..self.cached + self.known() + self.draft.len()).map(|position| self.row_at(position))
    }

    /// Returns the next token of a text of `length` tokens if it does not depend on the logits.
    pub(crate) fn forced(&self, length: usize) -> Option<u32> {
        self.rules.forced_end.filter(|_| length + 1 == self.rules.length)
    }

    /// Returns why the text has ended with its last token, which a step has added.
    pub(crate) fn finish(&self, ends: &[u32]) -> Option<Finish> {
        let last = self.tokens.last()?;
        if ends.contains(last) {
            Some(Finish::End)
        } else {
            (self.tokens.len() >= self.rules.length).then_some(Finish::Length)
        }
    }
}

impl TextRules {
    /// Rules of a text whose tokens are given.
    pub(crate) fn given(first: First) -> Self {
        Self {
            first,
            forced_end: None,
            length: usize::MAX,
            sampling: None,
            draft: 0,
            index: 0,
        }
    }
}
