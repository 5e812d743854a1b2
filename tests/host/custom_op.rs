//! An op that is defined outside hipvit: that of `examples/custom_op.rs`, and ops that are wrong.

use hipvit::custom::OpBuilder;
use hipvit::ops::Op;
use hipvit::{Device, Session, SessionBuilder};
use hipvit_diagnostics::validate::{Options, validate_op};

use crate::support::at;
use crate::support::custom_op::example::{self, AddLayerNorm};
use crate::support::custom_op::{EPSILON, FUSED, SHAPES, Undefined, operands, with_op};

fn on_cpu() -> SessionBuilder {
    Session::builder().device(Device::Cpu).threads(2)
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
    let model = at("tests/golden/timm_vit_class_token");
    let (plain, fused) = (on_cpu(), on_cpu().rewrite(example::fuse));
    let [plain, fused] = [plain, fused].map(|builder| builder.load(&model).unwrap());
    let image = at("tests/golden/images/wide.png");
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
