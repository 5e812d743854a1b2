//! A step of SGD with momentum as a graph with several inputs, parameters and states, on any executor.

use std::ops::Range;
use std::sync::Arc;

use hipvit::DType;
use hipvit::exec::{Executor, Inputs};
use hipvit::graph::{Graph, Interpreter, OutputKind, Passes, Role, ValueId, optimize};
use hipvit::ops::{Add, MulScalar, Op, Pool, Scale};
use hipvit::reference::{assert_close, model_tolerance};
use hipvit::tensor::{Input, Tensor};

const TOKENS: usize = 3;
const CHANNELS: usize = 5;
const ELEMENTS: usize = TOKENS * CHANNELS;

/// Names of the parameters and states. Nothing writes `frozen`, which is between the others in memory.
pub(crate) const STATES: [&str; 3] = ["weight", "frozen", "velocity"];

/// Source of the gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gradient {
    /// Inputs of fixed shape: `gradient`, and the learning rate `rate`. For any number of images, in f32.
    Given,
    /// The error of one image, in any dtype.
    Error,
}

/// Returns a graph that adds `weight` to the tokens and multiplies them by `frozen`. Its output is the mean difference from `targets`.
/// Each run updates `velocity` to half of it plus the gradient, and subtracts a part of the new velocity from `weight`.
pub(crate) fn graph(gradient: Gradient) -> Graph {
    let mut graph = Graph::of_tokens("sgd", [TOKENS, CHANNELS]);
    let shape = [1, TOKENS, CHANNELS];
    let tokens = graph.input();
    let targets = graph.add_input("targets", shape, DType::F32).unwrap();
    let weight = graph.parameter("weight", tensor(&shape, 1));
    let frozen = graph.parameter("frozen", tensor(&[CHANNELS], 2));
    let velocity = graph.state("velocity", tensor(&shape, 3));
    let push = |graph: &mut Graph, name: &str, op: Op, inputs: &[ValueId]| {
        graph.push(Role::Other, name, op, inputs).unwrap()
    };
    let moved = push(&mut graph, "moved", Add.into(), &[tokens, weight]);
    let scaled = push(&mut graph, "scaled", Scale.into(), &[moved, frozen]);
    let negative = push(&mut graph, "negative", MulScalar(-1.0).into(), &[targets]);
    let error = push(&mut graph, "error", Add.into(), &[scaled, negative]);
    let decayed = push(&mut graph, "decayed", MulScalar(0.5).into(), &[velocity]);
    let next_velocity;
    let change = match gradient {
        Gradient::Given => {
            let given = graph.add_fixed_input("gradient", shape, DType::F32).unwrap();
            let rate = graph.add_fixed_input("rate", [CHANNELS], DType::F32).unwrap();
            next_velocity = push(&mut graph, "next_velocity", Add.into(), &[decayed, given]);
            let part = push(&mut graph, "part", Scale.into(), &[next_velocity, rate]);
            push(&mut graph, "change", MulScalar(-1.0).into(), &[part])
        }
        Gradient::Error => {
            next_velocity = push(&mut graph, "next_velocity", Add.into(), &[decayed, error]);
            push(&mut graph, "change", MulScalar(-0.25).into(), &[next_velocity])
        }
    };
    let next_weight = push(&mut graph, "next_weight", Add.into(), &[weight, change]);
    let pooled = push(&mut graph, "pooled", Pool::Mean { skip: 0 }.into(), &[error]);
    graph.set_output(OutputKind::Embedding, pooled);
    graph.update(weight, next_weight).unwrap();
    graph.update(velocity, next_velocity).unwrap();
    match gradient {
        Gradient::Given => optimize(graph, &Passes::default()).unwrap().0,
        // The shapes of its updates only fit one image, which the passes refuse.
        Gradient::Error => graph,
    }
}

/// Returns multiples of 1/16 from -1 to 1, which all dtypes represent.
fn values(seed: usize, count: usize) -> Vec<f32> {
    let value = |i: usize| ((i * 7919 + seed * 104_729) % 33) as f32 / 16.0 - 1.0;
    (0..count).map(value).collect()
}

fn tensor(shape: &[usize], seed: usize) -> Tensor {
    Tensor::from_f32(shape, values(seed, shape.iter().product())).unwrap()
}

/// The inputs of a run.
pub(crate) struct Batch(pub(crate) Vec<(&'static str, Vec<f32>)>);

impl Batch {
    /// Creates the inputs of run number `run`.
    pub(crate) fn new(gradient: Gradient, images: usize, run: usize) -> Self {
        let mut named = vec![
            ("activations", values(10 + run, images * ELEMENTS)),
            ("targets", values(20 + run, images * ELEMENTS)),
        ];
        if gradient == Gradient::Given {
            named.push(("gradient", values(30 + run, ELEMENTS)));
            named.push(("rate", values(40 + run, CHANNELS)));
        }
        Self(named)
    }

    /// Returns the inputs by name, in another order than that of the graph.
    pub(crate) fn inputs(&self) -> Inputs<'_> {
        let named = self.0.iter().rev();
        Inputs::new(named.map(|(name, values)| (*name, Input::Values(values).into())))
    }

    fn in_order(&self) -> Vec<Input<'_>> {
        self.0.iter().map(|(_, values)| Input::Values(values)).collect()
    }
}

/// Runs an executor of [`graph`] with the inputs of these runs. Returns the output of each run, then the states.
pub(crate) fn train(
    executor: &Arc<dyn Executor>,
    gradient: Gradient,
    images: usize,
    runs: Range<usize>,
) -> Vec<Vec<f32>> {
    let plan = executor.plan(images).unwrap();
    let mut all = Vec::new();
    for run in runs {
        let batch = Batch::new(gradient, images, run);
        let outputs = executor.run_inputs(&plan, batch.inputs()).unwrap();
        all.push(outputs.get("embedding").unwrap().values.iter().copied().collect());
    }
    all.extend(states(executor));
    all
}

/// Returns the elements of the parameters and states.
pub(crate) fn states(executor: &Arc<dyn Executor>) -> Vec<Vec<f32>> {
    let state = |name| executor.state(name).unwrap().to_f32().into_owned();
    STATES.map(state).to_vec()
}

/// Checks the results of [`train`] against the interpreter.
#[track_caller]
pub(crate) fn check(
    results: &[Vec<f32>],
    gradient: Gradient,
    images: usize,
    runs: Range<usize>,
    dtype: DType,
) {
    let graph = graph(gradient);
    let mut interpreter = Interpreter::new(&graph);
    let mut expected: Vec<Vec<f64>> = Vec::new();
    let nodes = graph.nodes().len() * runs.len();
    for run in runs {
        let batch = Batch::new(gradient, images, run);
        let outputs = interpreter.run(images, &batch.in_order()).unwrap();
        expected.push(outputs[0].1.iter().copied().collect());
    }
    for name in STATES {
        let id = graph.states().find(|&id| graph.value(id).name == name).unwrap();
        expected.push(interpreter.state(id).unwrap().values().to_vec());
    }
    assert_eq!(results.len(), expected.len());
    for (got, expected) in results.iter().zip(&expected) {
        assert_close(got, expected, model_tolerance(dtype, nodes));
    }
}
