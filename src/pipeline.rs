//! From image files to results in bounded memory, with several batches in progress at once.
//!
//! Three threads pass batches on: one has files decoded and, unless the GPU does it, resized into memory that a GPU can
//! read, one submits them, and the caller's takes the results in order. On a GPU a batch's copy to the device, its
//! computation and its copy back are asynchronous, each batch on a stream of its own; the submitting thread waits for none
//! of them, only until fewer than the [maximum](Pipeline::in_flight) are in flight.
//!
//! ```
//! # fn main() -> hipvit::Result<()> {
//! use hipvit::Session;
//! use hipvit::pipeline::Pipeline;
//!
//! let session = Session::tinyvit32()?;
//! for item in Pipeline::new(&session).run(["assets/samples/3.png", "assets/samples/7.png"])? {
//!     let item = item?;
//!     println!("{}: {}", item.name(), item.top(1)[0].label);
//! }
//! # Ok(()) }
//! ```

mod decode;
mod gather;
mod remote;
mod source;

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ndarray::ArrayView1;
use rayon::ThreadPoolBuilder;

use self::decode::{Batch, DecodeMemory, Decoder, Items, Pixels};
use self::gather::{Gather, Stop};
#[doc(hidden)]
pub use self::remote::ItemParts;
pub use self::source::Source;
use crate::error::{Error, Result};
use crate::exec::{InputData, Submission};
use crate::image::{DecodeOptions, Limits};
use crate::outputs::{ImageOutputs, Outputs, Prediction};
use crate::session::{Device, Session, Submitted};
use crate::timeline::{self, Activity};
use crate::timing::{Phase, Timing};

/// The most batches that can be in flight; each has device memory of its own.
const MAX_IN_FLIGHT: usize = 1024;

/// Runs a stream of images through a session. As many threads decode as compute.
///
/// Where the session has several GPUs, a batch goes where the fewest images are in flight, and all of them are used.
///
/// At most, memory holds the model-sized pixels of the batches [in flight](Pipeline::in_flight) and of three more: one that
/// is being decoded, one that waits (one for each device), one that is being submitted. On a GPU each batch in flight has its own arena, input and
/// results, which later batches reuse; where the device has no memory for so many, fewer are in flight. Where the device
/// [resizes](Session::resize), the three hold their images as they were decoded.
#[derive(Clone, Debug)]
pub struct Pipeline {
    session: Session,
    options: DecodeOptions,
    in_flight: usize,
    max_delay: Option<Duration>,
    timed: bool,
}

impl Pipeline {
    /// A pipeline into `session`, with the default limits on image sizes.
    pub fn new(session: &Session) -> Self {
        Self {
            session: session.clone(),
            options: DecodeOptions::default(),
            in_flight: match session.device() {
                // On each GPU one is copied in, one computes, one is copied out.
                Device::Hip(_) => (session.batches_in_flight() + session.replicas()).min(MAX_IN_FLIGHT),
                // One computes, the caller takes the results of the other.
                _ => 2,
            },
            max_delay: None,
            timed: false,
        }
    }

    /// The maximum number of batches that are submitted and whose results the caller has not taken, at least 1; by default
    /// 3 for each GPU, and 2 on the CPU.
    pub fn in_flight(mut self, batches: usize) -> Self {
        self.in_flight = batches;
        self
    }

    /// How many that is.
    pub fn most_in_flight(&self) -> usize {
        self.in_flight
    }

    /// For how long an image may wait for others to fill its batch. By default it waits until the batch is full or the sources
    /// end, which has the highest throughput. For sources that trickle in, such as a channel, standard input or a directory
    /// that is watched: a batch runs when it is full, or when its first image has waited for `delay`, with the images that
    /// have come by then.
    ///
    /// The sources are iterated over by a thread of their own then. When the results are dropped while it waits for a source, it
    /// ends with that source.
    ///
    /// ```
    /// # fn main() -> hipvit::Result<()> {
    /// use std::sync::mpsc;
    /// use std::time::Duration;
    ///
    /// use hipvit::pipeline::{Pipeline, Source};
    ///
    /// let session = hipvit::Session::builder().batch(32).tinyvit32()?;
    /// let (send, receive) = mpsc::channel::<Source>();
    /// let pipeline = Pipeline::new(&session).max_delay(Duration::from_millis(5));
    /// let mut results = pipeline.run(receive)?;
    /// for path in ["assets/samples/3.png", "assets/samples/7.png"] {
    ///     // The next request comes only after the answer to this one, long before there are 32.
    ///     send.send(path.into()).ok();
    ///     let item = results.next().transpose()?;
    ///     println!("{:?}", item.map(|item| item.top(1)));
    /// }
    /// # Ok(()) }
    /// ```
    pub fn max_delay(mut self, delay: Duration) -> Self {
        self.max_delay = Some(delay);
        self
    }

