//! Loading with a builder's options: opens devices, runs passes, creates executors and checks the weights.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use super::SessionBuilder;
use super::calibration::Calibration;
use crate::error::{Error, Result};
use crate::exec::select::SelectOptions;
use crate::exec::{DTYPES, Executor, ExecutorOptions, HipExecutor, Placement, Processes};
use crate::graph::{self, Float8, Graph, Passes};
use crate::model::{Family, Model};
use crate::non_finite::NonFinite;
use crate::session::devices::{DeviceSet, Places};
use crate::session::dtype_choice::AutoDtype;
use crate::session::onnx_file::OnnxFile;
use crate::session::parallelism::Degrees;
#[cfg(feature = "text")]
use crate::session::text_runner::KeptTexts;
use crate::session::{Device, Loaded, LoadedModel, Origin, ResizeOn, Session};
use crate::tensor::{DType, Tensor};
use crate::timeline::{self, Activity};

/// Maximum number of threads. Larger than the number of cores of any machine; waking more threads would take longer than a run.
const MAX_THREADS: usize = 1024;

impl SessionBuilder {
    /// Opens the devices and checks the options against them.
    pub(super) fn open(&self) -> Result<Places> {
        timeline::open_markers()?;
        let _span = timeline::span(Activity::OpenDevice);
        if self.batch == 0 || self.threads == Some(0) {
            return Err(Error::argument("batch and threads", "must be at least 1"));
        }
        let device = match (self.gpus.is_empty(), self.processes()) {
            (false, _) => Places::Gpus(self.gpus.clone()),
            (true, Some(world)) if self.devices == DeviceSet::default() => {
                DeviceSet::from(Device::of_process(world)?).open()?
            }
            (true, _) => self.devices.open()?,
        };
        self.degrees(&device)?;
        self.auto_dtype.check()?;
        if self.auto_dtype.is_on && self.processes().is_some() {
            let reason = "auto is measured, so that processes could choose differently: name a dtype";
            return Err(Error::argument("dtype", reason));
        }
        if let Places::Cpu { no_gpu } = &device {
            // If `Device::Auto` found no GPU and an option needs one, say why there is none.
            let why = no_gpu
                .as_ref()
                .map(|reason| format!("; {reason}"))
                .unwrap_or_default();
            if !DTYPES.contains(&self.dtype) {
                let reason = format!("the CPU computes in f32, f16 or bf16, not in {}{why}", self.dtype);
                return Err(Error::argument("dtype", reason));
            }
            if self.resize == ResizeOn::Device {
                let reason =
                    "there is no GPU to resize on: the model runs on the CPU, which resizes on the host";
                return Err(Error::argument("resize", format!("{reason}{why}")));
            }
        }
        if let Some(threads) = self.threads.filter(|&threads| threads > MAX_THREADS) {
            let reason = format!("{threads} is more than the maximum of {MAX_THREADS}");
            return Err(Error::argument("threads", reason));
        }
        Ok(device)
    }

    /// Returns how the devices share the work.
    pub(super) fn degrees(&self, devices: &Places) -> Result<Degrees> {
        let gpus = match devices {
            Places::Cpu { .. } => &[],
            Places::Gpus(gpus) => gpus.as_slice(),
        };
        for (index, gpu) in gpus.iter().enumerate() {
            if gpus[..index].contains(gpu) {
                return Err(Error::argument(
                    "devices",
                    format!("{} is named twice", gpu.name()),
                ));
            }
        }
        let degrees = match self.processes() {
            None => self.parallelism.degrees(gpus.len().max(1))?,
            Some(world) => self.degrees_across(world, gpus)?,
        };
        if self.attention_statistics && degrees.shards() > 1 {
            let reason = "statistics of attention are computed by a GPU that has the whole model: use data parallelism";
            return Err(Error::argument("parallel", reason));
        }
        if degrees.tensor > 1 && self.resize == ResizeOn::Device {
            let reason = "with tensor parallelism images are resized on the host";
            return Err(Error::argument("resize", reason));
        }
        Ok(degrees)
    }

    /// Checks the options of a session that packs images.
    fn check_packed(&self, degrees: &Degrees) -> Result<()> {
        let reason = if degrees.shards() > 1 || self.processes().is_some() {
            "each GPU must have the whole model: use data parallelism"
        } else if self.attention_statistics {
            "statistics of attention are not returned for packed images"
        } else if self.select.reproducible {
            "an image's last bits depend on its place in a sequence: results are not reproducible"
        } else if self.resize == ResizeOn::Device {
            "images are resized on the host"
        } else {
            return Ok(());
        };
        Err(Error::argument("packed", reason))
    }

