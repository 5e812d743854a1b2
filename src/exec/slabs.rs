//! Pinned memory for decoded images. A decode thread copies an image there while the image is in its caches, and a GPU copies from there.
//! Separate copy threads would take time from the decode threads, and each image would have to wake one.
//!
//! A slab holds several images, so that a batch needs few copies. Pinning is slow, so slabs are made one at a time and reused. Threads wait
//! for a slab, because copies from pageable memory delay some batches by much. An image stays in pageable memory if it exceeds a slab, or at
//! the maximum number of slabs.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::hip::{Device, Pending, PinnedBuffer, PinnedPart};
use crate::image::{DeviceImage, JpegGeometry, RgbImage};

/// Bytes of a slab. A larger image stays in pageable memory.
const SLAB: usize = 8 << 20;

/// Maximum number of slabs of a GPU, a GiB: a few batches of 256 photographs.
const MAX_SLABS: usize = 128;

/// Alignment of images in a slab, that of the kernels' vector loads.
pub(super) const ALIGNMENT: usize = 16;

/// Pinned slabs of a GPU.
#[derive(Debug)]
pub struct Slabs {
    device: Device,
    state: Mutex<State>,
    /// Locked while a slab is allocated.
    growing: Mutex<()>,
    /// Each slab holds a clone, so that the reference count is the number of slabs.
    alive: Arc<()>,
}

#[derive(Debug, Default)]
struct State {
    unused: Vec<Slab>,
    /// Slabs that a device still copies from, in the order of submission.
    copied: VecDeque<Copied>,
}

/// A slab that a device copies from.
#[derive(Debug)]
struct Copied {
    copy: Pending<Vec<PinnedBuffer<u8>>>,
    alive: Arc<()>,
}

/// Pinned memory for several images.
#[derive(Debug)]
pub(super) struct Slab {
    pub(super) memory: PinnedBuffer<u8>,
    alive: Arc<()>,
}

impl Slabs {
    pub(super) fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            state: Mutex::default(),
            growing: Mutex::default(),
            alive: Arc::default(),
        }
    }

    /// Returns an unused or a new slab. `None` at the maximum number of slabs, or if pinning fails.
    fn take(&self) -> Option<Slab> {
        {
            let mut state = self.state.lock();
            // A failed query means that the run failed, which `finish` reports.
            while let Some(oldest) = state.copied.front()
                && oldest.copy.is_done().unwrap_or(true)
            {
                if let Some(Copied { copy, alive }) = state.copied.pop_front()
                    && let Ok(memory) = copy.wait()
                {
                    let slab = |memory| Slab {
                        memory,
                        alive: alive.clone(),
                    };
                    state.unused.extend(memory.into_iter().map(slab));
                }
            }
            if let Some(mut slab) = state.unused.pop() {
                slab.memory.set_len(SLAB).ok()?;
                return Some(slab);
            }
        }
        // Pinning is slow, and slower on several threads.
        let _growing = self.growing.lock();
        if Arc::strong_count(&self.alive) > MAX_SLABS {
            return None;
        }
        // Images stay in pageable memory if pinning fails.
        let memory = self.device.pinned(SLAB).ok()?;
        Some(Slab {
            memory,
            alive: self.alive.clone(),
        })
    }

    /// Takes back a slab that a device still copies from.
    pub(super) fn keep_copied(&self, copy: Pending<Vec<PinnedBuffer<u8>>>, alive: Arc<()>) {
        self.state.lock().copied.push_back(Copied { copy, alive });
    }
}

impl Slab {
    /// Returns the memory, and the clone of [`Slabs::alive`].
    pub(super) fn into_parts(self) -> (PinnedBuffer<u8>, Arc<()>) {
        (self.memory, self.alive)
    }
}

/// The slabs of a batch, which decode threads fill.
#[derive(Debug)]
pub struct BatchSlabs {
    slabs: Arc<Slabs>,
    state: Mutex<BatchState>,
    /// Locked by the thread that takes the next slab. The other threads then use that slab.
    taking: Mutex<()>,
}

#[derive(Debug, Default)]
struct BatchState {
    begun: Vec<Arc<()>>,
    /// Free part of the last slab.
    open: Option<SlabPart>,
}

/// A part of a slab.
#[derive(Debug)]
pub struct SlabPart {
    /// Index of the slab in the batch.
    slab: usize,
    memory: PinnedPart<u8>,
}

impl BatchSlabs {
    /// Creates a batch without slabs.
    pub fn new(slabs: Arc<Slabs>) -> Self {
        Self {
            slabs,
            state: Mutex::default(),
            taking: Mutex::default(),
        }
    }

    /// Copies an image's pixels or coefficients into a slab. `None` if no slab has room.
    pub fn put(&self, pixels: &[u8]) -> Option<SlabPart> {
        let mut part = self.part(pixels.len())?;
        part.memory.copy_from_slice(pixels);
        Some(part)
    }

