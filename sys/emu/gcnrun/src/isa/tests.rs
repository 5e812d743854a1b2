//! Instructions as the disassembler writes them, with values from the ISA guides' descriptions.

use super::*;
use crate::decode::Code;
use crate::memory::{Kind, Memory};
use crate::run::Checks;

/// Executes lines, each optionally followed by ` ; ` and its first word, on a wave whose v0 to v31 and s0 to s31 are known.
fn execute(arch: &str, prepare: impl FnOnce(&mut Wave), lines: &[&str]) -> (Wave, Result<Stop, FaultKind>) {
    let memory = Memory::new();
    execute_with(&memory, arch, prepare, lines)
}

fn execute_with(
    memory: &Memory,
    arch: &str,
    prepare: impl FnOnce(&mut Wave),
    lines: &[&str],
) -> (Wave, Result<Stop, FaultKind>) {
    let lanes = if arch.starts_with("gfx9") { 64 } else { 32 };
    let mut text = String::new();
    for (i, line) in lines.iter().chain(&["s_endpgm"]).enumerate() {
        let (line, word) = line.split_once(" ; ").unwrap_or((line, "00000000"));
        text += &format!("\t{line} // {:012X}: {word}\n", 8 * i);
    }
    let code = Code::decode(text, arch, lanes);
    let mut wave = Wave::new(lanes, 64, 8);
    wave.set_exec(u64::MAX);
    for register in 0..32 {
        wave.set_sgpr(register, 0);
        for lane in 0..lanes {
            wave.set_vgpr(register, lane, 0);
        }
    }
    prepare(&mut wave);
    let mut space = Space::new(memory, 0, Checks::default(), 0, 1024, (1, lanes, 64));
    space.begin_block();
    space.enter(0);
    let stop = run(&mut wave, &code, &mut space).map_err(|stopped| stopped.kind);
    (wave, stop)
}

fn fill(wave: &mut Wave, register: usize, value: impl Fn(u32) -> u32) {
    for lane in 0..wave.lanes {
        wave.set_vgpr(register, lane, value(lane));
    }
}

/// v0 (before: 0xdddddddd) after an instruction on v1, v2 and v3.
fn result(arch: &str, text: &str, operands: [u32; 3]) -> u32 {
    let prepare = |wave: &mut Wave| {
        fill(wave, 0, |_| 0xdddd_dddd);
        for (register, value) in operands.iter().enumerate() {
            fill(wave, register + 1, |_| *value);
        }
    };
    let (wave, stop) = execute(arch, prepare, &[text]);
    assert_eq!(stop, Ok(Stop::End), "{text}");
    let lanes = wave.lanes as usize;
    assert!(
        wave.vgpr[0][..lanes]
            .iter()
            .all(|value| *value == wave.vgpr[0][0]),
        "{text}"
    );
    assert_eq!(
        wave.vgpr_known[0].map(|known| known & wave.all_lanes()),
        [wave.all_lanes(); 2],
        "{text}"
    );
    wave.vgpr[0][0]
}

const ONE: u32 = 0x3f80_0000;
const TWO: u32 = 0x4000_0000;
const THREE: u32 = 0x4040_0000;
const NAN: u32 = 0x7fc0_0000;

