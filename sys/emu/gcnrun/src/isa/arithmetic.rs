//! The tables of vector arithmetic on floats and integers of 16, 32 and 64 bits, and of operations on bits.

use super::element::*;
use super::float::{f16_to_f32, f32_to_f16, flush_f32, fma_f16, max_f32, min_f32};
use super::map::*;
use super::rows::{Row, Table, accumulate, map, rows};
use super::salu::sign_bits_32;
use crate::code::Handler;
use crate::operands::Type;

/// Adds a row for each operation.
pub(super) fn rows(table: &mut Table) {
    floats(table);
    halves(table);
    doubles(table);
    integers(table);
    short_integers(table);
    bits(table);
}

fn min_f64(a: f64, b: f64) -> f64 {
    if a.is_nan() {
        b
    } else if b.is_nan() || a < b || (a == b && a.is_sign_negative()) {
        a
    } else {
        b
    }
}

fn max_f64(a: f64, b: f64) -> f64 {
    if a.is_nan() {
        b
    } else if b.is_nan() || a > b || (a == b && a.is_sign_positive()) {
        a
    } else {
        b
    }
}

fn med3_f32(a: f32, b: f32, c: f32) -> f32 {
    if a.is_nan() || b.is_nan() || c.is_nan() {
        return min_f32(min_f32(a, b), c);
    }
    max_f32(min_f32(a, b), min_f32(max_f32(a, b), c))
}

fn med3<T: Ord + Copy>(a: T, b: T, c: T) -> T {
    a.min(b).max(a.max(b).min(c))
}

/// x − ⌊x⌋, below 1.
fn fract(x: f32, below_one: f32) -> f32 {
    let fraction = x - x.floor();
    if fraction > below_one { below_one } else { fraction }
}

fn floats(table: &mut Table) {
    rows! { table;
        "v_add_f32" => F32 (F32 a, F32 b) a + b;
        "v_sub_f32" => F32 (F32 a, F32 b) a - b;
        "v_subrev_f32" => F32 (F32 a, F32 b) b - a;
        "v_mul_f32" => F32 (F32 a, F32 b) a * b;
        "v_mul_legacy_f32" | "v_mul_dx9_zero_f32" => F32 (F32 a, F32 b) if a == 0.0 || b == 0.0 { 0.0 } else { a * b };
        "v_min_f32" | "v_min_num_f32" => F32 (F32 a, F32 b) min_f32(a, b);
        "v_max_f32" | "v_max_num_f32" => F32 (F32 a, F32 b) max_f32(a, b);
        "v_fma_f32" | "v_fmac_f32" | "v_fmaak_f32" | "v_fmamk_f32" => F32 (F32 a, F32 b, F32 c) a.mul_add(b, c);
        "v_mad_f32" | "v_mac_f32" | "v_madak_f32" | "v_madmk_f32" => F32 (F32 a, F32 b, F32 c) flushed_product(a * b) + c;
        "v_fma_dx9_zero_f32" | "v_fma_legacy_f32" | "v_fmac_dx9_zero_f32" | "v_fmac_legacy_f32" => F32 (F32 a, F32 b, F32 c)
            if a == 0.0 || b == 0.0 { c } else { a.mul_add(b, c) };
        "v_min3_f32" | "v_min3_num_f32" => F32 (F32 a, F32 b, F32 c) min_f32(min_f32(a, b), c);
        "v_max3_f32" | "v_max3_num_f32" => F32 (F32 a, F32 b, F32 c) max_f32(max_f32(a, b), c);
        "v_med3_f32" | "v_med3_num_f32" => F32 (F32 a, F32 b, F32 c) med3_f32(a, b, c);
        "v_minmax_f32" | "v_minmax_num_f32" => F32 (F32 a, F32 b, F32 c) max_f32(min_f32(a, b), c);
        "v_maxmin_f32" | "v_maxmin_num_f32" => F32 (F32 a, F32 b, F32 c) min_f32(max_f32(a, b), c);
        "v_trunc_f32" => F32 (F32 a) a.trunc();
        "v_ceil_f32" => F32 (F32 a) a.ceil();
        "v_floor_f32" => F32 (F32 a) a.floor();
        "v_rndne_f32" => F32 (F32 a) a.round_ties_even();
        "v_fract_f32" => F32 (F32 a) fract(a, 0.999_999_94);
        "v_sqrt_f32" => F32 (F32 a) a.sqrt();
        "v_rcp_f32" | "v_rcp_iflag_f32" => F32 (F32 a) 1.0 / a;
        "v_rsq_f32" => F32 (F32 a) (1.0 / f64::from(a).sqrt()) as f32;
        "v_exp_f32" => F32 (F32 a) a.exp2();
        "v_log_f32" => F32 (F32 a) a.log2();
        "v_sin_f32" => F32 (F32 a) (f64::from(a).fract() * std::f64::consts::TAU).sin() as f32;
        "v_cos_f32" => F32 (F32 a) (f64::from(a).fract() * std::f64::consts::TAU).cos() as f32;
        "v_ldexp_f32" => F32 (F32 a, I32 b) libm::ldexpf(a, b.clamp(-300, 300));
        "v_frexp_mant_f32" => F32 (F32 a) if a.is_finite() { libm::frexpf(a).0 } else { a };
        "v_frexp_exp_i32_f32" => I32 (F32 a) if a.is_finite() { libm::frexpf(a).1 } else { 0 };
        "v_div_fixup_f32" => F32 (F32 a, F32 b, F32 c) div_fixup(f64::from(a), f64::from(b), f64::from(c)) as f32;
    }
    accumulate(
        table,
        &[
            "v_fmac_f32",
            "v_mac_f32",
            "v_fmac_dx9_zero_f32",
            "v_fmac_legacy_f32",
        ],
    );
}

