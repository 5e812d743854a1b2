//! AArch64 dot products for the int8 GEMM: the matrix products of i8mm, the dot products of dotprod, and widening products, which every
//! processor has. The first two are written in assembly, since their intrinsics are unstable.
#![allow(unsafe_code)]

use std::arch::aarch64::*;
use std::arch::{asm, is_aarch64_feature_detected};

use hipvit_graph::op::Levels;

use super::super::packed::{COLUMNS, ROW_STEP, ROWS, STEP};
use super::{GROUP, Isa, Job, Tile, gemm, portable, quantize_row};

/// Level of x that is zero for the kernels with x as i8.
const CENTRE: u8 = 128;
/// Columns that the kernels compute at once.
const WIDTH: usize = 8;

impl Isa {
    /// Returns true if this processor has the instructions.
    pub(super) fn is_available(self) -> bool {
        match self {
            Self::I8mm => is_aarch64_feature_detected!("i8mm"),
            Self::DotProd => is_aarch64_feature_detected!("dotprod"),
            Self::Neon => is_aarch64_feature_detected!("neon"),
            Self::Portable => true,
        }
    }

    /// See [`gemm`].
    pub(super) fn gemm(self, job: &Job<'_>, out: &mut [f32]) {
        assert!(self.is_available(), "{self:?} is not available");
        match self {
            // SAFETY: the processor has these instructions, as was just checked.
            Self::I8mm => unsafe { gemm_i8mm(job, out) },
            // SAFETY: as above.
            Self::DotProd => unsafe { gemm_dotprod(job, out) },
            // SAFETY: as above.
            Self::Neon => unsafe { gemm_neon(job, out) },
            Self::Portable => gemm(job, out, 0, portable),
        }
    }

    /// See [`quantize_row`], which the compiler vectorises with NEON.
    pub(super) fn quantize_row(self, x: &[f32], levels: Levels, q: &mut [u8]) -> (f32, i32) {
        quantize_row(x, levels, q)
    }
}

#[target_feature(enable = "neon,i8mm")]
fn gemm_i8mm(job: &Job<'_>, out: &mut [f32]) {
    gemm(job, out, 0, |x, panel, rows, tile| match rows {
        0..=4 => i8mm::<1>(x, panel, 0, tile),
        5..=8 => i8mm::<2>(x, panel, 0, tile),
        _ => {
            i8mm::<2>(x, panel, 0, tile);
            i8mm::<1>(x, panel, 8, tile);
        }
    });
}

#[target_feature(enable = "neon,dotprod")]
fn gemm_dotprod(job: &Job<'_>, out: &mut [f32]) {
    gemm(job, out, CENTRE.into(), |x, panel, rows, tile| match rows {
        0..=4 => dotprod::<1>(x, panel, tile),
        5..=8 => dotprod::<2>(x, panel, tile),
        _ => dotprod::<3>(x, panel, tile),
    });
}

#[target_feature(enable = "neon")]
fn gemm_neon(job: &Job<'_>, out: &mut [f32]) {
    gemm(job, out, CENTRE.into(), |x, panel, rows, tile| {
        for first in (0..rows).step_by(4) {
            neon(x, panel, first, tile);
        }
    });
}

/// Returns the steps of [`GROUP`] input channels of x and the panel.
#[inline(always)]
fn steps<'a>(x: &'a [u8], panel: &'a [i8]) -> impl Iterator<Item = (&'a [u8; ROW_STEP], &'a [u8; STEP])> {
    let panel: &[u8] = bytemuck::cast_slice(panel);
    x.as_chunks().0.iter().zip(panel.as_chunks().0)
}

/// Loads 16 bytes from `at` on.
#[target_feature(enable = "neon")]
#[inline]
fn load(bytes: &[u8], at: usize) -> uint8x16_t {
    let bytes = &bytes[at..at + 16];
    // SAFETY: the slice has 16 bytes.
    unsafe { vld1q_u8(bytes.as_ptr()) }
}

/// Stores the sums of a row's columns from `column` on.
#[target_feature(enable = "neon")]
#[inline]
fn store(row: &mut [i32; COLUMNS], column: usize, sums: [int32x4_t; 2]) {
    let row = &mut row[column..column + WIDTH];
    // SAFETY: the slice has the elements of two vectors.
    unsafe {
        vst1q_s32(row.as_mut_ptr(), sums[0]);
        vst1q_s32(row.as_mut_ptr().add(4), sums[1]);
    }
}

/// Computes `4 · V` rows from `first` on, with products of 2×8 by 8×2 matrices: two rows by two columns, over two steps.
#[target_feature(enable = "neon,i8mm")]
#[inline]
fn i8mm<const V: usize>(x: &[u8], panel: &[i8], first: usize, tile: &mut Tile) {
    let zero = (&[0; ROW_STEP], &[0; STEP]);
    for column in (0..COLUMNS).step_by(WIDTH) {
        let mut acc = [[[vdupq_n_s32(0); 4]; 2]; V];
        let mut steps = steps(x, panel);
        while let Some((x0, panel0)) = steps.next() {
            let (x1, panel1) = steps.next().unwrap_or(zero);
            let at = column * GROUP;
            let b = [
                pairs(load(panel0, at), load(panel1, at)),
                pairs(load(panel0, at + 16), load(panel1, at + 16)),
            ];
            for (v, acc) in acc.iter_mut().enumerate() {
                let at = (first + 4 * v) * GROUP;
                let a = pairs(load(x0, at), load(x1, at));
                for (acc, a) in acc.iter_mut().zip(a) {
                    for (acc, b) in acc.iter_mut().zip(b.as_flattened()) {
                        *acc = usmmla(*acc, a, vreinterpretq_s8_u8(*b));
                    }
                }
            }
        }
        let rows = tile[first..].as_chunks_mut::<2>().0;
        for ([first, second], acc) in rows.iter_mut().zip(acc.as_flattened()) {
            let [a, b, c, d] = acc.map(|sums| vreinterpretq_s64_s32(sums));
            let rows = [
                [vzip1q_s64(a, b), vzip1q_s64(c, d)],
                [vzip2q_s64(a, b), vzip2q_s64(c, d)],
            ];
            for (row, sums) in [first, second].into_iter().zip(rows) {
                store(row, column, sums.map(|sums| vreinterpretq_s32_s64(sums)));
            }
        }
    }
}

