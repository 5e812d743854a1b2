//! Plans of random graphs and of ViT-B/16.

use std::sync::Arc;

use proptest::prelude::*;

use super::vit::Vit;
use crate::op::{
    Accumulate, Activation, AdamW, Add, L2Norm, LayerNorm, Linear, Loss, LossKind, MulScalar, Op, PatchConv,
    Pool, Reshape, Scale,
};
use crate::plan::{ALIGNMENT, Operand, Plan};
use crate::tensor::{DType, Tensor};
use crate::{Graph, Optimizations, OutputKind, Passes, Role, ValueId, optimize};

/// The next op, and the earlier values that it reads.
#[derive(Clone, Debug)]
enum Choice {
    Activation(usize),
    Norm(usize),
    Linear { x: usize, residual: Option<usize> },
    Widen(usize),
    Add(usize, usize),
    Reshape(usize),
}

fn choice() -> impl Strategy<Value = Choice> {
    // Small numbers refer to recent values, as in chains. Larger ones make long-lived values.
    let back = || prop_oneof![3 => 0usize..2, 1 => 0usize..12];
    prop_oneof![
        back().prop_map(Choice::Activation),
        back().prop_map(Choice::Norm),
        (back(), prop::option::of(back())).prop_map(|(x, residual)| Choice::Linear { x, residual }),
        back().prop_map(Choice::Widen),
        (back(), back()).prop_map(|(x, y)| Choice::Add(x, y)),
        back().prop_map(Choice::Reshape),
    ]
}

/// Returns a graph over values of 8 or 32 channels. Its outputs are the last value and an earlier one.
fn graph(choices: &[Choice], early: usize) -> Graph {
    let mut g = Graph::new("random", [1, 3, 4, 4], DType::F32);
    let zeros = |g: &mut Graph, name: &str, shape: &[usize]| {
        let len = shape.iter().product();
        g.constant(name, Tensor::from_f32(shape, vec![0.0; len]).unwrap())
    };
    let kernel = zeros(&mut g, "kernel", &[8, 3, 2, 2]);
    let square = zeros(&mut g, "square", &[8, 8]);
    let up = zeros(&mut g, "up", &[32, 8]);
    let down = zeros(&mut g, "down", &[8, 32]);
    let vector = zeros(&mut g, "vector", &[8]);
    let conv = Op::PatchConv(PatchConv {
        patch: [2, 2],
        bias: false,
    });
    let input = g.input();
    let mut values = vec![g.push(Role::Patch, "conv", conv, [input, kernel]).unwrap()];
    for (i, choice) in choices.iter().enumerate() {
        let at = |back: usize| values[values.len() - 1 - back.min(values.len() - 1)];
        let mut push = |name: &str, op: Op, inputs: Vec<ValueId>| {
            g.push(Role::Other, format!("{i}{name}"), op, inputs).unwrap()
        };
        let linear = |residual| {
            Op::Linear(Linear {
                residual,
                ..Linear::default()
            })
        };
        let value = match *choice {
            Choice::Activation(x) => push("relu", Op::Activation(Activation::Relu), vec![at(x)]),
            Choice::Norm(x) => {
                let op = Op::LayerNorm(LayerNorm { epsilon: 1e-6 });
                push("norm", op, vec![at(x), vector, vector])
            }
            Choice::Linear { x, residual } => {
                let inputs = [at(x), square].into_iter().chain(residual.map(at)).collect();
                push("linear", linear(residual.is_some()), inputs)
            }
            Choice::Widen(x) => {
                let wide = push("up", linear(false), vec![at(x), up]);
                push("down", linear(false), vec![wide, down])
            }
            Choice::Add(x, y) => push("add", Op::Add(Add), vec![at(x), at(y)]),
            Choice::Reshape(x) => {
                let extents = vec![1, 4, 8];
                let op = Reshape {
                    extents,
                    batch: Some(0),
                };
                push("reshape", op.into(), vec![at(x)])
            }
        };
        values.push(value);
    }
    for (i, back) in [0, early].into_iter().enumerate() {
        let value = values[values.len() - 1 - back.min(values.len() - 1)];
        let op = Op::Pool(Pool::Token(i));
        let pooled = g.push(Role::Other, format!("pool{i}"), op, [value]).unwrap();
        g.set_output(OutputKind::Embedding, pooled);
    }
    // An output that nodes read too, and that must outlive them.
    let activation = Op::Activation(Activation::Tanh);
    let early = g.outputs()[1].1;
    let late = g.push(Role::Other, "tanh", activation, [early]).unwrap();
    g.set_output(OutputKind::Logits, late);
    g
}

