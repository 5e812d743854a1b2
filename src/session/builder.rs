//! Options of a [`Session`], and the sources that it is loaded from.

mod build;
mod calibration;
mod extents;
mod processes;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::devices::{DeviceSet, Places};
use super::dtype_choice::{AutoDtype, DtypeChoice};
use super::parallelism::Parallelism;
use super::{Device, LoadSized, Origin, ResizeOn, Session};
use crate::error::Result;
use crate::exec::GraphMode;
use crate::exec::select::{AllReduceKind, SelectOptions, Sparse, Store};
use crate::graph::{self, Graph, Optimizations};
use crate::hip::{self, World};
use crate::labels::Labels;
use crate::model::{self, ImageRule, InputKind, LoadOptions, Model, ModelBytes, PixelInput};
use crate::tensor::DType;

/// Options of a [`Session`], created by [`Session::builder`].
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
    /// Devices that the caller has opened.
    gpus: Vec<hip::Device>,
    parallelism: Parallelism,
    dtype: DType,
    auto_dtype: AutoDtype,
    batch: usize,
    threads: Option<usize>,
    hip_graphs: GraphMode,
    select: SelectOptions,
    tuned: Option<Store>,
    resize: ResizeOn,
    optimizations: Optimizations,
    strict: bool,
    attention_statistics: bool,
    pub(super) load: LoadOptions,
    labels: Option<Labels>,
    rewrites: Vec<Rewrite>,
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

impl Session {
    /// Loads a model with the default options, from the model directory `path` or from the local cache of the Hugging Face hub
    /// (`Session::load("google/vit-base-patch16-224")`).
    ///
    /// # Errors
    ///
    /// The errors of [`SessionBuilder::load`].
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        Self::builder().load(path)
    }

    /// Loads a model from the contents of its files, with the default options; see [`SessionBuilder::from_bytes`].
    ///
    /// # Errors
    ///
    /// The errors of [`SessionBuilder::from_bytes`].
    pub fn from_bytes(
        config: impl AsRef<[u8]>,
        weights: impl AsRef<[u8]> + Send + Sync + 'static,
        preprocessor: Option<&[u8]>,
    ) -> Result<Self> {
        Self::builder().from_bytes(config, weights, preprocessor)
    }

    /// Loads TinyViT32, the digit classifier embedded in the crate.
    ///
    /// # Errors
    ///
    /// No error is expected, since the model is embedded.
    pub fn tinyvit32() -> Result<Self> {
        Self::builder().tinyvit32()
    }

    /// Returns a builder with the default options.
    pub fn builder() -> SessionBuilder {
        SessionBuilder::default()
    }
}

impl Default for SessionBuilder {
    fn default() -> Self {
        Self {
            devices: DeviceSet::default(),
            gpus: Vec::new(),
            parallelism: Parallelism::default(),
            dtype: DType::F32,
            auto_dtype: AutoDtype::default(),
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
            world: None,
            rendezvous_timeout: Duration::from_secs(300),
        }
    }
}

impl SessionBuilder {
    /// Sets the device. The default is [`Device::Auto`].
    pub fn device(self, device: Device) -> Self {
        self.devices(device)
    }

    /// Sets one device or several GPUs. [`parallel`](Self::parallel) says how several GPUs share the work. By default each has a replica of
    /// the model: whole batches go to a free GPU, and the results keep the order of the images.
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

    /// Sets how several GPUs share the work. The default is [`Parallelism::data`]: a replica of the model on each GPU.
    pub fn parallel(mut self, parallelism: Parallelism) -> Self {
        self.parallelism = parallelism;
        self
    }

    /// Runs the model on a GPU that is already open, of any provider.
    pub fn gpu(self, gpu: hip::Device) -> Self {
        self.gpus([gpu])
    }

    /// Runs the model on GPUs that are already open. All must have the same provider. See [`devices`](Self::devices).
    pub fn gpus(mut self, gpus: impl IntoIterator<Item = hip::Device>) -> Self {
        self.gpus = gpus.into_iter().collect();
        self
    }

