//! Rounding of weights to 8 bits, with a scale for each row, or to bf16.

use std::collections::BTreeMap;

use half::bf16;
use rayon::prelude::*;

use super::precision::{Precision, Scales};
use hipvit::error::{Error, Result};
use hipvit::float8::{Float8, Overflow};
use hipvit::graph::int8::LARGEST_WEIGHT as LARGEST;
use hipvit::model::{Checkpoint, Replacement};
use hipvit::ops::Float8Scale;

/// Fractions of a row's largest magnitude that [`Scales::MeanSquare`] tries.
const SHARES: [f32; 11] = [1.0, 0.98, 0.96, 0.94, 0.92, 0.9, 0.88, 0.86, 0.84, 0.82, 0.8];

/// Rounds weights to `precision`.
pub(super) fn round_all<'a>(
    checkpoint: &Checkpoint,
    names: impl IntoIterator<Item = &'a String>,
    precision: Precision,
    scales: Scales,
) -> Result<BTreeMap<String, Replacement>> {
    let rounded = |name: &String| {
        let rounded = round(checkpoint, name, None, precision, scales)?;
        Ok((name.clone(), rounded))
    };
    names.into_iter().map(rounded).collect()
}

/// Rounds the weight `name` to `precision` after multiplying its columns by `factors`.
pub(super) fn round(
    checkpoint: &Checkpoint,
    name: &str,
    factors: Option<&[f32]>,
    precision: Precision,
    scales: Scales,
) -> Result<Replacement> {
    let columns = checkpoint
        .tensor(name)?
        .shape()
        .last()
        .copied()
        .unwrap_or(0)
        .max(1);
    let mut values = finite(checkpoint, name)?;
    if let Some(factors) = factors {
        for row in values.chunks_mut(columns) {
            row.iter_mut()
                .zip(factors)
                .for_each(|(value, factor)| *value *= factor);
        }
    }
    Ok(match precision {
        Precision::Full => Replacement::F32(values),
        Precision::Bf16 => {
            let rounded: Vec<bf16> = values.iter().map(|&value| bf16::from_f32(value)).collect();
            // Finite values above the maximum of bf16 become infinite.
            if rounded.iter().any(|value| !value.is_finite()) {
                let reason = "cannot be rounded: it has values that exceed bf16";
                return Err(Error::tensor(checkpoint.place(), name, reason));
            }
            Replacement::Bf16(rounded)
        }
        Precision::Int8 => {
            let (values, scales) = rows(&values, columns, scales, LARGEST, int8, |level| level as i8);
            Replacement::Int8 { values, scales }
        }
        Precision::Fp8 | Precision::Fp8Dynamic => {
            let bits = |value: f32| Float8::E4M3.from_f32(value, Overflow::Saturate);
            let level = |value: f32| Float8::E4M3.to_f32(bits(value));
            let (values, scales) = rows(&values, columns, scales, Float8::E4M3.largest(), level, bits);
            Replacement::Float8 {
                values,
                scales,
                input: (precision == Precision::Fp8Dynamic).then_some(Float8Scale::Row),
            }
        }
    })
}

/// Returns the values of a weight.
///
/// # Errors
///
/// Returns [`Error::Tensor`] if a value is NaN or infinite.
pub(super) fn finite(checkpoint: &Checkpoint, name: &str) -> Result<Vec<f32>> {
    let weight = checkpoint.tensor(name)?;
    let bad = weight.count_non_finite();
    if bad > 0 {
        let reason = format!("cannot be quantised: {bad} of its values are NaN or infinite");
        return Err(Error::tensor(checkpoint.place(), name, reason));
    }
    Ok(weight.to_f32().into_owned())
}

/// Rounds values to E4M3 with this scale.
pub(super) fn to_float8(values: &[f32], scale: f32) -> Vec<u8> {
    let bits = |value: &f32| Float8::E4M3.from_f32(value / scale, Overflow::Saturate);
    values.par_iter().map(bits).collect()
}

fn int8(value: f32) -> f32 {
    value.round_ties_even().clamp(-LARGEST, LARGEST)
}

/// Rounds rows of `columns` values to `scale · level`. Returns the bits of the levels, and the scales.
/// `level` returns the level next to a number; `end` is the largest level.
fn rows<T: Copy + Default + Send>(
    values: &[f32],
    columns: usize,
    scales: Scales,
    end: f32,
    level: impl Fn(f32) -> f32 + Sync,
    bits: impl Fn(f32) -> T + Sync,
) -> (Vec<T>, Vec<f32>) {
    let mut rounded = vec![T::default(); values.len()];
    let rows = values.par_chunks(columns).zip(rounded.par_chunks_mut(columns));
    let scale = |(row, out): (&[f32], &mut [T])| {
        let scale = scale(row, scales, end, &level);
        for (out, value) in out.iter_mut().zip(row) {
            *out = bits(level(value / scale));
        }
        scale
    };
    let scales = rows.map(scale).collect();
    (rounded, scales)
}

/// Returns the scale of a row.
fn scale(row: &[f32], scales: Scales, end: f32, level: impl Fn(f32) -> f32) -> f32 {
    let largest = row.iter().fold(0f32, |largest, value| largest.max(value.abs()));
    if largest / end < f32::MIN_POSITIVE {
        // All values are zero, so any scale works.
        return 1.0;
    }
    let error = |scale: f32| -> f64 {
        let errors = row
            .iter()
            .map(|&value| f64::from(level(value / scale) * scale - value));
        errors.map(|error| error * error).sum()
    };
    let shares = match scales {
        Scales::Largest => &SHARES[..1],
        Scales::MeanSquare => &SHARES[..],
    };
    let candidates = shares.iter().map(|share| share * largest / end);
    let best = candidates.min_by(|a, b| error(*a).total_cmp(&error(*b)));
    best.unwrap_or(largest / end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounded(row: &[f32], scales: Scales) -> (Vec<i8>, f32) {
        let (q, found) = rows(row, row.len(), scales, LARGEST, int8, |level| level as i8);
        (q, found[0])
    }

    #[test]
    fn rows_are_rounded_to_their_scale() {
        let row = [127.0, -63.5, 0.4, -0.6];
        assert_eq!(rounded(&row, Scales::Largest), (vec![127, -64, 0, -1], 1.0));
        assert_eq!(rounded(&[0.0; 4], Scales::Largest), (vec![0; 4], 1.0));
        assert_eq!(rounded(&[1e-40; 4], Scales::MeanSquare), (vec![0; 4], 1.0));
    }

    #[test]
    fn the_least_mean_square_error_is_not_above_the_largest_magnitudes() {
        let row: Vec<f32> = (0..999).map(|i| (i as f32 * 0.7).sin().powi(9) * 3.0).collect();
        let error = |scales| {
            let (q, scale) = rounded(&row, scales);
            let errors = row
                .iter()
                .zip(&q)
                .map(|(v, &q)| f64::from(f32::from(q) * scale - v).powi(2));
            errors.sum::<f64>()
        };
        let (largest, least) = (error(Scales::Largest), error(Scales::MeanSquare));
        assert!(least <= largest, "{least} {largest}");
    }
}
