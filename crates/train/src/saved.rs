//! Files with the weights and states of a training run.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use hipvit::error::{Error, Result};
use hipvit::exec::Executor;
use hipvit::graph::{Graph, Value};
use hipvit::model::replace_file;
use hipvit::tensor::Tensor;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors, serialize};
use serde_json::json;

use crate::loss_scale::LossScale;
use crate::step_graph::is_transient;

/// Key of the counters in the metadata.
const COUNTERS: &str = "hipvit.counters";
/// Key of the layers that have returned from FP8 in the metadata.
const BF16_LAYERS: &str = "hipvit.bf16_layers";

/// What a run knows beside the weights and states.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Counters {
    /// Number of steps.
    pub(crate) steps: u64,
    /// Number of steps that have updated the weights.
    pub(crate) updates: u64,
    pub(crate) scale: LossScale,
    /// Layers that are no longer computed in FP8.
    pub(crate) bf16_layers: BTreeSet<String>,
}

impl Counters {
    /// Returns the metadata of a file.
    fn to_metadata(&self) -> HashMap<String, String> {
        let Self {
            steps,
            updates,
            scale,
            bf16_layers,
        } = self;
        let numbers = json!([steps, updates, scale.factor, scale.updates]);
        let mut metadata = HashMap::from([(COUNTERS.to_owned(), numbers.to_string())]);
        if !bf16_layers.is_empty() {
            metadata.insert(BF16_LAYERS.to_owned(), json!(bf16_layers).to_string());
        }
        metadata
    }

    /// Returns these numbers with those of a file, or `None` if the file has none.
    fn with_metadata(mut self, metadata: &HashMap<String, String>) -> Option<Self> {
        let numbers = serde_json::from_str(metadata.get(COUNTERS)?).ok()?;
        (self.steps, self.updates, self.scale.factor, self.scale.updates) = numbers;
        self.bf16_layers = match metadata.get(BF16_LAYERS) {
            Some(layers) => serde_json::from_str(layers).ok()?,
            None => BTreeSet::new(),
        };
        Some(self)
    }
}

/// Returns the weights and states of a file.
fn saved_states(graph: &Graph) -> impl Iterator<Item = &Value> {
    let states = graph.states().map(|id| graph.value(id));
    states.filter(|value| !is_transient(&value.name))
}

/// Writes all weights and states to a file, which is replaced as a whole.
///
/// # Errors
///
/// [`Error::Io`] if the file cannot be written.
pub(crate) fn write(executor: &Arc<dyn Executor>, counters: &Counters, file: &Path) -> Result<()> {
    let mut states = Vec::new();
    for Value { name, .. } in saved_states(&executor.info().graph) {
        let tensor = executor.state(name)?;
        let bytes: Vec<u8> = tensor
            .to_f32()
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        states.push((name, tensor.shape().to_vec(), bytes));
    }
    let mut views = Vec::with_capacity(states.len());
    for (name, shape, bytes) in &states {
        let view = TensorView::new(Dtype::F32, shape.clone(), bytes);
        views.push((name.as_str(), view.map_err(|error| Error::weights(file, error))?));
    }
    let content =
        serialize(views, Some(counters.to_metadata())).map_err(|error| Error::weights(file, error))?;
    replace_file(file, |out| std::io::Write::write_all(out, &content))
}

/// Restores all weights, states and counters from a file.
///
/// # Errors
///
/// [`Error::Io`] or [`Error::Weights`] if the file cannot be read. [`Error::Tensor`] if its tensors are not those of the executor.
pub(crate) fn read(executor: &Arc<dyn Executor>, counters: &mut Counters, file: &Path) -> Result<()> {
    let bytes = hipvit_files::regular_file::read(file).map_err(|error| Error::io(file, error))?;
    let broken = |error| Error::weights(file, error);
    let (_, header) = SafeTensors::read_metadata(&bytes).map_err(broken)?;
    let restored = header.metadata().as_ref();
    let restored = restored.and_then(|metadata| counters.clone().with_metadata(metadata));
    let restored = restored
        .ok_or_else(|| Error::weights(file, "has no number of steps: not a file of a training run"))?;
    let content = SafeTensors::deserialize(&bytes).map_err(broken)?;
    let graph = &executor.info().graph;
    let mut tensors = Vec::new();
    for value in saved_states(graph) {
        let missing = || {
            Error::tensor(
                file,
                &value.name,
                "is missing: the file is of another model or other options",
            )
        };
        let view = content.tensor(&value.name).map_err(|_| missing())?;
        if view.dtype() != Dtype::F32 || view.shape() != value.shape {
            let reason = format!(
                "is {} {:?}, expected f32 {:?}",
                view.dtype(),
                view.shape(),
                value.shape
            );
            return Err(Error::tensor(file, &value.name, reason));
        }
        let values: Vec<f32> = view
            .data()
            .as_chunks::<4>()
            .0
            .iter()
            .map(|&bytes| f32::from_le_bytes(bytes))
            .collect();
        let tensor = Tensor::from_f32(value.shape.as_slice(), values).ok_or_else(missing)?;
        tensors.push((value.name.clone(), tensor));
    }
    if let Some((surplus, _)) = content
        .iter()
        .find(|(name, _)| !tensors.iter().any(|(known, _)| known == name))
    {
        return Err(Error::tensor(
            file,
            surplus,
            "is unknown: the file is of another model or other options",
        ));
    }
    for (name, tensor) in &tensors {
        executor.set_state(name, tensor)?;
    }
    *counters = restored;
    Ok(())
}
