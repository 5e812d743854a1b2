//! The library's front door: thread-safety, batches, sizes.

use hipvit::image::{Limits, RgbImage, open};
use hipvit::{DType, Session};

use crate::at;

fn images() -> Vec<RgbImage> {
    ["small.png", "tall.png", "wide.png"]
        .map(|name| open(at("tests/golden/images").join(name), &Limits::default()).unwrap())
        .to_vec()
}

#[test]
fn many_threads_share_a_session_and_get_the_same_bits() {
    let session = Session::load(at("tests/golden/timm_vit_class_token")).unwrap();
    let images = images();
    let alone = session.run(&images).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..8 {
                    let together = session.run(&images).unwrap();
                    assert_eq!(together.logits(), alone.logits());
                    assert_eq!(together.embeddings(), alone.embeddings());
                }
            });
        }
    });
}

#[test]
fn the_batch_size_does_not_change_the_results() {
    let images: Vec<RgbImage> = images().into_iter().cycle().take(7).collect();
    let directory = at("tests/golden/timm_vit_class_token");
    let whole = Session::builder()
        .batch(7)
        .load(&directory)
        .unwrap()
        .run(&images)
        .unwrap();
    for batch in [1, 3, 4] {
        let parts = Session::builder()
            .batch(batch)
            .load(&directory)
            .unwrap()
            .run(&images)
            .unwrap();
        let (whole, parts) = (whole.logits().unwrap(), parts.logits().unwrap());
        let largest = whole.iter().fold(0f32, |m, x| m.max(x.abs()));
        for (a, b) in whole.iter().zip(parts) {
            assert!((a - b).abs() <= 2e-5 * largest, "batch {batch}: {a} and {b}");
        }
    }
}

#[test]
fn one_thread_computes_what_all_cores_compute() {
    let directory = at("tests/golden/hf_dinov2_swiglu");
    let all = Session::load(&directory).unwrap().run(&images()).unwrap();
    let one = Session::builder()
        .threads(1)
        .load(&directory)
        .unwrap()
        .run(&images())
        .unwrap();
    assert_eq!(all.embeddings(), one.embeddings());
}

#[test]
fn options_that_the_cpu_lacks_are_errors() {
    let error = Session::builder()
        .dtype(DType::F16)
        .tinyvit32()
        .unwrap_err()
        .to_string();
    assert!(error.contains("f16") && error.contains("cpu"), "{error}");
    assert!(Session::builder().batch(0).tinyvit32().is_err());
    assert!(Session::builder().threads(0).tinyvit32().is_err());
    assert!(Session::builder().threads(100_000).tinyvit32().is_err());
}

#[test]
fn pixels_of_the_wrong_length_are_refused() {
    let session = Session::tinyvit32().unwrap();
    let error = session.run_pixels(&[0; 32 * 32 * 3 + 1], None).unwrap_err();
    assert!(error.to_string().contains("3072"), "{error}");
    assert!(session.run_values(&[0.0; 3072], None).is_err());
    assert!(session.run(&[]).is_err());
}

#[test]
fn a_session_can_be_shared_and_sent() {
    fn check<T: Send + Sync>() {}
    check::<Session>();
}
