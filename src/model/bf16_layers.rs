//! Layers in bf16: `"bf16_layers": ["blocks.0.attn.qkv", …]` in `config.json` names linear layers whose `….weight` is BF16 in the file, and
//! which round what they multiply to bf16, too ([`Rounding::Bf16`](crate::ops::Rounding::Bf16)). Others are in the session's dtype, whatever
//! their weights are in. The key is this project's: other programs ignore it, and multiply the same weights in their dtype.

use std::collections::BTreeMap;

use serde_json::Value;

use super::fields::Fields;
use crate::error::Result;

/// The key of `config.json`.
pub(super) const KEY: &str = "bf16_layers";

/// The weights of these layers, and whether a linear layer has read each.
#[derive(Debug, Default)]
pub(super) struct Bf16Layers {
    weights: BTreeMap<String, bool>,
}

impl Bf16Layers {
    /// Those that `config` names.
    ///
    /// # Errors
    ///
    /// [`Error::Config`](crate::Error::Config) if it is no list of names.
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

    /// Whether the tensor is the weight of one.
    pub(super) fn has(&self, weight: &str) -> bool {
        self.weights.contains_key(weight)
    }

    /// The same, of a tensor that a linear layer reads.
    pub(super) fn read(&mut self, weight: &str) -> bool {
        let found = self.weights.get_mut(weight);
        found.map(|read| *read = true).is_some()
    }

    /// The weights that no linear layer has read.
    pub(super) fn unread(&self) -> impl Iterator<Item = &str> {
        let unread = self.weights.iter().filter(|(_, read)| !**read);
        unread.map(|(name, _)| name.as_str())
    }
}
