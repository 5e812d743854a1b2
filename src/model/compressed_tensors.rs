//! Models in 8 bits, as the library compressed-tensors (llm-compressor) writes them and transformers reads them.
//! <https://github.com/vllm-project/compressed-tensors>
//!
//! `config.json` has a `quantization_config`. Each quantised `….weight` (I8 or F8_E4M3) has its scales in
//! `….weight_scale`.
//!
//! - Formats: `int-quantized`, `float-quantized` and `naive-quantized` are read. `sparse-24-bitmask` is read for
//!   weights in 8 bits and others ([`sparse`]). The function `config` returns the configuration that is written.
//! - Weights stay in 8 bits if they are symmetric, with a scale for each output channel or one for all. Other weights
//!   are dequantised when the model is loaded.
//! - Inputs of linear layers whose weights stay in 8 bits are quantised as the file says. FP8 inputs with a dynamic
//!   range stay in full precision, unless the range is that of each token.

mod sparse;
mod target;
mod weight;

use std::collections::BTreeMap;
use std::fmt;

use safetensors::Dtype;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::fields::Fields;
use crate::error::Result;
use crate::ops::Levels;
pub use sparse::Sparsity;
pub(super) use sparse::{pack, unpack};
use target::Target;
pub(super) use weight::load;

/// Key in `config.json`.
pub(super) const KEY: &str = "quantization_config";
const METHOD: &str = "compressed-tensors";
const INT: &str = "int-quantized";
const FLOAT: &str = "float-quantized";
const NAIVE: &str = "naive-quantized";
/// Format of a model whose groups have different formats.
const MIXED: &str = "mixed-precision";

/// Returns the name of the scales of the weight `weight`.
pub(super) fn scale_name(weight: &str) -> String {
    format!("{weight}_scale")
}

/// Returns the name of the scale of the input of the layer with the weight `weight`.
pub(super) fn input_scale_name(weight: &str) -> String {
    let layer = weight.strip_suffix(".weight").unwrap_or(weight);
    format!("{layer}.input_scale")
}

/// Quantisation of a model's weights as stored, and as loaded.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Quantization {
    /// Name of the format of weights in 8 bits in the file. Empty if there are none.
    pub format: String,
    /// Number of int8 weights whose layers round their inputs to 8 bits.
    pub int8: usize,
    /// Number of int8 weights that are multiplied in full precision.
    pub int8_weights: usize,
    /// Number of FP8 weights whose layers round their inputs to FP8.
    pub float8: usize,
    /// Number of FP8 weights that are multiplied in full precision.
    pub float8_weights: usize,
    /// Number of weights that were dequantised when the model was loaded. They take the memory of full precision.
    pub dequantized: usize,
    /// Number of bf16 weights whose layers round their inputs to bf16 on the CPU, whatever dtype other layers compute
    /// in.
    pub bf16: usize,
}

impl fmt::Display for Quantization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        if !self.format.is_empty() {
            write!(f, "{}:", self.format)?;
            separator = " ";
        }
        for (count, what) in [
            (self.int8, "weights in int8, multiplied in int8"),
            (self.int8_weights, "weights in int8, multiplied in full precision"),
            (self.float8, "weights in FP8, multiplied in FP8"),
            (
                self.float8_weights,
                "weights in FP8, multiplied in full precision",
            ),
            (
                self.dequantized,
                "weights of 8 bits dequantised at load: memory and speed of full precision",
            ),
            (self.bf16, "weights in bf16, multiplied in bf16 on the CPU"),
        ] {
            if count > 0 {
                write!(f, "{separator}{count} {what}")?;
                separator = "; ";
            }
        }
        Ok(())
    }
}

/// Quantisation scheme of a model.
#[derive(Debug)]
pub(super) struct Scheme {
    pub(super) format: String,
    /// True if weights are packed because of 2:4 sparsity.
    pub(super) packed: bool,
    groups: Vec<Group>,
    ignore: Vec<Target>,
}

