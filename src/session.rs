//! A loaded model, ready to run: [`Session::load`], [`Session::run`]. Owns the optimised graph, its executor, and a
//! [`Plan`] for each batch size seen. [`crate::pipeline`] feeds it from files.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ndarray::Array2;

use crate::error::{Error, Result};
use crate::exec::{Executor, GraphMode, Replays, Staging, Submission};
use crate::graph::plan::Plan;
use crate::graph::{self, Graph, OutputKind, Passes};
use crate::hip::{self, Runtime};
use crate::image::{Preprocess, RgbImage};
use crate::labels::Labels;
use crate::model::{self, Info, InputKind, LoadOptions, Model};
use crate::outputs::{Outputs, Scores};
use crate::tensor::{DType, Input};
use crate::timing::{Phase, Timing};

/// Where a model runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Device {
    /// The first GPU, or the CPU if there is none.
    #[default]
    Auto,
    /// The host's processor.
    Cpu,
    /// The GPU of this number, from 0.
    Hip(usize),
}

impl FromStr for Device {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let number = text.strip_prefix("hip:").and_then(|n| n.parse().ok());
        match (text, number) {
            ("auto", _) => Ok(Self::Auto),
            ("cpu", _) => Ok(Self::Cpu),
            ("hip", _) => Ok(Self::Hip(0)),
            (_, Some(number)) => Ok(Self::Hip(number)),
            _ => Err(Error::argument(
                "device",
                format!("`{text}` is not one of auto, cpu, hip, hip:N"),
            )),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Cpu => f.pad("cpu"),
            Self::Hip(number) => f.pad(&format!("hip:{number}")),
        }
    }
}

impl Device {
    /// What this means.
    pub(crate) fn open(self) -> Result<Place> {
        let gpu = |number| Runtime::open()?.device(number);
        match self {
            Self::Cpu => Ok(Place::Cpu { no_gpu: None }),
            Self::Hip(number) => Ok(Place::Gpu(gpu(number)?)),
            Self::Auto => Ok(gpu(0).map_or_else(
                |error| Place::Cpu {
                    no_gpu: Some(error.into()),
                },
                Place::Gpu,
            )),
        }
    }
}

/// Where images are brought to the model's size; both make the same bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResizeOn {
    /// On the host's threads, which leaves fewer bytes to copy.
    #[default]
    Host,
    /// On the GPU that the model runs on, which leaves the host more time to decode.
    Device,
}

impl FromStr for ResizeOn {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "host" => Ok(Self::Host),
            "device" => Ok(Self::Device),
            _ => Err(Error::argument(
                "resize",
                format!("`{text}` is not one of host, device"),
            )),
        }
    }
}

/// A [`Device`] that was looked for.
pub(crate) enum Place {
    Cpu {
        /// Why it is not the GPU, if that would have done.
        no_gpu: Option<Error>,
    },
    Gpu(hip::Device),
}

/// Choices to make before a model is loaded. Made by [`Session::builder`].
#[derive(Clone, Debug)]
pub struct SessionBuilder {
    device: Device,
    gpu: Option<hip::Device>,
    dtype: DType,
    batch: usize,
    threads: Option<usize>,
    graph: GraphMode,
    resize: ResizeOn,
    load: LoadOptions,
}

impl Default for SessionBuilder {
    fn default() -> Self {
        Self {
            device: Device::Auto,
            gpu: None,
            dtype: DType::F32,
            batch: 8,
            threads: None,
            graph: GraphMode::default(),
            resize: ResizeOn::default(),
            load: LoadOptions::default(),
        }
    }
}

impl SessionBuilder {
    /// Where to run; the default is [`Device::Auto`].
    pub fn device(mut self, device: Device) -> Self {
        self.device = device;
        self.gpu = None;
        self
    }

    /// Run on a GPU that was opened already, of whatever provider.
    pub fn gpu(mut self, gpu: hip::Device) -> Self {
        self.device = Device::Hip(gpu.ordinal());
        self.gpu = Some(gpu);
        self
    }

