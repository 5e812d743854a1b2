//! Specifications of measurements.

use std::path::PathBuf;
use std::time::Duration;

use super::rung::Rung;
use hipvit::graph::Optimizations;
use hipvit::hip::World;
use hipvit::run_config::{ExecutionConfig, RunConfig};
use hipvit::session::{Device, DeviceSet, SessionBuilder};
use hipvit::tensor::DType;

/// Specification of a row: what it measures.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Directory of the model. `None` for the embedded TinyViT32.
    pub model: Option<PathBuf>,
    /// Number of images per run.
    pub batch: usize,
    /// Compute precision.
    pub dtype: DType,
    /// The device, or the first GPU of a set.
    pub device: Device,
    /// Ordinals of all GPUs of a set. Empty for one device.
    pub gpus: Vec<usize>,
    /// Processes that divide the model, each with such a device. Rank 0 measures. See [`SessionBuilder::world`].
    pub world: Option<World>,
    /// Maximum time that the processes wait for each other; see [`SessionBuilder::rendezvous_timeout`].
    pub meeting_timeout: Option<Duration>,
    /// Configuration of the run.
    pub execution: ExecutionConfig,
    /// Number of threads that call the session concurrently, per replica.
    pub in_flight: usize,
    /// Enabled optimisations.
    pub optimizations: Optimizations,
    /// Rung of the ladder. `None` for other rows.
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
            execution: ExecutionConfig::default(),
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
        let config = RunConfig {
            device: Some(self.devices().into()),
            dtype: self.dtype.into(),
            execution: self.execution.clone(),
            ..RunConfig::default()
        };
        let mut builder = config.builder().optimizations(self.optimizations);
        if let Some(world) = &self.world {
            builder = builder.world(world.clone());
        }
        if let Some(timeout) = self.meeting_timeout {
            builder = builder.rendezvous_timeout(timeout);
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