    /// Checks the options of a session of an ONNX model.
    fn check_onnx(&self, degrees: &Degrees) -> Result<()> {
        if degrees.shards() > 1 || self.processes().is_some() {
            let reason = "each GPU must have the whole model, since it is an ONNX file: use data parallelism";
            return Err(Error::argument("parallel", reason));
        }
        if self.attention_statistics {
            let reason = "are not returned for ONNX models";
            return Err(Error::argument("attention statistics", reason));
        }
        Ok(())
    }

    /// Returns the passes over the graph of a model with these options.
    pub fn passes(&self) -> Passes {
        Passes {
            // Weights with the normalisation folded in are too inaccurate in 16 bits.
            fold_normalize: self.dtype == DType::F32,
            whole_vectors: self.dtype.size() == 2,
            attention_statistics: self.attention_statistics,
            optimizations: self.optimizations,
            ..Passes::default()
        }
    }

    /// Returns which layers multiply in FP8. For divided layers, each GPU's part of all layers must have a shape that FP8 GEMMs support.
    pub(super) fn float8(&self, graph: &Graph, devices: &Places, degrees: &Degrees) -> Float8 {
        let gpus = match devices {
            Places::Gpus(gpus) if graph.has_float8() => gpus,
            _ => return Float8::Rounded,
        };
        let stored = |gpu| HipExecutor::float8(gpu, self.dtype) == Float8::Stored;
        if gpus.iter().all(stored) && graph.divides_float8(degrees.tensor) {
            Float8::Stored
        } else {
            Float8::Weights
        }
    }

    /// Builds sessions in all dtypes, and returns the fastest one whose outputs are accurate.
    pub(super) fn build_fastest(&self, model: &Model, origin: &Origin) -> Result<Session> {
        let build = |dtype| {
            let builder = Self {
                dtype,
                auto_dtype: AutoDtype::default(),
                ..self.clone()
            };
            builder.build(model.clone(), origin.clone(), builder.open()?, None)
        };
        let mut best = build(DType::F32)?;
        let calibration = Calibration::new(&self.auto_dtype.images, &best)?;
        let mut measured = vec![calibration.measure(&best)?];
        let mut shortest = measured[0].time;
        for dtype in [DType::F16, DType::BF16] {
            // A dtype that the model or the device does not support is no candidate.
            let Ok(session) = build(dtype) else { continue };
            let Ok(found) = calibration.measure(&session) else {
                continue;
            };
            measured.push(found);
            if found.is_accurate() && found.time < shortest {
                (best, shortest) = (session, found.time);
            }
        }
        best.set_measured_dtypes(measured);
        Ok(best)
    }

