//! New values of a model's tensors, and the copies that a graph's constants are of them.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use safetensors::{Dtype, SafeTensorError};
use serde_json::Value;

use super::{Checkpoint, Replacement, little_endian};
use crate::error::{Error, Result};
use crate::graph::{Graph, ValueId};
use crate::model::file_names::PREPROCESSOR;
use crate::model::load::from_bytes;
use crate::model::loaded::Model;
use crate::model::model_bytes::ModelBytes;
use crate::model::options::LoadOptions;
use crate::model::sam::{SamSource, of_bytes as sam_of_bytes};
use crate::model::weights::Weights;
use crate::safetensors_file;
use hipvit_files::json;
use hipvit_files::temporary::file_in;

/// Values of tensors, by name. The shapes stay.
pub type TensorValues = BTreeMap<String, Vec<f32>>;

/// Number of bits of an element's index that a probe has. An f32 represents all of them.
const PROBE_BITS: u32 = 20;

/// Elements of the two probes for index 0. They differ, so that a constant of the graph, which is the same in both, is no index.
const PROBE_STARTS: [f32; 2] = [1.0, (1 << PROBE_BITS) as f32 + 1.0];

/// Elements of a constant that are copies of consecutive elements of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// First element of the constant.
    pub to: usize,
    /// Index of the tensor, by name.
    pub tensor: usize,
    /// First element of the tensor.
    pub from: usize,
    /// Number of elements.
    pub len: usize,
}

/// Origin of a constant's elements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// The elements that are copies of a tensor's, in ascending order. All others are zero in any model of this form.
    pub parts: Vec<Copied>,
    /// True if each element is such a copy or zero, and not computed.
    pub is_exact: bool,
}

