//! The graph of Swin: orders of the tokens, the passes, stages and shards.

use super::rotary::{check, check_shards, check_stages, count, golden, optimized};
use super::vit::Random;
use crate::graph::{OutputKind, Passes, grad, interpret, optimize, rewrite};
use crate::model::{self, InputKind, LoadOptions};
use crate::ops::{Op, PatternAttention};
use crate::tensor::Input;

const MODELS: [&str; 4] = ["timm_swin", "timm_swin_padded", "timm_swinv2", "hf_swin_model"];

fn directory(name: &str) -> std::path::PathBuf {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join("tests/golden").join(name)
}

/// Without padding, the tokens of a stage change their order only where the windows change.
#[test]
fn tokens_stay_in_windows() {
    // The first stage has windows of both kinds, and its patches are merged. The second stage has one window.
    assert_eq!(count(&golden("timm_swin"), "permute_tokens"), 3);
    // Each of the four blocks has its windows filled and emptied.
    assert_eq!(count(&golden("timm_swin_padded"), "permute_tokens"), 9);
    assert_eq!(count(&golden("timm_swin"), "pattern_attention"), 1);
}

#[test]
fn passes_keep_the_outputs() {
    for name in MODELS {
        check(name, &golden(name), &optimized(name));
    }
}

#[test]
fn tokens_and_hidden_layers_are_in_the_order_of_the_image() {
    let options = LoadOptions {
        tokens: true,
        hidden_layers: vec![0, 1, 2, 3],
        ..LoadOptions::default()
    };
    for name in ["timm_swin", "timm_swin_padded"] {
        let graph = model::load(&directory(name), &options).unwrap().graph;
        let (fast, _) = optimize(graph.clone(), &Passes::default()).unwrap();
        let extents: Vec<usize> = graph
            .outputs()
            .iter()
            .filter(|(kind, _)| matches!(kind, OutputKind::HiddenLayer(_) | OutputKind::Tokens))
            .map(|&(_, value)| graph.value(value).shape[1])
            .collect();
        let [first, last] = if name == "timm_swin" { [64, 16] } else { [60, 15] };
        assert_eq!(extents, [last, first, first, last, last], "{name}");
        check(name, &graph, &fast);
    }
}

#[test]
fn stages_are_cut_where_images_are_whole() {
    for name in MODELS {
        check_stages(name, &optimized(name));
    }
}

/// Attention in shifted windows is not divided, all other layers are.
#[test]
fn shards_compute_the_same() {
    let shards = check_shards(&optimized("hf_swinv2"));
    assert!(count(&shards[0], "all_reduce") >= 4);
}

/// Both models have shifted windows, whose attention has a derivative if it keeps `ln Σ e^s`.
#[test]
fn the_pixels_get_their_gradient_through_all_windows() {
    let options = LoadOptions {
        input: InputKind::PixelValues,
        ..LoadOptions::default()
    };
    for name in ["timm_swin_always_partition", "timm_swinv2"] {
        let graph = model::load(&directory(name), &options).unwrap().graph;
        let refused = grad(&graph, graph.outputs()[0].1, &[graph.input()]).unwrap_err();
        assert!(refused.to_string().contains("log_sum_exp"), "{refused}");
        let graph = rewrite(&graph, |rewriter, node| {
            let Op::PatternAttention(op) = &node.op else {
                return Ok(None);
            };
            let op = PatternAttention {
                log_sum_exp: true,
                ..op.clone()
            };
            let operands = rewriter.map_all(&node.inputs);
            rewriter.emit(node.role, &node.name, op, operands).map(Some)
        });
        let graph = graph.unwrap().graph;
        let logits = graph.outputs()[0].1;
        let backward = grad(&graph, logits, &[graph.input()]).unwrap();
        let mut random = Random(11);
        let len = 2 * graph.value(graph.input()).shape.iter().product::<usize>();
        // Multiples of the step, so that sums are exact.
        let step = 1.0 / 65536.0;
        let mut next = |scale: f32| (random.next() * scale).round() * step;
        let values: Vec<f32> = (0..len).map(|_| next(65536.0)).collect();
        let along: Vec<f32> = (0..len).map(|_| next(1.0)).collect();
        let sum = |factor: f32| -> f64 {
            let moved: Vec<f32> = values.iter().zip(&along).map(|(x, a)| x + factor * a).collect();
            interpret(&graph, 2, Input::Values(&moved)).unwrap()[0].1.sum()
        };
        let outputs = interpret(&backward, 2, Input::Values(&values)).unwrap();
        let gradient = outputs.iter().find(|(kind, _)| *kind == OutputKind::Gradient(0));
        let products = gradient.unwrap().1.iter().zip(&along);
        let actual: f64 = products.map(|(g, a)| g * f64::from(*a)).sum();
        let expected = (8.0 * (sum(1.0) - sum(-1.0)) - (sum(2.0) - sum(-2.0))) / 12.0;
        assert!(
            (actual - expected).abs() <= 1e-5 * actual.abs(),
            "{name}: {actual}, {expected}"
        );
    }
}
