//! Parameters, states and several inputs on the CPU.

use std::sync::Arc;

use hipvit::DType;
use hipvit::exec::{Executor, ExecutorOptions, Placement};
use hipvit::graph::{Graph, OutputKind, Role};
use hipvit::ops::{MulScalar, Pool};
use hipvit::tensor::Tensor;

use crate::support::cache;
use crate::support::states::{Batch, Gradient, check, graph, states, train};

fn executor(graph: &Graph) -> Arc<dyn Executor> {
    let options = ExecutorOptions::new(DType::F32);
    Placement::Host.executor(graph, &options).unwrap()
}

#[test]
fn states_of_the_cpu_follow_the_reference() {
    for (gradient, images) in [(Gradient::Given, 1), (Gradient::Given, 3), (Gradient::Error, 1)] {
        let results = train(&executor(&graph(gradient)), gradient, images, 0..4);
        check(&results, gradient, images, 0..4, DType::F32);
    }
}

/// Bound runs by the number of images: states do not depend on it.
#[test]
fn runs_of_several_batch_sizes_share_the_states() {
    let gradient = Gradient::Given;
    let one = executor(&graph(gradient));
    train(&one, gradient, 1, 0..2);
    let results = train(&one, gradient, 3, 2..4);
    let other = executor(&graph(gradient));
    let expected = train(&other, gradient, 2, 0..4);
    assert_eq!(results[2..], expected[4..]);
}

#[test]
fn states_are_set_by_name() {
    let gradient = Gradient::Given;
    let executor = executor(&graph(gradient));
    let before = states(&executor);
    let results = train(&executor, gradient, 2, 0..2);
    for (name, values) in ["weight", "frozen", "velocity"].iter().zip(&before) {
        let shape = executor.state(name).unwrap().shape().to_vec();
        let tensor = Tensor::from_f32(shape, values.clone()).unwrap();
        executor.set_state(name, &tensor).unwrap();
    }
    assert_eq!(states(&executor), before);
    assert_eq!(train(&executor, gradient, 2, 0..2), results);

    let error = executor.state("weigth").unwrap_err().to_string();
    assert_eq!(
        error,
        "state: `weigth` is neither a parameter nor a state of the model, which has `weight`, `frozen`, `velocity`"
    );
    let short = Tensor::from_f32([2], vec![0.0; 2]).unwrap();
    let error = executor.set_state("frozen", &short).unwrap_err().to_string();
    assert_eq!(error, "state: `frozen` has shape [5], and [2] was given");
}

#[test]
fn inputs_that_do_not_fit_are_named() {
    let gradient = Gradient::Given;
    let executor = executor(&graph(gradient));
    let plan = executor.plan(2).unwrap();
    let run = |change: &dyn Fn(&mut Batch)| {
        let mut batch = Batch::new(gradient, 2, 0);
        change(&mut batch);
        let error = executor.run_inputs(&plan, batch.inputs()).unwrap_err();
        error.to_string()
    };
    assert_eq!(
        run(&|batch| drop(batch.0.remove(1))),
        "inputs: `targets` is missing"
    );
    assert_eq!(
        run(&|batch| drop(batch.0.remove(0))),
        "inputs: `activations` is missing"
    );
    assert_eq!(
        run(&|batch| batch.0.push(("label", vec![0.0]))),
        "inputs: `label` is unknown or was given twice. The model has `activations`, `targets`, `gradient`, `rate`"
    );
    assert!(
        run(&|batch| batch.0.push(("rate", vec![0.0; 5])))
            .starts_with("inputs: `rate` is unknown or was given twice")
    );
    assert_eq!(
        run(&|batch| {
            batch.0[1].1.pop();
        }),
        "inputs: `targets` has 29 elements, expected 2 × 15, at least one image"
    );
    assert_eq!(
        run(&|batch| batch.0[3].1.push(0.0)),
        "inputs: `rate` has 6 elements, expected [5]"
    );
    assert_eq!(
        run(&|batch| {
            batch.0[0].1.pop();
        }),
        "input: has 29 elements, expected 2 × 15, at least one image"
    );
    // A failed run leaves the states as they were.
    let fresh = self::executor(&graph(gradient));
    assert_eq!(states(&executor), states(&fresh));
}

/// A graph that is wrong is refused before it runs.
#[test]
fn inputs_and_updates_that_are_wrong_are_refused() {
    let mut graph = Graph::of_tokens("wrong", [1, 2]);
    let input = graph.input();
    let error = |result: Result<(), hipvit::graph::Error>| result.unwrap_err().to_string();
    assert!(error(graph.add_input("labels", [3], DType::F32).map(drop)).contains("`labels`"));
    assert!(
        error(graph.add_fixed_input("pixels", [3], DType::F32).map(drop)).contains("Choose another name")
    );
    assert!(
        error(graph.add_fixed_input("half", [3], DType::F16).map(drop)).contains("inputs are u8, i32 or f32")
    );
    let state = graph.state("sum", Tensor::from_f32([1, 1, 2], vec![0.0; 2]).unwrap());
    let doubled = graph
        .push(Role::Other, "doubled", MulScalar(2.0), [input])
        .unwrap();
    let pooled = graph
        .push(Role::Other, "pooled", Pool::Token(0), [doubled])
        .unwrap();
    graph.set_output(OutputKind::Embedding, pooled);
    graph.update(state, doubled).unwrap();
    assert!(error(graph.update(state, doubled)).contains("is written twice"));
    let executor = self::executor(&graph);
    executor.plan(1).unwrap();
    let error = executor.plan(2).unwrap_err().to_string();
    assert_eq!(
        error,
        "node `sum`: has shape [1, 1, 2], but [2, 1, 2] is written to it"
    );
}

/// Keys and values that are cached in states.
#[test]
fn rows_are_written_to_states() {
    let executor = Placement::Host
        .executor(&cache::graph(), &ExecutorOptions::new(DType::F32))
        .unwrap();
    cache::check(&executor, DType::F32);
}
