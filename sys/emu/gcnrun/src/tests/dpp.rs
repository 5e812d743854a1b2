//! DPP: the first operand comes from another lane.

use super::{check, moved};

#[test]
fn a_quad_permutation() {
    check(&[(
        "gfx90a",
        "v_mov_b32_dpp v0, v1 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf",
        [7, 0, 0],
        7,
    )]);
}

#[test]
fn operands_of_other_lanes() {
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
}
