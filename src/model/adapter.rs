//! Merges LoRA adapters of peft (`adapter_config.json` and `adapter_model.safetensors`) into the weights when a model
//! is loaded.
//!
//! As in transformers' `from_pretrained`, an adapter in the local directory of a model is applied to that model. An
//! adapter alone, or one named as on the hub, is applied to the model in its `base_model_name_or_path`.
//!
//! The values equal those of peft's `merge_and_unload`, computed in f64 and rounded to f32. The module `config` handles
//! the keys of the configuration, and `merge` has the formulas.
//!
//! peft 0.21's forward pass and merge differ for one layer: the output projection of PyTorch's attention, if it is
//! adapted alone. The forward pass ignores the update, so training leaves it at zero. An update that is not zero is an
//! error.

pub(super) mod base;
mod config;
mod merge;

use std::collections::BTreeMap;
use std::path::Path;

use super::fields::Fields;
use super::file_names::{ADAPTER_CONFIG, ADAPTER_WEIGHTS};
use super::shell::shell;
use super::source::Source;
use super::stored::Stored;
use super::weights::Weights;
use super::{bf16_layers, compressed_tensors, renames};
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use base::merge_command;
use config::Config;
use merge::{Factors, Rows};

const PYTORCH_WEIGHTS: &str = "adapter_model.bin";
/// Python program that converts the PyTorch file of an adapter to `adapter_model.safetensors`. Arguments: the file, the
/// output file.
const CONVERT: &str = "import sys, torch; from safetensors.torch import save_file; save_file({k: v.clone().contiguous() for k, v in \
                       torch.load(sys.argv[1], map_location=\"cpu\", weights_only=True).items()}, sys.argv[2])";

/// An opened adapter.
#[derive(Debug)]
pub(super) struct Adapter {
    config: Config,
    weights: Weights,
    /// Name of the base model in the adapter's configuration.
    base: String,
}

/// Tensors of an adapter by their purpose.
#[derive(Default)]
struct Tensors<'a> {
    /// Adapted layers, by module.
    layers: BTreeMap<String, Layer>,
    /// Tensors that replace the model's.
    replaced: BTreeMap<String, &'a Stored>,
}

/// Tensors of the adapter of one layer.
#[derive(Debug, Default)]
struct Layer {
    parts: BTreeMap<Part, Tensor>,
}

/// Role of a tensor in the adapter of its layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    A,
    B,
    BiasOfB,
    EmbeddingA,
    EmbeddingB,
    Magnitude,
}

/// Suffixes of tensor names by [`Part`]. Early releases of peft stored a magnitude as a layer's weight.
const PARTS: [(&str, Part); 7] = [
    (".lora_A.weight", Part::A),
    (".lora_B.weight", Part::B),
    (".lora_B.bias", Part::BiasOfB),
    (".lora_embedding_A", Part::EmbeddingA),
    (".lora_embedding_B", Part::EmbeddingB),
    (".lora_magnitude_vector", Part::Magnitude),
    (".lora_magnitude_vector.weight", Part::Magnitude),
];

impl Adapter {
    /// Opens the adapter of a model, if it has one.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Config`] for a key that is not supported or weights that are missing, and the errors of
    /// [`Weights::map`].
    pub(super) fn open(source: &Source<'_>) -> Result<Option<Self>> {
        if let Source::Bytes(_) = source {
            return Ok(None);
        }
        let Some(document) = source.json(ADAPTER_CONFIG)? else {
            return Ok(None);
        };
        let fields = document.fields()?;
        let directory = document.file.parent().unwrap_or(Path::new("."));
        let config = Config::new(fields).map_err(|error| match error {
            Error::Config { file, reason } => {
                let merge = merge_command(fields, directory);
                Error::config(
                    file,
                    format!("{reason}. Merge the adapter first, with Python: {merge}"),
                )
            }
            other => other,
        })?;
        let file = source.place(ADAPTER_WEIGHTS);
        if !file.exists() {
            let pickled = source.place(PYTORCH_WEIGHTS);
            let reason = if pickled.exists() {
                format!(
                    "its weights are in PyTorch's format only ({PYTORCH_WEIGHTS}). Convert them with Python, torch and safetensors: \
                     python3 -c '{CONVERT}' {} {}",
                    shell(&pickled),
                    shell(&file)
                )
            } else {
                format!(
                    "{ADAPTER_WEIGHTS} is missing in its directory. To use the base model alone, move {ADAPTER_CONFIG} elsewhere"
                )
            };
            return Err(Error::config(&document.file, reason));
        }
        let mut weights = Weights::new(&file);
        weights.map(&file)?;
        let base = fields
            .text("base_model_name_or_path")?
            .unwrap_or_default()
            .to_owned();
        Ok(Some(Self {
            config,
            weights,
            base,
        }))
    }

