//! Objects on a GPU.

use crate::support::detect::{CASES, check};
use crate::support::gpu::device;

/// In f32 only: another dtype selects other queries.
#[test]
fn objects_are_those_of_transformers() {
    let Some((device, _shared)) = device() else { return };
    for case in CASES {
        check(case, device);
    }
}
