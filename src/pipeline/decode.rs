//! The first stage of a [`Pipeline`](super::Pipeline) decodes images into memory that the GPU copies from. It also resizes them, unless the GPU
//! does. Threads start the images of the next batch before the last images of a batch are done.

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
use crate::image::{DecodeBuffers, DecodeOptions, DeviceImage, Limits, RgbImage};
use crate::session::{ResizeOn, Session};
use crate::timeline::{self, Activity};
use crate::timing::{Phase, Timing};

/// The decode stage. All decode threads share it.
pub(super) struct Decoder {
    pub(super) session: Session,
    pub(super) options: DecodeOptions,
    /// True if a GPU that resizes images also computes the pixels of JPEGs.
    pub(super) device_jpeg: bool,
    pub(super) memory: Arc<DecodeMemory>,
    /// True once the caller has dropped the results. Decoding then stops.
    pub(super) stop: Arc<AtomicBool>,
}

/// Pools of buffers for files and pixels. The allocator would return buffers of this size to the system, so each image would cause page faults.
pub(super) struct DecodeMemory {
    files: Mutex<BufferPool<u8>>,
    pixels: Mutex<BufferPool<u8>>,
    coefficients: Mutex<BufferPool<u32>>,
}

/// Maximum size of a pool in bytes: a few batches of photographs.
const MAX_POOL_BYTES: u64 = 512 << 20;

/// A pool of unused buffers.
struct BufferPool<T> {
    buffers: Vec<Vec<T>>,
    /// Total capacity of the buffers.
    bytes: usize,
    /// Maximum of `bytes`.
    limit: usize,
}

impl<T> BufferPool<T> {
    fn new(limits: &Limits) -> Self {
        Self {
            buffers: Vec::new(),
            bytes: 0,
            // Leave most of the decode memory for images in progress.
            limit: MAX_POOL_BYTES.min(limits.max_memory / 8) as usize,
        }
    }

    /// Returns an unused buffer, or an empty one.
    fn take(&mut self) -> Vec<T> {
        let buffer = self.buffers.pop().unwrap_or_default();
        self.bytes -= buffer.capacity() * size_of::<T>();
        buffer
    }

    /// Stores `buffer` for reuse, or frees it if the pool is full.
    fn put(&mut self, buffer: Vec<T>) {
        let bytes = buffer.capacity() * size_of::<T>();
        if bytes > 0 && self.bytes + bytes <= self.limit {
            self.bytes += bytes;
            self.buffers.push(buffer);
        }
    }
}

impl DecodeMemory {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            files: Mutex::new(BufferPool::new(limits)),
            pixels: Mutex::new(BufferPool::new(limits)),
            coefficients: Mutex::new(BufferPool::new(limits)),
        }
    }

    fn take(&self) -> DecodeBuffers {
        DecodeBuffers {
            file: self.files.lock().take(),
            pixels: self.pixels.lock().take(),
            coefficients: self.coefficients.lock().take(),
            permit: None,
        }
    }

    fn put(&self, buffers: DecodeBuffers) {
        self.files.lock().put(buffers.file);
        self.pixels.lock().put(buffers.pixels);
        self.coefficients.lock().put(buffers.coefficients);
    }

    /// Returns the pageable buffers of submitted images to the pool.
    pub(super) fn put_images(&self, images: Vec<StagedImage>) {
        for image in images {
            if let StagedPixels::Pageable(image) = image.pixels {
                let mut buffers = DecodeBuffers::default();
                image.recycle(&mut buffers);
                self.put(buffers);
            }
        }
    }
}

/// A batch whose images are being decoded.
pub(super) struct Batch {
    /// Number of the first image in the run.
    first: usize,
    /// Pinned memory for decoded images. Set if a GPU resizes them.
    slabs: Option<Arc<BatchSlabs>>,
    state: Mutex<State>,
    /// Notified when no image is pending.
    complete: Condvar,
}

