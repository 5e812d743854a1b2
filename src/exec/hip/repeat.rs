//! Steps that are submitted again after they have written to states: the states are copied before, and set back.

use super::executor::HipExecutor;
use super::states::Turn;
use crate::error::Result;
use crate::hip::DeviceBuffer;

impl HipExecutor {
    /// Returns a copy of the parameters and states, if steps change what they read of them, so that steps can be repeated. `None` if none is needed, or if the
    /// device has no memory for it.
    pub(super) fn backup(&self, turn: &Turn<'_>) -> Result<Option<DeviceBuffer<u8>>> {
        if self.in_place.is_repeatable() {
            return Ok(None);
        }
        turn.copied()
    }

    /// Returns true if steps can be repeated: they do not read what they write to states, or all ranks have a [backup](Self::backup).
    pub(super) fn can_repeat(&self, backup: Option<&DeviceBuffer<u8>>) -> bool {
        self.in_place.is_repeatable() || self.agree(backup.is_some())
    }
}
