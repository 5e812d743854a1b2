//! SigLIP 2 with NaFlex: images of several aspect ratios in one batch.

use hipvit::reference::model_tolerance;
use hipvit::{ResizeOn, Session};

use crate::support::at;
use crate::support::gpu::{device, dtypes};
use crate::support::naflex::{CASES, error, expected, golden, load};

#[test]
fn images_of_any_aspect_ratio_agree_in_every_dtype() {
    let Some((device, _shared)) = device() else { return };
    for dtype in dtypes() {
        for case in CASES {
            let golden = golden(case);
            let session = load(&Session::builder().device(device).dtype(dtype).batch(8), case);
            let bound = model_tolerance(dtype, session.graph().nodes().len());
            let expected = expected(case, &golden.output);
            let mut images = golden.images();
            // The third run replays a graph, and with other grids than those that it was captured with.
            for _ in 0..2 {
                session.run(&images).unwrap();
            }
            images.reverse();
            let outputs = golden.select(&session.run(&images).unwrap());
            let forwards = outputs.slice(ndarray::s![..;-1, ..]);
            let worst = error(forwards, expected.view());
            assert!(worst <= bound, "{dtype} {case}: {worst:e} of {bound:e}");
            // Every image alone: its neighbours' grids are not its own.
            for (index, image) in images.iter().rev().enumerate() {
                let alone = golden.select(&session.run([image]).unwrap());
                let row = expected.slice(ndarray::s![index..=index, ..]);
                let error = error(alone.view(), row);
                assert!(
                    error <= 4.0 * bound,
                    "{dtype} {case} image {index}: {error:e} of {bound:e}"
                );
            }
            println!("PASS {dtype:<4} {case:<34} error {worst:.2e} of {bound:.1e}");
        }
    }
    let builder = Session::builder().device(device).resize(ResizeOn::Device);
    let path = at("tests/golden/naflex").join(CASES[0]);
    let refused = builder.load(path).unwrap_err().to_string();
    assert!(refused.contains("any aspect ratio"), "{refused}");
}