    fn part(&self, bytes: usize) -> Option<SlabPart> {
        let aligned = bytes.next_multiple_of(ALIGNMENT);
        if aligned > SLAB {
            return None;
        }
        if let Some(part) = self.state.lock().cut(bytes, aligned) {
            return Some(part);
        }
        let _taking = self.taking.lock();
        // Another thread may have taken a slab in the meantime.
        if let Some(part) = self.state.lock().cut(bytes, aligned) {
            return Some(part);
        }
        // Release the state's lock before calling the driver.
        let slab = self.slabs.take()?;
        let mut state = self.state.lock();
        let Slab { memory, alive } = slab;
        let memory = memory.into_part();
        let slab = state.begun.len();
        state.begun.push(alive);
        state.open = Some(SlabPart { slab, memory });
        state.cut(bytes, aligned)
    }

    /// Returns the images of the batch, ready for submission.
    ///
    /// # Errors
    ///
    /// A thread still fills a slab, or an image was submitted before.
    pub fn finish<'a>(&self, images: &'a mut [StagedImage]) -> Result<Images<'a>> {
        let BatchState { begun, open } = std::mem::take(&mut *self.state.lock());
        drop(open);
        let mut parts: Vec<Vec<PinnedPart<u8>>> = begun.iter().map(|_| Vec::new()).collect();
        let mut used = vec![0; begun.len()];
        let mut placed = Vec::with_capacity(images.len());
        for StagedImage { size, jpeg, pixels } in images {
            let place = match pixels {
                StagedPixels::Pageable(image) => Place::Pageable(image.bytes()),
                StagedPixels::Slab(part) => {
                    let missing = || Error::argument("images", "one was submitted before");
                    let SlabPart { slab, memory } = part.take().ok_or_else(missing)?;
                    let (at, bytes) = (memory.start(), memory.len());
                    used[slab] = used[slab].max(at + bytes);
                    parts[slab].push(memory);
                    Place::Slab { slab, at, bytes }
                }
            };
            placed.push(PlacedImage {
                size: *size,
                jpeg: *jpeg,
                place,
            });
        }
        let slabs = parts.into_iter().zip(used).zip(begun);
        let slabs = slabs.map(|((parts, used), alive)| {
            let mut memory = PinnedPart::join(parts)?;
            memory.truncate(used);
            Ok(Slab { memory, alive })
        });
        Ok(Images {
            images: placed,
            slabs: slabs.collect::<Result<_>>()?,
            home: Some(self.slabs.clone()),
        })
    }
}

impl BatchState {
    /// Cuts `bytes` bytes from the open slab, and takes `aligned` bytes from it.
    fn cut(&mut self, bytes: usize, aligned: usize) -> Option<SlabPart> {
        let open = self.open.as_mut()?;
        if open.memory.len() < aligned {
            return None;
        }
        let rest = open.memory.split_off(aligned);
        let mut memory = std::mem::replace(&mut open.memory, rest);
        drop(memory.split_off(bytes));
        let slab = open.slab;
        Some(SlabPart { slab, memory })
    }
}

/// A decoded image for a GPU to resize.
#[derive(Debug)]
pub struct StagedImage {
    /// Width and height.
    pub size: [usize; 2],
    /// Geometry of a JPEG whose pixels the GPU computes.
    pub jpeg: Option<JpegGeometry>,
    /// RGB bytes, or the coefficients of a JPEG.
    pub pixels: StagedPixels,
}

/// Pixels of a decoded image, or coefficients of a JPEG.
#[derive(Debug)]
pub enum StagedPixels {
    /// In pageable memory.
    Pageable(DeviceImage),
    /// In a slab, until the image is submitted.
    Slab(Option<SlabPart>),
}

/// Decoded images for a GPU to resize, with the slabs that they are in.
#[derive(Debug)]
pub struct Images<'a> {
    pub(super) images: Vec<PlacedImage<'a>>,
    pub(super) slabs: Vec<Slab>,
    /// Slabs of the GPU, to which the batch's slabs return.
    pub(super) home: Option<Arc<Slabs>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PlacedImage<'a> {
    /// Width and height.
    pub(super) size: [usize; 2],
    /// Geometry of a JPEG whose coefficients are at `place`.
    pub(super) jpeg: Option<JpegGeometry>,
    pub(super) place: Place<'a>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'a> {
    Pageable(&'a [u8]),
    Slab { slab: usize, at: usize, bytes: usize },
}

impl Place<'_> {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Pageable(pixels) => pixels.len(),
            Self::Slab { bytes, .. } => *bytes,
        }
    }
}

impl<'a> Images<'a> {
    /// Wraps images in pageable memory.
    pub fn new(images: &[&'a RgbImage]) -> Self {
        let place = |image: &&'a RgbImage| PlacedImage {
            size: [image.width, image.height],
            jpeg: None,
            place: Place::Pageable(&image.data),
        };
        Self::pageable(images.iter().map(place).collect())
    }

    /// Wraps images as decoded for a GPU, in pageable memory.
    pub fn decoded(images: &[&'a DeviceImage]) -> Self {
        let place = |image: &&'a DeviceImage| PlacedImage {
            size: image.size(),
            jpeg: image.jpeg(),
            place: Place::Pageable(image.bytes()),
        };
        Self::pageable(images.iter().map(place).collect())
    }

    fn pageable(images: Vec<PlacedImage<'a>>) -> Self {
        Self {
            images,
            slabs: Vec::new(),
            home: None,
        }
    }
}
