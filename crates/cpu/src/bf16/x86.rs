//! Products, rounding and exponentials in bf16 by AMX and AVX-512.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::{CHANNELS, GROUP, Isa, Job, PANEL_STEP, Tile};
use crate::amx::{self, Tiles};
use crate::packed::{COLUMNS, GROUP_BYTES, ROW_STEP, ROWS, scatter, with_lines};

/// f32 elements of a vector.
const VECTOR: usize = 16;

impl Isa {
    /// Returns true if this processor has the instructions.
    pub(super) fn is_available(self) -> bool {
        // Every processor with AMX also has AVX-512 BF16.
        let rounds = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512bf16");
        rounds && (self != Self::Amx || amx::has_bf16())
    }

    /// Computes `out = scale · x · panelsᵀ + bias`, see [`Job`].
    pub(super) fn gemm(self, job: &Job<'_>, out: &mut [f32]) {
        assert!(self.is_available(), "{self:?} is not available");
        match self {
            // SAFETY: the processor has these instructions, as was just checked.
            Self::Amx => unsafe { gemm_amx(job, out) },
            // SAFETY: as above.
            Self::Avx512Bf16 => unsafe { gemm_avx512(job, out) },
        }
    }

    /// Packs rows of `channels` numbers, `stride` apart, into strips. Missing rows at the end are not written and have no effect.
    pub(super) fn pack_strips(self, x: &[f32], [channels, stride]: [usize; 2], strips: &mut [u16]) {
        assert!(self.is_available(), "{self:?} is not available");
        // SAFETY: the processor has these instructions, as was just checked.
        unsafe { pack_strips(self, x, [channels, stride], strips) }
    }

    /// Packs `e^(score − maximum)` of rows of `keys` scores, `padded` apart, into strips. Also returns the sum of each row, by which
    /// softmax divides. A row with NaN has the sum NaN.
    pub(super) fn pack_weights(
        self,
        scores: &[f32],
        [keys, padded]: [usize; 2],
        strips: &mut [u16],
        sums: &mut [f32],
    ) {
        assert!(self.is_available(), "{self:?} is not available");
        // SAFETY: as above.
        unsafe { pack_weights(self, scores, [keys, padded], strips, sums) }
    }

    /// Packs rows of `channels` numbers, `stride` apart, into panels. Each row becomes a column.
    pub(super) fn pack_rows(self, rows: &[f32], [channels, stride]: [usize; 2], panels: &mut [u16]) {
        assert!(self.is_available(), "{self:?} is not available");
        // SAFETY: as above.
        unsafe { pack_rows(rows, [channels, stride], panels) }
    }

    /// Packs `count` rows of `columns` numbers, `stride` apart, into panels of their columns.
    pub(super) fn pack_columns(self, rows: &[f32], [count, columns, stride]: [usize; 3], panels: &mut [u16]) {
        assert!(self.is_available(), "{self:?} is not available");
        // SAFETY: as above.
        unsafe { pack_columns(rows, [count, columns, stride], panels) }
    }

    /// Stores a rounded row in its strip as row `r`.
    #[inline(always)]
    fn put_row(self, row: &[u16], r: usize, strip: &mut [u16]) {
        let (row, strip) = (bytemuck::cast_slice(row), bytemuck::cast_slice_mut(strip));
        match self {
            Self::Amx => scatter::<{ amx::TILE_BYTES }, { amx::X_STEP }>(row, r, strip),
            Self::Avx512Bf16 => scatter::<GROUP_BYTES, ROW_STEP>(row, r, strip),
        }
    }
}

