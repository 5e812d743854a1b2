//! Preprocessing on a GPU: decoded images are copied to it and resized there into a batch of the model's input size.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use rayon::ThreadPool;

use super::Uploaded;
use super::staging::Pieces;
use crate::error::{Error, Result};
use crate::exec::cpu::thread_pool;
use crate::graph::plan::Plan;
use crate::hip::{Device, DeviceBuffer, Operand, Stream};
use crate::image::{Padding, Preprocess, RgbImage};
use crate::kernels::{DevicePass, ResizeKernels};
use crate::tensor::DType;

/// Bytes of decoded images that are on the device at a time, for each run.
const GROUP: usize = 32 << 20;

/// Sizes of images whose tables are remembered.
const MAX_SIZES: usize = 64;

/// A [`Preprocess`] with its kernels on a GPU, for any of its streams.
#[derive(Clone, Debug)]
pub(super) struct DeviceResize {
    rule: Preprocess,
    kernels: Arc<ResizeKernels>,
}

impl DeviceResize {
    /// # Errors
    ///
    /// The kernels cannot be compiled or loaded.
    pub(super) fn load(rule: &Preprocess, device: &Device) -> Result<Self> {
        Ok(Self {
            rule: rule.clone(),
            kernels: Arc::new(ResizeKernels::load(device)?),
        })
    }

    /// Checks that `images` resized images are what `plan` takes.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if they are not.
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

/// A [`Preprocess`] on a stream of a GPU, with the same bytes as on the CPU.
pub struct HipPreprocess {
    resize: DeviceResize,
    stream: Stream,
    /// For images of the sizes that were the last to come.
    prepared: Vec<Arc<Prepared>>,
    /// For [`HipPreprocess::enqueue`] alone.
    own: Option<(Pieces, ThreadPool)>,
}

/// The passes over images of one size.
struct Prepared {
    input: [usize; 2],
    passes: Vec<DevicePass>,
    /// The fill colour around images that are too small.
    fill: Option<(Padding, Vec<u8>)>,
}

impl HipPreprocess {
    /// Loads the kernels.
    ///
    /// # Errors
    ///
    /// The kernels cannot be compiled or loaded.
    pub fn new(rule: &Preprocess, stream: &Stream) -> Result<Self> {
        Ok(Self::on(stream, &DeviceResize::load(rule, stream.device())?))
    }

    /// With kernels that are loaded.
    pub(super) fn on(stream: &Stream, resize: &DeviceResize) -> Self {
        Self {
            resize: resize.clone(),
            stream: stream.clone(),
            prepared: Vec::new(),
            own: None,
        }
    }

    /// The bytes of one image of the result, u8 `[height, width, 3]`.
    #[must_use]
    pub fn image_bytes(&self) -> usize {
        let (height, width) = self.resize.rule.output_size();
        height * width * 3
    }

    /// Resizes `images` into a new batch, u8 `[images, height, width, 3]`; waits for their copies to the device, not for
    /// the resizing.
    ///
    /// # Errors
    ///
    /// What [`Preprocess::apply`] does not accept; memory runs out; what the driver says.
    pub fn apply_batch(&mut self, images: &[RgbImage]) -> Result<DeviceBuffer<u8>> {
        let mut batch = self.stream.allocate(images.len() * self.image_bytes())?;
        let images: Vec<&RgbImage> = images.iter().collect();
        let (pieces, threads) = match self.own.take() {
            Some(own) => own,
            None => (Pieces::default(), thread_pool(None, || ())?),
        };
        for upload in self.enqueue(&images, &mut batch, &pieces, &threads)? {
            pieces.keep(upload.wait()?);
        }
        self.own = Some((pieces, threads));
        Ok(batch)
    }

    /// Submits the resizing of `images` into `batch`, u8 `[images, height, width, 3]`; `threads` copy them to pinned
    /// memory. Several images are uploaded at once, with the tables that their sizes need.
    ///
    /// # Errors
    ///
    /// As for [`HipPreprocess::apply_batch`]; [`Error::Argument`] if `batch` is too small or another stream's.
    pub(super) fn enqueue(
        &mut self,
        images: &[&RgbImage],
        batch: &mut DeviceBuffer<u8>,
        pieces: &Pieces,
        threads: &ThreadPool,
    ) -> Result<VecDeque<Uploaded>> {
        let mut uploaded = VecDeque::new();
        let mut rest = images;
        let mut index = 0;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |image: &&&RgbImage| {
                bytes += image.data.len();
                bytes <= GROUP
            };
            // An image that is larger is a group of its own.
            let count = rest.iter().take_while(fits).count().max(1);
            let (group, later) = rest.split_at(count);
            self.enqueue_group((group, index), batch, (pieces, threads), &mut uploaded)?;
            (rest, index) = (later, index + count);
        }
        Ok(uploaded)
    }

