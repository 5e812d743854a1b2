//! From image files to results in bounded memory, with the stages of successive batches at work at once.
//!
//! Three threads hand batches on: one has files decoded and, unless the GPU does it, resized into memory that a GPU can read, one submits, one, the
//! caller's, takes the results in order. On a GPU a batch's copy to the device, its computation and its copy back go on
//! by themselves, each batch on a stream of its own; the submitting thread waits for none of them, only for room.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::time::Instant;

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::error::{Error, Result};
use crate::exec::Staging;
use crate::image::{self, Limits, Preprocess, RgbImage};
use crate::outputs::Outputs;
use crate::session::{Device, ResizeOn, Session, Submitted};
use crate::timing::{Phase, Timing};

/// Where an image's bytes come from.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Source {
    /// A file.
    File(PathBuf),
    /// Standard input.
    Stdin,
    /// An encoded image's bytes, and what to call them.
    Bytes(String, Cow<'static, [u8]>),
    /// A decoded image, and what to call it.
    Decoded(String, RgbImage),
}

impl Source {
    /// The path, `-` for standard input, or the name of the bytes.
    pub fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Stdin => "-".into(),
            Self::Bytes(name, _) | Self::Decoded(name, _) => name.clone(),
        }
    }

    /// Reads and decodes the image.
    ///
    /// # Errors
    ///
    /// An unreadable file, or one that is not an image within `limits`.
    pub fn decode(&self, limits: &Limits) -> Result<RgbImage> {
        match self {
            Self::File(path) => image::open(path, limits),
            Self::Stdin => image::read("-", std::io::stdin().lock(), limits),
            Self::Bytes(name, bytes) => image::decode(name, bytes, limits),
            Self::Decoded(_, image) => Ok(image.clone()),
        }
    }

    /// Brings `image`, which was decoded from here, to a model's size.
    ///
    /// # Errors
    ///
    /// As [`Preprocess::apply`], but [`Error::Image`] with this source's name.
    pub fn resize(&self, image: &RgbImage, rule: &Preprocess) -> Result<RgbImage> {
        rule.apply(image).map_err(|e| Error::image(self.name(), e))
    }

    /// `image`, which was decoded from here, as the session takes it; adds to `timing` what the host resizes.
    fn prepare(&self, image: RgbImage, session: &Session, timing: &mut Timing) -> Result<RgbImage> {
        let rule = session.preprocess();
        if session.resize() == ResizeOn::Device {
            let check = rule.check(&image).map_err(|e| Error::image(self.name(), e));
            return check.map(|()| image);
        }
        let start = Instant::now();
        let pixels = self.resize(&image, rule);
        timing.add(Phase::Resize, start.elapsed());
        pixels
    }
}

/// Runs a stream of images through a session. As many threads decode as compute.
///
/// In memory are, at most, the model-sized pixels of the batches [in flight](Pipeline::in_flight) and of three more: one that
/// is being decoded, one that waits, one that is being submitted. On a GPU each batch in flight has an arena, an input and
/// results of its own, which the next one uses again; where the device has no memory for so many, fewer are. Where the device
/// [resizes](Session::resize), the three have their images as they were decoded.
#[derive(Clone, Debug)]
pub struct Pipeline<'a> {
    session: &'a Session,
    limits: Limits,
    in_flight: usize,
    timed: bool,
}

/// One image's result: its position in the stream, its name, and the outputs' row or why there is none.
#[derive(Debug)]
pub struct Item<'a> {
    /// The position in the stream, from 0.
    pub index: usize,
    /// [`Source::name`].
    pub name: &'a str,
    /// The batch's outputs and this image's row in them.
    pub result: std::result::Result<(&'a Outputs, usize), &'a Error>,
}

/// A batch's images: each one's name, and its error if it has no pixels.
struct Images {
    first: usize,
    images: Vec<(String, Option<Error>)>,
    timing: Timing,
}

/// A batch with its pixels, if it has any.
type Decoded = Result<(Images, Option<Staging>)>;

/// A batch with its run, if it has pixels.
type InFlight = Result<(Images, Option<Submitted>)>;

impl<'a> Pipeline<'a> {
    /// A pipeline into `session`, with the default limits on image sizes.
    pub fn new(session: &'a Session) -> Self {
        Self {
            session,
            limits: Limits::default(),
            in_flight: match session.device() {
                // One is copied in, one computes, one is copied out.
                Device::Hip(_) => 3,
                // One computes, one is taken by the caller.
                _ => 2,
            },
            timed: false,
        }
    }

    /// Sets how many batches may be submitted and not yet handed to the caller at once, at least 1; 3 on a GPU and 2 on the
    /// CPU by default.
    pub fn in_flight(mut self, batches: usize) -> Self {
        self.in_flight = batches;
        self
    }

    /// Sets whether the device's phases are timed. Without that none of its streams gets an event for it.
    pub fn timed(mut self, timed: bool) -> Self {
        self.timed = timed;
        self
    }

