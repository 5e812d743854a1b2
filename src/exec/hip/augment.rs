//! Training images on a GPU: decoded images are uploaded, resized, and changed at random as their parameters say.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use rayon::ThreadPool;

use super::preprocess::{HipPreprocess, Prepared};
use super::staging::{Pieces, Uploaded};
use crate::error::{Error, Result};
use crate::exec::cpu::thread_pool;
use crate::exec::slabs::Images;
use crate::hip::{Device, DeviceBuffer, ForeignMemory, Stream};
use crate::image::{Placement, Preprocess, RgbImage};
use crate::kernels::{
    AugmentKernels, AugmentOperands, ERASURE, PixelMixture, PixelOp, PlanesKernels, PlanesOperands,
};

/// A decoded image, and what makes a training image of it.
#[derive(Clone, Debug)]
pub struct DrawnImage<'a> {
    /// Part of the decoded image that is used.
    pub image: &'a RgbImage,
    /// Resampling to the size of all images.
    pub placement: &'a Placement,
    /// Operations on the resampled image, in order.
    pub operations: Vec<PixelOp>,
}

/// A rectangle of normalised planes with new values.
#[derive(Clone, Copy, Debug)]
pub struct ErasedRectangle<'a> {
    /// First row and first column.
    pub start: [usize; 2],
    /// Number of rows and columns.
    pub size: [usize; 2],
    /// New values: one for all, one per channel, or `[3, height, width]`.
    pub values: &'a [f32],
}

/// Decoded images of a batch with their random parameters.
#[derive(Clone, Debug, Default)]
pub struct DrawnBatch<'a> {
    /// The images.
    pub images: Vec<DrawnImage<'a>>,
    /// Mixture of each image with the one at the mirrored place. Empty if none is mixed.
    pub mixtures: Vec<PixelMixture>,
    /// Images that are results. The others are only mixed with them.
    pub kept: Range<usize>,
    /// Rectangles of each of the results. Empty if none is erased. Only planes have them.
    pub erasures: Vec<Vec<ErasedRectangle<'a>>>,
}

/// Makes training images on a GPU, with the bytes that the host would compute.
///
/// It has a stream of its own, so that it works while other streams compute.
pub struct HipAugment {
    resize: HipPreprocess,
    kernels: AugmentKernels,
    planes: Option<Planes>,
    size: [usize; 2],
    stream: Stream,
    pieces: Pieces,
    threads: ThreadPool,
    /// Copies that the device may not have finished.
    uploaded: VecDeque<Uploaded>,
}

/// Normalisation of the results.
struct Planes {
    kernels: PlanesKernels,
    /// Value of each byte of each channel.
    table: Vec<f32>,
}

impl Planes {
    fn load(rule: &Preprocess, device: &Device) -> Result<Self> {
        let bytes: Vec<u8> = (0..=255).flat_map(|byte| [byte; 3]).collect();
        let mut table = vec![0.0; bytes.len()];
        rule.normalize(&bytes, &mut table)?;
        Ok(Self {
            kernels: PlanesKernels::load(device)?,
            table,
        })
    }
}

impl HipAugment {
    /// Loads the kernels for images of the size of `rule`. With `planes`, the results are f32 planes that `rule` normalises.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if `rule` makes patches of images. Fails if the kernels cannot be compiled or loaded.
    pub fn new(device: &Device, rule: &Preprocess, planes: bool) -> Result<Self> {
        let stream = device.stream()?;
        let (height, width) = rule.output_size();
        Ok(Self {
            resize: HipPreprocess::new(rule, &stream)?,
            kernels: AugmentKernels::load(device)?,
            planes: planes.then(|| Planes::load(rule, device)).transpose()?,
            size: [height, width],
            stream,
            pieces: Pieces::default(),
            threads: thread_pool(None, || ())?,
            uploaded: VecDeque::new(),
        })
    }

