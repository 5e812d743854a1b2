//! The gradients of all weights of a whole model on a GPU.

use hipvit::DType;
use hipvit::exec::{ExecutorOptions, GraphMode, Inputs, Placement};
use hipvit::graph::{Graph, OutputKind, Passes, Role, ValueId, grad, interpret, optimize};
use hipvit::ops::{
    Activation, Add, Attention, AttentionOperands, LayerNorm, Linear, Op, PatchConv, Pool, Prepend, Scale,
    SwiGlu,
};
use hipvit::reference::{assert_close, model_tolerance};
use hipvit::tensor::{Input, Tensor};

use crate::support::gpu::{device, dtypes, gpu};

const CHANNELS: usize = 48;
const HEADS: usize = 3;
/// Height and width of an image, whose last column is beyond the last whole patch.
const IMAGE: [usize; 2] = [12, 17];

struct Builder {
    graph: Graph,
    weights: Vec<ValueId>,
}

impl Builder {
    /// Adds a weight, of values that all dtypes represent.
    fn weight(&mut self, shape: &[usize]) -> ValueId {
        let seed = self.graph.values().len();
        let scale = if shape.len() == 1 { 32.0 } else { 128.0 };
        let value = |i: usize| ((i * 7919 + seed * 104_729) % 61) as f32 / scale - 30.0 / scale;
        let values: Vec<f32> = (0..shape.iter().product()).map(value).collect();
        let tensor = Tensor::from_f32(shape, values).unwrap();
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

    fn linear(&mut self, x: ValueId, [k, n]: [usize; 2], activation: Option<Activation>) -> ValueId {
        let op = Linear {
            bias: true,
            activation,
            ..Linear::default()
        };
        self.push(op, &[x], &[&[n, k], &[n]])
    }

    fn norm(&mut self, x: ValueId) -> ValueId {
        self.push(LayerNorm { epsilon: 1e-5 }, &[x], &[&[CHANNELS], &[CHANNELS]])
    }

    /// Adds a transformer block with LayerScale. `gated` selects SwiGLU instead of GELU.
    fn block(&mut self, x: ValueId, gated: bool) -> ValueId {
        let normed = self.norm(x);
        let qkv = self.linear(normed, [CHANNELS, 3 * CHANNELS], None);
        let attention = Attention {
            heads: HEADS,
            head_dim: CHANNELS / HEADS,
            scale: 0.25,
            operands: AttentionOperands::PackedQkv,
            ..Attention::default()
        };
        let attended = self.push(attention, &[qkv], &[]);
        let projected = self.linear(attended, [CHANNELS, CHANNELS], None);
        let scaled = self.push(Scale, &[projected], &[&[CHANNELS]]);
        let x = self.push(Add, &[x, scaled], &[]);
        let normed = self.norm(x);
        let hidden = if gated {
            let both = self.linear(normed, [CHANNELS, 4 * CHANNELS], None);
            self.push(SwiGlu, &[both], &[])
        } else {
            self.linear(normed, [CHANNELS, 2 * CHANNELS], Some(Activation::GeluErf))
        };
        let y = self.linear(hidden, [2 * CHANNELS, CHANNELS], None);
        self.push(Add, &[x, y], &[])
    }
}

/// Returns a vision transformer, its logits and its weights.
fn model() -> (Graph, ValueId, Vec<ValueId>) {
    let mut b = Builder {
        graph: Graph::new("model", [1, 3, IMAGE[0], IMAGE[1]], DType::F32),
        weights: Vec::new(),
    };
    let input = b.graph.input();
    let patches = PatchConv {
        patch: [4, 4],
        bias: true,
    };
    let x = b.push(patches, &[input], &[&[CHANNELS, 3, 4, 4], &[CHANNELS]]);
    let class = b.weight(&[1, 1, CHANNELS]);
    let x = b.push(Prepend, &[class, x], &[]);
    let x = b.push(Add, &[x], &[&[1, 13, CHANNELS]]);
    let x = b.block(x, false);
    let x = b.block(x, true);
    let x = b.norm(x);
    let x = b.push(Pool::Token(0), &[x], &[]);
    let logits = b.linear(x, [CHANNELS, 10], None);
    b.graph.set_output(OutputKind::Logits, logits);
    (b.graph, logits, b.weights)
}

#[test]
fn gradients_of_all_weights_follow_the_reference() {
    const BATCH: usize = 3;
    let Some((device, _shared)) = device() else {
        return;
    };
    let (graph, logits, mut wrt) = model();
    wrt.push(graph.input());
    let backward = grad(&graph, logits, &wrt).unwrap();
    let input: Vec<f32> = (0..BATCH * 3 * IMAGE[0] * IMAGE[1])
        .map(|i| (i * 31 % 65) as f32 / 32.0 - 1.0)
        .collect();
    let expected = interpret(&backward, BATCH, Input::Values(&input)).unwrap();
    let (optimized, _) = optimize(backward, &Passes::default()).unwrap();
    for dtype in dtypes() {
        let options = ExecutorOptions {
            graphs: GraphMode::Off,
            ..ExecutorOptions::new(dtype)
        };
        let executor = Placement::gpu(&gpu(device))
            .executor(&optimized, &options)
            .unwrap();
        let plan = executor.plan(BATCH).unwrap();
        let run = || {
            let inputs = Inputs::new([("values", Input::Values(&input).into())]);
            executor.run_inputs(&plan, inputs).unwrap()
        };
        let (outputs, again) = (run(), run());
        // A gradient passes through about as many nodes as the whole backward pass has.
        let tolerance = model_tolerance(dtype, optimized.nodes().len());
        for index in 0..wrt.len() {
            let name = format!("gradient.{index}");
            let values = |outputs: &hipvit::exec::RunOutputs| -> Vec<f32> {
                outputs.get(&name).unwrap().values.iter().copied().collect()
            };
            let result = values(&outputs);
            assert_eq!(result, values(&again), "{name}: equal runs give equal bits");
            let (_, expected) = expected
                .iter()
                .find(|(kind, _)| *kind == OutputKind::Gradient(index))
                .unwrap();
            let expected: Vec<f64> = expected.iter().copied().collect();
            assert_close(&result, &expected, tolerance);
        }
    }
}
