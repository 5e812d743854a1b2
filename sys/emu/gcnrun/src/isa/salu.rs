//! Scalar arithmetic (SOP1, SOP2, SOPC, SOPK).

use std::collections::HashMap;
use std::sync::LazyLock;

use super::float::{f16_to_f32, f32_to_f16, flush_f32, max_f32, min_f32};
use super::lanes::{scalar, scalar_known};
use super::unknown::unknown_as;
use crate::code::{Context, Exit, Handler, Instruction, Outcome, uninitialised};
use crate::line::Line;
use crate::operands::{Source, Type};
use crate::wave::{EXEC, Wave};

/// Operands (32-bit ones zero-extended), the destination's old value and the condition code.
struct Inputs {
    a: u64,
    b: u64,
    d: u64,
    scc: bool,
}

/// A result, and the condition code where the instruction writes it.
type Scalar = fn(&Inputs) -> (u64, Option<bool>);

/// A row of the table: the function, the destination's width in words (0: only the condition code) and the operands.
struct Row {
    run: Handler,
    words: u32,
    sources: &'static [Operand],
    reads_scc: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Operand {
    Word,
    Pair,
    Float,
    /// 16 bits, sign-extended.
    Signed16,
    /// 16 bits, zero-extended.
    Unsigned16,
    /// The destination's old value is an operand.
    Old,
    /// A third operand, a float.
    FloatAddend,
}

use Operand::{Float, FloatAddend, Old, Pair, Signed16, Unsigned16, Word};

macro_rules! rows {
    ($table:ident; $($($name:literal)|+ => $words:literal [$($source:expr),*] $(reads $scc:literal)? |$x:ident| $f:expr;)*) => {$(
        for name in [$($name),+] {
            let run: Handler = |context, instruction| execute(context, instruction, |$x| $f);
            $table.insert(name, Row { run, words: $words, sources: &[$($source),*], reads_scc: false $(|| $scc)? });
        }
    )*};
}

fn word(value: u32) -> (u64, Option<bool>) {
    (u64::from(value), None)
}

/// A result with SCC = result is not zero.
fn word_nz(value: u32) -> (u64, Option<bool>) {
    (u64::from(value), Some(value != 0))
}

fn pair_nz(value: u64) -> (u64, Option<bool>) {
    (value, Some(value != 0))
}

fn with(value: u32, scc: bool) -> (u64, Option<bool>) {
    (u64::from(value), Some(scc))
}

fn only(scc: bool) -> (u64, Option<bool>) {
    (0, Some(scc))
}

impl Inputs {
    fn a(&self) -> u32 {
        self.a as u32
    }
    fn b(&self) -> u32 {
        self.b as u32
    }
    fn ai(&self) -> i32 {
        self.a as i32
    }
    fn bi(&self) -> i32 {
        self.b as i32
    }
    fn af(&self) -> f32 {
        f32::from_bits(self.a())
    }
    fn bf(&self) -> f32 {
        f32::from_bits(self.b())
    }
}

fn float(value: f32) -> (u64, Option<bool>) {
    word(value.to_bits())
}

static TABLE: LazyLock<HashMap<&'static str, Row>> = LazyLock::new(|| {
    let mut table = HashMap::new();
    arithmetic(&mut table);
    logic(&mut table);
    bits(&mut table);
    compares(&mut table);
    floats(&mut table);
    table
});

