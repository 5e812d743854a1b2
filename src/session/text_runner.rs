//! The text tower of a dual encoder on a device.

use std::collections::HashMap;
use std::sync::Arc;

use ndarray::Array2;
use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::exec::select::SelectOptions;
use crate::exec::{Executor, ExecutorOptions, HipExecutor, Placement, RunOutput};
use crate::graph::plan::Plan;
use crate::graph::{self, Float8, Graph, Optimizations, OutputKind, Passes};
use crate::hip;
use crate::model::TextTower;
use crate::tensor::{DType, Input};

/// Token counts of plans are multiples of this, so that texts of similar lengths share plans.
const TOKENS_STEP: usize = 8;

/// Maximum number of plans of an encoder.
const MAX_PLANS: usize = 64;

/// The executor of a text tower.
pub(super) struct TextRunner {
    executor: Arc<dyn Executor>,
    /// Optimised graph for `tokens` tokens.
    graph: Arc<Graph>,
    tokens: usize,
    /// Dtype of the activations in plans.
    dtype: DType,
    /// Plans by number of tokens and number of texts.
    plans: Mutex<HashMap<(usize, usize), Arc<Plan>>>,
}

/// Where and how a text tower runs.
#[derive(Clone, Copy)]
pub(super) struct TextDevice<'a> {
    /// `None`: the CPU.
    pub(super) gpu: Option<&'a hip::Device>,
    pub(super) dtype: DType,
    pub(super) optimizations: Optimizations,
    pub(super) threads: usize,
    pub(super) select: SelectOptions,
}

impl TextRunner {
    /// Prepares the text tower for texts of up to `tokens` tokens.
    pub(super) fn new(tower: &TextTower, tokens: usize, on: TextDevice<'_>) -> Result<Self> {
        let TextDevice { gpu, dtype, .. } = on;
        let passes = Passes {
            fold_normalize: dtype == DType::F32,
            float8: gpu.map_or(Float8::Rounded, |gpu| HipExecutor::float8(gpu, dtype)),
            rounded_rows: gpu.is_some(),
            optimizations: on.optimizations,
            ..Passes::default()
        };
        let (graph, _) = graph::optimize(tower.graph.with_tokens(tokens)?, &passes)?;
        let options = ExecutorOptions {
            threads: Some(on.threads),
            select: on.select,
            ..ExecutorOptions::new(dtype)
        };
        let placement = gpu.map_or(Placement::Host, Placement::gpu);
        let executor = placement.executor(&graph, &options)?;
        Ok(Self {
            dtype: executor.info().activations,
            executor,
            graph: Arc::new(graph),
            tokens,
            plans: Mutex::default(),
        })
    }

    /// Returns the embeddings of texts with token ids `ids`, `batch` at a time.
    pub(super) fn embed(&self, tower: &TextTower, ids: &[&[u32]], batch: usize) -> Result<Array2<f32>> {
        let mut rows: Vec<f32> = Vec::new();
        for batch in ids.chunks(batch) {
            let longest = batch.iter().map(|ids| ids.len()).max().unwrap_or(1);
            let tokens = self.tokens_for(tower.needed(longest));
            let plan = self.plan(tokens, batch.len())?;
            let mut values = Vec::new();
            for ids in batch {
                tower.embed(ids, tokens, &mut values)?;
            }
            for RunOutput { kind, values: output } in
                self.executor.run(&plan, Input::Values(&values), None)?
            {
                match kind {
                    OutputKind::Embedding => rows.extend(output.iter()),
                    OutputKind::Tokens => {
                        for (index, ids) in batch.iter().enumerate() {
                            rows.extend(output.row(index * tokens + tower.pooled(ids)));
                        }
                    }
                    _ => {}
                }
            }
        }
        let width = rows.len() / ids.len().max(1);
        Array2::from_shape_vec((ids.len(), width), rows).map_err(|e| Error::internal("texts", e))
    }

    /// Returns the number of tokens to run for texts that need `needed`. The executor of a GPU only supports one number.
    fn tokens_for(&self, needed: usize) -> usize {
        if self.executor.gpu().is_some() {
            self.tokens
        } else {
            needed.next_multiple_of(TOKENS_STEP).min(self.tokens)
        }
    }

    fn plan(&self, tokens: usize, texts: usize) -> Result<Arc<Plan>> {
        if let Some(plan) = self.plans.lock().get(&(tokens, texts)) {
            return Ok(plan.clone());
        }
        let graph = if tokens == self.tokens {
            self.graph.clone()
        } else {
            Arc::new(self.graph.with_tokens(tokens)?)
        };
        let plan = Arc::new(Plan::new(graph, texts, self.dtype)?);
        let mut plans = self.plans.lock();
        if plans.len() >= MAX_PLANS {
            plans.clear();
        }
        plans.insert((tokens, texts), plan.clone());
        Ok(plan)
    }

    /// Returns the maximum number of tokens of a text.
    pub(super) fn tokens(&self) -> usize {
        self.tokens
    }

    /// Returns the GPU that the text tower runs on. `None` on the CPU.
    pub(super) fn gpu(&self) -> Option<&hip::Device> {
        self.executor.gpu()
    }
}

/// The text tower that a session keeps between calls.
#[derive(Default)]
pub(super) struct KeptTexts(Mutex<Option<Arc<TextRunner>>>);

impl KeptTexts {
    /// Returns the kept runner for at least `needed` tokens, or keeps the one that `make` returns for a number of tokens up to `most`.
    pub(super) fn get(
        &self,
        [needed, most]: [usize; 2],
        make: impl FnOnce(usize) -> Result<TextRunner>,
    ) -> Result<Arc<TextRunner>> {
        let mut kept = self.0.lock();
        if let Some(runner) = kept.as_ref().filter(|runner| runner.tokens >= needed) {
            return Ok(runner.clone());
        }
        // Free the shorter one first, unless another thread uses it.
        *kept = None;
        let tokens = needed.next_multiple_of(TOKENS_STEP).min(most);
        Ok(kept.insert(Arc::new(make(tokens)?)).clone())
    }
}
