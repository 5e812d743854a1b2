//! Holds the tensors of a model's weight files. The builder must take each tensor, or it must be ignored for a stated
//! reason.
//!
//! [`super::source`] adds the tensors, and [`super::builder`] takes them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use safetensors::{Dtype, SafeTensorError, SafeTensors};

use super::bf16_layers::{self, Bf16Layers};
use super::compressed_tensors::{self, Quantization, Scheme, Sparsity};
use super::shell::shell;
use super::stored::Stored;
use super::{convert, mapped, renames};
use crate::error::{Error, Result};
use crate::graph::Provenance;
use crate::ops::Rounding;
use crate::tensor::{Bytes, DType, Tensor};
use hipvit_files::foreign;

/// A tensor of the weight file that the model does not need.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Ignored {
    /// Name of the tensor in the file.
    pub tensor: String,
    /// Reason why the tensor does not affect the result.
    pub reason: &'static str,
}

/// Tensors by name. The values of a tensor are read from disk when they are first used.
pub(super) struct Weights {
    place: PathBuf,
    tensors: BTreeMap<String, Stored>,
    ignored: Vec<Ignored>,
    parameters: u64,
    /// Quantisation scheme of the model, if it is quantised.
    pub(super) scheme: Option<Scheme>,
    /// Layers that are computed in bf16.
    pub(super) bf16_layers: Bf16Layers,
    /// Rounding of the activations of layers, by the name of their weights, for weights that were taken.
    rounding: BTreeMap<String, Rounding>,
    quantization: Quantization,
    sparsity: Sparsity,
    /// Description of the adapter that was merged, if there is one.
    pub(super) adapter: Option<String>,
    /// Shapes of the tensors that were requested. Set if the model has no weights yet.
    outline: Option<BTreeMap<String, Vec<usize>>>,
}

impl Weights {
    /// Creates an empty store. Errors about missing tensors name `place`, a file or directory.
    pub(super) fn new(place: &Path) -> Self {
        Self {
            place: place.to_owned(),
            tensors: BTreeMap::new(),
            ignored: Vec::new(),
            parameters: 0,
            scheme: None,
            bf16_layers: Bf16Layers::default(),
            rounding: BTreeMap::new(),
            quantization: Quantization::default(),
            sparsity: Sparsity::default(),
            adapter: None,
            outline: None,
        }
    }

    /// Creates a store with the tensors of another one. The bytes are shared.
    pub(super) fn with_tensors_of(other: &Self) -> Self {
        Self {
            tensors: other.tensors.clone(),
            ..Self::new(&other.place)
        }
    }

    /// Creates a store that returns zeros for every tensor, and records which tensors are requested.
    pub(super) fn recording(place: &Path) -> Self {
        Self {
            outline: Some(BTreeMap::new()),
            ..Self::new(place)
        }
    }

    /// Returns true for a [recording](Self::recording) store, which has each tensor that is requested.
    pub(super) fn is_recording(&self) -> bool {
        self.outline.is_some()
    }

    /// Returns the shape of each tensor that was requested from a [recording](Self::recording) store.
    pub(super) fn outline(&mut self) -> BTreeMap<String, Vec<usize>> {
        self.outline.take().unwrap_or_default()
    }

    /// Returns the file or directory that errors name.
    pub(super) fn place(&self) -> &Path {
        &self.place
    }

    /// Returns all tensors that were neither taken nor ignored, by name.
    pub(super) fn tensors(&self) -> &BTreeMap<String, Stored> {
        &self.tensors
    }

    /// Returns the rounding of the activations of a linear layer, if they are rounded.
    ///
    /// `weight` and `dtype` are of the layer's weight. It may have rows of several tensors.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Tensor`] if the tensors' layers round differently.
    pub(super) fn rounding(&mut self, weight: &Provenance, dtype: DType) -> Result<Option<Rounding>> {
        let tensors = weight.tensors();
        let in_bf16 = tensors
            .iter()
            .filter(|tensor| self.bf16_layers.read(tensor))
            .count();
        if dtype.size() != 1 && in_bf16 == 0 {
            return Ok(None);
        }
        let mut roundings = tensors.iter().map(|&tensor| self.rounding.get(tensor));
        let first = roundings.next().flatten();
        if roundings.all(|other| other == first) {
            Ok(first.copied())
        } else {
            Err(Error::tensor(
                &self.place,
                weight.to_string(),
                "are computed as one layer, but their activations are rounded differently",
            ))
        }
    }