fn arithmetic(table: &mut HashMap<&'static str, Row>) {
    rows! { table;
        "s_add_u32" | "s_add_co_u32" => 1 [Word, Word] |x| { let (d, carry) = x.a().overflowing_add(x.b()); with(d, carry) };
        "s_sub_u32" | "s_sub_co_u32" => 1 [Word, Word] |x| { let (d, borrow) = x.a().overflowing_sub(x.b()); with(d, borrow) };
        "s_add_i32" | "s_add_co_i32" => 1 [Word, Word] |x| { let (d, over) = x.ai().overflowing_add(x.bi()); with(d.cast_unsigned(), over) };
        "s_sub_i32" | "s_sub_co_i32" => 1 [Word, Word] |x| { let (d, over) = x.ai().overflowing_sub(x.bi()); with(d.cast_unsigned(), over) };
        "s_addc_u32" | "s_add_co_ci_u32" => 1 [Word, Word] reads true |x| { let sum = x.a + x.b + u64::from(x.scc); with(sum as u32, sum >> 32 != 0) };
        "s_subb_u32" | "s_sub_co_ci_u32" => 1 [Word, Word] reads true |x| { let take = x.b + u64::from(x.scc); with(x.a.wrapping_sub(take) as u32, take > x.a) };
        "s_add_nc_u64" | "s_add_u64" => 2 [Pair, Pair] |x| (x.a.wrapping_add(x.b), None);
        "s_sub_nc_u64" | "s_sub_u64" => 2 [Pair, Pair] |x| (x.a.wrapping_sub(x.b), None);
        "s_mul_u64" => 2 [Pair, Pair] |x| (x.a.wrapping_mul(x.b), None);
        "s_mul_i32" => 1 [Word, Word] |x| word(x.a().wrapping_mul(x.b()));
        "s_mul_hi_u32" => 1 [Word, Word] |x| word(((x.a * x.b) >> 32) as u32);
        "s_mul_hi_i32" => 1 [Word, Word] |x| word(((i64::from(x.ai()) * i64::from(x.bi())) >> 32) as u32);
        "s_addk_i32" | "s_addk_co_i32" => 1 [Old, Signed16] |x| { let (d, over) = (x.d as i32).overflowing_add(x.bi()); with(d.cast_unsigned(), over) };
        "s_mulk_i32" => 1 [Old, Signed16] |x| word((x.d as u32).wrapping_mul(x.b()));
        "s_movk_i32" => 1 [Signed16] |x| word(x.a());
        "s_cmovk_i32" => 1 [Signed16, Old] reads true |x| word(if x.scc { x.a() } else { x.d as u32 });
        "s_min_i32" => 1 [Word, Word] |x| with(x.ai().min(x.bi()).cast_unsigned(), x.ai() < x.bi());
        "s_max_i32" => 1 [Word, Word] |x| with(x.ai().max(x.bi()).cast_unsigned(), x.ai() > x.bi());
        "s_min_u32" => 1 [Word, Word] |x| with(x.a().min(x.b()), x.a < x.b);
        "s_max_u32" => 1 [Word, Word] |x| with(x.a().max(x.b()), x.a > x.b);
        "s_abs_i32" => 1 [Word] |x| word_nz(x.ai().unsigned_abs());
        "s_absdiff_i32" => 1 [Word, Word] |x| word_nz(x.ai().wrapping_sub(x.bi()).unsigned_abs());
        "s_lshl1_add_u32" => 1 [Word, Word] |x| { let sum = (x.a << 1) + x.b; with(sum as u32, sum >> 32 != 0) };
        "s_lshl2_add_u32" => 1 [Word, Word] |x| { let sum = (x.a << 2) + x.b; with(sum as u32, sum >> 32 != 0) };
        "s_lshl3_add_u32" => 1 [Word, Word] |x| { let sum = (x.a << 3) + x.b; with(sum as u32, sum >> 32 != 0) };
        "s_lshl4_add_u32" => 1 [Word, Word] |x| { let sum = (x.a << 4) + x.b; with(sum as u32, sum >> 32 != 0) };
    }
}

