//! A run of a plan: its memory, its input, its steps, its results.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use ndarray::Array2;
use parking_lot::MutexGuard;
use rayon::ThreadPool;
use serde::{Deserialize, Serialize};

use super::clock::{Anchor, Clock};
use super::context::{ExecutionContext, Memory};
use super::steps::{Submitted, is_overwritten};
use super::tensor::RankStream;
use super::{HipExecutor, Stage, StageObserver, staging, unpack};
use crate::error::{Error, Result};
use crate::exec::slabs::{Images, Slabs};
use crate::graph::plan::{BufferId, Plan};
use crate::graph::{OutputKind, ValueId, matrix};
use crate::hip::{self, Event, ForeignMemory, Operand, Pending, PinnedBuffer};
use crate::timeline::{self, Activity};

/// A context with the memory for a run of a plan.
pub(crate) struct Reserved<P> {
    pub(super) plan: P,
    pub(super) context: ExecutionContext,
}

impl<P> Reserved<P> {
    pub(in crate::exec) fn plan(&self) -> &P {
        &self.plan
    }
}

/// What a run takes its input from.
pub(in crate::exec) enum Feed<'a> {
    /// The plan's input, in pinned memory.
    Pinned(PinnedBuffer<u8>),
    /// The plan's input, in any memory.
    Pageable(&'a [u8]),
    /// Decoded images, which the device resizes.
    Images(Images<'a>),
    /// What the stage before left, on its device.
    Activations(Operand<'a>),
    /// The plan's input, on this device, in memory of the caller's.
    Device(ForeignMemory),
}

/// How a run is carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Submission {
    /// Each stage is timed.
    pub(crate) timed: bool,
    /// Whoever waits for the run sleeps, and leaves the core to others, such as threads that decode.
    pub(crate) sleeps: bool,
    /// Results stay on the device: to the host go logits and embeddings alone, which tell whether a replay wrote them.
    pub(crate) on_device: bool,
}

/// What [`HipExecutor::finish_on_device`] gives results to.
pub(in crate::exec) type KeepResult<'a> = dyn FnMut(usize, Operand<'_>) -> Result<()> + 'a;

/// Pinned memory in copies to the device.
pub(super) type Uploaded = Pending<Vec<PinnedBuffer<u8>>>;

/// What a run leaves.
pub(in crate::exec) struct Finished {
    pub(in crate::exec) outputs: Vec<(OutputKind, Array2<f32>)>,
    /// The pinned memory that it was fed with, or staged in.
    pub(in crate::exec) memory: Vec<PinnedBuffer<u8>>,
}

/// A run whose input is on its way, and whose steps come next.
pub(super) struct Begun<P> {
    uploads: VecDeque<Uploaded>,
    entry: Stage<'static>,
    clock: Option<Clock>,
    anchor: Option<Anchor>,
    pub(super) plan: P,
    pub(super) context: ExecutionContext,
}

/// A run that was submitted. Dropping it waits for its copies.
pub(crate) struct Running<P> {
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
    /// Pinned memory for an input of `bytes` bytes.
    pub(in crate::exec) fn stage(&self, bytes: usize) -> Result<PinnedBuffer<u8>> {
        // The lock is released before the driver is asked for memory.
        let unused = self.inputs.lock().reuse(bytes)?;
        match unused {
            Some(buffer) => Ok(buffer),
            None => self.pinned(bytes),
        }
    }

    /// Pinned memory for decoded images.
    pub(in crate::exec) fn slabs(&self) -> &Arc<Slabs> {
        &self.slabs
    }

    /// Pinned memory for an input of `bytes` bytes that the caller keeps; zero.
    pub(in crate::exec) fn pinned(&self, bytes: usize) -> Result<PinnedBuffer<u8>> {
        Ok(self.device.pinned(bytes)?)
    }

    /// Takes pinned memory back, for the inputs of later runs.
    pub(in crate::exec) fn keep(&self, memory: Vec<PinnedBuffer<u8>>) {
        let (pieces, inputs): (Vec<_>, Vec<_>) = memory.into_iter().partition(staging::is_piece);
        self.pieces.keep(pieces);
        let mut pool = self.inputs.lock();
        inputs.into_iter().for_each(|input| pool.keep(input));
    }

    /// A context with all the device memory that a run of `plan` needs.
    pub(in crate::exec) fn reserve<P: Deref<Target = Plan>>(&self, plan: P) -> Result<Reserved<P>> {
        self.reserve_on(plan, self.rank.as_ref().map(|rank| &rank.first))
    }

    /// The same on a rank's stream.
    pub(super) fn reserve_on<P: Deref<Target = Plan>>(
        &self,
        plan: P,
        on: Option<&RankStream>,
    ) -> Result<Reserved<P>> {
        if plan.dtype() != self.dtype {
            let reason = format!(
                "the plan requires {}, the executor has {}",
                plan.dtype(),
                self.dtype
            );
            return Err(Error::argument("dtype", reason));
        }
        let mut context = self.context(&plan, on);
        let again = match &self.rank {
            // All or none, so that all ranks keep the same contexts, with the same captured graphs.
            Some(_) => !self.agree(context.is_ok()),
            None => context.as_ref().is_err_and(is_out_of_memory),
        };
        if again {
            drop(context);
            // Idle contexts may hold the missing memory.
            let idle = std::mem::take(&mut *self.contexts());
            drop(idle);
            context = self.context(&plan, on);
            if self.rank.is_some() && !self.agree(context.is_ok()) {
                context = Err(context.err().unwrap_or(Error::Argument {
                    what: OTHER_RANK,
                    reason: "another GPU of the model has none for the run".into(),
                }));
            }
        }
        let context = context?;
        Ok(Reserved { plan, context })
    }

