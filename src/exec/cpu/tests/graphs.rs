//! Whole Vision Transformers, and the guarantees of the executor for every run.

use std::sync::Arc;

use super::run_guarded;
use crate::Error;
use crate::exec::{Arena, CpuExecutor};
use crate::graph::plan::Plan;
use crate::graph::{Graph, Passes, interpret, optimize};
use crate::graph_tests::vit::{Head, Projection, Vit};
use crate::reference::{assert_close, tolerance};
use crate::tensor::{DType, Input};

/// A model whose tokens and channels exceed a tile and are not multiples of one.
const VIT: Vit = Vit {
    image: 37,
    patch: 4,
    dim: 60,
    heads: 3,
    depth: 2,
    classes: 7,
    projection: Projection::Packed,
    head: Head::ClassToken,
    registers: 0,
    layer_scale: false,
    swiglu: false,
    patch_positions: false,
    pixels: true,
};

fn variants() -> [Vit; 4] {
    [
        VIT,
        Vit {
            projection: Projection::Separate { key_bias: false },
            head: Head::Mean,
            layer_scale: true,
            swiglu: true,
            registers: 3,
            patch_positions: true,
            ..VIT
        },
        Vit {
            head: Head::AttentionPool,
            pixels: false,
            ..VIT
        },
        Vit {
            projection: Projection::Separate { key_bias: true },
            head: Head::Distilled,
            ..VIT
        },
    ]
}

/// Pixels, and normalised values for graphs that take those.
struct Images {
    pixels: Vec<u8>,
    values: Vec<f32>,
}

impl Images {
    fn new(count: usize) -> Self {
        let pixels: Vec<u8> = (0..count * VIT.image * VIT.image * 3)
            .map(|i| (i * 7919 % 256) as u8)
            .collect();
        let values = pixels.iter().map(|&v| f32::from(v) / 64.0 - 2.0).collect();
        Self { pixels, values }
    }

    fn input(&self, graph: &Graph) -> Input<'_> {
        match graph.value(graph.input()).dtype {
            DType::U8 => Input::Pixels(&self.pixels),
            _ => Input::Values(&self.values),
        }
    }
}

fn optimized(vit: Vit) -> Arc<Graph> {
    Arc::new(optimize(vit.random(1), &Passes::default()).unwrap().0)
}

fn plan(graph: &Arc<Graph>, batch: usize) -> Plan {
    Plan::new(graph.clone(), batch, DType::F32).unwrap()
}

/// Returns the bits of all outputs, concatenated.
fn bits(executor: &CpuExecutor, plan: &Plan, input: Input<'_>, arena: &mut Arena) -> Vec<u32> {
    let outputs = executor.run(plan, input, arena, None).unwrap();
    outputs
        .iter()
        .flat_map(|(_, values)| values.iter().map(|v| v.to_bits()))
        .collect()
}

#[test]
fn graphs_equal_the_reference_before_and_after_the_passes() {
    // LayerNorm limits the growth of errors over layers, and sums have at most 4·dim terms.
    let tolerance = tolerance(DType::F32, 4 * VIT.dim);
    for vit in variants() {
        for graph in [Arc::new(vit.random(1)), optimized(vit)] {
            let executor = CpuExecutor::new(&graph, Some(2)).unwrap();
            for batch in [1, 3] {
                let images = Images::new(batch);
                let input = images.input(&graph);
                let plan = plan(&graph, batch);
                run_guarded(&executor, &plan, input);
                let outputs = executor.run(&plan, input, &mut Arena::new(), None).unwrap();
                let expected = interpret(&graph, batch, input).unwrap();
                assert_eq!(outputs.len(), expected.len());
                for ((kind, output), (expected_kind, expected)) in outputs.iter().zip(&expected) {
                    assert_eq!((kind, output.dim()), (expected_kind, expected.dim()));
                    assert_close(
                        output.as_slice().unwrap(),
                        expected.as_slice().unwrap(),
                        tolerance,
                    );
                }
            }
        }
    }
}

