//! Training on several ranks: processes that have equal weights, and a share of the images of each step.
//!
//! | module | purpose |
//! | --- | --- |
//! | `graph` | the exchanges in the graph of a step |
//! | `powersgd`, `orthogonal` | compression of the gradients |
//! | `messages` | figures of steps and evaluations of all ranks |
//! | `files` | the run directory, which only rank 0 has |

mod compression_states;
pub(crate) mod files;
mod graph;
pub(crate) mod messages;
mod orthogonal;
pub(crate) mod powersgd;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use hipvit::error::{Error, Result};
use hipvit::exec::Collectives;

pub(crate) use self::graph::{Exchanges, Gathers};
use crate::recipe::{Compression, RankKeys, Shard, Wire};

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
    /// Rank of the matrices to which PowerSGD compresses gradients. `None` if gradients are not compressed.
    pub powersgd_rank: Option<usize>,
}

impl RankPlan {
    /// Creates the plan of a recipe.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the ranks cannot be divided into groups as the recipe says, or for a division that compression excludes.
    pub fn new(rank: usize, ranks: usize, keys: &RankKeys) -> Result<Self> {
        let group = if keys.group == 0 { ranks } else { keys.group };
        if group > ranks || !ranks.is_multiple_of(group) {
            let reason = format!(
                "{ranks} ranks are not divided into groups of {group}. Set the recipe's key `ranks.group` to a divisor of the number of ranks, or to 0"
            );
            return Err(Error::argument("ranks", reason));
        }
        let plan = Self {
            rank,
            ranks,
            group,
            shard: keys.shard,
            bf16_wire: keys.wire == Wire::Bf16,
            powersgd_rank: (keys.compression == Compression::Powersgd).then_some(keys.rank),
        };
        plan.check_compression()?;
        Ok(plan)
    }

    fn check_compression(&self) -> Result<()> {
        let reason = match self.powersgd_rank {
            None => return Ok(()),
            Some(0) => "is of rank 0. Set the recipe's key `ranks.rank` to a positive number",
            Some(_) if self.divides_gradients() => {
                "needs whole gradients on each rank. Set the recipe's key `ranks.shard` to `none` or `optimizer`"
            }
            Some(_) if self.group < self.ranks => {
                "has errors of all ranks, and not of groups. Set the recipe's key `ranks.group` to 0"
            }
            Some(_) => return Ok(()),
        };
        Err(Error::argument("ranks.compression", format!("powersgd {reason}")))
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
