//! 16-bit registers: operands and results that are named halves of vector registers (RDNA 3's `v1.l`, `v1.h`).

use super::{check, execute, fill};
use crate::code::Stop;
use crate::wave::Wave;

/// The half that an instruction does not write keeps 0xdddd.
#[test]
fn operands_and_results_are_halves() {
    check(&[
        (
            "gfx1100",
            "v_mov_b16_e32 v0.l, v1.h",
            [0x1111_2222, 0, 0],
            0xdddd_1111,
        ),
        (
            "gfx1100",
            "v_mov_b16_e32 v0.h, v1.l",
            [0x1111_2222, 0, 0],
            0x2222_dddd,
        ),
        (
            "gfx1100",
            "v_mov_b16_e64 v0.h, v1.h op_sel:[1,1]",
            [0x1111_2222, 0, 0],
            0x1111_dddd,
        ),
        ("gfx1100", "v_mov_b16_e32 v0.h, 0.5", [0; 3], 0x3800_dddd),
        ("gfx1100", "v_mov_b16_e32 v0.l, 0xff80", [0; 3], 0xdddd_ff80),
        (
            "gfx1100",
            "v_cvt_f16_f32_e32 v0.h, v1",
            [super::ONE, 0, 0],
            0x3c00_dddd,
        ),
        (
            "gfx1100",
            "v_cvt_f32_f16_e32 v0, v1.h",
            [0x3c00_4000, 0, 0],
            super::ONE,
        ),
        (
            "gfx1100",
            "v_cvt_f32_f16_e64 v0, -|v1.h| op_sel:[1,0]",
            [0x3c00_4000, 0, 0],
            0xbf80_0000,
        ),
        // 1 + 2, negated, its magnitude, and clamped.
        (
            "gfx1100",
            "v_add_f16_e32 v0.h, v1.l, v2.h",
            [0x3c00, 0x4000_0000, 0],
            0x4200_dddd,
        ),
        (
            "gfx1100",
            "v_add_f16_e64 v0.l, -v1.h, v2.l op_sel:[1,0,0]",
            [0x3c00_0000, 0x4000, 0],
            0xdddd_3c00,
        ),
        (
            "gfx1100",
            "v_add_f16_e64 v0.h, v1.l, |v2.h| op_sel:[0,1,1]",
            [0x3c00, 0xc000_0000, 0],
            0x4200_dddd,
        ),
        (
            "gfx1100",
            "v_add_f16_e64 v0.h, v1.l, v2.l op_sel:[0,0,1] clamp",
            [0x3c00, 0x4000, 0],
            0x3c00_dddd,
        ),
        (
            "gfx1100",
            "v_fmaak_f16 v0.h, v1.l, v2.h, 0x3c00",
            [0x4000, 0x4000_0000, 0],
            0x4500_dddd,
        ),
        (
            "gfx1100",
            "v_fma_f16 v0.h, v1.h, v2.l, v3.h op_sel:[1,0,1,1]",
            [0x4000_0000, 0x4200, 0x3c00_0000],
            0x4700_dddd,
        ),
        (
            "gfx1100",
            "v_sub_nc_u16 v0.h, v1.h, v2.l op_sel:[1,0,1]",
            [0x0001_0000, 2, 0],
            0xffff_dddd,
        ),
        (
            "gfx1100",
            "v_mul_lo_u16 v0.l, 0x100, v1.h op_sel:[0,1,0]",
            [0x0123_0000, 0, 0],
            0xdddd_2300,
        ),
        (
            "gfx1100",
            "v_lshlrev_b16 v0.l, 3, v1.h op_sel:[0,1,0]",
            [0x2001_0000, 0, 0],
            0xdddd_0008,
        ),
        (
            "gfx1100",
            "v_ashrrev_i16 v0.h, 4, v1.l op_sel:[0,0,1]",
            [0x8000, 0, 0],
            0xf800_dddd,
        ),
        (
            "gfx1100",
            "v_pack_b32_f16 v0, -v1.h, |v2.l| op_sel:[1,0,0]",
            [0x1111_2222, 0xb333, 0],
            0x3333_9111,
        ),
        // Saturated to 0 … 255: −1 and 256, 7 and −32768.
        (
            "gfx1100",
            "v_sat_pk_u8_i16_e32 v0.h, v1",
            [0x0100_ffff, 0, 0],
            0xff00_dddd,
        ),
        (
            "gfx90a",
            "v_sat_pk_u8_i16_e32 v0, v1",
            [0x8000_0007, 0, 0],
            0x0000_0007,
        ),
        // A half among operands of 32 bits.
        (
            "gfx1100",
            "v_mad_u32_u16 v0, v1.h, v2.l, v3 op_sel:[1,0,0,0]",
            [0x0003_0000, 5, 0x10000],
            0x1000f,
        ),
        (
            "gfx1100",
            "v_mad_i32_i16 v0, v1.l, v2.h, v3 op_sel:[0,1,0,0]",
            [0xffff, 0x0005_0000, 1],
            0xffff_fffc,
        ),
        (
            "gfx1100",
            "v_alignbit_b32 v0, v1, v2, v3.h op_sel:[0,0,1,0]",
            [1, 0x8000_0000, 0x001f_0004],
            3,
        ),
    ]);
}

