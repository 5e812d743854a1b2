//! Near-duplicates: pairs of rows whose cosine is at least a threshold.

use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::index::{Block, Index};
use crate::metric::Metric;
use crate::products::{Queries, squared_lengths};

/// Rows of a block. A block of products, 1 MiB in f32, stays in the L2 cache.
const BLOCK_ROWS: usize = 512;

/// Bound on the error of a cosine in f32, relative to 1, per value of a row.
const ERROR_PER_VALUE: f64 = f32::EPSILON as f64;

/// Two rows that are near-duplicates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// The lower row.
    pub first: usize,
    /// The higher row.
    pub second: usize,
    /// Cosine of the angle between the rows.
    pub similarity: f64,
}

impl Index {
    /// Returns all pairs of rows whose cosine is at least `threshold`, sorted by the first, then by the second row.
    ///
    /// The search is exact: its time grows with the square of the number of rows. Rows of length 0 and rows with NaN are in no pair.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] if the threshold is not above 0 and at most 1, or if there are more than `limit` pairs.
    pub fn duplicates(&self, threshold: f64, limit: usize) -> Result<Vec<Pair>> {
        if !(threshold > 0.0 && threshold <= 1.0) {
            return Err(Error::argument("threshold", "must be above 0 and at most 1"));
        }
        let blocks = self.blocks(BLOCK_ROWS);
        let factors = self.reciprocal_lengths(&blocks);
        let found = AtomicUsize::new(0);
        let search = Search {
            index: self,
            factors: &factors,
            threshold,
            limit,
            found: &found,
        };
        // The first blocks have the most work, and each is one task.
        let pairs = (0..blocks.len()).into_par_iter().with_max_len(1);
        let pairs = pairs.map(|block| search.pairs(&blocks[block..]));
        let mut pairs: Vec<Pair> = pairs.flatten_iter().collect();
        if found.into_inner() > limit {
            let reason = format!("more than {limit} pairs are at least {threshold} similar. Raise it");
            return Err(Error::argument("threshold", reason));
        }
        pairs.sort_unstable_by_key(|pair| (pair.first, pair.second));
        Ok(pairs)
    }

    /// Returns 1 / length of each row, and 0 for rows of length 0.
    fn reciprocal_lengths(&self, blocks: &[Block<'_>]) -> Vec<f32> {
        let lengths = blocks.par_iter().map_init(Vec::new, |widened, block| {
            let mut lengths = Vec::new();
            let values = block.shard.values(block.rows.clone(), widened);
            squared_lengths(values, block.shard.width, &mut lengths);
            let reciprocal = |square: f32| if square > 0.0 { square.sqrt().recip() } else { 0.0 };
            lengths.into_iter().map(reciprocal).collect::<Vec<f32>>()
        });
        lengths.flatten_iter().collect()
    }
}

struct Search<'a> {
    index: &'a Index,
    /// 1 / length of each row.
    factors: &'a [f32],
    threshold: f64,
    limit: usize,
    found: &'a AtomicUsize,
}

impl Search<'_> {
    /// Returns the pairs of a row of the first block and a higher row.
    fn pairs(&self, blocks: &[Block<'_>]) -> Vec<Pair> {
        let mut pairs = Vec::new();
        let Some(first) = blocks.first() else { return pairs };
        let width = first.shard.width;
        let slack = 1e-6 + ERROR_PER_VALUE * width as f64;
        let bound = (self.threshold - slack) as f32;
        let (mut own, mut widened, mut products) = (Vec::new(), Vec::new(), Vec::new());
        let queries = Queries::new(first.shard.values(first.rows.clone(), &mut own), width);
        for block in blocks {
            if self.found.load(Ordering::Relaxed) > self.limit {
                return pairs;
            }
            let begin = pairs.len();
            queries.products(
                block.shard.values(block.rows.clone(), &mut widened),
                &mut products,
                None,
            );
            for (index, products) in products.chunks_exact(queries.len()).enumerate() {
                let second = block.first + index;
                let factor = self.factors[second];
                let factors = &self.factors[first.first..first.first + queries.len()];
                for (query, (product, own)) in products.iter().zip(factors).enumerate() {
                    if product * own * factor >= bound && first.first + query < second {
                        pairs.extend(self.pair(first.first + query, second));
                    }
                }
            }
            self.found.fetch_add(pairs.len() - begin, Ordering::Relaxed);
        }
        pairs
    }

    /// Returns the pair if its similarity in f64 reaches the threshold.
    fn pair(&self, first: usize, second: usize) -> Option<Pair> {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        self.index.copy_row(first, &mut a);
        self.index.copy_row(second, &mut b);
        let similarity = Metric::Cosine.score(&a, &b);
        (similarity >= self.threshold).then_some(Pair {
            first,
            second,
            similarity,
        })
    }
}
