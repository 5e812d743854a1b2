//! Preprocessing on a GPU: decoded images are uploaded and resized into a batch of the model's input size.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use rayon::ThreadPool;

use super::staging::{Pieces, Uploaded};
use crate::error::{Error, Result};
use crate::exec::cpu::thread_pool;
use crate::exec::slabs::{self, Images, Place, PlacedImage, Slab, Slabs};
use crate::graph::plan::Plan;
use crate::hip::{Device, DeviceBuffer, Lent, Operand, Stream};
use crate::image::{JpegGeometry, Padding, Placement, Preprocess, RgbImage};
use crate::kernels::{
    DeviceJpeg, DevicePass, ImagePass, JPEG_IMAGES, JpegKernels, ResizeKernels, jpeg_samples,
};
use crate::tensor::DType;

/// Maximum bytes of decoded images on the device at a time, per run. The samples and pixels of JPEGs that the device decodes count separately.
const GROUP: usize = 32 << 20;

/// Alignment of images on the device, for the kernels' vector accesses.
const ALIGNMENT: usize = 16;

/// Maximum number of image sizes whose tables are cached.
const MAX_SIZES: usize = 64;

/// A [`Preprocess`] with its kernels on a GPU, usable on any of its streams.
#[derive(Clone, Debug)]
pub(super) struct DeviceResize {
    rule: Preprocess,
    kernels: Arc<ResizeKernels>,
    jpeg: Arc<JpegKernels>,
}

impl DeviceResize {
    /// Loads the kernels for a rule.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the device cannot apply the rule. Fails if the kernels cannot be compiled or loaded.
    pub(super) fn load(rule: &Preprocess, device: &Device) -> Result<Self> {
        if rule.patch().is_some() {
            let reason =
                "images of any aspect ratio are resized on the host: a GPU does not make patches of them";
            return Err(Error::argument("resize", reason));
        }
        Ok(Self {
            rule: rule.clone(),
            kernels: Arc::new(ResizeKernels::load(device)?),
            jpeg: Arc::new(JpegKernels::load(device)?),
        })
    }

    /// Checks that `images` resized images fit the input of `plan`.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if they do not fit.
    pub(super) fn check(&self, plan: &Plan, images: usize) -> Result<()> {
        let input = plan.graph().value(plan.graph().input());
        let (height, width) = self.rule.output_size();
        let takes = (input.dtype, plan.batch(), &input.shape[1..]);
        if takes != (DType::U8, images, &[height, width, 3]) {
            let reason = format!(
                "{images} become u8 [{images}, {height}, {width}, 3], the plan takes {} {:?} for {}",
                input.dtype,
                &input.shape[1..],
                plan.batch()
            );
            return Err(Error::argument("images", reason));
        }
        Ok(())
    }
}

/// A [`Preprocess`] on a stream of a GPU. Produces the same bytes as on the CPU.
pub struct HipPreprocess {
    resize: DeviceResize,
    stream: Stream,
    /// Passes for the most recent image sizes.
    prepared: Vec<Arc<Prepared>>,
    /// Memory and threads of [`HipPreprocess::enqueue`] calls without an executor.
    own: Option<(Pieces, ThreadPool)>,
}

/// Passes over images of one size.
pub(super) struct Prepared {
    input: [usize; 2],
    passes: Vec<DevicePass>,
    /// Fill colour around images that are too small.
    fill: Option<(Padding, Vec<u8>)>,
}

impl HipPreprocess {
    /// Loads the kernels for a rule.
    ///
    /// # Errors
    ///
    /// Fails if the kernels cannot be compiled or loaded.
    pub fn new(rule: &Preprocess, stream: &Stream) -> Result<Self> {
        Ok(Self::on(stream, &DeviceResize::load(rule, stream.device())?))
    }

    /// Uses kernels that are already loaded.
    pub(super) fn on(stream: &Stream, resize: &DeviceResize) -> Self {
        Self {
            resize: resize.clone(),
            stream: stream.clone(),
            prepared: Vec::new(),
            own: None,
        }
    }

    /// Returns the bytes of a resized image, u8 `[height, width, 3]`.
    #[must_use]
    pub fn image_bytes(&self) -> usize {
        let (height, width) = self.resize.rule.output_size();
        height * width * 3
    }

