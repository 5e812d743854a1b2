//! Files with the weights and states of a training run.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use hipvit::error::{Error, Result};
use hipvit::graph::{Graph, Value};
use hipvit::model::replace_file;
use hipvit::tensor::Tensor;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors, serialize};
use serde_json::json;

use crate::loss_scale::LossScale;
use crate::ranks::powersgd::{is_of_compression, redistributed};
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
pub(crate) fn saved_states(graph: &Graph) -> impl Iterator<Item = &Value> {
    let states = graph.states().map(|id| graph.value(id));
    states.filter(|value| !is_transient(&value.name))
}

/// Elements of the weights and states of a step.
pub(crate) struct Saved {
    states: Vec<(String, Vec<usize>, Vec<u8>)>,
}

impl Saved {
    /// Reads all weights and states. `tensor` returns a whole tensor by its name, and none to ranks that do not write it.
    pub(crate) fn new(graph: &Graph, tensor: &dyn Fn(&str) -> Result<Option<Tensor>>) -> Result<Self> {
        let mut states = Vec::new();
        for Value { name, .. } in saved_states(graph) {
            let Some(tensor) = tensor(name)? else { continue };
            let values = tensor.to_f32();
            let bytes = values.iter().flat_map(|value| value.to_le_bytes());
            states.push((name.clone(), tensor.shape().to_vec(), bytes.collect()));
        }
        Ok(Self { states })
    }

    /// Writes the file, which is replaced as a whole.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the file cannot be written.
    pub(crate) fn write(&self, counters: &Counters, file: &Path) -> Result<()> {
        let mut views = Vec::with_capacity(self.states.len());
        for (name, shape, bytes) in &self.states {
            let view = TensorView::new(Dtype::F32, shape.clone(), bytes);
            views.push((name.as_str(), view.map_err(|error| Error::weights(file, error))?));
        }
        let content =
            serialize(views, Some(counters.to_metadata())).map_err(|error| Error::weights(file, error))?;
        replace_file(file, |out| std::io::Write::write_all(out, &content))
    }
}

/// Reads the counters of a file.
///
/// # Errors
///
/// [`Error::Io`] or [`Error::Weights`] if the file cannot be read.
pub(crate) fn read_counters(counters: Counters, file: &Path) -> Result<Counters> {
    counters_of(
        &counters,
        &hipvit_files::regular_file::read(file).map_err(|error| Error::io(file, error))?,
        file,
    )
}

fn counters_of(counters: &Counters, bytes: &[u8], file: &Path) -> Result<Counters> {
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(|error| Error::weights(file, error))?;
    let restored = header.metadata().as_ref();
    let restored = restored.and_then(|metadata| counters.clone().with_metadata(metadata));
    restored.ok_or_else(|| Error::weights(file, "has no number of steps: not a file of a training run"))
}

/// Reads the weights, states and counters of a file. `shape` returns the shape of a whole tensor.
///
/// # Errors
///
/// [`Error::Io`] or [`Error::Weights`] if the file cannot be read. [`Error::Tensor`] if its tensors are not those of the graph.
pub(crate) fn read(
    graph: &Graph,
    shape: &dyn Fn(&Value) -> Vec<usize>,
    counters: Counters,
    file: &Path,
) -> Result<(Counters, Vec<(String, Tensor)>)> {
    let bytes = hipvit_files::regular_file::read(file).map_err(|error| Error::io(file, error))?;
    let restored = counters_of(&counters, &bytes, file)?;
    let content = SafeTensors::deserialize(&bytes).map_err(|error| Error::weights(file, error))?;
    let mut tensors = Vec::new();
    for value in saved_states(graph) {
        let missing = || {
            Error::tensor(
                file,
                &value.name,
                "is missing: the file is of another model or other options",
            )
        };
        let view = match content.tensor(&value.name) {
            Ok(view) => view,
            // The run had one rank.
            Err(_) if is_of_compression(&value.name) => continue,
            Err(_) => return Err(missing()),
        };
        let shape = shape(value);
        let unexpected = || {
            let reason = format!("is {} {:?}, expected f32 {shape:?}", view.dtype(), view.shape(),);
            Error::tensor(file, &value.name, reason)
        };
        if view.dtype() != Dtype::F32 {
            return Err(unexpected());
        }
        let values: Vec<f32> = view
            .data()
            .as_chunks::<4>()
            .0
            .iter()
            .map(|&bytes| f32::from_le_bytes(bytes))
            .collect();
        let values = if view.shape() == shape {
            values
        } else {
            redistributed(&value.name, (view.shape(), values), &shape).ok_or_else(unexpected)?
        };
        let tensor = Tensor::from_f32(shape.as_slice(), values).ok_or_else(missing)?;
        tensors.push((value.name.clone(), tensor));
    }
    if let Some((surplus, _)) = content
        .iter()
        .find(|(name, _)| !is_of_compression(name) && !tensors.iter().any(|(known, _)| known == name))
    {
        return Err(Error::tensor(
            file,
            surplus,
            "is unknown: the file is of another model or other options",
        ));
    }
    Ok((restored, tensors))
}
