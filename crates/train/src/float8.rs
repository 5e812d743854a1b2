//! Layers that are computed in FP8, and those that have returned to the dtype of the activations.

mod insert;

use std::collections::BTreeSet;
use std::fmt;

use hipvit::error::Result;
use hipvit::exec::Executor;
use serde::{Deserialize, Serialize};

pub(crate) use self::insert::{Derivatives, insert, layers, update_statistics};

/// Steps between two checks of the rates.
pub(crate) const CHECK_INTERVAL: u64 = 50;

/// Options of layers in FP8.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Float8Options {
    /// Share of the elements of an operand that may underflow or overflow. A layer with a larger share returns to the dtype of the activations.
    pub max_rate: f32,
    /// True if a scale is that of the largest magnitude of the last [`HISTORY`](hipvit::ops::HISTORY) steps, and false if it is that of the
    /// same step, for which the elements are read twice.
    pub delayed: bool,
    /// True if all linear layers of the blocks are in FP8. Otherwise only those that are expected to gain time, or all if there are none.
    pub all_layers: bool,
}

impl Default for Float8Options {
    fn default() -> Self {
        Self {
            max_rate: 0.05,
            delayed: true,
            all_layers: false,
        }
    }
}

/// An operand of a layer in FP8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operand {
    Input,
    Weight,
    Gradient,
}

impl Operand {
    /// Returns the name of the operand, as logs have it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Weight => "weight",
            Self::Gradient => "gradient",
        }
    }

    /// Returns the name of the state with the statistics of the operand of a layer.
    pub(crate) fn state(self, layer: &str) -> String {
        format!("{layer}.{}.float8", self.name())
    }
}

/// A rounding of a step.
#[derive(Clone, Debug)]
pub(crate) struct Rounding {
    /// Name of the state with its statistics.
    pub(crate) state: String,
    /// Layers that multiply the rounded numbers.
    pub(crate) layers: Vec<String>,
    pub(crate) operand: Operand,
}

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
    /// Share of its elements that exceeded the largest number.
    pub overflow: f32,
}

impl fmt::Display for LayerEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            step,
            layer,
            operand,
            underflow,
            overflow,
        } = self;
        write!(
            f,
            "step {step}: `{layer}` is no longer computed in FP8, since {:.2} % of its {operand} underflow and {:.2} % overflow",
            100.0 * underflow,
            100.0 * overflow
        )
    }
}

/// The layers of a step that are computed in FP8.
#[derive(Debug)]
pub(crate) struct Float8Layers {
    roundings: Vec<Rounding>,
    /// Maximum share of the elements of an operand that may become 0, or exceed the largest number.
    max_rate: f32,
    /// Layers that have returned since the last call of [`take`](Self::take).
    events: Vec<LayerEvent>,
}

impl Float8Layers {
    pub(crate) fn new(roundings: Vec<Rounding>, max_rate: f32) -> Self {
        Self {
            roundings,
            max_rate,
            events: Vec::new(),
        }
    }

    /// Adds the layers to `returned` whose last step lost too much. Returns true if there are some.
    ///
    /// # Errors
    ///
    /// The errors of the device.
    pub(crate) fn check(
        &mut self,
        step: u64,
        executor: &dyn Executor,
        returned: &mut BTreeSet<String>,
    ) -> Result<bool> {
        let before = returned.len();
        for Rounding {
            state,
            layers,
            operand,
        } in &self.roundings
        {
            let statistics = executor.state(state)?;
            let statistics = statistics.to_f32();
            let rate = |index: usize| statistics.get(index).copied().unwrap_or(0.0);
            let (underflow, overflow) = (rate(0), rate(1));
            if underflow.max(overflow) <= self.max_rate {
                continue;
            }
            for layer in layers {
                if returned.insert(layer.clone()) {
                    self.events.push(LayerEvent {
                        step,
                        layer: layer.clone(),
                        operand: operand.name().to_owned(),
                        underflow,
                        overflow,
                    });
                }
            }
        }
        Ok(returned.len() > before)
    }

    /// Returns the layers that have returned since the last call.
    pub(crate) fn take(&mut self) -> Vec<LayerEvent> {
        std::mem::take(&mut self.events)
    }

    /// Returns these layers with the events of others.
    pub(crate) fn with_events(self, events: Vec<LayerEvent>) -> Self {
        Self { events, ..self }
    }
}
