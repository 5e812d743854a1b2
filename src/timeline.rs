//! Records what the process does when, for `hipvit profile` and for external profilers.
//!
//! A [`span`] names a slice of time on a thread. A [`Recording`] collects the spans of all threads. Executors add
//! slices of GPU streams, measured by events. An external profiler gets a roctx or NVTX range per span
//! (`open_markers`).
//!
//! If nothing records and no profiler listens, opening a span only reads one atomic number.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::graph::Role;
use crate::hip::{self, Markers};

/// Activity that a slice of time is spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Activity {
    /// Opening the device and the provider's libraries.
    OpenDevice,
    /// Reading the model's files and building its graph.
    ReadModel,
    /// Running the passes over the graph.
    Optimize,
    /// Compiling or loading the code of kernels.
    LoadKernels,
    /// Converting the weights and copying them to the device. On the CPU, prepacking them.
    Weights,
    /// Laying out a plan for a batch size.
    Plan,
    /// Opening the compute libraries and preparing the selected calls.
    Select,
    /// Allocating device memory or pinned memory.
    Allocate,
    /// Capturing a graph and comparing its first replay with the steps.
    Capture,
    /// Comparing a replay with the steps.
    CheckReplay,
    /// Reading and decoding an image.
    Decode,
    /// Resizing and cropping an image.
    Resize,
    /// Copying to pinned memory, from which a GPU copies.
    Stage,
    /// Submitting a batch. On the CPU, the run that encloses the steps.
    Submit,
    /// Copying a batch to the device.
    CopyIn,
    /// Copying decoded images to the device and resizing them there.
    DeviceResize,
    /// One step of the plan.
    Step(Role),
    /// All steps, replayed as a captured graph.
    Replay,
    /// A kernel or library call within a replay. Its time is an estimate.
    Call(Role),
    /// A kernel or library call within a step, where the step is timed as a whole. Its time is an estimate.
    PartOfStep,
    /// Copying results to the host.
    CopyOut,
    /// Converting logits to labels.
    PostProcess,
    /// Waiting for a batch.
    Wait,
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::OpenDevice => "open device",
            Self::ReadModel => "read model",
            Self::Optimize => "graph optimisation",
            Self::LoadKernels => "load kernels",
            Self::Weights => "weights",
            Self::Plan => "plan",
            Self::Select => "selection",
            Self::Allocate => "allocation",
            Self::Capture => "graph capture",
            Self::CheckReplay => "replay check",
            Self::Decode => "decode",
            Self::Resize => "resize",
            Self::Stage => "staging",
            Self::Submit => "API overhead",
            Self::CopyIn => "copy in",
            Self::DeviceResize => "resize on device",
            Self::Step(Role::Patch) | Self::Call(Role::Patch) => "patch embedding",
            Self::Step(Role::Qkv) | Self::Call(Role::Qkv) => "QKV",
            Self::Step(Role::Attention) | Self::Call(Role::Attention) => "attention",
            Self::Step(Role::Ffn) | Self::Call(Role::Ffn) => "FFN",
            Self::Step(Role::Other) | Self::Call(Role::Other) => "other steps",
            Self::Replay => "graph replay",
            Self::PartOfStep => "part of a step",
            Self::CopyOut => "copy out",
            Self::PostProcess => "post-processing",
            Self::Wait => "wait",
        })
    }
}

/// Row of the timeline that a slice belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Track {
    /// A thread of the host, by its number in the recording.
    Thread(u64),
    /// A stream of a GPU.
    Stream {
        /// Index of the GPU.
        device: usize,
        /// Number of the stream, unique in the process.
        stream: u64,
    },
    /// Kernels and library calls within the steps and replays of a stream. Their times are estimates.
    Estimated {
        /// Index of the GPU.
        device: usize,
        /// Number of the stream, unique in the process.
        stream: u64,
    },
}

/// A named slice of time on a track.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    /// Track that the slice belongs to.
    pub track: Track,
    /// Activity that the time is spent on.
    pub activity: Activity,
    /// Name shown on the track.
    pub name: Cow<'static, str>,
    /// Start time, relative to the start of the recording.
    pub start: Duration,
    /// Duration of the slice.
    pub duration: Duration,
    /// Further named values, such as sizes.
    pub args: Map<String, Value>,
}

impl Slice {
    /// Returns the end time, relative to the start of the recording.
    pub fn end(&self) -> Duration {
        self.start + self.duration
    }
}

/// Flag: a recording collects slices.
const RECORDS: u8 = 1;
/// Flag: a profiler gets ranges.
const MARKS: u8 = 2;

