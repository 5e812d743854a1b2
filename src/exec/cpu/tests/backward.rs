//! Backward passes on the CPU against the reference.

use std::sync::Arc;

use super::run_guarded;
use crate::exec::{Arena, CpuExecutor};
use crate::graph::plan::Plan;
use crate::graph::{Graph, OutputKind, Role, ValueId, grad, interpret};
use crate::ops::{
    Activation, Affine, Attention, AttentionOperands, LayerNorm, Linear, Mul, Op, PatchConv, Pool, Prepend,
    RmsNorm, Rope, RopePairs, SwiGlu, Transpose,
};
use crate::reference::{assert_close, tolerance};
use crate::tensor::{DType, Input, Tensor};

struct Builder {
    graph: Graph,
    weights: Vec<ValueId>,
}

impl Builder {
    fn weight(&mut self, shape: &[usize]) -> ValueId {
        let len = shape.iter().product();
        let seed = self.graph.values().len();
        let values = (0..len).map(|i| ((i * 7919 + seed * 104_729) % 1999) as f32 / 1000.0 - 1.0);
        let tensor = Tensor::from_f32(shape, values.collect::<Vec<f32>>()).unwrap();
        let weight = self.graph.constant(format!("weight {seed}"), tensor);
        self.weights.push(weight);
        weight
    }

    fn push(&mut self, op: impl Into<Op>, x: &[ValueId], weights: &[&[usize]]) -> ValueId {
        let mut operands = x.to_vec();
        operands.extend(weights.iter().map(|shape| self.weight(shape)));
        let name = format!("node {}", self.graph.nodes().len());
        self.graph.push(Role::Other, name, op, operands).unwrap()
    }
}

/// Returns a model with one op of each kind whose derivative is a separate op.
fn model() -> (Graph, ValueId, Vec<ValueId>) {
    let mut b = Builder {
        graph: Graph::new("model", [1, 3, 4, 6], DType::F32),
        weights: Vec::new(),
    };
    let conv = PatchConv {
        patch: [2, 3],
        bias: true,
    };
    let input = b.graph.input();
    let x = b.push(conv, &[input], &[&[12, 3, 2, 3], &[12]]);
    let class = b.weight(&[1, 1, 12]);
    let x = b.push(Prepend, &[class, x], &[]);
    let x = b.push(LayerNorm { epsilon: 1e-5 }, &[x], &[&[12], &[12]]);
    let x = b.push(RmsNorm { epsilon: 1e-5 }, &[x], &[&[6]]);
    let x = b.push(Linear::default(), &[x], &[&[36, 12]]);
    let rope = Rope {
        heads: 2,
        head_dim: 6,
        rotated: 2,
        pairs: RopePairs::Halves,
    };
    let x = b.push(rope, &[x], &[&[1, 4, 6]]);
    b.weights.pop();
    let attention = Attention {
        heads: 2,
        head_dim: 6,
        scale: 0.4,
        operands: AttentionOperands::PackedQkv,
        bias: true,
        ..Attention::default()
    };
    let x = b.push(attention, &[x], &[&[2, 5, 5]]);
    let x = b.push(Affine, &[x], &[&[12], &[12]]);
    let y = b.push(Activation::GeluErf, &[x], &[]);
    let x = b.push(Mul, &[x, y], &[]);
    let x = b.push(SwiGlu, &[x], &[]);
    let x = b.push(Transpose::default(), &[x], &[]);
    let x = b.push(Pool::Mean { skip: 1 }, &[x], &[]);
    b.graph.set_output(OutputKind::Embedding, x);
    (b.graph, x, b.weights)
}

#[test]
fn gradients_equal_the_references() {
    let (graph, output, mut wrt) = model();
    wrt.push(graph.input());
    let backward = grad(&graph, output, &wrt).unwrap();
    backward.verify().unwrap();
    for batch in [1, 3] {
        let input: Vec<f32> = (0..batch * 72)
            .map(|i| (i * 31 % 67) as f32 / 33.0 - 1.0)
            .collect();
        let input = Input::Values(&input);
        let expected = interpret(&backward, batch, input).unwrap();
        let plan = Plan::new(Arc::new(backward.clone()), batch, DType::F32).unwrap();
        let mut first: Option<Vec<Vec<f32>>> = None;
        for threads in [1, 3] {
            let executor = CpuExecutor::new(&backward, Some(threads)).unwrap();
            run_guarded(&executor, &plan, input);
            let results = executor.run(&plan, input, &mut Arena::new(), None).unwrap();
            let mut values = Vec::new();
            for ((_, result), (_, expected)) in results.iter().zip(&expected) {
                let result: Vec<f32> = result.iter().copied().collect();
                let expected: Vec<f64> = expected.iter().copied().collect();
                // The longest chain has about ten sums of at most 36 products.
                assert_close(&result, &expected, 40.0 * tolerance(DType::F32, 36));
                values.push(result);
            }
            let first = first.get_or_insert_with(|| values.clone());
            assert_eq!(*first, values, "bits depend on the number of threads");
        }
    }
}
