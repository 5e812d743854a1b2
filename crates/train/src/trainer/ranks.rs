//! The trainer of a rank.

use std::sync::Arc;

use hipvit::error::Result;
use hipvit::exec::{Collectives, Replays};
use hipvit::model::Checkpoint;
use hipvit::ops::Op;
use hipvit::ops::exchange::ExchangeKind;

use super::{TrainOptions, Trainer};
use crate::ranks::Ranks;
use crate::recipe::RankKeys;
use crate::trained::{TensorInfo, TensorRule};

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

    /// Returns the bytes of gradients that a rank gives to the exchanges of a step, with compression and without. `None` if the ranks do not
    /// compress gradients.
    ///
    /// # Errors
    ///
    /// The errors of [`step`](Self::step) without memory.
    pub fn compressed_bytes(&self) -> Result<Option<[u64; 2]>> {
        let Some(plan) = self.ranks.as_ref().map(|ranks| ranks.plan) else {
            return Ok(None);
        };
        if plan.powersgd_rank.is_none() {
            return Ok(None);
        }
        let size = if plan.bf16_wire { 2 } else { 4 };
        let graph = &self.executor()?.info().graph;
        let sent = graph.nodes().iter().filter_map(|node| match &node.op {
            Op::Exchange(exchange) if exchange.kind != ExchangeKind::Gather => node.outputs.first(),
            _ => None,
        });
        let elements = sent.map(|&id| graph.value(id).shape.iter().product::<usize>() as u64);
        Ok(Some(
            [elements.sum(), self.parameters()].map(|elements| size * elements),
        ))
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
