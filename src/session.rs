//! A loaded model that is ready to run: [`Session::load`], [`Session::run`]. A session owns an [executor](crate::exec::Executor) of the
//! optimised graph. A [pipeline](crate::pipeline) feeds it with files.

mod builder;
mod device;
mod devices;
mod dtype_choice;
mod gpu_outputs;
mod onnx_file;
mod packed;
mod packed_run;
mod parallelism;
mod pinned;
mod run;
mod tensors;
#[cfg(feature = "text")]
mod text;
#[cfg(feature = "text")]
mod text_runner;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use self::builder::SessionBuilder;
pub use self::device::Place;
pub use self::device::{Device, ResizeOn};
pub use self::devices::DeviceSet;
pub use self::dtype_choice::{DtypeChoice, MIN_COSINE, MeasuredDtype};
pub use self::gpu_outputs::{GpuOutputs, GpuTensor};
use self::onnx_file::OnnxFile;
pub use self::parallelism::{Degrees, Parallelism};
pub use self::pinned::PinnedInput;
pub use self::run::Submitted;
pub use self::run::{RunInput, RunOptions};
#[cfg(feature = "text")]
pub use self::text::TextEmbeddings;
#[cfg(feature = "text")]
pub use self::text::TextEncoder;
use crate::error::{Error, Result};
use crate::exec::select::SelectOptions;
use crate::exec::{Executor, GraphMode, HostThreads, Replays};
use crate::graph::Graph;
use crate::graph::plan::Plan;
use crate::hip::{self, World};
use crate::image::Preprocess;
use crate::labels::Labels;
use crate::model::{self, Family, Info, InputKind, LoadOptions, Model, Packing, PixelInput, TextTower};
use crate::non_finite::NonFinite;
use crate::outputs::Scores;
use crate::tensor::DType;

/// A loaded model. Cheap to clone: clones share the model. Any number of threads can run it at once, on all
/// [replicas](SessionBuilder::devices) of the model.
///
/// ```
/// # fn main() -> hipvit::Result<()> {
/// use hipvit::Session;
/// use hipvit::image::{Limits, open};
///
/// let session = Session::tinyvit32()?;
/// let outputs = session.run([open("assets/samples/7.png", Limits::default())?])?;
/// assert_eq!(outputs.image(0).top(1)[0].label, "seven");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Session {
    loaded: Arc<Loaded>,
}

/// State that the clones of a session share.
struct Loaded {
    model: LoadedModel,
    executor: Arc<dyn Executor>,
    /// Images submitted so far.
    images: AtomicU64,
    degrees: Degrees,
    batch: usize,
    dtype: DType,
    /// Set if the dtype was chosen by measurement.
    measured_dtypes: Vec<MeasuredDtype>,
    no_gpu: Option<Error>,
    strict: bool,
    select: SelectOptions,
    non_finite: Vec<NonFinite>,
    world: Option<World>,
    /// Loads the model again for images of another size, if it came from a path.
    load_sized: Option<Arc<LoadSized>>,
    /// Set if the model is an ONNX file.
    onnx: Option<OnnxFile<Session>>,
    #[cfg(feature = "text")]
    texts: text_runner::KeptTexts,
}

/// Loads a model for images of a height and a width. The input is set for an ONNX file.
pub(crate) type LoadSized = dyn Fn([usize; 2], Option<&PixelInput>) -> Result<Session> + Send + Sync;

/// The model of a session without its graph.
struct LoadedModel {
    name: String,
    origin: Origin,
    load: LoadOptions,
    info: Info,
    preprocess: Preprocess,
    labels: Labels,
    scores: Scores,
    #[cfg_attr(
        not(feature = "text"),
        expect(dead_code, reason = "the text encoder is made from it")
    )]
    text: Option<TextTower>,
    /// Set if images are packed.
    packing: Option<Arc<Packing>>,
}

/// Source of a session's model.
#[derive(Clone)]
enum Origin {
    /// A directory, a file, or a name on the Hugging Face hub.
    Path(PathBuf),
    /// The embedded model.
    Embedded,
    /// The contents of files, which the session does not keep.
    Bytes,
}

impl Session {
    fn new(loaded: Loaded) -> Self {
        Self {
            loaded: Arc::new(loaded),
        }
    }

    /// Returns the model's name: its name on the hub, or the name of its directory.
    pub fn name(&self) -> &str {
        &self.loaded.model.name
    }

