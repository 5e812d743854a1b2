//! Rewrites the files of a model with some tensors in 8 bits, or packed because they are sparse.

mod values;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use half::{bf16, f16};
use safetensors::tensor::View;
use safetensors::{Dtype, SafeTensorError};
use serde_json::{Map, Value};

pub use super::compressed_tensors::Format;
use super::document::Document;
use super::file_names::{CONFIG, OPEN_CLIP, OPEN_CLIP_WEIGHTS, PREPROCESSOR, WEIGHTS};
use super::load::{Model, embedded, from_bytes};
use super::model_bytes::ModelBytes;
use super::options::LoadOptions;
use super::source::Source;
use super::stored::Stored;
use super::weights::Weights;
use super::{bf16_layers, compressed_tensors};
use crate::error::{Error, Result};
use crate::ops::Float8Scale;
use crate::safetensors_file;
use crate::tensor::{DType, Tensor};
use hipvit_files::json;
pub use values::{Copied, Copies, TensorValues, replace_file};

/// The opened files of a model.
#[derive(Debug)]
pub struct Checkpoint {
    config: Document,
    preprocessor: Option<Document>,
    weights: Weights,
    sparse: Option<SparseWeights>,
}

/// Weights with 2:4 sparsity: two of each four values are zero.
#[derive(Debug)]
struct SparseWeights {
    weights: BTreeSet<String>,
    /// Linear layers whose weights are not sparse, without `.weight`.
    others: Vec<String>,
}

/// Content that replaces a tensor.
#[derive(Clone, Debug)]
pub enum Replacement {
    /// Values in f32. The shape stays.
    F32(Vec<f32>),
    /// A matrix of signed bytes, and a scale for each row.
    Int8 {
        /// Values, row by row.
        values: Vec<i8>,
        /// Scale of each row.
        scales: Vec<f32>,
    },
    /// Values in bf16. The shape stays, and the layer is computed in bf16.
    Bf16(Vec<bf16>),
    /// A matrix of 8-bit floating-point numbers (E4M3), with a scale for each row or one for all.
    ///
    /// `input` is the scale of the layer's input, if that is in FP8 too.
    Float8 {
        /// Values in E4M3, row by row.
        values: Vec<u8>,
        /// Scale of each row, or one for all.
        scales: Vec<f32>,
        /// Scale of the layer's input.
        input: Option<Float8Scale>,
    },
}

impl Checkpoint {
    /// Opens the model at `path`, which [`load`](super::load) finds in the same way. Opens the embedded model if there
    /// is no path.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`load`](super::load), and [`Error::Config`] if the model is already quantised.
    pub fn open(path: Option<&Path>) -> Result<Self> {
        let source = match path {
            Some(path) => Source::open(path)?,
            None => Source::Bytes(embedded()),
        };
        let config = source.config()?;
        let fields = config.fields()?;
        let of_quantized = [compressed_tensors::KEY, bf16_layers::KEY];
        if let Some(key) = of_quantized.into_iter().find(|key| fields.get(key).is_some()) {
            let reason = format!("has a `{key}`: the model is quantised already");
            return Err(Error::config(&config.file, reason));
        }
        Ok(Self {
            preprocessor: source.preprocessor()?,
            weights: source.weights(config.fields()?)?,
            config,
            sparse: None,
        })
    }

    /// Returns the content of the configuration file.
    pub fn config(&self) -> &Value {
        &self.config.value
    }

    /// Returns true if the model is in open_clip's form.
    pub fn is_open_clip(&self) -> bool {
        self.config.file.file_name().is_some_and(|name| name == OPEN_CLIP)
    }

    /// Returns the names of the files with the configuration and the weights, as the library writes them.
    pub fn file_names(&self) -> [&'static str; 2] {
        if self.is_open_clip() {
            [OPEN_CLIP, OPEN_CLIP_WEIGHTS]
        } else {
            [CONFIG, WEIGHTS]
        }
    }

    /// Returns the image processor's configuration, which models of transformers have.
    pub fn preprocessor(&self) -> Option<&Value> {
        self.preprocessor.as_ref().map(|document| &document.value)
    }

