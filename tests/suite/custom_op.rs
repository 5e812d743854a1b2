//! An op that is defined outside hipvit: that of `examples/custom_op.rs`, and ops that are wrong.

#[path = "../../examples/custom_op.rs"]
#[allow(dead_code, reason = "the example has a main function")]
pub(crate) mod example;

use hipvit::custom::{CustomOp, OpBuilder};
use hipvit::graph::cases::{Operand, activation, parameter};
use hipvit::graph::{self, Graph, optimize, rewrite};
use hipvit::ops::{LayerNorm, Op, OpError, Shape};
use hipvit::reference::Array;
use hipvit::{Device, Session, SessionBuilder};
use hipvit_diagnostics::validate::{Options, validate_op};

use self::example::AddLayerNorm;

/// The embedded model has four blocks with two additions each. No LayerNorm follows the last one.
pub(crate) const FUSED: usize = 7;

pub(crate) const EPSILON: f32 = 1e-6;

/// Returns operands of [`AddLayerNorm`] for tokens of this shape.
pub(crate) fn operands(shape: &[usize]) -> Vec<Operand> {
    let channels = [*shape.last().unwrap()];
    vec![
        activation(shape),
        activation(shape),
        parameter(&channels),
        parameter(&channels),
    ]
}

/// Shapes around the block of the example's kernel.
pub(crate) const SHAPES: [[usize; 3]; 4] = [[1, 1, 1], [2, 3, 63], [2, 17, 64], [1, 5, 200]];

/// Returns a builder whose model has this op for the norm `blocks.1.norm2`.
pub(crate) fn with_op(
    builder: SessionBuilder,
    op: impl Fn() -> Op + Send + Sync + 'static,
) -> SessionBuilder {
    builder.rewrite(move |graph: &Graph| {
        let rewritten = rewrite(graph, |rewriter, node| {
            if !matches!(node.op, Op::LayerNorm(LayerNorm { .. })) || !node.name.contains("blocks.1.norm2") {
                return Ok(None);
            }
            let operands = rewriter.map_all(&node.inputs);
            rewriter.emit(node.role, &node.name, op(), operands).map(Some)
        })?;
        assert_eq!(rewritten.changes, 1);
        Ok(rewritten.graph)
    })
}

fn on_cpu() -> SessionBuilder {
    Session::builder().device(Device::Cpu).threads(2)
}

/// The definition of a LayerNorm without its computation, and without kernels.
#[derive(Debug)]
pub(crate) struct Undefined {
    pub(crate) operands: usize,
}

impl CustomOp for Undefined {
    fn name(&self) -> &'static str {
        "undefined"
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        if operands.len() == self.operands {
            Ok(vec![operands[0].to_vec()])
        } else {
            Err(OpError::Count {
                expected: self.operands,
                found: operands.len(),
            })
        }
    }

    fn reference(&self, _operands: &[&Array], _results: &mut [Array]) {}
}

#[test]
fn a_fusion_gives_the_logits_of_the_model() {
    let compared = example::compare(&on_cpu()).unwrap();
    assert_eq!(compared.fused, FUSED);
    assert!(compared.difference < 1e-5, "{compared:?}");
}

#[test]
fn the_kernel_agrees_with_the_reference() {
    let options = Options {
        device: Device::Cpu,
        untimed: true,
        ..Options::default()
    };
    let op = OpBuilder::new(AddLayerNorm { epsilon: EPSILON }).cpu().build();
    for shape in SHAPES {
        let report = validate_op(&op, &operands(&shape), &options).unwrap();
        assert!(report.is_clean(), "{report}");
        assert_eq!(report.passed, 4, "two results, in the arena and outside of it");
    }
    let error = validate_op(&op, &operands(&[2, 3])[..3], &options).unwrap_err();
    assert_eq!(
        error.to_string(),
        "node `add_layer_norm`: add_layer_norm: takes 4 operands, got 3"
    );
}

#[test]
fn errors_name_the_node_and_the_op() {
    let error = |builder: SessionBuilder| builder.tinyvit32().unwrap_err().to_string();
    let wrong = with_op(on_cpu(), || OpBuilder::new(Undefined { operands: 2 }).build());
    assert_eq!(
        error(wrong),
        "node `blocks.1.norm2`: undefined: takes 2 operands, got 3"
    );
    let missing = with_op(on_cpu(), || OpBuilder::new(Undefined { operands: 3 }).build());
    assert_eq!(
        error(missing),
        "node `blocks.1.norm2`: undefined has no kernel for the CPU. Add one with `OpBuilder::cpu`, or use a GPU"
    );
}

/// Pruning computes one token of both results, as the head reads only the class token.
#[test]
fn the_fusion_of_a_model_with_a_class_token_is_pruned() {
    let model = crate::at("tests/golden/timm_vit_class_token");
    let (plain, fused) = (on_cpu(), on_cpu().rewrite(example::fuse));
    let [plain, fused] = [plain, fused].map(|builder| builder.load(&model).unwrap());
    let image = crate::at("tests/golden/images/wide.png");
    let logits = |session: &Session| {
        let image = hipvit::image::open(&image, hipvit::image::Limits::default()).unwrap();
        session.run([image]).unwrap().logits().unwrap().clone()
    };
    let (expected, got) = (logits(&plain), logits(&fused));
    let largest = expected.iter().fold(0f32, |most, x| most.max(x.abs()));
    for (got, expected) in got.iter().zip(&expected) {
        assert!((got - expected).abs() < 1e-5 * largest, "{got} {expected}");
    }
    let nodes = fused.graph().nodes().iter();
    let customs = nodes.filter(|node| matches!(node.op, Op::Custom(_)));
    let shapes: Vec<&[usize]> = customs
        .flat_map(|node| &node.outputs)
        .map(|&id| fused.graph().value(id).shape.as_slice())
        .collect();
    // The class token alone is [1, D].
    let [.., sum, norm] = shapes[..] else {
        panic!("{shapes:?}")
    };
    assert_eq!((sum, norm), (&[1, 24][..], &[1, 24][..]), "{shapes:?}");
}

#[test]
fn graphs_with_the_op_are_optimised_but_not_stored() {
    let mut graph = Graph::of_tokens("test", [3, 8]);
    let input = graph.input();
    let constant = |graph: &mut Graph, name: &str| {
        let ones = hipvit::tensor::Tensor::from_f32([8], vec![1.0; 8]).unwrap();
        graph.constant(name, ones)
    };
    let (weight, bias) = (constant(&mut graph, "weight"), constant(&mut graph, "bias"));
    let op = OpBuilder::new(AddLayerNorm { epsilon: EPSILON }).build();
    let operands = [input, input, weight, bias];
    let norm = graph.push(graph::Role::Other, "norm", op, operands).unwrap();
    graph.set_output(graph::OutputKind::Tokens, norm);
    let (graph, _) = optimize(graph, &graph::Passes::default()).unwrap();
    let error = serde_json::to_string(&graph).unwrap_err().to_string();
    assert_eq!(
        error,
        "the op `add_layer_norm` is defined outside hipvit. Store the graph from before it was added"
    );
}
