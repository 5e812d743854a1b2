//! Numbers that are NaN or infinite, where none should be.

use std::fmt;

use serde::Serialize;

/// How many of `values`, fewer than `u32::MAX`, are NaN or infinite: their exponent has all bits.
pub fn count(values: impl Iterator<Item = f32>) -> usize {
    const EXPONENT: u32 = 0x7f80_0000;
    // Sums of another width than the values would halve the speed.
    let count: u32 = values
        .map(|value| u32::from(value.to_bits() & EXPONENT == EXPONENT))
        .sum();
    count as usize
}

/// Values of a weight, or of an image's results, that are NaN or infinite. Shown as `` `name`: 3 of 10 values are NaN or infinite ``.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NonFinite {
    /// The tensor's name in the weight file, or the key of the result in the command line's JSON.
    pub name: String,
    /// How many of its values are NaN or infinite.
    pub count: usize,
    /// The number of its values.
    pub len: usize,
}

impl NonFinite {
    /// `None` if there are none.
    pub fn new(name: impl Into<String>, count: usize, len: usize) -> Option<Self> {
        (count > 0).then(|| Self {
            name: name.into(),
            count,
            len,
        })
    }

    /// What is said of the tensor, without its name.
    pub fn reason(&self) -> String {
        format!("{} of {} values are NaN or infinite", self.count, self.len)
    }
}

impl fmt::Display for NonFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.name, self.reason())
    }
}
