//! Runs of a session: images, pixels or pixel values in, [`Outputs`] out, batch by batch.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use ndarray::{Array2, Array3};
use rayon::prelude::*;

use super::packed_run::PackedRun;
use super::{ResizeOn, Session};
use crate::error::{Error, Result};
use crate::exec::{
    Download, FinishOptions, Images, InputData, Inputs, PendingRun, Reservation, RunOutput, RunOutputs,
    Slabs, Staging, Submission,
};
use crate::graph::OutputKind;
use crate::graph::plan::Plan;
use crate::hip::{self, ForeignMemory};
use crate::image::{DeviceImage, RgbImage};
use crate::ops::Op;
use crate::outputs::{AttentionLayer, Outputs};
use crate::tensor::{DType, Input};
use crate::timing::{Phase, Timing};

/// The input of [`Session::run_with`]. Images convert into it: `session.run_with(&images, options)`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RunInput<'a> {
    /// Decoded images of any size, which the session resizes and crops.
    Images(Vec<&'a RgbImage>),
    /// Images as [decoded for a GPU](crate::image::decode_for_device). Only for a session that resizes on the
    /// [device](ResizeOn::Device), which also computes the pixels of JPEGs.
    DeviceImages(Vec<&'a DeviceImage>),
    /// RGB bytes of images of the model's size: u8 `[images, H, W, 3]`.
    Pixels(&'a [u8]),
    /// Pixel values that the caller has normalised: f32 `[images, 3, H, W]`. Only for a session built with
    /// [`InputKind::PixelValues`](crate::model::InputKind::PixelValues).
    Values(&'a [f32]),
    /// Pixels or values in the memory of the session's [only GPU](Session::input_gpu). They are copied within the GPU.
    Device {
        /// The elements.
        memory: &'a ForeignMemory,
        /// [`DType::U8`] for pixels, [`DType::F32`] for pixel values.
        dtype: DType,
    },
}

impl<'a, T: AsRef<RgbImage>> From<&'a [T]> for RunInput<'a> {
    fn from(images: &'a [T]) -> Self {
        Self::Images(images.iter().map(AsRef::as_ref).collect())
    }
}

impl<'a, T: AsRef<RgbImage>> From<&'a Vec<T>> for RunInput<'a> {
    fn from(images: &'a Vec<T>) -> Self {
        images.as_slice().into()
    }
}

impl<'a, T: AsRef<RgbImage>, const N: usize> From<&'a [T; N]> for RunInput<'a> {
    fn from(images: &'a [T; N]) -> Self {
        images.as_slice().into()
    }
}

/// Options of one run, see [`Session::run_with`].
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct RunOptions<'a> {
    pub(super) timing: Option<&'a mut Timing>,
}

impl<'a> RunOptions<'a> {
    /// Returns the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the time of each phase to `timing`. Without it nothing is measured, which is faster on a GPU.
    pub fn timing(mut self, timing: &'a mut Timing) -> Self {
        self.timing = Some(timing);
        self
    }
}

impl Session {
    /// Resizes and crops `images` and runs the model on them, in batches of at most [`batch`](Self::batch) images. Without images the
    /// outputs are empty.
    ///
    /// # Errors
    ///
    /// - [`Error::Argument`] for an image that preprocessing cannot bring to the model's size.
    /// - [`Error::NonFinite`] for a [strict](crate::SessionBuilder::strict) session.
    /// - A device error.
    pub fn run<I>(&self, images: I) -> Result<Outputs>
    where
        I: IntoIterator<Item: AsRef<RgbImage>>,
    {
        let images: Vec<I::Item> = images.into_iter().collect();
        let input = RunInput::from(&images);
        let mut all = None;
        self.run_to(&mut all, &input, RunOptions::new())?;
        match all {
            Some(all) => Ok(all),
            None => self.no_outputs(),
        }
    }

