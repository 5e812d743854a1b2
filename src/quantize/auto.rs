//! A precision for each layer under a bound on the logits' error: f32 or int8.
//!
//! The layers that read the same activations are one choice. Each is quantised alone, which gives its error on the calibration
//! images; how much time it saves is measured on the GEMM. Choices are then made in the order of time saved by squared error,
//! which is how independent errors add up, as many as keep the measured error of all of them together within the bound.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ndarray::Array2;
use serde::Serialize;

use super::{Group, Layers, stored_names};
use crate::error::{Error, Result};
use crate::exec::{Arena, CpuExecutor};
use crate::graph::plan::Plan;
use crate::graph::{Graph, OutputKind, Passes, ValueId, optimize};
use crate::model::{Checkpoint, Format, Model, Replacement};
use crate::ops::int8::{self, Int8Weight};
use crate::ops::linear::{self, PrepackedWeight, Tail};
use crate::ops::{Levels, Op};
use crate::tensor::{DType, Input};

/// Layers that read the same activations, and what was decided about them.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Choice {
    /// The layers' names.
    pub layers: Vec<String>,
    /// Whether they are in int8.
    pub int8: bool,
    /// The error of the outputs if these layers alone are in int8: root mean square, as a part of the outputs'.
    pub error: f64,
    /// Microseconds of their GEMMs for one image in f32.
    pub f32_us: f64,
    /// In int8.
    pub int8_us: f64,
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
    /// The choices, in the order of the layers.
    pub choices: Vec<Choice>,
}

impl Decision {
    /// The layers that stay in full precision.
    pub(super) fn full(&self) -> impl Iterator<Item = &String> {
        self.choices
            .iter()
            .filter(|choice| !choice.int8)
            .flat_map(|choice| &choice.layers)
    }
}

/// Layers that read one value, and the tensors that change if they are quantised.
struct Unit {
    layers: BTreeSet<String>,
    tensors: BTreeSet<String>,
    /// Tokens, input channels, output channels of each GEMM.
    sizes: Vec<[usize; 3]>,
}

/// Decides which layers are quantised; returns the names of the tensors that then are `replaced`, too. `gemm_times` are
/// those of [`gemm_times`].
pub(super) fn decide(
    checkpoint: &Checkpoint,
    model: &Model,
    (layers, groups): (&Layers, &[Group]),
    replaced: &BTreeMap<String, Replacement>,
    images: &[Vec<u8>],
    budget: f64,
    gemm_times: impl Fn([usize; 3]) -> Result<[Duration; 2]> + Sync,
) -> Result<(Decision, BTreeSet<String>)> {
    let units = units(&model.graph, layers, groups);
    let (executor, plan) = prepared(model)?;
    let expected = run(&executor, &plan, images)?;
    let measure = |chosen: &[&Unit]| -> Result<Vec<Array2<f32>>> {
        let tensors: BTreeMap<String, Replacement> = replaced
            .iter()
            .filter(|(name, _)| chosen.iter().any(|unit| unit.tensors.contains(*name)))
            .map(|(name, replacement)| (name.clone(), replacement.clone()))
            .collect();
        let (executor, plan) = prepared(&checkpoint.changed(Format::Int8, &tensors, &[])?)?;
        run(&executor, &plan, images)
    };
    let mut times = HashMap::new();
    let mut choices = Vec::with_capacity(units.len());
    for unit in &units {
        let mut time = [Duration::ZERO; 2];
        for &size in &unit.sizes {
            let of_size = match times.get(&size) {
                Some(of_size) => *of_size,
                None => *times
                    .entry(size)
                    .or_insert(executor.install(|| gemm_times(size))?),
            };
            time = [time[0] + of_size[0], time[1] + of_size[1]];
        }
        let [f32_us, int8_us] = time.map(|time| time.as_secs_f64() * 1e6);
        choices.push(Choice {
            layers: unit.layers.iter().cloned().collect(),
            int8: false,
            error: error(&expected, &measure(&[unit])?),
            f32_us,
            int8_us,
        });
    }
    let mut order: Vec<usize> = (0..units.len())
        .filter(|&i| choices[i].int8_us < choices[i].f32_us)
        .collect();
    let worth = |i: usize| {
        let Choice {
            f32_us,
            int8_us,
            error,
            ..
        } = choices[i];
        (f32_us - int8_us) / error.powi(2).max(f64::MIN_POSITIVE)
    };
    order.sort_by(|&a, &b| worth(b).total_cmp(&worth(a)));
    // The longest beginning whose error is within the budget. That of none is 0.
    let (mut fits, mut exceeds) = (0, order.len() + 1);
    let mut best = expected.clone();
    let mut next = order.len();
    while fits + 1 < exceeds {
        let chosen: Vec<&Unit> = order[..next].iter().map(|&i| &units[i]).collect();
        let got = measure(&chosen)?;
        if error(&expected, &got) <= budget {
            (fits, best) = (next, got);
        } else {
            exceeds = next;
        }
        next = fits.midpoint(exceeds);
    }
    for &i in &order[..fits] {
        choices[i].int8 = true;
    }
    let chosen = order[..fits]
        .iter()
        .flat_map(|&i| units[i].tensors.iter().cloned())
        .collect();
    let decision = Decision {
        budget,
        error: error(&expected, &best),
        agreeing: (model.info.classes > 0).then(|| agreeing(&expected, &best)),
        choices,
    };
    Ok((decision, chosen))
}