fn flushed_product(product: f32) -> f32 {
    flush_f32(product)
}

fn halves(table: &mut Table) {
    rows! { table;
        "v_add_f16" => F16 (F16 a, F16 b) a + b;
        "v_sub_f16" => F16 (F16 a, F16 b) a - b;
        "v_subrev_f16" => F16 (F16 a, F16 b) b - a;
        "v_mul_f16" => F16 (F16 a, F16 b) a * b;
        "v_min_f16" | "v_min_num_f16" => F16 (F16 a, F16 b) min_f32(a, b);
        "v_max_f16" | "v_max_num_f16" => F16 (F16 a, F16 b) max_f32(a, b);
        "v_fma_f16" | "v_fmac_f16" | "v_fmaak_f16" | "v_fmamk_f16" => F16 (F16 a, F16 b, F16 c) fma_f16(a, b, c);
        "v_mad_f16" | "v_mac_f16" | "v_mad_legacy_f16" | "v_madak_f16" | "v_madmk_f16" => F16 (F16 a, F16 b, F16 c)
            f16_to_f32(f32_to_f16(a * b)) + c;
        "v_min3_f16" | "v_min3_num_f16" => F16 (F16 a, F16 b, F16 c) min_f32(min_f32(a, b), c);
        "v_max3_f16" | "v_max3_num_f16" => F16 (F16 a, F16 b, F16 c) max_f32(max_f32(a, b), c);
        "v_med3_f16" | "v_med3_num_f16" => F16 (F16 a, F16 b, F16 c) med3_f32(a, b, c);
        "v_minmax_f16" | "v_minmax_num_f16" => F16 (F16 a, F16 b, F16 c) max_f32(min_f32(a, b), c);
        "v_maxmin_f16" | "v_maxmin_num_f16" => F16 (F16 a, F16 b, F16 c) min_f32(max_f32(a, b), c);
        "v_trunc_f16" => F16 (F16 a) a.trunc();
        "v_ceil_f16" => F16 (F16 a) a.ceil();
        "v_floor_f16" => F16 (F16 a) a.floor();
        "v_rndne_f16" => F16 (F16 a) a.round_ties_even();
        "v_fract_f16" => F16 (F16 a) fract(a, 0.999_511_7);
        "v_sqrt_f16" => F16 (F16 a) a.sqrt();
        "v_rcp_f16" => F16 (F16 a) 1.0 / a;
        "v_rsq_f16" => F16 (F16 a) (1.0 / f64::from(a).sqrt()) as f32;
        "v_exp_f16" => F16 (F16 a) a.exp2();
        "v_log_f16" => F16 (F16 a) a.log2();
        "v_sin_f16" => F16 (F16 a) (f64::from(a).fract() * std::f64::consts::TAU).sin() as f32;
        "v_cos_f16" => F16 (F16 a) (f64::from(a).fract() * std::f64::consts::TAU).cos() as f32;
        "v_ldexp_f16" => F16 (F16 a, I16 b) libm::ldexpf(a, i32::from(b).clamp(-60, 60));
        "v_frexp_mant_f16" => F16 (F16 a) if a.is_finite() { libm::frexpf(a).0 } else { a };
        "v_frexp_exp_i16_f16" => I16 (F16 a) if a.is_finite() { libm::frexpf(a).1 as i16 } else { 0 };
        "v_div_fixup_f16" => F16 (F16 a, F16 b, F16 c) div_fixup(f64::from(a), f64::from(b), f64::from(c)) as f32;
    }
    accumulate(table, &["v_fmac_f16", "v_mac_f16"]);
}