    /// Merges the adapter into the weights of the model that `model` describes.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Config`] if the model is quantised. Returns [`Error::Tensor`] for a tensor of the adapter that
    /// has no counterpart in the model, or whose shape does not match.
    pub(super) fn merge(&self, model: Fields<'_>, weights: &mut Weights) -> Result<()> {
        let quantized = [compressed_tensors::KEY, bf16_layers::KEY];
        if let Some(key) = quantized.into_iter().find(|key| model.get(key).is_some()) {
            let reason = format!(
                "the adapter cannot be merged into a quantised model (`{key}` in {}). Merge it into the original model, then quantise \
                 that: hipvit quantize",
                model.file().display()
            );
            return Err(Error::config(&self.config.file, reason));
        }
        let Tensors { layers, replaced } = self.tensors()?;
        if layers.is_empty() && replaced.is_empty() {
            return Err(Error::weights(self.weights.place(), "has no tensor"));
        }
        for (module, layer) in &layers {
            let times = match module.strip_suffix(".out_proj") {
                // peft 0.21 adds the update of the output projection of PyTorch's attention twice, in training too.
                Some(attention) if layers.contains_key(attention) => 2.0,
                Some(attention) if is_pytorch_attention(attention, weights) => {
                    self.check_output_projection(module, layer)?;
                    1.0
                }
                _ => 1.0,
            };
            self.merge_layer(module, layer, times, weights)?;
        }
        for (name, stored) in &replaced {
            self.replace(name, stored, weights)?;
        }
        let base = if self.base.is_empty() {
            String::new()
        } else {
            format!(" of {}", self.base)
        };
        weights.adapter = Some(format!(
            "LoRA adapter{base}: merged into {} layers, {} tensors replaced",
            layers.len(),
            replaced.len()
        ));
        Ok(())
    }

