//! Objects, masks and depths of a server with a GPU.

use crate::support::gpu::device;
use crate::support::server::vision::{check_depths, check_masks, check_objects};

#[test]
fn clients_get_objects_masks_and_depths() {
    let Some((device, _shared)) = device() else { return };
    check_objects(device);
    check_masks(device);
    check_depths(device);
}
