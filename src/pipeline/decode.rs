//! The first stage of a [`Pipeline`](super::Pipeline): decodes images and, unless the GPU does it, resizes them into memory that the GPU
//! copies from. The threads start the images of the next batch while the last images of a batch are in progress.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use rayon::ThreadPool;

use super::Source;
use super::gather::Gather;
use crate::error::{Error, Result};
use crate::exec::{BatchSlabs, Images, StagedImage, StagedPixels, Staging, StagingPart};
use crate::image::{DecodeBuffers, DecodeOptions, Limits, RgbImage};
use crate::session::{ResizeOn, Session};
use crate::timeline::{self, Activity};
use crate::timing::{Phase, Timing};

/// State that the decode threads share.
pub(super) struct Decoder {
    pub(super) session: Session,
    pub(super) options: DecodeOptions,
    pub(super) memory: Arc<DecodeMemory>,
    /// Set once the results are dropped.
    pub(super) stop: Arc<AtomicBool>,
}

/// Unused memory for files and pixels. An allocator would return blocks of this size to the system, and each image would cause page faults.
pub(super) struct DecodeMemory {
    files: Mutex<Spare>,
    pixels: Mutex<Spare>,
}

/// Maximum bytes of unused memory of each kind: a few batches of photographs.
const SPARE_BYTES: u64 = 512 << 20;

/// Unused memory up to a limit.
struct Spare {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
    limit: usize,
}

impl Spare {
    fn new(limits: &Limits) -> Self {
        Self {
            buffers: Vec::new(),
            bytes: 0,
            // Leave most of the limit for the images.
            limit: SPARE_BYTES.min(limits.max_memory / 8) as usize,
        }
    }

    fn take(&mut self) -> Vec<u8> {
        let buffer = self.buffers.pop().unwrap_or_default();
        self.bytes -= buffer.capacity();
        buffer
    }

    fn keep(&mut self, buffer: Vec<u8>) {
        let bytes = buffer.capacity();
        if bytes > 0 && self.bytes + bytes <= self.limit {
            self.bytes += bytes;
            self.buffers.push(buffer);
        }
    }
}

impl DecodeMemory {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            files: Mutex::new(Spare::new(limits)),
            pixels: Mutex::new(Spare::new(limits)),
        }
    }

    fn take(&self) -> DecodeBuffers {
        DecodeBuffers {
            file: self.files.lock().take(),
            pixels: self.pixels.lock().take(),
            permit: None,
        }
    }

    fn keep(&self, buffers: DecodeBuffers) {
        self.files.lock().keep(buffers.file);
        self.pixels.lock().keep(buffers.pixels);
    }

    /// Takes back the memory of images that were copied.
    pub(super) fn keep_images(&self, images: Vec<StagedImage>) {
        let mut pixels = self.pixels.lock();
        for image in images {
            if let StagedPixels::Pageable(image) = image.pixels {
                pixels.keep(image);
            }
        }
    }
}

/// A batch with images that are being decoded.
pub(super) struct Batch {
    first: usize,
    /// Pinned memory for the images. Set if a GPU resizes them.
    slabs: Option<Arc<BatchSlabs>>,
    state: Mutex<State>,
    complete: Condvar,
}

struct State {
    images: Vec<Option<Decoded>>,
    missing: usize,
    /// Set if some images will not be decoded.
    lost: bool,
}

/// State of a decoded image.
struct Decoded {
    name: String,
    error: Option<Error>,
    /// The image, if a GPU resizes it.
    image: Option<StagedImage>,
    /// Otherwise its part of the batch, filled unless there is an error.
    part: Option<StagingPart>,
    timing: Timing,
}

/// Sources of a batch: the name of each, and the error of a source without pixels.
pub(super) struct Items {
    pub(super) first: usize,
    pub(super) images: Vec<(String, Option<Error>)>,
    pub(super) timing: Timing,
}

/// Pixels of a batch.
pub(super) enum Pixels {
    /// Pixels of the model's size.
    Staged(Staging),
    /// Decoded images, for the GPU to resize.
    Decoded(DecodedImages),
}

/// Decoded images, and the slabs that contain some of them.
pub(super) struct DecodedImages {
    images: Vec<StagedImage>,
    slabs: Arc<BatchSlabs>,
}