    /// Sorts the tensors by their names.
    fn tensors(&self) -> Result<Tensors<'_>> {
        let mut sorted = Tensors::default();
        for (stored_name, stored) in self.weights.tensors() {
            let name = stored_name
                .strip_prefix("base_model.model.")
                .unwrap_or(stored_name);
            // An adapted layer is nested as `base_layer` in its adapter, which has the layer's name.
            let parts: Vec<&str> = name.split('.').filter(|part| *part != "base_layer").collect();
            let name = parts.join(".");
            let part = PARTS
                .iter()
                .find_map(|(end, part)| Some((name.strip_suffix(end)?, *part)));
            let twice = match part {
                Some((module, part)) => {
                    let layer = sorted.layers.entry(module.to_owned()).or_default();
                    layer.parts.insert(part, stored.tensor(stored_name)?).is_some()
                }
                None if self.config.replaces(&name) => sorted.replaced.insert(name, stored).is_some(),
                None => {
                    let reason = "is unexpected: it is not part of a LoRA layer, not a bias that `bias` says was trained, and not in a module of \
                                  `modules_to_save`";
                    return Err(Error::tensor(&stored.file, stored_name, reason));
                }
            };
            if twice {
                let reason = "occurs twice: only one parameter of a module can have an adapter";
                return Err(Error::tensor(&stored.file, stored_name, reason));
            }
        }
        Ok(sorted)
    }

    /// Returns an error about a layer's adapter.
    fn wrong(&self, module: &str, reason: impl std::fmt::Display) -> Error {
        Error::tensor(self.weights.place(), module, reason)
    }

    /// Returns an error if only the output projection of PyTorch's attention has an update, other than zero. The
    /// forward pass of peft ignores the update, but `merge_and_unload` applies it.
    fn check_output_projection(&self, module: &str, layer: &Layer) -> Result<()> {
        let is_zero = |part: Part| {
            let tensor = layer.parts.get(&part);
            tensor.is_none_or(|tensor| tensor.to_f32().iter().all(|&value| value == 0.0))
        };
        if is_zero(Part::B) && is_zero(Part::BiasOfB) {
            return Ok(());
        }
        let reason = "has an update that peft applies when it merges, and ignores in the forward pass: PyTorch's attention reads the \
                      weight itself. Merge the adapter first with `merge_and_unload`, or remove the layer's tensors from it";
        Err(self.wrong(module, reason))
    }

    fn merge_layer(&self, module: &str, layer: &Layer, times: f64, weights: &mut Weights) -> Result<()> {
        if !self.config.targets(module)? {
            let reason = format!("has tensors, but `target_modules` of {ADAPTER_CONFIG} does not name it");
            return Err(self.wrong(module, reason));
        }
        let Some((name, part)) = place(module, weights) else {
            return Err(self.wrong(module, "matches no module of the model that has weights"));
        };
        let stored = &weights.tensors()[&name];
        let base = stored.tensor(&name)?;
        let rows = rows(part, base.shape());
        let mut factors = self.factors(module, layer, base.shape(), &rows)?;
        factors.scaling *= times;
        let merged = merge::merge(&base, &rows, &factors);
        let bytes = merged.iter().flat_map(|value| value.to_le_bytes()).collect();
        weights.replace(&name, safetensors::Dtype::F32, bytes);
        match layer.parts.get(&Part::BiasOfB) {
            Some(bias) => self.add_bias(module, &name, part, (bias, factors.scaling), weights),
            None => Ok(()),
        }
    }

    /// Returns the layer's factors, checked against the shape of the weight.
    fn factors(&self, module: &str, layer: &Layer, shape: &[usize], rows: &Rows) -> Result<Factors> {
        let part = |part| layer.parts.get(&part);
        let embedding = part(Part::EmbeddingA).is_some();
        let pair = if embedding {
            part(Part::EmbeddingA).zip(part(Part::EmbeddingB))
        } else {
            part(Part::A).zip(part(Part::B))
        };
        let Some((a, b)) = pair else {
            return Err(self.wrong(module, "has only one of lora_A and lora_B"));
        };
        let rank = a.shape().first().copied().unwrap_or_default();
        let (r, scaling) = self.config.scaling(module)?;
        if rank != r || rank == 0 {
            let reason = format!(
                "has rank {rank} (lora_A is {:?}), but {ADAPTER_CONFIG} says {r}",
                a.shape()
            );
            return Err(self.wrong(module, reason));
        }
        let outputs = rows.count;
        let of_row = shape.get(1..).unwrap_or_default();
        let inputs = of_row.iter().product::<usize>();
        let fits = if embedding {
            a.shape() == [rank, outputs] && b.shape() == [inputs, rank] && shape.len() == 2
        } else {
            let of_conv = shape.len() == 4 && b.shape() == [outputs, rank, 1, 1];
            a.shape().get(1..) == Some(of_row) && (of_conv || b.shape() == [outputs, rank])
        };
        if !fits {
            let reason = format!(
                "has lora_A {:?} and lora_B {:?}, which do not fit the model's weight {shape:?}",
                a.shape(),
                b.shape()
            );
            return Err(self.wrong(module, reason));
        }
        let magnitude = match (part(Part::Magnitude), self.config.dora) {
            (Some(magnitude), true) => {
                let expected = if embedding { inputs } else { outputs };
                if magnitude.len() != expected {
                    let reason = format!("has {} magnitudes, expected {expected}", magnitude.len());
                    return Err(self.wrong(module, reason));
                }
                Some(magnitude.to_f32().into_owned())
            }
            (None, false) => None,
            (found, _) => {
                let reason = match found {
                    Some(_) => {
                        format!("has a lora_magnitude_vector, but `use_dora` of {ADAPTER_CONFIG} is not true")
                    }
                    None => {
                        format!("has no lora_magnitude_vector, but `use_dora` of {ADAPTER_CONFIG} is true")
                    }
                };
                return Err(self.wrong(module, reason));
            }
        };
        Ok(Factors::new(a, b, embedding, scaling, magnitude))
    }

    /// Adds a bias of lora_B to the layer's bias.
    fn add_bias(
        &self,
        module: &str,
        weight: &str,
        part: Packed,
        (bias, scaling): (&Tensor, f64),
        weights: &mut Weights,
    ) -> Result<()> {
        let name = match weight.strip_suffix("weight") {
            Some(layer) => format!("{layer}bias"),
            None => return Err(self.wrong(module, "has a bias, but does not belong to a layer")),
        };
        let Some(stored) = weights.tensors().get(&name) else {
            return Err(self.wrong(module, "has a bias (`lora_bias`), but the model's layer has none"));
        };
        let base = stored.tensor(&name)?;
        let rows = rows(part, base.shape());
        if rows.count != bias.len() {
            let reason = format!(
                "has a bias of {} values, but the model's has {}",
                bias.len(),
                rows.count
            );
            return Err(self.wrong(module, reason));
        }
        let mut values = base.to_f32().into_owned();
        for (value, added) in values[rows.start..].iter_mut().zip(&*bias.to_f32()) {
            *value = (f64::from(*value) + scaling * f64::from(*added)) as f32;
        }
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        weights.replace(&name, safetensors::Dtype::F32, bytes);
        Ok(())
    }

    /// Replaces a tensor of the model: a bias, or a tensor of a module that was trained as a whole.
    fn replace(&self, name: &str, stored: &Stored, weights: &mut Weights) -> Result<()> {
        let found = renames::find(name, |other| weights.shape(other).is_some());
        let Some(found) = found else {
            let reason = format!(
                "has no place in the model: the class in its config.json has no such module. If the adapter was trained with a new head, \
                 merge it in Python into a model that has this head: {}",
                self.merge_with_head(stored)
            );
            return Err(self.wrong(name, reason));
        };
        let shape = weights.shape(&found).unwrap_or_default().to_vec();
        if shape != stored.shape {
            let reason = format!(
                "has shape {:?}, but the model's has {shape:?}. If the adapter was trained for other classes, merge it in Python into a \
                 model that has them: {}",
                stored.shape,
                self.merge_with_head(stored)
            );
            return Err(self.wrong(name, reason));
        }
        let values = stored.tensor(name)?.to_f32().into_owned();
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        weights.replace(&found, safetensors::Dtype::F32, bytes);
        Ok(())
    }

    /// Returns Python code that loads the base model with another head, which has as many rows as `head`.
    fn merge_with_head(&self, head: &Stored) -> String {
        format!(
            "PeftModel.from_pretrained(AutoModelForImageClassification.from_pretrained({:?}, num_labels={}, \
             ignore_mismatched_sizes=True), {:?}).merge_and_unload().save_pretrained(\"merged\")",
            self.base,
            head.shape.first().copied().unwrap_or_default(),
            self.config.file.parent().unwrap_or(Path::new("."))
        )
    }
}