#[test]
fn arithmetic_on_lanes() {
    let table: &[(&str, &str, [u32; 3], u32)] = &[
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
        // A half written leaves the other on RDNA, and clears it on CDNA.
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
            "v_pk_add_f16 v0, v1, v2",
            [0x3c00_4000, 0x3c00_3c00, 0],
            0x4000_4200,
        ),
        (
            "gfx1100",
            "v_pk_mul_f16 v0, v1, v2 op_sel:[1,0] op_sel_hi:[0,1]",
            [0x3c00_4000, 0x4200_4400, 0],
            0x4600_4400,
        ),
        (
            "gfx1100",
            "v_pk_fma_f16 v0, v1, v2, v3 neg_lo:[1,0,0] neg_hi:[0,0,1]",
            [0x3c00_3c00; 3],
            0x0000_0000,
        ),
        (
            "gfx1100",
            "v_pk_add_u16 v0, v1, v2 clamp",
            [0xffff_0001; 3],
            0xffff_0002,
        ),
        (
            "gfx1100",
            "v_fma_mix_f32 v0, v1, v2, -v3 op_sel:[1,0,0] op_sel_hi:[1,0,0]",
            [0x4000_3c00, THREE, ONE],
            0x40a0_0000,
        ),
        (
            "gfx1100",
            "v_fma_mixhi_f16 v0, v1, v2, 0",
            [ONE, TWO, 0],
            0x4000_dddd,
        ),
        (
            "gfx1100",
            "v_dot4_i32_iu8 v0, v1, v2, v3 neg_lo:[1,1,0]",
            [0xff02_0304, 0x0101_0101, 0],
            8,
        ),
        (
            "gfx1100",
            "v_dot4_u32_u8 v0, v1, v2, 1",
            [0xff02_0304, 0x0101_0101, 0],
            265,
        ),
        (
            "gfx1100",
            "v_pack_b32_f16 v0, v1, v2",
            [0x1111_2222, 0x3333_4444, 0],
            0x4444_2222,
        ),
        (
            "gfx90a",
            "v_lshlrev_b32_sdwa v0, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:WORD_1",
            [4, 0x1234_5678, 0],
            0x12340,
        ),
        (
            "gfx90a",
            "v_add_u32_sdwa v0, v1, sext(v2) dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:BYTE_0",
            [0x0500, 0xff, 0],
            4,
        ),
        (
            "gfx90a",
            "v_or_b32_sdwa v0, v1, v2 dst_sel:BYTE_1 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_0 src1_sel:BYTE_0",
            [0x11, 0x22, 0],
            0xdddd_33dd,
        ),
        (
            "gfx90a",
            "v_mov_b32_dpp v0, v1 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf",
            [7, 0, 0],
            7,
        ),
        ("gfx90a", "v_accvgpr_write_b32 a1, v1", [7, 0, 0], 0xdddd_dddd),
    ];
    for (arch, text, operands, expected) in table {
        let value = result(arch, text, *operands);
        assert_eq!(value, *expected, "{text}: {value:#x}, not {expected:#x}");
    }
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
fn scalars() {
    let prepare = |wave: &mut Wave| {
        wave.set_sgpr(0, 0x8000_0000);
        wave.set_sgpr(1, 0xffff_ffff);
        wave.set_sgpr(2, 5);
        wave.set_sgpr(3, 0x0004_0008);
    };
    let lines = [
        "s_add_u32 s4, s1, 1",
        "s_addc_u32 s5, s2, 0",
        "s_sub_u32 s6, s2, 6",
        "s_subb_u32 s7, s2, 0",
        "s_mul_hi_i32 s8, s0, s1",
        "s_bfe_u32 s9, 0xabcd, s3",
        "s_lshl_b64 s[10:11], s[1:2], 4",
        "s_ff1_i32_b64 s12, s[10:11]",
        "s_cmp_lg_u32 s2, 5",
        "s_cselect_b32 s13, 1, 2",
        "s_movk_i32 s14, 0xffff",
        "s_pack_lh_b32_b16 s15, s2, s3",
        "s_bcnt1_i32_b32 s16, s1",
        "s_min_i32 s17, s0, s2",
        "s_bfm_b32 s18, 4, 8",
        "s_abs_i32 s19, s1",
    ];
    let (wave, stop) = execute("gfx1100", prepare, &lines);
    assert_eq!(stop, Ok(Stop::End));
    let expected = [
        0,
        6,
        0xffff_ffff,
        4,
        0,
        0xb,
        0xffff_fff0,
        0x5f,
        4,
        2,
        0xffff_ffff,
        0x0004_0005,
        32,
        0x8000_0000,
        0xf00,
        1,
    ];
    assert_eq!(wave.sgpr[4..20], expected);
}