impl DecodedImages {
    /// Submits the images with `submit`, then returns pageable memory to `memory`.
    pub(super) fn submit<T>(
        self,
        memory: &DecodeMemory,
        submit: impl FnOnce(Images<'_>) -> Result<T>,
    ) -> Result<T> {
        let Self { mut images, slabs } = self;
        let submitted = slabs.finish(&mut images).and_then(submit);
        memory.keep_images(images);
        submitted
    }
}

impl Decoder {
    /// Decodes batch after batch until the sources end or the receiver is dropped.
    pub(super) fn decode_all(
        &self,
        pool: &ThreadPool,
        mut sources: Gather,
        batches: SyncSender<Result<Arc<Batch>>>,
    ) {
        // The scope ends when all images are finished, so that nothing of the session is in use afterwards.
        pool.in_place_scope_fifo(|scope| {
            let mut first = 0;
            let mut largest = if sources.grows() { self.session.batch() } else { 0 };
            loop {
                let sources = sources.next(self.session.batch());
                let count = sources.len();
                if count == 0 {
                    return;
                }
                // The last batch may be smaller. With this capacity the next run can reuse its memory.
                largest = largest.max(count);
                let parts = match self.parts(count, largest) {
                    Ok(parts) => parts,
                    Err(error) => {
                        let _ = batches.send(Err(error));
                        return;
                    }
                };
                let slabs = self.session.slabs().map(BatchSlabs::new).map(Arc::new);
                let batch = Arc::new(Batch::new(first, count, slabs));
                for (index, (source, part)) in sources.into_iter().zip(parts).enumerate() {
                    let batch = batch.clone();
                    scope.spawn_fifo(move |_| {
                        if self.stop.load(Ordering::Relaxed) {
                            return batch.set(index, None);
                        }
                        let decoded = catch_unwind(AssertUnwindSafe(|| {
                            self.decode(source, part, batch.slabs.as_deref())
                        }));
                        match decoded {
                            Ok(decoded) => batch.set(index, Some(decoded)),
                            Err(panic) => {
                                batch.set(index, None);
                                resume_unwind(panic)
                            }
                        }
                    });
                }
                if batches.send(Ok(batch)).is_err() {
                    self.stop.store(true, Ordering::Relaxed);
                    return;
                }
                first += count;
            }
        });
    }

    /// Returns the parts of the batch's memory for images that the host resizes.
    fn parts(&self, count: usize, capacity: usize) -> Result<Vec<Option<StagingPart>>> {
        if self.session.resize() == ResizeOn::Device {
            return Ok((0..count).map(|_| None).collect());
        }
        let _span = timeline::named_span(Activity::Allocate, || "allocate staging memory".into());
        let staging = self.session.stage(count, capacity)?;
        let parts = staging.split(self.session.image_bytes())?;
        Ok(parts.into_iter().map(Some).collect())
    }

    fn decode(&self, source: Source, mut part: Option<StagingPart>, slabs: Option<&BatchSlabs>) -> Decoded {
        let name = source.name();
        let mut timing = Timing::default();
        let mut buffers = self.memory.take();
        let result = match part.as_deref_mut() {
            Some(part) => self.fill(source, part, &mut buffers, &mut timing).map(|()| None),
            None => self.image(source, slabs, &mut buffers, &mut timing).map(Some),
        };
        self.memory.keep(buffers);
        let (image, error) = match result {
            Ok(image) => (image, None),
            Err(error) => (None, Some(error)),
        };
        Decoded {
            name,
            error,
            image,
            part,
            timing,
        }
    }

    /// Decodes an image for the GPU to resize.
    fn image(
        &self,
        source: Source,
        slabs: Option<&BatchSlabs>,
        buffers: &mut DecodeBuffers,
        timing: &mut Timing,
    ) -> Result<StagedImage> {
        let name = source.name();
        let start = Instant::now();
        let image = decode(source, self.options, buffers)?;
        let decoded = Instant::now();
        timing.add(Phase::Decode, decoded - start);
        let rule = self.session.preprocess();
        rule.check(&image)
            .map_err(|error| super::source::unusable(name, &error))?;
        let size = [image.width, image.height];
        let _span = timeline::span(Activity::Stage);
        let pixels = match slabs.and_then(|slabs| slabs.put(&image.data)) {
            Some(part) => {
                buffers.pixels = image.data;
                StagedPixels::Slab(Some(part))
            }
            None => StagedPixels::Pageable(image.data),
        };
        timing.add(Phase::Stage, decoded.elapsed());
        Ok(StagedImage { size, pixels })
    }