fn check(plan: &Plan) -> Result<(), TestCaseError> {
    let (steps, buffers) = (plan.steps(), plan.buffers());
    for buffer in buffers {
        prop_assert_eq!(buffer.offset % ALIGNMENT, 0);
        prop_assert!(buffer.offset + buffer.bytes <= plan.arena_bytes());
    }
    prop_assert!(plan.lower_bound_bytes() <= plan.arena_bytes());
    prop_assert!(plan.arena_bytes() <= plan.naive_bytes());

    // Each operand's bytes must still hold it when it is read.
    let mut owner: Vec<Option<usize>> = vec![None; plan.arena_bytes()];
    // A reshape in place holds the elements of its operand.
    let mut held: Vec<usize> = (0..buffers.len()).collect();
    let owns = |owner: &[Option<usize>], held: &[usize], id: usize| {
        let buffer = &buffers[id];
        owner[buffer.offset..buffer.offset + buffer.bytes]
            .iter()
            .all(|&o| o == Some(held[id]))
    };
    for (index, step) in steps.iter().enumerate() {
        for (i, operand) in step.inputs.iter().enumerate() {
            let Operand::Buffer(id) = *operand else {
                prop_assert_ne!(step.in_place, Some(i));
                continue;
            };
            prop_assert!(
                owns(&owner, &held, id.index()),
                "step {} reads what is gone",
                index
            );
            let (input, output) = (plan.buffer(id), plan.buffer(step.output()));
            let overlap =
                input.offset < output.offset + output.bytes && output.offset < input.offset + input.bytes;
            prop_assert_eq!(overlap, step.in_place == Some(i));
            if overlap && matches!(plan.node(step).op, Op::Reshape(_)) {
                held[step.output().index()] = held[id.index()];
            } else if overlap {
                prop_assert_eq!(input.last_step, index);
                prop_assert_eq!((&input.shape, input.offset), (&output.shape, output.offset));
                prop_assert_eq!(step.inputs.iter().filter(|other| *other == operand).count(), 1);
            }
        }
        let output = plan.buffer(step.output());
        owner[output.offset..output.offset + output.bytes].fill(Some(held[step.output().index()]));
    }
    for &(_, value, id) in plan.outputs() {
        prop_assert_eq!(plan.buffer(id).value, value);
        prop_assert!(owns(&owner, &held, id.index()), "an output is gone at the end");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_operand_or_output_is_overwritten(
        choices in prop::collection::vec(choice(), 1..24),
        early in 0usize..12,
        batch in 1usize..4,
        half in any::<bool>(),
    ) {
        let dtype = if half { DType::F16 } else { DType::F32 };
        check(&Plan::new(Arc::new(graph(&choices, early)), batch, dtype).unwrap())?;
    }
}

#[test]
fn vit_base_fits_in_its_largest_layer() {
    let (graph, _) = optimize(Vit::BASE.zeros(), &Passes::default()).unwrap();
    let graph = Arc::new(graph);
    for batch in [1, 8] {
        let plan = Plan::new(graph.clone(), batch, DType::F32).unwrap();
        assert_eq!(plan.arena_bytes(), plan.lower_bound_bytes());
        // Peak in the feed-forward network: tokens and their norm (D channels), and the hidden layer (4·D). Embedding and logits share no
        // memory.
        let own = [768, 1000].map(|channels: usize| (batch * channels * 4).next_multiple_of(ALIGNMENT));
        let results: usize = own.iter().sum();
        assert_eq!(plan.arena_bytes(), batch * 197 * 6 * 768 * 4 + results);
        assert!(plan.arena_bytes() * 20 < plan.naive_bytes());
    }
}

#[test]
fn a_reshape_takes_no_memory_while_both_shapes_are_read() {
    let chain = [
        Choice::Activation(0),
        Choice::Reshape(0),
        Choice::Add(0, 1),
        Choice::Norm(1),
    ];
    let plan = Plan::new(Arc::new(graph(&chain, 0)), 3, DType::F16).unwrap();
    let reshape = plan
        .steps()
        .iter()
        .find(|step| matches!(plan.node(step).op, Op::Reshape(_)));
    assert_eq!(reshape.unwrap().in_place, Some(0));
    // The sum may not overwrite what the norm reads.
    let sum = plan
        .steps()
        .iter()
        .find(|step| plan.node(step).op == Op::Add(Add));
    assert_eq!(sum.unwrap().in_place, None);
    check(&plan).unwrap();
}

#[test]
fn without_reuse_every_buffer_has_memory_of_its_own() {
    let passes = Passes {
        optimizations: Optimizations {
            memory_reuse: false,
            ..Optimizations::default()
        },
        ..Passes::default()
    };
    let (graph, _) = optimize(Vit::default().zeros(), &passes).unwrap();
    let plan = Plan::new(Arc::new(graph), 3, DType::F32).unwrap();
    assert_eq!(plan.arena_bytes(), plan.naive_bytes());
    assert!(plan.steps().iter().all(|step| step.in_place.is_none()));
    check(&plan).unwrap();
}

#[test]
fn vit_base_costs_what_its_formula_says() {
    let passes = Passes {
        prune_tokens: false,
        ..Passes::default()
    };
    let (graph, _) = optimize(Vit::BASE.zeros(), &passes).unwrap();
    let flops = Plan::new(Arc::new(graph), 1, DType::F32).unwrap().flops() as f64;
    // Matrix products only: 12 blocks of 24·N·D² + 4·N²·D, and the patches. All other ops are below one percent.
    let (n, d) = (197.0, 768.0);
    let products = 12.0 * (24.0 * n * d * d + 4.0 * n * n * d) + 2.0 * 196.0 * d * d;
    assert!((1.0..1.01).contains(&(flops / products)), "{flops} of {products}");
}

#[test]
fn impossible_batches_are_refused() {
    let graph = Arc::new(Vit::default().random(1));
    let none = Plan::new(graph.clone(), 0, DType::F32).unwrap_err();
    assert_eq!(none.to_string(), "batch: is 0; at least one image is needed");
    let many = Plan::new(graph, 1 << 44, DType::F32).unwrap_err();
    assert!(
        many.to_string()
            .starts_with("batch: the result of node `normalize`"),
        "{many}"
    );
}

#[test]
fn an_output_that_no_step_computes_is_refused() {
    let mut graph = Vit::default().random(1);
    let constant = graph.constant("c", Tensor::from_f32([1, 2], vec![0.0; 2]).unwrap());
    graph.set_output(OutputKind::Embedding, constant);
    let error = Plan::new(Arc::new(graph), 1, DType::F32).unwrap_err();
    assert_eq!(
        error.to_string(),
        "node `c`: is an output, but no node computes it"
    );
}

/// Targets and the states of an optimiser stay in f32 where activations are narrower.
#[test]
fn operands_of_losses_and_optimisers_are_f32_in_any_plan() {
    let mut g = Graph::of_tokens("training", [2, 4]);
    let zeros = |shape: &[usize]| Tensor::from_f32(shape, vec![0.0; shape.iter().product()]).unwrap();
    let targets = g.add_input("targets", [1, 4], DType::F32).unwrap();
    let scale = g.add_fixed_input("scale", [1], DType::F32).unwrap();
    let rates = g.add_fixed_input("rates", [3], DType::F32).unwrap();
    let weight = g.parameter("weight", zeros(&[4]));
    let [master, first, second] = ["master", "first", "second"].map(|name| g.state(name, zeros(&[4])));
    let input = g.input();
    let logits = g.push(Role::Other, "logits", Pool::Token(0), [input]).unwrap();
    let logits = g.push(Role::Other, "scaled", Scale, [logits, weight]).unwrap();
    let loss = Loss(LossKind::CrossEntropy);
    let loss = g.push(Role::Other, "loss", loss, [logits, targets]).unwrap();
    g.set_output(OutputKind::Loss, loss);
    let doubled = g.push(Role::Other, "gradient", MulScalar(2.0), [weight]).unwrap();
    let sum = g.state("sum", zeros(&[4]));
    let sum = g
        .push(Role::Other, "sum", Accumulate, [sum, doubled, scale])
        .unwrap();
    let norm = L2Norm {
        maximum: Some(1.0),
        f32_gradients: true,
    };
    let norm = g.push_node(Role::Other, "norm".into(), norm.into(), vec![scale, sum]);
    let factor = norm.unwrap().outputs[1];
    let update = AdamW {
        beta1: 0.9,
        beta2: 0.999,
        epsilon: 1e-8,
        weight_decay: 0.0,
        rate_factor: 1.0,
        rounded: true,
        f32_gradient: true,
    };
    let operands = vec![master, sum, first, second, rates, factor];
    let update = g.push_node(Role::Other, "update".into(), update.into(), operands);
    let results = update.unwrap().outputs.clone();
    for (state, result) in [master, first, second, weight].into_iter().zip(results) {
        g.update(state, result).unwrap();
    }
    let plan = Plan::new(Arc::new(g), 3, DType::BF16).unwrap();
    let input_dtypes: Vec<DType> = plan.inputs().iter().map(|input| input.dtype).collect();
    assert_eq!(input_dtypes, [DType::BF16, DType::F32, DType::F32, DType::F32]);
    for (state, dtype) in [(master, DType::F32), (first, DType::F32), (weight, DType::BF16)] {
        assert_eq!(plan.state_dtype(state), dtype);
    }
    let losses = &plan.outputs()[0];
    assert_eq!(plan.buffer(losses.2).dtype, DType::F32);
    assert_eq!(plan.buffer(losses.2).shape, [3, 1]);
}

/// Weights that each run provides are rounded to the dtype of the activations.
#[test]
fn weights_that_are_inputs_have_the_dtype_of_activations() {
    let mut g = Graph::of_tokens("training", [2, 4]);
    let weight = g.constant("weight", Tensor::from_f32([4], vec![0.5; 4]).unwrap());
    let input = g.input();
    let logits = g.push(Role::Other, "logits", Pool::Token(0), [input]).unwrap();
    let logits = g.push(Role::Other, "scaled", Scale, [logits, weight]).unwrap();
    g.set_output(OutputKind::Logits, logits);
    assert_eq!(*g.make_input(weight).unwrap().to_f32(), [0.5; 4]);
    assert!(g.make_input(weight).is_err());
    let plan = Plan::new(Arc::new(g), 3, DType::BF16).unwrap();
    let input = &plan.inputs()[1];
    assert_eq!(
        (plan.graph().input_name(input.input), input.dtype),
        ("weight", DType::BF16)
    );
    assert_eq!(input.shape, [4]);
}
