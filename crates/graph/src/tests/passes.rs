//! Every pass, checked by the reference implementation: the outputs before and after are the same, and the nodes are as expected.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::vit::{EXACT, Head, Projection, Random, Vit, assert_same};
use crate::op::{Activation, Add, Elementwise, Gather, Linear, Op, PatchConv, Pool, Scale, Slice};
use crate::passes::{
    fold_constants, fold_scales, fuse_activations, fuse_patches, fuse_residuals, fuse_tokens, infer_shapes,
    pack_qkv, prune_tokens,
};
use crate::plan::Plan;
use crate::reference;
use crate::rewrite::Rewritten;
use crate::tensor::{DType, Input, Tensor};
use crate::{Graph, Optimizations, OutputKind, Passes, Role, interpret, optimize};

/// Tolerance of passes that round scaled weights once to f32. Every weight has an error of at most ε/2 with random sign, and LayerNorm
/// limits the growth of errors with depth. The tolerance of a single GEMM is ample.
fn rounded() -> f64 {
    reference::tolerance(DType::F32, 1)
}

/// Counts the nodes by displayed op.
fn ops(graph: &Graph) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for node in graph.nodes() {
        *counts.entry(node.op.to_string()).or_default() += 1;
    }
    counts
}

#[track_caller]
fn assert_ops(graph: &Graph, expected: &[(&str, usize)]) {
    let expected: BTreeMap<String, usize> = expected
        .iter()
        .map(|&(op, count)| (op.to_owned(), count))
        .collect();
    assert_eq!(ops(graph), expected);
}

/// Returns the graph after the passes that always come first.
fn folded(vit: Vit) -> Graph {
    let graph = vit.random(1);
    let graph = fold_constants::run(&graph).unwrap().graph;
    fold_scales::run(&graph).unwrap().graph
}

#[test]
fn a_vit_becomes_few_steps() {
    let graph = Vit::default().random(1);
    let no_pruning = Passes {
        prune_tokens: false,
        ..Passes::default()
    };
    let (optimized, reports) = optimize(graph.clone(), &no_pruning).unwrap();
    assert_same(&graph, &optimized, rounded());
    assert_ops(
        &optimized,
        &[
            ("patch_extract 4×4", 1),
            ("linear+bias", 1 + 2 + 1),
            ("tokens+prefix+position", 1),
            ("layer_norm ε=1e-6", 2 * 2 + 1),
            ("attention 3×4 packed-qkv", 2),
            ("linear+bias+residual", 2 * 2),
            ("linear+bias+gelu", 2),
            ("pool token 0", 1),
        ],
    );
    assert_eq!(reports.len(), 13);
    assert_eq!(reports[0].nodes_before, graph.nodes().len());
    assert_eq!(reports[12].nodes_after, optimized.nodes().len());
}

#[test]
fn optimising_changes_no_output() {
    let projections = [
        Projection::Packed,
        Projection::Separate { key_bias: true },
        Projection::Separate { key_bias: false },
    ];
    let heads = [Head::ClassToken, Head::Distilled, Head::Mean, Head::AttentionPool];
    let mut variants = Vec::new();
    for projection in projections {
        for head in heads {
            variants.push(Vit {
                projection,
                head,
                ..Vit::default()
            });
            variants.push(Vit {
                projection,
                head,
                registers: 2,
                layer_scale: true,
                swiglu: projection == Projection::Packed,
                patch_positions: true,
                pixels: false,
                ..Vit::default()
            });
        }
    }
    for (seed, vit) in (1..).zip(variants) {
        let graph = vit.random(seed);
        for fold_normalize in [false, true] {
            let passes = Passes {
                fold_normalize,
                ..Passes::default()
            };
            let (optimized, _) = optimize(graph.clone(), &passes).unwrap();
            assert_same(&graph, &optimized, rounded());
            // A second run changes nothing.
            let (again, reports) = optimize(optimized.clone(), &passes).unwrap();
            assert_eq!(ops(&again), ops(&optimized), "{vit:?}");
            assert!(
                reports.iter().all(|report| report.changes == 0),
                "{vit:?} {reports:?}"
            );
        }
    }
}

