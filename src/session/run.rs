//! Runs: images, pixels or pixel values in, [`Outputs`] out, one batch after the other.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use ndarray::{Array2, Array3};
use rayon::prelude::*;

use super::replicas::Slot;
use super::{ResizeOn, Session};
use crate::error::{Error, Result};
use crate::exec::{Images, PendingRun, RunFeed, Slabs, Staging, Submission};
use crate::graph::OutputKind;
use crate::hip::{self, ForeignMemory};
use crate::image::RgbImage;
use crate::ops::Op;
use crate::outputs::{AttentionLayer, Outputs};
use crate::tensor::{DType, Input};
use crate::timing::{Phase, Timing};

/// The results of a plan: each output as a matrix.
type Results = Vec<(OutputKind, Array2<f32>)>;

/// The input of [`Session::run_with`]. Images convert into it: `session.run_with(&images, options)`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RunInput<'a> {
    /// Decoded images of any size, which the session resizes and crops.
    Images(Vec<&'a RgbImage>),
    /// RGB bytes of images that have the model's size: u8 `[images, H, W, 3]`.
    Pixels(&'a [u8]),
    /// Pixel values that the caller has normalised: f32 `[images, 3, H, W]`. Only for a session built with
    /// [`InputKind::PixelValues`](crate::model::InputKind::PixelValues).
    Values(&'a [f32]),
    /// Either of these in memory of the session's [only GPU](Session::input_gpu), which is copied from there to where the model reads it.
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

/// The options of one run, see [`Session::run_with`].
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct RunOptions<'a> {
    pub(super) timing: Option<&'a mut Timing>,
}

impl<'a> RunOptions<'a> {
    /// The defaults.
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
    /// Resizes and crops `images` and runs the model on them, in batches of at most [`batch`](Self::batch) images. Without
    /// an image the outputs are empty.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for an image that the preprocessing cannot bring to the model's size; [`Error::NonFinite`] of a
    /// [strict](crate::SessionBuilder::strict) session; an error of the device.
    pub fn run<I>(&self, images: I) -> Result<Outputs>
    where
        I: IntoIterator<Item: AsRef<RgbImage>>,
    {
        let images: Vec<I::Item> = images.into_iter().collect();
        self.run_with(&images, RunOptions::new())
    }

    /// As [`run`](Self::run), with options, and for other input than images. Of several batches two are in flight on
    /// each device, where it has memory for them: while one computes, the next is copied in.
    ///
    /// A GPU's input is copied to page-locked memory first, by several threads and while the first of it is on its way to
    /// the GPU; [`run_pinned`](Self::run_pinned) spares that copy.
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
    /// As [`run`](Self::run); [`Error::Argument`] for pixels or values whose length is not that of whole images, or that are
    /// not what the session was built for.
    pub fn run_with<'a>(&self, input: impl Into<RunInput<'a>>, options: RunOptions<'_>) -> Result<Outputs> {
        let mut all = None;
        self.run_to(&mut all, input.into(), options)?;
        match all {
            Some(all) => Ok(all),
            None => self.no_outputs(),
        }
    }

    /// Runs as [`run_with`](Self::run_with) does. Results may be NaN or infinite also in a [strict](crate::SessionBuilder::strict) session: the
    /// caller checks each image's.
    pub fn run_unchecked<'a>(
        &self,
        input: impl Into<RunInput<'a>>,
        options: RunOptions<'_>,
    ) -> Result<Outputs> {
        let mut all = Unchecked(None);
        self.run_to(&mut all, input.into(), options)?;
        match all.0 {
            Some(all) => Ok(all),
            None => self.no_outputs(),
        }
    }

    pub(super) fn run_to(
        &self,
        results: &mut impl Collect,
        input: RunInput<'_>,
        options: RunOptions<'_>,
    ) -> Result<()> {
        match input {
            RunInput::Images(images) => self.run_images(results, &images, options.timing),
            RunInput::Pixels(pixels) => self.run_elements(results, Input::Pixels(pixels), options.timing),
            RunInput::Values(values) => self.run_elements(results, Input::Values(values), options.timing),
            RunInput::Device { memory, dtype } => {
                let run = self.run_device(results, memory, dtype, options.timing);
                // Also after an error, as copies may be under way: then nothing reads the memory.
                let done = memory.stream().synchronize();
                run?;
                Ok(done?)
            }
        }
    }

    fn run_images(
        &self,
        results: &mut impl Collect,
        images: &[&RgbImage],
        timing: Option<&mut Timing>,
    ) -> Result<()> {
        if self.resize() == ResizeOn::Device {
            return self.run_batches(results, images.len(), timing, |range, _| {
                Ok(RunFeed::Images(Images::new(&images[range])))
            });
        }
        let (rule, each) = (self.preprocess(), self.image_elements());
        self.check_input(Input::Pixels(&[]))?;
        self.run_batches(results, images.len(), timing, |range, timing| {
            let start = Instant::now();
            let executor = self.loaded.replicas.next_to_stage();
            let mut staging = executor.stage(range.len(), self.batch().min(images.len()), each)?;
            let slots: &mut [u8] = &mut staging;
            executor.install(|| {
                let slots = slots.par_chunks_exact_mut(each);
                let resized = images[range].par_iter().zip(slots);
                resized.try_for_each(|(image, slot)| rule.apply_into(image, slot))
            })?;
            if let Some(timing) = timing {
                timing.add(Phase::Resize, start.elapsed());
            }
            Ok(RunFeed::Staged(staging))
        })
    }

    fn run_elements(
        &self,
        results: &mut impl Collect,
        input: Input<'_>,
        timing: Option<&mut Timing>,
    ) -> Result<()> {
        self.check_input(input)?;
        let each = self.image_elements();
        self.run_batches(results, input.len() / each, timing, |range, _| {
            Ok(RunFeed::Input(input.slice(range.start * each..range.end * each)))
        })
    }

    /// The GPU that [`RunInput::Device`] has to be on: the only one, or the first of a pipeline. `None` with several replicas, tensor
    /// parallelism, or no GPU.
    pub fn input_gpu(&self) -> Option<&hip::Device> {
        let whole = self.loaded.replicas.len() == 1 && self.degrees().tensor == 1;
        self.loaded.replicas.first().gpu().filter(|_| whole)
    }

    fn run_device(
        &self,
        results: &mut impl Collect,
        memory: &ForeignMemory,
        dtype: DType,
        timing: Option<&mut Timing>,
    ) -> Result<()> {
        if self.input_gpu() != Some(memory.stream().device()) {
            let reason = format!(
                "is on {}, and the session on {}",
                memory.stream().device().name(),
                self.devices()
            );
            return Err(Error::argument("input", reason));
        }
        self.check_elements(dtype, memory.bytes() / dtype.size())?;
        let each = self.image_elements() * dtype.size();
        self.run_batches(results, memory.bytes() / each, timing, |range, _| {
            Ok(RunFeed::Device(
                memory.part(range.start * each..range.end * each)?,
            ))
        })
    }

    /// Whether `input` is whole images of the dtype that the session was built for.
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
        self.graph().value(self.graph().input()).shape.iter().product()
    }

    /// Runs the images in batches; `feed` provides a range of them. While a batch computes, the next is staged and
    /// submitted, where the device has memory for both.
    fn run_batches<'a, C: Collect>(
        &self,
        results: &mut C,
        images: usize,
        mut timing: Option<&mut Timing>,
        mut feed: impl FnMut(Range<usize>, Option<&mut Timing>) -> Result<RunFeed<'a>>,
    ) -> Result<()> {
        let begin = Instant::now();
        let how = Submission {
            timed: timing.is_some(),
            sleeps: false,
            on_device: C::ON_DEVICE,
        };
        results.begin(self, images)?;
        let mut in_flight = VecDeque::new();
        let replicas = self.loaded.replicas.len();
        let mut most_in_flight = self.batches_in_flight();
        let mut finish = |run, timing: Option<&mut Timing>| results.finish(self, run, timing);
        for start in (0..images).step_by(self.batch()) {
            let range = start..(start + self.batch()).min(images);
            let count = range.len();
            let feed = feed(range, timing.as_deref_mut())?;
            while in_flight.len() >= most_in_flight
                && let Some(oldest) = in_flight.pop_front()
            {
                finish(oldest, timing.as_deref_mut())?;
            }
            let run = self.submit(feed, count, how, |error| {
                most_in_flight = replicas;
                match in_flight.pop_front() {
                    Some(oldest) => finish(oldest, timing.as_deref_mut()),
                    None => Err(error),
                }
            })?;
            in_flight.push_back(run);
        }
        for run in in_flight {
            finish(run, timing.as_deref_mut())?;
        }
        if let Some(timing) = timing {
            timing.add_wall(begin.elapsed());
        }
        Ok(())
    }

    /// Refuses results that are not finite, of a strict session; `first` is the number of the first image.
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

    /// The outputs for no image.
    pub fn no_outputs(&self) -> Result<Outputs> {
        let columns = |value| self.graph().value(value).shape.last().copied().unwrap_or(0);
        let outputs = self.graph().outputs().iter();
        let empty = outputs.map(|&(kind, value)| (kind, Array2::zeros((0, columns(value)))));
        self.outputs(empty.collect(), 0)
    }

    /// A plan's results, for `images` images.
    pub(super) fn outputs(&self, results: Results, images: usize) -> Result<Outputs> {
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
            let shape = (images, info.tokens, matrix.ncols());
            matrix
                .into_shape_with_order(shape)
                .map_err(|e| Error::argument("outputs", e))
        };
        for (kind, matrix) in results {
            match kind {
                OutputKind::AttentionStatistics(_) => {
                    let layer = self.attention_layer(kind, images, matrix)?;
                    outputs.attention_statistics.push(layer);
                }
                OutputKind::Logits => outputs.logits = Some(matrix),
                OutputKind::Embedding => outputs.embeddings = matrix,
                OutputKind::Tokens => outputs.tokens = Some(by_token(matrix)?),
                // No session asks for them.
                OutputKind::Boundary | OutputKind::EmbeddedTokens | OutputKind::Gradient(_) => {}
                OutputKind::HiddenLayer(block) => outputs.hidden_layers.push((block, by_token(matrix)?)),
            }
        }
        Ok(outputs)
    }

    /// The statistics of one attention, `[images·heads·queries, 3]`, with what the graph knows of it.
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
            return Err(Error::argument("outputs", "has no attention"));
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
            values: values.map_err(|e| Error::argument("outputs", e))?,
        })
    }

    /// Memory for `images` images of the model's size, in a buffer for `capacity`.
    pub fn stage(&self, images: usize, capacity: usize) -> Result<Staging> {
        let executor = self.loaded.replicas.next_to_stage();
        executor.stage(images, capacity, self.image_elements())
    }

    /// Pinned memory for decoded images, if a GPU resizes them.
    pub(crate) fn slabs(&self) -> Option<Arc<Slabs>> {
        self.loaded.replicas.next_to_stage().slabs()
    }

    /// The bytes of an image's pixels at the model's size.
    pub fn image_bytes(&self) -> usize {
        self.image_elements()
    }

    /// Submits a run on `images` images. While the device has no memory for it, `wait_for_memory` is called with the
    /// error.
    pub fn submit(
        &self,
        feed: RunFeed<'_>,
        images: usize,
        how: Submission,
        mut wait_for_memory: impl FnMut(Error) -> Result<()>,
    ) -> Result<Submitted> {
        let replicas = &self.loaded.replicas;
        let plan = self.plan(images)?;
        let (slot, executor, reservation) = loop {
            let slot = replicas.choose(images, feed.staging())?;
            let executor = &replicas.all()[slot.replica()];
            match executor.reserve(plan.clone()) {
                Err(error @ Error::Hip(hip::Error::OutOfMemory { .. })) => {
                    drop(slot);
                    wait_for_memory(error)?;
                }
                reservation => break (slot, executor, reservation?),
            }
        };
        let run = executor.submit(reservation, feed, how)?;
        slot.submitted(&run);
        Ok(Submitted { run, images, slot })
    }

    /// As [`finish`](Self::finish); returns also the memory that the run was fed from.
    pub(super) fn finish_with_memory(
        &self,
        submitted: Submitted,
        timing: Option<&mut Timing>,
    ) -> Result<(Outputs, Option<Staging>)> {
        let Submitted { run, images, slot } = submitted;
        let executor = &self.loaded.replicas.all()[slot.replica()];
        let (results, mut memory) = executor.finish_with_staging(run, timing)?;
        Ok((self.outputs(results, images)?, memory.pop()))
    }

    /// Waits for a submitted run.
    pub fn finish(&self, submitted: Submitted, timing: Option<&mut Timing>) -> Result<Outputs> {
        let Submitted { run, images, slot } = submitted;
        let replicas = &self.loaded.replicas;
        let executor = &replicas.all()[slot.replica()];
        let (results, memory) = executor.finish_with_staging(run, timing)?;
        replicas.keep(memory);
        self.outputs(results, images)
    }
}

/// A submitted run.
pub struct Submitted {
    pub(super) run: PendingRun,
    pub(super) images: usize,
    pub(super) slot: Slot,
}

/// Where the results of a run's batches go, which come in their order.
pub(super) trait Collect {
    /// Whether results stay on the device.
    const ON_DEVICE: bool;

    /// Called once, with the number of images of all batches.
    fn begin(&mut self, session: &Session, images: usize) -> Result<()>;

    /// Waits for the next batch, and takes its results.
    fn finish(&mut self, session: &Session, run: Submitted, timing: Option<&mut Timing>) -> Result<()>;
}

/// To the host; of no image there is nothing.
impl Collect for Option<Outputs> {
    const ON_DEVICE: bool = false;

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
        Some(all) => all.append(&outputs).map_err(|e| Error::argument("outputs", e))?,
    }
    Ok(())
}

/// Collects results on the host, finite or not.
struct Unchecked(Option<Outputs>);

impl Collect for Unchecked {
    const ON_DEVICE: bool = false;

    fn begin(&mut self, _session: &Session, _images: usize) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self, session: &Session, run: Submitted, timing: Option<&mut Timing>) -> Result<()> {
        append(&mut self.0, session.finish(run, timing)?)
    }
}