#[test]
fn branches_and_masks() {
    // Lanes below 8 count to two, the others skip; the loop leaves when EXEC is empty.
    let prepare = |wave: &mut Wave| fill(wave, 1, |lane| lane);
    let lines = [
        "v_cmp_gt_u32_e32 vcc_lo, 8, v1",
        "s_and_saveexec_b32 s4, vcc_lo",
        "s_cbranch_execz 5 ; BF880005",
        "v_add_nc_u32_e32 v0, 1, v0",
        "v_cmpx_gt_u32_e32 2, v0",
        "s_cbranch_execnz 65531 ; BF89FFFB",
        "s_or_b32 exec_lo, exec_lo, s4",
    ];
    let (wave, stop) = execute("gfx1100", prepare, &lines);
    assert_eq!(stop, Ok(Stop::End));
    assert_eq!(wave.exec(), 0xffff_ffff);
    assert_eq!(wave.sgpr[4], 0xffff_ffff);
    let counts: Vec<_> = (0..32).map(|lane| if lane < 8 { 2 } else { 0 }).collect();
    assert_eq!(wave.vgpr[0][..32], counts);
    assert_eq!(wave.executed, 2 + 1 + 3 * 2 + 1 + 1);
}

#[test]
fn lanes_move() {
    let prepare = |wave: &mut Wave| {
        fill(wave, 1, |lane| lane);
        fill(wave, 2, |lane| 4 * (lane ^ 1));
        wave.set_sgpr(2, 0x7654_3210);
        wave.set_sgpr(3, 0xfedc_ba98);
    };
    let moved = |text: &str, arch: &str, from: &dyn Fn(u32) -> u32| {
        let (wave, stop) = execute(arch, prepare, &[text]);
        assert_eq!(stop, Ok(Stop::End), "{text}");
        for lane in 0..wave.lanes {
            assert_eq!(wave.vgpr[0][lane as usize], from(lane), "{text}, lane {lane}");
        }
    };
    moved(
        "v_mov_b32_dpp v0, v1 quad_perm:[3,2,1,0] row_mask:0xf bank_mask:0xf",
        "gfx1100",
        &|lane| lane ^ 3,
    );
    moved(
        "v_mov_b32_dpp v0, v1 row_shl:1 row_mask:0xf bank_mask:0xf",
        "gfx90a",
        &|lane| if lane % 16 == 15 { 0 } else { lane + 1 },
    );
    moved(
        "v_mov_b32_dpp v0, v1 row_shr:2 row_mask:0x5 bank_mask:0xf",
        "gfx90a",
        &|lane| {
            if lane / 16 % 2 == 0 && lane % 16 >= 2 {
                lane - 2
            } else {
                0
            }
        },
    );
    moved(
        "v_mov_b32_dpp v0, v1 row_ror:4 row_mask:0xf bank_mask:0xf",
        "gfx90a",
        &|lane| lane & !15 | (lane.wrapping_sub(4)) & 15,
    );
    moved(
        "v_mov_b32_dpp v0, v1 row_half_mirror row_mask:0xf bank_mask:0xf",
        "gfx1100",
        &|lane| lane ^ 7,
    );
    moved(
        "v_mov_b32_dpp v0, v1 row_mirror row_mask:0xf bank_mask:0xf",
        "gfx1100",
        &|lane| lane ^ 15,
    );
    moved(
        "v_mov_b32_dpp v0, v1 row_bcast:15 row_mask:0xf bank_mask:0xf",
        "gfx90a",
        &|lane| if lane < 16 { 0 } else { (lane & !15) - 1 },
    );
    moved(
        "v_mov_b32_dpp v0, v1 row_bcast:31 row_mask:0xf bank_mask:0xf",
        "gfx90a",
        &|lane| if lane < 32 { 0 } else { 31 },
    );
    moved(
        "v_mov_b32_dpp v0, v1 row_xmask:5 row_mask:0xf bank_mask:0xf",
        "gfx1100",
        &|lane| lane ^ 5,
    );
    moved(
        "v_mov_b32_dpp v0, v1 row_share:3 row_mask:0xf bank_mask:0xf",
        "gfx1100",
        &|lane| lane & !15 | 3,
    );
    moved(
        "v_mov_b32_dpp v0, v1 dpp8:[7,6,5,4,3,2,1,0]",
        "gfx1100",
        &|lane| lane ^ 7,
    );
    moved(
        "v_mov_b32_dpp v0, v1 wave_shr:1 row_mask:0xf bank_mask:0xf",
        "gfx90a",
        &|lane| lane.saturating_sub(1),
    );
    moved("ds_bpermute_b32 v0, v2, v1", "gfx90a", &|lane| lane ^ 1);
    moved("ds_permute_b32 v0, v2, v1", "gfx1100", &|lane| lane ^ 1);
    moved(
        "ds_swizzle_b32 v0, v1 offset:swizzle(SWAP,16) ; D8D4401F",
        "gfx1100",
        &|lane| lane ^ 16,
    );
    moved(
        "ds_swizzle_b32 v0, v1 offset:swizzle(QUAD_PERM,1,1,1,1) ; D8D48055",
        "gfx90a",
        &|lane| lane & !3 | 1,
    );
    moved(
        "ds_swizzle_b32 v0, v1 offset:swizzle(BROADCAST,8,5) ; D8D400B8",
        "gfx90a",
        &|lane| lane & !7 | 5,
    );
    moved("v_permlane16_b32 v0, v1, s2, s3", "gfx1100", &|lane| lane);
    moved("v_permlanex16_b32 v0, v1, s2, s3", "gfx1100", &|lane| lane ^ 16);
    moved("v_permlane64_b32 v0, v1", "gfx1100", &|lane| lane);
    moved("v_mbcnt_lo_u32_b32 v0, -1, 0", "gfx1100", &|lane| lane);
    moved("v_mbcnt_hi_u32_b32 v0, -1, 5", "gfx90a", &|lane| {
        lane.saturating_sub(32) + 5
    });
}

