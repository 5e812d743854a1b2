//! A precision for each layer under a bound on the logits' error: its own, int8, and bf16 where the model is to run on the CPU, or FP8
//! where it is to run on a GPU.
//!
//! The layers that read the same activations are one choice. Each is quantised alone in each precision, which gives the errors on the
//! calibration images; how much time that saves is measured where the model is to run. Choices are then made in the order of time
//! saved by squared error, which is how independent errors add up, as many as keep the measured error of all of them together
//! within the bound. One that comes later takes the place of the same layers' earlier one if it saves more.
//!
//! Images that took no part in that then show the error on others. If it exceeds the bound, the last choices are reverted, one by
//! one, until it is within.

mod candidates;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use serde::Serialize;

use super::fidelity::{Fidelity, OnGpu, Reference, on_cpu};
use super::{Group, Layers, Precision, stored_names};
use hipvit::error::Result;
use hipvit::graph::{Graph, ValueId};
use hipvit::model::{Checkpoint, Format, Replacement};
use hipvit::ops::Op;
use hipvit::session::Session;

pub(super) use candidates::Search;

/// Layers that read the same activations, and what was decided about them.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Choice {
    /// The layers' names.
    pub layers: Vec<String>,
    /// What they are in.
    pub precision: Precision,
    /// Microseconds of these layers in full precision, for the batch that was measured.
    pub full_us: f64,
    /// What was measured of the other precisions.
    pub candidates: Vec<Candidate>,
}

/// What was measured of some layers in one precision.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Candidate {
    /// int8, bf16 or FP8.
    pub precision: Precision,
    /// The error of the outputs if these layers alone are in it: root mean square, as a part of the outputs'.
    pub error: f64,
    /// Microseconds of these layers in it.
    pub us: f64,
}

/// What `auto` decided, and what was measured.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Decision {
    /// The bound on the error.
    pub budget: f64,
    /// The error of these choices on the images that they were made by.
    pub calibration: Fidelity,
    /// And on images that were held out; `None` if there was only one image.
    pub held_out: Option<Fidelity>,
    /// What was reverted because the error on the held-out images exceeded the budget.
    pub reverted: Option<Reverted>,
    /// The error of the written model on the GPU that it is to run on: on the held-out images, or on the only one.
    pub on_gpu: Option<OnGpu>,
    /// Where times were measured: the CPU's or the GPU's name, the dtype and the batch.
    pub measured_on: String,
    /// The choices, in the order of the layers.
    pub choices: Vec<Choice>,
}

/// Choices within the budget on the calibration images, but not on the held-out ones.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Reverted {
    /// The error on the held-out images with them.
    pub error: f64,
    /// The layers, which are now in full precision, or in another one that was chosen before.
    pub layers: Vec<String>,
}

impl Decision {
    /// The layers in `precision`.
    pub fn layers(&self, precision: Precision) -> impl Iterator<Item = &String> {
        self.choices
            .iter()
            .filter(move |choice| choice.precision == precision)
            .flat_map(|choice| &choice.layers)
    }
}

/// Layers that read one value, and the tensors that change if they are quantised.
pub(super) struct Unit {
    layers: BTreeSet<String>,
    pub(super) tensors: BTreeSet<String>,
    /// Tokens, input channels, output channels of each GEMM.
    pub(super) sizes: Vec<[usize; 3]>,
}

/// The tensors that take others' places if all layers are in a precision, and how long each unit then takes.
pub(super) struct Quantized {
    pub(super) precision: Precision,
    pub(super) replaced: BTreeMap<String, Replacement>,
    pub(super) times: Vec<Duration>,
}

impl Quantized {
    /// The microseconds by which a unit is faster than in full precision.
    fn saved(&self, unit: usize, full: Duration) -> f64 {
        us(full) - us(self.times[unit])
    }
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// What full precision gives for the images.
pub(super) struct References<'a> {
    pub(super) calibration: Reference<'a>,
    pub(super) held_out: Option<Reference<'a>>,
}

/// By unit, the option that it takes.
type Taken = BTreeMap<usize, usize>;

/// Decides what each unit is in; returns what is replaced then. `full` is how long each takes in full precision.
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
        // The format is that of a model of which nothing is replaced, too.
        on_cpu(checkpoint.changed(Format::Int8, &replaced(taken), &[])?)
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
    // The longest beginning whose error is within the budget. That of none is 0.
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
    // Shorter ones, until the error on the held-out images is within it, too.
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
        // The last of a beginning may be slower than an earlier choice for the same layers, and thus not taken.
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
    let mut by_tensor: HashMap<String, ValueId> = HashMap::new();
    for node in graph
        .nodes()
        .iter()
        .filter(|node| matches!(node.op, Op::Linear(_)))
    {
        let weight = graph.value(node.inputs[1]);
        let names: Vec<String> = stored_names(&weight.name).collect();
        let &[n, k] = weight.shape.as_slice() else {
            continue;
        };
        if !names.iter().all(|name| layers.quantized.contains(name)) {
            continue;
        }
        // A tensor of which several layers read parts is one choice too.
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
            let layer = name.strip_suffix(".weight").unwrap_or(&name);
            unit.layers.insert(layer.to_owned());
            by_tensor.insert(name.clone(), key);
            unit.tensors.insert(name);
        }
    }
    // What a balanced norm gives must be read by balanced weights alone.
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
