//! Measures sessions in several dtypes on images.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ndarray::{Array2, ArrayView1};

use crate::error::{Error, Result};
use crate::image::{Limits, RgbImage, has_image_extension, open};
use crate::session::Session;
use crate::session::dtype_choice::MeasuredDtype;

/// Minimum number and minimum total time of the timed runs.
const TIMED_RUNS: usize = 2;
const TIMED: Duration = Duration::from_secs(1);

/// Measures sessions on the calibration images.
pub(super) struct Calibration {
    images: Vec<RgbImage>,
    expected: Array2<f32>,
}

impl Calibration {
    /// Reads the images, and computes their outputs by `full`, a session in f32.
    pub(super) fn new(paths: &[PathBuf], full: &Session) -> Result<Self> {
        full.check_takes_images()?;
        let mut files = Vec::new();
        for path in paths {
            if path.is_dir() {
                files.extend(images_in(path)?);
            } else {
                files.push(path.clone());
            }
        }
        let images = files.iter().map(|path| open(path, Limits::default()));
        let images = images.collect::<std::result::Result<Vec<_>, _>>()?;
        Ok(Self {
            expected: outputs(full, &images)?,
            images,
        })
    }

    /// Measures time and accuracy of a session of the same model.
    pub(super) fn measure(&self, session: &Session) -> Result<MeasuredDtype> {
        let got = outputs(session, &self.images)?;
        let rows = self.expected.rows().into_iter().zip(got.rows());
        let cosine = rows
            .map(|(expected, got)| cosine(expected, got))
            .fold(1.0, min_or_nan);
        let batch: Vec<&RgbImage> = self.images.iter().cycle().take(session.batch()).collect();
        let begun = Instant::now();
        let mut time = Duration::MAX;
        let mut runs = 0;
        while runs < TIMED_RUNS || begun.elapsed() < TIMED {
            let start = Instant::now();
            session.run(batch.iter().copied())?;
            time = time.min(start.elapsed());
            runs += 1;
        }
        Ok(MeasuredDtype {
            dtype: session.dtype(),
            time,
            cosine,
        })
    }
}

/// Returns the image files in a directory, sorted.
fn images_in(directory: &Path) -> Result<Vec<PathBuf>> {
    let failed = |error| Error::io(directory, error);
    let entries = directory.read_dir().map_err(failed)?;
    let paths = entries.map(|entry| Ok(entry.map_err(failed)?.path()));
    let mut paths = paths.collect::<Result<Vec<_>>>()?;
    paths.retain(|path| has_image_extension(path));
    if paths.is_empty() {
        let reason = format!("{} has no image to calibrate with", directory.display());
        return Err(Error::argument("calibrate", reason));
    }
    paths.sort();
    Ok(paths)
}

/// Returns the logits of each image, or the embeddings of a model without classes.
fn outputs(session: &Session, images: &[RgbImage]) -> Result<Array2<f32>> {
    let outputs = session.run(images)?;
    let output = outputs.logits().unwrap_or(outputs.embeddings());
    if output.ncols() == 0 {
        let reason = "auto compares logits or embeddings, and the model has neither: name a dtype";
        return Err(Error::argument("dtype", reason));
    }
    Ok(output.clone())
}

/// Returns the cosine of two vectors. It is 1 for two vectors of zeros, and NaN if a value is not finite.
fn cosine(a: ArrayView1<'_, f32>, b: ArrayView1<'_, f32>) -> f64 {
    let product = |a: ArrayView1<'_, f32>, b: ArrayView1<'_, f32>| -> f64 {
        let pairs = a.iter().zip(b);
        pairs.map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
    };
    let (norms, dot) = (product(a, a) * product(b, b), product(a, b));
    if norms == 0.0 && a == b {
        1.0
    } else {
        dot / norms.sqrt()
    }
}

fn min_or_nan(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else {
        a.min(b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    #[test]
    fn cosines_of_zeros_and_of_non_finite_values() {
        let cosine = |a: &[f32], b: &[f32]| cosine(ArrayView1::from(a), ArrayView1::from(b));
        assert_eq!(cosine(&[3.0, 4.0], &[4.0, 3.0]), 0.96);
        assert_eq!(cosine(&[0.0, 0.0], &[0.0, 0.0]), 1.0);
        for values in [[f32::NAN, 1.0], [f32::INFINITY, 1.0], [0.0, 0.0]] {
            let measured = MeasuredDtype {
                dtype: DType::F16,
                time: Duration::ZERO,
                cosine: [cosine(&[1.0, 0.0], &values), 1.0]
                    .into_iter()
                    .fold(1.0, min_or_nan),
            };
            assert!(!measured.is_accurate(), "{values:?}");
        }
    }
}
