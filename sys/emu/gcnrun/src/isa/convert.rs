//! Conversions between number formats.

use super::element::*;
use super::float::{f32_to_bf16, f32_to_f16, f32_to_f16_toward_zero};
use super::float8::Float8::{Bf8, Bf8Fnuz, Fp8, Fp8Fnuz};
use super::map::*;
use super::rows::{self, Row, Table, map};
use crate::code::Handler;

/// To the nearest whole number of 16 bits of −1 … 1.
fn normalised_i16(a: f32) -> u32 {
    u32::from(((a.clamp(-1.0, 1.0) * 32767.0).round_ties_even() as i16).cast_unsigned())
}

fn normalised_u16(a: f32) -> u32 {
    u32::from((a.clamp(0.0, 1.0) * 65535.0).round_ties_even() as u16)
}

fn pair(low: u32, high: u32) -> u32 {
    low & 0xffff | high << 16
}

fn saturated_i16(a: i32) -> u32 {
    a.clamp(-32768, 32767).cast_unsigned()
}

/// `f32` from a double: rounded once.
pub(super) fn rows(table: &mut Table) {
    rows::rows! { table;
        "v_cvt_f32_i32" => F32 (I32 a) a as f32;
        "v_cvt_f32_u32" => F32 (U32 a) a as f32;
        "v_cvt_i32_f32" => I32 (F32 a) a as i32;
        "v_cvt_u32_f32" => U32 (F32 a) a as u32;
        "v_cvt_f64_i32" => F64 (I32 a) f64::from(a);
        "v_cvt_f64_u32" => F64 (U32 a) f64::from(a);
        "v_cvt_i32_f64" => I32 (F64 a) a as i32;
        "v_cvt_u32_f64" => U32 (F64 a) a as u32;
        "v_cvt_f32_f64" => F32 (F64 a) a as f32;
        "v_cvt_f64_f32" => F64 (F32 a) f64::from(a);
        "v_cvt_f16_f32" => F16 (F32 a) a;
        "v_cvt_f32_f16" => F32 (F16 a) a;
        "v_cvt_f32_bf16" => F32 (Bf16 a) a;
        "v_cvt_f16_u16" => F16 (U16 a) f32::from(a);
        "v_cvt_f16_i16" => F16 (I16 a) f32::from(a);
        "v_cvt_u16_f16" => U16 (F16 a) a as u16;
        "v_cvt_i16_f16" => I16 (F16 a) a as i16;
        "v_cvt_u32_u16" => U32 (U16 a) u32::from(a);
        "v_cvt_i32_i16" => I32 (I16 a) i32::from(a);
        "v_cvt_nearest_i32_f32" | "v_cvt_rpi_i32_f32" => I32 (F32 a) (a + 0.5).floor() as i32;
        "v_cvt_floor_i32_f32" | "v_cvt_flr_i32_f32" => I32 (F32 a) a.floor() as i32;
        "v_cvt_f32_ubyte0" => F32 (U32 a) (a & 255) as f32;
        "v_cvt_f32_ubyte1" => F32 (U32 a) (a >> 8 & 255) as f32;
        "v_cvt_f32_ubyte2" => F32 (U32 a) (a >> 16 & 255) as f32;
        "v_cvt_f32_ubyte3" => F32 (U32 a) (a >> 24) as f32;
        "v_cvt_pk_u8_f32" => U32 (F32 a, U32 b, U32 c) {
            let shift = 8 * (b & 3);
            c & !(255 << shift) | u32::from(a.round_ties_even() as u8) << shift
        };
        "v_cvt_pkrtz_f16_f32" | "v_cvt_pk_rtz_f16_f32" => Pair (F32 a, F32 b) pair(f32_to_f16_toward_zero(a), f32_to_f16_toward_zero(b));
        "v_cvt_pk_f16_f32" => Pair (F32 a, F32 b) pair(f32_to_f16(a), f32_to_f16(b));
        "v_cvt_pk_bf16_f32" => Pair (F32 a, F32 b) pair(f32_to_bf16(a), f32_to_bf16(b));
        "v_cvt_pk_i16_i32" => Pair (I32 a, I32 b) pair(saturated_i16(a), saturated_i16(b));
        "v_cvt_pk_u16_u32" => Pair (U32 a, U32 b) pair(a.min(65535), b.min(65535));
        "v_cvt_pk_i16_f32" => Pair (F32 a, F32 b) pair(saturated_i16(a as i32), saturated_i16(b as i32));
        "v_cvt_pk_u16_f32" => Pair (F32 a, F32 b) pair((a as u32).min(65535), (b as u32).min(65535));
        "v_cvt_pknorm_i16_f32" | "v_cvt_pk_norm_i16_f32" => Pair (F32 a, F32 b) pair(normalised_i16(a), normalised_i16(b));
        "v_cvt_pknorm_u16_f32" | "v_cvt_pk_norm_u16_f32" => Pair (F32 a, F32 b) pair(normalised_u16(a), normalised_u16(b));
        "v_cvt_pknorm_i16_f16" | "v_cvt_pk_norm_i16_f16" => Pair (F16 a, F16 b) pair(normalised_i16(a), normalised_i16(b));
        "v_cvt_pknorm_u16_f16" | "v_cvt_pk_norm_u16_f16" => Pair (F16 a, F16 b) pair(normalised_u16(a), normalised_u16(b));
        "v_cvt_norm_i16_f16" => U16 (F16 a) normalised_i16(a) as u16;
        "v_cvt_norm_u16_f16" => U16 (F16 a) normalised_u16(a) as u16;
        "v_cvt_f32_fp8" => F32 (U32 a) Fp8Fnuz.value(a);
        "v_cvt_f32_bf8" => F32 (U32 a) Bf8Fnuz.value(a);
        "v_cvt_pk_f32_fp8" => PairF32 (U32 a) [Fp8Fnuz.value(a), Fp8Fnuz.value(a >> 8)];
        "v_cvt_pk_f32_bf8" => PairF32 (U32 a) [Bf8Fnuz.value(a), Bf8Fnuz.value(a >> 8)];
        "v_cvt_pk_fp8_f32" => U16 (F32 a, F32 b) (Fp8Fnuz.round(a) | Fp8Fnuz.round(b) << 8) as u16;
        "v_cvt_pk_bf8_f32" => U16 (F32 a, F32 b) (Bf8Fnuz.round(a) | Bf8Fnuz.round(b) << 8) as u16;
        "v_cvt_f32_fp8 ocp" => F32 (U32 a) Fp8.value(a);
        "v_cvt_f32_bf8 ocp" => F32 (U32 a) Bf8.value(a);
        "v_cvt_pk_f32_fp8 ocp" => PairF32 (U32 a) [Fp8.value(a), Fp8.value(a >> 8)];
        "v_cvt_pk_f32_bf8 ocp" => PairF32 (U32 a) [Bf8.value(a), Bf8.value(a >> 8)];
        "v_cvt_pk_fp8_f32 ocp" => U16 (F32 a, F32 b) (Fp8.round(a) | Fp8.round(b) << 8) as u16;
        "v_cvt_pk_bf8_f32 ocp" => U16 (F32 a, F32 b) (Bf8.round(a) | Bf8.round(b) << 8) as u16;
        "v_sat_pk_u8_i16" => U16 (Pair a) {
            let byte = |half: u32| u16::from((half as i16).clamp(0, 255) as u8);
            byte(a) | byte(a >> 16) << 8
        };
        "v_pack_b32_f16" => Pair (HalfBits a, HalfBits b) pair(a, b);
    }
}
