//! Known bits of results.

use super::{execute, fill};
use crate::code::Stop;
use crate::fault::FaultKind;
use crate::wave::Wave;

/// Unknown bits propagate to results that depend on them, and only there.
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
    // Only the selected operand counts.
    let lines = [
        "v_cmp_gt_u32_e32 vcc_lo, 8, v1",
        "v_cndmask_b32_e32 v0, v40, v1, vcc_lo",
    ];
    assert_eq!(known(&lines), [0xff, 0xff]);
    // Lanes that compare unknown values make only their own bits of the mask unknown.
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

/// An addition as compilers use it on gfx90a, where register pairs begin at even registers. The addend's upper half is unknown,
/// and so is the sum's, but the lower half is known.
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
fn unknown_bits_may_not_be_used_as_conditions_or_addresses() {
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