/// Bits of the lane number in a mask choose between halves; only active lanes and the named half are written.
#[test]
fn selections_write_one_half_of_the_active_lanes() {
    let prepare = |wave: &mut Wave| {
        fill(wave, 0, |_| 0xdddd_dddd);
        fill(wave, 1, |lane| 0x1100_2200 + lane * 0x0001_0001);
        fill(wave, 2, |lane| 0xb300_c400 + lane * 0x0001_0001);
        wave.set_sgpr(4, 0x0f0f_0f0f);
        wave.set_sgpr(6, 0x00ff_ff00);
        wave.set_sgpr(crate::wave::VCC, 0xaaaa_aaaa);
    };
    let at = |mask: u32, lane: u32| mask >> lane & 1 == 1;
    type Expected = fn(u32, bool) -> u32;
    let cases: [(&str, u32, Expected); 7] = [
        (
            "v_cndmask_b16 v0.l, v1.l, v2.l, s4",
            0x0f0f_0f0f,
            |lane, second| 0xdddd_0000 | if second { 0xc400 + lane } else { 0x2200 + lane },
        ),
        (
            "v_cndmask_b16 v0.h, v1.l, v2.h, vcc_lo",
            0xaaaa_aaaa,
            |lane, second| 0xdddd | if second { 0xb300 + lane } else { 0x2200 + lane } << 16,
        ),
        (
            "v_cndmask_b16 v0.l, 0x7fc0, v1.h, s4",
            0x0f0f_0f0f,
            |lane, second| 0xdddd_0000 | if second { 0x1100 + lane } else { 0x7fc0 },
        ),
        ("v_cndmask_b16 v0.h, -1, 1.0, s4", 0x0f0f_0f0f, |_, second| {
            0xdddd | if second { 0x3c00_0000 } else { 0xffff_0000 }
        }),
        (
            "v_cndmask_b16 v0.h, -v1.h, |v2.l|, s4",
            0x0f0f_0f0f,
            |lane, second| 0xdddd | if second { 0x4400 + lane } else { 0x9100 + lane } << 16,
        ),
        (
            "v_cndmask_b16 v0.l, -|v2.h|, v1.l, s4",
            0x0f0f_0f0f,
            |lane, second| 0xdddd_0000 | if second { 0x2200 + lane } else { 0xb300 + lane },
        ),
        (
            "v_cndmask_b16_e64_dpp v0.h, v1.h, v2.l, s4 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf bound_ctrl:1",
            0x0f0f_0f0f,
            |lane, second| {
                0xdddd
                    | if second {
                        0xc400 + lane
                    } else {
                        0x1100 + (lane ^ 1)
                    } << 16
            },
        ),
    ];
    for (text, mask, expected) in cases {
        for exec in [u32::MAX, 0x00ff_ff00] {
            let lines: &[&str] = if exec == u32::MAX {
                &[text]
            } else {
                &["s_mov_b32 exec_lo, s6", text]
            };
            let (wave, stop) = execute("gfx1100", prepare, lines);
            assert_eq!(stop, Ok(Stop::End), "{text}");
            for lane in 0..32 {
                let value = if at(exec, lane) {
                    expected(lane, at(mask, lane))
                } else {
                    0xdddd_dddd
                };
                assert_eq!(
                    wave.vgpr[0][lane as usize], value,
                    "{text}, EXEC {exec:#x}, lane {lane}"
                );
            }
        }
    }
}

