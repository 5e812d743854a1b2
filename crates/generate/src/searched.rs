//! Texts in progress by beam search, and their pages.

use std::collections::HashSet;

use hipvit::error::{Error, Result};

use crate::beam::{BeamRules, Search};
use crate::pages::{PAGE, Pages};
use crate::prompt::First;
use crate::sampling::{GREEDY, GenerateOptions};
use crate::spec::{DecoderSpec, Rules};
use crate::step_inputs::Row;
use crate::text::TextId;

/// The part of the cache that a beam has.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) pages: Vec<u32>,
    /// Tokens whose keys and values are in the cache.
    pub(crate) cached: usize,
}

impl Table {
    /// Returns the table of another continuation of the beam. Full pages are shared. The tokens of the last page are computed again, in a page of its own.
    fn fork(&self, pages: &mut Pages) -> Self {
        let full = self.cached / PAGE;
        Self {
            pages: pages.share(&self.pages[..full]),
            cached: full * PAGE,
        }
    }
}

/// The search for the text of an image.
#[derive(Debug)]
pub(crate) struct Searched {
    pub(crate) id: TextId,
    pub(crate) search: Search,
    pub(crate) first: First,
    /// Number of the image in the cache.
    pub(crate) image: usize,
    /// The table of each beam.
    pub(crate) tables: Vec<Table>,
    /// Number of pages that the search needs at most.
    pub(crate) promised: usize,
    /// True if logits are NaN.
    pub(crate) has_nan: bool,
}

/// A text to be made by beam search.
pub(crate) struct ToSearch {
    pub(crate) rules: BeamRules,
    pub(crate) first: First,
    /// Maximum number of tokens, with the first ones.
    pub(crate) length: usize,
}

impl ToSearch {
    /// Returns the number of pages that the search needs at most.
    pub(crate) fn pages(&self) -> usize {
        // The last token is not cached.
        (self.length - 1).div_ceil(PAGE) * self.rules.beams
    }
}

/// Returns the rules of a beam search, or `None` for texts with one beam.
///
/// # Errors
///
/// [`Error::Argument`] for beams with a random choice or with drafts.
pub(crate) fn beam_rules(spec: &DecoderSpec, options: &GenerateOptions) -> Result<Option<BeamRules>> {
    let files = &spec.rules.beams;
    let is_single = options.sampling.is_some() || options.draft > 0;
    let beams = match options.beams {
        Some(0) => return Err(Error::argument("beams", "are 0; at least one is needed")),
        Some(beams) if beams > 1 && is_single => {
            let reason = "exclude a random choice of tokens and drafts. Use one beam";
            return Err(Error::argument("beams", reason));
        }
        Some(beams) => beams,
        None if is_single => 1,
        None => files.beams,
    };
    Ok((beams > 1).then(|| BeamRules {
        beams,
        ..files.clone()
    }))
}

/// Checks that a search fits into a cache of this many pages.
///
/// # Errors
///
/// [`Error::Argument`] if it does not.
pub(crate) fn check_pages(text: &ToSearch, all: usize) -> Result<()> {
    let needed = text.pages();
    if needed <= all {
        return Ok(());
    }
    let (beams, length) = (text.rules.beams, text.length);
    let reason = format!(
        "{beams} of {length} tokens need {needed} pages of the cache, which has {all}. Use fewer beams or tokens, or a larger batch"
    );
    Err(Error::argument("beams", reason))
}

impl Searched {
    /// Begins the search for the text of the image with this number in the cache.
    pub(crate) fn new(id: TextId, text: ToSearch, image: usize, rules: &Rules) -> Self {
        let promised = text.pages();
        let (tokens, length) = (text.first.tokens.clone(), text.length);
        Self {
            id,
            search: Search::new(tokens, length, &text.rules, &rules.ends, rules.forced_end),
            first: text.first,
            image,
            tables: vec![Table::default()],
            promised,
            has_nan: false,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.has_nan || self.search.is_done()
    }

    /// Returns the number of pages that the beams use.
    pub(crate) fn used(&self) -> usize {
        let pages = self.tables.iter().flat_map(|table| &table.pages);
        pages.collect::<HashSet<_>>().len()
    }

    /// Gives back the pages of the beams.
    pub(crate) fn release(&mut self, pages: &mut Pages) {
        for table in &mut self.tables {
            pages.release(&mut table.pages);
        }
    }

    /// Returns the number of tokens of a beam that are not cached.
    pub(crate) fn backlog(&self, index: usize) -> usize {
        self.search.beams[index].tokens.len() - self.tables[index].cached
    }

    /// Returns the rows of a beam's tokens that are not cached.
    pub(crate) fn rows(&self, index: usize) -> impl Iterator<Item = Row<'_>> {
        let (beam, table) = (&self.search.beams[index], &self.tables[index]);
        let tokens = beam.tokens.iter().enumerate().skip(table.cached);
        tokens.map(|(position, &token)| Row {
            token,
            position,
            pages: &table.pages,
            image: self.image,
            feature: self.first.feature(position),
            rules: GREEDY,
            history: [&beam.tokens[..=position], &[]],
        })
    }

    /// Gives each new beam the table of its parent, or a fork of it.
    pub(crate) fn follow(&mut self, parents: &[usize], pages: &mut Pages) {
        let mut old: Vec<Option<Table>> = std::mem::take(&mut self.tables).into_iter().map(Some).collect();
        for (index, &parent) in parents.iter().enumerate() {
            let table = if parents[index + 1..].contains(&parent) {
                old[parent].as_ref().map(|table| table.fork(pages))
            } else {
                // The last continuation takes the pages.
                old[parent].take()
            };
            self.tables.push(table.unwrap_or_default());
        }
        for table in old.iter_mut().flatten() {
            pages.release(&mut table.pages);
        }
    }
}
