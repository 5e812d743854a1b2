//! VOP1, VOP2, VOP3 and VOPC: arithmetic and comparisons, an operation for each lane.

use super::{NAN, ONE, THREE, TWO, check, execute, fill};
use crate::code::Stop;
use crate::fault::FaultKind;
use crate::wave::Wave;

#[test]
fn arithmetic_on_lanes() {
    check(&[
        ("gfx1100", "v_add_f32_e32 v0, v1, v2", [ONE, TWO, 0], THREE),
        (
            "gfx1100",
            "v_add_f32_e64 v0, -v1, |v2|",
            [ONE, 0xc000_0000, 0],
            ONE,
        ),
        ("gfx1100", "v_subrev_f32_e32 v0, v1, v2", [ONE, TWO, 0], ONE),
        (
            "gfx1100",
            "v_mul_f32_e64 v0, v1, v2 mul:4",
            [ONE, TWO, 0],
            0x4100_0000,
        ),
        ("gfx1100", "v_mul_f32_e64 v0, v1, v2 div:2", [ONE, TWO, 0], ONE),
        ("gfx1100", "v_add_f32_e64 v0, v1, v2 clamp", [ONE, TWO, 0], ONE),
        ("gfx1100", "v_add_f32_e64 v0, v1, v2 clamp", [NAN, TWO, 0], 0),
        ("gfx1100", "v_min_f32_e32 v0, v1, v2", [NAN, TWO, 0], TWO),
        ("gfx1100", "v_max_f32_e32 v0, v1, v2", [0x8000_0000, 0, 0], 0),
        ("gfx1100", "v_med3_f32 v0, v1, v2, v3", [THREE, ONE, TWO], TWO),
        (
            "gfx1100",
            "v_fma_f32 v0, v1, v2, v3",
            [0x3f80_0001, 0x3f80_0001, 0xbf80_0002],
            0x2880_0000,
        ),
        ("gfx1100", "v_fmac_f32_e32 v0, v1, v2", [0, TWO, 0], 0xdddd_dddd),
        (
            "gfx1100",
            "v_fmaak_f32 v0, v1, v2, 0x3f800000",
            [ONE, TWO, 0],
            THREE,
        ),
        (
            "gfx1100",
            "v_fmamk_f32 v0, v1, 0x40000000, v3",
            [ONE, 0, ONE],
            THREE,
        ),
        ("gfx1100", "v_rcp_f32_e32 v0, v1", [TWO, 0, 0], 0x3f00_0000),
        ("gfx1100", "v_rcp_f32_e32 v0, v1", [1, 0, 0], 0x7f80_0000),
        ("gfx1100", "v_exp_f32_e32 v0, v1", [THREE, 0, 0], 0x4100_0000),
        ("gfx1100", "v_exp_f32_e32 v0, v1", [0xc301_0000, 0, 0], 0),
        ("gfx1100", "v_log_f32_e32 v0, v1", [0x4100_0000, 0, 0], THREE),
        ("gfx1100", "v_sin_f32_e32 v0, v1", [0x3e80_0000, 0, 0], ONE),
        (
            "gfx1100",
            "v_fract_f32_e32 v0, v1",
            [0xbe80_0000, 0, 0],
            0x3f40_0000,
        ),
        ("gfx1100", "v_rndne_f32_e32 v0, v1", [0x4020_0000, 0, 0], TWO),
        ("gfx1100", "v_ldexp_f32 v0, v1, v2", [ONE, 1, 0], TWO),
        ("gfx1100", "v_frexp_exp_i32_f32_e32 v0, v1", [TWO, 0, 0], 2),
        (
            "gfx1100",
            "v_cvt_i32_f32_e32 v0, v1",
            [0xcf80_0000, 0, 0],
            0x8000_0000,
        ),
        ("gfx1100", "v_cvt_u32_f32_e32 v0, v1", [NAN, 0, 0], 0),
        ("gfx1100", "v_cvt_f32_ubyte2_e32 v0, v1", [0x0002_0000, 0, 0], TWO),
        (
            "gfx1100",
            "v_cvt_pkrtz_f16_f32_e32 v0, v1, v2",
            [0x3f80_0fff, 0x477f_ffff, 0],
            0x7bff_3c00,
        ),
        // Writing one half keeps the other on RDNA, and clears it on CDNA.
        ("gfx1100", "v_cvt_f16_f32_e32 v0, v1", [ONE, 0, 0], 0xdddd_3c00),
        ("gfx90a", "v_cvt_f16_f32_e32 v0, v1", [ONE, 0, 0], 0x0000_3c00),
        (
            "gfx1100",
            "v_add_f16_e32 v0, v1, v2",
            [0x3c00, 0x3c00, 0],
            0xdddd_4000,
        ),
        (
            "gfx1100",
            "v_fma_f16 v0, v1, v2, v3 op_sel:[1,0,0,1]",
            [0x4000_0000, 0x4200, 0x3c00],
            0x4700_dddd,
        ),
        ("gfx1100", "v_mad_u16 v0, v1, v2, v3", [0xffff, 2, 1], 0xdddd_ffff),
        ("gfx1100", "v_add_nc_u32_e32 v0, v1, v2", [u32::MAX, 2, 0], 1),
        (
            "gfx1100",
            "v_add_nc_u32_e64 v0, v1, v2 clamp",
            [u32::MAX, 2, 0],
            u32::MAX,
        ),
        ("gfx90a", "v_sub_u32_e64 v0, v1, v2 clamp", [1, 2, 0], 0),
        (
            "gfx1100",
            "v_sub_nc_i32 v0, v1, v2 clamp",
            [0x8000_0000, 1, 0],
            0x8000_0000,
        ),
        (
            "gfx1100",
            "v_mul_hi_u32 v0, v1, v2",
            [u32::MAX, u32::MAX, 0],
            0xffff_fffe,
        ),
        ("gfx1100", "v_mul_hi_i32 v0, v1, v2", [u32::MAX, u32::MAX, 0], 0),
        ("gfx1100", "v_mul_u32_u24_e32 v0, v1, v2", [0xff00_0003, 4, 0], 12),
        (
            "gfx1100",
            "v_mad_i32_i24 v0, v1, v2, v3",
            [0x00ff_ffff, 4, 1],
            0xffff_fffd,
        ),
        ("gfx1100", "v_lshl_add_u32 v0, v1, v2, v3", [3, 34, 1], 13),
        ("gfx1100", "v_bfe_i32 v0, v1, v2, v3", [0x80, 4, 4], 0xffff_fff8),
        ("gfx1100", "v_bfe_u32 v0, v1, v2, v3", [0xabcd, 8, 8], 0xab),
        (
            "gfx1100",
            "v_bfi_b32 v0, v1, v2, v3",
            [0xff, 0x1234, 0xabcd_ef00],
            0xabcd_ef34,
        ),
        (
            "gfx1100",
            "v_alignbit_b32 v0, v1, v2, v3",
            [1, 0x8000_0000, 31],
            3,
        ),
        (
            "gfx1100",
            "v_perm_b32 v0, v1, v2, v3",
            [0x8765_4321, 0x0011_2233, 0x0c0d_0704],
            0x00ff_8721,
        ),
        (
            "gfx1100",
            "v_perm_b32 v0, v1, v2, v3",
            [0x8765_4321, 0x0011_2233, 0x0b0a_0100],
            0xff00_2233,
        ),
        ("gfx1100", "v_clz_i32_u32_e32 v0, v1", [0, 0, 0], u32::MAX),
        ("gfx1100", "v_ctz_i32_b32_e32 v0, v1", [8, 0, 0], 3),
        ("gfx1100", "v_cls_i32_e32 v0, v1", [0xffff_fff0, 0, 0], 28),
        (
            "gfx1100",
            "v_sad_u8 v0, v1, v2, v3",
            [0x0102_0304, 0x0403_0201, 10],
            18,
        ),
        ("gfx1100", "v_lshlrev_b16 v0, v1, v2", [4, 0x1234, 0], 0xdddd_2340),
        (
            "gfx1100",
            "v_xnor_b32_e32 v0, v1, v2",
            [0xff, 0x0f, 0],
            0xffff_ff0f,
        ),
        ("gfx1100", "v_max3_i32 v0, v1, v2, v3", [u32::MAX, 5, 3], 5),
        (
            "gfx1100",
            "v_pack_b32_f16 v0, v1, v2",
            [0x1111_2222, 0x3333_4444, 0],
            0x4444_2222,
        ),
    ]);
}

