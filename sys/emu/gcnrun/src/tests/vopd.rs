//! VOPD: dual instructions of RDNA 3.

use super::{execute, fill};
use crate::code::Stop;
use crate::wave::Wave;

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