fn units(graph: &Graph, layers: &Layers, groups: &[Group]) -> Vec<Unit> {
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

/// The times of a linear layer in f32 and in int8, each the shortest of some: of tokens, input channels, output channels.
pub(super) fn gemm_times([m, k, n]: [usize; 3]) -> Result<[Duration; 2]> {
    const RUNS: usize = 8;
    let failed = |reason: String| Error::graph("linear", reason);
    let x: Vec<f32> = (0..m * k).map(|i| (i % 251) as f32 / 251.0 - 0.5).collect();
    let full = PrepackedWeight::new(&x.iter().cycle().take(n * k).copied().collect::<Vec<_>>(), n, k);
    let bytes: Vec<i8> = (0..n * k).map(|i| (i % 251) as u8 as i8).collect();
    let rounded = Int8Weight::new(&bytes, &vec![0.01; n], n, k).map_err(failed)?;
    let full = full.map_err(failed)?;
    let mut out = vec![0.0; m * n];
    let tail = Tail {
        bias: None,
        activation: None,
        residual: None,
    };
    let mut times = [Duration::MAX; 2];
    for _ in 0..RUNS {
        let start = Instant::now();
        linear::run(&x, &full, tail, &mut out).map_err(failed)?;
        times[0] = times[0].min(start.elapsed());
        let start = Instant::now();
        int8::run(&x, &rounded, Levels::Range, tail, &mut out).map_err(failed)?;
        times[1] = times[1].min(start.elapsed());
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::super::{Precision, Scales, groups, rounding};
    use super::*;
    use crate::model::{LoadOptions, tinyvit32};

    /// The decision on TinyViT32 and images of noise, if a GEMM takes these microseconds in f32 and in int8.
    fn decided(budget: f64, times: fn([usize; 3]) -> [u64; 2]) -> (Decision, BTreeSet<String>) {
        let checkpoint = Checkpoint::open(None).unwrap();
        let model = tinyvit32(&LoadOptions::default()).unwrap();
        let layers = Layers::of(&model.graph);
        let groups = groups(&model.graph, &layers);
        let round = |name: &String| {
            let rounded = rounding::round(&checkpoint, name, None, Precision::Int8, Scales::Largest);
            (name.clone(), rounded.unwrap())
        };
        let replaced = layers.quantized.iter().map(round).collect();
        let [height, width] = model.info.image_size;
        let image = |seed: usize| {
            (0..height * width * 3)
                .map(|i| (i * i * (seed + 3) % 251) as u8)
                .collect()
        };
        let images: Vec<Vec<u8>> = (0..6).map(image).collect();
        let times = |size| Ok(times(size).map(Duration::from_micros));
        let of = (&layers, groups.as_slice());
        let decided = decide(&checkpoint, &model, of, &replaced, &images, budget, times);
        let (decision, mut tensors) = decided.unwrap();
        // Without those of the norms.
        tensors.retain(|name| layers.quantized.contains(name));
        (decision, tensors)
    }

    #[test]
    fn the_budget_bounds_the_measured_error() {
        let faster = |_| [2, 1];
        let (none, tensors) = decided(0.0, faster);
        assert!(tensors.is_empty() && none.error == 0.0 && none.agreeing == Some(6));
        let (all, tensors) = decided(1.0, faster);
        assert!(all.choices.iter().all(|choice| choice.int8) && all.error > 0.0);
        assert_eq!(all.choices.len(), tensors.len());
        let (some, tensors) = decided(all.error / 2.0, faster);
        assert!(some.error <= all.error / 2.0, "{} of {}", some.error, all.error);
        let chosen = some.choices.iter().filter(|choice| choice.int8);
        let (chosen, full) = (chosen.count(), some.full().count());
        assert!(
            chosen > 0 && full > 0 && chosen == tensors.len(),
            "{chosen} {full}"
        );
        // Of layers that gain the same, those with the least errors.
        let errors = |int8: bool| {
            some.choices
                .iter()
                .filter(move |choice| choice.int8 == int8)
                .map(|choice| choice.error)
        };
        assert!(errors(true).fold(0.0, f64::max) <= errors(false).fold(1.0, f64::min));
    }

    #[test]
    fn what_is_slower_in_int8_stays_as_it_is() {
        // TinyViT32's second layers of the feed-forward network have more inputs than outputs.
        let (decision, _) = decided(1.0, |[_, k, n]| if k > n { [1, 2] } else { [2, 1] });
        let (mut kept, mut rounded) = (0, 0);
        for choice in &decision.choices {
            let second = choice.layers.iter().any(|layer| layer.ends_with("fc2"));
            assert_eq!(choice.int8, !second, "{:?}", choice.layers);
            if second { kept += 1 } else { rounded += 1 }
        }
        assert!(kept > 0 && rounded > 0);
    }
}