/// Denormals are kept or flushed as MODE says; approximations always flush.
#[test]
fn denormals_follow_the_mode() {
    let prepare = |wave: &mut Wave| fill(wave, 1, |_| 1);
    let (wave, _) = execute(
        "gfx1100",
        prepare,
        &[
            "v_add_f32_e32 v0, v1, v1",
            "s_denorm_mode 12",
            "v_add_f32_e32 v2, v1, v1",
        ],
    );
    assert_eq!((wave.vgpr[0][0], wave.vgpr[2][0]), (2, 0));
    let (_, stop) = execute("gfx1100", |_| {}, &["s_round_mode 1"]);
    assert!(matches!(stop, Err(FaultKind::UnknownInstruction { .. })));
}

#[test]
fn doubles_and_carries() {
    let prepare = |wave: &mut Wave| {
        fill(wave, 2, |_| u32::MAX);
        fill(wave, 3, |_| 1);
        fill(wave, 4, |_| 2);
        fill(wave, 5, |_| 3);
        fill(wave, 9, |_| 0x3ff0_0000);
    };
    let lines = [
        "v_add_co_u32 v0, vcc_lo, v2, v4",
        "v_add_co_ci_u32_e32 v1, vcc_lo, v3, v5, vcc_lo",
        "v_mad_u64_u32 v[6:7], null, v2, v4, v[2:3]",
        "v_fma_f64 v[10:11], v[8:9], 2.0, -v[8:9]",
        "v_lshlrev_b64 v[12:13], 4, v[2:3]",
        "v_cmp_gt_u64_e64 s4, v[2:3], v[4:5]",
    ];
    let (wave, stop) = execute("gfx1100", prepare, &lines);
    assert_eq!(stop, Ok(Stop::End));
    assert_eq!((wave.vgpr[0][7], wave.vgpr[1][7]), (1, 5));
    assert_eq!((wave.vgpr[6][7], wave.vgpr[7][7]), (0xffff_fffd, 3));
    assert_eq!((wave.vgpr[10][7], wave.vgpr[11][7]), (0, 0x3ff0_0000));
    assert_eq!((wave.vgpr[12][7], wave.vgpr[13][7]), (0xffff_fff0, 0x1f));
    assert_eq!(wave.sgpr[4], 0);
}

