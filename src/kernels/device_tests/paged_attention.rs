//! `paged_attention` with keys that blocks share, compared with the reference in f64.

use super::{DTYPES, Gpu, Part, numbers, random, rounded};
use crate::kernels::PagedAttentionArgs;
use crate::kernels::bindings::PAGED_ATTENTION_FEW_HEADS;
use crate::ops::{Op, PagedAttention};
use crate::reference::{Array, eval};
use crate::tensor::DType;

/// Lengths around steps and spans of blocks, none, and more than the table has.
const LENGTHS: [i32; 13] = [0, 1, 63, 64, 65, 128, 197, 256, 257, 385, 513, -1, 1000];

/// Maximum blocks per head. Most of them have no keys of most rows.
const SPLITS: [usize; 5] = [1, 2, 3, 5, 16];

/// Operands of the op, with pages in any order.
struct Case {
    op: PagedAttention,
    columns: usize,
    places: usize,
    pages: usize,
    q: Vec<f32>,
    cache: Vec<f32>,
    table: Vec<i32>,
}

impl Case {
    fn new(op: PagedAttention, pages: usize, dtype: DType, seed: usize) -> Self {
        let (columns, places) = (op.heads * op.head_dim + 3, (pages + 3) * op.page);
        let table = (0..LENGTHS.len() * pages).map(|i| ((i * 7 + seed) % (pages + 4)) as i32 - 1);
        Self {
            op,
            columns,
            places,
            pages,
            q: rounded(&random(LENGTHS.len() * columns, seed, 2.0), dtype),
            cache: rounded(
                &random(places * 2 * op.kv_heads * op.head_dim, seed + 1, 1.0),
                dtype,
            ),
            table: table.collect(),
        }
    }

    fn expected(&self) -> Vec<f64> {
        let array = |shape: [usize; 2], values: &[f32]| {
            Array::new(shape, values.iter().map(|&v| v.into()).collect()).unwrap()
        };
        let rows = LENGTHS.len();
        let width = 2 * self.op.kv_heads * self.op.head_dim;
        let table: Vec<f32> = self.table.iter().map(|&page| page as f32).collect();
        let lengths = Array::new([rows], LENGTHS.map(f64::from).to_vec()).unwrap();
        let operands = [
            array([rows, self.columns], &self.q),
            array([self.places, width], &self.cache),
            array([rows, self.pages], &table),
            lengths,
        ];
        let op = Op::PagedAttention(self.op);
        eval(&op, &operands.each_ref()).unwrap().values().to_vec()
    }

    /// Returns the result of blocks that share the keys of a head, at most `splits` of them.
    fn run(&self, gpu: &Gpu, dtype: DType, splits: usize, shift: usize) -> Vec<u8> {
        let PagedAttention {
            heads,
            kv_heads,
            head_dim,
            page,
            scale,
        } = self.op;
        let rows = LENGTHS.len();
        let parts = [
            Part::numbers(&self.q, dtype),
            Part::numbers(&self.cache, dtype),
            Part::operand(&self.table),
            Part::operand(&LENGTHS),
            Part::result(rows * heads * head_dim, dtype.size()),
            Part::result(rows * heads * splits * (head_dim + 2), size_of::<f32>()),
            // The launch leaves the zeros that it finds.
            Part::operand(&vec![0u32; rows * heads]),
        ];
        let of = |extent: usize| extent as u32;
        let mut results = gpu.run(
            dtype,
            &parts,
            shift,
            |[q, cache, table, lengths, out, parts, arrivals]| {
                Ok(PagedAttentionArgs {
                    q,
                    cache,
                    table,
                    lengths,
                    out,
                    parts,
                    arrivals,
                    rows: of(rows),
                    heads: of(heads),
                    kv_heads: of(kv_heads),
                    head_dim: of(head_dim),
                    places: of(self.places),
                    page: of(page),
                    pages: of(self.pages),
                    lanes: 1,
                    scale,
                    columns: of(self.columns),
                    splits: of(splits),
                    few: 1,
                }
                .into())
            },
        );
        results.swap_remove(0)
    }

