//! Attention with a pattern whose captured integers are an input, on any executor.

use std::sync::Arc;

use hipvit::DType;
use hipvit::attention::{Pattern, masks};
use hipvit::exec::{Executor, Inputs};
use hipvit::graph::{Graph, Interpreter, OutputKind, Role};
use hipvit::ops::{AttentionOperands, PatternAttention, Pool};
use hipvit::reference::{assert_close, model_tolerance};
use hipvit::tensor::Input;

const TOKENS: usize = 37;
const CHANNELS: usize = 2 * 16;

/// Returns attention of images that are packed into one sequence. The input `documents` says which image each token belongs to.
pub(crate) fn graph() -> Graph {
    let mut graph = Graph::of_tokens("packed", [TOKENS, 3 * CHANNELS]);
    let qkv = graph.input();
    let documents = graph.add_input("documents", [1, TOKENS], DType::I32).unwrap();
    let pattern = Pattern::new().with_mask(masks::documents("documents"));
    let op = PatternAttention::new((2, 16), 0.25, AttentionOperands::PackedQkv, &pattern).unwrap();
    let attended = graph
        .push(Role::Other, "attention", op, [qkv, documents])
        .unwrap();
    let pooled = graph
        .push(Role::Other, "pooled", Pool::Token(7), [attended])
        .unwrap();
    graph.set_output(OutputKind::Embedding, pooled);
    graph
}

/// Runs sequences of several lengths, with other documents in each run, and compares the results with the reference.
#[track_caller]
pub(crate) fn check(executor: &Arc<dyn Executor>, dtype: DType) {
    let graph = graph();
    for (run, images) in [1, 3, 3, 3].into_iter().enumerate() {
        let value = |i: usize| ((i * 7919 + run * 104_729) % 33) as f32 / 16.0 - 1.0;
        let tokens: Vec<f32> = (0..images * TOKENS * 3 * CHANNELS).map(value).collect();
        let length = 5 + 4 * run;
        let documents: Vec<i32> = (0..images * TOKENS)
            .map(|i| (i % TOKENS / length) as i32)
            .collect();
        let inputs = [Input::Values(&tokens), Input::Integers(&documents)];
        let expected = Interpreter::new(&graph).run(images, &inputs).unwrap();
        let expected: Vec<f64> = expected[0].1.iter().copied().collect();
        let named = ["activations", "documents"]
            .into_iter()
            .zip(inputs.map(Into::into));
        let outputs = executor
            .run_inputs(&executor.plan(images).unwrap(), Inputs::new(named))
            .unwrap();
        let found: Vec<f32> = outputs.get("embedding").unwrap().values.iter().copied().collect();
        assert_close(&found, &expected, model_tolerance(dtype, graph.nodes().len()));
    }
}

#[path = "../../examples/relative_bias.rs"]
pub(crate) mod relative_bias;
