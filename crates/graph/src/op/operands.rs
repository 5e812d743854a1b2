//! Checks of operand shapes, and counts of elements and operations.

use super::{OpError, Shape};

/// Returns exactly `N` operands.
///
/// # Errors
///
/// [`OpError::Count`] if there are more or fewer.
pub fn exactly<'a, const N: usize>(operands: &[&'a [usize]]) -> Result<[&'a [usize]; N], OpError> {
    operands.try_into().map_err(|_| OpError::Count {
        expected: N,
        found: operands.len(),
    })
}

/// Operands of an op with optional operands, in order.
pub(super) struct Rest<'a, 'b>(std::slice::Iter<'b, &'a [usize]>);

impl<'a, 'b> Rest<'a, 'b> {
    pub(super) fn new(operands: &'b [&'a [usize]]) -> Self {
        Self(operands.iter())
    }

    /// Returns the next operand.
    pub(super) fn required(&mut self, name: &'static str) -> Result<&'a [usize], OpError> {
        self.0.next().copied().ok_or(OpError::Missing(name))
    }

    /// Returns the next operand if `present`.
    pub(super) fn optional(
        &mut self,
        present: bool,
        name: &'static str,
    ) -> Result<Option<&'a [usize]>, OpError> {
        if present {
            self.required(name).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Checks that no operands are left.
    pub(super) fn finish(self) -> Result<(), OpError> {
        match self.0.len() {
            0 => Ok(()),
            surplus => Err(OpError::Surplus(surplus)),
        }
    }
}

/// Checks that the operand `name` has the shape `expected`.
///
/// # Errors
///
/// [`OpError::Shape`] if it has another.
pub fn expect(name: &'static str, shape: &[usize], expected: &[usize]) -> Result<(), OpError> {
    if shape == expected {
        Ok(())
    } else {
        Err(OpError::Shape {
            operand: name,
            found: shape.to_vec(),
            expected: expected.to_vec(),
        })
    }
}

/// Number of elements of a tensor.
pub(super) fn count(shape: &[usize]) -> u64 {
    shape.iter().map(|&extent| extent as u64).product()
}

/// Returns `2·k` operations per element, and one more with a bias.
pub(super) fn matmul_flops(result: &[usize], k: usize, bias: bool) -> u64 {
    count(result) * (2 * k as u64 + u64::from(bias))
}

/// Returns the shapes of a single result.
///
/// # Errors
///
/// None. The result type is that of shape rules, which can end with this call.
pub fn one(shape: impl Into<Shape>) -> Result<Vec<Shape>, OpError> {
    Ok(vec![shape.into()])
}
