//! Texts of images on a GPU.

use hipvit::{DType, Session};

use crate::support::generation::cases;
use crate::support::gpu::{device, dtypes};

#[test]
fn texts_and_logits_are_those_of_transformers() {
    let Some((device, _shared)) = device() else { return };
    for case in cases() {
        for dtype in dtypes() {
            case.check_logits(device, dtype);
            if dtype == DType::F32 {
                // Captured steps too, in the second call.
                let mut generator = case.load(&Session::builder().device(device).batch(2));
                case.generate(&mut generator, &mut |_, _| {});
                case.generate(&mut generator, &mut |_, _| {});
            }
        }
    }
}