/// Layers with the same quantisation.
#[derive(Debug)]
struct Group {
    targets: Vec<Target>,
    kind: Kind,
    scales: Scales,
    inputs: Inputs,
}

/// Type of the stored weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Int8 { symmetric: bool },
    Float8,
}

impl Kind {
    fn dtype(self) -> Dtype {
        match self {
            Self::Int8 { .. } => Dtype::I8,
            Self::Float8 => Dtype::F8_E4M3,
        }
    }
}

/// Elements of a weight that share a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scales {
    Tensor,
    Channel,
    /// Groups of this many elements of a row.
    Group(usize),
    /// Blocks of rows and columns.
    Block([usize; 2]),
}

/// Quantisation of the inputs of linear layers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Inputs {
    Full,
    /// In int8, with the range of each token.
    Dynamic(Levels),
    /// In int8, with the layer's scale and, unless symmetric, its zero point.
    Static {
        symmetric: bool,
    },
    /// In FP8, with the layer's scale.
    StaticFloat8,
    /// In FP8, with the range of each token.
    DynamicFloat8,
}

impl Scheme {
    /// Returns the group of the layer `name`, whose weight is stored as `dtype`. Returns `None` if no target matches.
    ///
    /// Groups of another type are ignored. Their patterns may refer to the names of modules, which can differ from
    /// those of tensors.
    fn group(&self, name: &str, dtype: Dtype) -> Option<&Group> {
        let groups: Vec<&Group> = self
            .groups
            .iter()
            .filter(|group| group.kind.dtype() == dtype)
            .collect();
        let targets = || groups.iter().flat_map(|group| &group.targets);
        // As in compressed-tensors, names precede patterns, and patterns precede classes. Each kind is in the order of
        // its text.
        let exact = targets().find(|target| target.is_name(name));
        let pattern = || targets().filter(|target| target.is_pattern_of(name)).min();
        let class = || targets().filter(|target| target.is_class()).min();
        let best = exact.or_else(pattern).or_else(class);
        match best {
            // The last group with this target counts.
            Some(best) => groups.into_iter().rfind(|group| group.targets.contains(best)),
            None => match groups.as_slice() {
                [only] => Some(only),
                _ => None,
            },
        }
    }

    /// Returns true if the configuration says that the layer `name` is not quantised.
    fn ignores(&self, name: &str) -> bool {
        let is = |target: &Target| target.is_name(name) || target.is_pattern_of(name) || target.is_class();
        self.ignore.iter().any(is)
    }
}

/// Returns an error unless the value of `key` is one of `expected`. An absent key counts as the empty string.
fn expect(fields: &Fields<'_>, key: &str, expected: &[&str]) -> Result<()> {
    match fields.get(key) {
        Some(Value::String(text)) if expected.contains(&text.as_str()) => Ok(()),
        None if expected.contains(&"") => Ok(()),
        value => Err(unsupported(fields, key, value)),
    }
}

fn unsupported(fields: &Fields<'_>, key: &str, value: Option<&Value>) -> crate::Error {
    let shown: String = value
        .unwrap_or(&Value::Null)
        .to_string()
        .chars()
        .take(60)
        .collect();
    fields.error(
        key,
        format_args!("is {shown}: only {METHOD}' formats {INT}, {FLOAT} and {NAIVE} in 8 bits are read"),
    )
}

