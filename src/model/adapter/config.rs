//! Reads `adapter_config.json`. A key that changes results is either supported, or an error unless it has its default.

use std::path::{Path, PathBuf};

use fancy_regex::Regex;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::model::fields::Fields;

/// Keys that are read here or in `adapter.rs`.
const FOLLOWED: &[&str] = &[
    "alpha_pattern",
    "auto_mapping",
    "base_model_name_or_path",
    "bias",
    "init_lora_weights",
    "lora_alpha",
    "lora_bias",
    "modules_to_save",
    "peft_type",
    "r",
    "rank_pattern",
    "revision",
    "target_modules",
    "target_parameters",
    "use_dora",
    "use_rslora",
];

/// Keys without effect once an adapter is trained. Its tensors determine which layers are adapted.
const WITHOUT_EFFECT: &[&str] = &[
    "corda_config",
    "ensure_weight_tying",
    "eva_config",
    "exclude_modules",
    // peft sets this key itself for linear layers, embeddings and convolutions.
    "fan_in_fan_out",
    "inference_mode",
    "layers_pattern",
    "layers_to_transform",
    "loftq_config",
    "lora_dropout",
    "lora_ga_config",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "runtime_config",
    "task_type",
];

/// Initialisations that also change the weights of the base model, whenever peft loads the adapter.
const CHANGES_BASE: &[&str] = &["pissa", "olora", "loftq", "corda"];

/// Configuration of a LoRA adapter.
#[derive(Debug)]
pub(super) struct Config {
    /// Path of the configuration file, for errors.
    pub(super) file: PathBuf,
    rank: usize,
    alpha: f64,
    ranks: Vec<(Regex, usize)>,
    alphas: Vec<(Regex, f64)>,
    rank_stabilized: bool,
    pub(super) dora: bool,
    biases: bool,
    saved: Vec<String>,
    targets: Option<Targets>,
    parameters: Vec<String>,
}

/// Modules that were adapted.
#[derive(Debug)]
enum Targets {
    /// Modules whose name is, or ends with, one of these names.
    Names(Vec<String>),
    /// Modules whose name matches the pattern.
    Pattern(Regex),
}

/// Returns an error if the adapter is not a LoRA adapter.
pub(super) fn check_type(fields: Fields<'_>) -> Result<()> {
    match fields.text("peft_type")? {
        Some("LORA") => Ok(()),
        Some(other) => Err(fields.error(
            "peft_type",
            format_args!("is \"{other}\": of peft's adapters only LORA is supported"),
        )),
        None => Err(fields.error("peft_type", "is missing, so the type of the adapter is unknown")),
    }
}

impl Config {
    /// Reads the keys.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Config`] for a key that has an unexpected value or is not supported.
    pub(super) fn new(fields: Fields<'_>) -> Result<Self> {
        check_type(fields)?;
        let mut keys = fields.keys();
        let unknown =
            |key: &&str| !FOLLOWED.contains(key) && !WITHOUT_EFFECT.contains(key) && is_set(fields.get(key));
        if let Some(key) = keys.find(unknown) {
            return Err(fields.error(key, "is not supported in a LoRA adapter"));
        }
        if let Some(Value::String(init)) = fields.get("init_lora_weights")
            && CHANGES_BASE
                .iter()
                .any(|name| init.to_lowercase().starts_with(name))
        {
            let reason =
                format_args!("is \"{init}\", which changes the base model's weights: it is not supported");
            return Err(fields.error("init_lora_weights", reason));
        }
        let biases = match fields.text("bias")? {
            None | Some("none") => false,
            Some("all" | "lora_only") => true,
            Some(other) => {
                let reason = format_args!("is \"{other}\", expected none, all or lora_only");
                return Err(fields.error("bias", reason));
            }
        };
        let ranks = fields.object_or_empty("rank_pattern")?;
        let alphas = fields.object_or_empty("alpha_pattern")?;
        Ok(Self {
            file: fields.file().to_owned(),
            rank: fields.count("r")?.unwrap_or(8),
            alpha: fields.number("lora_alpha")?.unwrap_or(8.0),
            ranks: patterns(ranks, |key| ranks.count(key))?,
            alphas: patterns(alphas, |key| alphas.number(key))?,
            rank_stabilized: fields.flag("use_rslora")?.unwrap_or(false),
            dora: fields.flag("use_dora")?.unwrap_or(false),
            biases,
            saved: names(fields, "modules_to_save")?,
            targets: targets(fields)?,
            parameters: names(fields, "target_parameters")?,
        })
    }

