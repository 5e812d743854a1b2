//! Inputs and results in host memory, which the kernels of a GPU that shares this memory access in place.
//!
//! Kernels read the input where the host has written it, and the host reads results where kernels have written them. Values that steps read
//! several times stay in device memory: GPUs may not cache host memory.

use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::graph::plan::{ALIGNMENT, BufferId, Operand as Place, Plan};
use crate::graph::{Graph, OutputKind};
use crate::hip::{Event, HostView, Lent, Operand, PinnedBuffer, Stream};

/// Host memory of a context for the results that kernels write there.
#[derive(Debug)]
pub(super) struct HostResults {
    memory: Lent<u8>,
    graph: Arc<Graph>,
    batch: usize,
    /// Results of the current plan, and their offsets in the memory.
    offsets: Vec<(BufferId, usize)>,
}

impl HostResults {
    /// Allocates memory for the results of `plan`.
    pub(super) fn new(stream: &Stream, plan: &Plan) -> Result<Self> {
        let (offsets, bytes) = layout(plan);
        Ok(Self {
            memory: stream.lend(stream.device().pinned(bytes)?)?,
            graph: plan.graph().clone(),
            batch: plan.batch(),
            offsets,
        })
    }

    /// Places the results of `plan`. Returns true if the memory was too small and was replaced.
    pub(super) fn fit(&mut self, stream: &Stream, plan: &Plan) -> Result<bool> {
        if self.batch == plan.batch() && Arc::ptr_eq(&self.graph, plan.graph()) {
            return Ok(false);
        }
        let (offsets, bytes) = layout(plan);
        let grows = self.memory.bytes() < bytes;
        if grows {
            self.memory = stream.lend(stream.device().pinned(bytes)?)?;
        }
        self.graph = plan.graph().clone();
        self.batch = plan.batch();
        self.offsets = offsets;
        Ok(grows)
    }

    /// Returns the range of a result of the current plan. `None` if it is in the arena.
    pub(super) fn range(&self, plan: &Plan, id: BufferId) -> Option<Range<usize>> {
        let (_, offset) = self.offsets.iter().find(|(other, _)| *other == id)?;
        Some(*offset..offset + plan.buffer(id).bytes)
    }

    pub(super) fn reading(&self) -> Results<'_> {
        (self.memory.reading(), &self.offsets)
    }

    pub(super) fn writing(&mut self) -> Results<'_> {
        (self.memory.writing(), &self.offsets)
    }
}

/// Memory of results outside the arena, and the offset of each.
pub(super) type Results<'a> = (Operand<'a>, &'a [(BufferId, usize)]);

/// Memory of the buffers of a plan.
#[derive(Clone, Copy)]
pub(super) struct Buffers<'a> {
    pub(super) arena: Operand<'a>,
    pub(super) results: Option<Results<'a>>,
}

impl<'a> Buffers<'a> {
    pub(super) fn part(&self, plan: &Plan, id: BufferId) -> Result<Operand<'a>> {
        let buffer = plan.buffer(id);
        let elsewhere = self.results.and_then(|(memory, offsets)| {
            let (_, offset) = offsets.iter().find(|(other, _)| *other == id)?;
            Some((memory, *offset))
        });
        let (memory, offset) = elsewhere.unwrap_or((self.arena, buffer.offset));
        Ok(memory.part(offset..offset + buffer.bytes)?)
    }
}

/// Returns the results that kernels write to host memory, with their offsets, and the bytes of that memory.
fn layout(plan: &Plan) -> (Vec<(BufferId, usize)>, usize) {
    let (mut offsets, mut end) = (Vec::new(), 0usize);
    for &(kind, value, id) in plan.outputs() {
        let is_placed = offsets.iter().any(|&(other, _)| other == id);
        let moves = plan.has_own_storage(kind, value) || is_only_written(plan, id);
        if kind == OutputKind::Boundary || is_placed || !moves {
            continue;
        }
        offsets.push((id, end));
        end = (end + plan.buffer(id).bytes).next_multiple_of(ALIGNMENT);
    }
    (offsets, end)
}

/// Returns true if no step reads the buffer, and the step that writes it overwrites no operand.
fn is_only_written(plan: &Plan, id: BufferId) -> bool {
    plan.steps().iter().all(|step| {
        let in_place = step.in_place.is_some() && step.output() == id;
        !in_place && !step.inputs.contains(&Place::Buffer(id))
    })
}

/// Bytes of a result of a completed run.
pub(super) enum ResultBytes {
    /// A copy of the result.
    Copied(PinnedBuffer<u8>),
    /// The range of the result in the context's [`HostResults`].
    InPlace(Range<usize>),
}

/// Memory of results that were not copied, and an event after the run that wrote them.
pub(super) type WrittenResults<'a> = Option<(&'a HostResults, &'a Event)>;

impl ResultBytes {
    /// Returns a view of the bytes.
    pub(super) fn view<'a>(&'a self, written: WrittenResults<'a>) -> Result<ResultView<'a>> {
        match self {
            Self::Copied(bytes) => Ok(ResultView::Copied(bytes)),
            Self::InPlace(range) => {
                let lost = || Error::internal("results", "are not in host memory any more");
                let (results, end) = written.ok_or_else(lost)?;
                Ok(ResultView::InPlace(results.memory.host(end)?, range.clone()))
            }
        }
    }
}

/// A view of the bytes of a result.
pub(super) enum ResultView<'a> {
    Copied(&'a [u8]),
    InPlace(HostView<'a, u8>, Range<usize>),
}

impl Deref for ResultView<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Copied(bytes) => bytes,
            Self::InPlace(memory, range) => &memory[range.clone()],
        }
    }
}
