//! Attention with patterns on a GPU.

use hipvit::exec::{ExecutorOptions, Placement};

use crate::support::gpu::{device, dtypes, gpu};
use crate::support::patterns::{check, graph};

/// Replayed runs read the integers of their run too.
#[test]
fn captured_integers_are_inputs() {
    let Some((device, _shared)) = device() else {
        return;
    };
    for dtype in dtypes() {
        let placement = Placement::gpu(&gpu(device));
        let executor = placement
            .executor(&graph(), &ExecutorOptions::new(dtype))
            .unwrap();
        check(&executor, dtype);
    }
}