    /// Resizes `images` into a new batch, u8 `[images, height, width, 3]`. Waits for the uploads, not for the resizing.
    ///
    /// # Errors
    ///
    /// [`Preprocess::apply`] rejects an image, memory runs out, or the device fails.
    pub fn apply_batch(&mut self, images: &[RgbImage]) -> Result<DeviceBuffer<u8>> {
        let mut batch = self.stream.allocate(images.len() * self.image_bytes())?;
        let images = Images::new(&images.iter().collect::<Vec<_>>());
        let (pieces, threads) = match self.own.take() {
            Some(own) => own,
            None => (Pieces::default(), thread_pool(None, || ())?),
        };
        for upload in self.enqueue(images, &mut batch, &pieces, &threads)? {
            pieces.keep(upload.wait()?);
        }
        self.own = Some((pieces, threads));
        Ok(batch)
    }

    /// Submits the resizing of `images` into `batch`, u8 `[images, height, width, 3]`. `threads` copy images in pageable memory to pinned
    /// memory. Several images are uploaded at once, with the tables for their sizes.
    ///
    /// # Errors
    ///
    /// The errors of [`HipPreprocess::apply_batch`], and [`Error::Argument`] if `batch` is too small or belongs to another stream.
    pub(super) fn enqueue(
        &mut self,
        images: Images<'_>,
        batch: &mut DeviceBuffer<u8>,
        pieces: &Pieces,
        threads: &ThreadPool,
    ) -> Result<VecDeque<Uploaded>> {
        let prepared = images.images.iter().map(|image| self.prepared(image.size));
        let prepared = prepared.collect::<Result<Vec<_>>>()?;
        let mut uploaded = VecDeque::new();
        self.enqueue_prepared(images, &prepared, batch, (pieces, threads), &mut uploaded)?;
        Ok(uploaded)
    }

    /// Submits the given passes over each of `images`, as [`enqueue`](Self::enqueue) does. Adds the uploads to `uploaded`.
    ///
    /// # Errors
    ///
    /// Memory runs out, or the device fails. [`Error::Argument`] if `batch` is too small or belongs to another stream.
    pub(super) fn enqueue_prepared(
        &self,
        images: Images<'_>,
        prepared: &[Arc<Prepared>],
        batch: &mut DeviceBuffer<u8>,
        (pieces, threads): (&Pieces, &ThreadPool),
        uploaded: &mut VecDeque<Uploaded>,
    ) -> Result<()> {
        let Images { images, slabs, home } = images;
        let slabs = slabs.into_iter().enumerate().map(|slab| Unit {
            slab: Some(slab),
            images: Vec::new(),
        });
        let mut units: Vec<Unit<'_>> = slabs.collect();
        for (index, image) in images.into_iter().enumerate() {
            match image.place {
                Place::Slab { slab, .. } => units[slab].images.push((index, image)),
                Place::Pageable(_) => units.push(Unit {
                    slab: None,
                    images: vec![(index, image)],
                }),
            }
        }
        let mut units = units.into_iter().peekable();
        while units.peek().is_some() {
            let mut bytes = 0;
            let mut group = Group::default();
            // A larger unit is a group of its own.
            while let Some(unit) = units.next_if(|unit| bytes == 0 || bytes + unit.bytes() <= GROUP) {
                bytes += unit.bytes();
                group.add(unit);
            }
            let group = (group, prepared);
            self.enqueue_group(group, home.as_deref(), batch, (pieces, threads), uploaded)?;
        }
        Ok(())
    }

