//! The memory that a run's activations live in.

use crate::error::{Error, Result};
use crate::graph::plan::Plan;

/// A cache line, and the widest vector.
const ALIGNMENT: usize = 64;

/// Memory for one run at a time, kept from run to run; it grows to the largest plan that it has served.
#[derive(Debug, Default)]
pub struct Arena {
    values: Vec<f32>,
}

impl Arena {
    /// An arena that grows on its first use.
    pub fn new() -> Self {
        Self::default()
    }

    /// The bytes that are held.
    pub fn capacity_bytes(&self) -> usize {
        self.values.len() * size_of::<f32>()
    }

    /// The elements that `plan` needs, from an aligned address on; their values are arbitrary.
    pub(super) fn elements(&mut self, plan: &Plan) -> Result<&mut [f32]> {
        let padding = ALIGNMENT / size_of::<f32>();
        let len = plan.arena_bytes().div_ceil(size_of::<f32>());
        if self.values.len() < len + padding {
            let more = len + padding - self.values.len();
            self.values
                .try_reserve_exact(more)
                .map_err(|e| Error::argument("batch", format!("no memory for its activations: {e}")))?;
            self.values.resize(len + padding, 0.0);
        }
        let start = self.values.as_ptr().align_offset(ALIGNMENT).min(padding);
        Ok(&mut self.values[start..start + len])
    }

    /// An arena with more than `plan` needs, every element being `value`.
    #[cfg(test)]
    pub(super) fn with_guard(plan: &Plan, value: f32) -> Self {
        Self {
            values: vec![value; plan.arena_bytes() / size_of::<f32>() + 1000],
        }
    }

    #[cfg(test)]
    pub(super) fn values(&self) -> &[f32] {
        &self.values
    }
}
