//! Loads batches on several threads, ahead of the consumer.
//!
//! Threads take single images in the order of the [`Sampler`]. The thread that completes a batch assembles it. Random
//! numbers depend on the image and the epoch only, so neither threads nor timing affect a batch.

mod prepared;
mod share;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZero;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use hipvit_image::DecodeOptions;
use parking_lot::{Condvar, Mutex};

use self::prepared::Prepared;
pub use self::share::Share;
use crate::augment::{Prepare, RandomErasing};
use crate::batch::{Batch, Broken, DrawnImages};
use crate::dataset::Dataset;
use crate::error::{Error, Result};
use crate::mix::{Mixup, mix_bytes};
use crate::random::{Draw, Purpose, Stream};
use crate::sampler::{Position, Sample, Sampler};

/// What a loader does with images that it cannot read, decode or augment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnBroken {
    /// Returns the error instead of the batch.
    #[default]
    Fail,
    /// Puts another image of the batch in the place. Batches keep their size, so that ranks stay in step.
    Replace,
    /// Leaves the image out. Batches become smaller. For evaluation.
    Omit,
}

/// Options of a [`Loader`].
#[derive(Clone, Debug)]
pub struct LoaderOptions {
    /// Number of threads, at least 1. All cores by default.
    pub threads: usize,
    /// Maximum number of batches in memory, beside the consumer's.
    pub ahead: usize,
    /// Options of decoding.
    pub decode: DecodeOptions,
    /// What happens with broken images.
    pub on_broken: OnBroken,
    /// Mixes images. Needs an even batch size.
    pub mixup: Option<Mixup>,
    /// Erases rectangles in [`Batch::planes`].
    pub erasing: Option<RandomErasing>,
    /// True if a device prepares the images: batches have [`Batch::drawn`] instead of pixels.
    pub draws: bool,
    /// Epoch at which the loader ends. `None` never ends.
    pub end: Option<u32>,
    /// Share of each batch that is loaded. `None` is all of it.
    pub share: Option<Share>,
}

impl Default for LoaderOptions {
    fn default() -> Self {
        Self {
            threads: thread::available_parallelism().map_or(1, NonZero::get),
            ahead: 3,
            decode: DecodeOptions::default(),
            on_broken: OnBroken::default(),
            mixup: None,
            erasing: None,
            draws: false,
            end: None,
            share: None,
        }
    }
}

/// An iterator over batches, in order.
#[derive(Debug)]
pub struct Loader {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Loader {
    /// Starts to load batches from `start` on.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] if the images do not fill a batch of all ranks, there are no threads, or mixup is on and the batch
    /// size is odd. Returns [`Error::Io`] if the operating system refuses threads.
    pub fn new(
        dataset: Arc<dyn Dataset>,
        sampler: Sampler,
        prepare: Arc<dyn Prepare>,
        options: LoaderOptions,
        start: Position,
    ) -> Result<Self> {
        check(&sampler, &options, start)?;
        let (threads, batches) = (options.threads, sampler.batches());
        let shared = Arc::new(Shared {
            dataset,
            sampler,
            prepare,
            options,
            state: Mutex::new(State {
                position: start,
                ended: batches == 0,
                ..State::default()
            }),
            work: Condvar::new(),
            ready: Condvar::new(),
        });
        let mut loader = Self {
            shared,
            threads: Vec::new(),
        };
        for _ in 0..threads {
            let shared = Arc::clone(&loader.shared);
            let thread = thread::Builder::new().name("loader".into());
            let thread = thread
                .spawn(move || shared.run())
                .map_err(|source| Error::io("threads", source))?;
            loader.threads.push(thread);
        }
        Ok(loader)
    }
}

fn check(sampler: &Sampler, options: &LoaderOptions, start: Position) -> Result<()> {
    let refuse = |reason: &str| Err(Error::argument("loader", reason));
    if options.threads == 0 || options.ahead == 0 {
        return refuse("needs at least one thread and one batch ahead");
    }
    if sampler.batches() == 0 && !sampler.keeps_remainder() {
        return refuse(
            "there are fewer images than one batch of all ranks. Use smaller batches, or pad the last one",
        );
    }
    if start.batch > sampler.batches() {
        return refuse("the first batch is after the end of the epoch");
    }
    if options.mixup.is_some() && !sampler.batch_size().is_multiple_of(2) {
        return refuse("mixup needs an even batch size");
    }
    if let Some(Share { number, count }) = options.share {
        if number >= count || !sampler.batch_size().is_multiple_of(count) {
            let batch = sampler.batch_size();
            let reason = format!("a batch of {batch} images is not divided into {count} equal shares");
            return refuse(&reason);
        }
        if options.on_broken == OnBroken::Omit {
            return refuse(
                "shares of a batch have a constant size: replace broken images instead of leaving them out",
            );
        }
    }
    if options.mixup.is_some() && options.on_broken == OnBroken::Omit {
        return refuse(
            "mixup needs batches of constant size: replace broken images instead of leaving them out",
        );
    }
    Ok(())
}

/// Ends after the last epoch, or after [`Error::Panicked`]. Other errors concern one batch.
impl Iterator for Loader {
    type Item = Result<Batch>;

