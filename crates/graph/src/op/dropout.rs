//! Dropout.

use std::fmt;

use super::operands::{count, exactly, one};
use super::{Definition, Gradients, GraphBuilder, Locality, NodeValues, OpError, Shape, only_gradient};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation, single};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};
use crate::value::ValueId;

/// `(x [B,…], keys [B,2] f32) → y [B,…]`: sets each element to 0 with a probability, and divides the others by the probability that they stay.
///
/// The random numbers are those of Philox 4×32 with 10 rounds. Its key is the bits of an image's two keys, and its counter is the number
/// of four elements of the image and the `site`. So they do not depend on the other images of a batch. The op has no derivative with
/// respect to the keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// Probability that an element becomes 0, below 1.
    pub probability: f32,
    /// Number of the dropout within the model. Each has its own random numbers.
    pub site: u32,
}

impl Dropout {
    /// Returns the number below which a random number of 32 bits makes its element 0.
    pub fn threshold(&self) -> u32 {
        (f64::from(self.probability) * 2.0_f64.powi(32)) as u32
    }

    /// Returns the factor of elements that stay.
    pub fn factor(&self) -> f32 {
        1.0 / (1.0 - self.probability)
    }

    /// Returns the factors of elements `4 · block` to `4 · block + 3` of an image.
    pub fn factors(&self, keys: [f32; 2], block: u64) -> [f32; 4] {
        let counter = [block as u32, (block >> 32) as u32, self.site, 0];
        let numbers = philox4x32_10(counter, keys.map(f32::to_bits));
        numbers.map(|number| {
            if number < self.threshold() {
                0.0
            } else {
                self.factor()
            }
        })
    }
}

/// Returns four random numbers: Philox 4×32 with 10 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
pub fn philox4x32_10(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let left = u64::from(counter[0]) * 0xD251_1F53;
        let right = u64::from(counter[2]) * 0xCD9E_8D57;
        counter = [
            (right >> 32) as u32 ^ counter[1] ^ key[0],
            right as u32,
            (left >> 32) as u32 ^ counter[3] ^ key[1],
            left as u32,
        ];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    counter
}

impl Definition for Dropout {
    const NAME: &'static str = "dropout";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {} at {}", self.probability, self.site)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x, keys] = exactly(operands)?;
        if !(0.0..1.0).contains(&self.probability) {
            return Err(format!("has the probability {}, expected one below 1", self.probability).into());
        }
        match (x, keys) {
            ([batch, _, ..], [images, 2]) if images == batch => one(x),
            _ => Err(OpError::layout("the keys", keys, format!("[B, 2] for x {x:?}"))),
        }
    }

    fn operand_dtype(&self, index: usize, dtype: DType) -> DType {
        if index == 0 { dtype } else { DType::F32 }
    }

    fn flops(&self, _operands: &[&[usize]], results: &[Shape]) -> u64 {
        count(&results[0])
    }

    fn may_alias(&self) -> Option<usize> {
        Some(0)
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Images
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [batch, _] = operands[1].extents();
        let len = operands[0].values().len() / batch;
        let images = operands[0].values().chunks_exact(len);
        let results = results[0].values_mut().chunks_exact_mut(len);
        let keys = operands[1].values().as_chunks().0;
        for ((y, x), &keys) in results.zip(images).zip::<&[[T; 2]]>(keys) {
            for (block, (y, x)) in y.chunks_mut(4).zip(x.chunks(4)).enumerate() {
                let factors = self.factors(keys.map(T::to_f32), block as u64);
                for ((y, &x), factor) in y.iter_mut().zip(x).zip(factors) {
                    *y = if factor == 0.0 {
                        T::ZERO
                    } else {
                        x * T::from_f32(factor)
                    };
                }
            }
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, shape, every_form| {
            let op = Self {
                probability: 0.3,
                site: 5,
            };
            let operands = || vec![activation(&shape), single(&[shape[0], 2])];
            cases.push(op, operands());
            if every_form {
                cases.push_in_arena(op, operands());
            }
        });
    }

    fn tolerance(&self, _index: usize, _operands: &[&Array], dtype: DType) -> f64 {
        narrow(dtype) + tolerance(DType::F32, 1)
    }

    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        let d_x = builder.push(*self, [only_gradient(gradients)?, node.inputs[1]])?;
        Ok(vec![Some(d_x), None])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers of Random123 1.14.
    #[test]
    fn random_numbers_are_those_of_random123() {
        assert_eq!(
            philox4x32_10([0; 4], [0; 2]),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        assert_eq!(
            philox4x32_10([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
    }

    fn ones(op: Dropout, keys: &[f64], elements: usize) -> Array {
        let images = keys.len() / 2;
        let x = Array::new([images, elements], vec![1.0; images * elements]).unwrap();
        let keys = Array::new([images, 2], keys.to_vec()).unwrap();
        op.eval(&[&x, &keys]).unwrap().remove(0)
    }

    /// Bounds of six standard deviations.
    #[test]
    fn the_share_of_zeros_is_the_probability_and_places_are_independent() {
        const ELEMENTS: usize = 100_000;
        for probability in [0.1, 0.5, 0.9] {
            let op = Dropout { probability, site: 3 };
            let p = f64::from(probability);
            let y = ones(op, &[1.0, 2.0], ELEMENTS);
            let is_zero: Vec<bool> = y.values().iter().map(|&y| y == 0.0).collect();
            assert!(
                y.values()
                    .iter()
                    .all(|&y| y == 0.0 || y == f64::from(op.factor()))
            );
            let share = |found: usize| found as f64 / ELEMENTS as f64;
            let bound = |p: f64| 6.0 * (p * (1.0 - p) / ELEMENTS as f64).sqrt();
            let zeros = share(is_zero.iter().filter(|&&zero| zero).count());
            assert!((zeros - p).abs() < bound(p), "{zeros}, expected {p}");
            for distance in 1..=8 {
                let both = is_zero.iter().zip(&is_zero[distance..]);
                let both = share(both.filter(|(a, b)| **a && **b).count());
                // Pairs that share an element are not independent: twice the bound.
                assert!((both - p * p).abs() < 2.0 * bound(p * p), "{distance}: {both}");
            }
        }
    }

    #[test]
    fn elements_depend_on_the_keys_of_their_image_and_the_site_only() {
        let op = Dropout {
            probability: 0.5,
            site: 0,
        };
        let two = ones(op, &[1.0, 2.0, 3.0, 4.0], 257);
        let [first, second] = [0, 1].map(|image: usize| &two.values()[image * 257..][..257]);
        assert_eq!(first, ones(op, &[1.0, 2.0], 257).values());
        assert_eq!(second, ones(op, &[3.0, 4.0], 257).values());
        let other = Dropout { site: 1, ..op };
        let different = [
            ones(other, &[1.0, 2.0], 257),
            ones(op, &[2.0, 1.0], 257),
            ones(op, &[1.0, 3.0], 257),
        ];
        for (index, other) in different.iter().enumerate() {
            let equal = first.iter().zip(other.values()).filter(|(a, b)| a == b).count();
            // Half of 257, within six standard deviations.
            assert!((80..=177).contains(&equal), "{index}: {equal}");
        }
    }

    #[test]
    fn a_probability_of_1_is_refused() {
        let op = Dropout {
            probability: 1.0,
            site: 0,
        };
        let error = op.shapes(&[&[1, 2], &[1, 2]]).unwrap_err();
        assert!(error.to_string().contains("probability 1"), "{error}");
    }
}
