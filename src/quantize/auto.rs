//! A precision for each layer under a bound on the logits' error: its own, int8, or FP8 where the model is to run on a GPU.
//!
//! The layers that read the same activations are one choice. Each is quantised alone in each precision, which gives the errors on the
//! calibration images; how much time that saves is measured where the model is to run. Choices are then made in the order of time
//! saved by squared error, which is how independent errors add up, as many as keep the measured error of all of them together
//! within the bound. One that comes later takes the place of the same layers' earlier one if it saves more.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use ndarray::Array2;
use serde::Serialize;

use super::{Group, Layers, Precision, stored_names};
use crate::error::{Error, Result};
use crate::exec::{Arena, CpuExecutor};
use crate::graph::plan::Plan;
use crate::graph::{Graph, OutputKind, Passes, ValueId, optimize};
use crate::model::{Checkpoint, Format, Model, Replacement};
use crate::ops::Op;
use crate::tensor::{DType, Input};

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
    /// The error of the outputs with these choices: root mean square, as a part of the outputs'.
    pub error: f64,
    /// Images whose best class stays; none of a model without classes.
    pub agreeing: Option<usize>,
    /// Where times were measured: the CPU's or the GPU's name, the dtype and the batch.
    pub measured_on: String,
    /// The choices, in the order of the layers.
    pub choices: Vec<Choice>,
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

/// Decides what each unit is in; returns what is replaced then. `full` is how long each takes in full precision.
pub(super) fn decide(
    checkpoint: &Checkpoint,
    model: &Model,
    units: &[Unit],
    full: &[Duration],
    options: &[Quantized],
    images: &[Vec<u8>],
    (budget, measured_on): (f64, String),
) -> Result<(Decision, BTreeMap<String, Replacement>)> {
    let (executor, plan) = prepared(model)?;
    let expected = run(&executor, &plan, images)?;
    // By unit, the option that it takes.
    let replaced = |taken: &BTreeMap<usize, usize>| -> BTreeMap<String, Replacement> {
        let of_unit = |(&unit, &option): (&usize, &usize)| {
            let tensors = units[unit].tensors.iter();
            let replaced = &options[option].replaced;
            tensors
                .filter_map(|name| Some((name.clone(), replaced.get(name)?.clone())))
                .collect::<Vec<_>>()
        };
        taken.iter().flat_map(of_unit).collect()
    };
    let measure = |taken: &BTreeMap<usize, usize>| -> Result<Vec<Array2<f32>>> {
        let changed = checkpoint.changed(Format::Full, &replaced(taken), &[])?;
        let (executor, plan) = prepared(&changed)?;
        run(&executor, &plan, images)
    };
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let mut choices = Vec::with_capacity(units.len());
    for (index, unit) in units.iter().enumerate() {
        let candidate = |(number, option): (usize, &Quantized)| {
            Ok(Candidate {
                precision: option.precision,
                error: error(&expected, &measure(&BTreeMap::from([(index, number)]))?),
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
        let mut taken: BTreeMap<usize, usize> = BTreeMap::new();
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
    let mut best = expected.clone();
    let mut next = order.len();
    while fits + 1 < exceeds {
        let got = measure(&first(next))?;
        if error(&expected, &got) <= budget {
            (fits, best) = (next, got);
        } else {
            exceeds = next;
        }
        next = fits.midpoint(exceeds);
    }
    let taken = first(fits);
    for (&unit, &option) in &taken {
        choices[unit].precision = options[option].precision;
    }
    let decision = Decision {
        budget,
        error: error(&expected, &best),
        agreeing: (model.info.classes > 0).then(|| agreeing(&expected, &best)),
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

fn prepared(model: &Model) -> Result<(CpuExecutor, Plan)> {
    let (graph, _) = optimize(model.graph.clone(), &Passes::default())?;
    let executor = CpuExecutor::new(&graph, None)?;
    Ok((executor, Plan::new(Arc::new(graph), 1, DType::F32)?))
}

/// The logits of each image, or its embedding if there are none.
fn run(executor: &CpuExecutor, plan: &Plan, images: &[Vec<u8>]) -> Result<Vec<Array2<f32>>> {
    let mut arena = Arena::new();
    let output = |image: &Vec<u8>| {
        let outputs = executor.run(plan, Input::Pixels(image), &mut arena, None)?;
        let rank = |kind: &OutputKind| match kind {
            OutputKind::Logits => 0,
            OutputKind::Embedding => 1,
            _ => 2,
        };
        let output = outputs.into_iter().min_by_key(|(kind, _)| rank(kind));
        output
            .map(|(_, values)| values)
            .ok_or_else(|| Error::graph("outputs", "there is none to compare"))
    };
    images.iter().map(output).collect()
}

/// The root mean square difference of outputs, as a part of the expected ones' root mean square.
fn error(expected: &[Array2<f32>], got: &[Array2<f32>]) -> f64 {
    let square = |value: f32| f64::from(value).powi(2);
    let (mut difference, mut size) = (0.0, 0.0);
    for (expected, got) in expected.iter().flatten().zip(got.iter().flatten()) {
        difference += square(got - expected);
        size += square(*expected);
    }
    match size > 0.0 {
        true => (difference / size).sqrt(),
        false => difference.sqrt(),
    }
}

fn agreeing(expected: &[Array2<f32>], got: &[Array2<f32>]) -> usize {
    let best = |values: &Array2<f32>| {
        let best = values.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
        best.map(|(index, _)| index)
    };
    expected
        .iter()
        .zip(got)
        .filter(|(a, b)| best(a) == best(b))
        .count()
}

#[cfg(test)]
mod tests {
    use super::super::{Scales, activations, groups, rounding};
    use super::*;
    use crate::model::{LoadOptions, load, tinyvit32};

    /// The decision on TinyViT32 and images of noise, if a GEMM takes these microseconds in full precision, in int8 and in FP8.
    fn decided(budget: f64, times: fn([usize; 3]) -> [u64; 3]) -> (Decision, BTreeMap<String, Replacement>) {
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
        let images: Vec<Vec<u8>> = (0..6).map(image).collect();
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
        let by = (budget, "a test".to_owned());
        decide(&checkpoint, &model, &units, &of(0), &options, &images, by).unwrap()
    }

    fn count(decision: &Decision, precision: Precision) -> usize {
        decision.layers(precision).count()
    }

    #[test]
    fn the_budget_bounds_the_measured_error() {
        let faster = |_| [2, 1, 3];
        let (none, replaced) = decided(0.0, faster);
        assert!(replaced.is_empty() && none.error == 0.0 && none.agreeing == Some(6));
        let (all, replaced) = decided(1.0, faster);
        assert_eq!(
            [count(&all, Precision::Full), count(&all, Precision::Fp8)],
            [0; 2]
        );
        assert!(all.error > 0.0 && count(&all, Precision::Int8) == replaced.len());
        let (some, replaced) = decided(all.error / 2.0, faster);
        assert!(some.error <= all.error / 2.0, "{} of {}", some.error, all.error);
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
        let (some, _) = decided(all.error * 0.7, times);
        assert!(some.error <= all.error * 0.7);
        assert!(count(&some, Precision::Fp8) < count(&all, Precision::Fp8));
    }
}
