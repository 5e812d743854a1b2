//! What a row measures.

use std::path::PathBuf;
use std::time::Duration;

use super::Rung;
use hipvit::exec::GraphMode;
use hipvit::exec::select::{AllReduceKind, Sparse};
use hipvit::graph::Optimizations;
use hipvit::hip::World;
use hipvit::session::{Device, DeviceSet, Parallelism, Session, SessionBuilder};
use hipvit::tensor::DType;

/// What a row measures.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// The model's directory; `None` is the embedded TinyViT32.
    pub model: Option<PathBuf>,
    /// Images per run.
    pub batch: usize,
    /// Compute precision.
    pub dtype: DType,
    /// Where it runs; the first GPU of a set.
    pub device: Device,
    /// The ordinals of all GPUs of a set; empty for one device.
    pub gpus: Vec<usize>,
    /// The processes that divide the model, each with such a device, where rank 0 measures: see [`SessionBuilder::world`].
    pub world: Option<World>,
    /// See [`SessionBuilder::rendezvous_timeout`], whose default is that of this.
    pub meeting_timeout: Option<Duration>,
    /// How a set shares the work.
    pub parallelism: Parallelism,
    /// See [`SessionBuilder::threads`].
    pub threads: Option<usize>,
    /// The image size, if not the model's own.
    pub image_size: Option<[usize; 2]>,
    /// Whether captured graphs are replayed.
    pub hip_graphs: GraphMode,
    /// See [`SessionBuilder::reproducible`].
    pub reproducible: bool,
    /// See [`SessionBuilder::all_reduce`].
    pub all_reduce: AllReduceKind,
    /// See [`SessionBuilder::sparse`].
    pub sparse: Sparse,
    /// Threads that call the session at once, for each of its replicas.
    pub in_flight: usize,
    /// What is left out.
    pub optimizations: Optimizations,
    /// The rung, if it is one of a ladder.
    pub rung: Option<Rung>,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            model: None,
            batch: 8,
            dtype: DType::F32,
            device: Device::Auto,
            gpus: Vec::new(),
            world: None,
            meeting_timeout: None,
            parallelism: Parallelism::default(),
            threads: None,
            image_size: None,
            hip_graphs: GraphMode::Auto,
            reproducible: false,
            all_reduce: AllReduceKind::default(),
            sparse: Sparse::default(),
            in_flight: 1,
            optimizations: Optimizations::default(),
            rung: None,
        }
    }
}

impl Spec {
    /// Returns the devices.
    pub fn devices(&self) -> DeviceSet {
        let gpus = DeviceSet::gpus(self.gpus.iter().copied());
        gpus.unwrap_or_else(|_| self.device.into())
    }

    /// Returns the number of devices.
    pub(super) fn device_count(&self) -> usize {
        let processes = self.world.as_ref().map_or(1, World::size);
        processes * self.gpus.len().max(1)
    }

    pub(super) fn builder(&self) -> SessionBuilder {
        let mut builder = Session::builder()
            .devices(self.devices())
            .parallel(self.parallelism)
            .dtype(self.dtype)
            .hip_graphs(self.hip_graphs)
            .reproducible(self.reproducible)
            .all_reduce(self.all_reduce)
            .sparse(self.sparse)
            .optimizations(self.optimizations);
        if let Some(world) = &self.world {
            builder = builder.world(world.clone());
        }
        if let Some(timeout) = self.meeting_timeout {
            builder = builder.rendezvous_timeout(timeout);
        }
        if let Some(threads) = self.threads {
            builder = builder.threads(threads);
        }
        if let Some(size) = self.image_size {
            builder = builder.image_size(size);
        }
        builder
    }

    /// Returns true if one session serves both rows. A session has a plan for each batch size.
    pub(super) fn shares_session(&self, other: &Self) -> bool {
        let of = |spec: &Self| Self {
            batch: 0,
            in_flight: 0,
            rung: None,
            ..spec.clone()
        };
        of(self) == of(other)
    }

    /// Returns the name of the model before it is loaded.
    pub(super) fn model_name(&self) -> String {
        let name = self.model.as_ref().and_then(|path| path.file_name());
        name.map_or_else(|| "tinyvit32".into(), |name| name.to_string_lossy().into_owned())
    }

    /// Returns a label of the row for progress and errors.
    pub fn label(&self) -> String {
        let rung = self
            .rung
            .map(|rung| format!(", {}", rung.name()))
            .unwrap_or_default();
        let (model, batch) = (self.model_name(), self.batch);
        let processes = self
            .world
            .as_ref()
            .map(|world| format!(" in {} processes", world.size()));
        format!(
            "{model}, batch {batch}, {} on {}{}{rung}",
            self.dtype,
            self.devices(),
            processes.unwrap_or_default()
        )
    }
}
