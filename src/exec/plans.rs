//! The plans of one graph.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::Result;
use crate::graph::Graph;
use crate::graph::plan::Plan;
use crate::tensor::DType;
use crate::timeline::{self, Activity};

/// Plans of one graph by batch size, made on first use.
#[derive(Debug)]
pub(super) struct Plans {
    graph: Arc<Graph>,
    dtype: DType,
    by_batch: Mutex<HashMap<usize, Arc<Plan>>>,
}

impl Plans {
    /// Creates an empty set of plans with activations in `dtype`. Releases the graph's constants, since executors have copies.
    pub(super) fn new(graph: &Graph, dtype: DType) -> Self {
        let mut graph = graph.clone();
        graph.release_constants();
        Self {
            graph: Arc::new(graph),
            dtype,
            by_batch: Mutex::default(),
        }
    }

    /// Returns the graph.
    pub(super) fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    /// Returns the dtype of the activations.
    pub(super) fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the plan for `batch` images.
    pub(super) fn get(&self, batch: usize) -> Result<Arc<Plan>> {
        let mut plans = self.by_batch.lock();
        if let Some(plan) = plans.get(&batch) {
            return Ok(plan.clone());
        }
        let _span = timeline::span(Activity::Plan);
        let plan = Arc::new(Plan::new(self.graph.clone(), batch, self.dtype)?);
        plans.insert(batch, plan.clone());
        Ok(plan)
    }
}
