//! Depths on a GPU.

use crate::support::at;
use crate::support::depth::cases;
use crate::support::gpu::{device, dtypes};

#[test]
fn depths_are_those_of_transformers() {
    let Some((device, _shared)) = device() else { return };
    for dtype in dtypes() {
        for case in cases() {
            case.check(case.path(), device, dtype);
        }
    }
}

#[test]
fn an_onnx_file_gives_the_same() {
    let Some((device, _shared)) = device() else { return };
    let case = &cases()[0];
    for dtype in dtypes() {
        case.check(at("tests/golden/depth/onnx/model.onnx"), device, dtype);
    }
}