    fn enqueue_group(
        &self,
        (group, prepared): (Group<'_>, &[Arc<Prepared>]),
        home: Option<&Slabs>,
        batch: &mut DeviceBuffer<u8>,
        (pieces, threads): (&Pieces, &ThreadPool),
        uploaded: &mut VecDeque<Uploaded>,
    ) -> Result<()> {
        let bytes = self.image_bytes();
        let batch = batch.writing();
        let Group { images, slabs } = group;
        let images: Vec<_> = images
            .into_iter()
            .map(|(index, image)| (index, image, prepared[index].clone()))
            .collect();

        // Tables and coefficients come first, so that they are aligned: they consist of whole words. Each table is uploaded once.
        let mut parts: Vec<&[u8]> = Vec::new();
        let mut end = 0;
        let mut add = |part| {
            parts.push(part);
            end += <[u8]>::len(part);
            end - part.len()
        };
        let mut constants: Vec<(&Arc<Prepared>, Vec<usize>)> = Vec::new();
        for (_, _, prepared) in &images {
            if !constants.iter().any(|(known, _)| Arc::ptr_eq(known, prepared)) {
                let offsets = prepared.passes.iter().map(|pass| add(pass.tables()));
                constants.push((prepared, offsets.collect()));
            }
        }
        let mut at = vec![0; images.len()];
        for (at, (_, image, _)) in at.iter_mut().zip(&images) {
            if let (Place::Pageable(words), Some(_)) = (image.place, image.jpeg) {
                *at = add(words);
            }
        }
        for (prepared, offsets) in &mut constants {
            offsets.extend(prepared.fill.iter().map(|(_, ground)| add(ground)));
        }
        for (at, (_, image, _)) in at.iter_mut().zip(&images) {
            match image.place {
                Place::Slab { at: start, .. } => *at = start,
                Place::Pageable(pixels) if image.jpeg.is_none() => *at = add(pixels),
                Place::Pageable(_) => {}
            }
        }
        let mut starts = HashMap::new();
        let stream = self.stream.clone();
        let in_place = stream.device().shares_host_memory();
        for (index, slab) in slabs.iter().filter(|_| !in_place) {
            end = end.next_multiple_of(slabs::ALIGNMENT);
            starts.insert(*index, end);
            end += slab.memory.len();
        }

        // Round to few sizes, so that the pool likely has a block for the next group.
        let size = match end {
            ..=GROUP => end.next_power_of_two(),
            _ => end.next_multiple_of(GROUP / 4),
        };
        let mut memory: DeviceBuffer<u8> = stream.allocate(size)?;
        let mut uploads = memory.uploads_on(&stream)?;
        let mut lent = HashMap::new();
        for (index, slab) in slabs {
            let (slab, alive) = slab.into_parts();
            if in_place {
                lent.insert(index, (stream.lend(slab)?, alive));
                continue;
            }
            uploads.push(starts[&index], slab)?;
            keep_slab(uploads.mark()?, alive, home, uploaded);
        }
        pieces.upload(uploads, 0, &parts, stream.device(), threads, uploaded)?;
        let memory = memory.reading();
        let mut group = Vec::with_capacity(images.len());
        for ((index, image, prepared), at) in images.iter().zip(at) {
            let constants = constants.iter().find(|(known, _)| Arc::ptr_eq(known, prepared));
            let (source, start) = match image.place {
                Place::Pageable(_) => (memory, at),
                Place::Slab { slab, .. } => match lent.get(&slab) {
                    Some((slab, _)) => (slab.reading(), at),
                    None => (memory, starts[&slab] + at),
                },
            };
            let slot = index.saturating_mul(bytes);
            group.push(OnDevice {
                prepared,
                constants: constants.map_or(&[], |(_, offsets)| offsets),
                jpeg: image.jpeg,
                pixels: source.part(start..start + image.place.bytes())?,
                slot: batch.part(slot..slot.saturating_add(bytes))?,
            });
        }
        self.decode(memory, &group)?;
        if lent.is_empty() {
            return Ok(());
        }
        let read = stream.mark()?;
        for (slab, alive) in lent.into_values() {
            let copy = Lent::reclaim_all(vec![slab], &stream, &read)?;
            keep_slab(copy, alive, home, uploaded);
        }
        Ok(())
    }

    /// Submits the computation of JPEGs' pixels, and the resizing of all images.
    fn decode(&self, memory: Operand<'_>, mut images: &[OnDevice<'_>]) -> Result<()> {
        while !images.is_empty() {
            let (mut end, mut count) = (0, 0);
            // A larger image is computed alone. Other parts fill whole launches.
            for image in images.iter().take(JPEG_IMAGES as usize) {
                let bytes = image.jpeg.as_ref().map_or(0, decoded_bytes);
                if count > 0 && end + bytes > GROUP {
                    break;
                }
                (end, count) = (end + bytes, count + 1);
            }
            let (now, later) = images.split_at(count);
            images = later;
            if end == 0 {
                self.resize(memory, now)?;
                continue;
            }
            let mut decoded = self.stream.allocate::<u8>(end)?;
            let decoded = decoded.writing();
            let (mut now, mut jpegs, mut at) = (now.to_vec(), Vec::new(), 0);
            for image in &mut now {
                let Some(geometry) = image.jpeg else { continue };
                let pixels = at + jpeg_samples(&geometry);
                let jpeg = DeviceJpeg {
                    geometry,
                    words: image.pixels,
                    samples: decoded.part(at..pixels)?,
                    pixels: decoded.part(pixels..pixels + pixel_bytes(&geometry))?,
                };
                at += decoded_bytes(&geometry);
                image.pixels = jpeg.pixels;
                jpegs.push(jpeg);
            }
            self.resize.jpeg.launch(&self.stream, &jpegs)?;
            self.resize(memory, &now)?;
        }
        Ok(())
    }

