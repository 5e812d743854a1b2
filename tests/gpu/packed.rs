//! Packed images of several aspect ratios, as timm's NaFlexViT takes them.

use hipvit::Session;
use hipvit::reference::model_tolerance;

use crate::support::gpu::{device, dtypes};
use crate::support::naflex::error;
use crate::support::packed::goldens;

#[test]
fn packed_images_agree_in_every_dtype() {
    let Some((device, _shared)) = device() else { return };
    let goldens = goldens();
    let mut images = goldens.images();
    // The mean of the patches after registers, and attention pooling.
    let pooled = |name: &str| matches!(name, "timm_naflex" | "timm_naflex_siglip");
    for dtype in dtypes() {
        for golden in goldens.cases.iter().filter(|golden| pooled(&golden.name)) {
            let builder = Session::builder().device(device).dtype(dtype).packed(45).batch(6);
            let session = golden.load(&builder);
            let bound = model_tolerance(dtype, session.graph().nodes().len());
            let expected = golden.tensor("output");
            // The third run replays a graph, with the images in other places than those that it was captured with.
            for _ in 0..2 {
                session.run(&images).unwrap();
            }
            images.reverse();
            let outputs = golden.select(&session.run(&images).unwrap());
            images.reverse();
            let worst = error(outputs.slice(ndarray::s![..;-1, ..]), expected.view());
            assert!(worst <= bound, "{dtype} {}: {worst:e} of {bound:e}", golden.name);
            println!(
                "PASS {dtype:<4} {:<34} error {worst:.2e} of {bound:.1e}",
                golden.name
            );
        }
    }
}