#[test]
fn without_fusion_only_the_passes_run_that_executors_rely_on() {
    let passes = Passes {
        optimizations: Optimizations::NONE,
        ..Passes::default()
    };
    let graph = Vit::default().random(3);
    let (plain, reports) = optimize(graph.clone(), &passes).unwrap();
    let names: Vec<_> = reports.iter().map(|report| report.name).collect();
    assert_eq!(
        names,
        ["infer_shapes", "fold_constants", "fuse_patches", "fuse_tokens"]
    );
    assert_eq!(plain.optimizations(), Optimizations::NONE);
    assert_same(&graph, &plain, rounded());
    let (fused, _) = optimize(graph, &Passes::default()).unwrap();
    assert!(plain.nodes().len() > fused.nodes().len());
}

#[test]
fn unused_nodes_are_dropped() {
    let mut graph = Vit::default().random(1);
    let nodes = graph.nodes().len();
    let logits = graph.outputs()[0].1;
    let weight = graph.constant("unused", Tensor::from_f32([1, 5], vec![0.0; 5]).unwrap());
    let x = graph
        .push(Role::Other, "a", Op::Linear(Linear::default()), [logits, weight])
        .unwrap();
    graph
        .push(Role::Other, "b", Op::Activation(Activation::Tanh), [x])
        .unwrap();
    let Rewritten {
        graph: after,
        changes,
    } = infer_shapes::run(&graph).unwrap();
    assert_eq!((changes, after.nodes().len()), (2, nodes));
    assert!(after.values().iter().all(|value| value.name != "unused"));
    assert_same(&graph, &after, 0.0);
}

#[test]
fn what_does_not_depend_on_the_image_is_computed() {
    let graph = Vit {
        head: Head::AttentionPool,
        ..Vit::default()
    }
    .random(1);
    let after = fold_constants::run(&graph).unwrap();
    assert_eq!(after.changes, 1);
    let latent = after
        .graph
        .values()
        .iter()
        .find(|value| value.name == "pool.q")
        .unwrap();
    assert_eq!(latent.constant.as_ref().unwrap().shape(), [1, 1, 12]);
    assert_same(&graph, &after.graph, rounded());
}

#[test]
fn computed_integers_stay_integers() {
    let mut graph = Graph::of_tokens("test", [5, 4]);
    let indices = graph.constant("indices", Tensor::from_i32([4], &[3, 0, 16_777_217, 1]).unwrap());
    let slice = Slice {
        axis: 0,
        start: 3,
        len: 2,
        step: -2,
    };
    let some = graph.push(Role::Other, "some", slice, [indices]).unwrap();
    let x = graph.input();
    let rows = graph
        .push(Role::Other, "rows", Gather { axis: 1 }, [x, some])
        .unwrap();
    graph.set_output(OutputKind::Tokens, rows);
    let after = fold_constants::run(&graph).unwrap();
    assert_eq!(after.changes, 1);
    let folded = after
        .graph
        .value(after.graph.nodes()[0].inputs[1])
        .constant
        .clone()
        .unwrap();
    assert_eq!((folded.dtype(), &*folded.to_f32()), (DType::I32, &[1.0, 0.0][..]));
    let plan = Plan::new(Arc::new(after.graph), 1, DType::F16).unwrap();
    assert_eq!(plan.buffers()[0].dtype, DType::F16);
}

#[test]
fn layer_scale_goes_into_weights() {
    let graph = Vit {
        layer_scale: true,
        ..Vit::default()
    }
    .random(1);
    let after = fold_scales::run(&graph).unwrap();
    assert_eq!(after.changes, 4);
    assert_eq!(graph.nodes().len() - after.graph.nodes().len(), 4);
    assert!(!ops(&after.graph).contains_key("scale"));
    assert_same(&graph, &after.graph, rounded());
}