fn doubles(table: &mut Table) {
    rows! { table;
        "v_add_f64" => F64 (F64 a, F64 b) a + b;
        "v_mul_f64" => F64 (F64 a, F64 b) a * b;
        "v_min_f64" | "v_min_num_f64" => F64 (F64 a, F64 b) min_f64(a, b);
        "v_max_f64" | "v_max_num_f64" => F64 (F64 a, F64 b) max_f64(a, b);
        "v_fma_f64" | "v_fmac_f64" => F64 (F64 a, F64 b, F64 c) a.mul_add(b, c);
        "v_trunc_f64" => F64 (F64 a) a.trunc();
        "v_ceil_f64" => F64 (F64 a) a.ceil();
        "v_floor_f64" => F64 (F64 a) a.floor();
        "v_rndne_f64" => F64 (F64 a) a.round_ties_even();
        "v_fract_f64" => F64 (F64 a) { let f = a - a.floor(); if f >= 1.0 { 1.0 - f64::EPSILON / 2.0 } else { f } };
        "v_sqrt_f64" => F64 (F64 a) a.sqrt();
        "v_rcp_f64" => F64 (F64 a) 1.0 / a;
        "v_rsq_f64" => F64 (F64 a) 1.0 / a.sqrt();
        "v_ldexp_f64" => F64 (F64 a, I32 b) libm::ldexp(a, b.clamp(-2200, 2200));
        "v_frexp_mant_f64" => F64 (F64 a) if a.is_finite() { libm::frexp(a).0 } else { a };
        "v_frexp_exp_i32_f64" => I32 (F64 a) if a.is_finite() { libm::frexp(a).1 } else { 0 };
        "v_div_fixup_f64" => F64 (F64 a, F64 b, F64 c) div_fixup(a, b, c);
    }
    accumulate(table, &["v_fmac_f64"]);
}

/// The quotient `q` of c / b, with the special cases corrected (V_DIV_FIXUP of the ISA guides).
fn div_fixup(q: f64, b: f64, c: f64) -> f64 {
    let negative = b.is_sign_negative() != c.is_sign_negative();
    let signed = |magnitude: f64| if negative { -magnitude } else { magnitude };
    if c.is_nan() {
        c
    } else if b.is_nan() {
        b
    } else if (b == 0.0 && c == 0.0) || (b.is_infinite() && c.is_infinite()) {
        f64::NAN
    } else if b == 0.0 || c.is_infinite() {
        signed(f64::INFINITY)
    } else if b.is_infinite() || c == 0.0 {
        signed(0.0)
    } else if q.is_nan() {
        // The quotient of finite numbers overflowed on the way.
        signed(f64::INFINITY)
    } else {
        signed(q.abs())
    }
}

