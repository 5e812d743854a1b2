//! Instructions that move values across lanes: permutations, swizzles, counts of lower lanes.

use super::moved;

#[test]
fn lanes_move() {
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