impl Checkpoint {
    /// Returns the names of the tensors, with their shapes, in the order of the names.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &[usize])> {
        let tensors = self.weights.tensors().iter();
        tensors.map(|(name, stored)| (name.as_str(), stored.shape.as_slice()))
    }

    /// Loads the model, with new values of some tensors.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`load`](crate::model::load), and [`Error::Tensor`] for values that are not of a tensor's size.
    pub fn model_with(&self, values: &TensorValues, options: &LoadOptions) -> Result<Model> {
        self.with_bytes(values, |files| from_bytes(files, options))
    }

    /// Loads a model of SAM, with new values of some tensors.
    pub(crate) fn sam_with(&self, values: &TensorValues, options: &LoadOptions) -> Result<SamSource> {
        self.with_bytes(values, |files| sam_of_bytes(files, options))
    }

    /// Calls `load` with the files, with new values of some tensors.
    fn with_bytes<T>(
        &self,
        values: &TensorValues,
        load: impl FnOnce(ModelBytes<'_>) -> Result<T>,
    ) -> Result<T> {
        let replaced = self.replacements(values)?;
        let bytes = |value: &Value| value.to_string().into_bytes();
        let config = bytes(&self.config.value);
        let preprocessor = self.preprocessor.as_ref().map(|document| bytes(&document.value));
        let weights = safetensors::serialize(self.changed_tensors(&replaced), None);
        let name = self
            .place()
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let files = ModelBytes {
            name: name.as_deref().unwrap_or("model"),
            config: &config,
            weights: Arc::new(weights.map_err(|error| Error::weights(self.place(), error))?),
            preprocessor: preprocessor.as_deref(),
        };
        load(files)
    }

    /// Returns the checkpoint with new values of some tensors, in f32.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Tensor`] for values that are not of a tensor's size.
    pub fn with_values(&self, values: &TensorValues) -> Result<Self> {
        let mut weights = Weights::with_tensors_of(&self.weights);
        for (name, replacement) in self.replacements(values)? {
            if let Replacement::F32(values) = replacement {
                weights.replace(&name, Dtype::F32, little_endian(&values));
            }
        }
        Ok(Self {
            config: self.config.clone(),
            preprocessor: self.preprocessor.clone(),
            weights,
            sparse: None,
        })
    }

    /// Writes the model to `directory`, with new values of some tensors, in f32. Each file is replaced as a whole.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Io`] for the file that cannot be written, and [`Error::Tensor`] for values that are not of a tensor's size.
    pub fn write_values(&self, directory: &Path, values: &TensorValues) -> Result<()> {
        let replaced = self.replacements(values)?;
        std::fs::create_dir_all(directory).map_err(|error| Error::io(directory, error))?;
        // transformers writes this entry and requires it.
        let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
        let tensors = self.changed_tensors(&replaced);
        let [config, weights] = self.file_names();
        replace_file(&directory.join(weights), |out| {
            safetensors_file::write(tensors, metadata, out).map_err(|error| match error {
                SafeTensorError::IoError(error) => error,
                other => std::io::Error::other(other),
            })
        })?;
        let documents = [
            (config, Some(&self.config)),
            (PREPROCESSOR, self.preprocessor.as_ref()),
        ];
        for (name, document) in documents {
            if let Some(document) = document {
                let text = json::indented(&document.value) + "\n";
                replace_file(&directory.join(name), |out| out.write_all(text.as_bytes()))?;
            }
        }
        Ok(())
    }

    fn replacements(&self, values: &TensorValues) -> Result<BTreeMap<String, Replacement>> {
        let replacement = |(name, values): (&String, &Vec<f32>)| {
            let Some(stored) = self.weights.tensors().get(name) else {
                return Err(self.weights.missing(name, "new values were given for it"));
            };
            let expected: usize = stored.shape.iter().product();
            if values.len() != expected {
                let reason = format!(
                    "has {expected} elements, but {} new values were given",
                    values.len()
                );
                return Err(Error::tensor(self.place(), name, reason));
            }
            Ok((name.clone(), Replacement::F32(values.clone())))
        };
        values.iter().map(replacement).collect()
    }

    /// Finds the elements of the tensors that the constants of a graph are copies of. `build` makes the graph of a model of this
    /// checkpoint; it must only move elements, or compute constants from them, in a way that does not depend on their values.
    ///
    /// The graph is built twice again, from tensors whose elements are the low and the high bits of their own indices. What this finds is compared with the elements of
    /// `graph`, so that a constant that is computed from a tensor is not taken for a copy.
    ///
    /// # Errors
    ///
    /// The errors of `build`.
    pub fn copies(
        &self,
        graph: &Graph,
        build: &dyn Fn(&TensorValues) -> Result<Graph>,
    ) -> Result<HashMap<ValueId, Copies>> {
        let [low, high] = [0, 1].map(|half| build(&self.probe(half)));
        let (low, high) = (low?, high?);
        let starts = self.starts();
        let mut copies = HashMap::new();
        for id in graph.ids().filter(|&id| graph.value(id).is_constant()) {
            let elements = |graph: &Graph| {
                Some(
                    graph
                        .values()
                        .get(id.index())?
                        .constant
                        .as_ref()?
                        .to_f32()
                        .into_owned(),
                )
            };
            let (Some(low), Some(high), Some(values)) = (elements(&low), elements(&high), elements(graph))
            else {
                continue;
            };
            let mut found = Copies {
                parts: parts(&low, &high, &starts),
                is_exact: true,
            };
            found.is_exact = self.are_equal(&found.parts, &values)?;
            copies.insert(id, found);
        }
        Ok(copies)
    }

    /// Returns the index of each tensor's first element among the elements of all tensors, and their number.
    fn starts(&self) -> Vec<u64> {
        let mut starts = vec![0];
        let mut end = 0;
        for (_, shape) in self.tensors() {
            end += shape.iter().map(|&extent| extent as u64).product::<u64>();
            starts.push(end);
        }
        starts
    }

    /// Returns tensors whose elements are half of the bits of their indices among all elements: the low ones for 0, the high ones for 1.
    fn probe(&self, half: usize) -> TensorValues {
        let starts = self.starts();
        let tensors = self.tensors().zip(starts.windows(2));
        let values = tensors.map(|((name, _), range)| {
            let bits = (range[0]..range[1]).map(|index| probe_of(index, half));
            (name.to_owned(), bits.collect())
        });
        values.collect()
    }

    /// Returns true if `values` are the elements of the tensors at `parts`, and zero elsewhere.
    fn are_equal(&self, parts: &[Copied], values: &[f32]) -> Result<bool> {
        let names: Vec<&str> = self.tensors().map(|(name, _)| name).collect();
        let mut end = 0;
        // A tensor can have a part for each element, so it is converted once.
        let mut tensors: HashMap<usize, Vec<f32>> = HashMap::new();
        for part in parts {
            let tensor = match tensors.entry(part.tensor) {
                Entry::Occupied(tensor) => tensor.into_mut(),
                Entry::Vacant(place) => {
                    let tensor = self.tensor(names[part.tensor])?;
                    place.insert(tensor.to_f32().into_owned())
                }
            };
            let same = tensor[part.from..part.from + part.len] == values[part.to..part.to + part.len];
            let zeros = values[end..part.to].iter().all(|&value| value == 0.0);
            if !same || !zeros {
                return Ok(false);
            }
            end = part.to + part.len;
        }
        Ok(values[end..].iter().all(|&value| value == 0.0))
    }
}