    /// Returns the names of all tensors.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.weights.tensors().keys().map(String::as_str)
    }

    /// Returns the tensor `name`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Tensor`] if the tensor does not exist, or its dtype is not f64, f32, f16 or bf16.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        match self.weights.tensors().get(name) {
            Some(stored) => stored.tensor(name),
            None => Err(self.weights.missing(name, "the model needs it")),
        }
    }

    /// Replaces weights by values with 2:4 sparsity, which are written packed. `others` are the linear layers that are
    /// not sparse.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Tensor`] if a value exceeds the range of the weight's dtype.
    pub fn prune(&mut self, pruned: BTreeMap<String, Vec<f32>>, others: Vec<String>) -> Result<()> {
        for (name, values) in &pruned {
            let dtype = self.tensor(name)?.dtype();
            let stored = match dtype {
                DType::F16 => Dtype::F16,
                DType::BF16 => Dtype::BF16,
                _ => Dtype::F32,
            };
            // Bits of the values in the weight's dtype, and whether all are finite in it.
            let (bytes, finite): (Vec<u8>, bool) = match dtype {
                DType::F16 => (
                    values
                        .iter()
                        .flat_map(|&v| f16::from_f32(v).to_le_bytes())
                        .collect(),
                    values.iter().all(|&v| f16::from_f32(v).is_finite()),
                ),
                DType::BF16 => (
                    values
                        .iter()
                        .flat_map(|&v| bf16::from_f32(v).to_le_bytes())
                        .collect(),
                    values.iter().all(|&v| bf16::from_f32(v).is_finite()),
                ),
                _ => (little_endian(values), values.iter().all(|v| v.is_finite())),
            };
            if !finite {
                let reason = format!("has values that exceed {dtype} when others are pruned");
                return Err(Error::tensor(self.place(), name, reason));
            }
            self.weights.replace(name, stored, bytes);
        }
        self.sparse = Some(SparseWeights {
            weights: pruned.into_keys().collect(),
            others,
        });
        Ok(())
    }

    /// Returns the path of the weight file or directory.
    pub fn place(&self) -> &Path {
        self.weights.place()
    }

    /// Returns the number of bytes of all tensors.
    pub fn bytes(&self) -> u64 {
        let tensors = self.weights.tensors().values();
        tensors.map(|stored| stored.range.len() as u64).sum()
    }

    /// Writes the model to `directory`, with the tensors in `replaced` replaced. Returns the number of bytes of all
    /// tensors.
    ///
    /// `unquantised` are the linear layers that are neither in 8 bits nor in bf16. If no layer is in 8 bits, `format`
    /// is written to the configuration.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Io`] for the file that cannot be written.
    pub fn write(
        &self,
        directory: &Path,
        format: Format,
        replaced: &BTreeMap<String, Replacement>,
        unquantised: &[String],
    ) -> Result<u64> {
        let config = self.changed_config(format, replaced, unquantised);
        write_json(&directory.join(CONFIG), &config)?;
        if let Some(preprocessor) = &self.preprocessor {
            write_json(&directory.join(PREPROCESSOR), &preprocessor.value)?;
        }
        let file = directory.join(WEIGHTS);
        // transformers writes this entry and requires it.
        let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
        let tensors = self.changed_tensors(replaced);
        let bytes = tensors.iter().map(|(_, tensor)| tensor.bytes.len() as u64).sum();
        let out = fs::File::create(&file).map_err(|error| Error::io(&file, error))?;
        safetensors_file::write(tensors, metadata, out).map_err(|error| match error {
            SafeTensorError::IoError(error) => Error::io(&file, error),
            other => Error::weights(&file, other),
        })?;
        Ok(bytes)
    }

    /// Returns the model that [`write`](Self::write) would write, loaded.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`load`](super::load).
    pub fn changed(
        &self,
        format: Format,
        replaced: &BTreeMap<String, Replacement>,
        unquantised: &[String],
        options: &LoadOptions,
    ) -> Result<Model> {
        let bytes = |value: &Value| value.to_string().into_bytes();
        let config = bytes(&self.changed_config(format, replaced, unquantised));
        let preprocessor = self.preprocessor.as_ref().map(|document| bytes(&document.value));
        let weights = safetensors::serialize(self.changed_tensors(replaced), None);
        let files = ModelBytes {
            name: "quantised",
            config: &config,
            weights: Arc::new(weights.map_err(|error| Error::weights(self.place(), error))?),
            preprocessor: preprocessor.as_deref(),
        };
        from_bytes(files, options)
    }

    fn changed_config(
        &self,
        format: Format,
        replaced: &BTreeMap<String, Replacement>,
        unquantised: &[String],
    ) -> Value {
        let mut config = match &self.config.value {
            Value::Object(config) => config.clone(),
            _ => Map::new(),
        };
        let in_bf16 = replaced
            .iter()
            .filter(|(_, of)| matches!(of, Replacement::Bf16(_)));
        let in_bf16: Vec<String> = in_bf16.map(|(name, _)| layer(name).to_owned()).collect();
        let mut formats = formats(replaced);
        if formats.is_empty() && in_bf16.is_empty() {
            formats.insert(format, Vec::new());
        }
        let in_8_bits = !formats.is_empty();
        let ignored = [unquantised, &in_bf16].concat();
        let mut quantization = compressed_tensors::config(&formats, &ignored);
        if let Some(sparse) = &self.sparse {
            let count = |stored: &Stored| stored.shape.iter().product::<usize>() as f64;
            let tensors = self.weights.tensors();
            let all: f64 = tensors.values().map(count).sum();
            let packed: f64 = sparse
                .weights
                .iter()
                .filter_map(|name| tensors.get(name))
                .map(count)
                .sum();
            compressed_tensors::add_sparsity(&mut quantization, &sparse.others, packed / 2.0 / all);
        }
        if in_8_bits || self.sparse.is_some() {
            config.insert(compressed_tensors::KEY.to_owned(), quantization);
        }
        if !in_bf16.is_empty() {
            config.insert(bf16_layers::KEY.to_owned(), in_bf16.into());
        }
        Value::Object(config)
    }

    fn changed_tensors<'a>(
        &'a self,
        replaced: &'a BTreeMap<String, Replacement>,
    ) -> Vec<(String, Written<'a>)> {
        let mut tensors = Vec::new();
        for (name, stored) in self.weights.tensors() {
            let shape = stored.shape.clone();
            let (dtype, bytes, scales) = match replaced.get(name) {
                None => (
                    stored.dtype,
                    (&(*stored.bytes).as_ref()[stored.range.clone()]).into(),
                    None,
                ),
                Some(Replacement::F32(values)) => (Dtype::F32, little_endian(values).into(), None),
                Some(Replacement::Bf16(values)) => {
                    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                    (Dtype::BF16, bytes.into(), None)
                }
                Some(Replacement::Int8 { values, scales }) => {
                    let bytes = Cow::Borrowed(bytemuck::cast_slice(values));
                    (Dtype::I8, bytes, Some(scales))
                }
                Some(Replacement::Float8 { values, scales, .. }) => {
                    (Dtype::F8_E4M3, Cow::Borrowed(values.as_slice()), Some(scales))
                }
            };
            let is_sparse = self
                .sparse
                .as_ref()
                .is_some_and(|sparse| sparse.weights.contains(name));
            let packed = is_sparse.then(|| compressed_tensors::pack(name, dtype, &shape, &bytes));
            match packed.flatten() {
                Some(parts) => tensors.extend(parts.map(|(name, dtype, shape, bytes)| {
                    let bytes = Cow::Owned(bytes);
                    (name, Written { dtype, shape, bytes })
                })),
                None => tensors.push((name.clone(), Written { dtype, shape, bytes })),
            }
            if let Some(scales) = scales {
                let scale = Written {
                    dtype: Dtype::F32,
                    shape: if scales.len() == 1 {
                        vec![1]
                    } else {
                        vec![scales.len(), 1]
                    },
                    bytes: little_endian(scales).into(),
                };
                tensors.push((compressed_tensors::scale_name(name), scale));
            }
            if let Some(Replacement::Float8 {
                input: Some(Float8Scale::Fixed(step)),
                ..
            }) = replaced.get(name)
            {
                let scale = Written {
                    dtype: Dtype::F32,
                    shape: vec![1],
                    bytes: little_endian(&[*step]).into(),
                };
                tensors.push((compressed_tensors::input_scale_name(name), scale));
            }
        }
        tensors
    }
}