/// Importers write LayerScale as a product with NumPy's broadcasting.
#[test]
fn a_product_with_a_row_goes_into_weights() {
    let products = |x_first: bool, gamma_shape: &[usize]| {
        let mut graph = Graph::of_tokens("test", [3, 4]);
        let mut random = Random(5);
        let mut constant = |graph: &mut Graph, name: &str, shape: &[usize]| {
            let values: Vec<f32> = (0..shape.iter().product()).map(|_| random.next()).collect();
            graph.constant(name, Tensor::from_f32(shape, values).unwrap())
        };
        let weight = constant(&mut graph, "weight", &[5, 4]);
        let gamma = constant(&mut graph, "gamma", gamma_shape);
        let input = graph.input();
        let y = graph
            .push(Role::Other, "linear", Linear::default(), [input, weight])
            .unwrap();
        let product = Elementwise::binary(|x, y| x * y).unwrap();
        let operands = if x_first { [y, gamma] } else { [gamma, y] };
        let result = graph.push(Role::Other, "product", product, operands).unwrap();
        graph.set_output(OutputKind::Tokens, result);
        let after = fold_scales::run(&graph).unwrap();
        let values: Vec<f32> = (0..24).map(|i| (i as f32).sin()).collect();
        let [before, now] = [&graph, &after.graph]
            .map(|graph| interpret(graph, 2, Input::Values(&values)).unwrap().remove(0).1);
        assert!(before.iter().zip(&now).all(|(x, y)| (x - y).abs() < 1e-6));
        after.changes
    };
    assert_eq!(products(true, &[5]), 1);
    assert_eq!(products(false, &[1, 5]), 1);
    assert_eq!(products(true, &[3, 1]), 0);
    assert_eq!(products(true, &[3, 5]), 0);
    assert_eq!(products(true, &[1, 1]), 0);
}

#[test]
fn a_scale_stays_where_its_product_is_read_twice() {
    let mut graph = Graph::new("test", [1, 3, 4, 4], DType::F32);
    let mut random = Random(3);
    let mut constant = |graph: &mut Graph, name: &str, shape: &[usize]| {
        let values: Vec<f32> = (0..shape.iter().product()).map(|_| random.next()).collect();
        graph.constant(name, Tensor::from_f32(shape, values).unwrap())
    };
    let kernel = constant(&mut graph, "kernel", &[4, 3, 2, 2]);
    let weight = constant(&mut graph, "weight", &[4, 4]);
    let gamma = constant(&mut graph, "gamma", &[4]);
    let conv = Op::PatchConv(PatchConv {
        patch: [2, 2],
        bias: false,
    });
    let input = graph.input();
    let x = graph.push(Role::Patch, "conv", conv, [input, kernel]).unwrap();
    let linear = Op::Linear(Linear::default());
    let y = graph.push(Role::Ffn, "linear", linear, [x, weight]).unwrap();
    let scaled = graph
        .push(Role::Ffn, "scale", Op::Scale(Scale), [y, gamma])
        .unwrap();
    let sum = graph.push(Role::Ffn, "sum", Op::Add(Add), [y, scaled]).unwrap();
    let pool = Op::Pool(Pool::Mean { skip: 0 });
    let pooled = graph.push(Role::Other, "pool", pool, [sum]).unwrap();
    graph.set_output(OutputKind::Embedding, pooled);

    for pass in [fold_scales::run, fuse_residuals::run, fuse_activations::run] {
        let after = pass(&graph).unwrap();
        assert_eq!(after.changes, 0);
        assert_same(&graph, &after.graph, 0.0);
    }
}

#[test]
fn the_mean_of_two_heads_is_one_chain() {
    let graph = Vit {
        head: Head::Distilled,
        ..Vit::default()
    }
    .random(1);
    let after = fold_scales::run(&graph).unwrap();
    assert_eq!(after.changes, 1);
    // A factor of one half causes no rounding.
    assert_same(&graph, &after.graph, EXACT);
    let after = fuse_residuals::run(&after.graph).unwrap();
    assert_eq!(after.changes, 5);
    assert_same(&graph, &after.graph, EXACT);
}

