//! Computes the angles of rotary position embedding, by which each token's queries and keys are rotated, for the
//! image's grid.
//!
//! The arithmetic is that of the libraries, in f32, so that angles agree to a unit in the last place. Sines and cosines
//! are rounded once.

use super::positions::Grid;
use crate::ops::RopePairs;

/// Rotation of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rotary {
    /// Channels of a head that are rotated together.
    pub(super) pairs: RopePairs,
    pub(super) angles: Angles,
    /// True if the first coordinate is the column.
    pub(super) columns_first: bool,
}

/// Source of the angles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Angles {
    /// A fixed series of frequencies for each coordinate.
    Axial {
        coordinates: Coordinates,
        /// Approximate ratio of the longest to the shortest period.
        temperature: f64,
    },
    /// Learned frequencies of both coordinates, for each block and head (`rope.freqs`).
    /// <https://arxiv.org/abs/2403.13298>
    Learned,
}

/// Coordinates of a patch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Coordinates {
    /// Index of the patch, plus `offset`. Scaled so that any grid spans `reference`, if it is set.
    Numbers { offset: f64, reference: Option<Grid> },
    /// Centre of the patch, from −1 to 1, in periods (DINOv3). <https://arxiv.org/abs/2508.10104>
    Centres { offset: f64 },
}

impl Rotary {
    /// Returns the table of [`Op::Rope`](crate::ops::Op::Rope) for axial angles, `[rows · columns, head_dim]`, or
    /// `None` for learned angles.
    pub(super) fn axial(&self, grid: Grid, head_dim: usize) -> Option<Vec<f32>> {
        let Angles::Axial {
            coordinates,
            temperature,
        } = self.angles
        else {
            return None;
        };
        let bands = head_dim / 4;
        // Inverse frequencies for `Numbers`, periods for `Centres`, rounded to f32 as in the libraries.
        let power = |band: usize| {
            let exponent = band as f32 / bands as f32;
            (temperature as f32 as f64).powf(exponent.into()) as f32
        };
        let powers: Vec<f32> = (0..bands).map(power).collect();
        let axis = |axis: usize| -> Vec<Vec<f32>> {
            let extent = grid[axis];
            let angles = |index: usize| {
                let coordinate = coordinates.of(index, extent, axis);
                let angle = |&power: &f32| match coordinates {
                    Coordinates::Numbers { .. } => coordinate * (1.0 / power),
                    Coordinates::Centres { .. } => std::f32::consts::TAU * coordinate / power,
                };
                powers.iter().map(angle).collect()
            };
            (0..extent).map(angles).collect()
        };
        let of_axis = [axis(0), axis(1)];
        let mut table = Vec::with_capacity(grid[0] * grid[1] * head_dim);
        for place in self.places(grid) {
            let angles = place.iter().flat_map(|&(axis, index)| &of_axis[axis][index]);
            push(&mut table, angles.copied());
        }
        Some(table)
    }

    /// Returns the table `[rows · columns, heads · head_dim]` for a block's learned frequencies. `frequencies` has
    /// `[heads, head_dim / 2]` for each coordinate.
    pub(super) fn learned(&self, grid: Grid, half: usize, frequencies: [&[f32]; 2]) -> Vec<f32> {
        let mut table = Vec::with_capacity(grid[0] * grid[1] * 2 * frequencies[0].len());
        for place in self.places(grid) {
            let [first, second] = place.map(|(_, index)| index as f32);
            let heads = frequencies[0]
                .chunks_exact(half)
                .zip(frequencies[1].chunks_exact(half));
            for (x, y) in heads {
                push(&mut table, x.iter().zip(y).map(|(x, y)| first * x + second * y));
            }
        }
        table
    }

    /// Iterates over the patches. Returns axis and index of both coordinates.
    fn places(&self, [rows, columns]: Grid) -> impl Iterator<Item = [(usize, usize); 2]> {
        let columns_first = self.columns_first;
        (0..rows * columns).map(move |patch| {
            let (row, column) = ((0, patch / columns), (1, patch % columns));
            if columns_first {
                [column, row]
            } else {
                [row, column]
            }
        })
    }
}

