//! Operations mapped over the active lanes: fetch the operands, compute 32 lanes at a time, store, and propagate which lanes are known.
//!
//! The functions are generic over the operand types and the operation; each row of the tables instantiates one.

use super::element::Element;
use super::float::flush_f32;
use super::lanes::{Half, fetch, mark_known, operand_lanes, store};
use super::unknown::with_unknown;
use crate::code::{Context, Instruction, Outcome};
use crate::operands::Type;
use crate::wave::Wave;

/// Computes 32 results, with AVX2 and FMA where the host has them, because `mul_add` is slow without.
#[inline(always)]
fn each(has_fma: bool, low: &mut Half, high: &mut Half, f: impl Fn(usize) -> (u32, u32)) {
    #[cfg(target_arch = "x86_64")]
    if has_fma {
        // SAFETY: `has_fma` is only true where the interpreter detected AVX2 and FMA.
        unsafe { each_with_fma(low, high, f) };
        return;
    }
    let _ = has_fma;
    each_portable(low, high, f);
}

#[inline(always)]
fn each_portable(low: &mut Half, high: &mut Half, f: impl Fn(usize) -> (u32, u32)) {
    for lane in 0..32 {
        (low[lane], high[lane]) = f(lane);
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn each_with_fma(low: &mut Half, high: &mut Half, f: impl Fn(usize) -> (u32, u32)) {
    each_portable(low, high, f);
}

/// True if denormal `f32` operands and results of this instruction are flushed to zero. MODE flushes both or neither, as
/// compilers set it (`set_mode` rejects the rest).
#[inline(always)]
fn flushes(wave: &Wave, instruction: &Instruction) -> bool {
    wave.mode.denormals_f32 == 0 && !instruction.ignores_mode || instruction.flushes
}

#[inline(never)]
fn flushed<'a>(row: &Half, buffer: &'a mut Half) -> &'a Half {
    for (out, bits) in buffer.iter_mut().zip(row) {
        *out = flush_f32(f32::from_bits(*bits)).to_bits();
    }
    buffer
}

macro_rules! operation {
    ($name:ident, $($index:literal $ty:ident $value:ident $low:ident $high:ident),+) => {
        /// Maps an operation over the active lanes.
        #[inline(always)]
        pub(crate) fn $name<$($ty: Element,)+ R: Element, F: Fn($($ty::Value),+) -> R::Value>(
            context: &mut Context<'_, '_>,
            instruction: &Instruction,
            f: F,
        ) -> Outcome {
            let exec = context.wave.exec();
            if exec == 0 {
                return Ok(());
            }
            let mut known = u64::MAX;
            $(known &= operand_lanes(context.wave, &instruction.src[$index], $ty::TYPE);)+
            if exec & !known != 0 && !context.assume_known {
                return with_unknown(context, instruction, R::TYPE, [$($index),+].len(), false $(|| $ty::FLOAT)+, !known);
            }
            let has_fma = context.has_fma;
            let wave = &mut *context.wave;
            let flushing = flushes(wave, instruction);
            for round in 0..(wave.lanes / 32) as usize {
                let mask = (exec >> (32 * round)) as u32;
                if mask == 0 {
                    continue;
                }
                let mut low = [0; 32];
                let mut high = [0; 32];
                {
                    $(
                        let mut $low = [0; 32];
                        let mut $high = [0; 32];
                        let mut $value = [0; 32];
                        let mut $low = fetch(wave, &instruction.src[$index][0], round, &mut $low);
                        let $high = if $ty::TYPE.is_wide() {
                            fetch(wave, &instruction.src[$index][1], round, &mut $high)
                        } else {
                            $low
                        };
                        if flushing && $ty::TYPE == Type::F32 {
                            $low = flushed($low, &mut $value);
                        }
                    )+
                    each(has_fma, &mut low, &mut high, |lane| R::put(f($($ty::get($low[lane], $high[lane])),+)));
                }
                if flushing && R::TYPE == Type::F32 {
                    let copy = low;
                    flushed(&copy, &mut low);
                }
                store(wave, &instruction.dst, R::TYPE, round, mask, &mut low, &mut high);
            }
            mark_known(wave, &instruction.dst, R::TYPE, exec);
            Ok(())
        }
    };
}

operation!(map1, 0 A a al ah);
operation!(map2, 0 A a al ah, 1 B b bl bh);
operation!(map3, 0 A a al ah, 1 B b bl bh, 2 C c cl ch);

/// Compares two operands in the active lanes: the lanes in which `f` is true, and those in which that is known.
#[inline(always)]
pub(crate) fn compare<A: Element, B: Element>(
    context: &Context<'_, '_>,
    instruction: &Instruction,
    f: impl Fn(A::Value, B::Value) -> bool,
) -> (u64, u64) {
    let wave = &*context.wave;
    let exec = wave.exec();
    let known =
        operand_lanes(wave, &instruction.src[0], A::TYPE) & operand_lanes(wave, &instruction.src[1], B::TYPE);
    let flushing = flushes(wave, instruction);
    let mut holds = 0;
    for round in 0..(wave.lanes / 32) as usize {
        let mask = (exec >> (32 * round)) as u32;
        if mask == 0 {
            continue;
        }
        let mut buffers = [[0; 32]; 4];
        let [al, ah, bl, bh] = &mut buffers;
        let mut al = fetch(wave, &instruction.src[0][0], round, al);
        let mut bl = fetch(wave, &instruction.src[1][0], round, bl);
        let mut copies = [[0; 32]; 2];
        let [first, second] = &mut copies;
        if flushing && A::TYPE == Type::F32 {
            al = flushed(al, first);
        }
        if flushing && B::TYPE == Type::F32 {
            bl = flushed(bl, second);
        }
        let ah = if A::TYPE.is_wide() {
            fetch(wave, &instruction.src[0][1], round, ah)
        } else {
            al
        };
        let bh = if B::TYPE.is_wide() {
            fetch(wave, &instruction.src[1][1], round, bh)
        } else {
            bl
        };
        let mut bits = 0_u32;
        for lane in 0..32 {
            bits |= u32::from(f(A::get(al[lane], ah[lane]), B::get(bl[lane], bh[lane]))) << lane;
        }
        holds |= u64::from(bits & mask) << (32 * round);
    }
    (holds, known)
}