    /// The type of the activations: [`DType::F32`], the default; on a GPU also [`DType::F16`] and [`DType::BF16`].
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.dtype = dtype;
        self
    }

    /// The most images that run at once, 8 by default. The memory for activations grows with it.
    pub fn batch(mut self, batch: usize) -> Self {
        self.batch = batch;
        self
    }

    /// How many threads compute, and as many decode in a [pipeline](crate::pipeline); by default one a core.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Whether a GPU replays captured graphs; the default is [`GraphMode::Auto`]. [`Session::replays`] says what came of it.
    pub fn graph(mut self, mode: GraphMode) -> Self {
        self.graph = mode;
        self
    }

    /// Where [`Session::run`] and [`Pipeline`](crate::pipeline::Pipeline) resize images; the default is [`ResizeOn::Host`].
    /// The CPU offers no other.
    pub fn resize(mut self, place: ResizeOn) -> Self {
        self.resize = place;
        self
    }

    /// Another image size `[height, width]` than the model's own: position embeddings are interpolated.
    pub fn image_size(mut self, size: [usize; 2]) -> Self {
        self.load.image_size = Some(size);
        self
    }

    /// What goes in: RGB bytes (the default), or pixel values that the caller has normalised.
    pub fn input(mut self, input: InputKind) -> Self {
        self.load.input = input;
        self
    }

    /// Loads the model directory `path` (timm's or Hugging Face's layout).
    ///
    /// # Errors
    ///
    /// The first thing wrong with the directory, its configuration or its tensors; or an option that the device does
    /// not offer.
    pub fn load(&self, path: impl AsRef<Path>) -> Result<Session> {
        let place = self.check()?;
        self.build(model::load(path.as_ref(), &self.load)?, place)
    }

    /// Loads TinyViT32, the digit classifier that is part of the crate.
    ///
    /// # Errors
    ///
    /// An option that the device does not offer.
    pub fn tinyvit32(&self) -> Result<Session> {
        let place = self.check()?;
        self.build(model::tinyvit32(&self.load)?, place)
    }

    /// The GPU that sessions with these options run on; `None` is the CPU.
    ///
    /// # Errors
    ///
    /// An option that is out of range or that the device does not offer, or there is no such GPU.
    pub fn open_device(&self) -> Result<Option<hip::Device>> {
        Ok(match self.check()? {
            Place::Gpu(gpu) => Some(gpu),
            Place::Cpu { .. } => None,
        })
    }

    /// Sees that the options agree, and opens the GPU.
    fn check(&self) -> Result<Place> {
        if self.batch == 0 || self.threads == Some(0) {
            return Err(Error::argument("batch and threads", "must be at least 1"));
        }
        let place = match &self.gpu {
            Some(gpu) => Place::Gpu(gpu.clone()),
            None => self.device.open()?,
        };
        if let Place::Cpu { no_gpu } = &place {
            // Who asked for a GPU's abilities and did not name one learns what was found.
            let why = no_gpu
                .as_ref()
                .map(|reason| format!("; {reason}"))
                .unwrap_or_default();
            if self.dtype != DType::F32 {
                let reason = format!("the cpu computes in f32, not in {}{why}", self.dtype);
                return Err(Error::argument("dtype", reason));
            }
            if self.resize == ResizeOn::Device {
                let reason =
                    "there is no GPU to resize on: the model runs on the cpu, which resizes on the host";
                return Err(Error::argument("resize", format!("{reason}{why}")));
            }
        }
        if let Some(threads) = self.threads.filter(|&threads| threads > MOST_THREADS) {
            let reason = format!("{threads} are more than {MOST_THREADS}");
            return Err(Error::argument("threads", reason));
        }
        Ok(place)
    }

    /// The passes that a model goes through before it runs with these options.
    pub fn passes(&self) -> Passes {
        Passes {
            // Weights that normalise as well lose too much in a narrow type.
            fold_normalize: self.dtype == DType::F32,
            ..Passes::default()
        }
    }

    fn build(&self, model: Model, place: Place) -> Result<Session> {
        let Model {
            name,
            graph,
            preprocess,
            labels,
            scores,
            info,
        } = model;
        let (mut graph, _) = graph::optimize(graph, &self.passes())?;
        let (executor, no_gpu) = match place {
            Place::Gpu(gpu) => {
                let executor = Executor::hip(&graph, &gpu, self.dtype, self.threads)?;
                let executor = executor.graphs(self.graph);
                let executor = match self.resize {
                    ResizeOn::Host => executor,
                    ResizeOn::Device => executor.resize(&preprocess)?,
                };
                (executor, None)
            }
            Place::Cpu { no_gpu } => (Executor::cpu(&graph, self.threads)?, no_gpu),
        };
        // The executor has its own arrangement of them; this unmaps the weight files too.
        graph.release_constants();
        Ok(Session {
            name,
            info,
            preprocess,
            labels,
            scores,
            graph: Arc::new(graph),
            executor,
            plans: Mutex::default(),
            batch: self.batch,
            dtype: self.dtype,
            no_gpu,
        })
    }
}