    /// Sets what is too large an image.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Decodes and runs every source, and calls `each` for every one in order. An image that cannot be decoded is
    /// handed to `each` as an error, and the rest go on; `each` may end the run by an error of its own.
    ///
    /// Returns what each phase took on the host, and on the device if that is [timed](Pipeline::timed). Phases of
    /// several batches go on at once, so their sum may exceed the wall time.
    ///
    /// # Errors
    ///
    /// What `each` returned, or an error that is not an image's.
    pub fn run<E: From<Error>>(
        &self,
        sources: impl IntoIterator<Item = Source, IntoIter: Send>,
        mut each: impl FnMut(Item<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<Timing, E> {
        if self.in_flight == 0 {
            return Err(Error::argument("in_flight", "must be at least 1").into());
        }
        let start = Instant::now();
        let sources = sources.into_iter();
        // Not the session's own threads, so that a step never waits behind an image that is being decoded.
        let pool = ThreadPoolBuilder::new()
            .num_threads(self.session.threads())
            .thread_name(|i| format!("hipvit-decode-{i}"))
            .build()
            .map_err(|e| Error::argument("threads", e))?;
        let flying = AtomicUsize::new(0);
        let mut timing = Timing::default();
        std::thread::scope(|scope| {
            let (decoded, batches) = mpsc::sync_channel(1);
            let (submitted, flights) = mpsc::channel();
            // A batch takes a permit before it is submitted, and gives it back when it is finished.
            let (permit, permits) = mpsc::channel();
            for () in std::iter::repeat_n((), self.in_flight) {
                let _ = permit.send(());
            }
            let flying = &flying;
            scope.spawn(|| self.decode_all(&pool, sources, decoded));
            scope.spawn(|| self.submit_all(batches, submitted, permits, flying));
            for flight in flights {
                self.finish(flight?, &mut timing, flying, &permit, &mut each)?;
            }
            Ok::<_, E>(())
        })?;
        timing.add_wall(start.elapsed());
        Ok(timing)
    }

    /// Decodes batch after batch until the sources end or nobody receives any more.
    fn decode_all(
        &self,
        pool: &ThreadPool,
        mut sources: impl Iterator<Item = Source>,
        decoded: SyncSender<Decoded>,
    ) {
        let (mut first, mut most) = (0, 0);
        loop {
            let sources: Vec<Source> = sources.by_ref().take(self.session.batch()).collect();
            if sources.is_empty() {
                return;
            }
            let count = sources.len();
            // So that the last batch, which may be smaller, leaves memory that serves the next run's.
            most = most.max(count);
            let batch = self.decode_batch(pool, first, &sources, most);
            if batch.is_err() | decoded.send(batch).is_err() {
                return;
            }
            first += count;
        }
    }

    fn decode_batch(&self, pool: &ThreadPool, first: usize, sources: &[Source], capacity: usize) -> Decoded {
        let decode = |source: &Source| {
            let mut timing = Timing::default();
            let start = Instant::now();
            let image = source.decode(&self.limits);
            timing.add(Phase::Decode, start.elapsed());
            let image = image.and_then(|image| source.prepare(image, self.session, &mut timing));
            (image, timing)
        };
        let results: Vec<(Result<RgbImage>, Timing)> =
            pool.install(|| sources.par_iter().map(decode).collect());
        let mut batch = Images {
            first,
            images: Vec::with_capacity(sources.len()),
            timing: Timing::default(),
        };
        let mut staging = None;
        for (source, (image, timing)) in sources.iter().zip(results) {
            batch.timing.merge(&timing);
            let start = Instant::now();
            let error = match image {
                Ok(image) => {
                    let staging = match &mut staging {
                        Some(staging) => staging,
                        none => none.insert(self.session.stage(capacity)?),
                    };
                    staging.push(image)?;
                    None
                }
                Err(error) => Some(error),
            };
            batch.timing.add(Phase::Stage, start.elapsed());
            batch.images.push((source.name(), error));
        }
        Ok((batch, staging))
    }

    /// Submits batch after batch, waiting for permits alone.
    fn submit_all(
        &self,
        batches: Receiver<Decoded>,
        submitted: Sender<InFlight>,
        permits: Receiver<()>,
        flying: &AtomicUsize,
    ) {
        for batch in batches {
            if permits.recv().is_err() {
                return;
            }
            let flight = batch.and_then(|(mut images, staging)| {
                let mut alone = false;
                let wait_for_memory = |error| {
                    if std::mem::replace(&mut alone, flying.load(Ordering::Acquire) == 0) {
                        return Err(error);
                    }
                    match alone {
                        true => Ok(()),
                        // With a permit less from now on: one batch has to finish, and its memory is used again.
                        false => permits.recv().map_err(|_| error),
                    }
                };
                let run = staging
                    .map(|staging| self.session.submit(staging, self.timed, wait_for_memory))
                    .transpose()?;
                let flying = flying.fetch_add(1, Ordering::AcqRel) + 1;
                images.timing.note_in_flight(flying);
                Ok((images, run))
            });
            if flight.is_err() | submitted.send(flight).is_err() {
                return;
            }
        }
    }

    fn finish<E: From<Error>>(
        &self,
        (batch, run): (Images, Option<Submitted>),
        timing: &mut Timing,
        flying: &AtomicUsize,
        permit: &Sender<()>,
        each: &mut impl FnMut(Item<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        timing.merge(&batch.timing);
        let outputs = run
            .map(|run| self.session.finish(run, self.timed.then_some(&mut *timing)))
            .transpose()?;
        let mut row = 0;
        for (offset, (name, error)) in batch.images.iter().enumerate() {
            let result = match (error, &outputs) {
                (None, Some(outputs)) => {
                    row += 1;
                    Ok((outputs, row - 1))
                }
                (Some(error), _) => Err(error),
                // Pixels are missing only where there is an error.
                (None, None) => continue,
            };
            each(Item {
                index: batch.first + offset,
                name,
                result,
            })?;
        }
        flying.fetch_sub(1, Ordering::AcqRel);
        // Nobody takes it after the last batch.
        let _ = permit.send(());
        Ok(())
    }
}
