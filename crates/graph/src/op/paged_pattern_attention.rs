//! Attention of single queries over keys and values in pages, with a pattern.

use std::fmt;
use std::sync::Arc;

use super::paged_attention::case_sizes;
use super::pattern_attention::cases::{Form, forms};
use super::{Definition, Locality, OpError, PagedAttention, Shape};
use crate::array::{Array, Real};
use crate::cases::{Cases, Scale, activation, integers};
use crate::dtype::DType;
use crate::pattern::{
    Captured, Evaluator, Extents, Number, Pattern, PatternError, Program, Row, check_tokens,
};
use crate::softmax::softmax;
use crate::tolerance::tolerance;

/// [`PagedAttention`] whose score and mask are a [pattern](crate::pattern), for decoders with sliding windows, ALiBi or soft caps.
///
/// The operands are those of [`PagedAttention`], then the captured tensors, in the order of [`Program::tensors`]. A row is the pattern's
/// `batch`. Its `queries` and `keys` are the tokens that the row sees, `lengths[row]`, and its query is the last of them. A query without
/// visible keys gets zeros.
#[derive(Clone, Debug, PartialEq)]
pub struct PagedPatternAttention {
    /// Attention without the pattern.
    pub attention: PagedAttention,
    /// Score and mask.
    pub program: Arc<Program>,
    /// Values of the program's scalars.
    pub scalars: Vec<Number>,
}

impl PagedPatternAttention {
    /// Operands before the captured tensors.
    pub const OPERANDS: usize = 4;

    /// Creates attention with `pattern`, which has no scalars.
    ///
    /// # Errors
    ///
    /// [`PatternError`] if the pattern is invalid.
    pub fn new(attention: PagedAttention, pattern: &Pattern) -> Result<Self, PatternError> {
        Ok(Self {
            attention,
            program: Arc::new(pattern.compile()?),
            scalars: Vec::new(),
        })
    }

    /// Returns the operands that are captured tensors.
    pub fn captured<'o, T>(&self, operands: &'o [T]) -> &'o [T] {
        operands.get(Self::OPERANDS..).unwrap_or(&[])
    }

    /// Applies score and mask to the scores of all tokens that a row sees. Hidden keys get −∞.
    ///
    /// # Errors
    ///
    /// [`PatternError::Captured`] if tensors or scalars do not fit the program.
    pub fn apply<T: Real>(
        &self,
        captured: &[Captured<'_, T>],
        [row, head]: [usize; 2],
        scores: &mut [T],
    ) -> Result<(), PatternError> {
        let program = &self.program;
        let outputs: Vec<usize> = program.score().into_iter().chain(program.mask()).collect();
        let extents = Extents {
            heads: self.attention.heads,
            queries: scores.len(),
            keys: scores.len(),
        };
        let mut evaluator = Evaluator::new(program, &outputs, captured, &self.scalars, extents)?;
        let last = Row {
            batch: row,
            head,
            query: scores.len().saturating_sub(1),
        };
        evaluator.evaluate(last, scores);
        for (key, score) in scores.iter_mut().enumerate() {
            if let Some(step) = program.score() {
                *score = evaluator.float(step, key);
            }
            if program.mask().is_some_and(|step| !evaluator.is_true(step, key)) {
                *score = T::NEG_INFINITY;
            }
        }
        Ok(())
    }
}