    /// Unpacks the weights if the scheme says that they are packed.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Tensor`] for the tensor that is inconsistent.
    pub(crate) fn unpack(&mut self) -> Result<()> {
        if self.scheme.as_ref().is_some_and(|scheme| scheme.packed) {
            self.sparsity = compressed_tensors::unpack(&mut self.tensors)?;
        }
        Ok(())
    }

    /// Returns the sparsity of the packed weights, if there are any.
    pub(super) fn sparsity(&self) -> Option<Sparsity> {
        (self.sparsity.weights > 0).then(|| self.sparsity.clone())
    }

    /// Replaces the bytes of the tensor `name`. The new bytes have the given dtype and the tensor's shape.
    pub(super) fn replace(&mut self, name: &str, dtype: Dtype, bytes: Vec<u8>) {
        if let Some(stored) = self.tensors.get_mut(name) {
            stored.replace(dtype, bytes);
        }
    }

    /// Renames the tensors.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Tensor`] if two tensors would have the same name.
    pub(super) fn rename(&mut self, new: impl Fn(&str) -> String) -> Result<()> {
        for (name, stored) in std::mem::take(&mut self.tensors) {
            self.insert(new(&name), stored)?;
        }
        Ok(())
    }

    fn insert(&mut self, name: String, stored: Stored) -> Result<()> {
        let file = stored.file.clone();
        match self.tensors.insert(name.clone(), stored) {
            Some(other) if other.file == file => {
                Err(Error::tensor(file, name, "occurs twice, with different prefixes"))
            }
            Some(other) => Err(Error::tensor(
                file,
                name,
                format_args!("is also in {}", other.file.display()),
            )),
            None => Ok(()),
        }
    }

    /// Maps a safetensors file and adds all of its tensors.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Io`] if the file cannot be opened or mapped, and the errors of [`add`](Self::add).
    pub(crate) fn map(&mut self, file: &Path) -> Result<()> {
        self.add(file, &mapped::map(file)?)
    }

    /// Adds all tensors of a safetensors file, without the prefixes that [`renames::bare`] removes. Converts F64 to
    /// F32.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Weights`] if the file as a whole is damaged. Returns [`Error::Tensor`] if the range of a tensor
    /// is invalid, or if another file has a tensor of the same name.
    pub(super) fn add(&mut self, file: &Path, bytes: &Arc<dyn Bytes>) -> Result<()> {
        let content: &[u8] = (**bytes).as_ref();
        let (header, metadata) =
            SafeTensors::read_metadata(content).map_err(|error| broken(file, content, error))?;
        let start = size_of::<u64>() + header;
        for (name, info) in metadata.tensors() {
            let (begin, end) = info.data_offsets;
            let mut stored = Stored {
                file: file.to_owned(),
                bytes: bytes.clone(),
                range: start + begin..start + end,
                dtype: info.dtype,
                shape: info.shape.clone(),
                computed: false,
            };
            stored.narrow(&name)?;
            self.insert(renames::bare(&name).to_owned(), stored)?;
        }
        Ok(())
    }

    /// Returns the file that contains the tensor `name`.
    pub(super) fn file(&self, name: &str) -> Option<&Path> {
        self.tensors.get(name).map(|stored| stored.file.as_path())
    }

    /// Returns the shape of the tensor `name`, if it exists and was not taken.
    pub(super) fn shape(&self, name: &str) -> Option<&[usize]> {
        self.tensors.get(name).map(|stored| stored.shape.as_slice())
    }