#[test]
fn bits_depend_on_neither_threads_nor_batch() {
    for vit in variants() {
        let graph = optimized(vit);
        let three = Images::new(3);
        let one_thread = CpuExecutor::new(&graph, Some(1)).unwrap();
        assert_eq!(one_thread.threads(), 1);
        let outputs = one_thread
            .run(&plan(&graph, 3), three.input(&graph), &mut Arena::new(), None)
            .unwrap();
        for threads in [2, 5] {
            let executor = CpuExecutor::new(&graph, Some(threads)).unwrap();
            let again = executor
                .run(&plan(&graph, 3), three.input(&graph), &mut Arena::new(), None)
                .unwrap();
            assert_eq!(again, outputs, "{threads} threads");
        }
        let image = VIT.image * VIT.image * 3;
        let mut arena = Arena::new();
        for i in 0..3 {
            let input = three.input(&graph).slice(i * image..(i + 1) * image);
            let alone = one_thread.run(&plan(&graph, 1), input, &mut arena, None).unwrap();
            for ((_, alone), (_, batched)) in alone.iter().zip(&outputs) {
                assert_eq!(alone.row(0), batched.row(i), "image {i}");
            }
        }
    }
}

#[test]
fn one_executor_serves_many_threads() {
    let graph = optimized(VIT);
    let executor = CpuExecutor::new(&graph, Some(3)).unwrap();
    let (images, plan) = (Images::new(2), plan(&graph, 2));
    let expected = bits(&executor, &plan, images.input(&graph), &mut Arena::new());
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let mut arena = Arena::new();
                for _ in 0..5 {
                    let again = bits(&executor, &plan, images.input(&graph), &mut arena);
                    assert_eq!(again, expected);
                }
            });
        }
    });
}

#[test]
fn an_arena_is_kept_and_every_step_is_observed() {
    let graph = optimized(VIT);
    let executor = CpuExecutor::new(&graph, Some(2)).unwrap();
    let images = Images::new(4);
    let (large, small) = (plan(&graph, 4), plan(&graph, 1));
    let mut arena = Arena::new();
    let first = bits(&executor, &large, images.input(&graph), &mut arena);
    let held = arena.capacity_bytes();
    assert!(held >= large.arena_bytes() && held < large.arena_bytes() + 256);
    let one = images.input(&graph).slice(0..VIT.image * VIT.image * 3);
    bits(&executor, &small, one, &mut arena);
    assert_eq!(bits(&executor, &large, images.input(&graph), &mut arena), first);
    assert_eq!(arena.capacity_bytes(), held);

    let mut nodes = Vec::new();
    let mut observe = |step: &crate::graph::plan::Step, _| nodes.push(step.node);
    executor.run(&small, one, &mut arena, Some(&mut observe)).unwrap();
    assert_eq!(nodes, (0..graph.nodes().len()).collect::<Vec<_>>());
}

#[test]
fn what_does_not_fit_is_refused() {
    let graph = optimized(VIT);
    let executor = CpuExecutor::new(&graph, Some(1)).unwrap();
    let images = Images::new(1);
    let mut arena = Arena::new();
    let mut run = |plan: &Plan, input| executor.run(plan, input, &mut arena, None).unwrap_err();
    let right = plan(&graph, 1);
    for input in [Input::Values(&images.values), Input::Pixels(&images.pixels[1..])] {
        assert!(matches!(
            run(&right, input),
            Error::Argument { what: "input", .. }
        ));
    }
    let two = plan(&graph, 2);
    assert!(matches!(
        run(&two, Input::Pixels(&images.pixels)),
        Error::Argument { what: "input", .. }
    ));
    let half = Plan::new(graph.clone(), 1, DType::F16).unwrap();
    assert!(matches!(
        run(&half, Input::Pixels(&images.pixels)),
        Error::Argument { what: "dtype", .. }
    ));
    // Another random seed: the constants differ.
    let other = Arc::new(VIT.random(1));
    let error = run(&plan(&other, 1), Input::Pixels(&images.pixels));
    assert!(error.to_string().contains("another graph"), "{error}");
}

#[test]
fn released_constants_are_needed_by_nobody_but_another_executor() {
    let (mut graph, _) = optimize(VIT.zeros(), &Passes::default()).unwrap();
    let executor = CpuExecutor::new(&graph, Some(1)).unwrap();
    graph.release_constants();
    assert!(graph.values().iter().all(|value| value.constant.is_none()));
    let error = CpuExecutor::new(&graph, Some(1)).unwrap_err().to_string();
    assert!(error.contains("released"), "{error}");
    graph.verify().unwrap();
    let plan = Plan::new(Arc::new(graph), 1, DType::F32).unwrap();
    let pixels = vec![0; VIT.image * VIT.image * 3];
    let run = executor.run(&plan, Input::Pixels(&pixels), &mut Arena::new(), None);
    assert_eq!(run.unwrap()[0].1.dim(), (1, VIT.classes));
}
