//! Exact search on the CPU.

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::index::{Block, Index};
use crate::metric::{Hit, Metric};
use crate::products::Queries;
use crate::top::Top;

/// Number of candidates beyond k. The score in f64 decides among them, since scores in f32 are rounded.
pub(crate) const SPARE: usize = 16;

/// Maximum number of queries that are multiplied at once. Bounds the memory of the lists.
const MAX_QUERIES: usize = 256;

/// Approximate bytes of a block in f32, so that it stays in a core's L2 cache.
const BLOCK_BYTES: usize = 512 << 10;

impl Index {
    /// Returns the `k` rows that are nearest to each of `queries` `[queries, width]`, the nearest first.
    ///
    /// The search is exact and reads every row once for up to 256 queries. It runs on the threads of the current Rayon pool.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] if `k` is 0, or if the queries are not finite rows of [`width`](Self::width) values.
    pub fn search(&self, queries: &[f32], k: usize, metric: Metric) -> Result<Vec<Vec<Hit>>> {
        if k == 0 {
            return Err(Error::argument("k", "must be at least 1"));
        }
        self.check_queries(queries)?;
        let mut hits = Vec::new();
        for queries in queries.chunks(MAX_QUERIES * self.width()) {
            let tops = self.candidates(queries, k, metric);
            let queries = queries.par_chunks_exact(self.width());
            let ranked = queries
                .zip(tops)
                .map(|(query, top)| self.rank(query, top.rows(), k, metric));
            hits.par_extend(ranked);
        }
        Ok(hits)
    }

    /// Returns the best rows of each query by scores in f32.
    fn candidates(&self, queries: &[f32], k: usize, metric: Metric) -> Vec<Top> {
        let width = self.width();
        let queries = Queries::new(queries, width);
        let capacity = k.saturating_add(SPARE).min(self.len().max(1));
        let tops = || vec![Top::new(capacity); queries.len()];
        let rows = (BLOCK_BYTES / (width * size_of::<f32>())).clamp(16, 4096);
        let blocks = self.blocks(rows);
        let start = || Worker {
            tops: tops(),
            scratch: Scratch::default(),
        };
        let scan = |mut worker: Worker, block: &Block<'_>| {
            worker.scan(block, &queries, metric);
            worker
        };
        let found = blocks.par_iter().fold(start, scan);
        found.map(|worker| worker.tops).reduce(tops, |mut all, more| {
            for (all, more) in all.iter_mut().zip(more) {
                all.merge(more);
            }
            all
        })
    }

    /// Returns the `k` nearest of the candidates `rows`, by scores in f64.
    pub(crate) fn rank(
        &self,
        query: &[f32],
        rows: impl Iterator<Item = u32>,
        k: usize,
        metric: Metric,
    ) -> Vec<Hit> {
        let mut values = Vec::new();
        let hits = rows.map(|row| {
            let row = row as usize;
            self.copy_row(row, &mut values);
            let score = metric.score(query, &values);
            Hit { row, score }
        });
        let mut hits: Vec<Hit> = hits.filter(|hit| !hit.score.is_nan()).collect();
        metric.sort(&mut hits);
        hits.truncate(k);
        hits
    }
}

/// The state of a thread.
struct Worker {
    tops: Vec<Top>,
    scratch: Scratch,
}

#[derive(Default)]
struct Scratch {
    widened: Vec<f32>,
    products: Vec<f32>,
    lengths: Vec<f32>,
}

impl Worker {
    /// Adds the rows of a block to the lists.
    fn scan(&mut self, block: &Block<'_>, queries: &Queries<'_>, metric: Metric) {
        let Scratch {
            widened,
            products,
            lengths,
        } = &mut self.scratch;
        let values = block.shard.values(block.rows.clone(), widened);
        let squares = (metric != Metric::InnerProduct).then_some(&mut *lengths);
        queries.products(values, products, squares);
        for (index, products) in products.chunks_exact(queries.len()).enumerate() {
            let row = (block.first + index) as u32;
            // The score of a row, up to a factor or a summand that depends on the query only.
            match metric {
                Metric::InnerProduct => push(&mut self.tops, products, row, |product| product),
                Metric::Cosine => {
                    let square = lengths[index];
                    let factor = if square > 0.0 { square.sqrt().recip() } else { 0.0 };
                    push(&mut self.tops, products, row, |product| product * factor);
                }
                Metric::L2 => {
                    let half = 0.5 * lengths[index];
                    push(&mut self.tops, products, row, |product| product - half);
                }
            }
        }
    }
}

#[inline]
fn push(tops: &mut [Top], products: &[f32], row: u32, score: impl Fn(f32) -> f32) {
    for (top, &product) in tops.iter_mut().zip(products) {
        top.push(score(product), row);
    }
}
