//! A run of a plan: its input, its steps and the copies of its results are submitted, and it is waited for later.

use std::collections::VecDeque;
use std::ops::Deref;
use std::time::Duration;

use ndarray::Array2;
use rayon::ThreadPool;
use serde::{Deserialize, Serialize};

use super::clock::{Anchor, Clock};
use super::context::ExecutionContext;
use super::feed::{Feed, Uploaded};
use super::reserve::Reserved;
use super::steps::{Submitted, is_overwritten};
use super::{HipExecutor, Stage, StageObserver, unpack};
use crate::error::{Error, Result};
use crate::graph::plan::{BufferId, Plan};
use crate::graph::{OutputKind, ValueId, matrix};
use crate::hip::{self, Event, Operand, Pending, PinnedBuffer};
use crate::timeline::{self, Activity};

/// How a run is carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Submission {
    /// Each stage is timed.
    pub timed: bool,
    /// Whoever waits for the run sleeps, and leaves the core to others, such as threads that decode.
    pub sleeps: bool,
    /// Results stay on the device: to the host go logits and embeddings alone, which tell whether a replay wrote them.
    pub on_device: bool,
}

/// What [`HipExecutor::finish_on_device`] gives results to.
pub(in crate::exec) type KeepResult<'a> = dyn FnMut(usize, Operand<'_>) -> Result<()> + 'a;

/// What a run leaves.
pub(in crate::exec) struct Finished {
    pub(in crate::exec) outputs: Vec<(OutputKind, Array2<f32>)>,
    /// The pinned memory that it was fed with, or staged in.
    pub(in crate::exec) memory: Vec<PinnedBuffer<u8>>,
}

/// A run that was submitted. Dropping it waits for its copies.
pub struct Running<P> {
    uploads: VecDeque<Uploaded>,
    downloads: Vec<Pending<PinnedBuffer<u8>>>,
    /// What provided the input.
    entry: Stage<'static>,
    /// The run's end, for a thread that sleeps.
    end: Option<Event>,
    clock: Option<Clock>,
    anchor: Option<Anchor>,
    submitted: Submitted,
    on_device: bool,
    plan: P,
    context: ExecutionContext,
}

impl<P> Running<P> {
    pub(in crate::exec) fn plan(&self) -> &P {
        &self.plan
    }

    /// Where the device has done with it.
    pub(in crate::exec) fn end(&self) -> Option<Event> {
        self.downloads.last().map(|last| last.event().clone())
    }
}

impl<P: Deref<Target = Plan>> Running<P> {
    /// What the next stage of the model reads, if there is one.
    pub(super) fn boundary(&self) -> Option<Operand<'_>> {
        match &self.context.memory.handed_on {
            Some(copy) => {
                let bytes = self.plan.buffer(boundary(&self.plan)?).bytes;
                // The context's copy has at least the plan's size.
                copy.reading().part(0..bytes).ok()
            }
            None => handed_on(&self.plan, &self.context),
        }
    }
}

/// A run that the device has done with, and whose results are still bytes.
pub(super) struct Waited<P> {
    uploads: VecDeque<Uploaded>,
    /// Those that [`downloaded`] lists.
    pub(super) results: Vec<PinnedBuffer<u8>>,
    pub(super) on_device: bool,
    entry: Stage<'static>,
    clock: Option<Clock>,
    pub(super) submitted: Submitted,
    pub(super) plan: P,
    pub(super) context: ExecutionContext,
}

impl<P: Deref<Target = Plan>> Waited<P> {
    /// What the next stage of the model read, if there is one.
    pub(super) fn boundary(&self) -> Option<Operand<'_>> {
        handed_on(&self.plan, &self.context)
    }

    /// Whether logits or embeddings have a NaN.
    pub(super) fn have_nan(&self) -> bool {
        let mut results = downloaded(&self.plan, self.on_device).zip(&self.results);
        results.any(|((kind, _, id), bytes)| {
            let values = || unpack(bytes, self.plan.buffer(id).dtype);
            is_overwritten(kind) && values().iter().any(|value| value.is_nan())
        })
    }
}

