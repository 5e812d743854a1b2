//! Arithmetic on all lanes at once: fetch sources, map a function over the lanes, store under a mask, hand on what is known.
//!
//! The functions here are generic over the operand types and the operation; each row of the tables in [`valu`](super::valu)
//! and its siblings instantiates one. Loops run over 32 lanes, a wave of 64 makes two rounds.

use super::float::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16, flush_f32};
use super::{Context, Instruction, Outcome};
use crate::operands::{Change, Place, Source, Type};
use crate::wave::{EXEC, VCC, Wave};

/// One round's lanes of one register.
pub(crate) type Half = [u32; 32];

/// A type that operations compute in, and how registers hold it.
pub(crate) trait Lane {
    type Value: Copy;
    const TYPE: Type;
    /// Computed with, so that one unknown bit leaves nothing known.
    const FLOAT: bool;
    fn get(low: u32, high: u32) -> Self::Value;
    fn put(value: Self::Value) -> (u32, u32);
}

macro_rules! lanes {
    ($($name:ident $value:ty, $type:ident $float:literal, |$low:ident, $high:ident| $get:expr, |$x:ident| $put:expr;)*) => {$(
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $name;
        impl Lane for $name {
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

lanes! {
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
    // One half as bits, the same way.
    HalfBits u32, F16 false, |low, _high| low & 0xffff, |x| (x, 0);
}

/// What an operation leaves of a register's other bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// It writes all 32 bits.
    None,
    /// It writes the lower half and leaves the upper one.
    High,
    /// It writes the upper half and leaves the lower one.
    Low,
    /// SDWA: it writes `width` bits at `shift`; the others it leaves, clears, or fills with the sign.
    Sdwa { shift: u8, width: u8, rest: Rest },
}

/// What SDWA does with the bits beside its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    Zero,
    Sign,
    Preserve,
}

/// The vector register that a result goes to, and what is done to the result before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Destination {
    pub(crate) register: u16,
    pub(crate) keep: Keep,
    /// Output multiplier: 1, 2, 4 or ½.
    pub(crate) scale: f32,
    /// Floats: between 0 and 1.
    pub(crate) clamp: bool,
}

/// Makes 32 results; with the instructions of newer processors where there are some, because `mul_add` is slow without.
#[inline(always)]
fn each(modern: bool, low: &mut Half, high: &mut Half, f: impl Fn(usize) -> (u32, u32)) {
    #[cfg(target_arch = "x86_64")]
    if modern {
        // SAFETY: `modern` is only true where AVX2 and FMA were detected (`Context::new`).
        unsafe { each_modern(low, high, f) };
        return;
    }
    let _ = modern;
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
fn each_modern(low: &mut Half, high: &mut Half, f: impl Fn(usize) -> (u32, u32)) {
    each_portable(low, high, f);
}

/// The 32 lanes of a register in one round.
#[inline(always)]
pub(crate) fn half_of(row: &[u32; 64], round: usize) -> &Half {
    let (low, high) = row.split_at(32);
    let half = if round == 0 { low } else { high };
    // The split's halves are 32 long.
    half.first_chunk().unwrap_or(&[0; 32])
}

#[inline(always)]
pub(crate) fn half_of_mut(row: &mut [u32; 64], round: usize) -> &mut [u32] {
    &mut row[32 * round..32 * round + 32]
}

/// The scalar that all lanes see.
#[inline(always)]
pub(crate) fn scalar(wave: &Wave, place: Place) -> u32 {
    match place {
        Place::Vgpr(_) => 0,
        Place::Sgpr(register) => wave.sgpr[usize::from(register)],
        Place::Constant(bits) => bits,
        Place::Scc => u32::from(wave.scc),
        Place::Vccz => u32::from(wave.mask(VCC) == 0),
        Place::Execz => u32::from(wave.mask(EXEC) == 0),
        Place::SharedBase => crate::space::SHARED_APERTURE,
        Place::PrivateBase => crate::space::PRIVATE_APERTURE,
    }
}

/// The known bits of a scalar.
#[inline(always)]
pub(crate) fn scalar_known(wave: &Wave, place: Place) -> u32 {
    match place {
        Place::Sgpr(register) => wave.sgpr_known[usize::from(register)],
        Place::Scc if !wave.scc_known => 0,
        _ => u32::MAX,
    }
}

#[inline(always)]
fn changed(bits: u32, change: Change) -> u32 {
    match change {
        Change::None => bits,
        Change::Bits {
            shift,
            width,
            signed,
            and,
            xor,
        } => {
            let unused = 32 - u32::from(width);
            let up = bits >> shift << unused;
            let part = if signed {
                (up.cast_signed() >> unused).cast_unsigned()
            } else {
                up >> unused
            };
            part & and ^ xor
        }
        Change::Pack { low, high, and, xor } => ((bits >> low) & 0xffff | (bits >> high) << 16) & and ^ xor,
        Change::Widen { shift, and, xor } => f16_to_f32(bits >> shift).to_bits() & and ^ xor,
    }
}

/// The lanes of a source in one round: the register itself where nothing changes it, or `buffer` filled.
#[inline(always)]
pub(crate) fn fetch<'a>(wave: &'a Wave, source: &Source, round: usize, buffer: &'a mut Half) -> &'a Half {
    if let (Place::Vgpr(register), Change::None) = (source.place, source.change) {
        return half_of(&wave.vgpr[usize::from(register)], round);
    }
    fetch_changed(wave, source, round, buffer);
    buffer
}

#[inline(never)]
fn fetch_changed(wave: &Wave, source: &Source, round: usize, buffer: &mut Half) {
    let Place::Vgpr(register) = source.place else {
        buffer.fill(changed(scalar(wave, source.place), source.change));
        return;
    };
    let row = half_of(&wave.vgpr[usize::from(register)], round);
    // Signs alone, the most frequent change, in a loop of their own that vectorises.
    if let Change::Bits {
        shift: 0,
        width: 32,
        and,
        xor,
        ..
    } = source.change
    {
        for (out, bits) in buffer.iter_mut().zip(row) {
            *out = bits & and ^ xor;
        }
        return;
    }
    for (out, bits) in buffer.iter_mut().zip(row) {
        *out = changed(*bits, source.change);
    }
}

/// One lane of a source.
#[inline]
pub(crate) fn fetch_lane(wave: &Wave, source: &Source, lane: usize) -> u32 {
    match source.place {
        Place::Vgpr(register) => changed(wave.vgpr[usize::from(register)][lane], source.change),
        place => changed(scalar(wave, place), source.change),
    }
}

/// The lanes in which everything that the operation sees of a source is known.
#[inline(always)]
pub(crate) fn known_lanes(wave: &Wave, source: &Source, ty: Type) -> u64 {
    let need: u32 = match source.change {
        Change::None if ty.is_half() => 0xffff,
        Change::None => u32::MAX,
        Change::Bits { shift, width, .. } => {
            let width = if ty.is_half() { width.min(16) } else { width };
            (u32::MAX >> (32 - u32::from(width))) << shift
        }
        Change::Pack { low, high, .. } => 0xffff << low | 0xffff << high,
        Change::Widen { shift, .. } => 0xffff << shift,
    };
    match source.place {
        Place::Vgpr(register) => {
            let [low, high] = wave.vgpr_known[usize::from(register)];
            let low = if need & 0xffff != 0 { low } else { u64::MAX };
            let high = if need >> 16 != 0 { high } else { u64::MAX };
            low & high
        }
        place => {
            if scalar_known(wave, place) & need == need {
                u64::MAX
            } else {
                0
            }
        }
    }
}

/// The lanes that an operation with these operands knows.
#[inline(always)]
fn operand_lanes(wave: &Wave, operand: &[Source; 2], ty: Type) -> u64 {
    let low = known_lanes(wave, &operand[0], ty);
    if ty.is_wide() {
        low & known_lanes(wave, &operand[1], ty)
    } else {
        low
    }
}

/// Writes the lanes of a mask.
#[inline(always)]
pub(crate) fn blend(to: &mut [u32], from: &Half, mask: u32) {
    if mask == u32::MAX {
        to.copy_from_slice(from);
        return;
    }
    for (lane, (to, from)) in to.iter_mut().zip(from).enumerate() {
        *to = if mask & (1 << lane) == 0 { *to } else { *from };
    }
}

#[inline(never)]
fn scale_and_clamp(ty: Type, low: &mut Half, high: &mut Half, dst: &Destination) {
    for lane in 0..32 {
        (low[lane], high[lane]) = match ty {
            Type::F64 => {
                let value = F64::get(low[lane], high[lane]) * f64::from(dst.scale);
                F64::put(if dst.clamp { clamp_f64(value) } else { value })
            }
            Type::PackedF16 => {
                let clamped = |bits: u32| f32_to_f16(clamp_f32(f16_to_f32(bits)));
                (clamped(low[lane]) | clamped(low[lane] >> 16) << 16, 0)
            }
            Type::PackedF32 => {
                let clamped = |bits: u32| clamp_f32(f32::from_bits(bits)).to_bits();
                (clamped(low[lane]), clamped(high[lane]))
            }
            Type::F16 => {
                let value = f16_to_f32(low[lane]) * dst.scale;
                F16::put(if dst.clamp { clamp_f32(value) } else { value })
            }
            _ => {
                let value = f32::from_bits(low[lane]) * dst.scale;
                F32::put(if dst.clamp { clamp_f32(value) } else { value })
            }
        };
    }
}

/// Between 0 and 1; a NaN is 0 (DX10_CLAMP, which HIP sets).
pub(crate) fn clamp_f32(value: f32) -> f32 {
    if value > 0.0 { value.min(1.0) } else { 0.0 }
}

fn clamp_f64(value: f64) -> f64 {
    if value > 0.0 { value.min(1.0) } else { 0.0 }
}

#[inline(never)]
fn merge(keep: Keep, old: &Half, out: &mut Half) {
    for (out, old) in out.iter_mut().zip(old) {
        *out = match keep {
            Keep::None => *out,
            Keep::High => old & 0xffff_0000 | *out & 0xffff,
            Keep::Low => old & 0xffff | *out << 16,
            Keep::Sdwa { shift, width, rest } => {
                let mask = (u32::MAX >> (32 - u32::from(width))) << shift;
                let part = *out << shift & mask;
                match rest {
                    Rest::Zero => part,
                    Rest::Preserve => part | old & !mask,
                    Rest::Sign => {
                        let unused = 32 - u32::from(shift) - u32::from(width);
                        ((part << unused).cast_signed() >> unused).cast_unsigned()
                    }
                }
            }
        };
    }
}

/// Stores one round's results.
#[inline(always)]
pub(crate) fn store(
    wave: &mut Wave,
    dst: &Destination,
    ty: Type,
    round: usize,
    mask: u32,
    low: &mut Half,
    high: &mut Half,
) {
    let register = usize::from(dst.register);
    if dst.scale != 1.0 || dst.clamp {
        scale_and_clamp(ty, low, high, dst);
    }
    if dst.keep != Keep::None {
        merge(dst.keep, half_of(&wave.vgpr[register], round), low);
    }
    blend(half_of_mut(&mut wave.vgpr[register], round), low, mask);
    if ty.is_wide() {
        blend(half_of_mut(&mut wave.vgpr[register + 1], round), high, mask);
    }
}

/// Marks the lanes of a result as known.
#[inline(always)]
pub(crate) fn mark_known(wave: &mut Wave, dst: &Destination, ty: Type, lanes: u64) {
    let register = usize::from(dst.register);
    let [low, high] = written_halves(dst.keep);
    if low {
        wave.vgpr_known[register][0] |= lanes;
    }
    if high {
        wave.vgpr_known[register][1] |= lanes;
    }
    if ty.is_wide() {
        wave.vgpr_known[register + 1] = wave.vgpr_known[register + 1].map(|known| known | lanes);
    }
}

fn written_halves(keep: Keep) -> [bool; 2] {
    match keep {
        Keep::None => [true, true],
        Keep::High => [true, false],
        Keep::Low => [false, true],
        Keep::Sdwa {
            rest: Rest::Preserve,
            shift,
            width,
        } => [shift < 16, shift + width > 16],
        Keep::Sdwa { .. } => [true, true],
    }
}

/// What is done where an operand is not wholly known: the operation is tried with the unknown bits as zeros and as ones;
/// a half of the result that comes out the same each time is known all the same (a mask, a shift, a packing). Floats are
/// known wholly or not at all.
#[cold]
#[inline(never)]
fn with_unknown(
    context: &mut Context<'_, '_>,
    instruction: &Instruction,
    ty: Type,
    operands: usize,
    floats: bool,
    unknown: u64,
) -> Outcome {
    let lanes = context.wave.exec() & unknown;
    let dst = instruction.dst;
    let count = if ty.is_wide() { 2 } else { 1 };
    let register = usize::from(dst.register);
    let mut differs = [[u32::MAX; 64]; 2];
    if !floats {
        let before = Registers::save(context.wave, instruction, operands, register..register + count);
        differs = [[0; 64]; 2];
        let mut first = [[0; 64]; 2];
        for choice in 0..(1_u32 << operands) + 2 {
            for index in 0..operands {
                for source in instruction.src[index] {
                    before.fill_unknown(context.wave, source.place, unknown_as(choice, operands, index));
                }
            }
            run_assuming_known(context, instruction)?;
            for row in 0..count {
                let result = &context.wave.vgpr[register + row];
                if choice == 0 {
                    first[row] = *result;
                }
                for lane in 0..64 {
                    differs[row][lane] |= result[lane] ^ first[row][lane];
                }
            }
            before.restore(context.wave);
        }
    }
    run_assuming_known(context, instruction)?;
    for (row, differs) in differs.iter().enumerate().take(count) {
        let halves = if row == 0 {
            written_halves(dst.keep)
        } else {
            [true; 2]
        };
        for lane in (0..64).filter(|lane| lanes >> lane & 1 == 1) {
            for (half, mask) in [0xffff, 0xffff_0000].into_iter().enumerate() {
                if halves[half] && differs[lane] & mask != 0 {
                    context.wave.vgpr_known[register + row][half] &= !(1 << lane);
                }
            }
        }
    }
    Ok(())
}

/// What unknown bits of operand `index` are taken for in the `choice`th trial: zeros and ones in every combination, and twice
/// a mixture, because sums may differ in the lower bits alone between those.
pub(super) fn unknown_as(choice: u32, operands: usize, index: usize) -> u32 {
    match choice.checked_sub(1 << operands) {
        None => 0_u32.wrapping_sub(choice >> index & 1),
        Some(0) => 0x5555_5555,
        Some(_) => 0xaaaa_aaaa,
    }
}

fn run_assuming_known(context: &mut Context<'_, '_>, instruction: &Instruction) -> Outcome {
    context.assume_known = true;
    let outcome = (instruction.inner)(context, instruction);
    context.assume_known = false;
    outcome
}

/// The registers that an instruction reads and writes, as they were.
struct Registers {
    rows: Vec<(usize, [u32; 64], [u64; 2])>,
    scalars: [u32; 128],
    scalars_known: [u32; 128],
}

impl Registers {
    fn save(
        wave: &Wave,
        instruction: &Instruction,
        operands: usize,
        results: std::ops::Range<usize>,
    ) -> Self {
        let sources = instruction.src[..operands]
            .iter()
            .flatten()
            .filter_map(|source| source.vgpr());
        let mut registers: Vec<_> = sources.chain(results).collect();
        registers.sort_unstable();
        registers.dedup();
        let rows = registers
            .into_iter()
            .map(|r| (r, wave.vgpr[r], wave.vgpr_known[r]))
            .collect();
        Self {
            rows,
            scalars: wave.sgpr,
            scalars_known: wave.sgpr_known,
        }
    }

    fn restore(&self, wave: &mut Wave) {
        for (register, row, known) in &self.rows {
            wave.vgpr[*register] = *row;
            wave.vgpr_known[*register] = *known;
        }
        wave.sgpr = self.scalars;
        wave.sgpr_known = self.scalars_known;
    }

    /// Replaces the unknown bits of a register by those of a pattern.
    fn fill_unknown(&self, wave: &mut Wave, place: Place, pattern: u32) {
        let fill = |bits: u32, known: u32| bits & known | pattern & !known;
        match place {
            Place::Vgpr(register) => {
                let register = usize::from(register);
                let Some((_, row, [low, high])) = self.rows.iter().find(|saved| saved.0 == register) else {
                    return;
                };
                for (lane, bits) in row.iter().enumerate() {
                    let known =
                        ((low >> lane & 1) as u32 * 0xffff) | ((high >> lane & 1) as u32 * 0xffff_0000);
                    wave.vgpr[register][lane] = fill(*bits, known);
                }
            }
            Place::Sgpr(register) => {
                let register = usize::from(register);
                wave.sgpr[register] = fill(self.scalars[register], self.scalars_known[register]);
            }
            _ => {}
        }
    }
}

/// Do denormal `f32` operands and results of this instruction count as zeros? MODE says so for both or for neither, since
/// that is all that compilers set (`set_mode` refuses the rest).
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
        pub(crate) fn $name<$($ty: Lane,)+ R: Lane, F: Fn($($ty::Value),+) -> R::Value>(
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
            let modern = context.modern;
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
                    each(modern, &mut low, &mut high, |lane| R::put(f($($ty::get($low[lane], $high[lane])),+)));
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

/// Compares two operands in the active lanes: the lanes in which `f` holds, and the active lanes in which that is known.
#[inline(always)]
pub(crate) fn compare<A: Lane, B: Lane>(
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