    /// Runs the model on images or other input, with options.
    ///
    /// Each device has two batches in flight if its memory suffices: while one computes, the next is copied in. Several threads copy a
    /// GPU's input to page-locked memory while earlier parts are copied to the GPU. [`run_pinned`](Self::run_pinned) avoids the copy on the
    /// host.
    ///
    /// ```
    /// # fn main() -> hipvit::Result<()> {
    /// use hipvit::{RunInput, RunOptions, Session, timing::Timing};
    ///
    /// let session = Session::tinyvit32()?;
    /// let mut timing = Timing::default();
    /// let black = [0; 32 * 32 * 3];
    /// let outputs = session.run_with(RunInput::Pixels(&black), RunOptions::new().timing(&mut timing))?;
    /// assert_eq!(outputs.len(), 1);
    /// println!("{timing}");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`run`](Self::run), and [`Error::Argument`] for pixels or values that are not whole images or do not fit the session.
    pub fn run_with<'a>(&self, input: impl Into<RunInput<'a>>, options: RunOptions<'_>) -> Result<Outputs> {
        let mut all = None;
        self.run_to(&mut all, &input.into(), options)?;
        match all {
            Some(all) => Ok(all),
            None => self.no_outputs(),
        }
    }

    /// Runs the model as [`run_with`](Self::run_with) does, but accepts NaN and infinite results in a
    /// [strict](crate::SessionBuilder::strict) session. The caller must check the results of each image.
    pub fn run_unchecked<'a>(
        &self,
        input: impl Into<RunInput<'a>>,
        options: RunOptions<'_>,
    ) -> Result<Outputs> {
        let mut all = Unchecked(None);
        self.run_to(&mut all, &input.into(), options)?;
        match all.0 {
            Some(all) => Ok(all),
            None => self.no_outputs(),
        }
    }

    /// Runs `input` in batches. While a batch computes, the next is staged and submitted, if the device has memory for both.
    pub(super) fn run_to<C: Collect>(
        &self,
        results: &mut C,
        input: &RunInput<'_>,
        options: RunOptions<'_>,
    ) -> Result<()> {
        let mut timing = options.timing;
        let begin = Instant::now();
        let images = self.count_images(input)?;
        let submission = Submission {
            timed: timing.is_some(),
            sleeps: false,
            download: C::DOWNLOAD,
        };
        results.begin(self, images)?;
        let mut in_flight = VecDeque::new();
        let replicas = self.replicas();
        let mut most_in_flight = self.batches_in_flight();
        let mut finish = |run, timing: Option<&mut Timing>| results.finish(self, run, timing);
        let mut run = || -> Result<()> {
            for start in (0..images).step_by(self.batch()) {
                let range = start..(start + self.batch()).min(images);
                let count = range.len();
                let batch = self.batch_input(input, range, timing.as_deref_mut())?;
                while in_flight.len() >= most_in_flight
                    && let Some(oldest) = in_flight.pop_front()
                {
                    finish(oldest, timing.as_deref_mut())?;
                }
                let run = self.submit(batch, count, submission, |error| {
                    most_in_flight = replicas;
                    match in_flight.pop_front() {
                        Some(oldest) => finish(oldest, timing.as_deref_mut()),
                        None => Err(error),
                    }
                })?;
                in_flight.push_back(run);
            }
            for run in in_flight.drain(..) {
                finish(run, timing.as_deref_mut())?;
            }
            Ok(())
        };
        let run = run();
        if let RunInput::Device { memory, .. } = input {
            // Wait also after an error, since copies may still read the memory.
            let done = memory.stream().synchronize();
            run?;
            done?;
        } else {
            run?;
        }
        if let Some(timing) = timing {
            timing.add_wall(begin.elapsed());
        }
        Ok(())
    }

    /// Checks the input of a run. Returns its number of images.
    fn count_images(&self, input: &RunInput<'_>) -> Result<usize> {
        self.check_takes_images()?;
        let each = self.image_elements();
        match input {
            RunInput::Images(images) => {
                if self.resize() == ResizeOn::Host {
                    self.check_input(Input::Pixels(&[]))?;
                }
                Ok(images.len())
            }
            RunInput::DeviceImages(images) => {
                if self.resize() == ResizeOn::Host {
                    let reason =
                        "are decoded for a GPU that resizes them. Build the session with `ResizeOn::Device`";
                    return Err(Error::argument("images", reason));
                }
                Ok(images.len())
            }
            RunInput::Pixels(pixels) => {
                self.check_input(Input::Pixels(pixels))?;
                Ok(pixels.len() / each)
            }
            RunInput::Values(values) => {
                self.check_input(Input::Values(values))?;
                Ok(values.len() / each)
            }
            RunInput::Device { memory, dtype } => {
                if self.packing().is_some() {
                    let reason = "is on a GPU, but packed images come from the host";
                    return Err(Error::argument("input", reason));
                }
                if self.input_gpu() != Some(memory.stream().device()) {
                    let reason = format!(
                        "is on {}, and the session on {}",
                        memory.stream().device().name(),
                        self.devices()
                    );
                    return Err(Error::argument("input", reason));
                }
                let elements = memory.bytes() / dtype.size();
                self.check_elements(*dtype, elements)?;
                Ok(elements / each)
            }
        }
    }

    /// Returns the images `range` of the input of a run. The host resizes them to the model's size, unless a GPU does.
    fn batch_input<'a>(
        &self,
        input: &RunInput<'a>,
        range: Range<usize>,
        timing: Option<&mut Timing>,
    ) -> Result<InputData<'a>> {
        let each = self.image_elements();
        let elements = range.start * each..range.end * each;
        Ok(match input {
            RunInput::Images(images) if self.resize() == ResizeOn::Device => {
                InputData::Images(Images::new(&images[range]))
            }
            RunInput::DeviceImages(images) => InputData::Images(Images::decoded(&images[range])),
            RunInput::Images(images) => {
                let start = Instant::now();
                let mut staging = self.stage(range.len(), self.batch().min(images.len()))?;
                let threads = staging.threads().clone();
                let slots: &mut [u8] = &mut staging;
                threads.install(|| {
                    let slots = slots.par_chunks_exact_mut(each);
                    let resized = images[range].par_iter().zip(slots);
                    resized.try_for_each(|(image, slot)| self.preprocess().apply_into(image, slot))
                })?;
                if let Some(timing) = timing {
                    timing.add(Phase::Resize, start.elapsed());
                }
                InputData::Staged(staging)
            }
            RunInput::Pixels(pixels) => Input::Pixels(pixels).slice(elements).into(),
            RunInput::Values(values) => Input::Values(values).slice(elements).into(),
            RunInput::Device { memory, dtype } => {
                let bytes = elements.start * dtype.size()..elements.end * dtype.size();
                InputData::Device(memory.part(bytes)?)
            }
        })
    }

    /// Returns the GPU for [`RunInput::Device`]: the only GPU, or the first of a pipeline. `None` with several replicas, tensor
    /// parallelism, [packed](crate::SessionBuilder::packed) images, or without a GPU.
    pub fn input_gpu(&self) -> Option<&hip::Device> {
        let whole = self.replicas() == 1 && self.degrees().tensor == 1 && self.packing().is_none();
        self.loaded.executor.gpu().filter(|_| whole)
    }

    /// Checks that `input` is whole images of the session's input dtype.
    pub(super) fn check_input(&self, input: Input<'_>) -> Result<()> {
        self.check_elements(input.dtype(), input.len())
    }

    fn check_elements(&self, dtype: DType, elements: usize) -> Result<()> {
        let expected = self.graph().value(self.graph().input()).dtype;
        if dtype != expected {
            let reason = format!("is {dtype}, expected {expected}");
            return Err(Error::argument("input", reason));
        }
        let each = self.image_elements();
        if !elements.is_multiple_of(each) {
            let reason = format!("{elements} elements are not a whole number of images of {each} elements");
            return Err(Error::argument("input", reason));
        }
        Ok(())
    }

    fn image_elements(&self) -> usize {
        if let Some(packing) = self.packing() {
            return packing.image_bytes();
        }
        self.graph().value(self.graph().input()).shape.iter().product()
    }

    /// Checks that the results of a strict session are finite. `first` is the index of the first image.
    pub(super) fn check_finite(&self, outputs: &Outputs, first: usize) -> Result<()> {
        let mut images = outputs.iter().enumerate().filter(|_| self.is_strict());
        match images.find_map(|(index, image)| Some((index, image.non_finite()?))) {
            Some((index, results)) => Err(Error::NonFinite {
                image: format!("image {}", first + index),
                results,
            }),
            None => Ok(()),
        }
    }

    /// Returns the outputs for no images.
    pub fn no_outputs(&self) -> Result<Outputs> {
        let columns = |value| self.graph().value(value).shape.last().copied().unwrap_or(0);
        let outputs = self.graph().outputs().iter();
        let empty = outputs.map(|&(kind, value)| RunOutput {
            kind,
            values: Array2::zeros((0, columns(value))),
        });
        self.outputs(empty.collect(), 0)
    }

    /// Converts the results of a plan for `images` images.
    pub(super) fn outputs(&self, results: RunOutputs, images: usize) -> Result<Outputs> {
        let info = self.info();
        let mut outputs = Outputs {
            labels: self.labels().clone(),
            scores: self.scores(),
            prefix_tokens: info.prefix_tokens,
            grid: info.patch_grid(),
            embeddings: Array2::zeros((images, 0)),
            logits: None,
            tokens: None,
            hidden_layers: Vec::new(),
            attention_statistics: Vec::new(),
        };
        let by_token = |matrix: Array2<f32>| -> Result<Array3<f32>> {
            // Blocks of a model with stages have different numbers of tokens.
            let tokens = matrix.nrows().checked_div(images).unwrap_or(info.tokens);
            let shape = (images, tokens, matrix.ncols());
            matrix
                .into_shape_with_order(shape)
                .map_err(|e| Error::internal("outputs", e))
        };
        for RunOutput { kind, values: matrix } in results {
            match kind {
                OutputKind::AttentionStatistics(_) => {
                    let layer = self.attention_layer(kind, images, matrix)?;
                    outputs.attention_statistics.push(layer);
                }
                OutputKind::Logits => outputs.logits = Some(matrix),
                OutputKind::Embedding => outputs.embeddings = matrix,
                OutputKind::Tokens => outputs.tokens = Some(by_token(matrix)?),
                // No session requests these outputs.
                OutputKind::Boundary
                | OutputKind::EmbeddedTokens
                | OutputKind::Loss
                | OutputKind::GradientNorm
                | OutputKind::Gradient(_)
                | OutputKind::Named(_) => {}
                OutputKind::HiddenLayer(block) => outputs.hidden_layers.push((block, by_token(matrix)?)),
            }
        }
        Ok(outputs)
    }

    /// Converts the statistics of one attention layer, `[images·heads·queries, 3]`, with its shape from the graph.
    fn attention_layer(
        &self,
        kind: OutputKind,
        images: usize,
        values: Array2<f32>,
    ) -> Result<AttentionLayer> {
        let graph = self.graph();
        let output = graph.outputs().iter().find(|&&(known, _)| known == kind);
        let node = output.and_then(|&(_, id)| graph.nodes().iter().find(|node| node.outputs.contains(&id)));
        let Some((node, Op::Attention(spec))) = node.map(|node| (node, &node.op)) else {
            return Err(Error::internal("outputs", "has no attention"));
        };
        let inputs: Vec<&[usize]> = node
            .inputs
            .iter()
            .map(|&id| graph.value(id).shape.as_slice())
            .collect();
        let queries = graph.value(node.outputs[1]).shape[2];
        let values = values.into_shape_with_order((images, spec.heads, queries, 3));
        Ok(AttentionLayer {
            name: node.name.clone(),
            keys: spec.keys(&inputs),
            values: values.map_err(|e| Error::internal("outputs", e))?,
        })
    }

    /// Returns memory for `images` images of the model's size, in a buffer for `capacity` images.
    pub fn stage(&self, images: usize, capacity: usize) -> Result<Staging> {
        let each = self.image_elements();
        self.loaded.executor.stage(images * each, capacity * each)
    }

    /// Returns pinned memory for decoded images, if a GPU resizes them.
    pub(crate) fn slabs(&self) -> Option<Arc<Slabs>> {
        self.loaded.executor.slabs()
    }

    /// Returns the bytes of an image's pixels at the model's size.
    pub fn image_bytes(&self) -> usize {
        self.image_elements()
    }

    /// Submits a run on `images` images. Calls `wait_for_memory` with the error while the device has no memory for it.
    pub fn submit(
        &self,
        input: InputData<'_>,
        images: usize,
        submission: Submission,
        wait_for_memory: impl FnMut(Error) -> Result<()>,
    ) -> Result<Submitted> {
        let submitted = if let Some(packing) = self.packing() {
            self.submit_packed(packing, input, images, submission, wait_for_memory)?
        } else {
            let plan = self.loaded.executor.plan(images)?;
            let reservation = self.reserve(&plan, input.staging(), wait_for_memory)?;
            let run = reservation.submit(Inputs::of_plan(&plan, input), submission)?;
            Submitted {
                run,
                images,
                packed: None,
            }
        };
        self.loaded.images.fetch_add(images as u64, Ordering::Relaxed);
        Ok(submitted)
    }

    /// Reserves the memory of a run. Calls `wait_for_memory` with the error while the device has none.
    pub(super) fn reserve(
        &self,
        plan: &Arc<Plan>,
        near: Option<&Staging>,
        mut wait_for_memory: impl FnMut(Error) -> Result<()>,
    ) -> Result<Box<dyn Reservation>> {
        loop {
            match self.loaded.executor.clone().reserve(plan, near) {
                Err(error @ Error::Hip(hip::Error::OutOfMemory { .. })) => wait_for_memory(error)?,
                reservation => return reservation,
            }
        }
    }

    /// Waits for a submitted run. Also returns the memory that its input was staged in.
    pub(super) fn finish_with_memory(
        &self,
        submitted: Submitted,
        timing: Option<&mut Timing>,
    ) -> Result<(Outputs, Option<Staging>)> {
        let Submitted { run, images, packed } = submitted;
        let finished = run.finish(FinishOptions { timing, keep: None })?;
        match packed {
            Some(packed) => {
                let outputs = packed.select(finished.outputs);
                Ok((self.outputs(outputs, images)?, packed.staging))
            }
            None => Ok((self.outputs(finished.outputs, images)?, finished.staging)),
        }
    }

    /// Waits for a submitted run.
    pub fn finish(&self, submitted: Submitted, timing: Option<&mut Timing>) -> Result<Outputs> {
        let (outputs, _) = self.finish_with_memory(submitted, timing)?;
        Ok(outputs)
    }
}

