//! RT-DETR on a GPU.

use crate::support::gpu::{device, dtypes};
use crate::support::rt_detr::cases;

#[test]
fn queries_and_objects_are_those_of_transformers() {
    let Some((device, _shared)) = device() else { return };
    for dtype in dtypes() {
        for case in cases() {
            case.check(device, dtype);
        }
    }
}