    /// Removes the tensor `name` from the store and returns it.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Tensor`] in these cases:
    ///
    /// - the tensor is missing or has another shape
    /// - its dtype is not f64, f32, f16 or bf16, nor int8 or FP8 with scales in a quantised model
    /// - its layer is in bf16, but the tensor is not
    pub(super) fn take(&mut self, name: &str, shape: &[usize]) -> Result<Tensor> {
        if let Some(outline) = &mut self.outline {
            outline.insert(name.to_owned(), shape.to_vec());
            let zeros = vec![0.0; shape.iter().product()];
            let zeros = Tensor::from_f32(shape, zeros);
            return zeros.ok_or_else(|| self.missing(name, "its size is out of range"));
        }
        let Some(stored) = self.tensors.remove(name) else {
            return Err(self.missing(name, format_args!("expected with shape {shape:?}")));
        };
        let error = |reason: String| Error::tensor(&stored.file, name, reason);
        if stored.shape != shape {
            return Err(error(format!(
                "has shape {:?}, but the configuration makes it {shape:?}",
                stored.shape
            )));
        }
        let in_bf16 = self.bf16_layers.has(name);
        match stored.dtype {
            other if in_bf16 && other != Dtype::BF16 => {
                let reason = format!(
                    "is {other}, but config.json says under `{}` that its layer is in bf16",
                    bf16_layers::KEY
                );
                return Err(error(reason));
            }
            Dtype::I8 | Dtype::F8_E4M3 if self.scheme.is_some() => return self.quantized(name, &stored),
            dtype @ (Dtype::I8 | Dtype::F8_E4M3) => {
                let reason = format!(
                    "is {dtype}, but config.json has no `{}` that says how",
                    compressed_tensors::KEY
                );
                return Err(error(reason));
            }
            _ => {}
        }
        let tensor = stored.tensor(name)?;
        self.parameters += tensor.len() as u64;
        if in_bf16 {
            self.rounding.insert(name.to_owned(), Rounding::Bf16);
            self.quantization.bf16 += 1;
        }
        Ok(tensor)
    }

    /// Returns the quantised weight `name` in 8 bits.
    fn quantized(&mut self, name: &str, stored: &Stored) -> Result<Tensor> {
        let Some(scheme) = &self.scheme else {
            return Err(self.missing(compressed_tensors::KEY, "config.json must have it"));
        };
        let weight = compressed_tensors::load(name, stored, scheme, &mut self.tensors)?;
        self.quantization.format.clone_from(&scheme.format);
        let count = match (weight.tensor.dtype(), weight.rounding) {
            (_, Some(rounding)) => {
                self.rounding.insert(name.to_owned(), rounding);
                match rounding {
                    Rounding::Int8(_) => &mut self.quantization.int8,
                    Rounding::Float8(_) => &mut self.quantization.float8,
                    Rounding::Bf16 => &mut self.quantization.bf16,
                }
            }
            (DType::I8, None) => &mut self.quantization.int8_weights,
            (DType::F8E4M3, None) => &mut self.quantization.float8_weights,
            _ => &mut self.quantization.dequantized,
        };
        *count += 1;
        let reason = "activations stay in full precision";
        let unused = weight.unused.into_iter();
        self.ignored
            .extend(unused.map(|tensor| Ignored { tensor, reason }));
        self.parameters += weight.tensor.len() as u64;
        Ok(weight.tensor)
    }

    /// Describes the quantised weights, if there are any.
    pub(super) fn quantization(&self) -> Option<Quantization> {
        let Quantization { format, bf16, .. } = &self.quantization;
        (!format.is_empty() || *bf16 > 0).then(|| self.quantization.clone())
    }

    /// Returns an error about a tensor that should be in the store.
    pub(super) fn missing(&self, name: &str, expected: impl fmt::Display) -> Error {
        let prefixed = self.tensors.keys().find_map(|other| {
            let prefix = other.strip_suffix(name)?;
            prefix.ends_with('.').then_some(prefix)
        });
        let begin = |prefix: &&str| {
            self.tensors
                .keys()
                .filter(|other| other.starts_with(*prefix))
                .count()
        };
        // A part of the model may end with the same name, so most tensors must have the prefix.
        let Some(prefix) = prefixed.filter(|prefix| 2 * begin(prefix) > self.tensors.len()) else {
            return Error::tensor(&self.place, name, format_args!("is missing; {expected}"));
        };
        let which = if begin(&prefix) == self.tensors.len() {
            "all"
        } else {
            "most"
        };
        let reason = format!(
            "is missing, but `{prefix}{name}` is there: {which} tensors of the file begin with `{prefix}`, which the training program has \
             put there. Write the weights without it, with Python: python3 -c '{}' {} {} model.safetensors",
            renames::REMOVE_PREFIX,
            shell(&self.place),
            shell(Path::new(prefix)),
        );
        Error::tensor(&self.place, name, reason)
    }

