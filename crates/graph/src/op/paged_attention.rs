//! Attention of single queries over keys and values in pages.

use std::fmt;

use super::operands::{exactly, expect, one};
use super::{Definition, Locality, OpError, Shape};
use crate::array::{Array, Real, dot};
use crate::cases::{AWKWARD, Awkward, Cases, Scale, activation, integers};
use crate::dtype::DType;
use crate::softmax::softmax;
use crate::tolerance::tolerance;

/// `(q [B, H·D], cache [S, 2·G·D], table [B, P] i32, lengths [B] i32) → [B, H·D]`: the query of each row attends to the first
/// `lengths[row]` tokens of its sequence. Its token `t` is row `table[row][t / page] · page + t % page` of the cache: keys, then values. `G` groups of
/// heads share keys and values, as in grouped-query attention (Ainslie et al., 2023, <https://arxiv.org/abs/2305.13245>). Pages are those of
/// PagedAttention (Kwon et al., 2023, <https://arxiv.org/abs/2309.06180>).
///
/// q may be wider, `[B, W]`: the queries are its first columns, as in packed queries, keys and values. A row of length 0 gets zeros. Numbers of pages beyond an end become the last or first page, and lengths end with the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PagedAttention {
    /// Heads of the queries.
    pub heads: usize,
    /// Heads of keys and values, which divide [`heads`](Self::heads).
    pub kv_heads: usize,
    /// Channels of a head, at most [`MAX_HEAD_DIM`](Self::MAX_HEAD_DIM).
    pub head_dim: usize,
    /// Tokens of a page.
    pub page: usize,
    /// Factor of the scores.
    pub scale: f32,
}

impl PagedAttention {
    /// Maximum channels of a head.
    pub const MAX_HEAD_DIM: usize = 256;

    /// Returns the row of the cache for each token that a query sees. `pages` is its row of the table.
    pub fn rows<T: Real>(&self, pages: &[T], length: T, rows: usize) -> impl Iterator<Item = usize> {
        let last = (rows / self.page).saturating_sub(1) as f64;
        let pages: Vec<usize> = pages
            .iter()
            .map(|page| page.to_f64().clamp(0.0, last) as usize)
            .collect();
        let length = length.to_f64().clamp(0.0, (pages.len() * self.page) as f64) as usize;
        let page = self.page;
        (0..length).map(move |token| pages[token / page] * page + token % page)
    }

    /// Computes attention. `softmax` replaces the scores of a row and head by weights.
    pub(super) fn attend<T: Real>(
        &self,
        operands: &[&Array<T>],
        results: &mut [Array<T>],
        mut softmax: impl FnMut([usize; 2], &mut Vec<T>),
    ) {
        let [q, cache, table, lengths] = [0, 1, 2, 3].map(|index: usize| operands[index]);
        let (d, values) = (self.head_dim, self.kv_heads * self.head_dim);
        let (places, pages, columns) = (cache.shape()[0], table.shape()[1], q.shape()[1]);
        let scale = T::from_f32(self.scale);
        let outs = results[0].values_mut().chunks_exact_mut(self.heads * d);
        for (row, out) in outs.enumerate() {
            let table = &table.values()[row * pages..][..pages];
            let rows: Vec<usize> = self.rows(table, lengths.values()[row], places).collect();
            if rows.is_empty() {
                continue;
            }
            for (head, out) in out.chunks_exact_mut(d).enumerate() {
                let q = &q.values()[row * columns + head * d..][..d];
                let first = head / (self.heads / self.kv_heads) * d;
                let of =
                    |at: usize, from: usize| cache.values()[at * 2 * values + from + first..][..d].to_vec();
                let mut weights: Vec<T> = rows.iter().map(|&at| scale * dot(q, &of(at, 0))).collect();
                softmax([row, head], &mut weights);
                for (&at, weight) in rows.iter().zip(weights) {
                    for (sum, value) in out.iter_mut().zip(of(at, values)) {
                        *sum += weight * value;
                    }
                }
            }
        }
    }
}

