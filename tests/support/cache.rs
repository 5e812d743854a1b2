//! A cache of keys and values as states of a graph, which steps write in place, on any executor.

use std::sync::Arc;

use hipvit::DType;
use hipvit::exec::{Executor, InputData, Inputs};
use hipvit::graph::{Graph, Interpreter, OutputKind, Passes, Role, optimize};
use hipvit::ops::{Concat, MulScalar, PagedAttention, WriteRows};
use hipvit::reference::{assert_close, model_tolerance};
use hipvit::tensor::{Input, Tensor};

const CACHE: &str = "cached keys and values";
const WIDTH: usize = 24;
const PAGE: usize = 2;
const PAGES: usize = 5;
/// Rows of a run: two sequences, and one that fills the batch.
const ROWS: usize = 3;

/// Returns a graph whose rows write keys and values to the cache and attend to the tokens of their sequence.
pub(crate) fn graph() -> Graph {
    let mut graph = Graph::of_values("cache", "rows", [1, WIDTH], DType::F32).unwrap();
    let mut input = |name, shape: &[usize]| graph.add_input(name, shape, DType::I32).unwrap();
    let (places, table, lengths) = (
        input("places", &[1]),
        input("table", &[1, 2]),
        input("lengths", &[1]),
    );
    let x = graph.input();
    let mut push = |name: &str, op: hipvit::ops::Op, operands: &[_]| {
        graph.push(Role::Other, name, op, operands).unwrap()
    };
    let keys = push("keys", MulScalar(2.0).into(), &[x]);
    let values = push("values", MulScalar(-0.5).into(), &[x]);
    let rows = push("keys and values", Concat { axis: 1 }.into(), &[keys, values]);
    let zeros = Tensor::from_f32([PAGES * PAGE, 2 * WIDTH], vec![0.0; 2 * PAGES * PAGE * WIDTH]).unwrap();
    let state = graph.state(CACHE, zeros);
    let cache = graph
        .push(Role::Other, "write", WriteRows, [state, rows, places])
        .unwrap();
    graph.update(state, cache).unwrap();
    let attention = PagedAttention {
        heads: 2,
        kv_heads: 2,
        head_dim: WIDTH / 2,
        page: PAGE,
        scale: 0.3,
    };
    let attended = graph.push(Role::Other, "attention", attention, [x, cache, table, lengths]);
    graph.set_output(OutputKind::Embedding, attended.unwrap());
    optimize(graph, &Passes::default()).unwrap().0
}

/// Checks the results of runs with a sequence that grows by a token each, and one that starts over, against the interpreter.
pub(crate) fn check(executor: &Arc<dyn Executor>, dtype: DType) {
    let graph = graph();
    let mut interpreter = Interpreter::new(&graph);
    let plan = executor.plan(ROWS).unwrap();
    assert!(
        plan.arena_bytes() < 4096,
        "the cache is in the arena: {} bytes",
        plan.arena_bytes()
    );
    for run in 0..4 {
        let rows: Vec<f32> = (0..ROWS * WIDTH)
            .map(|i| ((i * 7 + run * 31) % 33) as f32 / 16.0 - 1.0)
            .collect();
        // Pages 3 and 0, and page 4.
        let first = [6, 7, 0, 1][run];
        let places = [first, 8 + run as i32 % 2, -1];
        let (table, lengths) = ([3, 0, 4, 4, 0, 0], [run as i32 + 1, run as i32 % 2 + 1, 0]);
        let named = [
            ("rows", Input::Values(&rows)),
            ("places", Input::Integers(&places)),
            ("table", Input::Integers(&table)),
            ("lengths", Input::Integers(&lengths)),
        ];
        let expected = interpreter.run(ROWS, &named.map(|(_, input)| input)).unwrap();
        let inputs = Inputs::new(named.map(|(name, input)| (name, InputData::Host(input))));
        let outputs = executor.run_inputs(&plan, inputs).unwrap();
        let found: Vec<f32> = outputs.get("embedding").unwrap().values.iter().copied().collect();
        let expected: Vec<f64> = expected[0].1.iter().copied().collect();
        assert_close(&found, &expected, model_tolerance(dtype, graph.nodes().len()));
        let id = graph.states().next().unwrap();
        let expected = interpreter.state(id).unwrap().values();
        let found = executor.state(CACHE).unwrap().to_f32().into_owned();
        assert_close(&found, expected, model_tolerance(dtype, 2));
    }
}