fn logic(table: &mut HashMap<&'static str, Row>) {
    rows! { table;
        "s_mov_b32" => 1 [Word] |x| word(x.a());
        "s_mov_b64" => 2 [Pair] |x| (x.a, None);
        "s_cmov_b32" => 1 [Word, Old] reads true |x| word(if x.scc { x.a() } else { x.d as u32 });
        "s_cmov_b64" => 2 [Pair, Old] reads true |x| (if x.scc { x.a } else { x.d }, None);
        "s_cselect_b32" => 1 [Word, Word] reads true |x| word(if x.scc { x.a() } else { x.b() });
        "s_cselect_b64" => 2 [Pair, Pair] reads true |x| (if x.scc { x.a } else { x.b }, None);
        "s_not_b32" => 1 [Word] |x| word_nz(!x.a());
        "s_not_b64" => 2 [Pair] |x| pair_nz(!x.a);
        "s_and_b32" => 1 [Word, Word] |x| word_nz(x.a() & x.b());
        "s_and_b64" => 2 [Pair, Pair] |x| pair_nz(x.a & x.b);
        "s_or_b32" => 1 [Word, Word] |x| word_nz(x.a() | x.b());
        "s_or_b64" => 2 [Pair, Pair] |x| pair_nz(x.a | x.b);
        "s_xor_b32" => 1 [Word, Word] |x| word_nz(x.a() ^ x.b());
        "s_xor_b64" => 2 [Pair, Pair] |x| pair_nz(x.a ^ x.b);
        "s_andn2_b32" | "s_and_not1_b32" => 1 [Word, Word] |x| word_nz(x.a() & !x.b());
        "s_andn2_b64" | "s_and_not1_b64" => 2 [Pair, Pair] |x| pair_nz(x.a & !x.b);
        "s_orn2_b32" | "s_or_not1_b32" => 1 [Word, Word] |x| word_nz(x.a() | !x.b());
        "s_orn2_b64" | "s_or_not1_b64" => 2 [Pair, Pair] |x| pair_nz(x.a | !x.b);
        "s_nand_b32" => 1 [Word, Word] |x| word_nz(!(x.a() & x.b()));
        "s_nand_b64" => 2 [Pair, Pair] |x| pair_nz(!(x.a & x.b));
        "s_nor_b32" => 1 [Word, Word] |x| word_nz(!(x.a() | x.b()));
        "s_nor_b64" => 2 [Pair, Pair] |x| pair_nz(!(x.a | x.b));
        "s_xnor_b32" => 1 [Word, Word] |x| word_nz(!(x.a() ^ x.b()));
        "s_xnor_b64" => 2 [Pair, Pair] |x| pair_nz(!(x.a ^ x.b));
        "s_lshl_b32" => 1 [Word, Word] |x| word_nz(x.a() << (x.b & 31));
        "s_lshl_b64" => 2 [Pair, Word] |x| pair_nz(x.a << (x.b & 63));
        "s_lshr_b32" => 1 [Word, Word] |x| word_nz(x.a() >> (x.b & 31));
        "s_lshr_b64" => 2 [Pair, Word] |x| pair_nz(x.a >> (x.b & 63));
        "s_ashr_i32" => 1 [Word, Word] |x| word_nz((x.ai() >> (x.b & 31)).cast_unsigned());
        "s_ashr_i64" => 2 [Pair, Word] |x| pair_nz((x.a.cast_signed() >> (x.b & 63)).cast_unsigned());
    }
}