impl Definition for PagedPatternAttention {
    const NAME: &'static str = "paged_pattern_attention";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.attention.fmt_attributes(f)?;
        match self.program.name() {
            Some(name) => write!(f, ", {name}"),
            None => f.write_str(match (self.program.score(), self.program.mask()) {
                (Some(_), Some(_)) => " +score +mask",
                (Some(_), None) => " +score",
                (None, Some(_)) => " +mask",
                (None, None) => "",
            }),
        }
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let attended = operands.get(..Self::OPERANDS).unwrap_or(operands);
        let shapes = self.attention.shapes(attended)?;
        let pattern = |error: PatternError| OpError::from(error.to_string());
        self.program
            .check_tensors(self.captured(operands))
            .map_err(pattern)?;
        self.program.check_scalars(&self.scalars).map_err(pattern)?;
        check_tokens(operands[2][1] * self.attention.page).map_err(pattern)?;
        Ok(shapes)
    }

    fn operand_dtype(&self, index: usize, dtype: DType) -> DType {
        self.attention.operand_dtype(index, dtype)
    }

    fn flops(&self, operands: &[&[usize]], results: &[Shape]) -> u64 {
        // With all pages full, and the pattern's steps for each score.
        let scores = operands[2].iter().product::<usize>() * self.attention.page * self.attention.heads;
        self.attention.flops(operands, results) + (scores * self.program.steps().len()) as u64
    }

    fn elements_read(&self, index: usize, operands: &[&[usize]], results: &[Shape]) -> usize {
        self.attention.elements_read(index, operands, results)
    }

    fn locality(&self, index: usize) -> Locality {
        self.attention.locality(index)
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let captured = self.captured(operands).iter().map(|&array| array.into());
        let captured: Vec<Captured<'_, T>> = captured.collect();
        self.attention.attend(operands, results, |at, scores| {
            // `shapes` has checked the operands.
            let is_applied = self.apply(&captured, at, scores).is_ok();
            debug_assert!(is_applied, "the operands do not fit the pattern");
            if scores.iter().all(|&score| score == T::NEG_INFINITY) {
                scores.fill(T::ZERO);
            } else {
                softmax(scores);
            }
        });
    }

    fn cases(cases: &mut Cases<Self>) {
        let of_heads = [8, 64, 80, 128, 256].map(|d| [2, 330, 2, d]);
        let sizes = case_sizes(cases.scale(), &of_heads);
        let is_model = matches!(cases.scale(), Scale::Model { .. }) && !cases.is_micro();
        for (index, [batch, tokens, heads, head_dim]) in sizes.into_iter().enumerate() {
            let (rows, page) = (batch + 3, 16);
            let pages = tokens.div_ceil(page);
            let attention = PagedAttention {
                heads,
                kv_heads: if index % 3 == 1 { 1 } else { heads },
                head_dim,
                page,
                scale: 3.0 / (head_dim as f32).sqrt(),
            };
            let forms = forms([rows, heads, tokens]);
            // Three of the forms for each size, so that all sizes have all of them.
            let (count, few) = (forms.len(), if is_model { forms.len() } else { 3 });
            let chosen = |place: &usize| (place + count - 3 * index % count) % count < few;
            let chosen = forms.into_iter().enumerate().filter(|(place, _)| chosen(place));
            for (_, Form { pattern, captured }) in chosen {
                let op = Self::new(attention, &pattern);
                debug_assert!(op.is_ok(), "the pattern {:?} is invalid", pattern.name);
                let Ok(op) = op else { continue };
                let mut operands = vec![
                    activation(&[rows, heads * head_dim]),
                    activation(&[(2 * pages + 1) * page, 2 * attention.kv_heads * head_dim]),
                    integers(&[rows, pages], 2 * pages as i32 + 1),
                    integers(&[rows], tokens as i32 + 1),
                ];
                operands.extend(captured);
                cases.push(op, operands);
            }
        }
    }

    fn tolerance(&self, index: usize, operands: &[&Array], dtype: DType) -> f64 {
        let keys = operands[2].shape()[1] * self.attention.page;
        // The pattern's arithmetic may multiply the error of a score.
        let of_score = f64::from(self.program.score().is_some());
        self.attention.tolerance(index, operands, dtype)
            + of_score * tolerance(dtype, keys + self.attention.head_dim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{AttentionOperands, PatternAttention};
    use crate::pattern::{MAX_TOKENS, floats, ints, masks, scores};

    fn ascending(shape: &[usize], factor: f64) -> Array {
        let count: usize = shape.iter().product();
        Array::new(shape, (0..count).map(|i| (i as f64 * factor).sin()).collect()).unwrap()
    }

    #[test]
    fn patterns_index_a_limited_number_of_tokens() {
        let pattern = Pattern::new().with_mask(masks::causal());
        let whole = PatternAttention::new((1, 2), 1.0, AttentionOperands::Separate, &pattern).unwrap();
        let shapes =
            |[queries, keys]: [usize; 2]| whole.shapes(&[&[1, queries, 2], &[1, keys, 2], &[1, keys, 2]]);
        assert!(shapes([MAX_TOKENS, MAX_TOKENS]).is_ok());
        let attention = PagedAttention {
            heads: 1,
            kv_heads: 1,
            head_dim: 2,
            page: 2,
            scale: 1.0,
        };
        let paged = PagedPatternAttention::new(attention, &pattern).unwrap();
        let pages = |pages: usize| paged.shapes(&[&[1, 2], &[8, 4], &[1, pages], &[1]]);
        assert!(pages(MAX_TOKENS / 2).is_ok());
        for error in [
            shapes([MAX_TOKENS + 1, 1]),
            shapes([1, MAX_TOKENS + 1]),
            pages(MAX_TOKENS / 2 + 1),
        ] {
            assert!(error.unwrap_err().to_string().contains("at most 4194304"));
        }
    }

    /// A row has the result of the last query of its sequence.
    #[test]
    fn a_row_is_the_last_query_of_its_tokens() {
        let (heads, d, page, tokens) = (2, 3, 2, 5);
        let attention = PagedAttention {
            heads,
            kv_heads: heads,
            head_dim: d,
            page,
            scale: 0.5,
        };
        let score = scores::soft_cap(scores::alibi(scores::score()), 2.0)
            + floats::load("bias", [ints::head(), ints::query() - ints::key()]);
        let pattern = Pattern::new()
            .with_score(score)
            .with_mask(masks::window(2, 0) | masks::prefix(1));
        let op = PagedPatternAttention::new(attention, &pattern).unwrap();
        let width = heads * d;
        let (q, cache) = (ascending(&[1, width], 0.7), ascending(&[8, 2 * width], 1.3));
        let table = Array::new([1, 3], vec![3.0, 1.0, 2.0]).unwrap();
        let lengths = Array::new([1], vec![tokens as f64]).unwrap();
        let bias = ascending(&[heads, 8], 0.9);
        let found = op.eval(&[&q, &cache, &table, &lengths, &bias]).unwrap().remove(0);

        let rows: Vec<f64> = [6, 7, 2, 3, 4]
            .iter()
            .flat_map(|row| cache.values()[row * 2 * width..][..2 * width].to_vec())
            .collect();
        let kv = Array::new([1, tokens, 2 * width], rows).unwrap();
        let mut queries = vec![0.0; tokens * width];
        queries[(tokens - 1) * width..].copy_from_slice(q.values());
        let queries = Array::new([1, tokens, width], queries).unwrap();
        let whole = PatternAttention::new((heads, d), 0.5, AttentionOperands::PackedKv, &pattern).unwrap();
        let expected = whole.eval(&[&queries, &kv, &bias]).unwrap().remove(0);
        let expected = &expected.values()[(tokens - 1) * width..];
        for (found, expected) in found.values().iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{found} instead of {expected}");
        }
    }

    #[test]
    fn a_query_that_sees_no_key_gets_zeros() {
        let attention = PagedAttention {
            heads: 1,
            kv_heads: 1,
            head_dim: 2,
            page: 4,
            scale: 1.0,
        };
        let pattern = Pattern::new().with_mask(!masks::causal());
        let op = PagedPatternAttention::new(attention, &pattern).unwrap();
        let (q, cache) = (ascending(&[1, 2], 0.7), ascending(&[4, 4], 1.3));
        let table = Array::new([1, 1], vec![0.0]).unwrap();
        let lengths = Array::new([1], vec![3.0]).unwrap();
        let found = op.eval(&[&q, &cache, &table, &lengths]).unwrap().remove(0);
        assert_eq!(found.values(), [0.0; 2]);
        let error = op.shapes(&[&[1, 2], &[4, 4], &[1, 1], &[1], &[2]]).unwrap_err();
        assert!(error.to_string().contains("captures 0 tensors, got 1"), "{error}");
    }
}
