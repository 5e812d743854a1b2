//! VOP3P: packed arithmetic, mixed precision, dot products, accumulation registers.

use super::{ONE, THREE, TWO, check};

#[test]
fn packed_mixed_and_dot() {
    check(&[
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
        ("gfx90a", "v_accvgpr_write_b32 a1, v1", [7, 0, 0], 0xdddd_dddd),
    ]);
}