fn bits(table: &mut HashMap<&'static str, Row>) {
    rows! { table;
        "s_bfm_b32" => 1 [Word, Word] |x| word(((1_u32 << (x.a & 31)) - 1) << (x.b & 31));
        "s_bfm_b64" => 2 [Word, Word] |x| (((1_u64 << (x.a & 63)) - 1) << (x.b & 63), None);
        "s_bfe_u32" => 1 [Word, Word] |x| word_nz(field(x.a, x.b & 31, (x.b >> 16) & 127, 32) as u32);
        "s_bfe_i32" => 1 [Word, Word] |x| word_nz(signed_field(x.a, x.b & 31, (x.b >> 16) & 127, 32) as u32);
        "s_bfe_u64" => 2 [Pair, Word] |x| pair_nz(field(x.a, x.b & 63, (x.b >> 16) & 127, 64));
        "s_bfe_i64" => 2 [Pair, Word] |x| pair_nz(signed_field(x.a, x.b & 63, (x.b >> 16) & 127, 64));
        "s_brev_b32" => 1 [Word] |x| word(x.a().reverse_bits());
        "s_brev_b64" => 2 [Pair] |x| (x.a.reverse_bits(), None);
        "s_ff1_i32_b32" | "s_ctz_i32_b32" => 1 [Word] |x| word(if x.a == 0 { u32::MAX } else { x.a().trailing_zeros() });
        "s_ff1_i32_b64" | "s_ctz_i32_b64" => 1 [Pair] |x| word(if x.a == 0 { u32::MAX } else { x.a.trailing_zeros() });
        "s_flbit_i32_b32" | "s_clz_i32_u32" => 1 [Word] |x| word(if x.a == 0 { u32::MAX } else { x.a().leading_zeros() });
        "s_flbit_i32_b64" | "s_clz_i32_u64" => 1 [Pair] |x| word(if x.a == 0 { u32::MAX } else { x.a.leading_zeros() });
        "s_flbit_i32" | "s_cls_i32" => 1 [Word] |x| word(sign_bits_32(x.ai()));
        "s_flbit_i32_i64" | "s_cls_i32_i64" => 1 [Pair] |x| word(sign_bits_64(x.a.cast_signed()));
        "s_bcnt0_i32_b32" => 1 [Word] |x| word_nz(x.a().count_zeros());
        "s_bcnt0_i32_b64" => 1 [Pair] |x| word_nz(x.a.count_zeros());
        "s_bcnt1_i32_b32" => 1 [Word] |x| word_nz(x.a().count_ones());
        "s_bcnt1_i32_b64" => 1 [Pair] |x| word_nz(x.a.count_ones());
        "s_sext_i32_i8" => 1 [Word] |x| word(i32::from(x.a as i8).cast_unsigned());
        "s_sext_i32_i16" => 1 [Word] |x| word(i32::from(x.a as i16).cast_unsigned());
        "s_bitset0_b32" => 1 [Word, Old] |x| word(x.d as u32 & !(1 << (x.a & 31)));
        "s_bitset1_b32" => 1 [Word, Old] |x| word(x.d as u32 | 1 << (x.a & 31));
        "s_bitset0_b64" => 2 [Word, Old] |x| (x.d & !(1 << (x.a & 63)), None);
        "s_bitset1_b64" => 2 [Word, Old] |x| (x.d | 1 << (x.a & 63), None);
        "s_bitreplicate_b64_b32" => 2 [Word] |x| ((0..32).fold(0, |d, bit| d | ((x.a >> bit & 1) * 3) << (2 * bit)), None);
        "s_wqm_b32" => 1 [Word] |x| word_nz(whole_quads(x.a) as u32);
        "s_wqm_b64" => 2 [Pair] |x| pair_nz(whole_quads(x.a));
        "s_quadmask_b32" => 1 [Word] |x| word_nz(quad_mask(x.a) as u32);
        "s_quadmask_b64" => 2 [Pair] |x| pair_nz(quad_mask(x.a));
        "s_pack_ll_b32_b16" => 1 [Word, Word] |x| word(x.a() & 0xffff | x.b() << 16);
        "s_pack_lh_b32_b16" => 1 [Word, Word] |x| word(x.a() & 0xffff | x.b() & 0xffff_0000);
        "s_pack_hl_b32_b16" => 1 [Word, Word] |x| word(x.a() >> 16 | x.b() << 16);
        "s_pack_hh_b32_b16" => 1 [Word, Word] |x| word(x.a() >> 16 | x.b() & 0xffff_0000);
    }
}

