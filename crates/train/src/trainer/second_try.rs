//! The second try of a step, with smaller micro-batches, after a device ran out of memory.

use std::collections::BTreeSet;
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
        let is_divisible = self.ranks.is_none() && self.options.loss.contrastive().is_none();
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
        self.build_anew(options)
    }

    /// Builds the steps anew, with other options or without the layers that have returned from FP8. Weights and states stay.
    pub(super) fn build_anew(&mut self, options: TrainOptions) -> Result<()> {
        let states = self.states()?;
        // Its memory is needed.
        self.executor = None;
        let rules = std::mem::take(&mut self.rules);
        let rule = |tensor: &TensorInfo<'_>| rules.get(tensor.name).copied().unwrap_or_default();
        // FP8 is not computed by several ranks, and they do not try a second time.
        let bf16_layers = self.counters.bf16_layers.clone();
        let new = Self::build(self.checkpoint.clone(), options, &rule, (None, bf16_layers))?;
        let executor = new.executor()?;
        let graph = &executor.info().graph;
        let known: BTreeSet<&str> = saved_states(graph).map(|value| value.name.as_str()).collect();
        for (name, tensor) in states.iter().filter(|(name, _)| known.contains(name.as_str())) {
            executor.set_state(name, tensor)?;
        }
        let counters = self.counters.clone();
        let events = self.take_layer_events();
        let in_flight = std::mem::take(&mut self.in_flight);
        *self = Self {
            rules,
            counters,
            float8: new.float8.map(|layers| layers.with_events(events)),
            in_flight,
            ..new
        };
        Ok(())
    }

    /// Returns the weights and states that a step changes.
    pub(super) fn states(&self) -> Result<Vec<(String, Tensor)>> {
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