    /// Submits the images of a batch: u8 `[kept, height, width, 3]`, or f32 `[kept, 3, height, width]`. Waits for neither uploads nor
    /// kernels.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if an image does not become one of the right size, or if mixtures or rectangles are not those of the images. The
    /// errors of the device.
    pub fn apply(&mut self, batch: &DrawnBatch<'_>) -> Result<ForeignMemory> {
        self.check(batch)?;
        self.pieces.keep_finished(&mut self.uploaded)?;
        let [height, width] = self.size;
        let geometry = [batch.images.len(), height, width];
        let image = height * width * 3;
        let mut pixels: DeviceBuffer<u8> = self.stream.allocate(geometry[0] * image)?;
        self.enqueue_resize(batch, &mut pixels)?;

        let mut parts = Parts::default();
        let (mut operations, mut starts) = (Vec::new(), vec![0_u32]);
        for drawn in &batch.images {
            operations.extend(drawn.operations.iter().flat_map(PixelOp::words));
            starts.push((operations.len() / PixelOp::Invert.words().len()) as u32);
        }
        let is_mixed = batch
            .mixtures
            .iter()
            .any(|mixture| *mixture != PixelMixture::Alone);
        let mixtures: Vec<u32> = batch.mixtures.iter().flat_map(PixelMixture::words).collect();
        let [operations, starts] = [
            parts.add(bytemuck::cast_slice(&operations)),
            parts.add(bytemuck::cast_slice(&starts)),
        ];
        let mixtures = parts.add(bytemuck::cast_slice(&mixtures));
        let erased = self
            .planes
            .as_ref()
            .map(|planes| Erased::new(planes, batch, &mut parts));
        let tables = self.upload(&parts)?;
        let tables = tables.reading();
        let table = |range: &Range<usize>| tables.part(range.clone());

        if !operations.is_empty() {
            let mut out = self.stream.allocate(pixels.len())?;
            let operands = AugmentOperands {
                pixels: pixels.writing(),
                out: out.writing(),
                operations: table(&operations)?,
                starts: table(&starts)?,
            };
            self.kernels.augment(&self.stream, operands, geometry)?;
            pixels = out;
        }
        if is_mixed {
            let operands = [pixels.writing(), table(&mixtures)?];
            self.kernels.mix(&self.stream, operands, geometry)?;
        }
        let kept = batch.kept.start * image..batch.kept.end * image;
        let (Some(planes), Some(erased)) = (&self.planes, erased) else {
            return Ok(ForeignMemory::from(pixels).part(kept)?);
        };
        let mut out: DeviceBuffer<f32> = self.stream.allocate(kept.len())?;
        let operands = PlanesOperands {
            bytes: pixels.reading().part(kept)?,
            out: out.writing(),
            table: table(&erased.table)?,
            values: table(&erased.values)?,
            erasures: table(&erased.rectangles)?,
            starts: table(&erased.starts)?,
        };
        let geometry = [batch.kept.len(), height, width];
        planes.kernels.launch(&self.stream, operands, geometry)?;
        Ok(out.into())
    }

    /// Checks the numbers of mixtures, results and rectangles, and the sizes of the results.
    fn check(&self, batch: &DrawnBatch<'_>) -> Result<()> {
        let refuse = |what, reason: String| Err(Error::argument(what, reason));
        let images = batch.images.len();
        if !batch.mixtures.is_empty() && batch.mixtures.len() != images {
            let reason = format!("there are {} for {images} images", batch.mixtures.len());
            return refuse("mixtures", reason);
        }
        if batch.kept.start > batch.kept.end || batch.kept.end > images {
            return refuse("kept", format!("{:?} of {images} images", batch.kept));
        }
        if !batch.erasures.is_empty() && (self.planes.is_none() || batch.erasures.len() != batch.kept.len()) {
            return refuse("erasures", "are not those of the planes".into());
        }
        for rectangle in batch.erasures.iter().flatten() {
            let ends = [0, 1].map(|n| rectangle.start[n] + rectangle.size[n]);
            let length = rectangle.values.len();
            let is_whole = [1, 3, 3 * rectangle.size[0] * rectangle.size[1]].contains(&length);
            if ends[0] > self.size[0] || ends[1] > self.size[1] || !is_whole {
                return refuse("erasures", format!("{rectangle:?} is not within the image"));
            }
        }
        for drawn in &batch.images {
            let output = drawn.placement.output([drawn.image.width, drawn.image.height]);
            if output != [self.size[1], self.size[0]] {
                return refuse(
                    "images",
                    format!("one becomes {output:?} pixels, not {:?}", self.size),
                );
            }
        }
        Ok(())
    }

