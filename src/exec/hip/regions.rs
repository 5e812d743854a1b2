//! The device memory of a run, by address.

use crate::error::{Error, Result};
use crate::hip::Operand;

/// The memory that steps may access: arena, constants, input, scratch.
pub(super) struct Regions<'a>(pub(super) [Operand<'a>; 4]);

impl<'a> Regions<'a> {
    /// Returns the rest of a region from `address` on.
    pub(super) fn from(&self, address: u64) -> Result<Operand<'a>> {
        for region in &self.0 {
            let offset = address.checked_sub(region.address()).map(|o| o as usize);
            if let Some(offset) = offset.filter(|&o| o < region.bytes()) {
                return Ok(region.part(offset..region.bytes())?);
            }
        }
        Err(Error::internal(
            "address",
            format!("{address:#x} is not in the memory of the run"),
        ))
    }

    /// Returns the rest of a region from `address` on. `None` for 0, where there is no operand.
    pub(super) fn optional(&self, address: u64) -> Result<Option<Operand<'a>>> {
        match address {
            0 => Ok(None),
            address => self.from(address).map(Some),
        }
    }
}