fn handed_on<'a>(plan: &Plan, context: &'a ExecutionContext) -> Option<Operand<'a>> {
    let buffer = plan.buffer(boundary(plan)?);
    let arena = context.memory.arena.reading();
    // The context's arena has at least the plan's size.
    arena.part(buffer.offset..buffer.offset + buffer.bytes).ok()
}

impl HipExecutor {
    /// Submits a run; `threads` copy input that is in pageable memory.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the feed is not what the plan takes, or if there is no rule to resize images by;
    /// [`Error::Graph`], naming the node and the device, if a step cannot be submitted.
    pub(in crate::exec) fn submit<P: Deref<Target = Plan>>(
        &self,
        reserved: Reserved<P>,
        feed: Feed<'_>,
        threads: &ThreadPool,
        how: Submission,
    ) -> Result<Running<P>> {
        let Reserved { plan, mut context } = reserved;
        // A context with an error is dropped.
        let anchor = self.anchor()?.filter(|_| how.timed);
        let mut clock = how.timed.then(Clock::default);
        let _span = timeline::named_span(Activity::Submit, || "submit batch".into());
        let entry = match feed {
            Feed::Images(_) => Stage::Resize,
            _ => Stage::Upload,
        };
        let uploads = self.feed(&mut context, &plan, feed, threads, &mut clock)?;
        let submitted = match &self.turn {
            None => self.compute(&mut context, &plan, &mut clock)?,
            Some(turn) => {
                let mut last = turn.lock();
                if let Some(last) = &*last {
                    context.stream.wait(last)?;
                }
                let submitted = self.compute(&mut context, &plan, &mut clock)?;
                *last = Some(context.stream.mark()?);
                submitted
            }
        };
        if let Some(copy) = &mut context.memory.handed_on
            && let Some(id) = boundary(&plan)
        {
            let buffer = plan.buffer(id);
            let arena = context.memory.arena.reading();
            copy.copy_part_from_peer(0, arena.part(buffer.offset..buffer.offset + buffer.bytes)?)?;
        }
        let downloads = self.download(&mut context, &plan, how.on_device)?;
        if let Some(clock) = &mut clock {
            clock.tick(&context.stream)?;
        }
        let end = how.sleeps.then(|| context.stream.mark_blocking()).transpose()?;
        Ok(Running {
            uploads,
            downloads,
            entry,
            end,
            clock,
            anchor,
            submitted,
            on_device: how.on_device,
            plan,
            context,
        })
    }

    /// The event whose time a recording knows; `None` without a recording.
    fn anchor(&self) -> Result<Option<Anchor>> {
        let Some((recording, origin)) = timeline::recording() else {
            return Ok(None);
        };
        let mut anchor = self.anchor.lock();
        if anchor.as_ref().is_none_or(|anchor| anchor.recording != recording) {
            /// The first wait may take long; the shortest tells the most.
            const TRIES: usize = 5;
            let mut best: Option<(Duration, Duration, Event)> = None;
            for _ in 0..TRIES {
                let before = origin.elapsed();
                let event = self.copier.record()?;
                event.synchronize()?;
                let took = origin.elapsed() - before;
                if best.as_ref().is_none_or(|&(least, ..)| took < least) {
                    best = Some((took, before + took / 2, event));
                }
            }
            *anchor = best.map(|(_, at, event)| Anchor { recording, event, at });
        }
        Ok(anchor.clone())
    }

    /// Waits for a run, and checks it if that is due.
    pub(in crate::exec) fn finish<P: Deref<Target = Plan>>(
        &self,
        running: Running<P>,
        observer: Option<&mut StageObserver<'_>>,
    ) -> Result<Finished> {
        let mut waited = self.wait(running)?;
        self.check(&mut waited, false)?;
        self.conclude(waited, observer)
    }

    /// As [`finish`](Self::finish), of a run whose results stay on the device: `keep` gets each, with its place in the plan's outputs,
    /// where it lies before the memory serves other runs.
    pub(in crate::exec) fn finish_on_device<P: Deref<Target = Plan>>(
        &self,
        running: Running<P>,
        observer: Option<&mut StageObserver<'_>>,
        keep: &mut KeepResult<'_>,
    ) -> Result<Finished> {
        let mut waited = self.wait(running)?;
        self.check(&mut waited, false)?;
        let arena = waited.context.memory.arena.reading();
        for (index, &(_, _, id)) in waited.plan.outputs().iter().enumerate() {
            let buffer = waited.plan.buffer(id);
            keep(index, arena.part(buffer.offset..buffer.offset + buffer.bytes)?)?;
        }
        self.conclude(waited, observer)
    }