    fn context(&self, plan: &Plan, on: Option<&RankStream>) -> Result<ExecutionContext> {
        let allocating = timeline::span(Activity::Allocate);
        let input = plan.input_bytes();
        let idle = {
            let mut contexts = self.contexts();
            let fits = |context: &ExecutionContext| on.is_none_or(|on| context.stream == *on.comm.stream());
            let found = contexts.iter().rposition(fits);
            found.map(|index| contexts.swap_remove(index))
        };
        let mut context = match idle {
            Some(mut context) => {
                context.fit(plan, input)?;
                context
            }
            None => ExecutionContext::new(&self.device, plan, input, on)?,
        };
        drop(allocating);
        let _span = timeline::span(Activity::Select);
        context.libraries.open(plan, &self.selection)?;
        Ok(context)
    }

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
        let mut begun = self.begin(reserved, feed, threads, how)?;
        let Begun {
            plan, context, clock, ..
        } = &mut begun;
        let submitted = match &self.turn {
            None => self.compute(context, plan, clock)?,
            Some(turn) => {
                let mut last = turn.lock();
                if let Some(last) = &*last {
                    context.stream.wait(last)?;
                }
                let submitted = self.compute(context, plan, clock)?;
                *last = Some(context.stream.mark()?);
                submitted
            }
        };
        self.end(begun, submitted, how)
    }

    /// Submits a run's input.
    pub(super) fn begin<P: Deref<Target = Plan>>(
        &self,
        reserved: Reserved<P>,
        feed: Feed<'_>,
        threads: &ThreadPool,
        how: Submission,
    ) -> Result<Begun<P>> {
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
        Ok(Begun {
            uploads,
            entry,
            clock,
            anchor,
            plan,
            context,
        })
    }

    /// Submits the copies of the results, once its steps are submitted.
    pub(super) fn end<P: Deref<Target = Plan>>(
        &self,
        begun: Begun<P>,
        submitted: Submitted,
        how: Submission,
    ) -> Result<Running<P>> {
        let Begun {
            uploads,
            entry,
            mut clock,
            anchor,
            plan,
            mut context,
        } = begun;
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

    /// Submits the copy of the input, or the resizing that produces it.
    pub(super) fn feed(
        &self,
        context: &mut ExecutionContext,
        plan: &Plan,
        feed: Feed<'_>,
        threads: &ThreadPool,
        clock: &mut Option<Clock>,
    ) -> Result<VecDeque<Uploaded>> {
        let expect = |bytes: usize| match bytes == plan.input_bytes() {
            true => Ok(()),
            false => {
                let reason = format!("has {bytes} bytes, expected {}", plan.input_bytes());
                Err(Error::argument("input", reason))
            }
        };
        // Where runs wait for each other on one stream, copies do not wait with them.
        let Memory { input, ahead, .. } = &mut context.memory;
        let target = ahead.as_mut().unwrap_or(&mut *input);
        let stream = match feed {
            Feed::Pinned(_) | Feed::Pageable(_) => self.copier.clone(),
            Feed::Images(_) => context.stream.clone(),
            Feed::Activations(_) => target.stream().clone(),
            Feed::Device(ref source) => source.stream().clone(),
        };
        let mut tick = || clock.as_mut().map_or(Ok(()), |clock| clock.tick_input(&stream));
        let uploads = match feed {
            Feed::Pinned(input) => {
                expect(input.len())?;
                tick()?;
                let mut uploads = target.uploads_on(&stream)?;
                uploads.push(0, input)?;
                VecDeque::from([uploads.finish()?])
            }
            Feed::Pageable(input) => {
                expect(input.len())?;
                tick()?;
                let uploads = target.uploads_on(&stream)?;
                let mut submitted = VecDeque::new();
                let with = (&self.device, threads);
                self.pieces.upload(uploads, &[input], with, &mut submitted)?;
                submitted
            }
            Feed::Device(source) => {
                expect(source.bytes())?;
                tick()?;
                let mut uploads = target.uploads_on(&stream)?;
                uploads.push_foreign(0, &source)?;
                VecDeque::from([uploads.finish()?])
            }
            Feed::Activations(source) => {
                expect(source.bytes())?;
                tick()?;
                target.copy_part_from_peer(0, source)?;
                VecDeque::new()
            }
            Feed::Images(images) => {
                let Some(resize) = &self.resize else {
                    let reason = "the executor has no rule to resize them by";
                    return Err(Error::argument("images", reason));
                };
                resize.check(plan, images.images.len())?;
                tick()?;
                let uploads = context.resize(resize, images, &self.pieces, threads)?;
                tick()?;
                return Ok(uploads);
            }
        };
        tick()?;
        if let Some(ahead) = ahead {
            input.copy_part_from_peer(0, ahead.reading().part(0..plan.input_bytes())?)?;
        }
        Ok(uploads)
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

    pub(super) fn contexts(&self) -> MutexGuard<'_, Vec<ExecutionContext>> {
        self.contexts.lock()
    }
}

/// What [`is_out_of_memory`] knows the error by of ranks that have the memory which another rank has not.
const OTHER_RANK: &str = "memory";

/// Whether there was no memory for a run, on this rank or another.
pub(super) fn is_out_of_memory(error: &Error) -> bool {
    matches!(
        error,
        Error::Hip(hip::Error::OutOfMemory { .. }) | Error::Argument { what: OTHER_RANK, .. }
    )
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
