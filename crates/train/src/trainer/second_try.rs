//! The second try of a step, with smaller micro-batches, after a device ran out of memory.

use std::sync::Arc;

use hipvit::error::{Error, Result};
use hipvit::exec::{Executor, ExecutorInfo};
use hipvit::hip;
use hipvit::tensor::Tensor;

use super::{TensorInfo, TrainOptions, Trainer};
use crate::memory::{self, MemoryBudget};
use crate::saved::saved_states;

impl Trainer {
    /// Returns the executor of the steps.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the device had no memory for the executor of smaller micro-batches.
    pub(crate) fn executor(&self) -> Result<&Arc<dyn Executor>> {
        self.executor.as_ref().ok_or_else(lost)
    }

    /// Returns true for the error of a device without enough memory, if its micro-batches have several images.
    pub(super) fn can_take_smaller(&self, error: &Error, batch: usize) -> bool {
        let is_memory = matches!(error, Error::Hip(hip::Error::OutOfMemory { .. }));
        // Other ranks have begun the step, and some losses compare all images of a batch.
        let is_divisible = self.ranks.is_none() && self.options.loss.has_classes();
        is_memory && is_divisible && batch.div_ceil(self.options.accumulate) > 1
    }

    /// Divides batches into twice as many micro-batches. Weights and states of the optimiser stay.
    pub(super) fn halve_micro_batches(&mut self, batch: usize) -> Result<()> {
        let options = TrainOptions {
            accumulate: (self.options.accumulate * 2).min(batch),
            memory: self.options.memory.map(|budget| MemoryBudget {
                images: budget.images.div_ceil(2),
                ..budget
            }),
            ..self.options.clone()
        };
        let states = self.states()?;
        // Its memory is needed.
        self.executor = None;
        let rules = std::mem::take(&mut self.rules);
        let rule = |tensor: &TensorInfo<'_>| rules.get(tensor.name).copied().unwrap_or_default();
        let smaller = Self::build(self.checkpoint.clone(), options, &rule, None)?;
        for (name, tensor) in &states {
            smaller.executor()?.set_state(name, tensor)?;
        }
        let counters = self.counters.clone();
        let float8 = self.float8.take();
        *self = Self {
            rules,
            counters,
            float8,
            ..smaller
        };
        Ok(())
    }

    /// Returns the weights and states that a step changes.
    fn states(&self) -> Result<Vec<(String, Tensor)>> {
        let executor = self.executor()?;
        let graph = &executor.info().graph;
        let states = saved_states(graph).map(|value| Ok((value.name.clone(), executor.state(&value.name)?)));
        states.collect()
    }

    /// Adds to the error of a device without enough memory how much a step needs.
    pub(super) fn with_least_memory(&self, batch: usize, error: Error) -> Error {
        let (Error::Hip(hip::Error::OutOfMemory { device, .. }), Some(executor)) = (&error, &self.executor)
        else {
            return error;
        };
        let ExecutorInfo {
            graph, activations, ..
        } = executor.info();
        match memory::within(graph, batch.div_ceil(self.options.accumulate), *activations, 0) {
            Ok((_, least)) => Error::device(device, memory::shortage(&least)),
            Err(_) => error,
        }
    }
}

/// Returns the error of a trainer without an executor.
pub(super) fn lost() -> Error {
    let reason = "lost its weights when its device ran out of memory. Continue with a new one from the last checkpoint";
    Error::argument("trainer", reason)
}
