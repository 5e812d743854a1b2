//! Instructions and modifiers that are not supported, and code that does not end.

use super::execute;
use crate::fault::FaultKind;

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