    /// Whether the device's phases are timed, which takes events on its streams. Off by default.
    pub fn timed(mut self, timed: bool) -> Self {
        self.timed = timed;
        self
    }

    /// Which images are too large.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.options.limits = limits;
        self
    }

    /// How images are decoded; [`Limits`] too convert into it.
    pub fn decode_options(mut self, options: impl Into<DecodeOptions>) -> Self {
        self.options = options.into();
        self
    }

    /// Decodes and runs every source. The results come in the order of the sources; an image that cannot be decoded is an
    /// error in its place, and the others are run.
    ///
    /// Work starts at once and goes on until the maximum number of batches is [in flight](Self::in_flight). Dropping the
    /// results stops it.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if no batch may be in flight, [`Error::Resource`] if the threads cannot be started.
    pub fn run<S>(&self, sources: S) -> Result<Results>
    where
        S: IntoIterator<Item: Into<Source> + 'static, IntoIter: Send + 'static>,
    {
        if !(1..=MAX_IN_FLIGHT).contains(&self.in_flight) {
            let reason = format!(
                "is {}; from 1 to {MAX_IN_FLIGHT} batches can be in flight",
                self.in_flight
            );
            return Err(Error::argument("in_flight", reason));
        }
        let start = Instant::now();
        // Not the session's own threads, so that no step waits behind an image that is being decoded.
        let pool = ThreadPoolBuilder::new()
            .num_threads(self.session.decode_threads())
            .thread_name(|i| format!("hipvit-decode-{i}"))
            .build()
            .map_err(|e| Error::resource("threads", e))?;
        let batches_in_flight = Arc::new(AtomicUsize::new(0));
        // One waits for each device, so that none is idle when several become free at once.
        let (decoded, decoded_batches) = mpsc::sync_channel(self.session.replicas());
        let (submitted, submitted_batches) = mpsc::channel();
        // A batch takes a permit before it is submitted, and returns it when the caller has taken its results.
        let (permit, permits) = mpsc::channel();
        for () in std::iter::repeat_n((), self.in_flight) {
            let _ = permit.send(());
        }
        let sources = sources.into_iter().map(Into::into);
        let (gather, waiting) = match self.max_delay {
            None => (Gather::Full(Box::new(sources)), None),
            Some(delay) => {
                let (gather, stop) = Gather::timed(sources, self.session.batch(), delay)?;
                (gather, Some(stop))
            }
        };
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            let thread = thread::Builder::new().name(format!("hipvit-{name}"));
            thread.spawn(work).map_err(|e| Error::resource("threads", e))
        };
        let stop = Arc::new(AtomicBool::new(false));
        let memory = Arc::new(DecodeMemory::new(&self.options.limits));
        let decoder = Decoder {
            session: self.session.clone(),
            options: self.options,
            memory: memory.clone(),
            stop: stop.clone(),
        };
        let decode = spawn(
            "decode",
            Box::new(move || decoder.decode_all(&pool, gather, decoded)),
        )?;
        let (pipeline, counter) = (self.clone(), batches_in_flight.clone());
        let submit = spawn(
            "submit",
            Box::new(move || pipeline.submit_all(decoded_batches, submitted, permits, &counter, &memory)),
        )?;
        Ok(Results {
            session: self.session.clone(),
            timed: self.timed,
            work: Some(Work {
                submitted: submitted_batches,
                permit,
                stop,
                waiting,
                threads: [decode, submit],
            }),
            batches_in_flight,
            batch: None,
            start,
            timing: Timing::default(),
        })
    }

    /// Submits batch after batch; waits for nothing but images and permits.
    fn submit_all(
        &self,
        batches: Receiver<Result<Arc<Batch>>>,
        submitted: Sender<InFlight>,
        permits: Receiver<()>,
        in_flight: &AtomicUsize,
        memory: &DecodeMemory,
    ) {
        for batch in batches {
            let batch = match batch {
                Ok(batch) => match batch.wait() {
                    Some(batch) => batch,
                    // A decode thread has panicked, or the results were dropped.
                    None => return,
                },
                Err(error) => Err(error),
            };
            if permits.recv().is_err() {
                return;
            }
            let run = batch.and_then(|(images, pixels)| {
                self.submit_batch(images, pixels, (&permits, in_flight), memory)
            });
            if run.is_err() | submitted.send(run).is_err() {
                return;
            }
        }
    }

    fn submit_batch(
        &self,
        mut images: Items,
        pixels: Option<Pixels>,
        (permits, in_flight): (&Receiver<()>, &AtomicUsize),
        memory: &DecodeMemory,
    ) -> InFlight {
        let mut alone = false;
        let wait_for_memory = |error| {
            if std::mem::replace(&mut alone, in_flight.load(Ordering::Acquire) == 0) {
                return Err(error);
            }
            if alone {
                Ok(())
            } else {
                // One permit less from here on: when a batch has finished, its memory is reused.
                permits.recv().map_err(|_| error)
            }
        };
        let count = images.images.iter().filter(|(_, error)| error.is_none()).count();
        let how = Submission {
            timed: self.timed,
            // The caller's thread leaves its core to those that decode.
            sleeps: true,
            ..Submission::default()
        };
        let run = match pixels {
            Some(Pixels::Staged(staging)) => {
                let feed = InputData::Staged(staging);
                Some(self.session.submit(feed, count, how, wait_for_memory)?)
            }
            Some(Pixels::Decoded(decoded)) => {
                let start = Instant::now();
                let run = decoded.submit(memory, |decoded| {
                    let feed = InputData::Images(decoded);
                    self.session.submit(feed, count, how, wait_for_memory)
                })?;
                images.timing.add(Phase::Stage, start.elapsed());
                Some(run)
            }
            None => None,
        };
        let count = in_flight.fetch_add(1, Ordering::AcqRel) + 1;
        images.timing.note_in_flight(count);
        Ok((images, run))
    }
}