impl Definition for PagedAttention {
    const NAME: &'static str = "paged_attention";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            heads,
            kv_heads,
            head_dim,
            page,
            ..
        } = self;
        write!(f, " {heads}x{head_dim}")?;
        if kv_heads != heads {
            write!(f, ", {kv_heads} heads of keys")?;
        }
        write!(f, ", pages of {page}")
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [q, cache, table, lengths] = exactly(operands)?;
        let Self {
            heads,
            kv_heads,
            head_dim,
            page,
            ..
        } = *self;
        if [heads, kv_heads, head_dim, page].contains(&0) || !heads.is_multiple_of(kv_heads) {
            return Err(format!(
                "has {heads} heads, {kv_heads} heads of keys, {head_dim} channels and pages of {page}"
            )
            .into());
        }
        if head_dim > Self::MAX_HEAD_DIM {
            return Err(format!(
                "has {head_dim} channels per head, at most {} are supported",
                Self::MAX_HEAD_DIM
            )
            .into());
        }
        let &[rows, columns] = q else {
            return Err(OpError::layout("`q`", q, format!("[B, {}]", heads * head_dim)));
        };
        let width = 2 * kv_heads * head_dim;
        let &[places, _] = cache else {
            return Err(OpError::layout("`cache`", cache, format!("[S, {width}]")));
        };
        if places == 0 || !places.is_multiple_of(page) {
            return Err(format!(
                "has {places} rows in its cache, which pages of {page} tokens do not divide"
            )
            .into());
        }
        let &[_, pages] = table else {
            return Err(OpError::layout("`table`", table, "[B, pages]".to_owned()));
        };
        if columns < heads * head_dim {
            return Err(OpError::layout("`q`", q, format!("[B, {}]", heads * head_dim)));
        }
        expect("cache", cache, &[places, width])?;
        expect("table", table, &[rows, pages])?;
        expect("lengths", lengths, &[rows])?;
        one([rows, heads * head_dim])
    }

    fn operand_dtype(&self, index: usize, dtype: DType) -> DType {
        match index {
            2 | 3 => DType::I32,
            _ => dtype,
        }
    }

    fn flops(&self, operands: &[&[usize]], _results: &[Shape]) -> u64 {
        // With all pages full.
        let tokens = operands[2].iter().product::<usize>() * self.page;
        4 * (tokens * self.heads * self.head_dim) as u64
    }

    fn elements_read(&self, index: usize, operands: &[&[usize]], _results: &[Shape]) -> usize {
        let all: usize = operands[index].iter().product();
        match index {
            0 => operands[0][0] * self.heads * self.head_dim,
            1 => {
                let tokens = operands[2].iter().product::<usize>() * self.page;
                all.min(tokens * 2 * self.kv_heads * self.head_dim)
            }
            _ => all,
        }
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        self.attend(operands, results, |_, scores| softmax(scores));
    }

    fn cases(cases: &mut Cases<Self>) {
        let of_heads = [8, 16, 32, 64, 80, 128, 256].map(|d| [2, 40, 2, d]);
        for [batch, tokens, heads, head_dim] in case_sizes(cases.scale(), &of_heads) {
            let (rows, page) = (batch + 3, 16);
            let pages = tokens.div_ceil(page);
            let op = Self {
                heads,
                kv_heads: heads,
                head_dim,
                page,
                scale: 1.0 / (head_dim as f32).sqrt(),
            };
            let case = |op: Self, places: usize, pages: usize, length: usize| {
                vec![
                    activation(&[rows, heads * head_dim]),
                    activation(&[places * op.page, 2 * op.kv_heads * head_dim]),
                    integers(&[rows, pages], places as i32),
                    integers(&[rows], length as i32 + 1),
                ]
            };
            // Few pages of many sequences, and whole images as pages, as in cross-attention.
            cases.push(op, case(op, 2 * pages + 1, pages, tokens));
            let whole = Self { page: tokens, ..op };
            cases.push(whole, case(whole, 3, 1, tokens));
            let mut packed = case(op, pages + 2, pages, tokens);
            packed[0] = activation(&[rows, 3 * heads * head_dim]);
            cases.push(op, packed);
            if heads > 1 {
                let shared = Self { kv_heads: 1, ..op };
                cases.push(shared, case(shared, pages + 1, pages, tokens));
            }
        }
    }

    fn tolerance(&self, _index: usize, operands: &[&Array], dtype: DType) -> f64 {
        let keys = operands[2].shape()[1] * self.page;
        // The error of a score, which grows with head_dim, is one of its exponential too.
        2.0 * tolerance(dtype, keys + self.head_dim)
    }
}

/// Returns images, tokens, heads and channels of the cases of a scale, `of_heads` for [`Scale::Heads`].
pub(super) fn case_sizes(scale: Scale, of_heads: &[[usize; 4]]) -> Vec<[usize; 4]> {
    match scale {
        Scale::Model { sizes, .. } => vec![[sizes.batch, sizes.tokens, sizes.heads, sizes.head_dim]],
        Scale::Awkward => {
            let heads = |a: &'static Awkward| a.heads.iter().map(|&(heads, d)| [a.batch, a.tokens, heads, d]);
            AWKWARD.iter().flat_map(heads).collect()
        }
        Scale::Heads => of_heads.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ascending(shape: [usize; 2], factor: f64) -> Array {
        let count = shape[0] * shape[1];
        Array::new(shape, (0..count).map(|i| (i as f64 * factor).sin()).collect()).unwrap()
    }

    #[test]
    fn pages_are_the_rows_of_a_sequence() {
        let op = PagedAttention {
            heads: 2,
            kv_heads: 1,
            head_dim: 3,
            page: 2,
            scale: 0.5,
        };
        let (q, cache) = (ascending([2, 6], 0.7), ascending([8, 6], 1.3));
        let table = Array::new([2, 2], vec![3.0, 1.0, 0.0, 9.0]).unwrap();
        let lengths = Array::new([2], vec![3.0, 0.0]).unwrap();
        let y = op.eval(&[&q, &cache, &table, &lengths]).unwrap().remove(0);
        // The rows 6, 7 and 2.
        for head in 0..2 {
            let score = |row: usize| {
                let of = |i: usize| q.values()[3 * head + i] * cache.values()[6 * row + i];
                (0.5 * (of(0) + of(1) + of(2))).exp()
            };
            let sum = score(6) + score(7) + score(2);
            for i in 0..3 {
                let of = |row: usize| score(row) * cache.values()[6 * row + 3 + i];
                let expected = (of(6) + of(7) + of(2)) / sum;
                assert!((y.values()[3 * head + i] - expected).abs() < 1e-12);
            }
        }
        assert_eq!(y.values()[6..], [0.0; 6]);
    }
}