/// Progress of a batch.
struct State {
    images: Vec<Option<Decoded>>,
    /// Number of images that are not finished.
    pending: usize,
    /// True if the run was stopped, or a decode thread panicked, before all images were decoded.
    aborted: bool,
}

/// Result of decoding one image.
struct Decoded {
    name: String,
    error: Option<Error>,
    /// The decoded image, if a GPU resizes it.
    image: Option<StagedImage>,
    /// The image's part of the batch, if the host resizes it. Contains its pixels unless `error` is set.
    part: Option<StagingPart>,
    timing: Timing,
}

/// Names of the images in a batch, with the error of each image that failed.
pub(super) struct Items {
    pub(super) first: usize,
    pub(super) images: Vec<(String, Option<Error>)>,
    pub(super) timing: Timing,
}

/// Pixels of a batch, as input of the session.
pub(super) enum Pixels {
    /// Images that the host resized to the model's input size.
    Staged(Staging),
    /// Decoded images that the GPU resizes.
    Decoded(DecodedImages),
}

/// Decoded images, and the pinned slabs that contain some of them. The others are in pageable memory.
pub(super) struct DecodedImages {
    images: Vec<StagedImage>,
    slabs: Arc<BatchSlabs>,
}

impl DecodedImages {
    /// Calls `submit` with the images, then returns their pageable buffers to `memory`.
    pub(super) fn submit<T>(
        self,
        memory: &DecodeMemory,
        submit: impl FnOnce(Images<'_>) -> Result<T>,
    ) -> Result<T> {
        let Self { mut images, slabs } = self;
        let submitted = slabs.finish(&mut images).and_then(submit);
        memory.put_images(images);
        submitted
    }
}

impl Decoder {
    /// Decodes all batches, and sends each one to `batches` without waiting for its images. Ends if the receiver is dropped.
    pub(super) fn decode_all(
        &self,
        pool: &ThreadPool,
        mut sources: Gather,
        batches: SyncSender<Result<Arc<Batch>>>,
    ) {
        // The scope waits for all images, so no thread uses the session afterwards.
        pool.in_place_scope_fifo(|scope| {
            let mut first = 0;
            let mut largest = if sources.grows() { self.session.batch() } else { 0 };
            loop {
                let sources = sources.next(self.session.batch());
                let count = sources.len();
                if count == 0 {
                    return;
                }
                // The last batch can be smaller. Allocate the largest size, so that the next run can reuse the memory.
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

    /// Allocates input memory for a batch, and returns the part of each image. The parts are `None` if the GPU resizes.
    fn parts(&self, count: usize, capacity: usize) -> Result<Vec<Option<StagingPart>>> {
        if self.session.resize() == ResizeOn::Device {
            return Ok((0..count).map(|_| None).collect());
        }
        let _span = timeline::named_span(Activity::Allocate, || "allocate staging memory".into());
        let staging = self.session.stage(count, capacity)?;
        let parts = staging.split(self.session.image_bytes())?;
        Ok(parts.into_iter().map(Some).collect())
    }

    /// Decodes an image, and resizes it into `part` if that is set. Returns errors as part of the result.
    fn decode(&self, source: Source, mut part: Option<StagingPart>, slabs: Option<&BatchSlabs>) -> Decoded {
        let name = source.name();
        let mut timing = Timing::default();
        let mut buffers = self.memory.take();
        let result = match part.as_deref_mut() {
            Some(part) => self
                .decode_and_resize(source, part, &mut buffers, &mut timing)
                .map(|()| None),
            None => self
                .decode_for_gpu(source, slabs, &mut buffers, &mut timing)
                .map(Some),
        };
        self.memory.put(buffers);
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

    /// Decodes an image that the GPU resizes. Copies it to a slab if one has room.
    fn decode_for_gpu(
        &self,
        source: Source,
        slabs: Option<&BatchSlabs>,
        buffers: &mut DecodeBuffers,
        timing: &mut Timing,
    ) -> Result<StagedImage> {
        let name = source.name();
        let start = Instant::now();
        let image = self.decode_image(source, buffers)?;
        let decoded = Instant::now();
        timing.add(Phase::Decode, decoded - start);
        let (size, jpeg) = (image.size(), image.jpeg());
        let rule = self.session.preprocess();
        rule.placement(size)
            .map_err(|error| super::source::unusable(name, &error))?;
        let _span = timeline::span(Activity::Stage);
        let pixels = match slabs.and_then(|slabs| slabs.put(image.bytes())) {
            Some(part) => {
                image.recycle(buffers);
                StagedPixels::Slab(Some(part))
            }
            None => StagedPixels::Pageable(image),
        };
        timing.add(Phase::Stage, decoded.elapsed());
        Ok(StagedImage { size, jpeg, pixels })
    }

    /// Decodes a source for a GPU, and records a span on the timeline.
    fn decode_image(&self, source: Source, buffers: &mut DecodeBuffers) -> Result<DeviceImage> {
        if !self.device_jpeg {
            return decode(source, self.options, buffers).map(DeviceImage::Pixels);
        }
        traced(&source.name(), || {
            let image = source.into_device_image(self.options, buffers)?;
            let size = image.size();
            Ok((image, size))
        })
    }

    /// Decodes an image and resizes it into `part`. Only copies a source that already consists of pixels.
    fn decode_and_resize(
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

/// Decodes a source, and records a span on the timeline.
fn decode(source: Source, options: DecodeOptions, buffers: &mut DecodeBuffers) -> Result<RgbImage> {
    traced(&source.name(), || {
        let image = source.into_image(options, buffers)?;
        let size = [image.width, image.height];
        Ok((image, size))
    })
}

/// Calls `decode`, which returns an image and its size, and records a span on the timeline.
fn traced<T>(name: &str, decode: impl FnOnce() -> Result<(T, [usize; 2])>) -> Result<T> {
    let mut span = timeline::span(Activity::Decode);
    let (image, size) = decode()?;
    if timeline::is_recording() {
        span.arg("image", name.to_owned());
        span.arg("size", size.to_vec());
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
                pending: count,
                aborted: false,
            }),
            complete: Condvar::new(),
        }
    }

    /// Stores the result of an image. `None` aborts the batch.
    fn set(&self, index: usize, decoded: Option<Decoded>) {
        let mut state = self.state.lock();
        state.aborted |= decoded.is_none();
        state.images[index] = decoded;
        state.pending -= 1;
        if state.pending == 0 {
            self.complete.notify_all();
        }
    }

    /// Waits until all images are decoded. Returns `None` if the run was stopped or a decode thread panicked.
    pub(super) fn wait(&self) -> Option<Result<(Items, Option<Pixels>)>> {
        let mut state = self.state.lock();
        self.complete.wait_while(&mut state, |state| state.pending > 0);
        if state.aborted {
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

/// Combines the images of a batch into one input. The input is `None` if all images have errors.
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
    let is_decoded = |(_, error): &&(String, Option<Error>)| error.is_none();
    let count = batch.images.iter().filter(is_decoded).count();
    let pixels = if count == 0 {
        None
    } else if let Some(slabs) = slabs {
        Some(Pixels::Decoded(DecodedImages { images, slabs }))
    } else {
        let start = Instant::now();
        let _span = timeline::span(Activity::Stage);
        let no_parts = || Error::internal("pipeline", "a batch has no input memory");
        let mut staging = Staging::join(parts)?.ok_or_else(no_parts)?;
        let image_bytes = staging.len() / batch.images.len();
        let filled = batch
            .images
            .iter()
            .enumerate()
            .filter(|(_, image)| is_decoded(image));
        // Close the gaps of images with errors.
        for (to, (from, _)) in filled.enumerate().filter(|(to, (from, _))| to != from) {
            staging.copy_within(from * image_bytes..(from + 1) * image_bytes, to * image_bytes);
        }
        staging.truncate(count * image_bytes);
        batch.timing.add(Phase::Stage, start.elapsed());
        Some(Pixels::Staged(staging))
    };
    Ok((batch, pixels))
}