#[test]
fn patches_are_extracted() {
    for (pixels, fold, op) in [
        (true, true, "patch_extract 4×4"),
        (true, false, "patch_extract 4×4 +normalize"),
        (false, true, "patch_extract 4×4"),
    ] {
        let graph = Vit {
            pixels,
            ..Vit::default()
        }
        .random(1);
        let after = fuse_patches::run(&graph, fold).unwrap();
        assert_eq!(after.changes, 1);
        assert_eq!(after.graph.nodes()[0].op.to_string(), op);
        assert_eq!(after.graph.nodes()[1].op.to_string(), "linear+bias");
        let tolerance = if pixels && fold { rounded() } else { EXACT };
        assert_same(&graph, &after.graph, tolerance);
    }
}

#[test]
fn tokens_are_put_together_once() {
    for (patch_positions, head) in [
        (false, Head::ClassToken),
        (true, Head::ClassToken),
        (false, Head::Distilled),
    ] {
        let graph = folded(Vit {
            patch_positions,
            head,
            registers: 3,
            ..Vit::default()
        });
        let after = fuse_tokens::run(&graph).unwrap();
        assert_eq!(after.changes, 1);
        assert_eq!(graph.nodes().len() - after.graph.nodes().len(), 1);
        assert_eq!(ops(&after.graph)["tokens+prefix+position"], 1);
        assert_same(&graph, &after.graph, rounded());
    }
    // Without a prefix there are no tokens to assemble, and the addition is in place.
    let graph = folded(Vit {
        head: Head::AttentionPool,
        ..Vit::default()
    });
    assert_eq!(fuse_tokens::run(&graph).unwrap().changes, 0);
}

#[test]
fn projections_are_packed() {
    for key_bias in [false, true] {
        let graph = folded(Vit {
            projection: Projection::Separate { key_bias },
            head: Head::AttentionPool,
            ..Vit::default()
        });
        let after = pack_qkv::run(&graph).unwrap();
        // Two blocks, and the pool with its constant query.
        assert_eq!(after.changes, 3);
        assert_eq!(graph.nodes().len() - after.graph.nodes().len(), 2 * 2 + 1);
        assert_eq!(ops(&after.graph)["attention 3×4 packed-qkv"], 2);
        assert_eq!(ops(&after.graph)["attention 3×4 packed-kv"], 1);
        assert_same(&graph, &after.graph, EXACT);
    }
}

/// Returns the graph with its constants stored as f16.
fn halved(mut graph: Graph) -> Graph {
    for value in &mut graph.values {
        if let Some(tensor) = &mut value.constant {
            let bytes: Vec<u8> = tensor
                .to_f32()
                .iter()
                .flat_map(|&v| half::f16::from_f32(v).to_le_bytes())
                .collect();
            let range = 0..bytes.len();
            *tensor = Tensor::view(tensor.shape(), DType::F16, Arc::new(bytes), range).unwrap();
            value.dtype = DType::F16;
        }
    }
    graph
}

#[test]
fn half_precision_weights_stay_so_where_nothing_is_computed() {
    let graph = halved(
        Vit {
            projection: Projection::Separate { key_bias: false },
            layer_scale: true,
            ..Vit::default()
        }
        .random(1),
    );
    let (optimized, _) = optimize(graph.clone(), &Passes::default()).unwrap();
    assert_same(&graph, &optimized, rounded());
    let dtype = |name: &str| optimized.values().iter().find(|v| v.name == name).unwrap().dtype;
    let [q, k, v] = ["q", "k", "v"].map(|part| format!("blocks.0.{part}.weight"));
    assert_eq!(dtype(&format!("{q} + {k} + {v}")), DType::F16);
    assert_eq!(dtype("blocks.0.fc1.weight"), DType::F16);
    assert_eq!(dtype("blocks.0.fc2.weight · blocks.0.ls2.gamma"), DType::F32);
    // The key's bias is zeros in f32, to which the others are converted.
    assert_eq!(dtype("blocks.0.attn.qkv.bias"), DType::F32);
}

