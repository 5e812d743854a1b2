//! Layers that are computed in bf16, named in `config.json`: `"bf16_layers": ["blocks.0.attn.qkv", …]`.
//!
//! The named linear layers have their `….weight` as BF16 in the file, and round their inputs to bf16 too
//! ([`Rounding::Bf16`](crate::ops::Rounding::Bf16)). Other layers compute in the session's dtype, whatever the dtype of
//! their weights.
//!
//! The key is specific to this project. Other programs ignore it, and compute with the same weights in their dtype.

use std::collections::BTreeMap;

use serde_json::Value;

use super::fields::Fields;
use crate::error::Result;

/// Key in `config.json`.
pub(super) const KEY: &str = "bf16_layers";

/// Weights of the layers in bf16, each with a flag whether a linear layer has read it.
#[derive(Debug, Default)]
pub(super) struct Bf16Layers {
    weights: BTreeMap<String, bool>,
}

impl Bf16Layers {
    /// Reads the layers that `config` names.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Config`](crate::Error::Config) if the key is not a list of names.
    pub(super) fn new(config: Fields<'_>) -> Result<Self> {
        let unexpected = |value: &Value| config.unexpected(KEY, value, "a list of strings");
        let names = match config.get(KEY) {
            None => &[],
            Some(Value::Array(names)) => names.as_slice(),
            Some(other) => return Err(unexpected(other)),
        };
        let weight = |name: &Value| match name.as_str() {
            Some(layer) => Ok((format!("{layer}.weight"), false)),
            None => Err(unexpected(name)),
        };
        let weights = names.iter().map(weight).collect::<Result<_>>()?;
        Ok(Self { weights })
    }

    /// Returns true if the tensor is the weight of a layer in bf16.
    pub(super) fn has(&self, weight: &str) -> bool {
        self.weights.contains_key(weight)
    }

    /// Records that a linear layer reads the tensor. Returns true if it is the weight of a layer in bf16.
    pub(super) fn read(&mut self, weight: &str) -> bool {
        let found = self.weights.get_mut(weight);
        found.map(|read| *read = true).is_some()
    }

    /// Iterates over the weights that no linear layer has read.
    pub(super) fn unread(&self) -> impl Iterator<Item = &str> {
        let unread = self.weights.iter().filter(|(_, read)| !**read);
        unread.map(|(name, _)| name.as_str())
    }
}
