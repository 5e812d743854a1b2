//! Parameters and states keep their values across runs, and runs can write them.

use std::sync::Arc;

use crate::exec::{Arena, CpuExecutor};
use crate::graph::plan::{Operand, Plan};
use crate::graph::{Graph, OutputKind, Role};
use crate::ops::{Add, Linear, MulScalar, Pool, Scale};
use crate::tensor::{DType, Input, Tensor};

fn tensor(shape: &[usize], values: &[f32]) -> Tensor {
    Tensor::from_f32(shape, values.to_vec()).unwrap()
}

#[test]
fn a_state_sums_over_runs_and_a_parameter_decays() {
    let mut graph = Graph::of_tokens("states", [1, 2]);
    let sum = graph.state("sum", tensor(&[1, 1, 2], &[10.0, 20.0]));
    let factor = graph.parameter("factor", tensor(&[2], &[1.0, 2.0]));
    let weight = graph.parameter("weight", tensor(&[2, 2], &[0.0, 1.0, 1.0, 0.0]));
    let input = graph.input();
    // A weight that is not a constant is packed in each run.
    let x = graph
        .push(Role::Other, "swapped", Linear::default(), [input, weight])
        .unwrap();
    let x = graph.push(Role::Other, "scaled", Scale, [x, factor]).unwrap();
    let next = graph.push(Role::Other, "next", Add, [x, sum]).unwrap();
    let decayed = graph
        .push(Role::Other, "decayed", MulScalar(0.5), [factor])
        .unwrap();
    let pooled = graph.push(Role::Other, "pooled", Pool::Token(0), [next]).unwrap();
    graph.set_output(OutputKind::Embedding, pooled);
    graph.update(sum, next).unwrap();
    graph.update(factor, decayed).unwrap();
    graph.verify().unwrap();
    assert!(
        graph
            .update(input, next)
            .unwrap_err()
            .to_string()
            .contains("neither")
    );
    assert!(
        graph
            .update(factor, next)
            .unwrap_err()
            .to_string()
            .contains("has shape [2]")
    );

    let executor = CpuExecutor::new(&graph, Some(1)).unwrap();
    let plan = Plan::new(Arc::new(graph), 1, DType::F32).unwrap();
    assert!(plan.steps()[0].inputs.contains(&Operand::State(weight)));
    let mut arena = Arena::new();
    let mut run = |values: &[f32]| {
        let outputs = executor
            .run(&plan, Input::Values(values), &mut arena, None)
            .unwrap();
        outputs[0].1.iter().copied().collect::<Vec<f32>>()
    };
    assert_eq!(run(&[1.0, 2.0]), [12.0, 22.0]);
    assert_eq!(run(&[1.0, 2.0]), [13.0, 23.0]);
    assert_eq!(executor.state(sum), Some(vec![13.0, 23.0]));
    assert_eq!(executor.state(factor), Some(vec![0.25, 0.5]));
    assert_eq!(executor.state(weight), Some(vec![0.0, 1.0, 1.0, 0.0]));
}
