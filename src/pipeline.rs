//! From image files to results in bounded memory, with several batches in progress at once.
//!
//! Three threads work in turn on a batch. The first has files decoded and, unless the GPU does it, resized into memory that a GPU can copy
//! from. The second submits batches. The caller's thread takes the results in order.
//!
//! On a GPU, the copy to the device, the computation and the copy back are asynchronous, and each batch has its own stream. The submitting
//! thread only waits while the [maximum](Pipeline::in_flight) number of batches is in flight.
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
pub use self::remote::ItemParts;
pub use self::source::Source;
use crate::error::{Error, Result};
use crate::exec::{InputData, Submission};
use crate::image::{DecodeOptions, Limits};
use crate::outputs::{ImageOutputs, Outputs, Prediction};
use crate::session::{Device, Session, Submitted};
use crate::timeline::{self, Activity};
use crate::timing::{Phase, Timing};

/// Maximum number of batches in flight. Each has its own device memory.
const MAX_IN_FLIGHT: usize = 1024;

/// Runs a stream of images through a session. As many threads decode as compute. With several GPUs, a batch goes to the replica with the
/// fewest images in flight.
///
/// The memory is bounded by the batches [in flight](Pipeline::in_flight) and the pixels of three more at the model's size:
///
/// - one that is being decoded
/// - one per device that waits
/// - one that is being submitted
///
/// On a GPU each batch in flight has its own arena, input and results, which later batches reuse. Fewer batches are in flight if the device
/// memory does not suffice. If the device [resizes](Session::resize), the three batches hold their images as decoded.
#[derive(Clone, Debug)]
pub struct Pipeline {
    session: Session,
    options: DecodeOptions,
    in_flight: usize,
    max_delay: Option<Duration>,
    timed: bool,
    device_jpeg: bool,
}

impl Pipeline {
    /// Creates a pipeline into `session`, with the default limits on image sizes.
    pub fn new(session: &Session) -> Self {
        Self {
            session: session.clone(),
            options: DecodeOptions::default(),
            in_flight: match session.device() {
                // Per GPU: one is copied in, one computes, one is copied out.
                Device::Hip(_) => (session.batches_in_flight() + session.replicas()).min(MAX_IN_FLIGHT),
                // One computes, and the caller takes the results of the other.
                _ => 2,
            },
            max_delay: None,
            timed: false,
            device_jpeg: true,
        }
    }

    /// Sets the maximum number of submitted batches whose results the caller has not taken. It must be at least 1. The default is 3 per
    /// GPU, and 2 on the CPU.
    pub fn in_flight(mut self, batches: usize) -> Self {
        self.in_flight = batches;
        self
    }

    /// Returns the maximum number of batches in flight.
    pub fn most_in_flight(&self) -> usize {
        self.in_flight
    }

    /// Sets how long an image may wait for others to fill its batch. By default it waits until the batch is full or the sources end, for
    /// the highest throughput.
    ///
    /// Use a delay for sources that arrive slowly, such as a channel, standard input or a watched directory. A batch then runs when it is
    /// full, or when its first image has waited for `delay`.
    ///
    /// A separate thread then iterates over the sources. If the results are dropped while it waits for a source, it ends after that source.
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

    /// Measures the phases on the device, by events on its streams. Off by default.
    pub fn timed(mut self, timed: bool) -> Self {
        self.timed = timed;
        self
    }

    /// Sets whether a GPU that [resizes](Session::resize) images also computes the pixels of JPEGs. The host then only decodes their
    /// coefficients. On by default. The results have the same bits either way.
    pub fn device_jpeg(mut self, on_device: bool) -> Self {
        self.device_jpeg = on_device;
        self
    }