fn compares(table: &mut HashMap<&'static str, Row>) {
    rows! { table;
        "s_cmp_eq_u32" | "s_cmp_eq_i32" => 0 [Word, Word] |x| only(x.a == x.b);
        "s_cmp_lg_u32" | "s_cmp_lg_i32" => 0 [Word, Word] |x| only(x.a != x.b);
        "s_cmp_gt_u32" => 0 [Word, Word] |x| only(x.a > x.b);
        "s_cmp_ge_u32" => 0 [Word, Word] |x| only(x.a >= x.b);
        "s_cmp_lt_u32" => 0 [Word, Word] |x| only(x.a < x.b);
        "s_cmp_le_u32" => 0 [Word, Word] |x| only(x.a <= x.b);
        "s_cmp_gt_i32" => 0 [Word, Word] |x| only(x.ai() > x.bi());
        "s_cmp_ge_i32" => 0 [Word, Word] |x| only(x.ai() >= x.bi());
        "s_cmp_lt_i32" => 0 [Word, Word] |x| only(x.ai() < x.bi());
        "s_cmp_le_i32" => 0 [Word, Word] |x| only(x.ai() <= x.bi());
        "s_cmp_eq_u64" => 0 [Pair, Pair] |x| only(x.a == x.b);
        "s_cmp_lg_u64" => 0 [Pair, Pair] |x| only(x.a != x.b);
        "s_cmpk_eq_u32" => 0 [Word, Unsigned16] |x| only(x.a == x.b);
        "s_cmpk_lg_u32" => 0 [Word, Unsigned16] |x| only(x.a != x.b);
        "s_cmpk_gt_u32" => 0 [Word, Unsigned16] |x| only(x.a > x.b);
        "s_cmpk_ge_u32" => 0 [Word, Unsigned16] |x| only(x.a >= x.b);
        "s_cmpk_lt_u32" => 0 [Word, Unsigned16] |x| only(x.a < x.b);
        "s_cmpk_le_u32" => 0 [Word, Unsigned16] |x| only(x.a <= x.b);
        "s_cmpk_eq_i32" => 0 [Word, Signed16] |x| only(x.ai() == x.bi());
        "s_cmpk_lg_i32" => 0 [Word, Signed16] |x| only(x.ai() != x.bi());
        "s_cmpk_gt_i32" => 0 [Word, Signed16] |x| only(x.ai() > x.bi());
        "s_cmpk_ge_i32" => 0 [Word, Signed16] |x| only(x.ai() >= x.bi());
        "s_cmpk_lt_i32" => 0 [Word, Signed16] |x| only(x.ai() < x.bi());
        "s_cmpk_le_i32" => 0 [Word, Signed16] |x| only(x.ai() <= x.bi());
        "s_bitcmp0_b32" => 0 [Word, Word] |x| only(x.a >> (x.b & 31) & 1 == 0);
        "s_bitcmp1_b32" => 0 [Word, Word] |x| only(x.a >> (x.b & 31) & 1 == 1);
        "s_bitcmp0_b64" => 0 [Pair, Word] |x| only(x.a >> (x.b & 63) & 1 == 0);
        "s_bitcmp1_b64" => 0 [Pair, Word] |x| only(x.a >> (x.b & 63) & 1 == 1);
    }
}

/// Instructions of gfx11.5 and gfx12 only. `v_s_…`, which the vector unit computes, flush denormals.
#[allow(
    clippy::neg_cmp_op_on_partial_ord,
    reason = "the instructions are negations, true of NaN"
)]
fn floats(table: &mut HashMap<&'static str, Row>) {
    rows! { table;
        "s_add_f32" => 1 [Float, Float] |x| float(x.af() + x.bf());
        "s_sub_f32" => 1 [Float, Float] |x| float(x.af() - x.bf());
        "s_mul_f32" => 1 [Float, Float] |x| float(x.af() * x.bf());
        "s_cvt_f32_i32" => 1 [Word] |x| float(x.ai() as f32);
        "s_cvt_f32_u32" => 1 [Word] |x| float(x.a() as f32);
        "s_cvt_i32_f32" => 1 [Float] |x| word((x.af() as i32).cast_unsigned());
        "s_cvt_u32_f32" => 1 [Float] |x| word(x.af() as u32);
        "s_cvt_f16_f32" => 1 [Float] |x| word(f32_to_f16(x.af()));
        "s_cvt_f32_f16" => 1 [Word] |x| float(f16_to_f32(x.a() & 0xffff));
        "s_cvt_hi_f32_f16" => 1 [Word] |x| float(f16_to_f32(x.a() >> 16));
        "s_min_f32" | "s_min_num_f32" => 1 [Float, Float] |x| float(min_f32(x.af(), x.bf()));
        "s_max_f32" | "s_max_num_f32" => 1 [Float, Float] |x| float(max_f32(x.af(), x.bf()));
        "s_fmac_f32" => 1 [Float, Float, Old] |x| float(x.af().mul_add(x.bf(), f32::from_bits(x.d as u32)));
        "s_fmamk_f32" => 1 [Float, Float, FloatAddend] |x| float(x.af().mul_add(x.bf(), f32::from_bits(x.d as u32)));
        "s_fmaak_f32" => 1 [Float, Float, FloatAddend] |x| float(x.af().mul_add(x.bf(), f32::from_bits(x.d as u32)));
        "s_ceil_f32" => 1 [Float] |x| float(x.af().ceil());
        "s_floor_f32" => 1 [Float] |x| float(x.af().floor());
        "s_trunc_f32" => 1 [Float] |x| float(x.af().trunc());
        "s_rndne_f32" => 1 [Float] |x| float(x.af().round_ties_even());
        "s_cmp_lt_f32" => 0 [Float, Float] |x| only(x.af() < x.bf());
        "s_cmp_eq_f32" => 0 [Float, Float] |x| only(x.af() == x.bf());
        "s_cmp_le_f32" => 0 [Float, Float] |x| only(x.af() <= x.bf());
        "s_cmp_gt_f32" => 0 [Float, Float] |x| only(x.af() > x.bf());
        "s_cmp_lg_f32" => 0 [Float, Float] |x| only(x.af() < x.bf() || x.af() > x.bf());
        "s_cmp_ge_f32" => 0 [Float, Float] |x| only(x.af() >= x.bf());
        "s_cmp_o_f32" => 0 [Float, Float] |x| only(!x.af().is_nan() && !x.bf().is_nan());
        "s_cmp_u_f32" => 0 [Float, Float] |x| only(x.af().is_nan() || x.bf().is_nan());
        "s_cmp_nge_f32" => 0 [Float, Float] |x| only(!(x.af() >= x.bf()));
        "s_cmp_nlg_f32" => 0 [Float, Float] |x| only(!(x.af() < x.bf() || x.af() > x.bf()));
        "s_cmp_ngt_f32" => 0 [Float, Float] |x| only(!(x.af() > x.bf()));
        "s_cmp_nle_f32" => 0 [Float, Float] |x| only(!(x.af() <= x.bf()));
        "s_cmp_neq_f32" => 0 [Float, Float] |x| only(x.af() != x.bf());
        "s_cmp_nlt_f32" => 0 [Float, Float] |x| only(!(x.af() < x.bf()));
        "v_s_exp_f32" => 1 [Float] |x| float(flush_f32(flush_f32(x.af()).exp2()));
        "v_s_log_f32" => 1 [Float] |x| float(flush_f32(flush_f32(x.af()).log2()));
        "v_s_rcp_f32" => 1 [Float] |x| float(flush_f32(flush_f32(x.af()).recip()));
        "v_s_rsq_f32" => 1 [Float] |x| float(flush_f32(flush_f32(x.af()).sqrt().recip()));
        "v_s_sqrt_f32" => 1 [Float] |x| float(flush_f32(flush_f32(x.af()).sqrt()));
    }
}