fn integers(table: &mut Table) {
    rows! { table;
        "v_add_nc_u32" | "v_add_u32" | "v_add_nc_i32" | "v_add_i32" => U32 (U32 a, U32 b) a.wrapping_add(b);
        "v_sub_nc_u32" | "v_sub_u32" | "v_sub_nc_i32" | "v_sub_i32" => U32 (U32 a, U32 b) a.wrapping_sub(b);
        "v_subrev_nc_u32" | "v_subrev_u32" => U32 (U32 a, U32 b) b.wrapping_sub(a);
        "v_add_nc_u32 clamp" | "v_add_u32 clamp" => U32 (U32 a, U32 b) a.saturating_add(b);
        "v_sub_nc_u32 clamp" | "v_sub_u32 clamp" => U32 (U32 a, U32 b) a.saturating_sub(b);
        "v_subrev_nc_u32 clamp" | "v_subrev_u32 clamp" => U32 (U32 a, U32 b) b.saturating_sub(a);
        "v_add_nc_i32 clamp" | "v_add_i32 clamp" => I32 (I32 a, I32 b) a.saturating_add(b);
        "v_sub_nc_i32 clamp" | "v_sub_i32 clamp" => I32 (I32 a, I32 b) a.saturating_sub(b);
        "v_mul_lo_u32" | "v_mul_lo_i32" => U32 (U32 a, U32 b) a.wrapping_mul(b);
        "v_mul_hi_u32" => U32 (U32 a, U32 b) ((u64::from(a) * u64::from(b)) >> 32) as u32;
        "v_mul_hi_i32" => U32 (I32 a, I32 b) ((i64::from(a) * i64::from(b)) >> 32) as u32;
        "v_mul_u32_u24" => U32 (U24 a, U24 b) a.wrapping_mul(b);
        "v_mul_i32_i24" => I32 (I24 a, I24 b) a.wrapping_mul(b);
        "v_mul_hi_u32_u24" => U32 (U24 a, U24 b) ((u64::from(a) * u64::from(b)) >> 32) as u32;
        "v_mul_hi_i32_i24" => U32 (I24 a, I24 b) ((i64::from(a) * i64::from(b)) >> 32) as u32;
        "v_mad_u32_u24" => U32 (U24 a, U24 b, U32 c) a.wrapping_mul(b).wrapping_add(c);
        "v_mad_i32_i24" => I32 (I24 a, I24 b, I32 c) a.wrapping_mul(b).wrapping_add(c);
        "v_mad_u32_u16" => U32 (U16 a, U16 b, U32 c) u32::from(a).wrapping_mul(u32::from(b)).wrapping_add(c);
        "v_mad_i32_i16" => I32 (I16 a, I16 b, I32 c) i32::from(a).wrapping_mul(i32::from(b)).wrapping_add(c);
        "v_add3_u32" => U32 (U32 a, U32 b, U32 c) a.wrapping_add(b).wrapping_add(c);
        "v_add_lshl_u32" => U32 (U32 a, U32 b, U32 c) a.wrapping_add(b) << (c & 31);
        "v_lshl_add_u32" => U32 (U32 a, U32 b, U32 c) (a << (b & 31)).wrapping_add(c);
        "v_xad_u32" => U32 (U32 a, U32 b, U32 c) (a ^ b).wrapping_add(c);
        "v_lshl_add_u64" => U64 (U64 a, U32 b, U64 c) (a << (b & 7)).wrapping_add(c);
        "v_min_u32" => U32 (U32 a, U32 b) a.min(b);
        "v_max_u32" => U32 (U32 a, U32 b) a.max(b);
        "v_min_i32" => I32 (I32 a, I32 b) a.min(b);
        "v_max_i32" => I32 (I32 a, I32 b) a.max(b);
        "v_min3_u32" => U32 (U32 a, U32 b, U32 c) a.min(b).min(c);
        "v_max3_u32" => U32 (U32 a, U32 b, U32 c) a.max(b).max(c);
        "v_min3_i32" => I32 (I32 a, I32 b, I32 c) a.min(b).min(c);
        "v_max3_i32" => I32 (I32 a, I32 b, I32 c) a.max(b).max(c);
        "v_med3_u32" => U32 (U32 a, U32 b, U32 c) med3(a, b, c);
        "v_med3_i32" => I32 (I32 a, I32 b, I32 c) med3(a, b, c);
        "v_minmax_u32" => U32 (U32 a, U32 b, U32 c) a.min(b).max(c);
        "v_maxmin_u32" => U32 (U32 a, U32 b, U32 c) a.max(b).min(c);
        "v_minmax_i32" => I32 (I32 a, I32 b, I32 c) a.min(b).max(c);
        "v_maxmin_i32" => I32 (I32 a, I32 b, I32 c) a.max(b).min(c);
        "v_sad_u8" => U32 (U32 a, U32 b, U32 c) sad_u8(a, b).wrapping_add(c);
        "v_sad_hi_u8" => U32 (U32 a, U32 b, U32 c) (sad_u8(a, b) << 16).wrapping_add(c);
        "v_sad_u16" => U32 (U32 a, U32 b, U32 c) (a & 0xffff).abs_diff(b & 0xffff).wrapping_add((a >> 16).abs_diff(b >> 16)).wrapping_add(c);
        "v_sad_u32" => U32 (U32 a, U32 b, U32 c) a.abs_diff(b).wrapping_add(c);
    }
}

fn sad_u8(a: u32, b: u32) -> u32 {
    a.to_le_bytes()
        .into_iter()
        .zip(b.to_le_bytes())
        .map(|(a, b)| u32::from(a.abs_diff(b)))
        .sum()
}