    /// Submits the resizing of images on the device: first the first pass of all images, then the second. `memory` holds the images and
    /// their constants.
    fn resize(&self, memory: Operand<'_>, images: &[OnDevice<'_>]) -> Result<()> {
        let stream = &self.stream;
        let row = self.resize.rule.output_size().1 * 3;
        let mut targets = Vec::with_capacity(images.len());
        for image in images {
            let mut first = 0;
            if let Some((padding, ground)) = &image.prepared.fill {
                let fill = image.constant(memory, image.prepared.passes.len(), ground.len())?;
                let fill = (fill, ground.len());
                stream.copy_rows((image.slot, ground.len()), fill, ground.len(), 1)?;
                first = padding.top * row + padding.left * 3;
            }
            targets.push(image.slot.part(first..image.slot.bytes())?);
        }
        // The last pass writes whole rows directly to the target.
        let writes_target = |image: &OnDevice<'_>, pass: usize| {
            let passes = &image.prepared.passes;
            pass + 1 == passes.len() && passes[pass].output()[0] * 3 == row
        };
        let passes = images.iter().map(|image| image.prepared.passes.len()).max();
        // Intermediate results of each pass, and each image's offset in them.
        let mut results: Vec<DeviceBuffer<u8>> = Vec::new();
        let mut places: Vec<Option<(usize, Range<usize>)>> = vec![None; images.len()];
        for index in 0..passes.unwrap_or(0) {
            let mut end = 0;
            let mut place = |image: &OnDevice<'_>| {
                let [width, height] = image.prepared.passes.get(index)?.output();
                if writes_target(image, index) {
                    return None;
                }
                let start = end;
                // The kernels' loads need this alignment.
                end = (start + width * height * 3).next_multiple_of(16);
                Some((index, start..start + width * height * 3))
            };
            let next_places: Vec<_> = images.iter().map(&mut place).collect();
            let mut next = stream.allocate::<u8>(end)?;
            let written = next.writing();
            let mut batch = Vec::with_capacity(images.len());
            for (number, image) in images.iter().enumerate() {
                let Some(pass) = image.prepared.passes.get(index) else {
                    continue;
                };
                batch.push(ImagePass {
                    pass,
                    tables: image.constant(memory, index, pass.tables().len())?,
                    input: image.latest(&places[number], &results)?,
                    output: match &next_places[number] {
                        Some((_, range)) => written.part(range.clone())?,
                        None => targets[number],
                    },
                });
            }
            self.resize.kernels.launch(stream, &batch)?;
            results.push(next);
            for (place, next) in places.iter_mut().zip(next_places) {
                *place = next.or(place.take());
            }
        }
        for ((image, place), target) in images.iter().zip(&places).zip(targets) {
            let passes = &image.prepared.passes;
            if !passes.is_empty() && writes_target(image, passes.len() - 1) {
                continue;
            }
            let [width, height] = passes.last().map_or(image.prepared.input, DevicePass::output);
            let from = (image.latest(place, &results)?, width * 3);
            stream.copy_rows((target, row), from, width * 3, height)?;
        }
        Ok(())
    }

    /// Returns the passes for images of this size.
    fn prepared(&mut self, input: [usize; 2]) -> Result<Arc<Prepared>> {
        let known = self.prepared.iter().position(|prepared| prepared.input == input);
        let prepared = match known {
            Some(index) => self.prepared.remove(index),
            None => {
                if self.prepared.len() == MAX_SIZES {
                    self.prepared.remove(0);
                }
                Arc::new(Prepared::new(&self.resize.rule, input)?)
            }
        };
        self.prepared.push(prepared.clone());
        Ok(prepared)
    }
}

