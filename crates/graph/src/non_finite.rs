//! Counts of NaN and infinite values.

use std::fmt;

use serde::Serialize;

/// Returns how many of `values` are NaN or infinite. There must be fewer than `u32::MAX` values. The exponent bits of such a value are all
/// set.
pub fn count(values: impl Iterator<Item = f32>) -> usize {
    const EXPONENT: u32 = 0x7f80_0000;
    // A count of another width than the values would halve the speed.
    let count: u32 = values
        .map(|value| u32::from(value.to_bits() & EXPONENT == EXPONENT))
        .sum();
    count as usize
}

/// NaN and infinite values of a weight or of an image's results. Formats as `` `name`: 3 of 10 values are NaN or infinite ``.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NonFinite {
    /// Name of the tensor in the weight file, or of the result in the command line's JSON.
    pub name: String,
    /// Number of NaN and infinite values.
    pub count: usize,
    /// Number of values.
    pub len: usize,
}

impl NonFinite {
    /// Returns `None` if `count` is 0.
    pub fn new(name: impl Into<String>, count: usize, len: usize) -> Option<Self> {
        (count > 0).then(|| Self {
            name: name.into(),
            count,
            len,
        })
    }

    /// Returns the message without the tensor's name.
    pub fn reason(&self) -> String {
        format!("{} of {} values are NaN or infinite", self.count, self.len)
    }
}

impl fmt::Display for NonFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.name, self.reason())
    }
}
