//! Extents that may be multiples of the batch size.

use std::fmt;

/// An extent of a tensor: a number, or a multiple of the batch size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dim {
    /// Extent for every batch size.
    Fixed(usize),
    /// This number times the batch size.
    Batch(usize),
}

impl Dim {
    /// Returns the extent at this batch size. `None` if it overflows.
    pub fn extent(self, batch: usize) -> Option<usize> {
        match self {
            Self::Fixed(extent) => Some(extent),
            Self::Batch(factor) => factor.checked_mul(batch),
        }
    }

    /// Returns the extent at batch size 1.
    pub fn at_one(self) -> usize {
        match self {
            Self::Fixed(extent) | Self::Batch(extent) => extent,
        }
    }

    /// Returns true if the extent is a multiple of the batch size.
    pub fn is_batch(self) -> bool {
        matches!(self, Self::Batch(_))
    }

    /// Returns the extent, or `None` if it depends on the batch size.
    pub fn fixed(self) -> Option<usize> {
        match self {
            Self::Fixed(extent) => Some(extent),
            Self::Batch(_) => None,
        }
    }
}

/// Writes `3`, `B` or `3·B`.
impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(extent) => write!(f, "{extent}"),
            Self::Batch(1) => f.write_str("B"),
            Self::Batch(factor) => write!(f, "{factor}·B"),
        }
    }
}

/// An integer that is known up to the batch size B: `constant + batch · B`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Linear {
    pub(crate) constant: i64,
    pub(crate) batch: i64,
}

impl Linear {
    pub(crate) const fn new(constant: i64) -> Self {
        Self { constant, batch: 0 }
    }

    /// Returns the number, or `None` if it depends on the batch size.
    pub(crate) fn known(self) -> Option<i64> {
        (self.batch == 0).then_some(self.constant)
    }

    /// Returns the extent. `None` if it is negative, or the sum of a number and a multiple of the batch size.
    pub(crate) fn dim(self) -> Option<Dim> {
        match (self.constant, self.batch) {
            (constant, 0) => usize::try_from(constant).ok().map(Dim::Fixed),
            (0, batch) => usize::try_from(batch).ok().map(Dim::Batch),
            _ => None,
        }
    }

    pub(crate) fn checked_add(self, other: Self) -> Option<Self> {
        Some(Self {
            constant: self.constant.checked_add(other.constant)?,
            batch: self.batch.checked_add(other.batch)?,
        })
    }

    pub(crate) fn checked_sub(self, other: Self) -> Option<Self> {
        Some(Self {
            constant: self.constant.checked_sub(other.constant)?,
            batch: self.batch.checked_sub(other.batch)?,
        })
    }

    pub(crate) fn checked_mul(self, other: Self) -> Option<Self> {
        let (linear, factor) = match (self.batch, other.batch) {
            (_, 0) => (self, other.constant),
            (0, _) => (other, self.constant),
            _ => return None,
        };
        Some(Self {
            constant: linear.constant.checked_mul(factor)?,
            batch: linear.batch.checked_mul(factor)?,
        })
    }

    /// Divides, rounding towards zero. `None` if the quotient is not linear in the batch size, or the divisor is 0.
    pub(crate) fn checked_div(self, other: Self) -> Option<Self> {
        match (self, other) {
            (
                Self { constant, batch: 0 },
                Self {
                    constant: divisor,
                    batch: 0,
                },
            ) => constant.checked_div(divisor).map(Self::new),
            (
                Self { constant, batch },
                Self {
                    constant: divisor,
                    batch: 0,
                },
            ) => {
                let exact = constant.checked_rem(divisor)? == 0 && batch.checked_rem(divisor)? == 0;
                let quotient = Self {
                    constant: constant.checked_div(divisor)?,
                    batch: batch.checked_div(divisor)?,
                };
                exact.then_some(quotient)
            }
            (
                Self { constant: 0, batch },
                Self {
                    constant: 0,
                    batch: divisor,
                },
            ) => (batch.checked_rem(divisor)? == 0).then(|| Self::new(batch / divisor)),
            _ => None,
        }
    }
}

impl From<Dim> for Linear {
    fn from(dim: Dim) -> Self {
        // Extents that do not fit are refused before they reach arithmetic.
        let number = |extent: usize| i64::try_from(extent).unwrap_or(i64::MAX);
        match dim {
            Dim::Fixed(extent) => Self::new(number(extent)),
            Dim::Batch(factor) => Self {
                constant: 0,
                batch: number(factor),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_keeps_the_batch_size_apart() {
        let batch = |batch| Linear { constant: 0, batch };
        let known = Linear::new;
        assert_eq!(batch(1).checked_mul(known(49)), Some(batch(49)));
        assert_eq!(batch(64).checked_div(known(16)), Some(batch(4)));
        assert_eq!(batch(64).checked_div(batch(16)), Some(known(4)));
        assert_eq!(batch(3).checked_div(known(2)), None);
        assert_eq!(batch(1).checked_mul(batch(1)), None);
        assert_eq!(known(7).checked_div(known(2)), Some(known(3)));
        assert_eq!(known(7).checked_div(known(0)), None);
        assert_eq!(batch(1).checked_div(batch(0)), None);
        assert_eq!(known(i64::MAX).checked_add(known(1)), None);
        let sum = batch(2).checked_add(known(1)).unwrap();
        assert_eq!(
            (sum.dim(), sum.checked_sub(known(1)).unwrap().dim()),
            (None, Some(Dim::Batch(2)))
        );
        assert_eq!(known(-1).dim(), None);
        assert_eq!(
            [Dim::Fixed(3), Dim::Batch(1), Dim::Batch(4)].map(|d| d.to_string()),
            ["3", "B", "4·B"]
        );
    }
}
