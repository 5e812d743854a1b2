//! The trainer of a rank.

use std::sync::Arc;

use hipvit::error::Result;
use hipvit::exec::{Collectives, Replays};
use hipvit::model::Checkpoint;

use super::{TrainOptions, Trainer};
use crate::ranks::Ranks;
use crate::recipe::RankKeys;
use crate::step_graph::{TensorInfo, TensorRule};

impl Trainer {
    /// Creates the trainer of one of several ranks, which all call this with equal arguments. A [`step`](Self::step) takes this rank's share of
    /// the images, and returns the report of all.
    ///
    /// # Errors
    ///
    /// The errors of [`Trainer::new`]. [`Error::Argument`](hipvit::Error::Argument) if the ranks cannot be divided as `keys` says.
    pub fn of_rank(
        checkpoint: Checkpoint,
        options: TrainOptions,
        rule: &dyn Fn(&TensorInfo<'_>) -> TensorRule,
        collectives: Arc<Collectives>,
        keys: &RankKeys,
    ) -> Result<Self> {
        let ranks = Ranks::new(collectives, keys)?;
        Self::with_ranks(checkpoint, options, rule, Some(ranks))
    }

    /// Returns how the steps were executed on a GPU. `None` on the CPU.
    ///
    /// # Errors
    ///
    /// The errors of [`step`](Self::step) without memory.
    pub fn replays(&self) -> Result<Option<Replays>> {
        Ok(self.executor()?.statistics().replays)
    }
}