    /// Waits for a run.
    pub(super) fn wait<P: Deref<Target = Plan>>(&self, running: Running<P>) -> Result<Waited<P>> {
        let Running {
            uploads,
            downloads,
            entry,
            end,
            clock,
            anchor,
            submitted,
            on_device,
            plan,
            context,
        } = running;
        let waiting = timeline::span(Activity::Wait);
        if let Some(end) = end {
            end.synchronize()?;
        }
        let results = downloads
            .into_iter()
            .map(Pending::wait)
            .collect::<hip::Result<_>>()?;
        drop(waiting);
        if let (Some(clock), Some(anchor)) = (&clock, anchor) {
            let streams = [self.copier.id(), context.stream.id()];
            let replayed = matches!(submitted, Submitted::Replay(_));
            clock.record(&plan, (entry, replayed), &anchor, self.device.ordinal(), streams)?;
        }
        Ok(Waited {
            uploads,
            results,
            on_device,
            entry,
            clock,
            submitted,
            plan,
            context,
        })
    }

    /// The results of a run, whose context serves others from now on.
    pub(super) fn conclude<P: Deref<Target = Plan>>(
        &self,
        waited: Waited<P>,
        observer: Option<&mut StageObserver<'_>>,
    ) -> Result<Finished> {
        let Waited {
            uploads,
            results,
            on_device,
            entry,
            clock,
            plan,
            mut context,
            ..
        } = waited;
        let unpacking = timeline::named_span(Activity::CopyOut, || "results to f32".into());
        let mut outputs = Vec::with_capacity(results.len());
        for ((kind, value, id), bytes) in downloaded(&plan, on_device).zip(results) {
            let name = &plan.graph().value(value).name;
            let buffer = plan.buffer(id);
            let values = unpack(&bytes, buffer.dtype);
            context.results.keep(bytes);
            let matrix = matrix(&buffer.shape, values);
            outputs.push((kind, matrix.map_err(|e| Error::graph(name, e))?));
        }
        drop(unpacking);
        let mut memory = Vec::new();
        for upload in uploads {
            memory.extend(upload.wait()?);
        }
        if let (Some(clock), Some(observer)) = (clock, observer) {
            clock.tell(&plan, entry, observer)?;
        }
        self.contexts().push(context);
        Ok(Finished { outputs, memory })
    }

    pub(super) fn download(
        &self,
        context: &mut ExecutionContext,
        plan: &Plan,
        on_device: bool,
    ) -> Result<Vec<Pending<PinnedBuffer<u8>>>> {
        let ExecutionContext { memory, results, .. } = context;
        let download = |(_, _, id): (OutputKind, _, _)| {
            let buffer = plan.buffer(id);
            let target = results.take(buffer.bytes, &self.device)?;
            Ok(memory.arena.download(buffer.offset, target)?)
        };
        downloaded(plan, on_device).map(download).collect()
    }
}

/// What the next stage of the model reads, if there is one.
pub(super) fn boundary(plan: &Plan) -> Option<BufferId> {
    let mut outputs = plan.outputs().iter().rev();
    let (_, _, id) = outputs.find(|(kind, ..)| *kind == OutputKind::Boundary)?;
    Some(*id)
}

/// The results that go to the host: all, or those that a replay overwrites.
pub(super) fn downloaded(
    plan: &Plan,
    on_device: bool,
) -> impl Iterator<Item = (OutputKind, ValueId, BufferId)> {
    results(plan).filter(move |&(kind, ..)| !on_device || is_overwritten(kind))
}

/// All but what the next stage reads.
pub(super) fn results(plan: &Plan) -> impl Iterator<Item = (OutputKind, ValueId, BufferId)> {
    let outputs = plan.outputs().iter().copied();
    outputs.filter(|(kind, ..)| *kind != OutputKind::Boundary)
}
