//! A precision for each layer under a bound on the logits' error: its own, int8, or FP8 where the model is to run on a GPU.
//!
//! The layers that read the same activations are one choice. Each is quantised alone in each precision, which gives the errors on the
//! calibration images; how much time that saves is measured where the model is to run. Choices are then made in the order of time
//! saved by squared error, which is how independent errors add up, as many as keep the measured error of all of them together
//! within the bound. One that comes later takes the place of the same layers' earlier one if it saves more.
//!
//! Images that took no part in that then show the error on others. If it exceeds the bound, the last choices are reverted, one by
//! one, until it is within.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use serde::Serialize;

use super::fidelity::{Fidelity, OnGpu, Reference, on_cpu};
use super::{Group, Layers, Precision, stored_names};
use crate::error::Result;
use crate::graph::{Graph, ValueId};
use crate::model::{Checkpoint, Format, Replacement};
use crate::ops::Op;
use crate::session::Session;

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
    /// int8 or FP8.
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
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let mut choices = Vec::with_capacity(units.len());
    for (index, unit) in units.iter().enumerate() {
        let candidate = |(number, option): (usize, &Quantized)| {
            let alone = session(&Taken::from([(index, number)]))?;
            Ok(Candidate {
                precision: option.precision,
                error: images.calibration.fidelity(&alone)?.error,
                us: us(option.times[index]),
            })
        };
        choices.push(Choice {
            layers: unit.layers.iter().cloned().collect(),
            precision: Precision::Full,
            full_us: us(full[index]),
            candidates: options.iter().enumerate().map(candidate).collect::<Result<_>>()?,
        });
    }
    let mut order: Vec<(usize, usize)> = (0..units.len())
        .flat_map(|unit| (0..options.len()).map(move |option| (unit, option)))
        .filter(|&(unit, option)| choices[unit].candidates[option].us < choices[unit].full_us)
        .collect();
    let worth = |&(unit, option): &(usize, usize)| {
        let Candidate { error, us, .. } = choices[unit].candidates[option];
        (choices[unit].full_us - us) / error.powi(2).max(f64::MIN_POSITIVE)
    };
    order.sort_by(|a, b| worth(b).total_cmp(&worth(a)));
    let first = |count: usize| {
        let mut taken = Taken::new();
        for &(unit, option) in &order[..count] {
            let time = |option: usize| options[option].times[unit];
            if taken
                .get(&unit)
                .is_none_or(|&earlier| time(option) < time(earlier))
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
        match measured.within(budget) {
            true => fits = next,
            false => exceeds = next,
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
    let changed = changed.flat_map(|(&unit, _)| &units[unit].layers);
    let decision = Decision {
        budget,
        calibration,
        held_out,
        reverted: before.map(|error| Reverted {
            error,
            layers: changed.cloned().collect(),
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
mod tests {
    use std::ops::Range;

    use super::super::{Scales, activations, groups, rounding};
    use super::*;
    use crate::model::{LoadOptions, load, tinyvit32};

    /// The decision on TinyViT32 and images of noise, if a GEMM takes these microseconds in full precision, in int8 and in FP8.
    fn decided(budget: f64, times: fn([usize; 3]) -> [u64; 3]) -> (Decision, BTreeMap<String, Replacement>) {
        decided_by(budget, times, 0..6, 6..8)
    }

    /// And these of the images, of which some are held out.
    fn decided_by(
        budget: f64,
        times: fn([usize; 3]) -> [u64; 3],
        calibration: Range<usize>,
        held_out: Range<usize>,
    ) -> (Decision, BTreeMap<String, Replacement>) {
        let checkpoint = Checkpoint::open(None).unwrap();
        let model = tinyvit32(&LoadOptions::default()).unwrap();
        let layers = Layers::of(&model.graph);
        let groups = groups(&model.graph, &layers);
        let [height, width] = model.info.image_size;
        let image = |seed: usize| {
            (0..height * width * 3)
                .map(|i| (i * i * (seed + 3) % 251) as u8)
                .collect()
        };
        let images: Vec<Vec<u8>> = calibration.map(image).collect();
        let held_out: Vec<Vec<u8>> = held_out.map(image).collect();
        let round = |name: &String| {
            let rounded = rounding::round(&checkpoint, name, None, Precision::Int8, Scales::Largest);
            (name.clone(), rounded.unwrap())
        };
        let units = units(&model.graph, &layers, &groups);
        let of = |index: usize| -> Vec<Duration> {
            let sum = |unit: &Unit| unit.sizes.iter().map(|&size| times(size)[index]).sum();
            units
                .iter()
                .map(|unit| Duration::from_micros(sum(unit)))
                .collect()
        };
        let options = [
            Quantized {
                precision: Precision::Int8,
                replaced: layers.quantized.iter().map(round).collect(),
                times: of(1),
            },
            Quantized {
                precision: Precision::Fp8,
                replaced: activations::round(&checkpoint, &model, &layers, &images).unwrap(),
                times: of(2),
            },
        ];
        let full = on_cpu(model).unwrap();
        let images = References {
            calibration: Reference::new(&full, &images).unwrap(),
            held_out: (!held_out.is_empty()).then(|| Reference::new(&full, &held_out).unwrap()),
        };
        let by = (budget, "a test".to_owned());
        decide(&checkpoint, &units, &of(0), &options, &images, by).unwrap()
    }

    fn count(decision: &Decision, precision: Precision) -> usize {
        decision.layers(precision).count()
    }

    #[test]
    fn the_budget_bounds_the_measured_error() {
        let faster = |_| [2, 1, 3];
        let (none, replaced) = decided(0.0, faster);
        assert!(replaced.is_empty() && none.calibration.error == 0.0);
        assert_eq!(none.calibration.agreeing, Some(6));
        let (all, replaced) = decided(1.0, faster);
        assert_eq!(
            [count(&all, Precision::Full), count(&all, Precision::Fp8)],
            [0; 2]
        );
        let error = all.calibration.error;
        assert!(error > 0.0 && count(&all, Precision::Int8) == replaced.len());
        let (some, replaced) = decided(error / 2.0, faster);
        assert!(some.calibration.within(error / 2.0), "{some:?} of {error}");
        let (int8, full) = (count(&some, Precision::Int8), count(&some, Precision::Full));
        assert!(int8 > 0 && full > 0 && int8 == replaced.len(), "{int8} {full}");
        // Of layers that gain the same, those with the least errors.
        let errors = |precision| {
            let of = some
                .choices
                .iter()
                .filter(move |choice| choice.precision == precision);
            of.map(|choice| choice.candidates[0].error)
        };
        let most = errors(Precision::Int8).fold(0.0, f64::max);
        assert!(most <= errors(Precision::Full).fold(1.0, f64::min));
    }

    #[test]
    fn the_budget_bounds_the_error_on_held_out_images() {
        let faster = |_| [2, 1, 3];
        // Of two sets of images that with the larger error is held out, and the budget lies between.
        let (mut calibration, mut held_out) = (0..3, 3..6);
        let errors = |decision: &Decision| {
            let held_out = decision.held_out.as_ref().unwrap();
            (decision.calibration.error, held_out.error)
        };
        let (mut small, mut large) = errors(&decided_by(1.0, faster, 0..3, 3..6).0);
        if small > large {
            (small, large) = (large, small);
            (calibration, held_out) = (held_out, calibration);
        }
        let budget = f64::midpoint(small, large);
        let (alone, all) = decided_by(budget, faster, calibration.clone(), 0..0);
        assert!(alone.held_out.is_none() && alone.reverted.is_none());
        assert_eq!(alone.calibration.error, small);
        let (both, some) = decided_by(budget, faster, calibration, held_out);
        let (calibration, held_out) = errors(&both);
        assert!(
            calibration <= budget && held_out <= budget,
            "{calibration}, {held_out}"
        );
        let reverted = both.reverted.as_ref().unwrap();
        assert_eq!(reverted.error, large);
        // No more than needed, and those are in full precision.
        let full: Vec<&String> = both.layers(Precision::Full).collect();
        assert!(reverted.layers.iter().eq(full) && !some.is_empty());
        assert_eq!(all.len() - some.len(), reverted.layers.len());
    }

    #[test]
    fn what_is_slower_stays_as_it_is() {
        // TinyViT32's second layers of the feed-forward network have more inputs than outputs.
        let (decision, _) = decided(1.0, |[_, k, n]| if k > n { [1, 2, 1] } else { [2, 1, 2] });
        for choice in &decision.choices {
            let second = choice.layers.iter().any(|layer| layer.ends_with("fc2"));
            let expected = if second { Precision::Full } else { Precision::Int8 };
            assert_eq!(choice.precision, expected, "{:?}", choice.layers);
        }
        assert!(count(&decision, Precision::Full) > 0 && count(&decision, Precision::Int8) > 0);
    }

    #[test]
    fn precisions_are_mixed() {
        // Each is fastest for some, and FP8's errors are larger.
        let times = |[_, k, n]: [usize; 3]| if k > n { [9, 8, 1] } else { [9, 1, 8] };
        let (all, replaced) = decided(1.0, times);
        for choice in &all.choices {
            let second = choice.layers.iter().any(|layer| layer.ends_with("fc2"));
            let expected = if second { Precision::Fp8 } else { Precision::Int8 };
            assert_eq!(choice.precision, expected, "{:?}", choice.layers);
            assert!(choice.candidates[1].error > choice.candidates[0].error);
        }
        let float8 = |of: &&Replacement| matches!(of, Replacement::Float8 { .. });
        assert_eq!(
            replaced.values().filter(float8).count(),
            count(&all, Precision::Fp8)
        );
        // As one file, with a group of layers for each.
        let directory = tempfile::tempdir().unwrap();
        let checkpoint = Checkpoint::open(None).unwrap();
        let unquantised = ["head".to_owned()];
        checkpoint
            .write(directory.path(), Format::Full, &replaced, &unquantised)
            .unwrap();
        let config = std::fs::read(directory.path().join("config.json")).unwrap();
        let config: serde_json::Value = serde_json::from_slice(&config).unwrap();
        let config = &config["quantization_config"];
        assert_eq!(config["format"], "mixed-precision");
        for (group, precision) in [("group_0", Precision::Int8), ("group_1", Precision::Fp8)] {
            let targets = config["config_groups"][group]["targets"].as_array().unwrap();
            assert_eq!(targets.len(), count(&all, precision));
        }
        let read = load(directory.path(), &LoadOptions::default()).unwrap();
        let found = read.info.quantization.unwrap();
        let (int8, float8) = (count(&all, Precision::Int8), count(&all, Precision::Fp8));
        assert_eq!((found.int8, found.float8), (int8, float8));
        // With less to spend, some that FP8 makes fastest are in int8, or as they were.
        let (some, _) = decided(all.calibration.error * 0.7, times);
        assert!(some.calibration.within(all.calibration.error * 0.7));
        assert!(count(&some, Precision::Fp8) < count(&all, Precision::Fp8));
    }
}