/// Rows of a tensor that belong to a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packed {
    All,
    FirstHalf,
    SecondHalf,
}

fn rows(part: Packed, shape: &[usize]) -> Rows {
    let all = shape.first().copied().unwrap_or(1);
    match part {
        Packed::All => Rows { start: 0, count: all },
        Packed::FirstHalf => Rows {
            start: 0,
            count: all / 2,
        },
        Packed::SecondHalf => Rows {
            start: all / 2,
            count: all - all / 2,
        },
    }
}

/// Returns true if the module is PyTorch's `MultiheadAttention`, which stores the weights of its projections in one
/// parameter.
fn is_pytorch_attention(module: &str, weights: &Weights) -> bool {
    place(module, weights).is_some_and(|(name, _)| name.ends_with("in_proj_weight"))
}

/// Returns the tensor of the model that contains a module's weight, and the part of it.
fn place(module: &str, weights: &Weights) -> Option<(String, Packed)> {
    let find = |name: &str| renames::find(name, |other| weights.shape(other).is_some());
    let whole = |end: &str| Some((find(&format!("{module}.{end}"))?, Packed::All));
    // PyTorch's attention stores the weights of its projections in one parameter.
    whole("weight").or_else(|| whole("in_proj_weight")).or_else(|| {
        // DINOv2's files store gate and value of SwiGLU in one layer, in this order.
        let halves = [("gate_proj", Packed::FirstHalf), ("up_proj", Packed::SecondHalf)];
        halves.into_iter().find_map(|(end, half)| {
            let mlp = module.strip_suffix(end)?;
            Some((find(&format!("{mlp}weights_in.weight"))?, half))
        })
    })
}
