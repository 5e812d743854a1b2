//! SDWA: bytes and halves of operands and results.

use super::check;

#[test]
fn parts_of_operands_and_results() {
    check(&[
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
    ]);
}
