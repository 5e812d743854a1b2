//! The options of a [`Session`], and what it is loaded from.

mod build;
mod processes;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::devices::{DeviceSet, Places};
use super::parallelism::Parallelism;
use super::{Device, Origin, ResizeOn, Session};
use crate::error::Result;
use crate::exec::GraphMode;
use crate::exec::select::{AllReduceKind, SelectOptions, Sparse, Store};
use crate::graph::{self, Graph, Optimizations};
use crate::hip::{self, World};
use crate::labels::Labels;
use crate::model::{self, InputKind, LoadOptions, Model, ModelBytes};
use crate::tensor::DType;

/// The options of a [`Session`]. Made by [`Session::builder`].
///
/// ```
/// # fn main() -> hipvit::Result<()> {
/// use hipvit::{Device, Session};
///
/// let session = Session::builder().device(Device::Cpu).batch(16).load("assets/tinyvit32")?;
/// assert_eq!(session.batch(), 16);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct SessionBuilder {
    devices: DeviceSet,
    /// The devices, if the caller has opened them.
    gpus: Vec<hip::Device>,
    parallelism: Parallelism,
    dtype: DType,
    batch: usize,
    threads: Option<usize>,
    hip_graphs: GraphMode,
    select: SelectOptions,
    tuned: Option<Store>,
    resize: ResizeOn,
    optimizations: Optimizations,
    strict: bool,
    attention_statistics: bool,
    load: LoadOptions,
    labels: Option<Labels>,
    rewrites: Vec<Rewrite>,
    plan_cache: Option<PathBuf>,
    world: Option<World>,
    /// Maximum time that the processes wait for each other.
    rendezvous_timeout: Duration,
}

type RewriteFn = dyn Fn(&Graph) -> graph::Result<Graph> + Send + Sync;

/// A caller's rewrite of a model's graph.
#[derive(Clone)]
struct Rewrite(Arc<RewriteFn>);

impl fmt::Debug for Rewrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rewrite")
    }
}

impl Default for SessionBuilder {
    fn default() -> Self {
        Self {
            devices: DeviceSet::default(),
            gpus: Vec::new(),
            parallelism: Parallelism::default(),
            dtype: DType::F32,
            batch: 8,
            threads: None,
            hip_graphs: GraphMode::default(),
            select: SelectOptions::default(),
            tuned: None,
            resize: ResizeOn::default(),
            optimizations: Optimizations::default(),
            strict: false,
            attention_statistics: false,
            load: LoadOptions::default(),
            labels: None,
            rewrites: Vec::new(),
            plan_cache: None,
            world: None,
            rendezvous_timeout: Duration::from_secs(300),
        }
    }
}

impl SessionBuilder {
    /// Where the model runs; [`Device::Auto`] by default.
    pub fn device(self, device: Device) -> Self {
        self.devices(device)
    }

    /// Where the model runs: on one device, or on several GPUs as [`parallel`](Self::parallel) says, by default a replica of the
    /// model on each. Then whole batches go where a GPU is free, and the results come in the order of the images.
    ///
    /// ```no_run
    /// # fn main() -> hipvit::Result<()> {
    /// use hipvit::{DeviceSet, Pipeline, Session};
    ///
    /// // All GPUs of the machine; DeviceSet::gpus([0, 1])? are the first two.
    /// let session = Session::builder().devices(DeviceSet::all()).batch(64).load("vit_base_patch16_224")?;
    /// println!("{} replicas on {}", session.degrees().data, session.devices());
    /// for item in Pipeline::new(&session).run(["a.jpg", "b.jpg"])? {
    ///     println!("{}", item?.name());
    /// }
    /// # Ok(()) }
    /// ```
    pub fn devices(mut self, devices: impl Into<DeviceSet>) -> Self {
        self.devices = devices.into();
        self.gpus.clear();
        self
    }

    /// How several GPUs share the work; by default each has a replica of the model, [`Parallelism::data`].
    pub fn parallel(mut self, parallelism: Parallelism) -> Self {
        self.parallelism = parallelism;
        self
    }

    /// Runs the model on a GPU that is already open, of whatever provider.
    pub fn gpu(self, gpu: hip::Device) -> Self {
        self.gpus([gpu])
    }

    /// Runs the model on GPUs that are already open, all of one provider; see [`devices`](Self::devices).
    pub fn gpus(mut self, gpus: impl IntoIterator<Item = hip::Device>) -> Self {
        self.gpus = gpus.into_iter().collect();
        self
    }

