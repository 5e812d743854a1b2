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
//! If the GPU supports FP8 attention, the layers that produce its queries, keys and values have one more
//! choice: FP8 with FP8 attention. It is offered only if the FP8 kernel is faster there than the 16-bit
//! kernel. The errors are measured on the CPU, which rounds queries, keys and values. GPU kernels may round
//! the probabilities too; only the error measured on the GPU includes that.
//!
//! Held-out images then show the error on other images. If it exceeds the bound, the last choices are
//! reverted one by one until it is within the bound.

mod candidates;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use serde::Serialize;

use super::activations::Attended;
use super::fidelity::{Fidelity, OnGpu, Reference, on_cpu};
use super::times::{GpuTarget, StepTimes};
use super::{Group, Layers, Precision, stored_names};
use hipvit::error::Result;
use hipvit::graph::{Graph, ValueId};
use hipvit::model::{Checkpoint, Format, Replacement};
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

/// The decision about an attention that can be in FP8 only if the layers that produce its operands are.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct AttentionChoice {
    /// Names of the attentions. There is more than one if these layers compute the operands of several.
    pub attention: Vec<String>,
    /// Names of the layers that produce the operands.
    pub layers: Vec<String>,
    /// FP8, or full for the activations' dtype.
    pub precision: Precision,
    /// Error of the outputs if only the attention and these layers are in FP8.
    pub error: f64,
    /// Time of these layers in microseconds, with weights and results in FP8.
    pub layers_us: f64,
    /// Time of the attention in the activations' dtype in microseconds, between layers in FP8.
    pub full_us: f64,
    /// Time of the attention in FP8 in microseconds.
    pub us: f64,
    /// Bytes of queries, keys and values in the activations' dtype, for the measured batch size.
    pub full_bytes: usize,
    /// Bytes of queries, keys and values in FP8, for the measured batch size.
    pub bytes: usize,
}

/// The choices of the search, with the measurements behind them.
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
    /// Where times were measured: the name of the CPU or GPU, the dtype and the batch size.
    pub measured_on: String,
    /// Choices in the order of the layers.
    pub choices: Vec<Choice>,
    /// Choices about attention, if the GPU supports FP8 attention.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attention: Vec<AttentionChoice>,
}

/// Choices that met the budget on the calibration images, but not on the held-out images.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Reverted {
    /// Error on the held-out images with these choices.
    pub error: f64,
    /// Names of the layers that are back in full precision or in an earlier choice, and of the attentions
    /// that are no longer in FP8.
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

    /// Returns the attentions in FP8.
    pub fn attention_in_float8(&self) -> impl Iterator<Item = &String> {
        let chosen = self.attention.iter();
        chosen
            .filter(|choice| choice.precision == Precision::Fp8)
            .flat_map(|choice| &choice.attention)
    }
}

/// Layers that read one value, and the tensors that change if the layers are quantised.
pub(super) struct Unit {
    layers: BTreeSet<String>,
    pub(super) tensors: BTreeSet<String>,
    /// `[tokens, input channels, output channels]` of each GEMM.
    pub(super) sizes: Vec<[usize; 3]>,
}

/// Replacements for the tensors of all layers in one precision, and the time of each unit with them.
pub(super) struct Quantized {
    pub(super) precision: Precision,
    pub(super) replaced: BTreeMap<String, Replacement>,
    pub(super) times: Vec<Duration>,
    /// FP8 attention of each unit, if attention is in FP8 too. A unit without one does not have this option.
    pub(super) attention: Option<Vec<Option<Attention>>>,
}

/// The attentions that read the results of a unit.
#[derive(Clone, Debug)]
pub(super) struct Attention {
    pub(super) names: Vec<String>,
    /// Time in the activations' dtype, and in FP8.
    pub(super) times: [Duration; 2],
    /// Bytes of the operands in the activations' dtype, and in FP8.
    pub(super) bytes: [usize; 2],
}

impl Attention {
    /// Returns the attentions of a unit. `None` unless the unit computes all their operands and the GPU
    /// computes them in FP8. `times` are the step times with attention in the activations' dtype and in FP8.
    pub(super) fn of(
        unit: &Unit,
        attentions: &[Attended],
        graph: &Graph,
        times: [&StepTimes; 2],
        target: &GpuTarget,
    ) -> Option<Self> {
        let mut found = Self {
            names: Vec::new(),
            times: [Duration::ZERO; 2],
            bytes: [0; 2],
        };
        let of_unit = |of: &&Attended| of.weights().all(|name| unit.tensors.contains(name));
        for of in attentions.iter().filter(of_unit) {
            let [full, float8] = times;
            found.times[0] += full.attention(&of.name, false)?;
            found.times[1] += float8.attention(&of.name, true)?;
            let elements = target.batch * of.elements(graph);
            found.bytes[0] += elements * target.dtype.size();
            found.bytes[1] += elements;
            found.names.push(of.name.clone());
        }
        (!found.names.is_empty()).then_some(found)
    }
}

