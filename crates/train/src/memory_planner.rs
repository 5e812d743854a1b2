//! Plans the memory of training without a device.

use hipvit::error::Result;
use hipvit::exec::Placement;
use hipvit::graph::Graph;
use hipvit::model::Checkpoint;
use hipvit::tensor::DType;

use crate::memory::{self, MemoryBudget, MemoryReport};
use crate::ranks::RankPlan;
use crate::trained::{TensorInfo, TensorRule};
use crate::trainer::{Step, StepTarget, TrainOptions};

/// Plans the memory of training on a GPU, without a GPU.
#[derive(Debug)]
pub struct MemoryPlanner {
    graph: Graph,
    dtype: DType,
}

impl MemoryPlanner {
    /// Builds the step of a checkpoint's model. The device of the options is ignored.
    ///
    /// # Errors
    ///
    /// The errors of [`Trainer::new`](crate::Trainer::new), except for those of the device.
    pub fn new(
        checkpoint: &Checkpoint,
        options: &TrainOptions,
        rule: &dyn Fn(&TensorInfo<'_>) -> TensorRule,
    ) -> Result<Self> {
        Self::with_ranks(checkpoint, options, rule, None)
    }

    /// Builds the step of a rank. The device of the options is ignored.
    ///
    /// # Errors
    ///
    /// The errors of [`Trainer::new`](crate::Trainer::new), except for those of the device.
    pub fn with_ranks(
        checkpoint: &Checkpoint,
        options: &TrainOptions,
        rule: &dyn Fn(&TensorInfo<'_>) -> TensorRule,
        ranks: Option<RankPlan>,
    ) -> Result<Self> {
        let Step { graph, .. } = Step::new(
            checkpoint,
            options,
            rule,
            StepTarget {
                ranks,
                ..StepTarget::of_dtype(options.dtype)
            },
        )?;
        let dtype = options.dtype;
        Ok(Self { graph, dtype })
    }

    /// Plans steps within a budget.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`](hipvit::Error::Argument) for a share of a GPU's memory, and for a limit that no recomputation reaches.
    pub fn plan(&self, budget: MemoryBudget) -> Result<MemoryReport> {
        let limit = budget.limit.bytes(&Placement::Host)?;
        Ok(memory::fit(&self.graph, budget.images, self.dtype, limit)?.1)
    }

    /// Plans steps of `images` images that need at most `limit` bytes, or as few as possible.
    ///
    /// # Errors
    ///
    /// The errors of planning.
    pub(crate) fn within(&self, images: usize, limit: usize) -> Result<MemoryReport> {
        Ok(memory::within(&self.graph, images, self.dtype, limit)?.1)
    }
}