/// `count` bits of `a` from `offset` up; the bits beyond the operand's width are zeros.
fn field(a: u64, offset: u64, count: u64, width: u64) -> u64 {
    let available = count.min(width - offset);
    if available == 0 {
        0
    } else {
        (a >> offset) & (u64::MAX >> (64 - available))
    }
}

fn signed_field(a: u64, offset: u64, count: u64, width: u64) -> u64 {
    let available = count.min(width - offset);
    if available == 0 {
        return 0;
    }
    let unused = 64 - available;
    (((a >> offset) << unused).cast_signed() >> unused).cast_unsigned()
}

/// Leading bits equal to the sign, or −1 if all are.
pub(super) fn sign_bits_32(a: i32) -> u32 {
    if a == 0 || a == -1 {
        u32::MAX
    } else {
        if a < 0 { !a } else { a }.leading_zeros()
    }
}

fn sign_bits_64(a: i64) -> u32 {
    if a == 0 || a == -1 {
        u32::MAX
    } else {
        if a < 0 { !a } else { a }.leading_zeros()
    }
}

/// All four bits of each quad in which any is set.
fn whole_quads(a: u64) -> u64 {
    let any = (a | a >> 1 | a >> 2 | a >> 3) & 0x1111_1111_1111_1111;
    any * 15
}

/// One bit for each quad in which any is set.
fn quad_mask(a: u64) -> u64 {
    (0..16).fold(0, |mask, quad| {
        mask | u64::from(a >> (4 * quad) & 15 != 0) << quad
    })
}

/// The value of an operand and its known bits.
fn read(wave: &Wave, operand: &[Source; 2], pair: bool) -> (u64, u64) {
    let low = u64::from(scalar(wave, operand[0].place));
    let low_known = u64::from(scalar_known(wave, operand[0].place));
    if pair {
        let high = u64::from(scalar(wave, operand[1].place));
        let high_known = u64::from(scalar_known(wave, operand[1].place));
        (low | high << 32, low_known | high_known << 32)
    } else {
        (low, low_known | 0xffff_ffff_0000_0000)
    }
}