impl Coordinates {
    fn of(self, index: usize, extent: usize, axis: usize) -> f32 {
        let extent = extent as f32;
        match self {
            Self::Numbers { offset, reference } => {
                let number = index as f32 + offset as f32;
                match reference {
                    Some(reference) => number / extent * reference[axis] as f32,
                    None => number,
                }
            }
            Self::Centres { offset } => 2.0 * ((index as f32 + 0.5 + offset as f32) / extent) - 1.0,
        }
    }
}

/// Appends the cosines of all angles, then their sines.
fn push(table: &mut Vec<f32>, angles: impl Iterator<Item = f32> + Clone) {
    table.extend(angles.clone().map(|angle| f64::from(angle).cos() as f32));
    table.extend(angles.map(|angle| f64::from(angle).sin() as f32));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rotary(coordinates: Coordinates, temperature: f64, columns_first: bool) -> Rotary {
        Rotary {
            pairs: RopePairs::Halves,
            angles: Angles::Axial {
                coordinates,
                temperature,
            },
            columns_first,
        }
    }

    /// Returns the angles at a place of the table, from its cosines and sines.
    fn angles(table: &[f32], head_dim: usize, place: usize) -> Vec<f32> {
        let (cosines, sines) = table[place * head_dim..][..head_dim].split_at(head_dim / 2);
        sines
            .iter()
            .zip(cosines)
            .map(|(sine, cosine)| sine.atan2(*cosine))
            .collect()
    }

    #[track_caller]
    fn assert_angles(got: &[f32], expected: &[f32]) {
        assert_eq!(got.len(), expected.len());
        for (got, expected) in got.iter().zip(expected) {
            assert!((got - expected).abs() < 1e-6, "{got} {expected}");
        }
    }

    #[test]
    fn numbers_are_scaled_to_the_reference_grid() {
        let numbers = |offset, reference| Coordinates::Numbers { offset, reference };
        // Head size 8: the frequencies are 1 and 1/100 for each coordinate.
        let plain = rotary(numbers(0.0, None), 1e4, false).axial([2, 3], 8).unwrap();
        assert_angles(&angles(&plain, 8, 5), &[1.0, 0.01, 2.0, 0.02]);
        let columns = rotary(numbers(1.0, None), 1e4, true).axial([2, 3], 8).unwrap();
        assert_angles(&angles(&columns, 8, 4), &[2.0, 0.02, 2.0, 0.02]);
        assert_angles(&angles(&columns, 8, 5), &[3.0, 0.03, 2.0, 0.02]);
        let scaled = rotary(numbers(0.0, Some([1, 6])), 1e4, false)
            .axial([2, 3], 8)
            .unwrap();
        assert_angles(&angles(&scaled, 8, 4), &[0.5, 0.005, 2.0, 0.02]);
    }

    #[test]
    fn centres_span_one_period_either_way() {
        let centres = Coordinates::Centres { offset: 0.0 };
        let table = rotary(centres, 100.0, false).axial([4, 4], 8).unwrap();
        // Centres are at ∓3/4 and ∓1/4; the periods are 1 and 10.
        let quarter = std::f32::consts::TAU / 4.0;
        assert_angles(
            &angles(&table, 8, 6),
            &[-quarter, -quarter / 10.0, quarter, quarter / 10.0],
        );
        assert!(
            Rotary {
                angles: Angles::Learned,
                ..rotary(centres, 1.0, false)
            }
            .axial([4, 4], 8)
            .is_none()
        );
    }

    #[test]
    fn learned_frequencies_mix_the_coordinates() {
        let rotary = Rotary {
            angles: Angles::Learned,
            ..rotary(Coordinates::Centres { offset: 0.0 }, 1.0, true)
        };
        // Two heads of four channels.
        let frequencies = [&[0.1, 0.2, 0.3, 0.4][..], &[0.01, 0.02, 0.03, 0.04]];
        let table = rotary.learned([2, 3], 2, frequencies);
        assert_eq!(table.len(), 6 * 8);
        // Column 2, row 1.
        assert_angles(&angles(&table[5 * 8..], 4, 0), &[0.21, 0.42]);
        assert_angles(&angles(&table[5 * 8..], 4, 1), &[0.63, 0.84]);
    }
}
