//! Sums over the ranks of a tensor-parallel model that overlap with computation.
//!
//! The batch is run as two halves, each on a stream of its own with communicators of its own, submitted by turns from one sum to the
//! next: while a half's sum is on the links, the other half computes, as in DeepSpeed-Domino, <https://arxiv.org/abs/2409.15241>. No
//! half reads what the other wrote. Each sum waits for the one that was submitted before it, so that all ranks run all sums in one order,
//! as communicators that share GPUs have to be used.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ndarray::{Array2, Axis, concatenate};
use rayon::ThreadPool;

use super::reserve::Reserved;
use super::run::Begun;
use super::steps::{Steps, Submitted};
use super::tensor::RankStream;
use super::{Feed, Finished, HipExecutor, Submission};
use crate::error::{Error, Result};
use crate::graph::OutputKind;
use crate::graph::plan::Plan;
use crate::hip::Event;
use crate::ops::Op;

/// The halves of a batch, with the memory for them.
pub(super) type Halves = [Reserved<Arc<Plan>>; 2];

/// The bytes of the largest sum over the ranks; 0 if there is none.
pub(super) fn largest_sum(plan: &Plan) -> usize {
    let sums = plan
        .steps()
        .iter()
        .filter(|step| matches!(plan.node(step).op, Op::AllReduce(_)));
    let bytes = sums.map(|step| plan.buffer(step.output()).bytes);
    bytes.max().unwrap_or(0)
}

/// The images of each half of a batch.
pub(super) fn halves(batch: usize) -> [usize; 2] {
    [batch.div_ceil(2), batch / 2]
}

impl HipExecutor {
    /// Memory for the halves of a batch, with these plans on the rank's streams.
    pub(super) fn reserve_halves(&self, plans: [Arc<Plan>; 2], on: [&RankStream; 2]) -> Result<Halves> {
        let [a, b] = plans;
        Ok([self.reserve_on(a, Some(on[0]))?, self.reserve_on(b, Some(on[1]))?])
    }

    /// Runs the halves of a batch, whose pixels are `input`, and waits for them: the results of the whole.
    pub(super) fn run_halves(
        &self,
        halves: Halves,
        input: &[u8],
        threads: &ThreadPool,
        how: Submission,
    ) -> Result<Vec<(OutputKind, Array2<f32>)>> {
        let [a, b] = halves;
        let parts = input.split_at_checked(a.plan().input_bytes());
        let (first, second) =
            parts.ok_or_else(|| Error::argument("input", "is shorter than half a batch"))?;
        let mut a = self.begin(a, Feed::Pageable(first), threads, how)?;
        let mut b = self.begin(b, Feed::Pageable(second), threads, how)?;
        self.by_turns([&mut a, &mut b])?;
        self.eager_runs.fetch_add(1, Ordering::Relaxed);
        self.overlapped_runs.fetch_add(1, Ordering::Relaxed);
        let a = self.end(a, Submitted::Steps, how)?;
        let b = self.end(b, Submitted::Steps, how)?;
        let [a, b] = [self.finish(a, None)?, self.finish(b, None)?];
        let whole = a.outputs.iter().zip(&b.outputs).map(|((kind, a), (_, b))| {
            let rows = concatenate(Axis(0), &[a.view(), b.view()]);
            let rows = rows.map_err(|error| Error::argument("outputs", error))?;
            Ok((*kind, rows))
        });
        let whole = whole.collect();
        for Finished { memory, .. } in [a, b] {
            self.keep(memory);
        }
        whole
    }

    /// Submits the steps of two runs, each from one sum to the next.
    fn by_turns(&self, runs: [&mut Begun<Arc<Plan>>; 2]) -> Result<()> {
        let mut sum: Option<Event> = None;
        let mut halves = runs.map(|Begun { plan, context, .. }| {
            let stream = context.stream.clone();
            let count = plan.steps().len();
            (stream, count, 0, Steps::new(self, plan, context))
        });
        while halves.iter().any(|(_, count, next, _)| next < count) {
            for (stream, _, next, steps) in &mut halves {
                let after = sum.take();
                let submitted = steps.enqueue_to_sum(stream, *next, after.as_ref())?;
                *next = submitted.0;
                sum = submitted.1.or(after);
            }
        }
        Ok(())
    }
}