    /// Waits for the next batch.
    fn next(&mut self) -> Option<Self::Item> {
        let mut state = self.shared.state.lock();
        loop {
            if state.stopped {
                return None;
            }
            let number = state.taken;
            if let Some(batch) = state.done.remove(&number) {
                state.taken += 1;
                self.shared.work.notify_all();
                return Some(batch);
            }
            if std::mem::take(&mut state.panicked) {
                // What other threads still load is dropped.
                state.stopped = true;
                self.shared.work.notify_all();
                return Some(Err(Error::Panicked));
            }
            if state.stopped {
                return None;
            }
            if state.ended && state.taken == state.started {
                return None;
            }
            self.shared.ready.wait(&mut state);
        }
    }
}

/// Stops the threads, and waits for them.
impl Drop for Loader {
    fn drop(&mut self) {
        self.shared.state.lock().stopped = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // A panic was reported to the consumer.
            let _ = thread.join();
        }
    }
}

/// What the threads and the consumer share.
#[derive(Debug)]
struct Shared {
    dataset: Arc<dyn Dataset>,
    sampler: Sampler,
    prepare: Arc<dyn Prepare>,
    options: LoaderOptions,
    state: Mutex<State>,
    /// Notified if there may be work.
    work: Condvar,
    /// Notified if a batch is done.
    ready: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Place of the batch that is started next.
    position: Position,
    /// Order of the epoch in `position`, once it is needed.
    order: Option<Arc<Vec<usize>>>,
    /// Number of batches that were started.
    started: usize,
    /// Number of batches that the consumer has taken.
    taken: usize,
    /// Images of started batches that no thread has taken.
    images: VecDeque<Task>,
    /// Started batches that lack images, by number.
    pending: BTreeMap<usize, Pending>,
    /// Complete batches, by number.
    done: BTreeMap<usize, Result<Batch>>,
    /// True after the last batch was started.
    ended: bool,
    /// True if the consumer needs no more batches.
    stopped: bool,
    /// True if a thread panicked.
    panicked: bool,
}

/// An image to load.
#[derive(Clone, Copy, Debug)]
struct Task {
    batch: usize,
    slot: usize,
    epoch: u32,
    sample: Sample,
}

/// A batch in work.
#[derive(Debug)]
struct Pending {
    position: Position,
    next: Position,
    samples: Vec<Sample>,
    images: Vec<Option<Result<Loaded>>>,
    missing: usize,
}

/// An image that was prepared.
#[derive(Clone, Debug)]
struct Loaded {
    image: Prepared,
    /// Height and width of the image before.
    original_size: [usize; 2],
}

/// Tells the consumer if a thread panics.
struct PanicGuard<'a>(&'a Shared);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.state.lock().panicked = true;
            self.0.ready.notify_all();
        }
    }
}

impl Shared {
    /// Loads images until the loader stops or ends.
    fn run(&self) {
        let _guard = PanicGuard(self);
        while let Some(task) = self.take() {
            let image = self.load(&task);
            let complete = self.put(&task, image);
            if let Some(pending) = complete {
                let batch = self.assemble(pending);
                self.state.lock().done.insert(task.batch, batch);
                self.ready.notify_all();
            }
        }
    }

    /// Waits for an image to load. Returns `None` if there will be no more.
    fn take(&self) -> Option<Task> {
        let mut state = self.state.lock();
        loop {
            if state.stopped {
                return None;
            }
            if let Some(task) = state.images.pop_front() {
                return Some(task);
            }
            if state.ended {
                return None;
            }
            if state.started - state.taken < self.options.ahead {
                self.start_batch(&mut state);
                self.work.notify_all();
                self.ready.notify_all();
            } else {
                self.work.wait(&mut state);
            }
        }
    }