/// Computes a job into `out [rows, columns]`. `tile(x, panel, rows, result)` computes one tile.
#[inline(always)]
fn gemm<const R: usize>(job: &Job<'_>, out: &mut [f32], tile: impl Fn(&[u16], &[u16], usize, &mut Tile<R>)) {
    let (strip, panel) = (job.channels * R, job.channels * COLUMNS);
    let width = job.panels.len() / panel * COLUMNS;
    let mut sums: Tile<R> = [[0.0; COLUMNS]; R];
    for (p, panel) in job.panels.chunks_exact(panel).enumerate() {
        let mut bias = [0.0; COLUMNS];
        let part = job.bias.iter().skip(p * COLUMNS);
        bias.iter_mut().zip(part).for_each(|(bias, value)| *bias = *value);
        let strips = job.x.chunks_exact(strip).zip(out.chunks_mut(R * width));
        for (x, out) in strips {
            tile(x, panel, out.len() / width, &mut sums);
            for (sums, out) in sums.iter().zip(out.chunks_exact_mut(width)) {
                let out = &mut out[p * COLUMNS..(p + 1) * COLUMNS];
                for j in 0..COLUMNS {
                    out[j] = sums[j] * job.scale + bias[j];
                }
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
fn gemm_amx(job: &Job<'_>, out: &mut [f32]) {
    // SAFETY: `Isa::gemm` checked that AMX is available.
    let tiles = unsafe { Tiles::configure() };
    gemm(job, out, |x, panel, _, tile| tiles.multiply_bf16(x, panel, tile));
}

#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn gemm_avx512(job: &Job<'_>, out: &mut [f32]) {
    gemm(job, out, |x, panel, rows, tile| match rows {
        0..=4 => avx512::<4>(x, panel, tile),
        5..=8 => avx512::<8>(x, panel, tile),
        _ => avx512::<ROWS>(x, panel, tile),
    });
}

/// Computes the first `R` rows: two vectors of 16 columns each.
#[target_feature(enable = "avx512f,avx512bf16")]
#[inline]
fn avx512<const R: usize>(x: &[u16], panel: &[u16], tile: &mut Tile) {
    const { assert!(R <= ROWS && COLUMNS == 32) };
    let steps = panel.len() / PANEL_STEP;
    assert!(x.len() >= steps * ROWS * GROUP);
    let mut acc = [[_mm512_setzero_ps(); 2]; R];
    for step in 0..steps {
        // SAFETY: PANEL_STEP elements of the panel and ROWS groups of x exist for each step, as just checked.
        let (b, x) = unsafe {
            (
                panel.as_ptr().add(step * PANEL_STEP),
                x.as_ptr().add(step * ROWS * GROUP),
            )
        };
        // SAFETY: STEP bytes are two vectors, and any bits are valid bf16 numbers.
        let b: [__m512bh; 2] = unsafe {
            [
                b.cast::<__m512bh>().read_unaligned(),
                b.add(32).cast::<__m512bh>().read_unaligned(),
            ]
        };
        for (r, acc) in acc.iter_mut().enumerate() {
            // SAFETY: row r < ROWS of the step.
            let a = _mm512_set1_epi32(unsafe { x.add(r * GROUP).cast::<i32>().read_unaligned() });
            // SAFETY: vectors of the same size, and any bits are valid numbers.
            let a: __m512bh = unsafe { std::mem::transmute(a) };
            acc[0] = _mm512_dpbf16_ps(acc[0], a, b[0]);
            acc[1] = _mm512_dpbf16_ps(acc[1], a, b[1]);
        }
    }
    for (acc, row) in acc.iter().zip(tile) {
        // SAFETY: a row of the tile is two vectors.
        unsafe {
            _mm512_storeu_ps(row.as_mut_ptr(), acc[0]);
            _mm512_storeu_ps(row.as_mut_ptr().add(16), acc[1]);
        }
    }
}

/// Rounds a row to bf16 into whole tile rows, the last of which is zero-padded.
#[target_feature(enable = "avx512f,avx512bf16")]
#[inline]
pub(super) fn round_row(x: &[f32], row: &mut [u16]) {
    for (x, row) in x.chunks(CHANNELS).zip(row.as_chunks_mut::<CHANNELS>().0) {
        let mask = u32::MAX >> (CHANNELS - x.len());
        // SAFETY: the masks only include elements of x.
        let [low, high] = unsafe {
            [
                _mm512_maskz_loadu_ps(mask as u16, x.as_ptr()),
                _mm512_maskz_loadu_ps((mask >> 16) as u16, x.as_ptr().wrapping_add(16)),
            ]
        };
        // SAFETY: vectors of the same size, and any bits are valid numbers.
        *row = unsafe { std::mem::transmute::<__m512bh, [u16; CHANNELS]>(_mm512_cvtne2ps_pbh(high, low)) };
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn pack_strips(isa: Isa, x: &[f32], [channels, stride]: [usize; 2], strips: &mut [u16]) {
    let (rows, padded) = (isa.strip_rows(), channels.next_multiple_of(CHANNELS));
    let strips = strips.chunks_exact_mut(padded * rows);
    with_lines(padded, |row: &mut [u16]| {
        for (strip, x) in strips.zip(x.chunks(rows * stride)) {
            for (r, x) in x.chunks(stride).enumerate() {
                round_row(&x[..channels], row);
                isa.put_row(row, r, strip);
            }
        }
    });
}

#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn pack_weights(isa: Isa, scores: &[f32], [keys, padded]: [usize; 2], strips: &mut [u16], sums: &mut [f32]) {
    let rows = isa.strip_rows();
    let strips = strips.chunks_exact_mut(padded * rows).zip(sums.chunks_mut(rows));
    with_lines(padded, |row: &mut [u16]| {
        for ((strip, sums), scores) in strips.zip(scores.chunks(rows * padded)) {
            for (r, (scores, sum)) in scores.chunks_exact(padded).zip(sums).enumerate() {
                *sum = exponentials(&scores[..keys], row);
                isa.put_row(row, r, strip);
            }
        }
    });
}

/// Computes `e^(score − maximum)` of a row of scores, rounded to bf16, into whole tile rows, the last of which is zero-padded. Returns the
/// sum before rounding.
#[target_feature(enable = "avx512f,avx512bf16")]
#[inline]
pub(super) fn exponentials(scores: &[f32], row: &mut [u16]) -> f32 {
    let vectors = scores.chunks(VECTOR);
    let mut max = _mm512_set1_ps(f32::NEG_INFINITY);
    for scores in vectors.clone() {
        let mask = mask(scores.len());
        // SAFETY: the mask only includes scores.
        let scores = unsafe { _mm512_maskz_loadu_ps(mask, scores.as_ptr()) };
        max = _mm512_mask_max_ps(max, mask, max, scores);
    }
    let max = _mm512_set1_ps(_mm512_reduce_max_ps(max));
    let mut sum = _mm512_setzero_ps();
    let (filled, rest) = row
        .as_chunks_mut::<VECTOR>()
        .0
        .split_at_mut(scores.len().div_ceil(VECTOR));
    for (scores, row) in vectors.zip(filled) {
        let mask = mask(scores.len());
        // SAFETY: the mask only includes scores.
        let x = unsafe { _mm512_maskz_loadu_ps(mask, scores.as_ptr()) };
        let weights = _mm512_maskz_mov_ps(mask, exp(_mm512_sub_ps(x, max)));
        sum = _mm512_add_ps(sum, weights);
        // SAFETY: vectors of the same size, and any bits are valid integers.
        *row = unsafe { std::mem::transmute::<__m256bh, [u16; VECTOR]>(_mm512_cvtneps_pbh(weights)) };
    }
    rest.fill([0; VECTOR]);
    _mm512_reduce_add_ps(sum)
}

/// Computes `eˣ` for x ≤ 0 with the polynomial of Cephes' `expf` (Moshier), within 2⁻²². The result is subnormal or 0 from −88 on.
#[target_feature(enable = "avx512f")]
#[inline]
fn exp(x: __m512) -> __m512 {
    // This operand order preserves NaN.
    let x = _mm512_max_ps(_mm512_set1_ps(-104.0), x);
    let twos = _mm512_roundscale_ps::<0>(_mm512_mul_ps(x, _mm512_set1_ps(std::f32::consts::LOG2_E)));
    // ln 2 in two parts. The first has so few bits that its products are exact.
    let r = _mm512_fnmadd_ps(twos, _mm512_set1_ps(0.693_359_4), x);
    let r = _mm512_fnmadd_ps(twos, _mm512_set1_ps(-2.121_944_4e-4), r);
    let mut y = _mm512_set1_ps(1.987_569_1e-4);
    for term in [
        1.398_199_9e-3,
        8.333_452e-3,
        4.166_579_6e-2,
        0.166_666_65,
        0.5,
        1.0,
        1.0,
    ] {
        y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(term));
    }
    _mm512_scalef_ps(y, twos)
}

/// Returns the mask of the first `len` elements of a vector.
#[inline(always)]
fn mask(len: usize) -> u16 {
    (u32::from(u16::MAX) >> (VECTOR - len)) as u16
}

#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn pack_rows(rows: &[f32], [channels, stride]: [usize; 2], panels: &mut [u16]) {
    let padded = channels.next_multiple_of(CHANNELS);
    let panels = panels.chunks_exact_mut(padded * COLUMNS);
    with_lines(padded, |row: &mut [u16]| {
        for (panel, rows) in panels.zip(rows.chunks(COLUMNS * stride)) {
            let panel: &mut [u32] = bytemuck::cast_slice_mut(panel);
            if rows.len() <= (COLUMNS - 1) * stride {
                panel.fill(0);
            }
            for (j, x) in rows.chunks(stride).enumerate() {
                round_row(&x[..channels], row);
                let row: &[u32] = bytemuck::cast_slice(row);
                for (step, group) in panel.as_chunks_mut::<COLUMNS>().0.iter_mut().zip(row) {
                    step[j] = *group;
                }
            }
        }
    });
}

#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn pack_columns(rows: &[f32], [count, columns, stride]: [usize; 3], panels: &mut [u16]) {
    let panel = count.next_multiple_of(CHANNELS) * COLUMNS;
    for (p, panel) in panels.chunks_exact_mut(panel).enumerate() {
        let panel: &mut [u32] = bytemuck::cast_slice_mut(panel);
        for (g, step) in panel.as_chunks_mut::<COLUMNS>().0.iter_mut().enumerate() {
            for (half, groups) in step.as_chunks_mut::<VECTOR>().0.iter_mut().enumerate() {
                let start = p * COLUMNS + half * VECTOR;
                let width = columns.saturating_sub(start).min(VECTOR);
                // Two rows side by side, as far as they exist.
                let rounded = |row: usize| {
                    let x = if row < count && width > 0 {
                        &rows[row * stride + start..][..width]
                    } else {
                        &[]
                    };
                    // SAFETY: the mask only includes elements of x.
                    let x = unsafe { _mm512_maskz_loadu_ps(mask(x.len()), x.as_ptr()) };
                    // SAFETY: vectors of the same size, and any bits are valid integers.
                    _mm512_cvtepu16_epi32(unsafe {
                        std::mem::transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(x))
                    })
                };
                let pairs = _mm512_or_si512(
                    rounded(GROUP * g),
                    _mm512_slli_epi32::<16>(rounded(GROUP * g + 1)),
                );
                // SAFETY: vectors of the same size.
                *groups = unsafe { std::mem::transmute::<__m512i, [u32; VECTOR]>(pairs) };
            }
        }
    }
}
