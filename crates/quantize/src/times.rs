//! Times of layers in each precision on the target device.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::unit::Unit;
use hipvit::cpu::int8::{self, Int8Weight};
use hipvit::cpu::prepacked::{self, PrepackedWeight};
use hipvit::cpu::tail::Tail;
use hipvit::error::{Error, Result};
use hipvit::exec::{CpuExecutor, ExecutorOptions, HipExecutor};
use hipvit::graph::plan::Plan;
use hipvit::graph::{Graph, Node, Passes, optimize};
use hipvit::hip::Device;
use hipvit::model::Model;
use hipvit::ops::{Levels, Op, OpError};
use hipvit::tensor::DType;

/// GPU, dtype and batch size that a model is quantised for.
#[derive(Clone, Debug)]
pub struct GpuTarget {
    /// Device of the GPU.
    pub device: Device,
    /// Dtype of the activations.
    pub dtype: DType,
    /// Batch size.
    pub batch: usize,
}

/// Number of measurements of each time; the shortest counts.
const RUNS: usize = 8;

/// Measures the time of each unit on the CPU for one image, in f32, int8 and bf16.
pub(super) fn on_cpu(executor: &CpuExecutor, units: &[Unit]) -> Result<[Vec<Duration>; 3]> {
    let mut known: HashMap<[usize; 3], [Duration; 3]> = HashMap::new();
    let mut times = [const { Vec::new() }; 3];
    for unit in units {
        let mut sum = [Duration::ZERO; 3];
        for &size in &unit.sizes {
            let time = match known.get(&size) {
                Some(time) => *time,
                None => *known
                    .entry(size)
                    .or_insert(executor.install(|| gemm_times(size))?),
            };
            sum.iter_mut().zip(time).for_each(|(sum, time)| *sum += time);
        }
        times.iter_mut().zip(sum).for_each(|(times, sum)| times.push(sum));
    }
    Ok(times)
}

/// Measures the time of each unit of `model` on a GPU: its GEMMs, and the kernels that quantise their operands and
/// finish their results.
pub(super) fn on_gpu(model: &Model, target: &GpuTarget, units: &[Unit]) -> Result<Vec<Duration>> {
    let GpuTarget { device, dtype, batch } = target;
    let passes = Passes {
        fold_normalize: *dtype == DType::F32,
        whole_vectors: dtype.size() == 2,
        float8: HipExecutor::float8(device, *dtype),
        rounded_rows: true,
        ..Passes::default()
    };
    let (graph, _) = optimize(model.graph.clone(), &passes)?;
    let executor = HipExecutor::new(&graph, device, &ExecutorOptions::new(*dtype))?;
    let plan = Arc::new(Plan::new(Arc::new(graph), *batch, *dtype)?);
    let mut shortest: HashMap<usize, Duration> = HashMap::new();
    for _ in 0..RUNS {
        let mut times: HashMap<usize, Duration> = HashMap::new();
        for call in executor.time_calls(&plan, None)? {
            *times.entry(call.node).or_default() += call.time;
        }
        for (node, time) in times {
            let shortest = shortest.entry(node).or_insert(time);
            *shortest = time.min(*shortest);
        }
    }
    let of_unit = |unit: &Unit| {
        let nodes = nodes_of(plan.graph(), unit);
        nodes.filter_map(|node| shortest.get(&node)).sum()
    };
    Ok(units.iter().map(of_unit).collect())
}

/// Returns the nodes that compute a unit's layers, even if passes have packed, divided, scaled or padded the
/// weights.
fn nodes_of(graph: &Graph, unit: &Unit) -> impl Iterator<Item = usize> {
    let has_weights = move |node: &Node| {
        let names = graph.value(node.inputs[1]).tensors();
        names.into_iter().any(|name| unit.tensors.contains(name))
    };
    let nodes = graph.nodes().iter().enumerate();
    let nodes = nodes.filter(move |(_, node)| matches!(node.op, Op::Linear(_)) && has_weights(node));
    nodes.map(|(index, _)| index)
}

/// Measures a linear layer of `[tokens, input channels, output channels]` on the CPU in f32, int8 and bf16.
fn gemm_times([m, k, n]: [usize; 3]) -> Result<[Duration; 3]> {
    let failed = |reason: OpError| Error::graph("linear", reason);
    let x: Vec<f32> = (0..m * k).map(|i| (i % 251) as f32 / 251.0 - 0.5).collect();
    let weight: Vec<f32> = x.iter().cycle().take(n * k).copied().collect();
    let packed = |dtype| PrepackedWeight::new(&weight, n, k, dtype).map_err(failed);
    let (full, narrow) = (packed(DType::F32)?, packed(DType::BF16)?);
    let bytes: Vec<i8> = (0..n * k).map(|i| (i % 251) as u8 as i8).collect();
    let rounded = Int8Weight::new(&bytes, &vec![0.01; n], n, k).map_err(failed)?;
    let mut out = vec![0.0; m * n];
    let tail = Tail {
        bias: None,
        activation: None,
        residual: None,
    };
    let mut times = [Duration::MAX; 3];
    for _ in 0..RUNS {
        let mut time = |index: usize, run: &dyn Fn(&mut [f32]) -> Result<(), OpError>| {
            let start = Instant::now();
            run(&mut out).map_err(failed)?;
            times[index] = times[index].min(start.elapsed());
            Ok::<(), Error>(())
        };
        time(0, &|out| prepacked::run(&x, &full, tail, out))?;
        time(1, &|out| int8::run(&x, &rounded, Levels::Range, tail, out))?;
        time(2, &|out| prepacked::run_bf16(&x, &narrow, tail, out))?;
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;
    use crate::auto::units;
    use crate::layers::{Layers, groups};
    use hipvit::model::{LoadOptions, load};

    /// A layer that is not found would count as taking no time, and so gain nothing in 8 bits.
    #[test]
    fn layers_are_found_after_every_pass() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
        let passes = Passes {
            whole_vectors: true,
            ..Passes::default()
        };
        let mut renamed = BTreeSet::new();
        for entry in golden.read_dir().unwrap() {
            let directory = entry.unwrap().path();
            let Ok(model) = load(&directory, &LoadOptions::default()) else {
                continue;
            };
            let layers = Layers::of(&model.graph);
            let units = units(&model.graph, &layers, &groups(&model.graph, &layers));
            let (graph, _) = optimize(model.graph.clone(), &passes).unwrap();
            for unit in &units {
                let nodes: Vec<usize> = nodes_of(&graph, unit).collect();
                assert!(!nodes.is_empty(), "{}: {:?}", directory.display(), unit.tensors);
                for node in nodes {
                    let weight = &graph.value(graph.nodes()[node].inputs[1]).name;
                    renamed.extend(
                        [" + ", "[", "[padded]", " · "]
                            .into_iter()
                            .filter(|part| weight.contains(part)),
                    );
                }
            }
        }
        assert_eq!(renamed.len(), 4, "{renamed:?}");
    }
}
