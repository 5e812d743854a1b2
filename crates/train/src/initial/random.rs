//! Random numbers that the seed, the name of the tensor and the index of the element determine.

use std::f64::consts::TAU;

use hipvit_data::random::philox4x32_10;

/// Number of draws after which a truncated value counts as 0. The probability of that is below 1e-40.
const DRAWS: u32 = 32;

/// Source of the values of one tensor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    seed: u64,
    tensor: u64,
}

impl Numbers {
    /// Creates the source of the tensor `name`.
    pub(crate) fn new(seed: u64, name: &str) -> Self {
        Self {
            seed,
            tensor: fnv1a(name),
        }
    }

    /// Returns the value of an element, with mean 0 and standard deviation 1.
    pub(super) fn value(&self, index: u64) -> f64 {
        self.draw(index, 0)
    }

    /// Returns the value of an element, drawn again until it is within two standard deviations.
    pub(super) fn truncated(&self, index: u64) -> f64 {
        let mut draws = (0..DRAWS).map(|draw| self.draw(index, draw));
        draws.find(|value| value.abs() <= 2.0).unwrap_or(0.0)
    }

    /// Returns a number from 0 to below 1, for an element of a tensor that has no normal distribution.
    pub(crate) fn uniform(&self, index: u64) -> f64 {
        self.pair(index, 0)[0]
    }

    /// Draws a value by the Box-Muller transform. The functions of libm have equal bits on all platforms.
    fn draw(&self, index: u64, draw: u32) -> f64 {
        let [first, second] = self.pair(index, draw);
        libm::sqrt(-2.0 * libm::log(1.0 - first)) * libm::cos(TAU * second)
    }

    /// Returns two numbers from 0 to below 1.
    fn pair(&self, index: u64, draw: u32) -> [f64; 2] {
        let block = [
            index as u32,
            (index >> 32) as u32 | draw << 24,
            self.tensor as u32,
            (self.tensor >> 32) as u32,
        ];
        let [a, b, c, d] = philox4x32_10(block, [self.seed as u32, (self.seed >> 32) as u32]);
        let unit = |low: u32, high: u32| {
            ((u64::from(high) << 32 | u64::from(low)) >> 11) as f64 / (1u64 << 53) as f64
        };
        [unit(a, b), unit(c, d)]
    }
}

/// Returns the FNV-1a hash of a name.
fn fnv1a(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