#[test]
fn instructions_of_gfx950() {
    check(&[
        // a ? b : c, and the majority.
        (
            "gfx950",
            "v_bitop3_b32 v0, v1, v2, v3 bitop3:0xca",
            [0xffff_0000, 0x1234_5678, 0x9abc_def0],
            0x1234_def0,
        ),
        (
            "gfx950",
            "v_bitop3_b32 v0, v1, v2, v3 bitop3:0xe8",
            [0b0011, 0b0101, 0b0110],
            0b0111,
        ),
        (
            "gfx950",
            "v_bitop3_b16 v0, v1, v2, v3 bitop3:0x6c",
            [0xabcd_00f0, 0xcccc, 0xaaaa],
            0xcc6c,
        ),
        (
            "gfx950",
            "v_cvt_pk_f16_f32 v0, v1, v2",
            [ONE, TWO, 0],
            0x4000_3c00,
        ),
        (
            "gfx950",
            "v_ashr_pk_u8_i32 v0, v1, v2, 4",
            [0x120, 0xffff_fff0, 0],
            0x0012,
        ),
        (
            "gfx950",
            "v_ashr_pk_i8_i32 v0, v1, v2, 4",
            [0x1200, 0xffff_fff0, 0],
            0xff7f,
        ),
    ]);
}
