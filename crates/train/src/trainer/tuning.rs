//! Measurement of the kernels of a step.

use std::path::PathBuf;
use std::time::Duration;

use hipvit::error::{Error, Result};

use super::Trainer;
use super::micro_batch::micro_batches;

/// Result of [`Trainer::tune`].
#[derive(Clone, Debug, PartialEq)]
pub struct Tuning {
    /// Number of problems that were measured.
    pub problems: usize,
    /// Time that a step saves by the measured choices. It is the sum of the differences of single calls.
    pub gain: Duration,
    /// File with the choices, which later runs and trainers on GPUs of the same name use.
    pub path: PathBuf,
}

impl Trainer {
    /// Measures which library, algorithm or kernel is fastest for each GEMM, patch embedding and attention of a step of `images` images, and
    /// stores the choices. Trainers that are created afterwards use them. The steps of one choice have equal bits, those of two may differ by
    /// rounding.
    ///
    /// # Errors
    ///
    /// - [`Error::Argument`] on the CPU or for one of several ranks
    /// - [`Error::Device`] if no call has more than one candidate
    /// - [`Error::Io`] if the choices cannot be stored
    pub fn tune(&self, images: usize) -> Result<Tuning> {
        if self.ranks.is_some() {
            let reason =
                "measures on one GPU. Run it in one process: GPUs of the same name share the choices";
            return Err(Error::argument("tune", reason));
        }
        let executor = self.executor()?;
        let Some(gpu) = executor.hip() else {
            let reason = "measures kernels of a GPU, and the device is the CPU";
            return Err(Error::argument("tune", reason));
        };
        let mut parts: Vec<usize> = micro_batches(images, self.options.accumulate)
            .map(|part| part.len())
            .collect();
        parts.dedup();
        let mut store = gpu.store();
        let (mut problems, mut gain) = (0, 0.0);
        for part in parts {
            let measured = gpu.tune(&*executor.plan(part)?, |tuned| {
                problems += 1;
                // NaN if the rule's candidate failed.
                gain += (tuned.rule_us - tuned.best_us).max(0.0) * tuned.steps as f64;
            })?;
            store.extend(&measured);
        }
        Ok(Tuning {
            problems,
            gain: Duration::from_secs_f64(gain / 1e6),
            path: store.save()?,
        })
    }
}
