//! x86 dot products for the int8 GEMM: AVX-512 VNNI, AVX-VNNI and AVX2. AMX is in `amx.rs`.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use hipvit_graph::op::Levels;

use super::super::amx::{self, Tiles};
use super::super::packed::{COLUMNS, ROW_STEP, ROWS, STEP};
use super::{GROUP, Isa, Job, Tile, gemm, portable, quantize_row};

impl Isa {
    /// Returns true if this processor has the instructions.
    pub(super) fn is_available(self) -> bool {
        match self {
            // Every processor with AMX has these extensions, which the code after the dot products uses.
            Self::Amx => {
                is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") && amx::has_int8()
            }
            Self::Avx512Vnni => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vnni")
            }
            Self::AvxVnni => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("avxvnni"),
            Self::Avx2 => is_x86_feature_detected!("avx2"),
            Self::Portable => true,
        }
    }

    /// See [`gemm`].
    pub(super) fn gemm(self, job: &Job<'_>, out: &mut [f32]) {
        assert!(self.is_available(), "{self:?} is not available");
        match self {
            // SAFETY: the processor has these instructions, as was just checked.
            Self::Amx => unsafe { gemm_amx(job, out) },
            // SAFETY: as above.
            Self::Avx512Vnni => unsafe { gemm_avx512_vnni(job, out) },
            // SAFETY: as above.
            Self::AvxVnni => unsafe { gemm_avx_vnni(job, out) },
            // SAFETY: as above.
            Self::Avx2 => unsafe { gemm_avx2(job, out) },
            Self::Portable => gemm(job, out, 0, portable),
        }
    }

    /// See [`quantize_row`].
    pub(super) fn quantize_row(self, x: &[f32], levels: Levels, q: &mut [u8]) -> (f32, i32) {
        assert!(self.is_available(), "{self:?} is not available");
        match self {
            // SAFETY: the processor has these instructions, as was just checked.
            Self::Amx | Self::Avx512Vnni => unsafe { quantize_avx512(x, levels, q) },
            // SAFETY: as above.
            Self::AvxVnni | Self::Avx2 => unsafe { quantize_avx2(x, levels, q) },
            Self::Portable => quantize_row(x, levels, q),
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
fn quantize_avx512(x: &[f32], levels: Levels, q: &mut [u8]) -> (f32, i32) {
    quantize_row(x, levels, q)
}

#[target_feature(enable = "avx2")]
fn quantize_avx2(x: &[f32], levels: Levels, q: &mut [u8]) -> (f32, i32) {
    quantize_row(x, levels, q)
}

#[target_feature(enable = "avx512f,avx512bw")]
fn gemm_amx(job: &Job<'_>, out: &mut [f32]) {
    // SAFETY: `Isa::gemm` checked that AMX is available.
    let tiles = unsafe { Tiles::configure() };
    gemm(job, out, 0, |x, panel, _, tile| {
        tiles.multiply_int8(x, panel, tile);
    });
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn gemm_avx512_vnni(job: &Job<'_>, out: &mut [f32]) {
    gemm(job, out, 0, |x, panel, rows, tile| match rows {
        0..=4 => avx512_vnni::<4>(x, panel, tile),
        5..=8 => avx512_vnni::<8>(x, panel, tile),
        _ => avx512_vnni::<ROWS>(x, panel, tile),
    });
}

#[target_feature(enable = "avx2,avxvnni")]
fn gemm_avx_vnni(job: &Job<'_>, out: &mut [f32]) {
    gemm(job, out, 0, |x, panel, rows, tile| {
        for first in (0..rows).step_by(QUARTER) {
            avx_vnni(x, panel, first, tile);
        }
    });
}

#[target_feature(enable = "avx2")]
fn gemm_avx2(job: &Job<'_>, out: &mut [f32]) {
    gemm(job, out, 0, |x, panel, rows, tile| {
        for first in (0..rows).step_by(QUARTER) {
            avx2(x, panel, first, tile);
        }
    });
}

/// Rows that the 256-bit kernels compute at once, limited by the number of registers.
const QUARTER: usize = 4;

/// Checks the extents that the kernels' loads rely on. Returns the number of steps of [`GROUP`] input channels.
#[inline(always)]
fn steps(x: &[u8], panel: &[i8]) -> usize {
    let steps = panel.len() / STEP;
    assert!(x.len() >= steps * ROW_STEP);
    steps
}

/// Computes the first `R` rows: two vectors of 16 columns each.
#[target_feature(enable = "avx512f,avx512vnni")]
#[inline]
fn avx512_vnni<const R: usize>(x: &[u8], panel: &[i8], tile: &mut Tile) {
    const { assert!(R <= ROWS && COLUMNS == 32) };
    let mut acc = [[_mm512_setzero_si512(); 2]; R];
    for step in 0..steps(x, panel) {
        // SAFETY: `steps` checked that each step has STEP bytes of the panel and ROW_STEP bytes of x.
        let (b, x) = unsafe { (panel.as_ptr().add(step * STEP), x.as_ptr().add(step * ROW_STEP)) };
        // SAFETY: STEP bytes are two vectors.
        let b = unsafe { [_mm512_loadu_si512(b.cast()), _mm512_loadu_si512(b.add(64).cast())] };
        for (r, acc) in acc.iter_mut().enumerate() {
            // SAFETY: row r < ROWS of the step.
            let a = _mm512_set1_epi32(unsafe { x.add(r * GROUP).cast::<i32>().read_unaligned() });
            acc[0] = _mm512_dpbusd_epi32(acc[0], a, b[0]);
            acc[1] = _mm512_dpbusd_epi32(acc[1], a, b[1]);
        }
    }
    for (acc, row) in acc.iter().zip(tile) {
        // SAFETY: a row of the tile is two vectors.
        unsafe {
            _mm512_storeu_si512(row.as_mut_ptr().cast(), acc[0]);
            _mm512_storeu_si512(row.as_mut_ptr().add(16).cast(), acc[1]);
        }
    }
}

/// Computes [`QUARTER`] rows from `first` on, 16 columns at a time.
#[target_feature(enable = "avx2,avxvnni")]
#[inline]
fn avx_vnni(x: &[u8], panel: &[i8], first: usize, tile: &mut Tile) {
    let rows = &mut tile[first..first + QUARTER];
    for column in (0..COLUMNS).step_by(16) {
        let mut acc = [[_mm256_setzero_si256(); 2]; QUARTER];
        for step in 0..steps(x, panel) {
            // SAFETY: `steps` checked that each step has STEP bytes of the panel, GROUP for each column.
            let b = unsafe { panel.as_ptr().add(step * STEP + column * GROUP) };
            // SAFETY: 16 columns are two vectors.
            let b = unsafe { [_mm256_loadu_si256(b.cast()), _mm256_loadu_si256(b.add(32).cast())] };
            for (r, acc) in acc.iter_mut().enumerate() {
                // SAFETY: as above for x, whose step has ROWS rows. Indexing `tile` checked first + QUARTER.
                let a = unsafe { x.as_ptr().add((step * ROWS + first + r) * GROUP) };
                // SAFETY: GROUP bytes.
                let a = _mm256_set1_epi32(unsafe { a.cast::<i32>().read_unaligned() });
                acc[0] = _mm256_dpbusd_avx_epi32(acc[0], a, b[0]);
                acc[1] = _mm256_dpbusd_avx_epi32(acc[1], a, b[1]);
            }
        }
        for (acc, row) in acc.iter().zip(&mut *rows) {
            let row = &mut row[column..column + 16];
            // SAFETY: 16 columns are two vectors.
            unsafe {
                _mm256_storeu_si256(row.as_mut_ptr().cast(), acc[0]);
                _mm256_storeu_si256(row.as_mut_ptr().add(8).cast(), acc[1]);
            }
        }
    }
}

/// Computes [`QUARTER`] rows from `first` on, 8 columns at a time. Bytes are widened first, since `vpmaddubsw` saturates.
#[target_feature(enable = "avx2")]
#[inline]
fn avx2(x: &[u8], panel: &[i8], first: usize, tile: &mut Tile) {
    let rows = &mut tile[first..first + QUARTER];
    for column in (0..COLUMNS).step_by(8) {
        // Four columns each, with two partial sums per column.
        let mut acc = [[_mm256_setzero_si256(); 2]; QUARTER];
        for step in 0..steps(x, panel) {
            // SAFETY: `steps` checked that each step has STEP bytes of the panel, GROUP for each column.
            let b = unsafe { panel.as_ptr().add(step * STEP + column * GROUP) };
            // SAFETY: 8 columns are two vectors of 16 bytes.
            let b = unsafe { [_mm_loadu_si128(b.cast()), _mm_loadu_si128(b.add(16).cast())] };
            // Not `map`, whose closure is compiled without these instructions and may not be inlined.
            let b = [_mm256_cvtepi8_epi16(b[0]), _mm256_cvtepi8_epi16(b[1])];
            for (r, acc) in acc.iter_mut().enumerate() {
                // SAFETY: as above for x, whose step has ROWS rows. Indexing `tile` checked first + QUARTER.
                let a = unsafe { x.as_ptr().add((step * ROWS + first + r) * GROUP) };
                // SAFETY: GROUP bytes.
                let a = _mm_set1_epi32(unsafe { a.cast::<i32>().read_unaligned() });
                let a = _mm256_cvtepu8_epi16(a);
                acc[0] = _mm256_add_epi32(acc[0], _mm256_madd_epi16(a, b[0]));
                acc[1] = _mm256_add_epi32(acc[1], _mm256_madd_epi16(a, b[1]));
            }
        }
        for (acc, row) in acc.iter().zip(&mut *rows) {
            // Each half has columns 0 and 1 of the first operand, then those of the second.
            let sums = _mm256_hadd_epi32(acc[0], acc[1]);
            let sums = _mm256_permute4x64_epi64::<0b11_01_10_00>(sums);
            let row = &mut row[column..column + 8];
            // SAFETY: 8 columns are one vector.
            unsafe { _mm256_storeu_si256(row.as_mut_ptr().cast(), sums) };
        }
    }
}
