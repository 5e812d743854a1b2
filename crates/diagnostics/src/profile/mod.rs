//! Profile of images in a pipeline, as `hipvit profile` shows it: a [`Timeline`] of threads, streams and
//! kernels, and a [`Breakdown`] of the time.
//!
//! The session runs as in `hipvit classify`: decoding, copies and computation of several batches overlap, and
//! a GPU replays captured graphs. A first run warms up; a second one is measured.

mod breakdown;
mod calls;
#[cfg(test)]
mod tests;
mod tokens;
mod trace;

use std::time::Duration;

use serde::Serialize;

pub use self::breakdown::{Breakdown, Part, Window};
pub use self::calls::Stepwise;
pub use self::tokens::profile_tokens;
pub use self::trace::write as write_trace;
use crate::bench::DeviceInfo;
use hipvit::error::{Error, Result};
use hipvit::image::DecodeOptions;
use hipvit::pipeline::{Pipeline, Source};
use hipvit::session::Session;
use hipvit::timeline::{Activity, Recording, Slice, Timeline, Track};

/// Options of a profiled run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Images, which are repeated to fill batches.
    pub images: Vec<Source>,
    /// Options of the decoder.
    pub decode: DecodeOptions,
    /// Number of measured batches.
    pub batches: usize,
    /// Number of warm-up batches. The default is one on the CPU, and on a GPU as many as capture a graph on
    /// each context.
    pub warm_up: Option<usize>,
    /// Maximum number of batches in flight; by default the pipeline's.
    pub in_flight: Option<usize>,
    /// Number of labels for each image.
    pub top: usize,
}

/// Result of a profiled run.
#[derive(Debug, Serialize)]
pub struct Profile {
    /// Name of the model.
    pub model: String,
    /// Device of the run.
    pub device: DeviceInfo,
    /// Dtype of the computation.
    pub dtype: String,
    /// Batch size.
    pub batch: usize,
    /// Number of measured batches.
    pub batches: usize,
    /// Number of measured batches, or of tokens if there are any, that a GPU ran as the replay of a captured graph.
    pub replayed: usize,
    /// Reason if no graph is replayed because capture or replay failed.
    pub fallback: Option<String>,
    /// Times of the individual steps, which estimate the kernels' times within a replay.
    pub stepwise: Option<Stepwise>,
    /// Time by activity.
    #[serde(flatten)]
    pub breakdown: Breakdown,
    /// Time of the tokens of texts. A batch is the start of a text of each image then: the encoder, and the keys and values of cross-attention.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Tokens>,
    /// Begin and duration of everything that was recorded.
    #[serde(skip)]
    pub timeline: Timeline,
}

/// Time of the tokens of a batch of texts.
#[derive(Debug, Serialize)]
pub struct Tokens {
    /// Number of measured steps. A step computes a token of each text.
    pub count: usize,
    /// Time of a step.
    pub per_token: Window,
}

/// Loads a session with `load`, runs it and records its activities. Nothing else should run in the process
/// meanwhile.
///
/// # Errors
///
/// - Errors of `load` and of the run, and the error of the first image that fails.
/// - [`Error::Argument`] for a model on several GPUs, or if there is nothing to run.
pub fn profile(load: impl FnOnce() -> Result<Session>, run: &Run) -> Result<Profile> {
    if run.images.is_empty() || run.batches == 0 {
        return Err(Error::argument("images", "there is nothing to run"));
    }
    let recording = Recording::start()?;
    let session = load()?;
    if session.executors().len() > 1 || session.executor().info().devices.len() > 1 {
        let reason = "profile shows one GPU: name it by --device hip:N";
        return Err(Error::argument("device", reason));
    }
    let mut pipeline = Pipeline::new(&session).decode_options(run.decode).timed(true);
    let in_flight = run.in_flight.unwrap_or(pipeline.most_in_flight());
    pipeline = pipeline.in_flight(in_flight);
    let on_gpu = session.hip_graphs().is_some();
    // Each context runs one batch and captures the next. Two more are needed, because contexts do not take
    // strict turns.
    let warm_up = run.warm_up.unwrap_or(if on_gpu { 4 * in_flight } else { 1 });
    let batch = session.batch();
    pass(&pipeline, run, warm_up * batch)?;
    let begin = recording.elapsed();
    pass(&pipeline, run, run.batches * batch)?;
    let end = recording.elapsed();
    let mut timeline = recording.finish();

    let plan = session.plan(batch)?;
    let executor = session.executor();
    // The first call also prepares what only individual steps need.
    executor.time_calls(&plan, None)?;
    let calls = executor.time_calls(&plan, None)?;
    order_streams(&mut timeline.slices);
    let stepwise = calls::lay(&mut timeline, &plan, &calls);
    let replayed = timeline
        .slices
        .iter()
        .filter(|slice| slice.activity == Activity::Replay && slice.start >= begin && slice.start < end);
    Ok(Profile {
        model: session.name().to_owned(),
        device: executor.gpu().map_or_else(DeviceInfo::cpu, DeviceInfo::gpu),
        dtype: session.dtype().to_string(),
        batch,
        batches: run.batches,
        replayed: replayed.count(),
        fallback: session.hip_graphs().and_then(|replays| replays.fallback),
        stepwise,
        breakdown: Breakdown::new(&timeline.slices, [Duration::ZERO, begin, end], run.batches),
        tokens: None,
        timeline,
    })
}

/// Runs `images` images.
fn pass(pipeline: &Pipeline, run: &Run, images: usize) -> Result<()> {
    let sources: Vec<Source> = run.images.iter().cycle().take(images).cloned().collect();
    for item in pipeline.run(sources)? {
        item?.top(run.top);
    }
    Ok(())
}

/// A stream runs one thing after the other. If rounded times overlap by a microsecond, the later slice starts
/// later.
fn order_streams(slices: &mut [Slice]) {
    let mut ends = std::collections::HashMap::new();
    slices.sort_by_key(|slice| slice.start);
    for slice in slices.iter_mut() {
        if let Track::Stream { .. } = slice.track {
            let (start, end) = (slice.start, slice.end());
            let before = ends.entry(slice.track).or_insert(Duration::ZERO);
            slice.start = start.max(*before);
            slice.duration = end.saturating_sub(slice.start);
            *before = end.max(slice.start);
        }
    }
    slices.sort_by_key(|slice| (slice.start, std::cmp::Reverse(slice.duration)));
}
