//! Division of a model among GPUs.

use std::collections::HashSet;
use std::sync::Arc;

use serde::Serialize;

use crate::error::Result;
use crate::graph::plan::{Plan, Step};
use crate::graph::{Graph, OutputKind, ValueId, shard_stages, stages};
use crate::ops::Op;
use crate::tensor::DType;

/// Part of a model on one of several GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    /// Index of the GPU.
    pub gpu: usize,
    /// Name of the first node on the GPU.
    pub first: String,
    /// Name of the last node on the GPU.
    pub last: String,
    /// Number of elements of the constants.
    pub parameters: usize,
    /// Bytes of the constants in the plan's dtype.
    pub weight_bytes: usize,
    /// Bytes of the activations.
    pub arena_bytes: usize,
    /// Floating-point operations of a run.
    pub flops: u64,
    /// Number of all-reduces per run, plus 1 if the GPU sends activations to the next stage.
    pub exchanges: usize,
    /// Total bytes of these exchanges.
    pub exchanged_bytes: usize,
}

/// Returns the parts of `graph` on `pipeline` groups of `tensor` GPUs: the shards of each stage.
///
/// # Errors
///
/// The errors of `shard` and `stages`.
pub fn parts(graph: &Graph, tensor: usize, pipeline: usize, batch: usize, dtype: DType) -> Result<Vec<Part>> {
    let stages = stages(graph, pipeline.max(1))?;
    let ranks = (0..tensor.max(1)).map(|rank| shard_stages(&stages, rank, tensor.max(1)));
    let ranks = ranks.collect::<Result<Vec<_>, _>>()?;
    let groups = (0..stages.len()).flat_map(|stage| ranks.iter().map(move |rank| &rank[stage].graph));
    let part = |(gpu, graph): (usize, &Graph)| {
        let graph = Arc::new(graph.clone());
        Part::new(gpu, &Plan::new(graph, batch, dtype)?)
    };
    groups.enumerate().map(part).collect()
}

impl Part {
    fn new(gpu: usize, plan: &Plan) -> Result<Self> {
        let graph = plan.graph();
        let name = |node: Option<&crate::graph::Node>| node.map(|node| node.name.clone()).unwrap_or_default();
        let parameters = parameters(graph);
        let reduced = plan
            .steps()
            .iter()
            .filter(|step| matches!(plan.node(step).op, Op::AllReduce(_)));
        let reduced = reduced.map(Step::output);
        let passed = plan
            .outputs()
            .iter()
            .filter(|(kind, ..)| *kind == OutputKind::Boundary);
        let passed = passed.map(|&(_, _, id)| id);
        let exchanged: Vec<usize> = reduced.chain(passed).map(|id| plan.buffer(id).bytes).collect();
        Ok(Self {
            gpu,
            first: name(graph.nodes().first()),
            last: name(graph.nodes().last()),
            parameters,
            weight_bytes: parameters * plan.dtype().size(),
            arena_bytes: plan.arena_bytes(),
            flops: plan.flops(),
            exchanges: exchanged.len(),
            exchanged_bytes: exchanged.iter().sum(),
        })
    }
}

/// Counts the elements of the constants that nodes read.
fn parameters(graph: &Graph) -> usize {
    let used: HashSet<ValueId> = graph
        .nodes()
        .iter()
        .flat_map(|node| &node.inputs)
        .copied()
        .collect();
    let constants = used
        .into_iter()
        .map(|id| graph.value(id))
        .filter(|value| value.is_constant());
    constants.map(|value| value.shape.iter().product::<usize>()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Passes, optimize};
    use crate::graph_tests::vit::Vit;

    #[test]
    fn ranks_share_the_weights_of_vit_base() {
        let graph = optimize(Vit::BASE.zeros(), &Passes::default()).unwrap().0;
        let whole = parts(&graph, 1, 1, 2, DType::BF16).unwrap();
        assert_eq!((whole.len(), whole[0].exchanges), (1, 0));
        // All of a block is divided, except for norms and the biases added after the sums.
        let divided = 12 * (3 * 768 * 768 + 3 * 768 + 768 * 768 + 2 * 3072 * 768 + 3072);
        for part in parts(&graph, 3, 1, 2, DType::BF16).unwrap() {
            assert_eq!(part.parameters, whole[0].parameters - divided + divided / 3);
            assert_eq!(part.weight_bytes, 2 * part.parameters);
            assert!(part.arena_bytes < whole[0].arena_bytes);
            // Two per block. The last block only computes the class token.
            let row = 2 * 768 * 2;
            assert_eq!((part.exchanges, part.exchanged_bytes), (24, (22 * 197 + 2) * row));
        }
    }

    #[test]
    fn stages_have_all_weights_once() {
        let graph = optimize(Vit::BASE.zeros(), &Passes::default()).unwrap().0;
        let whole = parts(&graph, 1, 1, 1, DType::F32).unwrap();
        let stages = parts(&graph, 1, 4, 1, DType::F32).unwrap();
        assert_eq!(
            stages.iter().map(|part| part.parameters).sum::<usize>(),
            whole[0].parameters
        );
        assert_eq!(
            stages.iter().map(|part| part.flops).sum::<u64>(),
            whole[0].flops + 3 * 197 * 768
        );
        let exchanges: Vec<usize> = stages.iter().map(|part| part.exchanged_bytes).collect();
        assert_eq!(exchanges, [197 * 768 * 4, 197 * 768 * 4, 197 * 768 * 4, 0]);
        assert_eq!(
            (&stages[0].first, &stages[3].last),
            (&whole[0].first, &whole[0].last)
        );
    }
    #[test]
    fn ranks_share_each_stage() {
        let graph = optimize(Vit::BASE.zeros(), &Passes::default()).unwrap().0;
        let stages = parts(&graph, 1, 2, 1, DType::F32).unwrap();
        let ranks = parts(&graph, 3, 1, 1, DType::F32).unwrap();
        let both = parts(&graph, 3, 2, 1, DType::F32).unwrap();
        assert_eq!(both.len(), 6);
        for (gpu, part) in both.iter().enumerate() {
            let stage = &stages[gpu / 3];
            assert_eq!(part.gpu, gpu);
            assert!(part.parameters < stage.parameters / 2, "{part:?}");
            // Stages pass on whole activations.
            let passed = [197 * 768 * 4, 0][gpu / 3];
            assert_eq!(stage.exchanged_bytes, passed);
            assert!(part.exchanges > stage.exchanges && part.exchanged_bytes > passed);
        }
        let of_rank = |rank: usize| both[rank].parameters + both[3 + rank].parameters;
        assert_eq!(of_rank(1), ranks[1].parameters);
        let sums = |parts: &[Part]| parts.iter().map(|part| part.exchanges).sum::<usize>();
        assert_eq!(sums(&both), sums(&ranks) + 3);
    }
}
