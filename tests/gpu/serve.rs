//! A server with a GPU: objects, masks, depths, and chats with prompts, tiles and beams.

use crate::support::gpu::device;
use crate::support::server::chats::{check_beams, check_prompts, check_tiled};
use crate::support::server::vision::{check_depths, check_masks, check_objects};

#[test]
fn clients_get_objects_masks_and_depths() {
    let Some((device, _shared)) = device() else { return };
    check_objects(device);
    check_masks(device);
    check_depths(device);
}

#[test]
fn chats_have_prompts_tiles_and_beams() {
    let Some((device, _shared)) = device() else { return };
    // Emulated GPUs take long. The CPU's tests check all models.
    check_prompts(device, 1);
    check_tiled(device, 1);
    check_beams(device, 1);
}
