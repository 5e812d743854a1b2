//! From image files to results in bounded memory: while one batch computes, the next is read, decoded and resized.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Instant;

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::error::{Error, Result};
use crate::image::{self, Limits, Preprocess, RgbImage};
use crate::outputs::Outputs;
use crate::session::Session;
use crate::timing::{Phase, Timing};

/// Where an image's bytes come from.
#[derive(Clone, Debug)]
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
}

/// Runs a stream of images through a session. At most three batches of model-sized pixels are in memory at once:
/// one that computes, one that waits, one that is being decoded. As many threads decode as compute.
#[derive(Clone, Debug)]
pub struct Pipeline<'a> {
    session: &'a Session,
    limits: Limits,
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

struct Batch {
    first: usize,
    /// Each image's name, and its error if it has no pixels.
    images: Vec<(String, Option<Error>)>,
    pixels: Vec<u8>,
    timing: Timing,
}

impl<'a> Pipeline<'a> {
    /// A pipeline into `session`, with the default limits on image sizes.
    pub fn new(session: &'a Session) -> Self {
        Self {
            session,
            limits: Limits::default(),
        }
    }

    /// Sets what is too large an image.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Decodes and runs every source, and calls `each` for every one in order. An image that cannot be decoded is
    /// handed to `each` as an error, and the rest go on; `each` may end the run by an error of its own.
    ///
    /// Returns what each phase took.
    ///
    /// # Errors
    ///
    /// What `each` returned, or an error that is not an image's.
    pub fn run<E: From<Error>>(
        &self,
        sources: impl IntoIterator<Item = Source, IntoIter: Send>,
        mut each: impl FnMut(Item<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<Timing, E> {
        let sources = sources.into_iter();
        let mut timing = Timing::default();
        // Not the session's own threads, so that a step never waits behind an image that is being decoded.
        let pool = ThreadPoolBuilder::new()
            .num_threads(self.session.threads())
            .thread_name(|i| format!("hipvit-decode-{i}"))
            .build()
            .map_err(|e| Error::argument("threads", e))?;
        std::thread::scope(|scope| {
            let (sender, batches) = mpsc::sync_channel::<Batch>(1);
            scope.spawn(|| self.decode_all(&pool, sources, sender));
            for batch in batches {
                timing.merge(&batch.timing);
                self.finish(batch, &mut timing, &mut each)?;
            }
            Ok(timing)
        })
    }

    /// Decodes batch after batch until the sources end or nobody receives any more.
    fn decode_all(
        &self,
        pool: &ThreadPool,
        mut sources: impl Iterator<Item = Source>,
        sender: mpsc::SyncSender<Batch>,
    ) {
        let mut first = 0;
        loop {
            let sources: Vec<Source> = sources.by_ref().take(self.session.batch()).collect();
            if sources.is_empty() {
                return;
            }
            let count = sources.len();
            if sender.send(self.decode_batch(pool, first, &sources)).is_err() {
                return;
            }
            first += count;
        }
    }

    fn decode_batch(&self, pool: &ThreadPool, first: usize, sources: &[Source]) -> Batch {
        let decode = |source: &Source| {
            let mut timing = Timing::default();
            let start = Instant::now();
            let image = source.decode(&self.limits);
            timing.add(Phase::Decode, start.elapsed());
            let start = Instant::now();
            let pixels = image.and_then(|image| source.resize(&image, self.session.preprocess()));
            timing.add(Phase::Resize, start.elapsed());
            (pixels, timing)
        };
        let decoded: Vec<(Result<RgbImage>, Timing)> =
            pool.install(|| sources.par_iter().map(decode).collect());
        let mut batch = Batch {
            first,
            images: Vec::new(),
            pixels: Vec::new(),
            timing: Timing::default(),
        };
        for (source, (image, timing)) in sources.iter().zip(decoded) {
            batch.timing.merge(&timing);
            let start = Instant::now();
            let error = match image {
                Ok(image) => {
                    batch.pixels.extend_from_slice(&image.data);
                    None
                }
                Err(error) => Some(error),
            };
            batch.timing.add(Phase::Copy, start.elapsed());
            batch.images.push((source.name(), error));
        }
        batch
    }

    fn finish<E: From<Error>>(
        &self,
        batch: Batch,
        timing: &mut Timing,
        each: &mut impl FnMut(Item<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let outputs = match batch.pixels.is_empty() {
            true => None,
            false => Some(self.session.run_pixels(&batch.pixels, timing)?),
        };
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
        Ok(())
    }
}