    /// Sets the limits on image sizes.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.options.limits = limits;
        self
    }

    /// Sets the options for decoding. [`Limits`] convert into them.
    pub fn decode_options(mut self, options: impl Into<DecodeOptions>) -> Self {
        self.options = options.into();
        self
    }

    /// Decodes and runs every source. The results are in the order of the sources. An image that cannot be decoded gives an error at its
    /// position, and the others run.
    ///
    /// Work starts at once and continues until the maximum number of batches is [in flight](Self::in_flight). Dropping the results stops
    /// it.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the maximum number of batches is 0, [`Error::Resource`] if the threads cannot be started.
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
        self.session.check_takes_images()?;
        let start = Instant::now();
        // Separate from the session's threads, so that no step waits for an image that is being decoded.
        let pool = ThreadPoolBuilder::new()
            .num_threads(self.session.decode_threads())
            .thread_name(|i| format!("hipvit-decode-{i}"))
            .build()
            .map_err(|e| Error::resource("threads", e))?;
        let batches_in_flight = Arc::new(AtomicUsize::new(0));
        // One batch waits per device, so that no device is idle if several become free at once.
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
            device_jpeg: self.device_jpeg,
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

    /// Submits batch after batch. Only waits for images and permits.
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
                // From here on there is one permit less, since a finished batch frees its memory for reuse.
                permits.recv().map_err(|_| error)
            }
        };
        let count = images.images.iter().filter(|(_, error)| error.is_none()).count();
        let how = Submission {
            timed: self.timed,
            // Block in the caller's thread, to leave the core to decode threads.
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

/// The other threads of a pipeline.
struct Work {
    submitted: Receiver<InFlight>,
    permit: Sender<()>,
    stop: Arc<AtomicBool>,
    /// Set if batches need not be full.
    waiting: Option<Stop>,
    threads: [JoinHandle<()>; 2],
}

/// A finished batch, with the results that the caller has not taken.
struct Finished {
    next: usize,
    images: std::vec::IntoIter<(String, Option<Error>)>,
    outputs: Option<Arc<Outputs>>,
    next_row: usize,
}

impl Results {
    /// Returns the time of each phase so far: on the host, and on the device if that is [timed](Pipeline::timed). The wall time is known
    /// once there are no more results. Phases of several batches overlap, so that their sum may exceed it.
    pub fn timing(&self) -> &Timing {
        &self.timing
    }

    /// Returns the next image of the finished batch.
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
            // Pixels are missing only for an image with an error.
            (None, None) => None,
        }
    }

    /// Waits for the next batch. `None` after the last.
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
        // Wake both waiting threads, which then find the receiver dropped.
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
                    // The send fails if the submitting thread has ended after the last batch.
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
        // During a drop, do not propagate the panic of another thread.
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

/// Result for one image. It owns the outputs of its batch, together with the batch's other items.
#[derive(Clone, Debug)]
pub struct Item {
    index: usize,
    name: String,
    outputs: Arc<Outputs>,
    row: usize,
}

impl Item {
    /// Returns the position of the image among the sources, from 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns the name of the image; see [`Source::name`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns all results for the image.
    pub fn outputs(&self) -> ImageOutputs<'_> {
        self.outputs.image(self.row)
    }

    /// Returns a score per class; see [`ImageOutputs::logits`].
    pub fn logits(&self) -> Option<ArrayView1<'_, f32>> {
        self.outputs().logits()
    }

    /// Returns the feature vector; see [`Outputs::embeddings`].
    pub fn embedding(&self) -> ArrayView1<'_, f32> {
        self.outputs().embedding()
    }

    /// Returns the `k` most likely classes; see [`ImageOutputs::top`].
    pub fn top(&self, k: usize) -> Vec<Prediction> {
        let _span = timeline::span(Activity::PostProcess);
        self.outputs().top(k)
    }
}

/// Error of one image or of the whole run. Converts into [`Error`].
#[derive(Debug)]
pub struct ItemError {
    index: Option<usize>,
    error: Error,
}

impl ItemError {
    /// Returns the position of the failed image among the sources. The other images continue. `None` if the whole run failed: no result
    /// follows.
    pub fn index(&self) -> Option<usize> {
        self.index
    }

    /// Returns the error, which names the image or the other cause.
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
