//! Element types, operands and products of matrices.

use crate::isa::float::{bf16_to_f32, f16_to_f32};
use crate::isa::float8::Float8;
use crate::wave::Wave;

/// The element type of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    F16,
    Bf16,
    F32,
    /// Bytes, signed or not.
    I8(bool),
    I4(bool),
    F8(Float8),
}

impl Element {
    const CODES: [Self; 11] = [
        Self::F16,
        Self::Bf16,
        Self::F32,
        Self::I8(true),
        Self::I8(false),
        Self::I4(true),
        Self::I4(false),
        Self::F8(Float8::Fp8Fnuz),
        Self::F8(Float8::Bf8Fnuz),
        Self::F8(Float8::Fp8),
        Self::F8(Float8::Bf8),
    ];

    pub(super) fn code(self) -> u32 {
        Self::CODES
            .iter()
            .position(|element| *element == self)
            .unwrap_or(0) as u32
    }

    pub(super) fn from_code(code: u32) -> Self {
        Self::CODES.get(code as usize).copied().unwrap_or(Self::F32)
    }

    pub(super) fn per_dword(self) -> usize {
        match self {
            Self::F32 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::I8(_) | Self::F8(_) => 4,
            Self::I4(_) => 8,
        }
    }

    /// The `index`th element of a dword, as a float: whole numbers of 8 bits are exact.
    pub(super) fn get(self, dword: u32, index: usize) -> f32 {
        match self {
            Self::F16 => f16_to_f32(dword >> (16 * index)),
            Self::Bf16 => bf16_to_f32(dword >> (16 * index) & 0xffff),
            Self::F32 => f32::from_bits(dword),
            Self::I8(true) => f32::from((dword >> (8 * index)) as i8),
            Self::I8(false) => f32::from((dword >> (8 * index)) as u8),
            Self::I4(true) => ((dword << (28 - 4 * index)).cast_signed() >> 28) as f32,
            Self::I4(false) => (dword >> (4 * index) & 15) as f32,
            Self::F8(format) => format.value(dword >> (8 * index)),
        }
    }
}

/// An operand's matrix, row-major with the rows' known flags. B is read as its transpose: a row is a column of B.
pub(super) struct Operand {
    pub(super) values: Vec<f32>,
    pub(super) known: Vec<bool>,
}

pub(super) fn wave_row_known(wave: &Wave, register: usize, lane: usize) -> bool {
    let [low, high] = wave.vgpr_known[register];
    low & high & 1 << lane != 0
}

/// a (rows × depth) times b (columns × depth) added to c (rows × columns), all row-major.
#[inline(always)]
fn accumulate(a: &[f32], b: &[f32], c: &mut [f32], depth: usize, columns: usize) {
    // Transposed, so that the inner loop runs over consecutive elements.
    let mut transposed = vec![0.0_f32; b.len()];
    for (column, row) in b.chunks_exact(depth).enumerate() {
        for (k, value) in row.iter().enumerate() {
            transposed[k * columns + column] = *value;
        }
    }
    for (row, out) in a.chunks_exact(depth).zip(c.chunks_exact_mut(columns)) {
        for (factor, values) in row.iter().zip(transposed.chunks_exact(columns)) {
            for (sum, value) in out.iter_mut().zip(values) {
                *sum = factor.mul_add(*value, *sum);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn accumulate_with_fma(a: &[f32], b: &[f32], c: &mut [f32], depth: usize, columns: usize) {
    accumulate(a, b, c, depth, columns);
}

pub(super) fn multiply(has_fma: bool, a: &[f32], b: &[f32], c: &mut [f32], depth: usize, columns: usize) {
    #[cfg(target_arch = "x86_64")]
    if has_fma {
        // SAFETY: `has_fma` is only true where the interpreter detected AVX2 and FMA.
        unsafe { accumulate_with_fma(a, b, c, depth, columns) };
        return;
    }
    let _ = has_fma;
    accumulate(a, b, c, depth, columns);
}

/// Multiplies matrices of integers, which wrap around.
pub(super) fn multiply_integers(a: &[f32], b: &[f32], c: &mut [u32], depth: usize, columns: usize) {
    for (row, out) in a.chunks_exact(depth).zip(c.chunks_exact_mut(columns)) {
        for (column, sum) in b.chunks_exact(depth).zip(out) {
            let sum_of_row: i32 = row.iter().zip(column).map(|(a, b)| *a as i32 * *b as i32).sum();
            *sum = sum.wrapping_add(sum_of_row.cast_unsigned());
        }
    }
}
