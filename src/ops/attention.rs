//! Multi-head attention.

use ndarray::parallel::prelude::*;
use ndarray::{ArrayView2, ArrayViewMut2, ArrayViewMut4, Axis};
use rten_simd::{Isa, SimdOp};
use rten_tensor::Matrix;
use rten_vecmath::Softmax;

use super::gemm::{self, Epilogue, ROW_TILE};
use super::rows::with_scratch;
use super::{Shape, count, operands};
use crate::ops::{Attention, AttentionOperands};

pub(super) fn shape(spec: &Attention, inputs: &[&[usize]]) -> Result<Shape, String> {
    let c = spec.heads * spec.head_dim;
    if c == 0 {
        return Err("has no heads or no channels a head".into());
    }
    let (query, key) = match spec.operands {
        AttentionOperands::PackedQkv => {
            let [qkv] = operands(inputs)?;
            return match *qkv {
                [b, n, packed] if packed == 3 * c => Ok(vec![b, n, c]),
                _ => Err(format!("`qkv` has shape {qkv:?}, expected [B, N, {}]", 3 * c)),
            };
        }
        AttentionOperands::PackedKv => {
            let [q, kv] = operands(inputs)?;
            match *kv {
                [b, n, packed] if packed == 2 * c => (q, [b, n, c]),
                _ => return Err(format!("`kv` has shape {kv:?}, expected [B, N, {}]", 2 * c)),
            }
        }
        AttentionOperands::Separate => {
            let [q, k, v] = operands(inputs)?;
            match *k {
                [b, n, channels] if channels == c && v == k => (q, [b, n, c]),
                _ => {
                    return Err(format!(
                        "`k` and `v` have shapes {k:?} and {v:?}, expected [B, N, {c}]"
                    ));
                }
            }
        }
    };
    match *query {
        [b, n, channels] if channels == c && (b == 1 || b == key[0]) => Ok(vec![key[0], n, c]),
        [b, channels] if channels == c && b == key[0] => Ok(vec![b, c]),
        _ => Err(format!(
            "`q` has shape {query:?}, expected [{} or 1, N, {c}] or [{0}, {c}]",
            key[0]
        )),
    }
}

/// Both products, and four operations for the scale and softmax of each score.
pub(super) fn flops(spec: &Attention, inputs: &[&[usize]], output: &[usize]) -> u64 {
    let keys = inputs.last().map_or(0, |kv| kv[1]) as u64;
    let scores = count(output) / spec.head_dim as u64 * keys;
    scores * (4 * spec.head_dim as u64 + 4)
}

/// Where queries, keys or values lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tokens<'a> {
    /// The operand, from the first channel wanted of the first token.
    pub(crate) data: &'a [f32],
    /// Tokens of an image.
    pub(crate) count: usize,
    /// Elements from one token to the next.
    pub(crate) stride: usize,
    /// Whether one image's tokens serve the whole batch.
    pub(crate) shared: bool,
}

impl<'a> Tokens<'a> {
    /// The tokens of image `b`, from channel `channel` on.
    fn of_image(self, b: usize, channel: usize) -> Result<Self, String> {
        let image = if self.shared { 0 } else { b };
        let start = image * self.count * self.stride + channel;
        let data = self.data.get(start..).ok_or("an operand is too short")?;
        Ok(Self { data, ..self })
    }

    /// `columns` channels of `rows` tokens from token `first` on.
    fn matrix(self, first: usize, rows: usize, columns: usize) -> Result<Matrix<'a>, String> {
        let data = self
            .data
            .get(first * self.stride..)
            .ok_or("an operand is too short")?;
        gemm::strided(data, rows, columns, self.stride)
    }
}

/// Scores that a thread holds at once, in elements: together with packed keys and values they should stay in the
/// second-level cache at the usual few hundred tokens, and be bounded at many.
const SCORES: usize = 48 * 1024;

/// Queries that are worth a pass over the packed keys and values, however many those are.
const QUERIES: usize = 24;

/// [`Op::Attention`](crate::ops::Op::Attention) into `out [B,Nq,C]`.
///
/// Each head of each image is a task of its own, and takes some queries at a time: scores by a product with the
/// packed keys, softmax of each row, a product with the packed values. Packed operands are read where they lie.
pub(crate) fn run(
    spec: &Attention,
    [q, k, v]: [Tokens<'_>; 3],
    batch: usize,
    out: &mut [f32],
) -> Result<(), String> {
    let (heads, d) = (spec.heads, spec.head_dim);
    if batch * heads * d * k.count == 0 {
        return Err("has no key to attend to".into());
    }
    // Few heads on many threads: share out the queries too, although each task then packs keys and values itself.
    let parts = rayon::current_num_threads().div_ceil(batch * heads);
    let queries = q.count.div_ceil(parts).next_multiple_of(ROW_TILE);
    let mut by_head = ArrayViewMut4::from_shape((batch, q.count, heads, d), out)
        .map_err(|e| e.to_string())?
        .permuted_axes([0, 2, 1, 3]);
    let images = by_head.axis_iter_mut(Axis(0)).into_par_iter().enumerate();
    images.try_for_each(|(b, mut image)| {
        let heads = image.axis_iter_mut(Axis(0)).into_par_iter().enumerate();
        heads.try_for_each(|(head, mut out)| {
            let (q, k, v) = (
                q.of_image(b, head * d)?,
                k.of_image(b, head * d)?,
                v.of_image(b, head * d)?,
            );
            let parts = out
                .axis_chunks_iter_mut(Axis(0), queries)
                .into_par_iter()
                .enumerate();
            parts.try_for_each(|(part, out)| one_head(spec, [q, k, v], part * queries, out))
        })
    })
}

/// The queries from `first` on of one head, into `out [Nq, head_dim]`. The operands begin at the head's first channel.
fn one_head(
    spec: &Attention,
    [q, k, v]: [Tokens<'_>; 3],
    first: usize,
    mut out: ArrayViewMut2<'_, f32>,
) -> Result<(), String> {
    let (d, keys) = (spec.head_dim, k.count);
    let packed_k = gemm::pack(k.matrix(0, keys, d)?.transposed());
    let packed_v = gemm::pack(v.matrix(0, keys, d)?);
    let product = |scale| Epilogue { scale, bias: None };
    let tile = (SCORES / keys).max(QUERIES).next_multiple_of(ROW_TILE);
    for (i, mut out) in out.axis_chunks_iter_mut(Axis(0), tile).enumerate() {
        let rows = out.nrows();
        let q = q.matrix(first + i * tile, rows, d)?;
        with_scratch(rows * (keys + d), |scratch| {
            let (scores, mixed) = scratch.split_at_mut(rows * keys);
            gemm::multiply(q, &packed_k, product(spec.scale), scores)?;
            SoftmaxRows { scores, keys }.dispatch();
            let weights = gemm::strided(scores, rows, keys, keys)?;
            gemm::multiply(weights, &packed_v, product(1.0), mixed)?;
            let mixed = ArrayView2::from_shape((rows, d), mixed).map_err(|e| e.to_string())?;
            out.assign(&mixed);
            Ok::<_, String>(())
        })?;
    }
    Ok(())
}

/// Rows of `keys` scores become weights, with one choice of instruction set.
struct SoftmaxRows<'a> {
    scores: &'a mut [f32],
    keys: usize,
}

impl SimdOp for SoftmaxRows<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        for row in self.scores.chunks_exact_mut(self.keys) {
            Softmax::new_mut(row).eval(isa);
        }
    }
}
