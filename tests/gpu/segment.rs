//! Masks on a GPU.

use crate::support::gpu::{device, dtypes};
use crate::support::segment::cases;

#[test]
fn masks_are_those_of_transformers() {
    let Some((device, _shared)) = device() else { return };
    for dtype in dtypes() {
        for case in cases() {
            case.check(device, dtype);
        }
    }
}
