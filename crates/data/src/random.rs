//! Random numbers that depend on what they are for, not on the order of execution.
//!
//! A [`Stream`] is identified by a seed and a [`Draw`]: epoch, image, repeat and purpose. Batch size, threads and ranks
//! do not affect its numbers, and training can resume anywhere without a saved generator state.

use std::f64::consts::TAU;

/// Computes Philox 4×32 with 10 rounds, a counter-based generator (Salmon et al., "Parallel random numbers: as easy as
/// 1, 2, 3", SC 2011).
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

/// What a stream's numbers are used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Purpose {
    /// Order of an epoch's images.
    Shuffle = 1,
    /// Augmentation of one image.
    Augment = 2,
    /// Random erasing of one image.
    Erase = 3,
    /// Mixup and CutMix of one batch.
    Mix = 4,
    /// Residual branches that the images of one step skip.
    DropPath = 5,
    /// Elements that the images of one step lose.
    Dropout = 6,
    /// Prompt of one image.
    Prompt = 7,
}

/// Identity of a random stream within a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Draw {
    /// Use of the numbers.
    pub purpose: Purpose,
    /// Number of the epoch.
    pub epoch: u32,
    /// Index of the image or batch, below 2⁴⁸.
    pub index: u64,
    /// Number of the repeat, if an image occurs several times in an epoch.
    pub repeat: u8,
}

/// A stream of random numbers from [`philox4x32_10`].
#[derive(Clone, Debug)]
pub struct Stream {
    key: [u32; 2],
    counter: [u32; 4],
    block: [u32; 4],
    used: usize,
}

impl Stream {
    /// Creates the stream of a seed that `draw` identifies.
    pub fn new(seed: u64, draw: Draw) -> Self {
        let tag = draw.purpose as u32 | u32::from(draw.repeat) << 8 | ((draw.index >> 32) as u32) << 16;
        Self {
            key: [seed as u32, (seed >> 32) as u32],
            counter: [0, tag, draw.index as u32, draw.epoch],
            block: [0; 4],
            used: 4,
        }
    }

    /// Returns 32 random bits.
    pub fn next_u32(&mut self) -> u32 {
        if self.used == 4 {
            self.block = philox4x32_10(self.counter, self.key);
            self.counter[0] = self.counter[0].wrapping_add(1);
            self.used = 0;
        }
        self.used += 1;
        self.block[self.used - 1]
    }