/// Reads the scheme that `config` states, if there is one.
///
/// # Errors
///
/// Returns [`Error::Config`](crate::Error::Config) for a value that is not supported.
pub(super) fn scheme(config: Fields<'_>) -> Result<Option<Scheme>> {
    let Some(fields) = config.object(KEY)? else {
        return Ok(None);
    };
    expect(&fields, "quant_method", &[METHOD])?;
    let packed = sparse::is_packed(&fields)?;
    if !packed || fields.has("config_groups") {
        expect(&fields, "format", &[INT, FLOAT, NAIVE, MIXED])?;
    }
    expect(&fields, "quantization_status", &["", "compressed"])?;
    for key in ["kv_cache_scheme", "transform_config", "moe_sparsity_config"] {
        let object = fields.object_or_empty(key)?;
        if object.keys().next().is_some() {
            return Err(unsupported(&fields, key, fields.get(key)));
        }
    }
    let groups = fields.object_or_empty("config_groups")?;
    let groups = groups.keys().map(|name| {
        let preset = matches!(groups.get(name), Some(Value::Array(_)));
        if preset {
            Err(groups.error(
                name,
                "is the name of a scheme, but only the scheme itself is supported",
            ))
        } else {
            group(groups.object_or_empty(name)?)
        }
    });
    let groups = groups.collect::<Result<Vec<_>>>()?;
    if groups.is_empty() && !packed {
        return Err(fields.error("config_groups", "has no group"));
    }
    Ok(Some(Scheme {
        format: fields.text("format")?.unwrap_or_default().to_owned(),
        packed,
        groups,
        ignore: target::list(&fields, "ignore")?,
    }))
}

fn group(fields: Fields<'_>) -> Result<Group> {
    expect(&fields, "format", &["", INT, FLOAT, NAIVE])?;
    if fields.get("output_activations").is_some() {
        return Err(fields.error(
            "output_activations",
            "asks for results of linear layers in 8 bits, in which attention is not computed: quantise the model again without it",
        ));
    }
    let weights = fields.object_or_empty("weights")?;
    let float = is_float8(&weights)?;
    let symmetric = weights.flag("symmetric")?.unwrap_or(true);
    if float && !symmetric || weights.flag("dynamic")?.unwrap_or(false) {
        let key = if symmetric { "dynamic" } else { "symmetric" };
        return Err(unsupported(&weights, key, weights.get(key)));
    }
    let scales = match weights.text("strategy")? {
        None | Some("tensor") => Scales::Tensor,
        Some("channel") => Scales::Channel,
        Some("group") => Scales::Group(weights.size("group_size")?.unwrap_or(1)),
        Some("block") => Scales::Block(weights.extent("block_structure")?.unwrap_or([1, 1])),
        _ => return Err(unsupported(&weights, "strategy", weights.get("strategy"))),
    };
    let inputs = match fields.object("input_activations")? {
        None => Inputs::Full,
        Some(inputs) => input_activations(&inputs, float)?,
    };
    Ok(Group {
        targets: target::list(&fields, "targets")?,
        kind: if float {
            Kind::Float8
        } else {
            Kind::Int8 { symmetric }
        },
        scales,
        inputs,
    })
}

/// Returns true for 8-bit floating-point numbers, false for 8-bit integers.
fn is_float8(fields: &Fields<'_>) -> Result<bool> {
    if fields.count("num_bits")?.unwrap_or(8) != 8 {
        return Err(unsupported(fields, "num_bits", fields.get("num_bits")));
    }
    match fields.text("type")? {
        None | Some("int") => Ok(false),
        Some("float") => Ok(true),
        Some(_) => Err(unsupported(fields, "type", fields.get("type"))),
    }
}

fn input_activations(fields: &Fields<'_>, float_weights: bool) -> Result<Inputs> {
    let dynamic = fields.flag("dynamic")?.unwrap_or(false);
    if is_float8(fields)? {
        return match (dynamic, fields.text("strategy")?.unwrap_or("tensor")) {
            (false, "tensor") => Ok(Inputs::StaticFloat8),
            (true, "token") => Ok(Inputs::DynamicFloat8),
            // The range is of a whole batch or of a part of a token. Full precision is closer to the original model.
            (true, _) => Ok(Inputs::Full),
            (false, _) => Err(unsupported(fields, "strategy", fields.get("strategy"))),
        };
    }
    if float_weights {
        return Err(unsupported(fields, "type", fields.get("type")));
    }
    let symmetric = fields.flag("symmetric")?.unwrap_or(true);
    let strategy = fields.text("strategy")?.unwrap_or("tensor");
    match (dynamic, strategy) {
        (true, "token") if symmetric => Ok(Inputs::Dynamic(Levels::Magnitude)),
        (true, "token") => Ok(Inputs::Dynamic(Levels::Range)),
        (false, "tensor") => Ok(Inputs::Static { symmetric }),
        (dynamic, _) => {
            let key = if dynamic { "strategy" } else { "dynamic" };
            Err(unsupported(fields, key, fields.get(key)))
        }
    }
}