    fn enqueue_group(
        &mut self,
        (images, first): (&[&RgbImage], usize),
        batch: &mut DeviceBuffer<u8>,
        (pieces, threads): (&Pieces, &ThreadPool),
        uploaded: &mut VecDeque<Uploaded>,
    ) -> Result<()> {
        let bytes = self.image_bytes();
        let batch = batch.writing();
        let images = images
            .iter()
            .map(|image| Ok((*image, self.prepared([image.width, image.height])?)))
            .collect::<Result<Vec<_>>>()?;

        // Tables come first, so that they are aligned: all are of whole words. Each is there once.
        let mut parts: Vec<&[u8]> = Vec::new();
        let mut end = 0;
        let mut add = |part| {
            parts.push(part);
            end += <[u8]>::len(part);
            end - part.len()
        };
        let mut constants: Vec<(&Arc<Prepared>, Vec<usize>)> = Vec::new();
        for (_, prepared) in &images {
            if !constants.iter().any(|(known, _)| Arc::ptr_eq(known, prepared)) {
                let offsets = prepared.passes.iter().map(|pass| add(pass.tables()));
                constants.push((prepared, offsets.collect()));
            }
        }
        for (prepared, offsets) in &mut constants {
            offsets.extend(prepared.fill.iter().map(|(_, ground)| add(ground)));
        }
        let pixels: Vec<usize> = images.iter().map(|(image, _)| add(&image.data)).collect();

        // Few sizes, so that the pool has a block of the size when the next group comes.
        let size = match end {
            ..=GROUP => end.next_power_of_two(),
            _ => end.next_multiple_of(GROUP),
        };
        let stream = self.stream.clone();
        let mut memory: DeviceBuffer<u8> = stream.allocate(size)?;
        let uploads = memory.uploads_on(&stream)?;
        pieces.upload(uploads, &parts, (stream.device(), threads), uploaded)?;
        let memory = memory.reading();
        for (index, ((image, prepared), pixels)) in images.iter().zip(pixels).enumerate() {
            let offsets = constants.iter().find(|(known, _)| Arc::ptr_eq(known, prepared));
            let offsets = offsets.map_or(&[][..], |(_, offsets)| offsets);
            let at = (first + index).saturating_mul(bytes);
            let slot = batch.part(at..at.saturating_add(bytes))?;
            let pixels = memory.part(pixels..pixels + image.data.len())?;
            self.resize(prepared, memory, offsets, pixels, slot)?;
        }
        Ok(())
    }

    /// Submits the resizing of one image that is on the device, with its constants at `offsets` of `memory`.
    fn resize(
        &self,
        prepared: &Prepared,
        memory: Operand<'_>,
        offsets: &[usize],
        pixels: Operand<'_>,
        slot: Operand<'_>,
    ) -> Result<()> {
        let stream = &self.stream;
        let constant = |index: usize, bytes: usize| {
            let at = offsets.get(index).copied().unwrap_or(usize::MAX);
            memory.part(at..at.saturating_add(bytes))
        };
        let row = self.resize.rule.output_size().1 * 3;
        let mut first = 0;
        if let Some((padding, ground)) = &prepared.fill {
            let fill = constant(prepared.passes.len(), ground.len())?;
            stream.copy_rows((slot, ground.len()), (fill, ground.len()), ground.len(), 1)?;
            first = padding.top * row + padding.left * 3;
        }
        let target = slot.part(first..slot.bytes())?;
        let mut size = prepared.input;
        let mut result: Option<DeviceBuffer<u8>> = None;
        for (index, pass) in prepared.passes.iter().enumerate() {
            let tables = constant(index, pass.tables().len())?;
            let from = result.as_ref().map_or(pixels, DeviceBuffer::reading);
            size = pass.output();
            // The last pass writes whole rows where they belong.
            if index + 1 == prepared.passes.len() && size[0] * 3 == row {
                return self.resize.kernels.launch(stream, pass, tables, from, target);
            }
            let mut next = stream.allocate(size[0] * size[1] * 3)?;
            self.resize
                .kernels
                .launch(stream, pass, tables, from, next.writing())?;
            result = Some(next);
        }
        let from = result.as_ref().map_or(pixels, DeviceBuffer::reading);
        let part_row = size[0] * 3;
        Ok(stream.copy_rows((target, row), (from, part_row), part_row, size[1])?)
    }

    /// The passes for images of this size.
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

impl Prepared {
    fn new(rule: &Preprocess, input: [usize; 2]) -> Result<Self> {
        let placement = rule.placement(input)?;
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
