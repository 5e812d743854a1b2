//! Layers that are computed in FP8, and those that have returned to the dtype of the activations.

use std::collections::BTreeSet;
use std::fmt;

use hipvit::error::Result;
use hipvit::exec::Executor;
use serde::{Deserialize, Serialize};

use crate::quantization::Operand;

/// Steps between two checks of the rates.
pub(crate) const CHECK_INTERVAL: u64 = 50;

/// A layer that is no longer computed in FP8.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LayerEvent {
    /// Number of the step after which it changed, counted from 1.
    pub step: u64,
    /// Name of the layer, such as `blocks.0.attn.qkv`.
    pub layer: String,
    /// Operand whose rate is too high: `input`, `weight` or `gradient`.
    pub operand: String,
    /// Share of its elements that were not 0 and became 0.
    pub underflow: f32,
}

impl fmt::Display for LayerEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            step,
            layer,
            operand,
            underflow,
        } = self;
        write!(
            f,
            "step {step}: `{layer}` is no longer computed in FP8, since {:.2} % of its {operand} underflow",
            100.0 * underflow
        )
    }
}

/// The layers of a step that can be computed in FP8.
#[derive(Debug)]
pub(crate) struct Float8Layers {
    /// Names, in the order of the switches.
    names: Vec<String>,
    /// Index of the layer of each rounding, and the operand.
    roundings: Vec<(usize, Operand)>,
    /// Maximum share of the elements of an operand that may become 0.
    max_rate: f32,
    /// Layers that have returned since the last call of [`take`](Self::take).
    events: Vec<LayerEvent>,
}

impl Float8Layers {
    pub(crate) fn new(names: Vec<String>, roundings: Vec<(usize, Operand)>, max_rate: f32) -> Self {
        Self {
            names,
            roundings,
            max_rate,
            events: Vec::new(),
        }
    }

    /// Returns the switch of each layer. `returned` are the layers that are no longer in FP8.
    pub(crate) fn switches(&self, returned: &BTreeSet<String>) -> Vec<f32> {
        let switch = |name| if returned.contains(name) { 0.0 } else { 1.0 };
        self.names.iter().map(switch).collect()
    }

    /// Adds the layers to `returned` whose last step lost too much.
    ///
    /// # Errors
    ///
    /// The errors of the device.
    pub(crate) fn check(
        &mut self,
        step: u64,
        executor: &dyn Executor,
        returned: &mut BTreeSet<String>,
    ) -> Result<()> {
        for &(layer, operand) in &self.roundings {
            let name = &self.names[layer];
            if returned.contains(name) {
                continue;
            }
            let rate = executor.state(&operand.state(name))?;
            let underflow = rate.to_f32().iter().copied().fold(0.0, f32::max);
            if underflow > self.max_rate {
                returned.insert(name.clone());
                self.events.push(LayerEvent {
                    step,
                    layer: name.clone(),
                    operand: operand.name().to_owned(),
                    underflow,
                });
            }
        }
        Ok(())
    }

    /// Returns the layers that have returned since the last call.
    pub(crate) fn take(&mut self) -> Vec<LayerEvent> {
        std::mem::take(&mut self.events)
    }
}