    /// Sets the compute precision: [`DType::F32`] (the default), [`DType::F16`] or [`DType::BF16`]. On the CPU, activations in memory are
    /// always f32, and f16 only applies to the weights; see [`CpuExecutor::with_dtype`].
    ///
    /// With [`DtypeChoice::Auto`] each dtype is measured on the [calibration images](Self::calibrate) when the model is loaded.
    ///
    /// [`CpuExecutor::with_dtype`]: crate::exec::CpuExecutor::with_dtype
    pub fn dtype(mut self, dtype: impl Into<DtypeChoice>) -> Self {
        self.auto_dtype.is_on = false;
        match dtype.into() {
            DtypeChoice::Auto => self.auto_dtype.is_on = true,
            DtypeChoice::Fixed(dtype) => self.dtype = dtype,
        }
        self
    }

    /// Sets the image files, or directories of image files, that [`DtypeChoice::Auto`] measures dtypes on.
    pub fn calibrate(mut self, images: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        self.auto_dtype.images = images.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the maximum batch size, 8 by default. More images are run in several batches. The memory for activations is proportional to the
    /// batch size.
    pub fn batch(mut self, batch: usize) -> Self {
        self.batch = batch;
        self
    }

    /// Sets the number of threads for computation, and of the decode threads of a [pipeline](crate::pipeline). The default is the number of
    /// cores.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Selects when a GPU replays the model's steps as a captured HIP graph. The default is [`GraphMode::Auto`]. [`Session::hip_graphs`]
    /// returns the number of replays.
    pub fn hip_graphs(mut self, mode: GraphMode) -> Self {
        self.hip_graphs = mode;
        self
    }

    /// Makes an image's results bitwise equal at any batch size, under any load and on any GPU of the same model. Off by default. Each
    /// layer then uses one GEMM algorithm for all batch sizes, which is slower. No effect on the CPU.
    pub fn reproducible(mut self, reproducible: bool) -> Self {
        self.select.reproducible = reproducible;
        self
    }

    /// Sets the implementation of the all-reduce for [tensor parallelism](Parallelism::tensor). The default is [`AllReduceKind::Auto`].
    pub fn all_reduce(mut self, kind: AllReduceKind) -> Self {
        self.select.all_reduce = kind;
        self
    }

    /// Sets the maximum time that a GPU of a [tensor-parallel](Parallelism::tensor) model waits for the others, 300 s by default. After a
    /// time-out the run fails and the session cannot be used any more.
    pub fn collective_timeout(mut self, timeout: Duration) -> Self {
        self.select.collective_timeout = timeout;
        self
    }

    /// Sets which 2:4 sparse weights stay packed on a GPU that can skip their zeros. The default is [`Sparse::Auto`]. No effect on the CPU,
    /// or with tensor or pipeline parallelism.
    pub fn sparse(mut self, sparse: Sparse) -> Self {
        self.select.sparse = sparse;
        self
    }

    /// Makes NaN and infinite values in weights and results errors. Off by default. Without it, [`Session::non_finite_weights`] and
    /// [`ImageOutputs::non_finite`](crate::ImageOutputs::non_finite) report such values.
    pub fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// Sets how kernels are selected on a GPU.
    pub fn select(mut self, options: SelectOptions) -> Self {
        self.select = options;
        self
    }

    /// Replaces the measurements in the user's cache, if the model runs on one GPU.
    pub fn tuned(mut self, tuned: Store) -> Self {
        self.tuned = Some(tuned);
        self
    }

    /// Sets where [`Session::run`] and [`Pipeline`](crate::pipeline::Pipeline) resize images. The default is [`ResizeOn::Host`]. No effect
    /// if the model runs on the CPU.
    pub fn resize(mut self, resize: ResizeOn) -> Self {
        self.resize = resize;
        self
    }

    /// Disables optimisations, to measure their gain. All are enabled by default.
    pub fn optimizations(mut self, optimizations: Optimizations) -> Self {
        self.optimizations = optimizations;
        self
    }

    /// Sets the image size `[height, width]`, instead of the model's. Position embeddings are interpolated.
    pub fn image_size(mut self, size: [usize; 2]) -> Self {
        self.load.image_size = Some(size);
        self
    }

    /// Packs images into sequences of this many patches. Each image keeps its aspect ratio, and several images share a sequence. For timm's
    /// NaFlexViT, and for transformers' SigLIP 2 with NaFlex.
    ///
    /// An image is resized to at most as many patches as the model's [image size](Self::image_size) has, or to the maximum of
    /// transformers' processor. The images of a batch are packed together, so the batch should have several times the images of a
    /// sequence. Tokens, hidden layers and attention statistics are not returned.
    ///
    /// ```no_run
    /// # fn main() -> hipvit::Result<()> {
    /// use hipvit::{Pipeline, Session};
    ///
    /// let session = Session::builder().packed(1024).batch(64).load("timm/naflexvit_base_patch16_gap")?;
    /// for item in Pipeline::new(&session).run(["panorama.jpg", "portrait.jpg"])? {
    ///     println!("{:?}", item?.top(1));
    /// }
    /// # Ok(()) }
    /// ```
    pub fn packed(mut self, patches: usize) -> Self {
        self.load.packed = Some(patches);
        self
    }

    /// Sets the names of the classes, instead of the model's. Without either, a model with 1,000 classes gets ImageNet's names, and classes
    /// of other models are numbered.
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

    /// Sets how images are prepared for an ONNX model, in place of a configuration of timm or transformers beside its file.
    ///
    /// ```no_run
    /// # fn main() -> hipvit::Result<()> {
    /// use hipvit::Session;
    /// use hipvit::image::{Limits, open};
    /// use hipvit::model::ImageRule;
    ///
    /// let session = Session::builder().image_rule(ImageRule::default()).load("resnet50.onnx")?;
    /// let outputs = session.run([open("photo.jpg", Limits::default())?])?;
    /// println!("{}", outputs.image(0).top(1)[0].label);
    /// # Ok(()) }
    /// ```
    pub fn image_rule(mut self, rule: ImageRule) -> Self {
        self.load.image_rule = Some(rule);
        self
    }

    /// Adds a rewrite of the model's graph, which runs before the passes of [`optimize`](crate::graph::optimize()).
    ///
    /// Together with [`rewrite`](crate::graph::rewrite()) and a [custom op](crate::custom), this adds your own fusion. See
    /// `examples/custom_op.rs`. Rewrites run in the order in which they were added.
    pub fn rewrite(
        mut self,
        rewrite: impl Fn(&Graph) -> graph::Result<Graph> + Send + Sync + 'static,
    ) -> Self {
        self.rewrites.push(Rewrite(Arc::new(rewrite)));
        self
    }

    /// Sets the maximum number of floating-point operations per image, 10¹³ by default. A model that needs more, such as one with a wrong
    /// image size, is an error. The cost of attention grows with the fourth power of the image's side.
    pub fn max_flops(mut self, flops: u64) -> Self {
        self.load.max_flops = Some(flops);
        self
    }

    /// Returns what loads the model at `path` with these options, for images of any size.
    pub(crate) fn load_sized(&self, path: &Path) -> Arc<LoadSized> {
        let (builder, path) = (self.clone(), path.to_owned());
        Arc::new(move |size: [usize; 2], input: Option<&PixelInput>| match input {
            None => builder.clone().image_size(size).load(&path),
            Some(input) => {
                let shape = input.shape(1, size);
                builder.load_for(&path, [(input.name.as_str(), &shape[..])])
            }
        })
    }

    pub(crate) fn load_options(&self) -> &LoadOptions {
        &self.load
    }

    /// Sets the model's input: RGB bytes (the default), pixel values that the caller has normalised, or the tensors of an ONNX file.
    pub fn input(mut self, input: InputKind) -> Self {
        self.load.input = input;
        self
    }

    /// Makes runs return the tokens after the final norm, see [`Outputs::tokens`](crate::Outputs::tokens). Off by default. If off and the
    /// head reads only the class token, the last block computes only that token.
    pub fn tokens(mut self, tokens: bool) -> Self {
        self.load.tokens = tokens;
        self
    }

    /// Makes runs return the results of these blocks, counted from 0. See [`Outputs::hidden_layer`](crate::Outputs::hidden_layer). None by
    /// default.
    pub fn hidden_layers(mut self, blocks: impl IntoIterator<Item = usize>) -> Self {
        self.load.hidden_layers = blocks.into_iter().collect();
        self
    }

    /// Makes runs return the softmax statistics of each attention layer, see
    /// [`Outputs::attention_statistics`](crate::Outputs::attention_statistics). Off by default. The fused attention kernel of a GPU
    /// computes them without storing scores. The last block then computes all tokens, even if the head reads only one. Not supported with
    /// tensor or pipeline parallelism, or on a GPU with heads of more than 128 channels.
    pub fn attention_statistics(mut self, attention_statistics: bool) -> Self {
        self.attention_statistics = attention_statistics;
        self
    }

    /// Loads a model directory, as timm or Hugging Face transformers write it, a model of the Hugging Face hub, or an `.onnx` file.
    ///
    /// An ONNX model takes images if it has one input of RGB images, and its preprocessing is in a configuration of timm or transformers
    /// beside the file, or in an [`image_rule`](Self::image_rule). Any ONNX model takes [tensors](Session::run_tensors).
    ///
    /// A name on the hub is `org/name` or `org/name@revision`, optionally with timm's prefix `hf-hub:`. It is looked up in the hub's local
    /// cache if no file or directory has that path. `HF_HUB_CACHE`, `HUGGINGFACE_HUB_CACHE`, `HF_HOME` or `XDG_CACHE_HOME` locate the
    /// cache; the default is `~/.cache/huggingface/hub`. The name of an architecture, such as `timm/vit_base_patch16_224`, selects timm's
    /// default weights. Nothing is downloaded: the error has the command for the download.
    ///
    /// # Errors
    ///
    /// - [`Error::Hub`](crate::Error::Hub) if the cache lacks the model or some of its files.
    /// - The first problem with the directory, its configuration or its tensors.
    /// - An option that the model or the device does not support.
    pub fn load(&self, path: impl AsRef<Path>) -> Result<Session> {
        let path = path.as_ref();
        self.read(Origin::Path(path.to_owned()), || model::load(path, &self.load))
    }

    /// Loads a model from the contents of its files: `config.json`, `model.safetensors` and, for a model of transformers,
    /// `preprocessor_config.json` or `processor_config.json`.
    ///
    /// # Errors
    ///
    /// The errors of [`load`](Self::load). They name the files as in a directory called `model`.
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

    /// Loads TinyViT32, the digit classifier embedded in the crate.
    ///
    /// # Errors
    ///
    /// An option that the model or the device does not support.
    pub fn tinyvit32(&self) -> Result<Session> {
        self.read(Origin::Embedded, || model::tinyvit32(&self.load))
    }

    /// Creates a session of a model that is already loaded.
    pub fn of_model(&self, model: Model) -> Result<Session> {
        self.read(Origin::Bytes, || Ok(model))
    }

    /// Opens the GPU of sessions with these options, the first of several. `None` for the CPU.
    ///
    /// # Errors
    ///
    /// An option is out of range or not supported by the device, or the GPU does not exist.
    pub fn open_device(&self) -> Result<Option<hip::Device>> {
        Ok(match self.open()? {
            Places::Gpus(gpus) => gpus.into_iter().next(),
            Places::Cpu { .. } => None,
        })
    }
}