    /// Loads the model again with another kind of input. Returns it with its weights, before all passes.
    pub fn reload(&self, input: InputKind) -> Result<Model> {
        let options = LoadOptions {
            input,
            ..self.loaded.model.load.clone()
        };
        match &self.loaded.model.origin {
            Origin::Path(path) => model::load(path, &options),
            Origin::Embedded => model::tinyvit32(&options),
            Origin::Bytes => {
                let reason = "was loaded from bytes, which it does not keep: load the model from its files";
                Err(Error::argument("session", reason))
            }
        }
    }

    /// Returns the path of the model, the options of its load, and what loads it for images of another size. `None` for a model from memory.
    pub(crate) fn reloading(&self) -> Option<(&Path, &LoadOptions, &Arc<LoadSized>)> {
        let model = &self.loaded.model;
        match &model.origin {
            Origin::Path(path) => Some((path, &model.load, self.loaded.load_sized.as_ref()?)),
            Origin::Embedded | Origin::Bytes => None,
        }
    }

    /// Returns the model's family, sizes and parameters.
    pub fn info(&self) -> &Info {
        &self.loaded.model.info
    }

    /// Checks that the session runs images, and not only tensors by name.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for an ONNX model without preprocessing, which says what is missing, and for a model that estimates
    /// [depth](crate::depth) or [segments](crate::segment).
    pub fn check_takes_images(&self) -> Result<()> {
        if self.info().depth_map.is_some() {
            let reason = format!(
                "{} estimates depth, and gives neither logits nor an embedding: use `hipvit depth` or DepthEstimator",
                self.name()
            );
            return Err(Error::argument("images", reason));
        }
        if self.info().family == Family::Sam {
            let reason = format!(
                "{} segments images, and gives neither logits nor an embedding: use `hipvit segment` or Segmenter",
                self.name()
            );
            return Err(Error::argument("images", reason));
        }
        if self.info().family == Family::RtDetr {
            let reason = format!(
                "{} detects objects, and gives neither one row of logits nor an embedding: use `hipvit detect` or Detector",
                self.name()
            );
            return Err(Error::argument("images", reason));
        }
        match self.info().tensors().and_then(|onnx| onnx.no_images.as_ref()) {
            None => Ok(()),
            Some(reason) => {
                let reason = format!("{} takes tensors by name, not images: {reason}", self.name());
                Err(Error::argument("images", reason))
            }
        }
    }

    fn onnx(&self) -> Option<&OnnxFile<Self>> {
        self.loaded.onnx.as_ref()
    }

    /// Returns the rule that converts an image to the model's input.
    pub fn preprocess(&self) -> &Preprocess {
        &self.loaded.model.preprocess
    }

    /// Returns the names of the classes. Empty if the model has no classification head.
    pub fn labels(&self) -> &Labels {
        &self.loaded.model.labels
    }

    /// Returns the function that converts logits to probabilities.
    pub fn scores(&self) -> Scores {
        self.loaded.model.scores
    }

    /// Returns the device in use, the first of several. Never [`Device::Auto`].
    pub fn device(&self) -> Device {
        let gpu = self.loaded.executor.gpu();
        gpu.map_or(Device::Cpu, |gpu| Device::Hip(gpu.ordinal()))
    }

    /// Returns the devices in use, starting with [`device`](Self::device).
    pub fn devices(&self) -> DeviceSet {
        let gpus = self.loaded.executor.info().devices.iter();
        // Without a GPU this is the CPU. The builder has rejected duplicates.
        DeviceSet::gpus(gpus.map(hip::Device::ordinal)).unwrap_or_else(|_| self.device().into())
    }

    /// Returns the number of images submitted to each replica so far.
    pub fn images_by_replica(&self) -> Vec<u64> {
        let images = self.loaded.executor.statistics().images;
        if images.is_empty() {
            vec![self.loaded.images.load(Ordering::Relaxed)]
        } else {
            images
        }
    }

    /// Returns the number of replicas of the model.
    pub(crate) fn replicas(&self) -> usize {
        self.executors().len()
    }

    /// Returns the number of batches in flight that keeps all devices busy while one more is copied to each replica.
    pub fn batches_in_flight(&self) -> usize {
        self.loaded.executor.info().in_flight
    }

    /// Returns how the devices share the work.
    pub fn degrees(&self) -> Degrees {
        self.loaded.degrees
    }

    /// Returns the processes that share the model, if it is [divided among several](SessionBuilder::world).
    pub fn world(&self) -> Option<&World> {
        self.loaded.world.as_ref()
    }

