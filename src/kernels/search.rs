//! `search_scores`, `search_best` and `search_merge`: the rows of a matrix with the largest inner products with queries.

use std::borrow::Cow;

use super::bindings::{
    SEARCH_KEPT, SEARCH_PART, SEARCH_PARTS, SEARCH_QUERIES, SEARCH_ROWS, SEARCH_THREADS, SearchBestArgs,
    SearchMergeArgs, SearchScoresArgs,
};
use super::{Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, bytes, extent, optional};

impl SearchScoresArgs {
    /// Creates the arguments for `x` `[rows, width]`, `query` `[queries, width]` and `scores` `[queries, rows]`.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub fn new(
        [x, query, scores]: [DeviceAddress; 3],
        [rows, width]: [usize; 2],
        queries: usize,
    ) -> Result<Self, KernelError> {
        Ok(Self {
            x,
            query,
            scores,
            rows: extent(rows)?,
            width: extent(width)?,
            queries: extent(queries)?,
            reserved: 0,
        })
    }
}

// SAFETY: see hip/search.hip. Waves beyond the last row return, and a wave repeats the last row instead of reading beyond it.
unsafe impl KernelArguments for SearchScoresArgs {
    const FILE: &'static str = "search";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok("search_scores".into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        if [self.rows, self.width, self.queries].contains(&0) || self.queries > SEARCH_QUERIES {
            return Err("has no rows, no queries or too many".into());
        }
        let per_block = SEARCH_THREADS / target.wave_size * SEARCH_ROWS;
        target.blocks(self.rows.div_ceil(per_block).into(), SEARCH_THREADS)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        visit(Access::read(
            "x",
            self.x,
            bytes(element, &[self.rows, self.width]),
        ));
        let query = bytes(element, &[self.queries, self.width]);
        visit(Access::read("query", self.query, query));
        let scores = bytes(size_of::<f32>(), &[self.queries, self.rows]);
        visit(Access::write("scores", self.scores, scores));
    }
}

impl SearchBestArgs {
    /// Creates the arguments for `scores` `[queries, rows]` of rows from number `first` on, `offsets` `[rows]` or null, `best`
    /// `[queries, kept]`, `found` `[queries, parts, kept]` and `counts` `[queries, parts]`.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub fn new(
        [scores, offsets, best, found, counts]: [DeviceAddress; 5],
        [first, rows]: [usize; 2],
        [queries, kept]: [usize; 2],
    ) -> Result<Self, KernelError> {
        extent(first + rows)?;
        Ok(Self {
            scores,
            offsets,
            best,
            found,
            counts,
            rows: extent(rows)?,
            first: extent(first)?,
            queries: extent(queries)?,
            kept: extent(kept)?,
        })
    }

    /// Returns the number of parts of `rows` rows.
    pub fn parts(rows: usize) -> usize {
        rows.div_ceil(SEARCH_PART as usize)
    }
}

/// Checks the extents of a selection.
fn check(queries: u32, parts: u32, kept: u32) -> Result<(), KernelError> {
    if [queries, parts, kept].contains(&0) || parts > SEARCH_PARTS || kept > SEARCH_KEPT {
        return Err("has no rows, no queries, too many rows, or keeps too many".into());
    }
    Ok(())
}

// SAFETY: see hip/search.hip. Blocks beyond the last query return. A part writes at most `kept` keys.
unsafe impl KernelArguments for SearchBestArgs {
    const FILE: &'static str = "search";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok("search_best".into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        let parts = self.rows.div_ceil(SEARCH_PART);
        check(self.queries, parts, self.kept)?;
        target.blocks(u64::from(parts) * u64::from(self.queries), SEARCH_THREADS)
    }

    fn accesses(&self, _element: usize, visit: &mut dyn FnMut(Access)) {
        let parts = self.rows.div_ceil(SEARCH_PART);
        let key = size_of::<u64>();
        visit(Access::read(
            "scores",
            self.scores,
            bytes(4, &[self.queries, self.rows]),
        ));
        visit(optional(Access::read(
            "offsets",
            self.offsets,
            bytes(4, &[self.rows]),
        )));
        visit(Access::read(
            "best",
            self.best,
            bytes(key, &[self.queries, self.kept]),
        ));
        let found = bytes(key, &[self.queries, parts, self.kept]);
        visit(Access::write("found", self.found, found));
        visit(Access::write(
            "counts",
            self.counts,
            bytes(4, &[self.queries, parts]),
        ));
    }
}

impl SearchMergeArgs {
    /// Creates the arguments for `best` `[queries, kept]`, `found` `[queries, parts, kept]` and `counts` `[queries, parts]`.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub fn new(
        [best, found, counts]: [DeviceAddress; 3],
        parts: usize,
        [queries, kept]: [usize; 2],
    ) -> Result<Self, KernelError> {
        Ok(Self {
            best,
            found,
            counts,
            queries: extent(queries)?,
            parts: extent(parts)?,
            kept: extent(kept)?,
            reserved: 0,
        })
    }
}

// SAFETY: see hip/search.hip. Of each part it reads as many keys as its count says, at most `kept`.
unsafe impl KernelArguments for SearchMergeArgs {
    const FILE: &'static str = "search";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok("search_merge".into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        check(self.queries, self.parts, self.kept)?;
        target.blocks(self.queries.into(), SEARCH_THREADS)
    }

    fn accesses(&self, _element: usize, visit: &mut dyn FnMut(Access)) {
        let key = size_of::<u64>();
        visit(Access::write(
            "best",
            self.best,
            bytes(key, &[self.queries, self.kept]),
        ));
        let found = bytes(key, &[self.queries, self.parts, self.kept]);
        visit(Access::read("found", self.found, found));
        visit(Access::read(
            "counts",
            self.counts,
            bytes(4, &[self.queries, self.parts]),
        ));
    }
}
