//! Preprocessing on a GPU: decoded images are copied to it and resized there into a batch of the model's input size.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::graph::plan::Plan;
use crate::hip::{Device, DeviceBuffer, PinnedRing, Stream};
use crate::image::{Padding, Preprocess, RgbImage};
use crate::kernels::{DevicePass, ResizeKernels};
use crate::tensor::DType;

/// Bytes of an image that are staged at a time, and how many such pieces.
const STAGE: usize = 4 << 20;
const STAGES: usize = 2;

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
///
/// The passes and their tables depend on the image's size; they are kept for the next image if it has the same.
pub struct HipPreprocess {
    resize: DeviceResize,
    stream: Stream,
    staging: PinnedRing<u8>,
    prepared: Option<Prepared>,
}

/// For images of one size.
struct Prepared {
    input: [usize; 2],
    passes: Vec<DevicePass>,
    /// The fill colour around images that are too small.
    fill: Option<(Padding, DeviceBuffer<u8>)>,
}

impl HipPreprocess {
    /// Loads the kernels.
    ///
    /// # Errors
    ///
    /// The kernels cannot be compiled or loaded; memory runs out.
    pub fn new(rule: &Preprocess, stream: &Stream) -> Result<Self> {
        Self::on(stream, &DeviceResize::load(rule, stream.device())?)
    }

    /// With kernels that are loaded.
    ///
    /// # Errors
    ///
    /// Memory runs out.
    pub(super) fn on(stream: &Stream, resize: &DeviceResize) -> Result<Self> {
        Ok(Self {
            resize: resize.clone(),
            staging: stream.device().pinned_ring(STAGES, STAGE)?,
            stream: stream.clone(),
            prepared: None,
        })
    }

    /// The bytes of one image of the result, u8 `[height, width, 3]`.
    #[must_use]
    pub fn image_bytes(&self) -> usize {
        let (height, width) = self.resize.rule.output_size();
        height * width * 3
    }

    /// Submits the resizing of `image` into image `index` of `batch`, u8 `[images, height, width, 3]`, without waiting for
    /// the device, except where the staging buffers are all in use.
    ///
    /// # Errors
    ///
    /// What [`Preprocess::apply`] does not accept; [`Error::Argument`] if `batch` is too small or another stream's; memory
    /// runs out; what the driver says.
    pub fn enqueue(&mut self, image: &RgbImage, batch: &mut DeviceBuffer<u8>, index: usize) -> Result<()> {
        let bytes = self.image_bytes();
        let at = index.saturating_mul(bytes);
        let slot = batch.writing().part(at..at.saturating_add(bytes))?;
        let stream = &self.stream;
        let prepared = prepare(
            &mut self.prepared,
            &self.resize.rule,
            stream,
            [image.width, image.height],
        )?;

        let mut pixels = stream.allocate(image.data.len())?;
        pixels.write_through(0, &image.data, &mut self.staging)?;
        let mut size = prepared.input;
        for pass in &prepared.passes {
            size = pass.output();
            let mut result = stream.allocate(size[0] * size[1] * 3)?;
            self.resize
                .kernels
                .launch(stream, pass, pixels.reading(), result.writing())?;
            pixels = result;
        }
        let row = self.resize.rule.output_size().1 * 3;
        let mut first = 0;
        if let Some((padding, fill)) = &prepared.fill {
            stream.copy_rows((slot, bytes), (fill.reading(), bytes), bytes, 1)?;
            first = padding.top * row + padding.left * 3;
        }
        let target = slot.part(first..bytes)?;
        let part_row = size[0] * 3;
        Ok(stream.copy_rows((target, row), (pixels.reading(), part_row), part_row, size[1])?)
    }

    /// Submits the resizing of `images` into a new batch.
    ///
    /// # Errors
    ///
    /// As for [`HipPreprocess::enqueue`].
    pub fn apply_batch(&mut self, images: &[RgbImage]) -> Result<DeviceBuffer<u8>> {
        let mut batch = self.stream.allocate(images.len() * self.image_bytes())?;
        for (index, image) in images.iter().enumerate() {
            self.enqueue(image, &mut batch, index)?;
        }
        Ok(batch)
    }
}

/// Passes and tables for images of this size, reused if the last image had the same.
fn prepare<'a>(
    prepared: &'a mut Option<Prepared>,
    rule: &Preprocess,
    stream: &Stream,
    input: [usize; 2],
) -> Result<&'a Prepared> {
    let last = prepared.take().filter(|prepared| prepared.input == input);
    let made = match last {
        Some(last) => last,
        None => Prepared::new(rule, stream, input)?,
    };
    Ok(prepared.insert(made))
}

impl Prepared {
    fn new(rule: &Preprocess, stream: &Stream, input: [usize; 2]) -> Result<Self> {
        let placement = rule.placement(input)?;
        let mut passes = Vec::new();
        let mut size = input;
        for pass in placement.resampling.passes() {
            passes.push(DevicePass::new(stream, pass, size)?);
            size = pass.output();
        }
        let fill = match placement.padding {
            Some(padding) => Some((padding, stream.upload(&padding.ground())?)),
            None => None,
        };
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