/// More than any machine has cores; more would spend a run on waking each other.
const MOST_THREADS: usize = 1024;

/// A model and all that it needs to run. Shared between threads, it runs on all of them at once.
pub struct Session {
    name: String,
    info: Info,
    preprocess: Preprocess,
    labels: Labels,
    scores: Scores,
    graph: Arc<Graph>,
    executor: Executor,
    plans: Mutex<HashMap<usize, Arc<Plan>>>,
    batch: usize,
    dtype: DType,
    no_gpu: Option<Error>,
}

impl Session {
    /// Loads the model directory `path` with the default options.
    ///
    /// # Errors
    ///
    /// See [`SessionBuilder::load`].
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        Self::builder().load(path)
    }

    /// Loads TinyViT32, the digit classifier that is part of the crate.
    ///
    /// # Errors
    ///
    /// None that is expected: the model is embedded.
    pub fn tinyvit32() -> Result<Self> {
        Self::builder().tinyvit32()
    }

    /// The options, at their defaults.
    pub fn builder() -> SessionBuilder {
        SessionBuilder::default()
    }

    /// The model's name: its directory's.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the model is: family, sizes, parameters.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// The rule that turns an image into the model's input.
    pub fn preprocess(&self) -> &Preprocess {
        &self.preprocess
    }

    /// The classes' names.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// How logits become probabilities.
    pub fn scores(&self) -> Scores {
        self.scores
    }

    /// The device in use.
    pub fn device(&self) -> Device {
        match &self.executor {
            Executor::Cpu { .. } => Device::Cpu,
            Executor::Hip { executor, .. } => Device::Hip(executor.device().ordinal()),
        }
    }

    /// Why [`Device::Auto`] became the CPU; `None` for any other choice, and where there is a GPU.
    pub fn no_gpu(&self) -> Option<&Error> {
        self.no_gpu.as_ref()
    }

    /// Where images are brought to the model's size.
    pub fn resize(&self) -> ResizeOn {
        match self.executor.resizes() {
            true => ResizeOn::Device,
            false => ResizeOn::Host,
        }
    }

    /// The type of the activations.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The most images that run at once.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// How many threads compute.
    pub fn threads(&self) -> usize {
        self.executor.threads()
    }

    /// The graph that runs, after all passes. Its constants are named, but their values are the executor's.
    pub fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    /// How runs on a GPU were carried out, and why not by replaying captured graphs; `None` on the CPU.
    pub fn replays(&self) -> Option<Replays> {
        self.executor.replays()
    }

    /// Resizes, crops and classifies (or embeds) `images`, [`batch`](Self::batch) of them at a time.
    ///
    /// # Errors
    ///
    /// An image that the preprocessing rule does not accept.
    pub fn run(&self, images: &[RgbImage]) -> Result<Outputs> {
        self.run_images(images, None)
    }

    /// As [`Session::run`], adding to `timing` what each phase took.
    ///
    /// # Errors
    ///
    /// As [`Session::run`].
    pub fn run_timed(&self, images: &[RgbImage], timing: &mut Timing) -> Result<Outputs> {
        self.run_images(images, Some(timing))
    }

    fn run_images(&self, images: &[RgbImage], mut timing: Option<&mut Timing>) -> Result<Outputs> {
        if self.resize() == ResizeOn::Device {
            return self.run_batches(images.len(), timing, |plan, range, timing| {
                self.executor.run_images(plan, &images[range], timing)
            });
        }
        let start = Instant::now();
        let pixels = self.executor.install(|| self.preprocess.apply_batch(images))?;
        if let Some(timing) = &mut timing {
            timing.add(Phase::Resize, start.elapsed());
            timing.add_wall(start.elapsed());
        }
        self.run_input(Input::Pixels(&pixels), images.len(), timing)
    }

    /// Runs images that already have the model's size: u8 `[images, H, W, 3]`. Adds to `timing`, if there is one, what
    /// each phase took; without one nothing is measured.
    ///
    /// # Errors
    ///
    /// A slice whose length is not a multiple of an image's.
    pub fn run_pixels(&self, pixels: &[u8], timing: Option<&mut Timing>) -> Result<Outputs> {
        let images = self.count(pixels.len())?;
        self.run_input(Input::Pixels(pixels), images, timing)
    }

    /// Runs pixel values that the caller has normalised: f32 `[images, 3, H, W]`. The session must have been built
    /// with [`InputKind::PixelValues`]. As to `timing` see [`Session::run_pixels`].
    ///
    /// # Errors
    ///
    /// A slice whose length is not a multiple of an image's, or a session built for pixels.
    pub fn run_values(&self, values: &[f32], timing: Option<&mut Timing>) -> Result<Outputs> {
        let images = self.count(values.len())?;
        self.run_input(Input::Values(values), images, timing)
    }

    fn count(&self, elements: usize) -> Result<usize> {
        let each = self.image_elements();
        if !elements.is_multiple_of(each) {
            let reason = format!("{elements} elements are not a whole number of images of {each}");
            return Err(Error::argument("input", reason));
        }
        Ok(elements / each)
    }

    fn image_elements(&self) -> usize {
        self.graph.value(self.graph.input()).shape.iter().product()
    }

    fn run_input(&self, input: Input<'_>, images: usize, timing: Option<&mut Timing>) -> Result<Outputs> {
        let each = self.image_elements();
        self.run_batches(images, timing, |plan, range, timing| {
            let part = input.slice(range.start * each..range.end * each);
            self.executor.run(plan, part, timing)
        })
    }

    /// Calls `run` with the images of each batch and its plan.
    fn run_batches(
        &self,
        images: usize,
        mut timing: Option<&mut Timing>,
        run: impl Fn(&Plan, Range<usize>, Option<&mut Timing>) -> Result<Vec<(OutputKind, Array2<f32>)>>,
    ) -> Result<Outputs> {
        let begin = Instant::now();
        let mut all: Option<Outputs> = None;
        for start in (0..images.max(1)).step_by(self.batch) {
            let range = start..(start + self.batch).min(images);
            let count = range.len();
            let plan = self.plan(count)?;
            let results = run(&plan, range, timing.as_deref_mut())?;
            let outputs = outputs(results, count);
            match &mut all {
                None => all = Some(outputs),
                Some(all) => {
                    all.append(&outputs).map_err(|e| Error::argument("outputs", e))?;
                }
            }
        }
        if let Some(timing) = timing {
            timing.add_wall(begin.elapsed());
        }
        all.ok_or_else(|| Error::argument("input", "there is no image"))
    }

    /// Memory for `images` images: of the model's size, or decoded ones where the [device resizes](Session::resize).
    pub(crate) fn stage(&self, images: usize) -> Result<Staging> {
        self.executor.stage(images * self.image_elements())
    }

    /// Begins a run on what was staged. While the device has no memory for it `wait_for_memory` is called with the error.
    pub(crate) fn submit(
        &self,
        staging: Staging,
        timed: bool,
        mut wait_for_memory: impl FnMut(Error) -> Result<()>,
    ) -> Result<Submitted> {
        let images = staging.images();
        let plan = self.plan(images)?;
        let reservation = loop {
            match self.executor.reserve(plan.clone()) {
                Err(error @ Error::Hip(hip::Error::OutOfMemory { .. })) => wait_for_memory(error)?,
                reservation => break reservation?,
            }
        };
        Ok(Submitted {
            submission: self.executor.submit(reservation, staging, timed)?,
            images,
        })
    }

    /// Waits for a run that was begun.
    pub(crate) fn finish(&self, submitted: Submitted, timing: Option<&mut Timing>) -> Result<Outputs> {
        let results = self.executor.finish(submitted.submission, timing)?;
        Ok(outputs(results, submitted.images))
    }

    /// The plan for `batch` images at once, made on first use.
    ///
    /// # Errors
    ///
    /// None that is expected of a graph that was built once.
    pub fn plan(&self, batch: usize) -> Result<Arc<Plan>> {
        let mut plans = lock(&self.plans);
        if let Some(plan) = plans.get(&batch) {
            return Ok(plan.clone());
        }
        let plan = Arc::new(Plan::new(self.graph.clone(), batch, self.dtype)?);
        plans.insert(batch, plan.clone());
        Ok(plan)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("model", &self.name)
            .field("device", &self.device())
            .field("dtype", &self.dtype)
            .field("batch", &self.batch)
            .finish_non_exhaustive()
    }
}

/// A run of some images that was begun.
pub(crate) struct Submitted {
    submission: Submission,
    images: usize,
}

fn outputs(results: Vec<(OutputKind, Array2<f32>)>, images: usize) -> Outputs {
    let (mut logits, mut embeddings) = (None, None);
    for (kind, values) in results {
        match kind {
            OutputKind::Logits => logits = Some(values),
            OutputKind::Embedding => embeddings = Some(values),
        }
    }
    let embeddings = embeddings.unwrap_or_else(|| Array2::zeros((images, 0)));
    Outputs { logits, embeddings }
}

/// What these locks guard is never left half-changed, so a panic elsewhere does not spoil it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