    /// Decodes and resizes an image into its part of the batch.
    fn fill(
        &self,
        source: Source,
        part: &mut [u8],
        buffers: &mut DecodeBuffers,
        timing: &mut Timing,
    ) -> Result<()> {
        if let Source::Pixels(name, pixels) = &source {
            if pixels.len() != part.len() {
                let reason = format!("has {} bytes, expected {}", pixels.len(), part.len());
                return Err(super::source::unusable(name.clone(), &reason));
            }
            let start = Instant::now();
            let _span = timeline::span(Activity::Stage);
            part.copy_from_slice(pixels);
            timing.add(Phase::Stage, start.elapsed());
            return Ok(());
        }
        let name = source.name();
        let start = Instant::now();
        let image = decode(source, self.options, buffers)?;
        let decoded = Instant::now();
        timing.add(Phase::Decode, decoded - start);
        let mut span = timeline::span(Activity::Resize);
        span.arg("from", vec![image.width, image.height]);
        let resized = self.session.preprocess().apply_into(&image, part);
        drop(span);
        timing.add(Phase::Resize, decoded.elapsed());
        buffers.pixels = image.data;
        resized.map_err(|error| super::source::unusable(name, &error))
    }
}

fn decode(source: Source, options: DecodeOptions, buffers: &mut DecodeBuffers) -> Result<RgbImage> {
    let mut span = timeline::span(Activity::Decode);
    let name = timeline::is_recording().then(|| source.name());
    let image = source.into_image(options, buffers)?;
    if let Some(name) = name {
        span.arg("image", name);
        span.arg("size", vec![image.width, image.height]);
    }
    Ok(image)
}

impl Batch {
    fn new(first: usize, count: usize, slabs: Option<Arc<BatchSlabs>>) -> Self {
        Self {
            first,
            slabs,
            state: Mutex::new(State {
                images: (0..count).map(|_| None).collect(),
                missing: count,
                lost: false,
            }),
            complete: Condvar::new(),
        }
    }

    fn set(&self, index: usize, decoded: Option<Decoded>) {
        let mut state = self.state.lock();
        state.lost |= decoded.is_none();
        state.images[index] = decoded;
        state.missing -= 1;
        if state.missing == 0 {
            self.complete.notify_all();
        }
    }

    /// Waits until all images are decoded. `None` if some will not be.
    pub(super) fn wait(&self) -> Option<Result<(Items, Option<Pixels>)>> {
        let mut state = self.state.lock();
        self.complete.wait_while(&mut state, |state| state.missing > 0);
        if state.lost {
            return None;
        }
        let decoded = std::mem::take(&mut state.images);
        Some(collect(
            self.first,
            decoded.into_iter().flatten(),
            self.slabs.clone(),
        ))
    }
}

/// Combines the pixels of the images.
fn collect(
    first: usize,
    decoded: impl Iterator<Item = Decoded>,
    slabs: Option<Arc<BatchSlabs>>,
) -> Result<(Items, Option<Pixels>)> {
    let mut batch = Items {
        first,
        images: Vec::new(),
        timing: Timing::default(),
    };
    let (mut parts, mut images) = (Vec::new(), Vec::new());
    for image in decoded {
        batch.timing.merge(&image.timing);
        batch.images.push((image.name, image.error));
        parts.extend(image.part);
        images.extend(image.image);
    }
    let good = |(_, error): &&(String, Option<Error>)| error.is_none();
    let count = batch.images.iter().filter(good).count();
    let pixels = if count == 0 {
        None
    } else if let Some(slabs) = slabs {
        Some(Pixels::Decoded(DecodedImages { images, slabs }))
    } else {
        let start = Instant::now();
        let _span = timeline::span(Activity::Stage);
        let missing = || Error::internal("images", "none has memory");
        let mut staging = Staging::join(parts)?.ok_or_else(missing)?;
        let each = staging.len() / batch.images.len();
        let filled = batch.images.iter().enumerate().filter(|(_, image)| good(image));
        // Images with errors leave no gap.
        for (to, (from, _)) in filled.enumerate().filter(|(to, (from, _))| to != from) {
            staging.copy_within(from * each..(from + 1) * each, to * each);
        }
        staging.truncate(count * each);
        batch.timing.add(Phase::Stage, start.elapsed());
        Some(Pixels::Staged(staging))
    };
    Ok((batch, pixels))
}