#[test]
fn halves_are_compared() {
    let prepare = |wave: &mut Wave| {
        fill(wave, 1, |lane| lane << 16 | 0x7e00);
        fill(wave, 2, |lane| 0x3c00_0000 | lane);
    };
    let mask = |text: &str| {
        let (wave, stop) = execute("gfx1100", prepare, &[text]);
        assert_eq!(stop, Ok(Stop::End), "{text}");
        wave.sgpr[4]
    };
    assert_eq!(mask("v_cmp_gt_u16_e64 s4, 8, v1.h op_sel:[0,1,0]"), 0xff);
    assert_eq!(mask("v_cmp_eq_u16_e64 s4, v1.h, v2.l op_sel:[1,0,0]"), u32::MAX);
    assert_eq!(mask("v_cmp_ne_i16_e64 s4, 0, v1.h op_sel:[0,1,0]"), !1);
    assert_eq!(mask("v_cmp_u_f16_e64 s4, v1.l, v1.l"), u32::MAX);
    assert_eq!(mask("v_cmp_lt_f16_e64 s4, v1.h, -v2.h op_sel:[1,1,0]"), 0);
    // 1.0 is positive and normal, bit 8 of v2's lower half.
    assert_eq!(mask("v_cmp_class_f16_e64 s4, v2.h, v2.l op_sel:[1,0,0]"), 0);
    let text = "v_cmp_class_f16_e64 s4, v2.h, v1.h op_sel:[1,1,0]";
    let shifted = |wave: &mut Wave| {
        prepare(wave);
        fill(wave, 1, |lane| lane << 22);
    };
    let (wave, stop) = execute("gfx1100", shifted, &[text]);
    // Lanes whose number has bit 2 test for it: 0x100 is 4 << 6.
    assert_eq!((stop, wave.sgpr[4]), (Ok(Stop::End), 0xf0f0_f0f0));
    let (wave, stop) = execute(
        "gfx1100",
        prepare,
        &["v_cmpx_lt_u16_e32 v2.l, v1.l", "v_cmpx_gt_u16_e32 4, v1.h"],
    );
    assert_eq!((stop, wave.exec()), (Ok(Stop::End), 0xf));
}

#[test]
fn accumulated_and_swapped_halves() {
    let prepare = |wave: &mut Wave| {
        fill(wave, 0, |_| 0x3c00_4000);
        fill(wave, 1, |lane| 0x1100_2200 + lane);
        fill(wave, 2, |_| 0x4000_4200);
        wave.set_sgpr(6, 0xffff);
    };
    let value = |lines: &[&str], register: usize| {
        let (wave, stop) = execute("gfx1100", prepare, lines);
        assert_eq!(stop, Ok(Stop::End), "{lines:?}");
        [wave.vgpr[register][1], wave.vgpr[register][31]]
    };
    // 1 + 2 · 3 in the upper half.
    assert_eq!(value(&["v_fmac_f16_e32 v0.h, v2.h, v2.l"], 0), [0x4700_4000; 2]);
    let swap = ["s_mov_b32 exec_lo, s6", "v_swap_b16 v0.h, v1.l"];
    assert_eq!(value(&swap, 0), [0x2201_4000, 0x3c00_4000]);
    assert_eq!(value(&swap, 1), [0x1100_3c00, 0x1100_221f]);
    let own = ["s_mov_b32 exec_lo, s6", "v_swap_b16 v1.l, v1.h"];
    assert_eq!(value(&own, 1), [0x2201_1100, 0x1100_221f]);
}

/// Only the half that is read has to be known, and only the one that is written becomes known.
#[test]
fn halves_are_known_apart() {
    // v40 was never written; v41 has an unknown upper half, v42 an unknown lower one.
    let prepare = |wave: &mut Wave| {
        fill(wave, 1, |lane| lane);
        fill(wave, 41, |_| 5);
        fill(wave, 42, |_| 0x0005_0000);
        wave.vgpr_known[41][1] = 0;
        wave.vgpr_known[42][0] = 0;
        wave.set_sgpr(4, 0xff);
    };
    let known = |line: &str, register: usize| {
        let (wave, stop) = execute("gfx1100", prepare, &[line]);
        assert_eq!(stop, Ok(Stop::End), "{line}");
        wave.vgpr_known[register].map(|lanes| lanes as u32)
    };
    let all = u32::MAX;
    assert_eq!(known("v_mov_b16_e32 v40.h, v42.h", 40), [0, all]);
    assert_eq!(known("v_mov_b16_e32 v40.l, v41.l", 40), [all, 0]);
    assert_eq!(known("v_mov_b16_e32 v0.l, v41.h", 0), [0, all]);
    assert_eq!(known("v_add_f16_e32 v0.h, v41.l, v42.h", 0), [all, all]);
    assert_eq!(known("v_add_f16_e32 v0.h, v41.h, v42.h", 0), [all, 0]);
    assert_eq!(
        known("v_mad_u32_u16 v0, v42.h, v41.l, v1 op_sel:[1,0,0,0]", 0),
        [all, all]
    );
    assert_eq!(
        known("v_alignbit_b32 v0, v1, v1, v42.h op_sel:[0,0,1,0]", 0),
        [all, all]
    );
    // Where s4 is set the second is selected.
    assert_eq!(known("v_cndmask_b16 v0.l, v41.l, v42.h, s4", 0), [all, all]);
    assert_eq!(known("v_cndmask_b16 v0.h, v41.h, v41.l, s4", 0), [all, 0xff]);
    assert_eq!(known("v_cndmask_b16 v40.l, v41.l, v42.l, s4", 40), [!0xff, 0]);
    assert_eq!(known("v_cndmask_b16 v0.l, v1.l, v1.h, s40", 0), [0, all]);
    assert_eq!(known("v_swap_b16 v40.l, v42.h", 40), [all, 0]);
    assert_eq!(known("v_swap_b16 v40.l, v42.h", 42), [0, 0]);
}