/// Both halves of a dual instruction read before either writes.
#[test]
fn dual_instructions_cross() {
    let prepare = |wave: &mut Wave| {
        fill(wave, 1, |_| 11);
        fill(wave, 2, |_| 22);
    };
    for lines in [
        ["v_dual_mov_b32 v1, v2 :: v_dual_mov_b32 v2, v1"],
        ["v_dual_add_nc_u32 v1, 0, v2 :: v_dual_mov_b32 v2, v1"],
    ] {
        let (wave, stop) = execute("gfx1100", prepare, &lines);
        assert_eq!(stop, Ok(Stop::End));
        assert_eq!((wave.vgpr[1][3], wave.vgpr[2][3]), (22, 11));
    }
}

#[test]
fn lds_scratch_and_buffers() {
    let prepare = |wave: &mut Wave| {
        fill(wave, 1, |lane| lane * 8);
        fill(wave, 2, |lane| lane + 100);
        fill(wave, 3, |lane| lane + 200);
        fill(wave, 9, |_| 1);
        for (i, word) in crate::space::SCRATCH_DESCRIPTOR.iter().enumerate() {
            wave.set_sgpr(8 + i, *word);
        }
        wave.set_sgpr(12, 16 * 64);
    };
    let lines = [
        "ds_write2_b32 v1, v2, v3 offset1:1",
        "ds_read_b64 v[4:5], v1",
        "ds_add_rtn_u32 v6, v1, v9",
        "ds_read_u16 v7, v1",
        "buffer_store_dword v2, off, s[8:11], s12 offset:4",
        "buffer_load_dword v8, off, s[8:11], 0 offset:20",
        "scratch_load_dword v10, off, off offset:20",
    ];
    let (wave, stop) = execute("gfx90a", prepare, &lines);
    assert_eq!(stop, Ok(Stop::End));
    let lane = 9;
    assert_eq!((wave.vgpr[4][lane], wave.vgpr[5][lane]), (109, 209));
    assert_eq!((wave.vgpr[6][lane], wave.vgpr[7][lane]), (109, 110));
    assert_eq!((wave.vgpr[8][lane], wave.vgpr[10][lane]), (109, 109));
}