impl Quantized {
    /// Creates an option that quantises linear layers only.
    pub(super) fn new(
        precision: Precision,
        replaced: BTreeMap<String, Replacement>,
        times: Vec<Duration>,
    ) -> Self {
        Self {
            precision,
            replaced,
            times,
            attention: None,
        }
    }

    fn is_for(&self, unit: usize) -> bool {
        self.attention.is_none() || self.attention(unit).is_some()
    }

    fn attention(&self, unit: usize) -> Option<&Attention> {
        self.attention.as_ref()?.get(unit)?.as_ref()
    }

    /// Returns the microseconds that a unit and its attention save compared with full precision.
    fn saved(&self, unit: usize, full: Duration) -> f64 {
        let [before, after] = self.attention(unit).map_or([Duration::ZERO; 2], |of| of.times);
        us(full + before) - us(self.times[unit] + after)
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
        on_cpu(checkpoint.changed(Format::Int8, &replaced(taken), &[])?)
    };
    let mut choices = Vec::with_capacity(units.len());
    let mut attention = Vec::new();
    let mut errors: BTreeMap<(usize, usize), f64> = BTreeMap::new();
    for (index, unit) in units.iter().enumerate() {
        let layers: Vec<String> = unit.layers.iter().cloned().collect();
        let mut candidates = Vec::with_capacity(options.len());
        for (number, option) in options.iter().enumerate().filter(|(_, of)| of.is_for(index)) {
            let alone = session(&Taken::from([(index, number)]))?;
            let error = images.calibration.fidelity(&alone)?.error;
            errors.insert((index, number), error);
            match option.attention(index) {
                None => candidates.push(Candidate {
                    precision: option.precision,
                    error,
                    us: us(option.times[index]),
                }),
                Some(of) => attention.push(AttentionChoice {
                    attention: of.names.clone(),
                    layers: layers.clone(),
                    precision: Precision::Full,
                    error,
                    layers_us: us(option.times[index]),
                    full_us: us(of.times[0]),
                    us: us(of.times[1]),
                    full_bytes: of.bytes[0],
                    bytes: of.bytes[1],
                }),
            }
        }
        choices.push(Choice {
            layers,
            precision: Precision::Full,
            full_us: us(full[index]),
            candidates,
        });
    }
    let saved = |unit: usize, option: usize| options[option].saved(unit, full[unit]);
    // FP8 attention must be faster than 16-bit attention, and than the same layers without it.
    let is_faster = |&(unit, option): &(usize, usize)| {
        let without = (0..options.len()).filter(|&other| options[other].attention.is_none());
        let mut without = without.filter(|&other| options[other].precision == options[option].precision);
        let gains = options[option].attention(unit).is_none_or(|of| {
            of.times[1] < of.times[0] && without.all(|other| saved(unit, option) > saved(unit, other))
        });
        gains && saved(unit, option) > 0.0
    };
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
        let of_unit = attention
            .iter_mut()
            .filter(|of| of.layers == choices[unit].layers);
        for of in of_unit.filter(|_| options[option].attention.is_some()) {
            of.precision = Precision::Fp8;
        }
    }
    let changed = chosen
        .iter()
        .filter(|(unit, option)| taken.get(unit) != Some(option));
    // If the layers stay in FP8, only their attention was reverted.
    let reverted = |(&unit, &before): (&usize, &usize)| -> Vec<String> {
        let precision = |option: usize| options[option].precision;
        match (options[before].attention(unit), taken.get(&unit)) {
            (Some(of), Some(&now)) if precision(now) == precision(before) => of.names.clone(),
            (attention, _) => {
                let names = attention.map_or(&[][..], |of| &of.names);
                units[unit].layers.iter().chain(names).cloned().collect()
            }
        }
    };
    let changed = changed.flat_map(reverted);
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
        attention,
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
            let layer = name.strip_suffix(".weight").unwrap_or(&name);
            unit.layers.insert(layer.to_owned());
            by_tensor.insert(name.clone(), key);
            unit.tensors.insert(name);
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