fn short_integers(table: &mut Table) {
    rows! { table;
        "v_add_nc_u16" | "v_add_nc_i16" | "v_add_u16" | "v_add_i16" => U16 (U16 a, U16 b) a.wrapping_add(b);
        "v_sub_nc_u16" | "v_sub_nc_i16" | "v_sub_u16" | "v_sub_i16" => U16 (U16 a, U16 b) a.wrapping_sub(b);
        "v_subrev_u16" | "v_subrev_nc_u16" => U16 (U16 a, U16 b) b.wrapping_sub(a);
        "v_add_nc_u16 clamp" | "v_add_u16 clamp" => U16 (U16 a, U16 b) a.saturating_add(b);
        "v_sub_nc_u16 clamp" | "v_sub_u16 clamp" => U16 (U16 a, U16 b) a.saturating_sub(b);
        "v_add_nc_i16 clamp" | "v_add_i16 clamp" => I16 (I16 a, I16 b) a.saturating_add(b);
        "v_sub_nc_i16 clamp" | "v_sub_i16 clamp" => I16 (I16 a, I16 b) a.saturating_sub(b);
        "v_mul_lo_u16" => U16 (U16 a, U16 b) a.wrapping_mul(b);
        "v_mad_u16" | "v_mad_legacy_u16" | "v_mad_i16" | "v_mad_legacy_i16" => U16 (U16 a, U16 b, U16 c) a.wrapping_mul(b).wrapping_add(c);
        "v_min_u16" => U16 (U16 a, U16 b) a.min(b);
        "v_max_u16" => U16 (U16 a, U16 b) a.max(b);
        "v_min_i16" => I16 (I16 a, I16 b) a.min(b);
        "v_max_i16" => I16 (I16 a, I16 b) a.max(b);
        "v_min3_u16" => U16 (U16 a, U16 b, U16 c) a.min(b).min(c);
        "v_max3_u16" => U16 (U16 a, U16 b, U16 c) a.max(b).max(c);
        "v_med3_u16" => U16 (U16 a, U16 b, U16 c) med3(a, b, c);
        "v_min3_i16" => I16 (I16 a, I16 b, I16 c) a.min(b).min(c);
        "v_max3_i16" => I16 (I16 a, I16 b, I16 c) a.max(b).max(c);
        "v_med3_i16" => I16 (I16 a, I16 b, I16 c) med3(a, b, c);
        "v_lshlrev_b16" => U16 (U16 a, U16 b) b << (a & 15);
        "v_lshrrev_b16" => U16 (U16 a, U16 b) b >> (a & 15);
        "v_ashrrev_i16" => I16 (U16 a, I16 b) b >> (a & 15);
        "v_not_b16" => U16 (U16 a) !a;
        "v_and_b16" => U16 (U16 a, U16 b) a & b;
        "v_or_b16" => U16 (U16 a, U16 b) a | b;
        "v_xor_b16" => U16 (U16 a, U16 b) a ^ b;
        "v_mov_b16" => HalfBits (HalfBits a) a;
        // Compilers assume that the upper half of the result is zero, as it is for most 16-bit operations on CDNA.
        "v_ashr_pk_i8_i32" => U32 (I32 a, I32 b, U32 c) {
            let byte = |x: i32| u32::from((x >> (c & 31)).clamp(-128, 127) as u8);
            byte(a) | byte(b) << 8
        };
        "v_ashr_pk_u8_i32" => U32 (I32 a, I32 b, U32 c) {
            let byte = |x: i32| (x >> (c & 31)).clamp(0, 255).cast_unsigned();
            byte(a) | byte(b) << 8
        };
    }
}

/// Any function of three bits: bit 4a + 2b + c of `truth` is its value.
fn bitop3(truth: u32, a: u32, b: u32, c: u32) -> u32 {
    (0..8).filter(|case| truth >> case & 1 == 1).fold(0, |all, case| {
        let is = |bits: u32, which: u32| if case & which != 0 { bits } else { !bits };
        all | is(a, 4) & is(b, 2) & is(c, 1)
    })
}