#[test]
fn activations_and_residuals_are_fused() {
    let graph = folded(Vit::default());
    let activations = fuse_activations::run(&graph).unwrap();
    assert_eq!(activations.changes, 2);
    assert_eq!(ops(&activations.graph)["linear+bias+gelu"], 2);
    assert_same(&graph, &activations.graph, EXACT);
    let residuals = fuse_residuals::run(&activations.graph).unwrap();
    assert_eq!(residuals.changes, 4);
    assert_eq!(ops(&residuals.graph)["linear+bias+residual"], 4);
    assert_same(&graph, &residuals.graph, EXACT);
}

#[test]
fn an_activation_of_a_sum_is_not_moved_before_it() {
    let mut graph = Vit::default().random(1);
    let embedding = graph.outputs()[1].1;
    let weight: Vec<f32> = (0..144).map(|i| (i as f32).sin()).collect();
    let weight = graph.constant("square", Tensor::from_f32([12, 12], weight).unwrap());
    let residual = Op::Linear(Linear {
        residual: true,
        ..Linear::default()
    });
    let x = graph
        .push(Role::Other, "sum", residual, [embedding, weight, embedding])
        .unwrap();
    let y = graph
        .push(Role::Other, "tanh", Op::Activation(Activation::Tanh), [x])
        .unwrap();
    graph.set_output(OutputKind::Embedding, y);
    let after = fuse_activations::run(&graph).unwrap();
    assert_eq!(after.changes, 2);
    assert_eq!(ops(&after.graph)["activation tanh"], 1);
    assert_same(&graph, &after.graph, EXACT);
}

#[test]
fn only_the_token_that_is_read_is_computed() {
    for projection in [Projection::Packed, Projection::Separate { key_bias: false }] {
        let graph = folded(Vit {
            projection,
            ..Vit::default()
        });
        let after = prune_tokens::run(&graph).unwrap();
        // Attention, its projection, the residual; norm, two products, GELU, residual; the last norm. A separate projection of queries
        // counts too; otherwise it counts with the attention that it was split from.
        let separate = usize::from(projection != Projection::Packed);
        assert_eq!(after.changes, 9 + separate);
        assert_same(&graph, &after.graph, EXACT);
        let one_token = |name: &str| {
            let node = after.graph.nodes().iter().find(|node| node.name == name).unwrap();
            after.graph.value(node.output()).shape.len() == 2
        };
        assert!(one_token("blocks.1.attn") && one_token("blocks.1.fc1") && one_token("norm"));
        assert!(!one_token("blocks.1.norm1") && !one_token("blocks.0.fc2"));
    }
}

#[test]
fn causal_attention_keeps_its_queries() {
    let mut graph = folded(Vit::default());
    for node in &mut graph.nodes {
        if let Op::Attention(attention) = &mut node.op {
            attention.causal = true;
        }
    }
    let after = prune_tokens::run(&graph).unwrap();
    // The ops after attention still run for the one token.
    assert_eq!(after.changes, 8);
    assert_same(&graph, &after.graph, EXACT);
}

#[test]
fn nothing_is_pruned_where_all_tokens_are_read() {
    for head in [Head::Mean, Head::AttentionPool, Head::Distilled] {
        let graph = folded(Vit {
            head,
            ..Vit::default()
        });
        let after = prune_tokens::run(&graph).unwrap();
        assert_eq!(after.changes, 0, "{head:?}");
        assert_eq!(ops(&after.graph), ops(&graph));
    }
}

#[test]
fn pruning_saves_a_fifteenth_of_vit_base() {
    let flops = |prune_tokens| {
        let passes = Passes {
            prune_tokens,
            ..Passes::default()
        };
        let (graph, _) = optimize(Vit::BASE.zeros(), &passes).unwrap();
        Plan::new(Arc::new(graph), 1, DType::F32).unwrap().flops()
    };
    let saved = 1.0 - flops(true) as f64 / flops(false) as f64;
    // A block has 24·N·D² + 4·N²·D operations. In one block of 12 only the 4·N·D² for keys and values are left.
    assert!((0.06..0.09).contains(&saved), "{saved}");
}
