//! Selects a precision for each layer under a bound on the error of the logits.
//!
//! Each layer stays in its own precision or becomes int8. A third choice is bf16 for the CPU, or FP8 for a
//! GPU.
//!
//! Layers that read the same activations are one choice. Each choice is quantised alone in each precision to
//! measure its error on the calibration images. The time that it saves is measured on the target device.
//! Choices are then sorted by time saved per squared error, because the squares of independent errors add up.
//! The longest prefix whose measured joint error is within the bound is applied. A later choice replaces an
//! earlier one for the same layers if it saves more time.
//!
//! The error is then measured on held-out images. If it exceeds the bound, the last choices are reverted one
//! by one until it is within the bound.

mod candidates;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use serde::Serialize;

use super::fidelity::{Fidelity, OnGpu, Reference, on_cpu};
use super::layers::{Group, Layers};
use super::precision::Precision;
use super::unit::Unit;
use hipvit::error::Result;
use hipvit::graph::{Graph, ValueId};
use hipvit::model::{Checkpoint, Format, LoadOptions, Replacement};
use hipvit::ops::Op;
use hipvit::session::Session;

pub(super) use candidates::Search;

/// Layers that read the same activations, and the decision about them.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Choice {
    /// Names of the layers.
    pub layers: Vec<String>,
    /// Chosen precision.
    pub precision: Precision,
    /// Time of the layers in full precision in microseconds, for the measured batch size.
    pub full_us: f64,
    /// Measurements of the other precisions.
    pub candidates: Vec<Candidate>,
}

/// Measurements of some layers in one precision.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Candidate {
    /// int8, bf16 or FP8.
    pub precision: Precision,
    /// Error of the outputs if only these layers are in `precision`: root mean square, relative to the
    /// outputs.
    pub error: f64,
    /// Time of the layers in `precision` in microseconds.
    pub us: f64,
}

/// Decision of `auto`, with its measurements.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Decision {
    /// Bound on the error.
    pub budget: f64,
    /// Error on the calibration images with these choices.
    pub calibration: Fidelity,
    /// Error on the held-out images with these choices. `None` if there was only one image.
    pub held_out: Option<Fidelity>,
    /// Choices that were reverted because the error on the held-out images exceeded the budget.
    pub reverted: Option<Reverted>,
    /// Error of the written model on the target GPU, on the held-out images or on the only image.
    pub on_gpu: Option<OnGpu>,
    /// Description of the measurement of times: the CPU or GPU, the dtype and the batch size.
    pub measured_on: String,
    /// Choices in the order of the layers.
    pub choices: Vec<Choice>,
}

/// Choices that met the budget on the calibration images, but not on the held-out images.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Reverted {
    /// Error on the held-out images with these choices.
    pub error: f64,
    /// Names of the layers that are back in full precision or in an earlier choice.
    pub layers: Vec<String>,
}

impl Decision {
    /// Returns the layers in `precision`.
    pub fn layers(&self, precision: Precision) -> impl Iterator<Item = &String> {
        self.choices
            .iter()
            .filter(move |choice| choice.precision == precision)
            .flat_map(|choice| &choice.layers)
    }
}

/// Replacements for the tensors of all layers in one precision, and the time of each unit with them.
pub(super) struct Quantized {
    pub(super) precision: Precision,
    pub(super) replaced: BTreeMap<String, Replacement>,
    pub(super) times: Vec<Duration>,
}

impl Quantized {
    /// Returns the time in microseconds that a unit saves compared with full precision.
    fn saved(&self, unit: usize, full: Duration) -> f64 {
        us(full) - us(self.times[unit])
    }
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Outputs of the full-precision model for the calibration images and the held-out images.
pub(super) struct References<'a> {
    pub(super) calibration: Reference<'a>,
    pub(super) held_out: Option<Reference<'a>>,
}

/// Option taken by each unit.
type Taken = BTreeMap<usize, usize>;