/// Consumers of spans: a combination of `RECORDS` and `MARKS`.
static WANTED: AtomicU8 = AtomicU8::new(0);
static RECORDED: Mutex<Option<Recorded>> = Mutex::new(None);
static MARKERS: OnceLock<Markers> = OnceLock::new();

struct Recorded {
    id: u64,
    origin: Instant,
    slices: Vec<Slice>,
    threads: BTreeMap<u64, String>,
    streams: BTreeMap<(usize, u64), String>,
}

/// Records the spans of all threads until it is [finished](Self::finish) or dropped.
#[derive(Debug)]
pub struct Recording {
    id: u64,
    origin: Instant,
}

/// Result of a [`Recording`].
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// Slices ordered by start time. If several start together, the longest comes first.
    pub slices: Vec<Slice>,
    /// Names of the threads, by number.
    pub threads: BTreeMap<u64, String>,
    /// Purpose of each stream, by GPU and stream number.
    pub streams: BTreeMap<(usize, u64), String>,
}

impl Recording {
    /// Starts a recording.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] if another recording is in progress, because a process has at most one.
    pub fn start() -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let mut recorded = RECORDED.lock();
        if recorded.is_some() {
            return Err(Error::argument(
                "recording",
                "another recording is in progress in this process",
            ));
        }
        let origin = Instant::now();
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        *recorded = Some(Recorded {
            id,
            origin,
            slices: Vec::new(),
            threads: BTreeMap::new(),
            streams: BTreeMap::new(),
        });
        WANTED.fetch_or(RECORDS, Ordering::Release);
        Ok(Self { id, origin })
    }

    /// Returns the time since the start of the recording.
    pub fn elapsed(&self) -> Duration {
        self.origin.elapsed()
    }

    fn take(&self) -> Option<Recorded> {
        let mut recorded = RECORDED.lock();
        let mine = recorded.take_if(|recorded| recorded.id == self.id);
        if mine.is_some() {
            WANTED.fetch_and(!RECORDS, Ordering::Release);
        }
        mine
    }

    /// Stops recording and returns the timeline.
    pub fn finish(self) -> Timeline {
        let Some(recorded) = self.take() else {
            return Timeline::default();
        };
        let mut slices = recorded.slices;
        slices.sort_by_key(|slice| (slice.start, std::cmp::Reverse(slice.duration)));
        Timeline {
            slices,
            threads: recorded.threads,
            streams: recorded.streams,
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.take();
    }
}

/// Returns true if slices are recorded.
pub(crate) fn is_recording() -> bool {
    WANTED.load(Ordering::Acquire) & RECORDS != 0
}

/// Returns the id and start time of the current recording.
pub(crate) fn recording() -> Option<(u64, Instant)> {
    let recorded = is_recording().then(|| RECORDED.lock())?;
    recorded.as_ref().map(|recorded| (recorded.id, recorded.origin))
}

/// Adds measured slices to the current recording, if there is one. `stream` has the GPU, the number and the purpose of
/// their stream.
pub(crate) fn add(slices: impl IntoIterator<Item = Slice>, stream: Option<(usize, u64, &str)>) {
    if let Some(recorded) = RECORDED.lock().as_mut() {
        recorded.slices.extend(slices);
        if let Some((device, stream, purpose)) = stream {
            let name = recorded.streams.entry((device, stream));
            name.or_insert_with(|| purpose.to_owned());
        }
    }
}

/// Adds a slice of this thread that has just ended to the current recording, if there is one.
pub(crate) fn add_ended(
    activity: Activity,
    name: impl FnOnce() -> Cow<'static, str>,
    duration: Duration,
    args: impl FnOnce() -> Map<String, Value>,
) {
    if is_recording() {
        let end = Instant::now();
        record(
            activity,
            name(),
            end.checked_sub(duration).unwrap_or(end),
            end,
            args(),
        );
    }
}

fn record(
    activity: Activity,
    name: Cow<'static, str>,
    start: Instant,
    end: Instant,
    args: Map<String, Value>,
) {
    let thread = this_thread();
    if let Some(recorded) = RECORDED.lock().as_mut() {
        // Ignore what began before the recording.
        let Some(from) = start.checked_duration_since(recorded.origin) else {
            return;
        };
        recorded.threads.entry(thread).or_insert_with(|| {
            let name = std::thread::current().name().map(str::to_owned);
            name.unwrap_or_else(|| format!("thread {thread}"))
        });
        recorded.slices.push(Slice {
            track: Track::Thread(thread),
            activity,
            name,
            start: from,
            duration: end - start,
            args,
        });
    }
}

fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