fn bits(table: &mut Table) {
    table.insert(
        "v_bitop3_b32",
        Row {
            run: |context, instruction| {
                let truth = instruction.detail[0];
                map3::<U32, U32, U32, U32, _>(context, instruction, |a, b, c| bitop3(truth, a, b, c))
            },
            result: Type::U32,
            operands: &[Type::U32; 3],
            accumulates: false,
        },
    );
    table.insert(
        "v_bitop3_b16",
        Row {
            run: |context, instruction| {
                let truth = instruction.detail[0];
                map3::<U16, U16, U16, U16, _>(context, instruction, |a, b, c| {
                    bitop3(truth, a.into(), b.into(), c.into()) as u16
                })
            },
            result: Type::U16,
            operands: &[Type::U16; 3],
            accumulates: false,
        },
    );
    rows! { table;
        "v_mov_b32" | "v_accvgpr_read_b32" | "v_accvgpr_write_b32" | "v_accvgpr_mov_b32" => Bits (Bits a) a;
        "v_mov_b64" => U64 (U64 a) a;
        "v_not_b32" => U32 (U32 a) !a;
        "v_bfrev_b32" => U32 (U32 a) a.reverse_bits();
        "v_and_b32" => U32 (U32 a, U32 b) a & b;
        "v_or_b32" => U32 (U32 a, U32 b) a | b;
        "v_xor_b32" => U32 (U32 a, U32 b) a ^ b;
        "v_xnor_b32" => U32 (U32 a, U32 b) !(a ^ b);
        "v_and_or_b32" => U32 (U32 a, U32 b, U32 c) a & b | c;
        "v_or3_b32" => U32 (U32 a, U32 b, U32 c) a | b | c;
        "v_xor3_b32" => U32 (U32 a, U32 b, U32 c) a ^ b ^ c;
        "v_lshl_or_b32" => U32 (U32 a, U32 b, U32 c) a << (b & 31) | c;
        "v_lshlrev_b32" => U32 (U32 a, U32 b) b << (a & 31);
        "v_lshrrev_b32" => U32 (U32 a, U32 b) b >> (a & 31);
        "v_ashrrev_i32" => I32 (U32 a, I32 b) b >> (a & 31);
        "v_lshl_b32" => U32 (U32 a, U32 b) a << (b & 31);
        "v_lshlrev_b64" => U64 (U32 a, U64 b) b << (a & 63);
        "v_lshrrev_b64" => U64 (U32 a, U64 b) b >> (a & 63);
        "v_ashrrev_i64" => I64 (U32 a, I64 b) b >> (a & 63);
        "v_bfe_u32" => U32 (U32 a, U32 b, U32 c) (a >> (b & 31)) & ((1_u32 << (c & 31)) - 1);
        "v_bfe_i32" => U32 (U32 a, U32 b, U32 c) bfe_i32(a, b & 31, c & 31);
        "v_bfi_b32" => U32 (U32 a, U32 b, U32 c) a & b | !a & c;
        "v_bfm_b32" => U32 (U32 a, U32 b) ((1_u32 << (a & 31)) - 1) << (b & 31);
        "v_alignbit_b32" => U32 (U32 a, U32 b, U32 c) ((u64::from(a) << 32 | u64::from(b)) >> (c & 31)) as u32;
        "v_alignbyte_b32" => U32 (U32 a, U32 b, U32 c) ((u64::from(a) << 32 | u64::from(b)) >> (8 * (c & 3))) as u32;
        "v_perm_b32" => U32 (U32 a, U32 b, U32 c) permute_bytes(a, b, c);
        "v_ffbh_u32" | "v_clz_i32_u32" => U32 (U32 a) if a == 0 { u32::MAX } else { a.leading_zeros() };
        "v_ffbl_b32" | "v_ctz_i32_b32" => U32 (U32 a) if a == 0 { u32::MAX } else { a.trailing_zeros() };
        "v_ffbh_i32" | "v_cls_i32" => U32 (I32 a) sign_bits_32(a);
        "v_bcnt_u32_b32" => U32 (U32 a, U32 b) a.count_ones().wrapping_add(b);
    }
}

fn bfe_i32(a: u32, offset: u32, count: u32) -> u32 {
    let available = count.min(32 - offset);
    if available == 0 {
        return 0;
    }
    let unused = 32 - available;
    (((a >> offset) << unused).cast_signed() >> unused).cast_unsigned()
}

/// V_PERM_B32: each byte of the selector picks one of the eight bytes of a:b, a sign, 0 or 0xff.
fn permute_bytes(a: u32, b: u32, selector: u32) -> u32 {
    let data = (u64::from(a) << 32 | u64::from(b)).to_le_bytes();
    let pick = |select: u8| match select {
        0..=7 => data[usize::from(select)],
        8..=11 => {
            if data[2 * usize::from(select - 8) + 1] >= 0x80 {
                0xff
            } else {
                0
            }
        }
        12 => 0,
        _ => 0xff,
    };
    u32::from_le_bytes(selector.to_le_bytes().map(pick))
}