/// Returns the layer of the weight `name`.
fn layer(name: &str) -> &str {
    name.strip_suffix(".weight").unwrap_or(name)
}

/// Returns the formats of the layers in 8 bits, with the layers of each.
fn formats(replaced: &BTreeMap<String, Replacement>) -> BTreeMap<Format, Vec<String>> {
    let mut formats: BTreeMap<Format, Vec<String>> = BTreeMap::new();
    for (name, replacement) in replaced {
        let format = match replacement {
            Replacement::F32(_) | Replacement::Bf16(_) => continue,
            Replacement::Int8 { .. } => Format::Int8,
            Replacement::Float8 { input: None, .. } => Format::Float8,
            Replacement::Float8 {
                input: Some(Float8Scale::Row),
                ..
            } => Format::Float8Dynamic,
            Replacement::Float8 {
                input: Some(Float8Scale::Fixed(_)),
                ..
            } => Format::Float8Activations,
        };
        formats.entry(format).or_default().push(layer(name).to_owned());
    }
    formats
}

/// A tensor that is written.
struct Written<'a> {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Cow<'a, [u8]>,
}

impl View for Written<'_> {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes)
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

fn little_endian(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn write_json(file: &Path, value: &Value) -> Result<()> {
    fs::write(file, json::indented(value) + "\n").map_err(|error| Error::io(file, error))
}