/// Format in which layers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// Int8 weights with a scale for each output channel. Inputs are in int8, with the range of each token.
    Int8,
    /// FP8 weights (E4M3) with a scale for each output channel. Inputs stay in full precision.
    Float8,
    /// FP8 weights with a scale for each output channel. Inputs are in FP8, with a scale for each token.
    Float8Dynamic,
    /// FP8 weights with one scale each. Inputs are in FP8, with a scale for each layer.
    Float8Activations,
    /// Not quantised.
    Full,
}

/// Adds to a `quantization_config` that the weights of all linear layers are packed, except for those in `ignore`.
///
/// `zeros` is the share of the model's values that were pruned.
pub(super) fn add_sparsity(config: &mut Value, ignore: &[String], zeros: f64) {
    config[sparse::KEY] = sparse::config(ignore, zeros);
}

/// Returns a `quantization_config` that [`scheme`] reads.
///
/// With one format, it applies to all linear layers except for those in `ignore`. With several formats, each is a group
/// that names its layers, and the format is `mixed-precision`.
pub(super) fn config(formats: &BTreeMap<Format, Vec<String>>, ignore: &[String]) -> Value {
    let mut groups: Vec<(&str, Value)> = formats
        .iter()
        .filter_map(|(&format, layers)| {
            let (name, scheme) = group_config(format)?;
            Some((name, layers, scheme))
        })
        .map(|(name, layers, mut scheme)| {
            if formats.len() > 1 {
                scheme["targets"] = json!(layers);
                scheme["format"] = json!(name);
            }
            (name, scheme)
        })
        .collect();
    let name = match groups.as_slice() {
        [] => return json!({ "quant_method": METHOD }),
        [(first, _), others @ ..] if others.iter().all(|(name, _)| name == first) => *first,
        _ => MIXED,
    };
    let groups = groups.drain(..).enumerate();
    let groups: Map<String, Value> = groups
        .map(|(index, (_, scheme))| (format!("group_{index}"), scheme))
        .collect();
    json!({
        "quant_method": METHOD,
        "format": name,
        "quantization_status": "compressed",
        "kv_cache_scheme": null,
        "ignore": ignore,
        "config_groups": groups,
    })
}

/// Returns the name of a format, and the scheme of all linear layers. Returns `None` for layers that are not quantised.
fn group_config(format: Format) -> Option<(&'static str, Value)> {
    let (name, kind, strategy, activations) = match format {
        Format::Int8 => {
            let activations = json!({
                "num_bits": 8, "type": "int", "symmetric": false, "strategy": "token", "dynamic": true,
            });
            (INT, "int", "channel", activations)
        }
        Format::Float8 => (FLOAT, "float", "channel", Value::Null),
        Format::Float8Dynamic => {
            let activations = json!({
                "num_bits": 8, "type": "float", "symmetric": true, "strategy": "token", "dynamic": true,
            });
            (FLOAT, "float", "channel", activations)
        }
        Format::Full => return None,
        Format::Float8Activations => {
            let activations = json!({
                "num_bits": 8, "type": "float", "symmetric": true, "strategy": "tensor", "dynamic": false,
            });
            (FLOAT, "float", "tensor", activations)
        }
    };
    let scheme = json!({
        "targets": ["Linear"],
        "output_activations": null,
        "weights": {
            "num_bits": 8, "type": kind, "symmetric": true, "strategy": strategy, "dynamic": false,
        },
        "input_activations": activations,
    });
    Some((name, scheme))
}