    /// Submits the uploads and the resampling of all images.
    fn enqueue_resize(&mut self, batch: &DrawnBatch<'_>, pixels: &mut DeviceBuffer<u8>) -> Result<()> {
        let images: Vec<&RgbImage> = batch.images.iter().map(|drawn| drawn.image).collect();
        let prepared = batch.images.iter().map(|drawn| {
            let input = [drawn.image.width, drawn.image.height];
            Prepared::of(drawn.placement, input).map(Arc::new)
        });
        let prepared = prepared.collect::<Result<Vec<_>>>()?;
        let memory = (&self.pieces, &self.threads);
        let images = Images::new(&images);
        self.resize
            .enqueue_prepared(images, &prepared, pixels, memory, &mut self.uploaded)
    }

    /// Uploads the parameters of a batch.
    fn upload(&mut self, parts: &Parts) -> Result<DeviceBuffer<u8>> {
        let mut tables: DeviceBuffer<u8> = self.stream.allocate(parts.0.len())?;
        let uploads = tables.uploads_on(&self.stream)?;
        self.pieces.upload(
            uploads,
            0,
            &[&parts.0],
            self.stream.device(),
            &self.threads,
            &mut self.uploaded,
        )?;
        Ok(tables)
    }
}

/// Parameters of a batch, in the order of the device's memory.
#[derive(Default)]
struct Parts(Vec<u8>);

impl Parts {
    /// Adds bytes at the kernels' alignment, and returns their place.
    fn add(&mut self, bytes: &[u8]) -> Range<usize> {
        self.0.resize(self.0.len().next_multiple_of(8), 0);
        let start = self.0.len();
        self.0.extend_from_slice(bytes);
        start..self.0.len()
    }
}

/// Places of the tables of planes.
struct Erased {
    table: Range<usize>,
    values: Range<usize>,
    rectangles: Range<usize>,
    starts: Range<usize>,
}

impl Erased {
    fn new(planes: &Planes, batch: &DrawnBatch<'_>, parts: &mut Parts) -> Self {
        let (mut values, mut rectangles, mut starts) = (Vec::new(), Vec::new(), vec![0_u32]);
        for index in 0..batch.kept.len() {
            for rectangle in batch.erasures.get(index).into_iter().flatten() {
                let [height, width] = rectangle.size;
                let strides = match rectangle.values.len() {
                    1 => [0, 0],
                    3 => [1, 0],
                    _ => [height * width, 1],
                };
                let [top, left] = rectangle.start;
                let words = [top, left, height, width, values.len(), strides[0], strides[1]];
                rectangles.extend(words.map(|word| word as u32));
                values.extend_from_slice(rectangle.values);
            }
            starts.push((rectangles.len() / ERASURE) as u32);
        }
        Self {
            table: parts.add(bytemuck::cast_slice(&planes.table)),
            values: parts.add(bytemuck::cast_slice(&values)),
            rectangles: parts.add(bytemuck::cast_slice(&rectangles)),
            starts: parts.add(bytemuck::cast_slice(&starts)),
        }
    }
}

impl fmt::Debug for HipAugment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HipAugment")
            .field("size", &self.size)
            .field("planes", &self.planes.is_some())
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}