    pub(super) fn build(
        &self,
        model: Model,
        origin: Origin,
        device: Places,
        processes: Option<Processes>,
    ) -> Result<Session> {
        let Model {
            name,
            mut graph,
            preprocess,
            mut labels,
            scores,
            info,
            text,
            packing,
        } = model;
        if let Some(given) = &self.labels {
            given.check(info.classes)?;
            labels = given.clone();
        }
        let degrees = self.degrees(&device)?;
        if self.attention_statistics && info.merged_grid.is_some() {
            let reason = format!(
                "{name} attends inside of windows, whose statistics are not supported. Load it without them"
            );
            return Err(Error::argument("attention statistics", reason));
        }
        if packing.is_some() {
            self.check_packed(&degrees)?;
        }
        if info.onnx.is_some() {
            self.check_onnx(&degrees)?;
        }
        if info.depth_map.is_some() && (degrees.shards() > 1 || self.processes().is_some()) {
            let reason = "each GPU must have the whole model, since it estimates depth: use data parallelism";
            return Err(Error::argument("parallel", reason));
        }
        if info.family == Family::Sam && (degrees.shards() > 1 || self.processes().is_some()) {
            let reason = "each GPU must have the whole model, since it segments images: use data parallelism";
            return Err(Error::argument("parallel", reason));
        }
        if info.family == Family::RtDetr && (degrees.shards() > 1 || self.processes().is_some()) {
            let reason = "each GPU must have the whole model, since it detects objects: use data parallelism";
            return Err(Error::argument("parallel", reason));
        }
        // A model whose file fixes the batch takes no other.
        let batch = if graph.inputs().any(|input| input.per_image) {
            self.batch
        } else {
            1
        };
        let weights = weights(&graph);
        for rewrite in &self.rewrites {
            graph = (rewrite.0)(&graph)?;
        }
        let passes = Passes {
            float8: self.float8(&graph, &device, &degrees),
            // Other models have one graph for GPUs and the CPU.
            rounded_rows: matches!(device, Places::Gpus(_)) && graph.rounds_rows(),
            ..self.passes()
        };
        let optimizing = timeline::span(Activity::Optimize);
        let (graph, _) = graph::optimize(graph, &passes)?;
        drop(optimizing);
        let select = SelectOptions {
            epilogues: self.select.epilogues && self.optimizations.epilogues,
            measured: self.select.measured && self.optimizations.selection,
            ..self.select
        };
        let (placement, no_gpu) = match (device, processes) {
            (Places::Cpu { no_gpu }, _) => (Placement::Host, no_gpu),
            (Places::Gpus(gpus), Some(processes)) => match gpus.into_iter().next() {
                Some(gpu) => (Placement::Rank { gpu, processes }, None),
                None => return Err(Error::internal("devices", "no GPU is named")),
            },
            (Places::Gpus(gpus), None) => {
                let Degrees {
                    data: replicas,
                    pipeline: stages,
                    tensor: ranks,
                } = degrees;
                let placement = Placement::Gpus {
                    gpus,
                    replicas,
                    stages,
                    ranks,
                };
                (placement, None)
            }
        };
        let options = ExecutorOptions {
            dtype: self.dtype,
            threads: self.threads,
            graphs: self.hip_graphs,
            select,
            // Measurements apply to one GPU only.
            tuned: self.tuned.clone().filter(|_| placement.is_one_gpu()),
            resize: (self.resize == ResizeOn::Device).then(|| preprocess.clone()),
            collectives: None,
        };
        let executor = placement.executor(&graph, &options)?;
        let finite = finite_weights(&graph, &*executor);
        let checking =
            timeline::named_span(Activity::Weights, || "weights: check for NaN and infinity".into());
        let non_finite = executor.info().host.install(|| non_finite(&weights, &finite));
        drop(checking);
        drop(weights);
        if let Some(first) = non_finite.first().filter(|_| self.strict) {
            let path = match &origin {
                Origin::Path(path) => path,
                Origin::Embedded => Path::new("tinyvit32"),
                Origin::Bytes => Path::new("model"),
            };
            return Err(Error::tensor(path, &first.name, first.reason()));
        }
        let onnx = match &origin {
            Origin::Path(path) if info.onnx.is_some() => {
                let builder = self.clone();
                let load = move |path: &Path, extents: &_| builder.for_extents(extents).load(path);
                Some(OnnxFile::new(path, &self.load.extents, load))
            }
            _ => None,
        };
        let load_sized = match &origin {
            Origin::Path(path) => Some(self.load_sized(path)),
            Origin::Embedded | Origin::Bytes => None,
        };
        Ok(Session::new(Loaded {
            load_sized,
            onnx,
            model: LoadedModel {
                name,
                origin,
                load: self.load.clone(),
                info,
                preprocess,
                labels,
                scores,
                text,
                packing,
            },
            executor,
            images: AtomicU64::new(0),
            degrees,
            batch,
            dtype: self.dtype,
            measured_dtypes: Vec::new(),
            no_gpu,
            strict: self.strict,
            select: self.select,
            non_finite,
            world: self.processes().cloned(),
            #[cfg(feature = "text")]
            texts: KeptTexts::default(),
        }))
    }
}

/// Returns the constants of a model by name, before the passes change them.
fn weights(graph: &Graph) -> Vec<(String, Tensor)> {
    let constant = |value: &graph::Value| Some((value.name.clone(), value.constant.clone()?));
    graph.values().iter().filter_map(constant).collect()
}

/// Returns the addresses and sizes in bytes of weights that the CPU executor found to be finite when it prepacked them.
fn finite_weights(graph: &Graph, executor: &dyn Executor) -> HashSet<(usize, usize)> {
    let Some(host) = executor.host() else {
        return HashSet::new();
    };
    let ids = host.cpu().finite_weights();
    let tensors = ids.filter_map(|id| graph.value(id).constant.as_ref());
    // Row factors cannot make a non-finite number finite.
    tensors
        .flat_map(Tensor::stored_parts)
        .map(|tensor| (tensor.address(), tensor.size_in_bytes()))
        .collect()
}

/// Returns the weights with NaN or infinite values. Skips the weights in `finite`.
fn non_finite(weights: &[(String, Tensor)], finite: &HashSet<(usize, usize)>) -> Vec<NonFinite> {
    let unknown =
        |(_, tensor): &&(String, Tensor)| !finite.contains(&(tensor.address(), tensor.size_in_bytes()));
    let check =
        |(name, tensor): &(String, Tensor)| NonFinite::new(name, tensor.count_non_finite(), tensor.len());
    weights.iter().filter(unknown).filter_map(check).collect()
}