/// Selects the option of each unit. Returns the decision and the replaced tensors. `full` is the time of each
/// unit in full precision.
pub(super) fn decide(
    checkpoint: &Checkpoint,
    units: &[Unit],
    full: &[Duration],
    options: &[Quantized],
    images: &References<'_>,
    (budget, measured_on): (f64, String),
) -> Result<(Decision, BTreeMap<String, Replacement>)> {
    let replaced = |taken: &Taken| -> BTreeMap<String, Replacement> {
        let of_unit = |(&unit, &option): (&usize, &usize)| {
            let tensors = units[unit].tensors.iter();
            let replaced = &options[option].replaced;
            tensors
                .filter_map(|name| Some((name.clone(), replaced.get(name)?.clone())))
                .collect::<Vec<_>>()
        };
        taken.iter().flat_map(of_unit).collect()
    };
    let session = |taken: &Taken| -> Result<Session> {
        // The format applies to any set of replaced tensors, including an empty one.
        on_cpu(checkpoint.changed(Format::Int8, &replaced(taken), &[], &LoadOptions::default())?)
    };
    let mut choices = Vec::with_capacity(units.len());
    let mut errors: BTreeMap<(usize, usize), f64> = BTreeMap::new();
    for (index, unit) in units.iter().enumerate() {
        let layers: Vec<String> = unit.layers.iter().cloned().collect();
        let mut candidates = Vec::with_capacity(options.len());
        for (number, option) in options.iter().enumerate() {
            let alone = session(&Taken::from([(index, number)]))?;
            let error = images.calibration.fidelity(&alone)?.error;
            errors.insert((index, number), error);
            candidates.push(Candidate {
                precision: option.precision,
                error,
                us: us(option.times[index]),
            });
        }
        choices.push(Choice {
            layers,
            precision: Precision::Full,
            full_us: us(full[index]),
            candidates,
        });
    }
    let saved = |unit: usize, option: usize| options[option].saved(unit, full[unit]);
    let is_faster = |&(unit, option): &(usize, usize)| saved(unit, option) > 0.0;
    let mut order: Vec<(usize, usize)> = errors.keys().copied().filter(is_faster).collect();
    let worth = |of: &(usize, usize)| saved(of.0, of.1) / errors[of].powi(2).max(f64::MIN_POSITIVE);
    order.sort_by(|a, b| worth(b).total_cmp(&worth(a)));
    let first = |count: usize| {
        let mut taken = Taken::new();
        for &(unit, option) in &order[..count] {
            if taken
                .get(&unit)
                .is_none_or(|&earlier| saved(unit, option) > saved(unit, earlier))
            {
                taken.insert(unit, option);
            }
        }
        taken
    };
    // Find the longest prefix whose error is within the budget by bisection. An empty prefix has error 0.
    let (mut fits, mut exceeds) = (0, order.len() + 1);
    let mut next = order.len();
    while fits + 1 < exceeds {
        let measured = images.calibration.fidelity(&session(&first(next))?)?;
        if measured.within(budget) {
            fits = next;
        } else {
            exceeds = next;
        }
        next = fits.midpoint(exceeds);
    }
    // Shorten the prefix until the error on the held-out images is within the budget, too.
    let chosen = first(fits);
    let (mut taken, mut before) = (chosen.clone(), None);
    let (calibration, held_out) = loop {
        let session = session(&taken)?;
        let calibration = images.calibration.fidelity(&session)?;
        let held_out = images.held_out.as_ref();
        let held_out = held_out.map(|held_out| held_out.fidelity(&session)).transpose()?;
        let within = [Some(&calibration), held_out.as_ref()];
        if within.into_iter().flatten().all(|of| of.within(budget)) || taken.is_empty() {
            break (calibration, held_out);
        }
        before = before.or(held_out.map(|held_out| held_out.error));
        // Skip prefixes that change nothing: their last choice is slower than an earlier one for the same
        // layers.
        while first(fits) == taken {
            fits -= 1;
        }
        taken = first(fits);
    };
    for (&unit, &option) in &taken {
        choices[unit].precision = options[option].precision;
    }
    let changed = chosen
        .iter()
        .filter(|(unit, option)| taken.get(unit) != Some(option));
    let changed = changed.flat_map(|(&unit, _)| units[unit].layers.iter().cloned());
    let decision = Decision {
        budget,
        calibration,
        held_out,
        reverted: before.map(|error| Reverted {
            error,
            layers: changed.collect(),
        }),
        on_gpu: None,
        measured_on,
        choices,
    };
    Ok((decision, replaced(&taken)))
}

pub(super) fn units(graph: &Graph, layers: &Layers, groups: &[Group]) -> Vec<Unit> {
    let mut order: Vec<ValueId> = Vec::new();
    let mut units: HashMap<ValueId, Unit> = HashMap::new();
    let mut by_tensor: HashMap<&str, ValueId> = HashMap::new();
    for node in graph
        .nodes()
        .iter()
        .filter(|node| matches!(node.op, Op::Linear(_)))
    {
        let weight = graph.value(node.inputs[1]);
        let names = weight.tensors();
        let &[n, k] = weight.shape.as_slice() else {
            continue;
        };
        if !names.iter().all(|&name| layers.quantized.contains(name)) {
            continue;
        }
        // Layers that read parts of one tensor are one choice, too.
        let known = names.iter().find_map(|name| by_tensor.get(name).copied());
        let key = known.unwrap_or(node.inputs[0]);
        let unit = units.entry(key).or_insert_with(|| {
            order.push(key);
            Unit {
                layers: BTreeSet::new(),
                tensors: BTreeSet::new(),
                sizes: Vec::new(),
            }
        });
        let x = &graph.value(node.inputs[0]).shape;
        unit.sizes.push([x[..x.len() - 1].iter().product(), k, n]);
        for name in names {
            let layer = name.strip_suffix(".weight").unwrap_or(name);
            unit.layers.insert(layer.to_owned());
            by_tensor.insert(name, key);
            unit.tensors.insert(name.to_owned());
        }
    }
    // The output of a balanced norm must be read by balanced weights only.
    for group in groups {
        let units = units.values_mut();
        for unit in units.filter(|unit| !unit.tensors.is_disjoint(&group.weights)) {
            unit.tensors.extend(group.norm.iter().cloned());
        }
    }
    order.into_iter().filter_map(|key| units.remove(&key)).collect()
}

#[cfg(test)]
mod tests;