/// Bits of `Instruction::detail[1]`.
const A_PAIR: u32 = 1;
const B_PAIR: u32 = 2;
const READS_OLD: u32 = 4;
const READS_SCC: u32 = 8;

fn execute(context: &mut Context<'_, '_>, instruction: &Instruction, f: Scalar) -> Outcome {
    let wave = &mut *context.wave;
    let [words, flags, ..] = instruction.detail;
    let (a, a_known) = read(wave, &instruction.src[0], flags & A_PAIR != 0);
    let (b, b_known) = read(wave, &instruction.src[1], flags & B_PAIR != 0);
    let (d, d_known) = if flags & READS_OLD != 0 {
        read(wave, &instruction.src[2], words == 2)
    } else {
        (0, u64::MAX)
    };
    let scc_known = wave.scc_known || flags & READS_SCC == 0;
    let inputs = Inputs {
        a,
        b,
        d,
        scc: wave.scc,
    };
    let (result, scc) = f(&inputs);
    let (mut known, mut result_scc_known) = (u64::MAX, true);
    if a_known & b_known & d_known != u64::MAX || !scc_known {
        // Compute with several values of the unknown bits: result bits that never differ are known.
        for choice in 0..18 {
            let fill = |bits: u64, known: u64, index: usize| {
                let pattern = u64::from(unknown_as(choice, 4, index));
                bits & known | (pattern | pattern << 32) & !known
            };
            let scc_in = if scc_known {
                inputs.scc
            } else {
                unknown_as(choice, 4, 3) & 1 == 1
            };
            let (a, b, d) = (fill(a, a_known, 0), fill(b, b_known, 1), fill(d, d_known, 2));
            let (other, other_scc) = f(&Inputs { a, b, d, scc: scc_in });
            known &= !(result ^ other);
            result_scc_known &= scc == other_scc;
        }
    }
    if let Some(scc) = scc {
        wave.scc = scc;
        wave.scc_known = result_scc_known;
    }
    if let (Some(register), true) = (instruction.sdst, words > 0) {
        write(context, usize::from(register), words, result, known)?;
    }
    Ok(())
}

/// Writes one or two scalar registers with their known bits.
pub(super) fn write(
    context: &mut Context<'_, '_>,
    register: usize,
    words: u32,
    value: u64,
    known: u64,
) -> Outcome {
    let wave = &mut *context.wave;
    for word in 0..words as usize {
        wave.sgpr[register + word] = (value >> (32 * word)) as u32;
        wave.sgpr_known[register + word] = (known >> (32 * word)) as u32;
    }
    if register + words as usize > EXEC && context.space.checks().uninitialised {
        let lanes = wave.all_lanes();
        let known = u64::from(wave.sgpr_known[EXEC]) | u64::from(wave.sgpr_known[EXEC + 1]) << 32;
        if known & lanes != lanes {
            return Err(uninitialised("the mask of active lanes").into());
        }
    }
    Ok(())
}

/// `s_…_saveexec` and `s_…_wrexec`: the new EXEC from the operand `s` and the old EXEC `x`.
fn exec_operation(name: &str) -> Option<(Handler, u32)> {
    let (operation, rest) = name.strip_prefix("s_")?.rsplit_once("exec_b")?;
    let words = match rest {
        "32" => 1,
        "64" => 2,
        _ => return None,
    };
    let run: Handler = match operation {
        "and_save" => |c, i| save_exec(c, i, |s, x| s & x),
        "or_save" => |c, i| save_exec(c, i, |s, x| s | x),
        "xor_save" => |c, i| save_exec(c, i, |s, x| s ^ x),
        "andn2_save" | "and_not1_save" => |c, i| save_exec(c, i, |s, x| s & !x),
        "orn2_save" | "or_not1_save" => |c, i| save_exec(c, i, |s, x| s | !x),
        "andn1_save" | "and_not0_save" => |c, i| save_exec(c, i, |s, x| !s & x),
        "orn1_save" | "or_not0_save" => |c, i| save_exec(c, i, |s, x| !s | x),
        "nand_save" => |c, i| save_exec(c, i, |s, x| !(s & x)),
        "nor_save" => |c, i| save_exec(c, i, |s, x| !(s | x)),
        "xnor_save" => |c, i| save_exec(c, i, |s, x| !(s ^ x)),
        "andn1_wr" | "and_not0_wr" => |c, i| write_exec(c, i, |s, x| !s & x),
        "andn2_wr" | "and_not1_wr" => |c, i| write_exec(c, i, |s, x| s & !x),
        _ => return None,
    };
    Some((run, words))
}

