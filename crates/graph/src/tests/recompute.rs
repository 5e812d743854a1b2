//! Training steps of Vision Transformers with recomputation.

use std::sync::Arc;

use super::vit::{Vit, pixels};
use crate::grad::differentiate;
use crate::op::{Loss, LossKind};
use crate::plan::Plan;
use crate::tensor::{DType, Input};
use crate::{
    Graph, Interpreter, OutputKind, Passes, Recomputation, Role, ValueId, optimize, prepare_training,
    recompute,
};

/// Returns the graph of the loss of `vit` and of the gradients of all weights.
fn step(vit: &Graph) -> Graph {
    let mut graph = prepare_training(vit).unwrap();
    let logits = graph.outputs()[0].1;
    let shape = graph.value(logits).shape.clone();
    let targets = graph.add_input("targets", shape, DType::F32).unwrap();
    let seed = graph.add_input("seed", [1, 1], DType::F32).unwrap();
    let weights: Vec<ValueId> = graph.ids().filter(|&id| graph.value(id).is_constant()).collect();
    weights.iter().for_each(|&id| graph.make_parameter(id).unwrap());
    let loss = graph.push(
        Role::Other,
        "loss",
        Loss(LossKind::CrossEntropy),
        [logits, targets],
    );
    let loss = loss.unwrap();
    graph.set_output(OutputKind::Loss, loss);
    let gradients = differentiate(&mut graph, [loss, seed], &weights, &|builder, node, gradients| {
        node.op.vjp(builder, node.values(), gradients)
    });
    let gradients = gradients.unwrap();
    for (index, id) in weights.iter().enumerate() {
        if let Some(gradient) = gradients[id.index()] {
            graph.set_output(OutputKind::Gradient(index), gradient);
        }
    }
    let passes = Passes {
        fold_normalize: false,
        prune_tokens: false,
        ..Passes::default()
    };
    optimize(graph, &passes).unwrap().0
}

/// Every budget gives a graph with the results of the step, and the arena that it reports.
#[test]
fn recomputation_changes_memory_but_no_bit() {
    let vit = Vit {
        depth: 3,
        layer_scale: true,
        ..Vit::default()
    };
    let graph = step(&vit.random(3));
    let pixels = pixels(&graph, 2);
    let targets: Vec<f32> = (0..2 * vit.classes).map(|i| (i % 3) as f32 / 4.0).collect();
    let inputs = [
        Input::Pixels(&pixels),
        Input::Values(&targets),
        Input::Values(&[0.5, 1.0]),
    ];
    let expected = Interpreter::new(&graph).run(2, &inputs).unwrap();
    let whole = Plan::new(Arc::new(graph.clone()), 2, DType::F32).unwrap();
    let mut arenas = Vec::new();
    for share in [100, 90, 70, 0] {
        let budget = whole.arena_bytes() * share / 100;
        let (smaller, report) = recompute(&graph, 2, DType::F32, budget).unwrap();
        let plan = Plan::new(Arc::new(smaller.clone()), 2, DType::F32).unwrap();
        assert_eq!(
            (report.arena_bytes, report.flops),
            (plan.arena_bytes(), plan.flops())
        );
        assert_eq!(
            (report.arena_bytes_before, report.flops_before),
            (whole.arena_bytes(), whole.flops())
        );
        let added = smaller.nodes().len() - graph.nodes().len();
        assert_eq!(report.ops.values().sum::<usize>(), added);
        assert!(
            share == 0 || plan.arena_bytes() <= budget,
            "{share} %: {report:?}"
        );
        assert_eq!(Interpreter::new(&smaller).run(2, &inputs).unwrap(), expected);
        arenas.push(plan.arena_bytes());
    }
    assert!(arenas.is_sorted_by(|a, b| a > b), "{arenas:?}");
}

/// ViT-B/16 in bf16, 256 images: activations of 15.2 GB.
#[test]
fn elementwise_ops_are_recomputed_before_layers_and_whole_blocks() {
    let graph = step(&Vit::BASE.zeros());
    let planned = |gigabytes: usize| {
        recompute(&graph, 256, DType::BF16, gigabytes * 1_000_000_000)
            .unwrap()
            .1
    };
    let extra = |report: &Recomputation| report.flops as f64 / report.flops_before as f64 - 1.0;
    let [cheap, layers, least] = [11, 6, 0].map(planned);
    assert!(
        (15_000_000_000..15_500_000_000).contains(&cheap.arena_bytes_before),
        "{cheap:?}"
    );
    assert!(
        cheap
            .ops
            .keys()
            .all(|op| ["activation", "layer_norm", "patch_extract"].contains(&op.as_str()))
    );
    assert!(
        extra(&cheap) < 0.001 && cheap.arena_bytes <= 11_000_000_000,
        "{cheap:?}"
    );
    assert!(
        extra(&layers) < 0.15 && layers.arena_bytes <= 6_000_000_000,
        "{layers:?}"
    );
    // At most the whole forward pass runs again.
    assert!(
        least.blocks > 6 && extra(&least) < 0.34 && least.arena_bytes < 2_500_000_000,
        "{least:?}"
    );
}

#[test]
fn a_graph_without_a_loss_is_refused() {
    let error = recompute(&Vit::default().random(1), 1, DType::F32, 0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "recomputation: the graph has no loss, so it is no training step"
    );
}
