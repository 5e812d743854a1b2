//! Packed images on emulated GPUs.

use crate::support::emulated::{available, passes};

const TEST: &str = "gpu::packed::packed_images_agree_in_every_dtype";

#[test]
fn gfx1100_packs_images_in_f16() {
    if available() {
        passes("gfx1100", "f16", &[TEST]);
    }
}

#[test]
fn gfx942_packs_images_in_bf16() {
    if available() {
        passes("gfx942", "bf16", &[TEST]);
    }
}