/// The reason why a profiler gets no ranges.
#[derive(Debug, thiserror::Error)]
enum MarkersError {
    /// The variable has another value.
    #[error(
        "is `{0}`: 1 gives a profiler ranges, 0 never does; unset, a profiler that started the process gets them"
    )]
    Value(String),
    /// The provider has no roctx.
    #[error("{0}; unset it to run without ranges for a profiler")]
    Provider(hip::Error),
}

/// Lets a profiler see spans as ranges.
///
/// | `HIPVIT_ROCTX` | ranges |
/// | --- | --- |
/// | unset | if [`Markers::profiler`] says that the process was started by a profiler that shows them |
/// | `1` | always |
/// | `0` | never |
///
/// # Errors
///
/// Returns [`Error::Argument`] if `HIPVIT_ROCTX` is `1` but the provider has no roctx, or if it has another value.
pub(crate) fn open_markers() -> Result<()> {
    static OPENED: OnceLock<Result<(), MarkersError>> = OnceLock::new();
    const VARIABLE: &str = "HIPVIT_ROCTX";
    let open = || {
        let asked = match std::env::var(VARIABLE).as_deref() {
            Err(_) | Ok("") => false,
            Ok("0") => return Ok(()),
            Ok("1") => true,
            Ok(other) => {
                return Err(MarkersError::Value(other.to_owned()));
            }
        };
        if !asked && Markers::profiler().is_none() {
            return Ok(());
        }
        match Markers::open() {
            Ok(markers) => {
                let _ = MARKERS.set(markers);
                WANTED.fetch_or(MARKS, Ordering::Release);
                Ok(())
            }
            // The detected profiler may not need ranges.
            Err(_) if !asked => Ok(()),
            Err(error) => Err(MarkersError::Provider(error)),
        }
    };
    let opened = OPENED.get_or_init(open).as_ref();
    opened.copied().map_err(|error| Error::argument(VARIABLE, error))
}

/// Begins a span, which ends when it is dropped.
#[must_use]
pub fn span(activity: Activity) -> Span {
    named_span(activity, || activity.to_string().into())
}

/// Begins a span like [`span`], with the given name instead of the activity's.
#[must_use]
pub fn named_span(activity: Activity, name: impl FnOnce() -> Cow<'static, str>) -> Span {
    let wanted = WANTED.load(Ordering::Acquire);
    let open = (wanted != 0).then(|| {
        let name = name();
        let marked = if wanted & MARKS != 0 { MARKERS.get() } else { None };
        if let Some(markers) = marked {
            markers.begin(&name);
        }
        Open {
            activity,
            name,
            start: Instant::now(),
            marked,
            args: Map::new(),
        }
    });
    Span {
        open,
        of_thread: PhantomData,
    }
}

/// A span of the current thread.
#[derive(Debug)]
pub struct Span {
    open: Option<Open>,
    /// Makes the span `!Send`, because profiler ranges belong to a thread.
    of_thread: PhantomData<*const ()>,
}

#[derive(Debug)]
struct Open {
    activity: Activity,
    name: Cow<'static, str>,
    start: Instant,
    marked: Option<&'static Markers>,
    args: Map<String, Value>,
}

impl Span {
    /// Adds a named value to the span.
    pub fn arg(&mut self, name: &str, value: impl Into<Value>) {
        if let Some(open) = &mut self.open {
            open.args.insert(name.to_owned(), value.into());
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let Some(open) = self.open.take() else { return };
        if is_recording() {
            record(open.activity, open.name, open.start, Instant::now(), open.args);
        }
        if let Some(markers) = open.marked {
            markers.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_recorded_on_their_threads_and_nest() {
        let recording = Recording::start().unwrap();
        assert!(Recording::start().is_err());
        {
            let _outer = named_span(Activity::Submit, || "outer of this test".into());
            let mut inner = named_span(Activity::Stage, || "inner of this test".into());
            inner.arg("bytes", 3);
        }
        let named = std::thread::Builder::new().name("worker".into());
        let worker = named.spawn(|| drop(span(Activity::Decode))).unwrap();
        worker.join().unwrap();
        let timeline = recording.finish();
        // The timeline may also contain spans of other tests' threads.
        let find = |name| timeline.slices.iter().find(|s| s.name == name).unwrap();
        let (outer, inner) = (find("outer of this test"), find("inner of this test"));
        assert_eq!(inner.args["bytes"], 3);
        assert!(outer.start <= inner.start && inner.end() <= outer.end());
        let workers = timeline.threads.iter().filter(|(_, name)| *name == "worker");
        let workers: Vec<Track> = workers.map(|(&id, _)| Track::Thread(id)).collect();
        assert!(timeline.slices.iter().any(|s| workers.contains(&s.track)));
        assert!(timeline.slices.is_sorted_by_key(|slice| slice.start));
    }
}
