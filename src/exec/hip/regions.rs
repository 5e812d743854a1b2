//! Device memory of a run, by address.

use super::lower::Elsewhere;
use super::unified::Results;
use crate::error::{Error, Result};
use crate::hip::{DeviceAddress, Operand};

/// The memory that steps may access.
pub(super) struct Regions<'a> {
    pub(super) arena: Operand<'a>,
    /// Results outside the arena.
    pub(super) results: Option<Results<'a>>,
    pub(super) constants: Operand<'a>,
    /// Parameters and states. `None` if the graph has none.
    pub(super) states: Option<Operand<'a>>,
    pub(super) inputs: Operand<'a>,
    pub(super) scratch: Operand<'a>,
    /// Counters, which are 0 between launches.
    pub(super) counters: Operand<'a>,
}

impl<'a> Regions<'a> {
    /// Returns all regions, as the operands of a launch.
    pub(super) fn operands(&self) -> [Operand<'a>; 7] {
        let states = self.states.unwrap_or(self.constants);
        [
            self.arena,
            self.results.map_or(self.arena, |(memory, _)| memory),
            self.constants,
            states,
            self.inputs,
            self.scratch,
            self.counters,
        ]
    }

    /// Returns the addresses of the results outside the arena.
    pub(super) fn elsewhere(&self) -> Elsewhere<'a> {
        self.results
            .map_or(Elsewhere::NONE, |(memory, offsets)| Elsewhere {
                base: memory.address(),
                offsets,
            })
    }

    /// Returns the region's memory from `address` to the end of the region.
    pub(super) fn from(&self, address: DeviceAddress) -> Result<Operand<'a>> {
        for region in self.operands() {
            let offset = address.offset_from(region.address()).map(|o| o as usize);
            if let Some(offset) = offset.filter(|&o| o < region.bytes()) {
                return Ok(region.part(offset..region.bytes())?);
            }
        }
        Err(Error::internal(
            "address",
            format!("{address:#x} is not in the memory of the run"),
        ))
    }

    /// Returns the region's memory from `address` to its end. `None` for a null address, which means that the operand is absent.
    pub(super) fn optional(&self, address: DeviceAddress) -> Result<Option<Operand<'a>>> {
        if address.is_null() {
            return Ok(None);
        }
        self.from(address).map(Some)
    }
}
