//! Inputs of sessions, and comparisons of their outputs.

use hipvit::image::{Limits, RgbImage, open};
use hipvit::pipeline::Source;
use hipvit::{DType, Outputs, RunInput, RunOptions, Session};
use ndarray::Array2;

use crate::support::at;

/// Returns this many different images of three sizes.
pub(crate) fn images(count: usize) -> Vec<RgbImage> {
    let image = |name| open(at("tests/golden/images").join(name), Limits::default()).unwrap();
    let mut images = ["small.png", "tall.png", "wide.png"].map(image).to_vec();
    // None of the later ones is the same.
    images = images.into_iter().cycle().take(count).collect();
    for (index, image) in images.iter_mut().enumerate() {
        let at = index % image.data.len();
        image.data[at..]
            .iter_mut()
            .for_each(|byte| *byte = byte.wrapping_add(index as u8));
    }
    images
}

/// Returns the images as decoded sources of a pipeline.
pub(crate) fn sources(images: &[RgbImage]) -> Vec<Source> {
    let source = |(index, image): (usize, &RgbImage)| Source::Decoded(format!("{index}"), image.clone());
    images.iter().enumerate().map(source).collect()
}

/// Returns random pixels of this many images in the size of the model.
pub(crate) fn pixels(session: &Session, images: usize) -> Vec<u8> {
    let (height, width) = session.preprocess().output_size();
    let random = std::iter::successors(Some(1u32), |x| Some(x * 48_271 % 65_521));
    random
        .take(images * height * width * 3)
        .map(|x| x as u8)
        .collect()
}

pub(crate) fn run_pixels(session: &Session, pixels: &[u8]) -> Outputs {
    session
        .run_with(RunInput::Pixels(pixels), RunOptions::new())
        .unwrap()
}

/// Checks that logits and embeddings have the same bits.
#[track_caller]
pub(crate) fn same(a: &Outputs, b: &Outputs) {
    assert_eq!(a.logits(), b.logits());
    assert_eq!(a.embeddings(), b.embeddings());
}

/// Returns the distance from 1 to the next value.
pub(crate) fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-10),
        DType::BF16 => 2f64.powi(-7),
        _ => f64::from(f32::EPSILON),
    }
}

/// Returns the largest error, and true if each row's largest element is the same. Elements within 2ε of the
/// largest output may change places, because each is rounded to the dtype at least once.
pub(crate) fn compare(got: &Array2<f32>, expected: &Array2<f64>, epsilon: f64) -> (f64, bool) {
    assert_eq!(got.dim(), expected.dim());
    let largest = expected.iter().fold(0f64, |m, x| m.max(x.abs()));
    let errors = got
        .iter()
        .zip(expected)
        .map(|(&g, e)| (f64::from(g) - e).abs() / largest);
    // NaN must not count as a small error.
    let error = errors.fold(0f64, |m, e| if e <= m { m } else { e });
    let same = got
        .rows()
        .into_iter()
        .zip(expected.rows())
        .all(|(got, expected)| {
            let top = (0..got.len()).max_by(|&a, &b| got[a].total_cmp(&got[b])).unwrap();
            let best = expected.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            best - expected[top] <= 2.0 * epsilon * largest
        });
    (error, same)
}