    /// Ignores the remaining tensors that match `pattern`. A `*` at its start or end matches any characters.
    pub(super) fn ignore(&mut self, pattern: &str, reason: &'static str) {
        let matches = |name: &str| match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
            (Some(end), _) => name.ends_with(end),
            (_, Some(start)) => name.starts_with(start),
            _ => name == pattern,
        };
        let names: Vec<String> = self
            .tensors
            .keys()
            .filter(|name| matches(name))
            .cloned()
            .collect();
        for tensor in names {
            self.tensors.remove(&tensor);
            self.ignored.push(Ignored { tensor, reason });
        }
    }

    /// Returns the number of parameters that were taken.
    pub(super) fn parameters(&self) -> u64 {
        self.parameters
    }

    /// Returns the ignored tensors.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Tensor`] if a tensor was neither taken nor ignored, or if a layer that should be in bf16 does
    /// not exist in the model.
    pub(super) fn finish(&mut self) -> Result<Vec<Ignored>> {
        if let Some(weight) = self.bf16_layers.unread().next() {
            let reason = format!(
                "belongs to no linear layer of the model, but config.json says under `{}` that its layer is in bf16",
                bf16_layers::KEY
            );
            return Err(Error::tensor(&self.place, weight, reason));
        }
        let Some((first, stored)) = self.tensors.first_key_value() else {
            return Ok(std::mem::take(&mut self.ignored));
        };
        let others: Vec<&str> = self.tensors.keys().skip(1).map(String::as_str).collect();
        let mut reason = String::from("is unexpected: the configuration has no place for it");
        if !others.is_empty() {
            let shown = others[..others.len().min(3)].join("`, `");
            let more = if others.len() > 3 { ", …" } else { "" };
            reason += &format!(" (nor for {} more: `{shown}`{more})", others.len());
        }
        Err(Error::tensor(&stored.file, first, reason))
    }
}

impl fmt::Debug for Weights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Weights")
            .field("place", &self.place)
            .field("tensors", &self.tensors.keys())
            .finish_non_exhaustive()
    }
}

/// Converts an error of the safetensors crate to a readable one.
fn broken(file: &Path, content: &[u8], error: SafeTensorError) -> Error {
    use SafeTensorError as E;
    let length = content.len();
    if let Some(what) = foreign::describe(&content[..length.min(foreign::PREFIX)]) {
        // A damaged file may still begin like a safetensors file.
        if !foreign::is_safetensors(content) {
            return Error::weights(file, convert::not_weights(file, content, what));
        }
    }
    if let Some(expected) = expected_length(content).filter(|&expected| expected > length) {
        let reason = format!("is truncated: it has {length} of {expected} bytes. Download or copy it again");
        return Error::weights(file, reason);
    }
    let reason = match error {
        E::HeaderTooSmall => format!("is truncated: {length} bytes are too few for a safetensors file"),
        E::InvalidHeaderLength => {
            format!("its header exceeds the file's {length} bytes: truncated, or not a safetensors file")
        }
        E::HeaderTooLarge => "its header is larger than 100 MB: not a safetensors file".into(),
        E::InvalidHeader(error) => format!("its header is not UTF-8: {error}"),
        E::InvalidHeaderDeserialization(error) => format!("its header is wrong: {error}"),
        E::InvalidOffset(tensor) => {
            return Error::tensor(file, tensor, "overlaps another tensor, or leaves a gap before it");
        }
        E::TensorInvalidInfo => {
            "its header gives a tensor a byte range that does not fit its shape and dtype".into()
        }
        E::ValidationOverflow => "its header gives a tensor a shape whose size overflows".into(),
        E::MetadataIncompleteBuffer => {
            format!("its tensors do not end at its {length} bytes: truncated, or data was appended")
        }
        other => other.to_string(),
    };
    Error::weights(file, reason)
}

/// Returns the file length that the header of a safetensors file requires, as far as it can be read.
fn expected_length(content: &[u8]) -> Option<usize> {
    /// Maximum length of a header that the safetensors crate reads.
    const LARGEST_HEADER: usize = 100_000_000;
    let (&length, rest) = content.split_first_chunk()?;
    let header = usize::try_from(u64::from_le_bytes(length)).ok()?;
    if header > LARGEST_HEADER || rest.first() != Some(&b'{') {
        return None;
    }
    let Some(json) = rest.get(..header) else {
        return Some(size_of::<u64>() + header);
    };
    let tensors: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(json).ok()?;
    let end =
        |tensor: &serde_json::Value| usize::try_from(tensor.get("data_offsets")?.get(1)?.as_u64()?).ok();
    let data = tensors.values().filter_map(end).max()?;
    (size_of::<u64>() + header).checked_add(data)
}