/// Returns the element of a probe for an index.
fn probe_of(index: u64, half: usize) -> f32 {
    let bits = index >> (half as u32 * PROBE_BITS) & ((1 << PROBE_BITS) - 1);
    bits as f32 + PROBE_STARTS[half]
}

/// Returns the copies that the elements of two probes show. Elements that are no index belong to none.
fn parts(low: &[f32], high: &[f32], starts: &[u64]) -> Vec<Copied> {
    let bits = |value: f32, half: usize| {
        let bits = value - PROBE_STARTS[half];
        let is_index = bits.fract() == 0.0 && (0.0..(1 << PROBE_BITS) as f32).contains(&bits);
        is_index.then_some(bits as u64)
    };
    let total = starts.last().copied().unwrap_or(0);
    let mut parts: Vec<Copied> = Vec::new();
    for (to, (&low, &high)) in low.iter().zip(high).enumerate() {
        let index = bits(low, 0)
            .zip(bits(high, 1))
            .map(|(low, high)| high << PROBE_BITS | low);
        let Some(index) = index.filter(|&index| index < total) else {
            continue;
        };
        let tensor = starts.partition_point(|&start| start <= index) - 1;
        let from = (index - starts[tensor]) as usize;
        match parts.last_mut() {
            Some(last)
                if last.tensor == tensor && last.to + last.len == to && last.from + last.len == from =>
            {
                last.len += 1;
            }
            _ => parts.push(Copied {
                to,
                tensor,
                from,
                len: 1,
            }),
        }
    }
    parts
}

/// Writes a file that appears whole: under another name, flushed to the disk and renamed.
///
/// # Errors
///
/// Returns [`Error::Io`] if a step fails. A file that existed before is then unchanged.
pub fn replace_file(
    file: &Path,
    write: impl FnOnce(&mut std::fs::File) -> std::io::Result<()>,
) -> Result<()> {
    let error = |error| Error::io(file, error);
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let (mut temporary, _listed) = file_in(folder, ".partial").map_err(error)?;
    write(temporary.as_file_mut()).map_err(error)?;
    temporary.as_file().sync_all().map_err(error)?;
    temporary.persist(file).map_err(|failed| error(failed.error))?;
    // The new name is on the disk once its folder is.
    #[cfg(unix)]
    std::fs::File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_show_where_elements_come_from() {
        let starts = [0, 4, (1 << PROBE_BITS) + 2, (1 << PROBE_BITS) + 6];
        let probe = |indices: &[Option<u64>], half: usize| -> Vec<f32> {
            let bits = |index: &Option<u64>| index.map_or(0.0, |index| probe_of(index, half));
            indices.iter().map(bits).collect()
        };
        let last = (1 << PROBE_BITS) + 2;
        let indices = [
            Some(2),
            Some(3),
            Some(4),
            None,
            Some(last + 1),
            Some(last + 2),
            Some(1),
        ];
        let found = parts(&probe(&indices, 0), &probe(&indices, 1), &starts);
        let expected = [(0, 0, 2, 2), (2, 1, 0, 1), (4, 2, 1, 2), (6, 0, 1, 1)];
        let expected = expected.map(|(to, tensor, from, len)| Copied {
            to,
            tensor,
            from,
            len,
        });
        assert_eq!(found, expected);
        assert_eq!(parts(&[1.5, -1.0, 0.0], &[1.0; 3], &starts), []);
        // Ones and other constants, which no model of this form has from a tensor.
        assert_eq!(parts(&[1.0, 2.0], &[1.0, 2.0], &starts), []);
        assert_eq!(parts(&[1_048_577.0], &[1_048_577.0], &starts), []);
    }

    #[test]
    fn files_are_replaced_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("states");
        replace_file(&file, |out| out.write_all(b"first")).unwrap();
        let failed = replace_file(&file, |out| {
            out.write_all(b"half")?;
            Err(std::io::Error::other("the disk is full"))
        });
        assert!(failed.unwrap_err().to_string().contains("the disk is full"));
        assert_eq!(std::fs::read(&file).unwrap(), b"first");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
