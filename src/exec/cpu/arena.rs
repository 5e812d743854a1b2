//! Memory of a run's activations.

use crate::error::{Error, Result};
use crate::graph::plan::Plan;

/// Bytes of a cache line, and of the widest vector.
const ALIGNMENT: usize = 64;

/// Maximum number of elements skipped for alignment.
const PADDING: usize = ALIGNMENT / size_of::<f32>();

/// Memory for one run at a time. Reused from run to run; grows to the largest plan so far.
#[derive(Debug, Default)]
pub struct Arena {
    values: Vec<f32>,
    /// Elements at either end that no plan uses.
    margin: usize,
}

impl Arena {
    /// Creates an empty arena, which grows on first use.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the allocated bytes.
    pub fn capacity_bytes(&self) -> usize {
        self.values.len() * size_of::<f32>()
    }

    /// Returns the elements that `plan` needs, from an aligned address on. Their values are arbitrary.
    pub(super) fn elements(&mut self, plan: &Plan) -> Result<&mut [f32]> {
        self.grow(plan, 0.0)?;
        let (start, len) = (self.start(), len(plan));
        Ok(&mut self.values[start..start + len])
    }

    /// Creates an arena for `plan` alone, filled with `value`. A run must not access the `margin` elements at either end.
    ///
    /// # Errors
    ///
    /// [`Error::Resource`] if the allocation fails.
    pub fn with_margin(plan: &Plan, margin: usize, value: f32) -> Result<Self> {
        let mut arena = Self {
            values: Vec::new(),
            margin,
        };
        arena.grow(plan, value)?;
        Ok(arena)
    }

    /// Returns all elements, with the margins around those of `plan`.
    pub fn with_margins(&self, plan: &Plan) -> &[f32] {
        let start = self.start();
        &self.values[start - self.margin..start + len(plan) + self.margin]
    }

    fn grow(&mut self, plan: &Plan, value: f32) -> Result<()> {
        let len = len(plan) + 2 * self.margin + PADDING;
        if let Some(more) = len.checked_sub(self.values.len()) {
            self.values
                .try_reserve_exact(more)
                .map_err(|e| Error::resource("batch", format!("no memory for its activations: {e}")))?;
            self.values.resize(len, value);
        }
        Ok(())
    }

    /// Returns the index of the first aligned element behind the margin.
    fn start(&self) -> usize {
        let offset = self.values[self.margin..].as_ptr().align_offset(ALIGNMENT);
        self.margin + offset.min(PADDING)
    }
}

fn len(plan: &Plan) -> usize {
    plan.arena_bytes().div_ceil(size_of::<f32>())
}