/// Rearranges four rows (or columns) of two steps. The first vector has both groups of rows 0 and 1, the second those of rows 2 and 3.
#[target_feature(enable = "neon")]
#[inline]
fn pairs(first: uint8x16_t, second: uint8x16_t) -> [uint8x16_t; 2] {
    let [first, second] = [first, second].map(|step| vreinterpretq_u32_u8(step));
    [vzip1q_u32(first, second), vzip2q_u32(first, second)].map(|pair| vreinterpretq_u8_u32(pair))
}

/// `sums [2,2] += a [2,8] · b [2,8]ᵀ`.
#[target_feature(enable = "neon,i8mm")]
#[inline]
fn usmmla(mut sums: int32x4_t, a: uint8x16_t, b: int8x16_t) -> int32x4_t {
    // SAFETY: the instruction only accesses these registers. It is part of i8mm, which this function enables.
    unsafe {
        asm!(
            "usmmla {sums:v}.4s, {a:v}.16b, {b:v}.16b",
            sums = inout(vreg) sums,
            a = in(vreg) a,
            b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sums
}

/// Computes the first `4 · V` rows, with [`CENTRE`] subtracted.
#[target_feature(enable = "neon,dotprod")]
#[inline]
fn dotprod<const V: usize>(x: &[u8], panel: &[i8], tile: &mut Tile) {
    const { assert!(4 * V <= ROWS) };
    for column in (0..COLUMNS).step_by(WIDTH) {
        let mut acc = [[[vdupq_n_s32(0); 2]; 4]; V];
        for (x, panel) in steps(x, panel) {
            let at = column * GROUP;
            // Not `map`, whose closure is compiled without these instructions and may not be inlined.
            let b = [load(panel, at), load(panel, at + 16)];
            let b = [vreinterpretq_s8_u8(b[0]), vreinterpretq_s8_u8(b[1])];
            for (v, acc) in acc.iter_mut().enumerate() {
                let a = veorq_u8(load(x, v * 16), vdupq_n_u8(CENTRE));
                let a = vreinterpretq_s8_u8(a);
                for (c, b) in b.into_iter().enumerate() {
                    acc[0][c] = sdot::<0>(acc[0][c], b, a);
                    acc[1][c] = sdot::<1>(acc[1][c], b, a);
                    acc[2][c] = sdot::<2>(acc[2][c], b, a);
                    acc[3][c] = sdot::<3>(acc[3][c], b, a);
                }
            }
        }
        for (acc, row) in acc.as_flattened().iter().zip(&mut *tile) {
            store(row, column, *acc);
        }
    }
}

/// Adds to each sum the dot product of its four elements of b with the lane of a.
#[target_feature(enable = "neon,dotprod")]
#[inline]
fn sdot<const LANE: usize>(mut sums: int32x4_t, b: int8x16_t, a: int8x16_t) -> int32x4_t {
    const { assert!(LANE < 4) };
    // SAFETY: the instruction only accesses these registers. It is part of dotprod, which this function enables.
    unsafe {
        asm!(
            "sdot {sums:v}.4s, {b:v}.16b, {a:v}.4b[{lane}]",
            sums = inout(vreg) sums,
            b = in(vreg) b,
            a = in(vreg) a,
            lane = const LANE,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sums
}

/// Computes four rows from `first` on, with [`CENTRE`] subtracted.
#[target_feature(enable = "neon")]
#[inline]
fn neon(x: &[u8], panel: &[i8], first: usize, tile: &mut Tile) {
    for column in (0..COLUMNS).step_by(WIDTH) {
        // Two columns each, with two partial sums per column. A product of two i8 fits in an i16, a sum of two products may not.
        let mut acc = [[vdupq_n_s32(0); 4]; 4];
        for (x, panel) in steps(x, panel) {
            let b = [0, 16].map(|at| vreinterpretq_s8_u8(load(panel, column * GROUP + at)));
            let a = veorq_u8(load(x, first * GROUP), vdupq_n_u8(CENTRE));
            let a = vreinterpretq_s32_u8(a);
            let a = [
                vdupq_laneq_s32::<0>(a),
                vdupq_laneq_s32::<1>(a),
                vdupq_laneq_s32::<2>(a),
                vdupq_laneq_s32::<3>(a),
            ];
            for (acc, a) in acc.iter_mut().zip(a) {
                let a = vreinterpretq_s8_s32(a);
                for (acc, b) in acc.as_chunks_mut::<2>().0.iter_mut().zip(b) {
                    acc[0] = vpadalq_s16(acc[0], vmull_s8(vget_low_s8(b), vget_low_s8(a)));
                    acc[1] = vpadalq_s16(acc[1], vmull_high_s8(b, a));
                }
            }
        }
        for (acc, row) in acc.iter().zip(&mut tile[first..]) {
            let sums = [vpaddq_s32(acc[0], acc[1]), vpaddq_s32(acc[2], acc[3])];
            store(row, column, sums);
        }
    }
}