    /// Returns 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        u64::from(self.next_u32()) | u64::from(self.next_u32()) << 32
    }

    /// Returns a uniform number in [0, 1) with 53 random bits.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a uniform number between `low` and `high`.
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Returns true with the given probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Returns a uniform integer in `0..bound`, without bias (Lemire's method). Returns 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        let threshold = bound.wrapping_neg().checked_rem(bound).unwrap_or(0);
        loop {
            let product = u128::from(self.next_u64()) * u128::from(bound);
            if product as u64 >= threshold {
                return (product >> 64) as u64;
            }
        }
    }

    /// Returns a uniform index in `0..length`. Returns 0 if `length` is 0.
    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// Returns a number of the standard normal distribution (Box–Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (TAU * self.unit()).cos()
    }

    /// Returns a number of the gamma distribution with scale 1 (Marsaglia and Tsang's method).
    pub fn gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            let boost = (1.0 - self.unit()).powf(1.0 / shape);
            return self.gamma(shape + 1.0) * boost;
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && (1.0 - self.unit()).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v;
            }
        }
    }

    /// Returns a number of the beta distribution whose parameters are both `alpha`, as mixup uses it.
    pub fn symmetric_beta(&mut self, alpha: f64) -> f64 {
        let (left, right) = (self.gamma(alpha), self.gamma(alpha));
        let sum = left + right;
        // Both may underflow if alpha is tiny. The distribution then consists of the two ends.
        if sum > 0.0 {
            left / sum
        } else {
            f64::from(self.chance(0.5))
        }
    }

    /// Shuffles the items uniformly (Fisher–Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            let other = self.index(end + 1);
            items.swap(end, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers of Random123, the reference implementation of the paper.
    #[test]
    fn philox_gives_the_known_answers() {
        let pi = [0x243F_6A88, 0x85A3_08D3, 0x1319_8A2E, 0x0370_7344];
        for (counter, key, expected) in [
            (
                [0; 4],
                [0; 2],
                [0x6627_E8D5, 0xE169_C58D, 0xBC57_AC4C, 0x9B00_DBD8],
            ),
            (
                [u32::MAX; 4],
                [u32::MAX; 2],
                [0x408F_276D, 0x41C8_3B0E, 0xA20B_C7C6, 0x6D54_51FD],
            ),
            (
                pi,
                [0xA409_3822, 0x299F_31D0],
                [0xD16C_FE09, 0x94FD_CCEB, 0x5001_E420, 0x2412_6EA1],
            ),
        ] {
            assert_eq!(philox4x32_10(counter, key), expected);
        }
    }

    fn draw(purpose: Purpose, epoch: u32, index: u64, repeat: u8) -> Draw {
        Draw {
            purpose,
            epoch,
            index,
            repeat,
        }
    }

    #[test]
    fn streams_of_different_draws_differ() {
        let draws = [
            draw(Purpose::Augment, 0, 0, 0),
            draw(Purpose::Erase, 0, 0, 0),
            draw(Purpose::Augment, 1, 0, 0),
            draw(Purpose::Augment, 0, 1, 0),
            draw(Purpose::Augment, 0, 1 << 32, 0),
            draw(Purpose::Augment, 0, 0, 1),
        ];
        let first = |seed, draw| Stream::new(seed, draw).next_u64();
        let mut numbers: Vec<u64> = draws.iter().map(|&draw| first(1, draw)).collect();
        numbers.push(first(1 << 40 | 1, draws[0]));
        assert_eq!(first(1, draws[0]), numbers[0]);
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), draws.len() + 1);
    }

    /// Means and variances of 20,000 numbers are within five standard errors.
    #[test]
    fn distributions_have_their_moments() {
        const N: usize = 20_000;
        let mut stream = Stream::new(7, draw(Purpose::Mix, 0, 0, 0));
        let mut check = |name: &str, mean: f64, variance: f64, number: &mut dyn FnMut(&mut Stream) -> f64| {
            let numbers: Vec<f64> = (0..N).map(|_| number(&mut stream)).collect();
            let average = numbers.iter().sum::<f64>() / N as f64;
            let spread = numbers.iter().map(|x| (x - average).powi(2)).sum::<f64>() / N as f64;
            assert!(
                (average - mean).abs() < 5.0 * (variance / N as f64).sqrt(),
                "{name}: {average}"
            );
            assert!((spread / variance - 1.0).abs() < 0.1, "{name}: {spread}");
        };
        check("unit", 0.5, 1.0 / 12.0, &mut Stream::unit);
        check("below", 4.5, 99.0 / 12.0, &mut |stream| stream.below(10) as f64);
        check("normal", 0.0, 1.0, &mut Stream::normal);
        check("gamma", 2.5, 2.5, &mut |stream| stream.gamma(2.5));
        check("beta 0.2", 0.5, 0.25 / 1.4, &mut |stream| {
            stream.symmetric_beta(0.2)
        });
        check("beta 1", 0.5, 1.0 / 12.0, &mut |stream| {
            stream.symmetric_beta(1.0)
        });
    }

    #[test]
    fn a_shuffle_is_a_permutation() {
        let mut items: Vec<usize> = (0..1000).collect();
        Stream::new(3, draw(Purpose::Shuffle, 0, 0, 0)).shuffle(&mut items);
        assert_ne!(items[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        items.sort_unstable();
        assert_eq!(items, (0..1000).collect::<Vec<_>>());
    }
}
