//! Shares of batches.

use std::ops::Range;

/// One of several equal shares of each batch: consecutive images. They have the random numbers that they have in the whole batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Share {
    /// Number of the share, counted from 0.
    pub number: usize,
    /// Number of shares.
    pub count: usize,
}

impl Share {
    /// Returns the places of the share in a batch.
    pub(super) fn places(self, batch: usize) -> Range<usize> {
        let size = batch / self.count;
        self.number * size..(self.number + 1) * size
    }

    /// Returns the places of the images that are loaded in ascending order: those of the share, and with `mixed` those that they are mixed
    /// with.
    pub(super) fn loaded(self, batch: usize, mixed: bool) -> Vec<usize> {
        let own = self.places(batch);
        let is_loaded = |place: &usize| own.contains(place) || (mixed && own.contains(&(batch - 1 - place)));
        (0..batch).filter(is_loaded).collect()
    }
}