/// A batch and its run, if it has pixels.
type InFlight = Result<(Items, Option<Submitted>)>;

/// The results of [`Pipeline::run`]: an iterator over one [`Item`] per source, in order.
///
/// Iterate over `&mut results` to use [`timing`](Self::timing) afterwards.
pub struct Results {
    session: Session,
    timed: bool,
    /// `None` after the last batch.
    work: Option<Work>,
    batches_in_flight: Arc<AtomicUsize>,
    batch: Option<Finished>,
    start: Instant,
    timing: Timing,
}

/// The other threads.
struct Work {
    submitted: Receiver<InFlight>,
    permit: Sender<()>,
    stop: Arc<AtomicBool>,
    /// Where batches need not be full.
    waiting: Option<Stop>,
    threads: [JoinHandle<()>; 2],
}

/// A batch that has finished, and what the caller has not taken of it.
struct Finished {
    next: usize,
    images: std::vec::IntoIter<(String, Option<Error>)>,
    outputs: Option<Arc<Outputs>>,
    next_row: usize,
}

impl Results {
    /// The time that each phase has taken so far: on the host, and on the device if that is
    /// [timed](Pipeline::timed). The wall time is known when there are no more results. Phases of several batches overlap,
    /// so their sum may exceed it.
    pub fn timing(&self) -> &Timing {
        &self.timing
    }

    /// The next image of the finished batch.
    fn next_of_batch(&mut self) -> Option<Result<Item, ItemError>> {
        let batch = self.batch.as_mut()?;
        let (name, error) = batch.images.next()?;
        let index = batch.next;
        batch.next += 1;
        match (error, &batch.outputs) {
            (None, Some(outputs)) => {
                let row = batch.next_row;
                batch.next_row += 1;
                let results = self.session.is_strict().then(|| outputs.image(row).non_finite());
                if let Some(results) = results.flatten() {
                    let error = Error::NonFinite { image: name, results };
                    let index = Some(index);
                    return Some(Err(ItemError { index, error }));
                }
                Some(Ok(Item {
                    index,
                    name,
                    outputs: outputs.clone(),
                    row,
                }))
            }
            (Some(error), _) => Some(Err(ItemError {
                index: Some(index),
                error,
            })),
            // Pixels are missing only where there is an error.
            (None, None) => None,
        }
    }

