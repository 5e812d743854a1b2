//! Training on several ranks: processes that have equal weights, and a share of the images of each step.
//!
//! | module | purpose |
//! | --- | --- |
//! | `graph` | the exchanges in the graph of a step |
//! | `messages` | figures of steps and evaluations of all ranks |
//! | `files` | the run directory, which only rank 0 has |

pub(crate) mod files;
mod graph;
pub(crate) mod messages;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use hipvit::error::{Error, Result};
use hipvit::exec::Collectives;

pub(crate) use self::graph::{Exchanges, Gathers};
use crate::recipe::{RankKeys, Shard, Wire};

/// Division of a step's work and states among ranks. All ranks have equal options, except for the rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankPlan {
    /// Number of this rank.
    pub rank: usize,
    /// Number of ranks.
    pub ranks: usize,
    /// Number of consecutive ranks that divide states. A divisor of the number of ranks.
    pub group: usize,
    /// What these ranks divide.
    pub shard: Shard,
    /// True if gradients are rounded to bf16 on the way between ranks.
    pub bf16_wire: bool,
}

impl RankPlan {
    /// Creates the plan of a recipe.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the ranks cannot be divided into groups as the recipe says.
    pub fn new(rank: usize, ranks: usize, keys: &RankKeys) -> Result<Self> {
        let group = if keys.group == 0 { ranks } else { keys.group };
        if group > ranks || !ranks.is_multiple_of(group) {
            let reason = format!(
                "{ranks} ranks are not divided into groups of {group}. Set the recipe's key `ranks.group` to a divisor of the number of ranks, or to 0"
            );
            return Err(Error::argument("ranks", reason));
        }
        Ok(Self {
            rank,
            ranks,
            group,
            shard: keys.shard,
            bf16_wire: keys.wire == Wire::Bf16,
        })
    }

    /// Returns true if each rank updates a part of the weights.
    pub(crate) fn divides_states(&self) -> bool {
        self.shard != Shard::None
    }

    /// Returns true if each rank keeps a part of the sums of gradients.
    pub(crate) fn divides_gradients(&self) -> bool {
        matches!(self.shard, Shard::Gradients | Shard::Parameters)
    }

    /// Returns this rank's number in its group.
    pub(crate) fn number(&self) -> usize {
        self.rank % self.group
    }

    /// Returns the number of images of each rank, from that of a step.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the images are not divided equally.
    pub fn share(&self, images: usize) -> Result<usize> {
        if images.is_multiple_of(self.ranks) {
            return Ok(images / self.ranks);
        }
        let reason = format!(
            "{images} images per step are not divided equally among {} ranks. Take a multiple of the number of ranks",
            self.ranks
        );
        Err(Error::argument("batch", reason))
    }
}

/// The ranks of a run, as one of them sees them.
#[derive(Clone, Debug)]
pub(crate) struct Ranks {
    pub(crate) plan: RankPlan,
    pub(crate) collectives: Arc<Collectives>,
}

impl Ranks {
    pub(crate) fn new(collectives: Arc<Collectives>, keys: &RankKeys) -> Result<Self> {
        let plan = RankPlan::new(collectives.rank(), collectives.ranks(), keys)?;
        Ok(Self { plan, collectives })
    }

    /// Returns true if this rank writes the run directory.
    pub(crate) fn writes(&self) -> bool {
        self.plan.rank == 0
    }
}
