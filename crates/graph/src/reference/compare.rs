//! Comparison of a result with the reference.

use std::fmt;

/// Difference of a result from the reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// Index of the element with the largest error, or of the first one that is not finite.
    pub worst: usize,
    /// The result's element.
    pub candidate: f64,
    /// The reference's element.
    pub reference: f64,
    /// Largest error of an element, relative to the largest |reference|. Shows a single wrong element.
    pub elementwise: f64,
    /// `‖candidate − reference‖₂ / ‖reference‖₂`. Shows an error of every element, even if a large element hides it from `elementwise`.
    pub normwise: f64,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "worst at index {}: {:e} instead of {:e}; error {:.2e} elementwise, {:.2e} normwise",
            self.worst, self.candidate, self.reference, self.elementwise, self.normwise
        )
    }
}

/// Reason why a result does not match the reference.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Mismatch {
    /// The numbers of elements differ.
    #[error("{candidate} elements instead of {reference}")]
    Length {
        /// Number of the result's elements.
        candidate: usize,
        /// Number of the reference's elements.
        reference: usize,
    },
    /// The difference exceeds the tolerance, or an element is not finite.
    #[error("{difference}; tolerance {tolerance:.2e}")]
    Far {
        /// The difference.
        difference: Difference,
        /// The tolerance.
        tolerance: f64,
    },
}

/// Compares in both norms of [`Difference`]; both must be within `tolerance`. An element that is not finite fails, on either side. If the
/// whole reference is zero, errors are absolute.
///
/// # Errors
///
/// [`Mismatch`], whose message names the worst element.
pub fn check_close<T: Copy + Into<f64>>(
    candidate: &[T],
    reference: &[f64],
    tolerance: f64,
) -> Result<Difference, Mismatch> {
    if candidate.len() != reference.len() {
        return Err(Mismatch::Length {
            candidate: candidate.len(),
            reference: reference.len(),
        });
    }
    let mut worst = 0;
    let (mut worst_error, mut squared_error) = (0.0f64, 0.0);
    let (mut largest, mut squared) = (0.0f64, 0.0);
    for (index, (&c, &r)) in candidate.iter().zip(reference).enumerate() {
        let error = (c.into() - r).abs();
        // Count every element that is not finite as infinity. The first such element stays the worst.
        let error = if error.is_finite() { error } else { f64::INFINITY };
        if error > worst_error {
            (worst, worst_error) = (index, error);
        }
        squared_error += error * error;
        largest = largest.max(r.abs());
        squared += r * r;
    }
    let nonzero = |v: f64| if v > 0.0 { v } else { 1.0 };
    let difference = Difference {
        worst,
        candidate: candidate.get(worst).map_or(0.0, |&c| c.into()),
        reference: reference.get(worst).copied().unwrap_or(0.0),
        elementwise: worst_error / nonzero(largest),
        normwise: (squared_error / nonzero(squared)).sqrt(),
    };
    // Written so that NaN fails.
    if difference.elementwise <= tolerance && difference.normwise <= tolerance {
        Ok(difference)
    } else {
        Err(Mismatch::Far {
            difference,
            tolerance,
        })
    }
}

/// Asserts [`check_close`], for tests.
///
/// # Panics
///
/// Panics if the candidate is not close.
#[track_caller]
pub fn assert_close<T: Copy + Into<f64>>(candidate: &[T], reference: &[f64], tolerance: f64) {
    let result = check_close(candidate, reference, tolerance);
    assert!(
        result.is_ok(),
        "{}",
        result.err().map_or_else(String::new, |e| e.to_string())
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_element_is_named_in_both_directions() {
        let reference = [1.0, -4.0, 2.0];
        for wrong in [2.5f32, 1.5] {
            let error = check_close(&[1.0f32, -4.0, wrong], &reference, 0.1).unwrap_err();
            let text = error.to_string();
            assert!(text.starts_with("worst at index 2"), "{text}");
            assert!(check_close(&[1.0f32, -4.0, wrong], &reference, 0.126).is_ok());
        }
    }

    #[test]
    fn an_error_that_one_large_element_hides_is_found() {
        let mut reference = vec![1.0; 10_000];
        reference[0] = 100.0;
        let candidate: Vec<f64> = reference
            .iter()
            .map(|&r| if r == 1.0 { r + 0.9 } else { r })
            .collect();
        let Err(Mismatch::Far { difference, .. }) = check_close(&candidate, &reference, 0.01) else {
            panic!("passed");
        };
        assert!(difference.elementwise < 0.01 && difference.normwise > 0.5);
    }

    #[test]
    fn what_is_not_finite_fails() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(check_close(&[0.0, bad], &[0.0, 1.0], f64::MAX).is_err());
            assert!(check_close(&[0.0, 1.0], &[0.0, bad], f64::MAX).is_err());
            assert!(check_close(&[0.0, bad], &[0.0, bad], f64::MAX).is_err());
        }
        let first_bad = check_close(&[1.0, f64::NAN, f64::INFINITY], &[1.0; 3], 1.0).unwrap_err();
        assert!(
            first_bad
                .to_string()
                .starts_with("worst at index 1: NaN instead of 1e0")
        );
    }

    #[test]
    fn a_zero_reference_makes_errors_absolute() {
        assert!(check_close(&[1e-7f32], &[0.0], 1e-6).is_ok());
        assert!(check_close(&[1e-5f32], &[0.0], 1e-6).is_err());
        assert!(check_close::<f32>(&[], &[], 0.0).is_ok());
        assert!(check_close(&[0.0f32], &[], 1.0).is_err());
    }
}