/// Keeps a slab until the device has read it.
fn keep_slab(read: Uploaded, alive: Arc<()>, home: Option<&Slabs>, uploaded: &mut VecDeque<Uploaded>) {
    match home {
        Some(home) => home.keep_copied(read, alive),
        None => uploaded.push_back(read),
    }
}

/// A unit of upload: a slab with its images, or an image in pageable memory. Images have their index in the batch.
struct Unit<'a> {
    slab: Option<(usize, Slab)>,
    images: Vec<(usize, PlacedImage<'a>)>,
}

impl Unit<'_> {
    fn bytes(&self) -> usize {
        match &self.slab {
            Some((_, slab)) => slab.memory.len(),
            None => self.images.iter().map(|(_, image)| image.place.bytes()).sum(),
        }
    }
}

/// Images that are on the device at the same time.
#[derive(Default)]
struct Group<'a> {
    images: Vec<(usize, PlacedImage<'a>)>,
    slabs: Vec<(usize, Slab)>,
}

impl<'a> Group<'a> {
    fn add(&mut self, unit: Unit<'a>) {
        self.images.extend(unit.images);
        self.slabs.extend(unit.slab);
    }
}

/// Returns the bytes of a JPEG's pixels.
fn pixel_bytes(geometry: &JpegGeometry) -> usize {
    let [width, height] = geometry.size;
    width * height * 3
}

/// Returns the bytes of a JPEG's samples and pixels, so that the next ones are aligned.
fn decoded_bytes(geometry: &JpegGeometry) -> usize {
    (jpeg_samples(geometry) + pixel_bytes(geometry)).next_multiple_of(ALIGNMENT)
}

/// An image on the device, and its index in the batch.
#[derive(Clone, Copy)]
struct OnDevice<'a> {
    prepared: &'a Prepared,
    /// Offsets of the tables and the fill colour.
    constants: &'a [usize],
    /// Geometry of a JPEG, of which `pixels` are the coefficients until they are decoded.
    jpeg: Option<JpegGeometry>,
    pixels: Operand<'a>,
    slot: Operand<'a>,
}

impl OnDevice<'_> {
    fn constant<'a>(&self, memory: Operand<'a>, index: usize, bytes: usize) -> Result<Operand<'a>> {
        let at = self.constants.get(index).copied().unwrap_or(usize::MAX);
        Ok(memory.part(at..at.saturating_add(bytes))?)
    }

    /// Returns the result of the last pass so far, at `place`, or the pixels before the first pass.
    fn latest<'a>(
        &'a self,
        place: &Option<(usize, Range<usize>)>,
        results: &'a [DeviceBuffer<u8>],
    ) -> Result<Operand<'a>> {
        match place {
            Some((pass, range)) => Ok(results[*pass].reading().part(range.clone())?),
            None => Ok(self.pixels),
        }
    }
}

impl Prepared {
    fn new(rule: &Preprocess, input: [usize; 2]) -> Result<Self> {
        Self::of(&rule.placement(input)?, input)
    }

    /// Creates the passes of a placement of images of this size.
    pub(super) fn of(placement: &Placement, input: [usize; 2]) -> Result<Self> {
        let mut passes = Vec::new();
        let mut size = input;
        for pass in placement.resampling.passes() {
            passes.push(DevicePass::new(pass, size)?);
            size = pass.output();
        }
        let fill = placement.padding.map(|padding| (padding, padding.ground()));
        Ok(Self { input, passes, fill })
    }
}

impl fmt::Debug for HipPreprocess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HipPreprocess")
            .field("rule", &format_args!("{}", self.resize.rule))
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}