    /// Returns true if a tensor with this name replaces the model's.
    pub(super) fn replaces(&self, name: &str) -> bool {
        let path = format!(".{name}");
        let is_saved = self
            .saved
            .iter()
            .any(|module| path.contains(&format!(".{module}.")));
        is_saved || self.biases && name.ends_with("bias")
    }

    /// Returns true if the configuration says that the module was adapted.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Config`] if the pattern of `target_modules` takes too many steps.
    pub(super) fn targets(&self, module: &str) -> Result<bool> {
        let is = |name: &str| module == name || module.ends_with(&format!(".{name}"));
        let parameters = self.parameters.iter();
        let mut owners = parameters.filter_map(|parameter| Some(parameter.rsplit_once('.')?.0));
        let is_target = match &self.targets {
            None => self.parameters.is_empty(),
            Some(Targets::Names(names)) => names.iter().any(|name| is(name)),
            Some(Targets::Pattern(pattern)) => matches(&self.file, "target_modules", pattern, module)?,
        };
        if is_target || owners.any(is) {
            return Ok(true);
        }
        // PyTorch's attention has its output projection as a separate module, which peft adapts together with it.
        match module.strip_suffix(".out_proj") {
            Some(attention) => self.targets(attention),
            None => Ok(false),
        }
    }

    /// Returns the module's rank and the factor of its update.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Config`] if two matching patterns have different values, or if a pattern takes too many steps.
    pub(super) fn scaling(&self, module: &str) -> Result<(usize, f64)> {
        let rank = matching(&self.file, &self.ranks, module, "rank_pattern")?.unwrap_or(self.rank);
        let alpha = matching(&self.file, &self.alphas, module, "alpha_pattern")?.unwrap_or(self.alpha);
        let divisor = if self.rank_stabilized {
            (rank as f64).sqrt()
        } else {
            rank as f64
        };
        Ok((rank, alpha / divisor))
    }
}

/// Returns true unless the value is one with which peft turns a feature off.
fn is_set(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::Array(list)) => !list.is_empty(),
        Some(Value::Object(map)) => !map.is_empty(),
        Some(_) => true,
    }
}

/// Reads a list of names, or one name. Returns an empty list if there is none.
fn names(fields: Fields<'_>, key: &str) -> Result<Vec<String>> {
    match fields.get(key) {
        None => Ok(Vec::new()),
        Some(Value::String(name)) => Ok(vec![name.clone()]),
        Some(Value::Array(list)) => {
            let name = |value: &Value| match value.as_str() {
                Some(name) => Ok(name.to_owned()),
                None => Err(fields.unexpected(key, value, "a list of strings")),
            };
            list.iter().map(name).collect()
        }
        Some(other) => Err(fields.unexpected(key, other, "a list of strings")),
    }
}

/// Reads the modules that were adapted. Returns `None` if the configuration leaves them to the model or names none.
fn targets(fields: Fields<'_>) -> Result<Option<Targets>> {
    const KEY: &str = "target_modules";
    match fields.get(KEY) {
        Some(Value::String(text)) if text.eq_ignore_ascii_case("all-linear") => Ok(None),
        Some(Value::String(pattern)) => {
            let pattern = regex(fields, KEY, &format!("^(?:{pattern})$"))?;
            Ok(Some(Targets::Pattern(pattern)))
        }
        _ => {
            let names = names(fields, KEY)?;
            Ok((!names.is_empty()).then_some(Targets::Names(names)))
        }
    }
}

/// Reads the patterns of a map. A pattern matches the end of a module's name, beginning after a dot or at its start.
fn patterns<'a, T>(map: Fields<'a>, value: impl Fn(&'a str) -> Result<Option<T>>) -> Result<Vec<(Regex, T)>> {
    let entry = |key: &'a str| match value(key)? {
        Some(value) => Ok((regex(map, key, &format!(r"^(?:.*\.)?(?:{key})$"))?, value)),
        None => Err(map.error(key, "is null")),
    };
    map.keys().map(entry).collect()
}

fn regex(fields: Fields<'_>, key: &str, pattern: &str) -> Result<Regex> {
    Regex::new(pattern)
        .map_err(|error| fields.error(key, format_args!("has a pattern that is not supported: {error}")))
}

/// Returns true if the pattern of `key` matches the module.
fn matches(file: &Path, key: &str, pattern: &Regex, module: &str) -> Result<bool> {
    pattern.is_match(module).map_err(|error| {
        let pattern = pattern.as_str();
        let reason =
            format!("`{key}` has the pattern {pattern}, which fails on {module}: {error}. Simplify it");
        Error::config(file, reason)
    })
}