    /// Adds the images of the next batch to the queue, or ends.
    fn start_batch(&self, state: &mut State) {
        let batches = self.sampler.batches();
        if state.position.batch >= batches {
            state.position = Position {
                epoch: state.position.epoch + 1,
                batch: 0,
            };
            state.order = None;
        }
        let position = state.position;
        if self.options.end.is_some_and(|end| position.epoch >= end) {
            state.ended = true;
            return;
        }
        let order = state
            .order
            .get_or_insert_with(|| Arc::new(self.sampler.order(position.epoch)));
        let mut samples = self.sampler.batch(order, position.batch);
        if let Some(share) = self.options.share {
            let loaded = share.loaded(samples.len(), self.options.mixup.is_some());
            samples = loaded.into_iter().map(|place| samples[place]).collect();
        }
        state.position.batch += 1;
        let next = if state.position.batch == batches {
            Position {
                epoch: position.epoch + 1,
                batch: 0,
            }
        } else {
            state.position
        };
        let batch = state.started;
        state.started += 1;
        let tasks = samples.iter().enumerate().map(|(slot, &sample)| Task {
            batch,
            slot,
            epoch: position.epoch,
            sample,
        });
        state.images.extend(tasks);
        let pending = Pending {
            position,
            next,
            images: samples.iter().map(|_| None).collect(),
            missing: samples.len(),
            samples,
        };
        state.pending.insert(batch, pending);
    }

    fn load(&self, task: &Task) -> Result<Loaded> {
        let index = task.sample.index;
        let image = self.dataset.decode(index, self.options.decode)?;
        let original_size = [image.height, image.width];
        let mut stream = self.stream(Purpose::Augment, task.epoch, task.sample);
        let image = if self.options.draws {
            let drawn = self.prepare.draw(image, &mut stream);
            drawn.map(|drawn| Prepared::Drawn(Arc::new(drawn)))
        } else {
            self.prepare.prepare(image, &mut stream).map(Prepared::Image)
        };
        let image = image.map_err(|source| Error::Prepare {
            name: self.dataset.name(index),
            source: Box::new(source),
        })?;
        Ok(Loaded { image, original_size })
    }

    fn stream(&self, purpose: Purpose, epoch: u32, sample: Sample) -> Stream {
        let draw = Draw {
            purpose,
            epoch,
            index: sample.index as u64,
            repeat: sample.repeat,
        };
        Stream::new(self.sampler.seed(), draw)
    }

    /// Stores an image. Returns the batch if it is complete.
    fn put(&self, task: &Task, image: Result<Loaded>) -> Option<Pending> {
        let mut state = self.state.lock();
        let pending = state.pending.get_mut(&task.batch)?;
        pending.images[task.slot] = Some(image);
        pending.missing -= 1;
        if pending.missing == 0 {
            state.pending.remove(&task.batch)
        } else {
            None
        }
    }

    fn assemble(&self, pending: Pending) -> Result<Batch> {
        let Pending {
            position,
            next,
            samples,
            images,
            ..
        } = pending;
        let whole = self.sampler.batch_size();
        let own = self.options.share.map(|share| {
            let loaded = share.loaded(whole, self.options.mixup.is_some());
            let own = share.places(whole);
            let first = loaded.iter().position(|&place| place == own.start).unwrap_or(0);
            first..first + own.len()
        });
        let of_share: Option<Vec<Sample>> = own.clone().map(|own| samples[own].to_vec());
        let (images, samples, mut broken) = self.sort_out(images, samples)?;
        if let Some(of_share) = of_share {
            // The others are reported with their own share.
            broken.retain(|broken| of_share.iter().any(|sample| sample.index == broken.index));
        }
        let size = images.first().map_or([0; 2], |loaded| loaded.image.size());
        let prepared = if self.options.draws { 0 } else { images.len() };
        let mut pixels = Vec::with_capacity(prepared * size[0] * size[1] * 3);
        let mut drawn = Vec::new();
        for (Loaded { image, .. }, sample) in images.iter().zip(&samples) {
            if image.size() != size {
                return Err(self.different_size(image.size(), *sample, size));
            }
            match image {
                Prepared::Image(image) => pixels.extend_from_slice(&image.data),
                Prepared::Drawn(image) => drawn.push(image.clone()),
            }
        }
        let mut batch = Batch {
            pixels,
            drawn: self.options.draws.then(|| DrawnImages {
                kept: 0..drawn.len(),
                images: drawn,
                mixtures: Vec::new(),
            }),
            size,
            labels: samples
                .iter()
                .map(|sample| self.dataset.label(sample.index))
                .collect(),
            samples,
            original_sizes: images.iter().map(|loaded| loaded.original_size).collect(),
            mixtures: Vec::new(),
            partners: Vec::new(),
            erasures: Vec::new(),
            broken,
            position,
            next,
        };
        self.mix(&mut batch)?;
        self.draw_erasures(&mut batch);
        if let Some(own) = own {
            batch.keep(own);
        }
        Ok(batch)
    }