/// A submitted run.
pub struct Submitted {
    pub(super) run: Box<dyn PendingRun>,
    pub(super) images: usize,
    /// Set if the images were packed.
    pub(super) packed: Option<PackedRun>,
}

impl std::fmt::Debug for Submitted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Submitted")
            .field("images", &self.images)
            .finish_non_exhaustive()
    }
}

/// Collects the results of a run's batches, in order.
pub(super) trait Collect {
    /// Results that are copied to the host.
    const DOWNLOAD: Download;

    /// Called once, with the number of images of all batches.
    fn begin(&mut self, session: &Session, images: usize) -> Result<()>;

    /// Waits for the next batch and takes its results.
    fn finish(&mut self, session: &Session, run: Submitted, timing: Option<&mut Timing>) -> Result<()>;
}

/// Collects results on the host. `None` without images.
impl Collect for Option<Outputs> {
    const DOWNLOAD: Download = Download::All;

    fn begin(&mut self, _session: &Session, _images: usize) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self, session: &Session, run: Submitted, timing: Option<&mut Timing>) -> Result<()> {
        let outputs = session.finish(run, timing)?;
        session.check_finite(&outputs, self.as_ref().map_or(0, Outputs::len))?;
        append(self, outputs)
    }
}

fn append(all: &mut Option<Outputs>, outputs: Outputs) -> Result<()> {
    match all {
        None => *all = Some(outputs),
        Some(all) => all.append(&outputs).map_err(|e| Error::internal("outputs", e))?,
    }
    Ok(())
}

/// Collects results on the host, also NaN and infinite ones.
struct Unchecked(Option<Outputs>);

impl Collect for Unchecked {
    const DOWNLOAD: Download = Download::All;

    fn begin(&mut self, _session: &Session, _images: usize) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self, session: &Session, run: Submitted, timing: Option<&mut Timing>) -> Result<()> {
        append(&mut self.0, session.finish(run, timing)?)
    }
}