/// Returns the value of the patterns that match. peft uses the first in the file's order, which is not known here.
fn matching<T: Copy + PartialEq>(
    file: &Path,
    patterns: &[(Regex, T)],
    module: &str,
    key: &str,
) -> Result<Option<T>> {
    let mut found: Option<T> = None;
    for (pattern, value) in patterns {
        if !matches(file, key, pattern, module)? {
            continue;
        }
        if found.is_some_and(|first| first != *value) {
            let reason =
                format!("`{key}` has several patterns with different values for {module}. Give it one");
            return Err(Error::config(file, reason));
        }
        found = Some(*value);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(document: &Value) -> Result<Config> {
        Config::new(Fields::new(Path::new("adapter_config.json"), document).unwrap())
    }

    #[test]
    fn keys_that_are_not_supported_are_refused_by_name() {
        let base = json!({"peft_type": "LORA", "r": 2, "target_modules": ["query"]});
        assert!(config(&base).is_ok());
        for (key, value) in [
            ("peft_type", json!("IA3")),
            ("peft_type", json!("LOHA")),
            ("peft_type", json!(null)),
            ("alora_invocation_tokens", json!([1, 2])),
            ("arrow_config", json!({"top_k": 2})),
            ("bias", json!("some")),
            ("init_lora_weights", json!("pissa_niter_4")),
            ("init_lora_weights", json!("olora")),
            ("kasa_config", json!({"beta": 1})),
            ("layer_replication", json!([[0, 4], [2, 5]])),
            ("megatron_config", json!({"a": 1})),
            ("trainable_token_indices", json!([1])),
            ("use_bdlora", json!({"nblocks": 2})),
            ("use_qalora", json!(true)),
            ("of_a_later_release", json!(1)),
            ("r", json!("two")),
            ("rank_pattern", json!({"(": 1})),
        ] {
            let mut document = base.clone();
            document[key] = value;
            let message = config(&document).unwrap_err().to_string();
            let named = if key == "rank_pattern" {
                "`rank_pattern.(`"
            } else {
                key
            };
            assert!(message.contains(named), "{key}: {message}");
        }
        let mut off = base.clone();
        for (key, value) in [
            ("use_qalora", json!(false)),
            ("of_a_later_release", json!(null)),
            ("alora_invocation_tokens", json!([])),
            ("lora_dropout", json!(0.1)),
            ("init_lora_weights", json!("gaussian")),
        ] {
            off[key] = value;
        }
        assert!(config(&off).is_ok());
    }

    #[test]
    fn scaling_is_that_of_peft() {
        let document = json!({
            "peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": "(?:.*)(query|value)",
            "rank_pattern": {"layer.0.query": 2}, "alpha_pattern": {"value": 3, "^enc.*query": 5},
        });
        let plain = config(&document).unwrap();
        assert_eq!(plain.scaling("layer.0.query").unwrap(), (2, 4.0));
        assert_eq!(plain.scaling("vit.layer.0.query").unwrap(), (2, 4.0));
        assert_eq!(plain.scaling("vit.layer.1.value").unwrap(), (4, 0.75));
        assert_eq!(plain.scaling("vit.layer.1.overvalue").unwrap(), (4, 2.0));
        assert!(plain.targets("vit.layer.1.value").unwrap());
        assert!(!plain.targets("vit.layer.1.values").unwrap());
        let mut stabilized = document.clone();
        stabilized["use_rslora"] = json!(true);
        assert_eq!(
            config(&stabilized).unwrap().scaling("vit.layer.1.key").unwrap(),
            (4, 4.0)
        );
        let mut unclear = document;
        unclear["alpha_pattern"] = json!({"value": 3, "layer.1.value": 4});
        assert!(config(&unclear).unwrap().scaling("layer.1.value").is_err());
    }

    #[test]
    fn a_pattern_that_takes_too_many_steps_is_an_error_with_its_key() {
        let pattern = "(a|b|ab)*(?>c)";
        let module = "ab".repeat(28);
        let target = json!({"peft_type": "LORA", "target_modules": pattern});
        let message = config(&target).unwrap().targets(&module).unwrap_err().to_string();
        assert!(
            message.contains("target_modules") && message.contains(pattern),
            "{message}"
        );
        let rank = json!({"peft_type": "LORA", "target_modules": ["query"], "rank_pattern": {pattern: 2}});
        let message = config(&rank).unwrap().scaling(&module).unwrap_err().to_string();
        assert!(message.contains("rank_pattern"), "{message}");
    }
}