#[test]
fn global_memory() {
    let memory = Memory::new();
    let address = memory.allocate(1024, Kind::Device(0), 256).unwrap();
    memory.write(address, &(0..=255).collect::<Vec<u8>>()).unwrap();
    let prepare = |wave: &mut Wave| {
        wave.set_sgpr(2, address as u32);
        wave.set_sgpr(3, (address >> 32) as u32);
        fill(wave, 1, |lane| 4 * lane);
        fill(wave, 2, |_| 0xdddd_dddd);
        fill(wave, 3, |_| 3);
    };
    let lines = [
        "global_load_d16_hi_b16 v2, v1, s[2:3] offset:2",
        "global_load_i8 v4, v1, s[2:3] offset:128",
        "global_load_b64 v[6:7], v1, s[2:3] offset:-4",
        "global_atomic_add_u32 v8, v1, v3, s[2:3] glc",
        "global_store_b16 v1, v3, s[2:3] offset:256",
        "s_load_b64 s[4:5], s[2:3], 0x8",
    ];
    // The first lane would reach before the allocation.
    let start = |wave: &mut Wave| {
        prepare(wave);
        wave.set_exec(!1);
    };
    let (wave, stop) = execute_with(&memory, "gfx1100", start, &lines);
    assert_eq!(stop, Ok(Stop::End));
    assert_eq!(wave.vgpr[2][5], 0x1716_dddd);
    assert_eq!(wave.vgpr[4][5], 0xffff_ff94);
    assert_eq!((wave.vgpr[6][5], wave.vgpr[7][5]), (0x1312_1110, 0x1716_1514));
    assert_eq!(wave.vgpr[8][5], 0x1716_1514);
    // The first lane of the atomic operation, the third dword, had 3 added.
    assert_eq!(wave.sgpr[4..6], [0x0b0a_090b, 0x0f0e_0d0f]);
    let mut stored = [0; 2];
    memory.read(address + 256 + 20, &mut stored).unwrap();
    assert_eq!(stored, [3, 0]);
    let (_, stop) = execute_with(&memory, "gfx1100", prepare, &lines);
    assert!(matches!(stop, Err(FaultKind::OutOfBounds { .. })), "{stop:?}");
}

/// Unknown bits are handed on where they count, and only there.
#[test]
fn unknown_bits_are_tracked() {
    // v40 and s40 were never written; v41 has an unknown upper half.
    let prepare = |wave: &mut Wave| {
        fill(wave, 1, |lane| lane);
        fill(wave, 41, |_| 5);
        wave.vgpr_known[41][1] = 0;
    };
    let known = |lines: &[&str]| {
        let (wave, stop) = execute("gfx1100", prepare, lines);
        assert_eq!(stop, Ok(Stop::End), "{lines:?}");
        wave.vgpr_known[0].map(|lanes| lanes as u32)
    };
    let all = u32::MAX;
    assert_eq!(known(&["v_mov_b32_e32 v0, v40"]), [0, 0]);
    assert_eq!(known(&["v_mov_b32_e32 v0, v41"]), [all, 0]);
    assert_eq!(known(&["v_add_nc_u32_e32 v0, v1, v40"]), [0, 0]);
    assert_eq!(known(&["v_and_b32_e32 v0, 0xffff, v41"]), [all, all]);
    assert_eq!(known(&["v_and_b32_e32 v0, 0, v40"]), [all, all]);
    assert_eq!(known(&["v_lshlrev_b32_e32 v0, 16, v41"]), [all, all]);
    assert_eq!(known(&["v_perm_b32 v0, v40, v41, 0x05040100"]), [all, 0]);
    assert_eq!(known(&["v_lshl_or_b32 v0, v40, 16, v1"]), [all, 0]);
    assert_eq!(known(&["v_cvt_f32_f16_e32 v0, v41"]), [all, all]);
    assert_eq!(known(&["v_cvt_f32_f16_e64 v0, v41 op_sel:[1,0]"]), [0, 0]);
    assert_eq!(known(&["v_add_f32_e32 v0, v1, v41"]), [0, 0]);
    assert_eq!(known(&["v_mad_u64_u32 v[0:1], null, v1, v1, v[1:2]"]), [all, all]);
    // Each lane's choice counts.
    let lines = [
        "v_cmp_gt_u32_e32 vcc_lo, 8, v1",
        "v_cndmask_b32_e32 v0, v40, v1, vcc_lo",
    ];
    assert_eq!(known(&lines), [0xff, 0xff]);
    // Lanes that compare unknown values spoil their own bits of the mask alone.
    let lines = [
        "v_mov_b32_e32 v5, v40",
        "s_mov_b32 exec_lo, 0xff",
        "v_mov_b32_e32 v5, v1",
        "s_mov_b32 exec_lo, -1",
        "v_cmp_eq_u32_e32 vcc_lo, 0, v5",
        "s_and_b32 s4, vcc_lo, 0xff",
    ];
    let (wave, stop) = execute("gfx1100", prepare, &lines);
    assert_eq!(stop, Ok(Stop::End));
    assert_eq!(
        (
            wave.sgpr_known[crate::wave::VCC],
            wave.sgpr_known[4],
            wave.sgpr[4]
        ),
        (0xff, all, 1)
    );
}