    /// Waits for the next batch; `None` after the last.
    fn next_batch(&mut self) -> Option<Result<Finished>> {
        let waiting = timeline::span(Activity::Wait);
        let received = self.work.as_ref()?.submitted.recv().ok()?;
        drop(waiting);
        let (images, run) = match received {
            Ok(batch) => batch,
            Err(error) => return Some(Err(error)),
        };
        self.timing.merge(&images.timing);
        let timing = self.timed.then_some(&mut self.timing);
        let outputs = match run.map(|run| self.session.finish(run, timing)).transpose() {
            Ok(outputs) => outputs.map(Arc::new),
            Err(error) => return Some(Err(error)),
        };
        Some(Ok(Finished {
            next: images.first,
            images: images.images.into_iter(),
            outputs,
            next_row: 0,
        }))
    }

    /// Ends the other threads.
    fn end(&mut self) -> Vec<thread::Result<()>> {
        let Some(Work {
            submitted,
            permit,
            stop,
            waiting,
            threads,
        }) = self.work.take()
        else {
            return Vec::new();
        };
        stop.store(true, Ordering::Relaxed);
        if let Some(waiting) = waiting {
            waiting.stop();
        }
        // Wake both waiters, which then see that the receiver is gone.
        drop((submitted, permit));
        let ended = threads.map(JoinHandle::join);
        self.timing.add_wall(self.start.elapsed());
        ended.into()
    }
}

impl Iterator for Results {
    type Item = Result<Item, ItemError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(item) = self.next_of_batch() {
                return Some(item);
            }
            if self.batch.take().is_some() {
                self.batches_in_flight.fetch_sub(1, Ordering::AcqRel);
                if let Some(work) = &self.work {
                    // The submitting thread has ended after the last batch.
                    let _ = work.permit.send(());
                }
            }
            match self.next_batch() {
                Some(Ok(batch)) => self.batch = Some(batch),
                last => {
                    for ended in self.end() {
                        ended.unwrap_or_else(|panic| resume_unwind(panic));
                    }
                    let error = last?.err()?;
                    return Some(Err(ItemError { index: None, error }));
                }
            }
        }
    }
}

impl Drop for Results {
    fn drop(&mut self) {
        // A panic of another thread is not worth a second one.
        self.end();
    }
}

impl std::fmt::Debug for Results {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Results")
            .field("session", &self.session)
            .field("timing", &self.timing)
            .finish_non_exhaustive()
    }
}

/// The result for one image. It owns its outputs, together with the other items of its batch.
#[derive(Clone, Debug)]
pub struct Item {
    index: usize,
    name: String,
    outputs: Arc<Outputs>,
    row: usize,
}

impl Item {
    /// The position of the image among the sources, from 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The name of the image, see [`Source::name`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All results for the image.
    pub fn outputs(&self) -> ImageOutputs<'_> {
        self.outputs.image(self.row)
    }

    /// One score per class, see [`ImageOutputs::logits`].
    pub fn logits(&self) -> Option<ArrayView1<'_, f32>> {
        self.outputs().logits()
    }

    /// The image's feature vector, see [`Outputs::embeddings`].
    pub fn embedding(&self) -> ArrayView1<'_, f32> {
        self.outputs().embedding()
    }

    /// The `k` most likely classes, see [`ImageOutputs::top`].
    pub fn top(&self, k: usize) -> Vec<Prediction> {
        let _span = timeline::span(Activity::PostProcess);
        self.outputs().top(k)
    }
}

/// Why there is no result for an image, or why the run ended. Converts into [`Error`].
#[derive(Debug)]
pub struct ItemError {
    index: Option<usize>,
    error: Error,
}

impl ItemError {
    /// The position among the sources of the image that failed, after which the others go on. `None` if the whole run
    /// failed: no result follows.
    pub fn index(&self) -> Option<usize> {
        self.index
    }

    /// The error, which names the image or what else is at fault.
    pub fn error(&self) -> &Error {
        &self.error
    }
}

impl std::fmt::Display for ItemError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for ItemError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl From<ItemError> for Error {
    fn from(error: ItemError) -> Self {
        error.error
    }
}
