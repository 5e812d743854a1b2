//! Attention, fused or not, with statistics and rotations.

use std::sync::Arc;

use super::host::Host;
use super::{VIT, check, check_passes, constant, small};
use crate::exec::hip::lower::Call;
use crate::graph::plan::Plan;
use crate::graph::{Graph, Optimizations, Passes, Role, interpret, optimize};
use crate::graph_tests::rotary;
use crate::kernels::KernelCall;
use crate::ops::{Attention, AttentionOperands, Linear, Op, Pool};
use crate::reference::{assert_close, model_tolerance, tolerance};
use crate::tensor::{DType, Input};

/// Statistics come in the launch of fused attention, and in f32 for any dtype.
#[test]
fn statistics_of_attention_come_with_its_result() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for fused_attention in [true, false] {
            let passes = Passes {
                fold_normalize: dtype == DType::F32,
                attention_statistics: true,
                optimizations: Optimizations {
                    fused_attention,
                    ..Optimizations::default()
                },
                ..Passes::default()
            };
            let nodes = VIT.random(1).nodes().len();
            check_passes(VIT.random(1), dtype, passes, model_tolerance(dtype, nodes));
            let graph = Arc::new(optimize(VIT.random(1), &passes).unwrap().0);
            let plan = Plan::new(graph, 2, dtype).unwrap();
            let host = Host::new(&plan, Input::Pixels(&[]));
            let mut statistics = 0;
            for step in plan.steps() {
                if let &[_, result] = step.outputs.as_slice() {
                    statistics += 1;
                    let buffer = plan.buffer(result);
                    assert_eq!((buffer.dtype, buffer.bytes), (DType::F32, 2 * 3 * 26 * 3 * 4));
                    assert_eq!(host.calls(&plan, step).len() == 1, fused_attention);
                }
            }
            assert_eq!(statistics, VIT.depth);
        }
    }
}

/// Heads without a fused kernel: from one operand, from two, and from one query that all images share.
#[test]
fn wide_heads_are_gemms_and_a_softmax() {
    const HEADS: usize = 2;
    const HEAD_DIM: usize = 132;
    const CHANNELS: usize = HEADS * HEAD_DIM;
    const TOKENS: usize = (VIT.image / 4).pow(2);
    for (operands, with_bias) in [
        (AttentionOperands::PackedQkv, false),
        (AttentionOperands::PackedKv, false),
        (AttentionOperands::Separate, false),
        (AttentionOperands::PackedQkv, true),
        (AttentionOperands::PackedKv, true),
    ] {
        let graph = small(|graph, x| {
            let linear = |graph: &mut Graph, name: &str, parts: usize| {
                let weight = constant(graph, &format!("{name}.weight"), &[parts * CHANNELS, 24]);
                graph
                    .push(Role::Other, name, Op::Linear(Linear::default()), [x, weight])
                    .unwrap()
            };
            let mut inputs = match operands {
                AttentionOperands::PackedQkv => vec![linear(graph, "qkv", 3)],
                AttentionOperands::PackedKv => {
                    let latent = constant(graph, "latent", &[1, 1, CHANNELS]);
                    vec![latent, linear(graph, "kv", 2)]
                }
                AttentionOperands::Separate => ["q", "k", "v"].map(|name| linear(graph, name, 1)).to_vec(),
            };
            let attention = Attention {
                heads: HEADS,
                head_dim: HEAD_DIM,
                scale: 0.7,
                operands,
                first_key: 0,
                key_mask: false,
                bias: with_bias,
                causal: false,
                ..Attention::default()
            };
            if with_bias {
                let queries = if operands == AttentionOperands::PackedKv {
                    1
                } else {
                    TOKENS
                };
                inputs.push(constant(graph, "bias", &[HEADS, queries, TOKENS]));
            }
            let y = graph
                .push(Role::Other, "attention", Op::Attention(attention), inputs)
                .unwrap();
            graph
                .push(Role::Other, "pool", Op::Pool(Pool::Mean { skip: 0 }), [y])
                .unwrap()
        });
        for dtype in [DType::F32, DType::F16] {
            check(graph.clone(), dtype, 4.0 * tolerance(dtype, HEAD_DIM));
        }
    }
}

/// Rotary models call one kernel for rotation and attention if only attention reads the rotated values.
#[test]
fn rotations_are_part_of_attention() {
    for (name, fused, apart) in [
        ("timm_vit_rope", 2, 0),
        ("timm_vit_rope_mixed_ape", 2, 0),
        ("timm_dinov3", 2, 0),
        ("timm_eva02", 2, 0),
        // Queries and keys are rotated by separate steps.
        ("timm_sapiens2", 0, 3),
    ] {
        let model = rotary::golden(name);
        let pixels = rotary::pixels(&model);
        // Without fusion, or if the result does not overwrite its operand, rotations are separate kernels.
        for (fusion, memory_reuse) in [(true, true), (true, false), (false, true)] {
            let passes = Passes {
                optimizations: Optimizations {
                    fusion,
                    memory_reuse,
                    ..Optimizations::default()
                },
                ..Passes::default()
            };
            let graph = Arc::new(optimize(model.clone(), &passes).unwrap().0);
            let expected = interpret(&graph, 2, Input::Pixels(&pixels)).unwrap();
            let plan = Plan::new(graph, 2, DType::F32).unwrap();
            let host = Host::new(&plan, Input::Pixels(&pixels));
            let steps = plan.steps().iter();
            let calls: Vec<Call> = steps.flat_map(|step| host.calls(&plan, step)).collect();
            let count = |of: fn(&KernelCall) -> bool| {
                let is = |call: &&Call| matches!(call, Call::Kernel(kernel) if of(kernel));
                calls.iter().filter(is).count()
            };
            let rotating = count(|kernel| matches!(kernel, KernelCall::AttentionRope(_)));
            let rotations = count(|kernel| matches!(kernel, KernelCall::Rope(_)));
            if fusion && memory_reuse {
                assert_eq!([rotating, rotations], [fused, apart], "{name}");
            } else {
                assert!(rotating == 0 && rotations > 0, "{name}");
            }
            for ((_, output), (_, expected)) in host.run(&plan).iter().zip(&expected) {
                assert_close(
                    output,
                    expected.as_slice().unwrap(),
                    16.0 * tolerance(DType::F32, 48),
                );
            }
        }
    }
}