    fn different_size(&self, [rows, columns]: [usize; 2], sample: Sample, first: [usize; 2]) -> Error {
        let [height, width] = first;
        let reason = format!(
            "is {columns}×{rows} pixels, but the first image of the batch is {width}×{height}. Resize or crop the images"
        );
        Error::dataset(self.dataset.name(sample.index), reason)
    }

    /// Handles broken images as the options say.
    #[allow(
        clippy::type_complexity,
        reason = "images with their samples, and the broken ones"
    )]
    fn sort_out(
        &self,
        images: Vec<Option<Result<Loaded>>>,
        mut samples: Vec<Sample>,
    ) -> Result<(Vec<Loaded>, Vec<Sample>, Vec<Broken>)> {
        let mut broken = Vec::new();
        let mut kept: Vec<Option<Loaded>> = Vec::new();
        for (image, sample) in images.into_iter().flatten().zip(&samples) {
            kept.push(match image {
                Ok(image) => Some(image),
                Err(error) if self.options.on_broken == OnBroken::Fail => return Err(error),
                Err(error) => {
                    let index = sample.index;
                    broken.push(Broken { index, error });
                    None
                }
            });
        }
        if kept.iter().all(Option::is_none)
            && self.options.on_broken == OnBroken::Replace
            && let Some(Broken { error, .. }) = broken.pop()
        {
            return Err(error);
        }
        if self.options.on_broken == OnBroken::Replace {
            replace_missing(&mut kept, &mut samples);
        }
        let mut present = kept.iter().map(Option::is_some);
        samples.retain(|_| present.next() == Some(true));
        Ok((kept.into_iter().flatten().collect(), samples, broken))
    }

    fn mix(&self, batch: &mut Batch) -> Result<()> {
        let Some(mixup) = self.options.mixup else {
            return Ok(());
        };
        let place = Sample {
            index: self.sampler.first_place(batch.position.batch),
            repeat: 0,
        };
        let mut stream = self.stream(Purpose::Mix, batch.position.epoch, place);
        let whole = self
            .options
            .share
            .map_or(batch.len(), |_| self.sampler.batch_size());
        batch.mixtures = mixup.draw(&mut stream, whole, batch.size)?;
        if let Some(share) = self.options.share {
            // The places are symmetric, so that partners stay at mirrored places.
            let loaded = share.loaded(whole, true);
            batch.mixtures = loaded.into_iter().map(|place| batch.mixtures[place]).collect();
        }
        match &mut batch.drawn {
            Some(drawn) => drawn.mixtures.clone_from(&batch.mixtures),
            None => mix_bytes(&mut batch.pixels, &batch.mixtures, batch.size[1]),
        }
        Ok(())
    }

    fn draw_erasures(&self, batch: &mut Batch) {
        if let Some(erasing) = self.options.erasing {
            let [height, width] = batch.size;
            let epoch = batch.position.epoch;
            let draw = |&sample: &Sample| {
                let mut stream = self.stream(Purpose::Erase, epoch, sample);
                erasing.draw(&mut stream, [width, height])
            };
            batch.erasures = batch.samples.iter().map(draw).collect();
        }
    }
}

/// Puts into each empty place the next image of the batch, in a circle.
fn replace_missing(images: &mut [Option<Loaded>], samples: &mut [Sample]) {
    let present: Vec<usize> = (0..images.len()).filter(|&slot| images[slot].is_some()).collect();
    for slot in 0..images.len() {
        if images[slot].is_none() {
            let next = present.iter().find(|&&other| other > slot).or(present.first());
            if let Some(&other) = next {
                images[slot] = images[other].clone();
                samples[slot] = samples[other];
            }
        }
    }
}