/// The upper dword of a product of 64 bits, as gfx90a has it, whose pairs begin at even registers: the addend's upper half is
/// whatever the register holds, and so is the sum's, but the lower half is known.
#[test]
fn a_sums_lower_half_is_known_whatever_the_addends_upper_half() {
    let prepare = |wave: &mut Wave| {
        fill(wave, 1, |lane| lane);
        fill(wave, 7, |_| 5);
        wave.set_sgpr(15, 3);
    };
    let lines = [
        "v_mov_b32_e32 v40, v7",
        "v_mad_u64_u32 v[40:41], s[0:1], s15, v1, v[40:41]",
    ];
    let (wave, stop) = execute("gfx90a", prepare, &lines);
    assert_eq!(stop, Ok(Stop::End));
    assert_eq!(wave.vgpr[40][63], 3 * 63 + 5);
    assert_eq!(
        (wave.vgpr_known[40], wave.vgpr_known[41]),
        ([u64::MAX; 2], [0; 2])
    );
}

#[test]
fn unknown_bits_may_not_decide() {
    let faults = |lines: &[&str]| {
        let (_, stop) = execute("gfx1100", |_| {}, lines);
        assert!(
            matches!(stop, Err(FaultKind::Uninitialised { .. })),
            "{lines:?}: {stop:?}"
        );
    };
    faults(&["global_load_b32 v0, v[40:41], off"]);
    faults(&["ds_load_b32 v0, v40"]);
    faults(&["s_load_b32 s0, s[40:41], null"]);
    faults(&["s_cmp_eq_u32 s40, 0", "s_cbranch_scc1 0"]);
    faults(&["v_cmp_eq_u32_e32 vcc_lo, 0, v40", "s_cbranch_vccz 0"]);
    faults(&["v_cmp_eq_u32_e32 vcc_lo, 0, v40", "s_and_saveexec_b32 s4, vcc_lo"]);
    faults(&["v_cmpx_eq_u32_e32 0, v40"]);
    faults(&["v_readfirstlane_b32 s4, v40", "s_mov_b32 exec_lo, s4"]);
    faults(&["v_readlane_b32 s4, v1, s40"]);
    faults(&["ds_bpermute_b32 v0, v40, v1"]);
    faults(&["s_setpc_b64 s[40:41]"]);
}

#[test]
fn what_is_lacking_is_named() {
    for text in [
        "v_interp_p1_f32 v0, v1",
        "v_add_f32_e64 v0, v1, v2 fancy:1",
        "v_add_f32_e32 v0, v1",
        "s_frobnicate s0",
        "v_dual_frob_f32 v0, v1 :: v_dual_mov_b32 v2, v3",
    ] {
        let (_, stop) = execute("gfx1100", |_| {}, &[text]);
        assert!(
            matches!(stop, Err(FaultKind::UnknownInstruction { .. })),
            "{text}: {stop:?}"
        );
    }
    let (_, stop) = execute(
        "gfx1100",
        |wave| wave.budget = 100,
        &["s_branch 65535 ; BF82FFFF"],
    );
    assert_eq!(stop, Err(FaultKind::Timeout { instructions: 100 }));
    let (_, stop) = execute("gfx1100", |wave| wave.set_sgpr(0, 4), &["s_setpc_b64 s[0:1]"]);
    assert_eq!(stop, Err(FaultKind::WildJump { target: 4 }));
}
