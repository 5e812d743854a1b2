//! The types that operations compute in, and how registers hold them.

use super::float::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use crate::operands::Type;

/// A type that operations compute in, and how registers hold it.
pub(crate) trait Element {
    type Value: Copy;
    const TYPE: Type;
    /// True if one unknown bit makes the whole result unknown.
    const FLOAT: bool;
    fn get(low: u32, high: u32) -> Self::Value;
    fn put(value: Self::Value) -> (u32, u32);
}

macro_rules! elements {
    ($($name:ident $value:ty, $type:ident $float:literal, |$low:ident, $high:ident| $get:expr, |$x:ident| $put:expr;)*) => {$(
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $name;
        impl Element for $name {
            type Value = $value;
            const TYPE: Type = Type::$type;
            const FLOAT: bool = $float;
            #[inline(always)]
            fn get($low: u32, $high: u32) -> $value { $get }
            #[inline(always)]
            fn put($x: $value) -> (u32, u32) { $put }
        }
    )*};
}

elements! {
    F16 f32, F16 true, |low, _high| f16_to_f32(low), |x| (f32_to_f16(x), 0);
    Bf16 f32, Bf16 true, |low, _high| bf16_to_f32(low), |x| (f32_to_bf16(x), 0);
    F32 f32, F32 true, |low, _high| f32::from_bits(low), |x| (x.to_bits(), 0);
    F64 f64, F64 true, |low, high| f64::from_bits(u64::from(low) | u64::from(high) << 32), |x| (x.to_bits() as u32, (x.to_bits() >> 32) as u32);
    U16 u16, U16 false, |low, _high| low as u16, |x| (u32::from(x), 0);
    I16 i16, I16 false, |low, _high| low as i16, |x| (u32::from(x.cast_unsigned()), 0);
    U32 u32, U32 false, |low, _high| low, |x| (x, 0);
    I32 i32, I32 false, |low, _high| low.cast_signed(), |x| (x.cast_unsigned(), 0);
    U64 u64, U64 false, |low, high| u64::from(low) | u64::from(high) << 32, |x| (x as u32, (x >> 32) as u32);
    I64 i64, I64 false, |low, high| (u64::from(low) | u64::from(high) << 32).cast_signed(), |x| (x as u32, (x >> 32) as u32);
    U24 u32, U32 false, |low, _high| low & 0x00ff_ffff, |x| (x, 0);
    I24 i32, I32 false, |low, _high| (low << 8).cast_signed() >> 8, |x| (x.cast_unsigned(), 0);
    // A pair of halves as bits.
    Pair u32, PackedI16 false, |low, _high| low, |x| (x, 0);
    PairF16 u32, PackedF16 false, |low, _high| low, |x| (x, 0);
    // A pair of f32.
    PairF32 [f32; 2], PackedF32 false, |low, high| [f32::from_bits(low), f32::from_bits(high)], |x| (x[0].to_bits(), x[1].to_bits());
    // Bits whose constants are floats and which may have signs: what v_cndmask_b32 and v_mov_b32 take.
    Bits u32, F32 false, |low, _high| low, |x| (x, 0);
    // One half, the same way.
    HalfBits u32, F16 false, |low, _high| low & 0xffff, |x| (x, 0);
}
