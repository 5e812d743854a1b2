//! Error of a quantised model's outputs relative to full precision, on some images.

use std::collections::HashSet;

use ndarray::{Array2, ArrayView1, Axis, concatenate};
use serde::Serialize;

use super::times::GpuTarget;
use hipvit::error::{Error, Result};
use hipvit::model::Model;
use hipvit::session::{Device, RunInput, RunOptions, Session};

/// Error of a model's logits relative to full precision, or of its embeddings if it has no classes.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Fidelity {
    /// Number of images.
    pub images: usize,
    /// Root mean square of the difference, relative to that of the full-precision outputs.
    pub error: f64,
    /// Number of images with an unchanged best class. `None` for a model without classes.
    pub agreeing: Option<usize>,
}

/// Error of the written model on the target GPU in its dtype.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct OnGpu {
    /// Error relative to full precision on the same GPU, in the same dtype.
    pub quantized: Fidelity,
    /// Error of full precision on the GPU relative to f32 on the CPU: the effect of the dtype alone.
    pub full: Fidelity,
}

/// Images, and the full-precision outputs for them.
pub(super) struct Reference<'a> {
    images: &'a [Vec<u8>],
    expected: Array2<f32>,
    classes: bool,
}

impl Fidelity {
    /// Returns true if the error is at most `budget`; false if it is NaN.
    pub fn within(&self, budget: f64) -> bool {
        self.error <= budget
    }

    fn new(expected: &Array2<f32>, got: &Array2<f32>, classes: bool) -> Self {
        let square = |value: f32| f64::from(value).powi(2);
        let (mut difference, mut size) = (0.0, 0.0);
        for (expected, got) in expected.iter().zip(got) {
            difference += square(got - expected);
            size += square(*expected);
        }
        let best = |row: ArrayView1<'_, f32>| {
            let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
            best.map(|(index, _)| index)
        };
        let rows = expected.rows().into_iter().zip(got.rows());
        Self {
            images: expected.nrows(),
            error: (difference / if size > 0.0 { size } else { 1.0 }).sqrt(),
            agreeing: classes.then(|| rows.filter(|&(a, b)| best(a) == best(b)).count()),
        }
    }
}

impl OnGpu {
    /// Runs both models on a GPU and measures the errors.
    pub(super) fn measure(
        full: Model,
        quantized: Model,
        target: &GpuTarget,
        reference: &Reference<'_>,
    ) -> Result<Self> {
        let GpuTarget { device, dtype, batch } = target;
        let builder = Session::builder().gpu(device.clone()).dtype(*dtype).batch(*batch);
        let there = Reference {
            expected: outputs(&builder.of_model(full)?, reference.images)?,
            ..*reference
        };
        Ok(Self {
            quantized: there.fidelity(&builder.of_model(quantized)?)?,
            full: Fidelity::new(&reference.expected, &there.expected, reference.classes),
        })
    }
}

impl<'a> Reference<'a> {
    /// Computes the outputs of `full` for images of the model's size.
    pub(super) fn new(full: &Session, images: &'a [Vec<u8>]) -> Result<Self> {
        Ok(Self {
            images,
            expected: outputs(full, images)?,
            classes: full.info().classes > 0,
        })
    }

    /// Measures the error of another model.
    pub(super) fn fidelity(&self, session: &Session) -> Result<Fidelity> {
        let got = outputs(session, self.images)?;
        Ok(Fidelity::new(&self.expected, &got, self.classes))
    }
}

/// Removes a fifth of the calibration images, at least one, if there are two or more. Returns the remaining
/// and the removed images.
///
/// The selection depends only on the number of images. It covers the whole range at unequal distances: equal
/// distances could coincide with the period of alternating classes.
pub(super) fn hold_out(images: Vec<Vec<u8>>) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let count = match images.len() {
        0 | 1 => 0,
        all => (all / 5).max(1),
    };
    let mut order: Vec<usize> = (0..images.len()).collect();
    // Sort by the fractional parts of the multiples of the golden ratio.
    order.sort_by_key(|&index| (index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let chosen: HashSet<usize> = order.into_iter().take(count).collect();
    let (mut calibration, mut held_out) = (Vec::new(), Vec::new());
    for (index, image) in images.into_iter().enumerate() {
        if chosen.contains(&index) {
            held_out.push(image);
        } else {
            calibration.push(image);
        }
    }
    (calibration, held_out)
}

/// Creates a session on the CPU.
pub(super) fn on_cpu(model: Model) -> Result<Session> {
    Session::builder().device(Device::Cpu).of_model(model)
}

/// Returns the logits of each image, or the embeddings of a model without classes.
fn outputs(session: &Session, images: &[Vec<u8>]) -> Result<Array2<f32>> {
    let none = || Error::graph("outputs", "the model has none to compare");
    let batches = images.chunks(session.batch()).map(|batch| {
        let outputs = session.run_with(RunInput::Pixels(&batch.concat()), RunOptions::new())?;
        let output = outputs.logits().unwrap_or(outputs.embeddings());
        (output.ncols() > 0).then(|| output.clone()).ok_or_else(none)
    });
    let batches: Vec<Array2<f32>> = batches.collect::<Result<_>>()?;
    let views: Vec<_> = batches.iter().map(|batch| batch.view()).collect();
    concatenate(Axis(0), &views).map_err(|_| none())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeSet;

    use ndarray::array;

    use super::*;

    #[test]
    fn errors_are_relative_to_what_is_expected() {
        let expected = array![[3.0, 4.0], [0.0, 12.0]];
        let same = Fidelity::new(&expected, &expected, true);
        assert_eq!((same.images, same.error, same.agreeing), (2, 0.0, Some(2)));
        // The difference has norm 5 and the reference 13; the best class of the first image changes.
        let other = Fidelity::new(&expected, &array![[7.0, 4.0], [0.0, 9.0]], true);
        assert!((other.error - 5.0 / 13.0).abs() < 1e-9 && other.agreeing == Some(1));
        assert!(other.within(0.385) && !other.within(0.384));
        assert_eq!(Fidelity::new(&expected, &expected, false).agreeing, None);
        let zeros = array![[0.0, 0.0], [0.0, 0.0]];
        assert_eq!(Fidelity::new(&zeros, &expected, true).error, 13.0);
        // NaN is not within any budget.
        let nan = Fidelity::new(&expected, &array![[f32::NAN, 4.0], [0.0, 12.0]], true);
        assert!(!nan.within(f64::INFINITY));
    }

    #[test]
    fn a_fifth_is_held_out() {
        let indices = |images: &[Vec<u8>]| images.iter().map(|image| image[0]).collect::<Vec<u8>>();
        for (all, expected) in [(0, 0), (1, 0), (2, 1), (4, 1), (5, 1), (9, 1), (10, 2), (100, 20)] {
            let (rest, held_out) = hold_out((0..all).map(|index| vec![index]).collect());
            let (rest, held_out) = (indices(&rest), indices(&held_out));
            assert_eq!(held_out.len(), expected, "of {all}");
            assert!(rest.is_sorted() && held_out.is_sorted());
            let both: BTreeSet<u8> = rest.iter().chain(&held_out).copied().collect();
            assert!(both.into_iter().eq(0..all) && rest.len() + held_out.len() == usize::from(all));
            if all == 100 {
                // Every quarter is represented, and most of ten alternating classes are.
                let quarters: BTreeSet<u8> = held_out.iter().map(|index| index / 25).collect();
                let classes: BTreeSet<u8> = held_out.iter().map(|index| index % 10).collect();
                assert!(quarters.len() == 4 && classes.len() >= 8, "{held_out:?}");
            }
        }
    }
}