fn save_exec(context: &mut Context<'_, '_>, instruction: &Instruction, f: fn(u64, u64) -> u64) -> Outcome {
    let old = new_exec(context, instruction, f)?;
    match instruction.sdst {
        Some(register) => write(
            context,
            usize::from(register),
            instruction.detail[0],
            old,
            u64::MAX,
        ),
        None => Ok(()),
    }
}

fn write_exec(context: &mut Context<'_, '_>, instruction: &Instruction, f: fn(u64, u64) -> u64) -> Outcome {
    new_exec(context, instruction, f)?;
    let new = context.wave.exec();
    match instruction.sdst {
        Some(register) => write(
            context,
            usize::from(register),
            instruction.detail[0],
            new,
            u64::MAX,
        ),
        None => Ok(()),
    }
}

/// Sets EXEC and SCC; the old EXEC.
fn new_exec(
    context: &mut Context<'_, '_>,
    instruction: &Instruction,
    f: fn(u64, u64) -> u64,
) -> Result<u64, Box<Exit>> {
    let words = instruction.detail[0];
    let (s, known) = read(context.wave, &instruction.src[0], words == 2);
    let old = context.wave.exec();
    let mask = if words == 2 { u64::MAX } else { 0xffff_ffff };
    let new = f(s, old) & mask;
    let certain = !(f(s & known, old) ^ f(s | !known, old));
    write(context, EXEC, words, new, certain | !mask)?;
    context.wave.scc = new != 0;
    context.wave.scc_known = true;
    Ok(old)
}

pub(super) fn decode(line: &mut Line<'_>) -> Result<Instruction, String> {
    let name = line.mnemonic;
    if let Some((run, words)) = exec_operation(name) {
        let mut instruction = Instruction::new(run);
        instruction.sdst = line.sgpr(0)?;
        instruction.src[0] = line.source(1, if words == 2 { Type::U64 } else { Type::U32 })?;
        instruction.detail[0] = words;
        return Ok(instruction);
    }
    let row = TABLE.get(name).ok_or_else(String::new)?;
    let mut instruction = Instruction::new(row.run);
    let mut flags = if row.reads_scc { READS_SCC } else { 0 };
    let first = usize::from(row.words > 0);
    if row.words > 0 {
        instruction.sdst = line.sgpr(0)?;
    }
    let mut next = first;
    for (index, operand) in row.sources.iter().enumerate() {
        instruction.src[index] = match operand {
            Word => line.source(next, Type::U32)?,
            Float => line.source(next, Type::F32)?,
            Pair => {
                flags |= [A_PAIR, B_PAIR][index];
                line.source(next, Type::U64)?
            }
            Signed16 => constant((line.immediate(next)? as i16).cast_unsigned(), true),
            Unsigned16 => constant(line.immediate(next)? as u16, false),
            FloatAddend => {
                flags |= READS_OLD;
                instruction.src[2] = line.source(next, Type::F32)?;
                next += 1;
                continue;
            }
            Old => {
                flags |= READS_OLD;
                instruction.src[2] = line.source(0, if row.words == 2 { Type::U64 } else { Type::U32 })?;
                continue;
            }
        };
        next += 1;
    }
    if line.operands.len() != next {
        return Err(format!("{name} with {} operands", line.operands.len()));
    }
    instruction.detail = [row.words, flags, 0, 0];
    Ok(instruction)
}

fn constant(bits: u16, signed: bool) -> [Source; 2] {
    let value = if signed {
        i32::from(bits.cast_signed()).cast_unsigned()
    } else {
        u32::from(bits)
    };
    [
        Source::plain(crate::operands::Place::Constant(value)),
        Source::ZERO,
    ]
}