    /// Compute precision: [`DType::F32`] by default, [`DType::F16`] or [`DType::BF16`]. On the CPU activations are in f32 in memory
    /// with each, and in f16 the weights alone are narrow; see [`CpuExecutor::with_dtype`].
    ///
    /// [`CpuExecutor::with_dtype`]: crate::exec::CpuExecutor::with_dtype
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.dtype = dtype;
        self
    }

    /// Maximum batch size, 8 by default: more images are run in several batches. The memory for activations is
    /// proportional to it.
    pub fn batch(mut self, batch: usize) -> Self {
        self.batch = batch;
        self
    }

    /// The number of threads that compute, and of those that decode in a [pipeline](crate::pipeline); by default the number
    /// of cores.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Whether a GPU replays the model's steps as a captured HIP graph; [`GraphMode::Auto`] by default.
    /// [`Session::hip_graphs`] tells how many runs did.
    pub fn hip_graphs(mut self, mode: GraphMode) -> Self {
        self.hip_graphs = mode;
        self
    }

    /// Whether an image's results have the same bits at any batch size, under any load and on any GPU of the same model; off
    /// by default. Each layer then uses one GEMM algorithm for all batch sizes, which is slower. No effect on the CPU.
    pub fn reproducible(mut self, reproducible: bool) -> Self {
        self.select.reproducible = reproducible;
        self
    }

    /// What sums over the GPUs with [tensor parallelism](Parallelism::tensor); [`AllReduceKind::Auto`] by default.
    pub fn all_reduce(mut self, kind: AllReduceKind) -> Self {
        self.select.all_reduce = kind;
        self
    }

    /// Maximum time that a GPU of a [tensor-parallel](Parallelism::tensor) model waits for the others; 300 s by default. After it the
    /// run fails, and the session is of no further use.
    pub fn collective_timeout(mut self, timeout: Duration) -> Self {
        self.select.collective_timeout = timeout;
        self
    }

    /// Which 2:4 sparse weights stay packed on a GPU that can skip their zeros; [`Sparse::Auto`] by default. No effect on the CPU,
    /// nor with tensor or pipeline parallelism.
    pub fn sparse(mut self, sparse: Sparse) -> Self {
        self.select.sparse = sparse;
        self
    }

    /// Whether weights and results that are NaN or infinite are errors; off by default. Without it
    /// [`Session::non_finite_weights`] and [`ImageOutputs::non_finite`](crate::ImageOutputs::non_finite) tell of them.
    pub fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// How kernels are selected on a GPU.
    #[doc(hidden)]
    pub fn select(mut self, options: SelectOptions) -> Self {
        self.select = options;
        self
    }

    /// What counts as measured on this machine if the model runs on one GPU, in place of what the user's cache has.
    #[doc(hidden)]
    pub fn tuned(mut self, tuned: Store) -> Self {
        self.tuned = Some(tuned);
        self
    }

    /// Where [`Session::run`] and [`Pipeline`](crate::pipeline::Pipeline) resize images; [`ResizeOn::Host`] by default,
    /// and always if the model runs on the CPU.
    pub fn resize(mut self, resize: ResizeOn) -> Self {
        self.resize = resize;
        self
    }

    /// What is left out to measure its gain; nothing by default.
    #[doc(hidden)]
    pub fn optimizations(mut self, optimizations: Optimizations) -> Self {
        self.optimizations = optimizations;
        self
    }

    /// The image size `[height, width]`, if it is not to be the model's own: position embeddings are interpolated.
    pub fn image_size(mut self, size: [usize; 2]) -> Self {
        self.load.image_size = Some(size);
        self
    }

    /// The names of the classes, instead of the model's own. A model that has none has ImageNet's if it has 1,000 classes,
    /// else numbers.
    ///
    /// ```
    /// # fn main() -> hipvit::Result<()> {
    /// use hipvit::{Labels, Session};
    ///
    /// let labels = Labels::from_iter(["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"]);
    /// let session = Session::builder().labels(labels).tinyvit32()?;
    /// assert_eq!(session.labels().get(7), "sieben");
    /// # Ok(()) }
    /// ```
    pub fn labels(mut self, labels: Labels) -> Self {
        self.labels = Some(labels);
        self
    }

    /// Adds a rewrite of the model's graph, which runs before the passes of [`optimize`](crate::graph::optimize()).
    ///
    /// Together with [`rewrite`](crate::graph::rewrite()) and a [custom op](crate::custom) this is a fusion of your own:
    /// `examples/custom_op.rs` has one. Rewrites run in the order in which they were added.
    pub fn rewrite(
        mut self,
        rewrite: impl Fn(&Graph) -> graph::Result<Graph> + Send + Sync + 'static,
    ) -> Self {
        self.rewrites.push(Rewrite(Arc::new(rewrite)));
        self
    }

    /// Maximum number of floating-point operations per image, 10¹³ by default: a model that takes more, such as one with a
    /// wrong image size, is an error. The cost of attention grows with the fourth power of the image's side.
    pub fn max_flops(mut self, flops: u64) -> Self {
        self.load.max_flops = Some(flops);
        self
    }

    /// The folder in which the optimised graph of a model in files is kept, with the weights that were computed for it, so that
    /// the next load with the same files and options does not run the passes over the graph; by default the one that the
    /// environment variable `HIPVIT_PLAN_CACHE` names, and none if it is not set. An empty path is none, too.
    ///
    /// Weight files are told apart by path, size, the times of the last modification and change, device and inode, not by their
    /// content. What does not match or is damaged is made anew and replaced, and where nothing can be written, loading goes on:
    /// [`Session::plan_cache`] tells. The folder may be shared by processes and deleted at any time; nothing in it is ever removed, so
    /// that graphs of models that have changed stay until it is. Whoever can write to it can change what models compute.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use hipvit::{PlanCache, Session};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let builder = Session::builder().plan_cache(folder.path());
    /// builder.load("assets/tinyvit32")?;
    /// let session = builder.load("assets/tinyvit32")?;
    /// assert!(matches!(session.plan_cache(), Some(PlanCache::Cached { .. })));
    /// # Ok(()) }
    /// ```
    pub fn plan_cache(mut self, folder: impl Into<PathBuf>) -> Self {
        self.plan_cache = Some(folder.into());
        self
    }

    /// The model's input: RGB bytes (the default), or pixel values that the caller has normalised.
    pub fn input(mut self, input: InputKind) -> Self {
        self.load.input = input;
        self
    }

    /// Whether runs return the tokens after the final norm, see [`Outputs::tokens`](crate::Outputs::tokens). Off by
    /// default: of a model whose head reads only the class token, the last block then computes only that token.
    pub fn tokens(mut self, tokens: bool) -> Self {
        self.load.tokens = tokens;
        self
    }

    /// The blocks, counted from 0, whose result runs return, see
    /// [`Outputs::hidden_layer`](crate::Outputs::hidden_layer). None by default.
    pub fn hidden_layers(mut self, blocks: impl IntoIterator<Item = usize>) -> Self {
        self.load.hidden_layers = blocks.into_iter().collect();
        self
    }

    /// Whether runs return the statistics of each attention's softmax, see
    /// [`Outputs::attention_statistics`](crate::Outputs::attention_statistics). Off by default. On a GPU the fused attention kernel
    /// writes them as the model runs; no scores are written. The last block computes all tokens then, whatever the head
    /// reads. Not with tensor or pipeline parallelism, nor on a GPU for heads of more than 128 channels.
    pub fn attention_statistics(mut self, attention_statistics: bool) -> Self {
        self.attention_statistics = attention_statistics;
        self
    }

    /// Loads a model directory, as timm or Hugging Face transformers write it, or a model of the Hugging Face hub.
    ///
    /// What is no path of a directory or file and looks like a name on the hub, `org/name` or `org/name@revision`, with
    /// or without timm's `hf-hub:`, is looked up in the hub's local cache, which `HF_HUB_CACHE`, `HUGGINGFACE_HUB_CACHE`,
    /// `HF_HOME` or `XDG_CACHE_HOME` locate, by default `~/.cache/huggingface/hub`. An architecture's bare name, as
    /// `timm/vit_base_patch16_224`, stands for the weights that timm has by default. Nothing is downloaded: the error has
    /// the command that does it.
    ///
    /// # Errors
    ///
    /// [`Error::Hub`](crate::Error::Hub) if the cache does not have the model, or not all of its files; the
    /// first thing that is wrong with the directory, its configuration or its tensors; or an option that the model or the
    /// device does not support.
    pub fn load(&self, path: impl AsRef<Path>) -> Result<Session> {
        let path = path.as_ref();
        self.read(Origin::Path(path.to_owned()), || model::load(path, &self.load))
    }

    /// Loads a model from the contents of its files: `config.json`, `model.safetensors` and, for a model of transformers,
    /// `preprocessor_config.json` or `processor_config.json`.
    ///
    /// # Errors
    ///
    /// Those of [`load`](Self::load). They name the files as in a directory called `model`.
    pub fn from_bytes(
        &self,
        config: impl AsRef<[u8]>,
        weights: impl AsRef<[u8]> + Send + Sync + 'static,
        preprocessor: Option<&[u8]>,
    ) -> Result<Session> {
        let files = ModelBytes {
            name: "model",
            config: config.as_ref(),
            weights: Arc::new(weights),
            preprocessor,
        };
        self.read(Origin::Bytes, || model::from_bytes(files, &self.load))
    }

    /// Loads TinyViT32, the digit classifier that is embedded in the crate.
    ///
    /// # Errors
    ///
    /// An option that the model or the device does not support.
    pub fn tinyvit32(&self) -> Result<Session> {
        self.read(Origin::Embedded, || model::tinyvit32(&self.load))
    }

    /// A session of a model that is loaded already.
    pub fn of_model(&self, model: Model) -> Result<Session> {
        self.read(Origin::Bytes, || Ok(model))
    }

    /// The GPU that sessions with these options run on, the first one of several; `None` is the CPU.
    ///
    /// # Errors
    ///
    /// An option that is out of range or that the device does not support, or there is no such GPU.
    pub fn open_device(&self) -> Result<Option<hip::Device>> {
        Ok(match self.open()? {
            Places::Gpus(gpus) => gpus.into_iter().next(),
            Places::Cpu { .. } => None,
        })
    }
}