    /// Takes part in the runs of rank 0 until rank 0 drops its session. Call it in all other processes of a model that is [divided among
    /// several](SessionBuilder::world). Only rank 0 gets results.
    ///
    /// # Errors
    ///
    /// - [`Error::Rank`] if a rank has failed, or if rank 0's process has ended without dropping its session.
    /// - [`Error::Argument`] at rank 0, and for a session of one process.
    pub fn follow(&self) -> Result<()> {
        self.loaded.executor.follow()
    }

    /// Returns why [`Device::Auto`] selected the CPU. `None` for any other device, or if there is a GPU.
    pub fn no_gpu(&self) -> Option<&Error> {
        self.loaded.no_gpu.as_ref()
    }

    /// Returns the weights with NaN or infinite values. They usually mean a damaged file or a diverged training. Always empty for a
    /// [strict](SessionBuilder::strict) session, which fails to load such weights.
    ///
    /// Loading checks all weights. On the CPU, prepacking checks them while they are in the cache, which takes about 5 % of the time.
    /// ViT-B/16 loads in 87 ms instead of 83, ViT-L/16 in 332 ms instead of 328 (medians; files in the page cache, two cores of a shared
    /// Xeon).
    pub fn non_finite_weights(&self) -> &[NonFinite] {
        &self.loaded.non_finite
    }

    /// Returns true if NaN and infinite results are errors.
    pub fn is_strict(&self) -> bool {
        self.loaded.strict
    }

    /// Returns where images are resized.
    pub fn resize(&self) -> ResizeOn {
        if self.loaded.executor.info().resizes {
            ResizeOn::Device
        } else {
            ResizeOn::Host
        }
    }

    /// Returns the compute precision.
    pub fn dtype(&self) -> DType {
        self.loaded.dtype
    }

    /// Returns the dtypes that [`DtypeChoice::Auto`] has measured. Empty if the dtype was named.
    pub fn measured_dtypes(&self) -> &[MeasuredDtype] {
        &self.loaded.measured_dtypes
    }

    fn set_measured_dtypes(&mut self, measured: Vec<MeasuredDtype>) {
        // A new session has no clones.
        if let Some(loaded) = Arc::get_mut(&mut self.loaded) {
            loaded.measured_dtypes = measured;
        }
    }

    /// Returns how kernels are selected.
    pub fn select_options(&self) -> SelectOptions {
        self.loaded.select
    }

    /// Returns the maximum batch size.
    pub fn batch(&self) -> usize {
        self.loaded.batch
    }

    /// Returns the number of threads for computation.
    pub fn threads(&self) -> usize {
        let mut pools: Vec<&HostThreads> = Vec::new();
        for executor in self.executors() {
            let host = &executor.info().host;
            if !pools.iter().any(|known| known.is_same(host)) {
                pools.push(host);
            }
        }
        pools.iter().map(|host| host.count()).sum()
    }

    /// Returns the number of decode threads of a pipeline.
    pub(crate) fn decode_threads(&self) -> usize {
        self.loaded.executor.info().host.decode_count()
    }

    /// Returns how many runs on a GPU replayed a captured HIP graph, and why the others did not. `None` on the CPU.
    pub fn hip_graphs(&self) -> Option<Replays> {
        self.loaded.executor.statistics().replays
    }

    /// Returns the executor of the first replica, for measurements that runs do not offer.
    pub fn executor(&self) -> &Arc<dyn Executor> {
        &self.executors()[0]
    }

    /// Returns the executors of all replicas.
    pub fn executors(&self) -> &[Arc<dyn Executor>] {
        match self.loaded.executor.replicas() {
            [] => std::slice::from_ref(&self.loaded.executor),
            replicas => replicas,
        }
    }

    /// Sets when a GPU replays captured graphs.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the session has clones.
    pub fn set_hip_graphs(&mut self, mode: GraphMode) -> Result<()> {
        if Arc::get_mut(&mut self.loaded).is_none() {
            return Err(Error::argument("session", "is shared"));
        }
        for executor in self.executors() {
            executor.info().graphs.set(mode);
        }
        Ok(())
    }

    /// Returns the graph after all passes. Its constants have names but no values, since the executor holds those.
    pub fn graph(&self) -> &Arc<Graph> {
        &self.loaded.executor.info().graph
    }

    /// Returns the plan for `batch` images. Plans are made on first use.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for a batch of 0, or one so large that a buffer cannot be addressed.
    pub fn plan(&self, batch: usize) -> Result<Arc<Plan>> {
        self.loaded.executor.plan(batch)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("model", &self.name())
            .field("devices", &self.devices().to_string())
            .field("dtype", &self.dtype())
            .field("batch", &self.batch())
            .finish_non_exhaustive()
    }
}