    fn check(&self, gpu: &Gpu, dtype: DType, shift: usize) {
        let expected = self.expected();
        // Rounding of the result, and of scores up to about 8 in f32.
        let tolerance = match dtype {
            DType::F32 => 2e-5,
            DType::F16 => 1e-3,
            _ => 8e-3,
        };
        let is_few = LENGTHS.len() * self.op.heads <= PAGED_ATTENTION_FEW_HEADS as usize;
        let all = if is_few { &SPLITS[..] } else { &[1] };
        for &splits in all {
            let bytes = self.run(gpu, dtype, splits, shift);
            assert_eq!(
                bytes,
                self.run(gpu, dtype, splits, shift),
                "{dtype}, {splits} splits: other bits in another run"
            );
            for (at, (found, &expected)) in numbers(&bytes, dtype).into_iter().zip(&expected).enumerate() {
                let found = f64::from(found);
                let is_close = (found - expected).abs() <= tolerance * expected.abs().max(1.0)
                    || found.is_nan() && expected.is_nan();
                let width = self.op.heads * self.op.head_dim;
                assert!(
                    is_close,
                    "{dtype} {}, {splits} splits, length {}, channel {}: {found} instead of {expected}",
                    Op::PagedAttention(self.op),
                    LENGTHS[at / width],
                    at % width
                );
            }
        }
    }
}

fn op(heads: usize, kv_heads: usize, head_dim: usize, page: usize) -> PagedAttention {
    PagedAttention {
        heads,
        kv_heads,
        head_dim,
        page,
        scale: 1.0 / (head_dim as f32).sqrt(),
    }
}

#[test]
fn blocks_share_the_keys_of_a_head() {
    let Some(gpu) = Gpu::get() else { return };
    let forms = [
        (op(2, 1, 64, 16), 40),
        (op(1, 1, 80, 197), 4),
        (op(3, 3, 5, 3), 220),
        (op(1, 1, 256, 650), 1),
        // Too many heads for blocks to share keys.
        (op(24, 2, 8, 16), 40),
    ];
    for (seed, (op, pages)) in forms.into_iter().enumerate() {
        for dtype in DTYPES {
            Case::new(op, pages, dtype, seed).check(&gpu, dtype, seed % 2);
        }
    }
}

#[test]
fn infinite_scores_and_nan_stay_in_their_rows() {
    let Some(gpu) = Gpu::get() else { return };
    let mut case = Case::new(op(2, 2, 8, 16), 40, DType::F32, 5);
    // Each row has pages of its own.
    let (rows, pages) = (LENGTHS.len(), case.pages);
    case.places = rows * pages * 16;
    case.table = (0..(rows * pages) as i32).collect();
    case.cache = random(case.places * 32, 6, 1.0);
    // Sets a channel of head 0 of a token of the row of this length.
    let mut set = |length: i32, token: usize, value: f32| {
        let row = LENGTHS.iter().position(|&of_row| of_row == length).unwrap();
        case.cache[(row * pages * 16 + token) * 32 + 3] = value;
    };
    set(1, 0, f32::INFINITY);
    set(63, 62, f32::NAN);
    set(64, 17, f32::NEG_INFINITY);
    set(257, 256, f32::INFINITY);
    // All keys of a block, which have scores of ∞ or −∞, according to the sign of the query.
    (128..256).for_each(|token| set(385, token, f32::INFINITY));
    set(513, 150, f32::NAN);
    // Beyond the last token.
    set(256, 257, f32::NAN);
    let expected = case.expected();
    assert!(expected.iter().any(|value| value.is_nan()));
    case.check(&gpu, DType::F32, 0);
    // The other sign of each score.
    case.q.iter_mut().for_each(|q| *q = -*q);
    case.check(&gpu, DType::F32, 0);
}
