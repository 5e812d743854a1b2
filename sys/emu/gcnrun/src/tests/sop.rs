//! SOP1, SOP2, SOPK, SOPC and SOPP: scalar arithmetic, branches, lane masks.

use super::{execute, fill};
use crate::code::Stop;
use crate::fault::FaultKind;
use crate::wave::Wave;

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
fn floats_of_the_scalar_unit() {
    let prepare = |wave: &mut Wave| {
        wave.set_sgpr(0, 2.5_f32.to_bits());
        wave.set_sgpr(1, (-0.75_f32).to_bits());
        wave.set_sgpr(2, f32::NAN.to_bits());
    };
    let lines = [
        "s_fmamk_f32 s4, s0, 0x40800000, s1",
        "s_fmaak_f32 s5, s0, s1, 0x40800000",
        "s_cvt_u32_f32 s6, s0",
        "s_cvt_u32_f32 s7, s1",
        "s_cvt_i32_f32 s8, s1",
        "s_trunc_f32 s9, s1",
        "s_rndne_f32 s10, s0",
        "s_min_num_f32 s11, s0, s2",
        "v_s_rcp_f32 s12, s0",
        "s_cmp_ngt_f32 s2, s0",
        "s_cselect_b32 s13, 1, 2",
        "s_cmp_lg_f32 s2, s0",
        "s_cselect_b32 s14, 1, 2",
        "s_cmp_neq_f32 s0, 0",
        "s_cselect_b32 s15, 1, 2",
        "s_wait_kmcnt 0x0",
    ];
    let (wave, stop) = execute("gfx1200", prepare, &lines);
    assert_eq!(stop, Ok(Stop::End));
    let expected = [
        9.25_f32.to_bits(),
        2.125_f32.to_bits(),
        2,
        0,
        0,
        (-0.0_f32).to_bits(),
        2.0_f32.to_bits(),
        2.5_f32.to_bits(),
        0.4_f32.to_bits(),
        1,
        2,
        1,
    ];
    assert_eq!(wave.sgpr[4..16], expected);
}

#[test]
fn barriers_in_two_parts() {
    let (_, stop) = execute(
        "gfx1200",
        |_| {},
        &["s_barrier_signal -1", "s_barrier_wait 0xffff"],
    );
    assert_eq!(stop, Ok(Stop::Barrier));
    for named in ["s_barrier_signal 1", "s_barrier_wait 1"] {
        let (_, stop) = execute("gfx1200", |_| {}, &[named]);
        assert!(
            matches!(stop, Err(FaultKind::UnknownInstruction { .. })),
            "{named}"
        );
    }
}
