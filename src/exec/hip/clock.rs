//! Device times of a run's stages. Events are recorded only for timed runs.

use std::borrow::Cow;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::error::Result;
use crate::exec::step_args::step_args;
use crate::graph::plan::{Plan, Step};
use crate::hip::{Event, Stream};
use crate::timeline::{self, Activity, Slice, Track};

/// Callback with each stage of a finished run, and its time on the device.
pub type StageObserver<'a> = dyn FnMut(Stage<'_>, Duration) + Send + 'a;

/// A part of a run on a device.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Stage<'a> {
    /// The copy of the input to the device, and the overlapping copies from pageable to pinned memory.
    Upload,
    /// The copies of decoded images to the device, and the resizing.
    Resize,
    /// A step of the plan.
    Step(&'a Step),
    /// All steps as the replay of a captured graph.
    Replay,
    /// The copy of the results to the host.
    Download,
}

/// An event whose time is known relative to the start of a recording.
#[derive(Clone, Debug)]
pub(super) struct Anchor {
    /// Number of the recording.
    pub(super) recording: u64,
    pub(super) event: Event,
    /// Time since the start of the recording: the midpoint between submitting the event and its completion on the host.
    pub(super) at: Duration,
}

/// The [`Anchor`] of the current recording.
#[derive(Default)]
pub(super) struct AnchorCell(Mutex<Option<Anchor>>);

impl AnchorCell {
    /// Returns the anchor, measured on `stream` once per recording. `None` without a recording.
    pub(super) fn get(&self, stream: &Stream) -> Result<Option<Anchor>> {
        /// The first wait may take long. The shortest wait is the most precise.
        const TRIES: usize = 5;
        let Some((recording, origin)) = timeline::recording() else {
            return Ok(None);
        };
        let mut anchor = self.0.lock();
        if anchor.as_ref().is_none_or(|anchor| anchor.recording != recording) {
            let mut best: Option<(Duration, Duration, Event)> = None;
            for _ in 0..TRIES {
                let before = origin.elapsed();
                let event = stream.record()?;
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
}

/// Events between a run's stages.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// Events before and after the copy of the input, on its stream.
    input: Vec<Event>,
    /// Events on the compute stream: before the first step and after each step, or before and after the replay.
    steps: Vec<Event>,
    /// Event after the copies of results, if there are any.
    results: Option<Event>,
}

impl Clock {
    /// Records the start or end of the input's copy.
    pub(super) fn tick_input(&mut self, stream: &Stream) -> Result<()> {
        self.input.push(stream.record()?);
        Ok(())
    }

    pub(super) fn tick(&mut self, stream: &Stream) -> Result<()> {
        self.steps.push(stream.record()?);
        Ok(())
    }

    /// Records the end of the copies of results.
    pub(super) fn tick_results(&mut self, stream: &Stream) -> Result<()> {
        self.results = Some(stream.record()?);
        Ok(())
    }

    /// Reports the time of each stage. `input` is the stage that produced the input.
    pub(super) fn tell(&self, plan: &Plan, input: Stage<'_>, observer: &mut StageObserver<'_>) -> Result<()> {
        if let [begin, end] = &self.input[..] {
            observer(input, end.since(begin)?);
        }
        let pairs = self.steps.windows(2);
        let replayed = pairs.len() == 1 && plan.steps().len() != 1;
        for (pair, step) in pairs.zip(plan.steps()) {
            let stage = if replayed {
                Stage::Replay
            } else {
                Stage::Step(step)
            };
            observer(stage, pair[1].since(&pair[0])?);
        }
        if let (Some(computed), Some(downloaded)) = (self.steps.last(), &self.results) {
            observer(Stage::Download, downloaded.since(computed)?);
        }
        Ok(())
    }

    /// Adds each stage to the recording. `input` is the stage that produced the input; the steps are a single slice for a replay or a
    /// capture. `streams` are the copy stream and the compute stream.
    pub(super) fn record(
        &self,
        plan: &Plan,
        (input, replayed): (Stage<'_>, bool),
        anchor: &Anchor,
        device: usize,
        [copier, stream]: [u64; 2],
    ) -> Result<()> {
        let track = |stream| Track::Stream { device, stream };
        if let [begin, end] = &self.input[..] {
            let (stream, purpose, slice) = match input {
                Stage::Resize => {
                    let args = json!({ "images": plan.batch() });
                    let name = "images: HtoD copies and resize";
                    (stream, "compute", slice(Activity::DeviceResize, name, args))
                }
                _ => {
                    let args = json!({ "bytes": plan.input_bytes(), "kind": "HtoD" });
                    (
                        copier,
                        "copy in",
                        slice(Activity::CopyIn, "input: HtoD copy", args),
                    )
                }
            };
            let slice = Slice {
                track: track(stream),
                start: anchor.at + begin.since(&anchor.event)?,
                duration: end.since(begin)?,
                ..slice
            };
            timeline::add([slice], Some((device, stream, purpose)));
        }
        let steps = &self.steps[..];
        let Some(first) = steps.first() else {
            return Ok(());
        };
        // Relative to the first event: times relative to the start of the recording would be rounded to microseconds.
        let begin = anchor.at + first.since(&anchor.event)?;
        let place = |slice: Slice, from: &Event, to: &Event| {
            Ok::<_, crate::Error>(Slice {
                track: track(stream),
                start: begin + from.since(first)?,
                duration: to.since(from)?,
                ..slice
            })
        };
        let mut slices = Vec::new();
        match steps {
            [from, to] if plan.steps().len() != 1 => {
                let args = json!({ "steps": plan.steps().len(), "batch": plan.batch() });
                let replay = if replayed {
                    slice(Activity::Replay, "graph replay", args)
                } else {
                    slice(
                        Activity::Capture,
                        "capture: steps, and a replay that is compared",
                        args,
                    )
                };
                slices.push(place(replay, from, to)?);
            }
            _ => {
                for (pair, step) in steps.windows(2).zip(plan.steps()) {
                    let node = plan.node(step);
                    let args = Value::Object(step_args(plan, step));
                    let name = node.name.clone();
                    slices.push(place(
                        slice(Activity::Step(node.role), name, args),
                        &pair[0],
                        &pair[1],
                    )?);
                }
            }
        }
        if let (Some(computed), Some(downloaded)) = (steps.last(), &self.results) {
            let results = super::results::results(plan);
            let bytes: usize = results.map(|(.., id)| plan.buffer(id).bytes).sum();
            let args = json!({ "bytes": bytes, "kind": "DtoH" });
            let copy = slice(Activity::CopyOut, "results: DtoH copy", args);
            slices.push(place(copy, computed, downloaded)?);
        }
        timeline::add(slices, Some((device, stream, "compute")));
        Ok(())
    }
}

/// Creates a slice without stream and time.
fn slice(activity: Activity, name: impl Into<Cow<'static, str>>, args: Value) -> Slice {
    Slice {
        track: Track::Thread(0),
        activity,
        name: name.into(),
        start: Duration::ZERO,
        duration: Duration::ZERO,
        args: match args {
            Value::Object(args) => args,
            _ => Map::new(),
        },
    }
}
