//! Graphs whose inputs and outputs have their own names and shapes.

use std::sync::Arc;

use ndarray::arr2;

use crate::error::Error;
use crate::op::{Add, MulScalar, Normalize};
use crate::plan::Plan;
use crate::tensor::{DType, Input, Tensor};
use crate::{Graph, Interpreter, OutputKind, Passes, Role, interpret, optimize};

/// `x [B,2,2]` and the fixed `offset [1,2,2]` give `sum` and its double, `b`. `c` depends on no input.
fn graph() -> Graph {
    let mut graph = Graph::of_values("named", "x", [1, 2, 2], DType::F32).unwrap();
    let offset = graph.add_fixed_input("offset", [1, 2, 2], DType::F32).unwrap();
    let x = graph.input();
    let sum = graph.push(Role::Other, "add", Add, [x, offset]).unwrap();
    let double = graph.push(Role::Other, "double", MulScalar(2.0), [sum]).unwrap();
    let constant = graph.constant("three", Tensor::from_f32([2], vec![3.0; 2]).unwrap());
    let six = graph
        .push(Role::Other, "six", MulScalar(2.0), [constant])
        .unwrap();
    for (index, (name, value)) in [("b", double), ("sum", sum), ("c", six)].into_iter().enumerate() {
        assert_eq!(graph.add_output(name, value).unwrap(), OutputKind::Named(index));
    }
    graph
}

#[test]
fn names_and_results_survive_the_passes() {
    let (optimized, _) = optimize(graph(), &Passes::default()).unwrap();
    let x: Vec<f32> = (0..8_u8).map(f32::from).collect();
    let offset = [10.0, 20.0, 30.0, 40.0];
    for graph in [graph(), optimized] {
        graph.verify().unwrap();
        let names: Vec<&str> = graph.inputs().map(|input| graph.input_name(input)).collect();
        assert_eq!(names, ["x", "offset"]);
        let inputs = [Input::Values(&x), Input::Values(&offset)];
        let outputs = Interpreter::new(&graph).run(2, &inputs).unwrap();
        let names = outputs
            .iter()
            .map(|&(kind, _)| graph.output_name(kind).into_owned());
        assert_eq!(names.collect::<Vec<_>>(), ["b", "sum", "c"]);
        let sum = arr2(&[[10.0, 21.0], [32.0, 43.0], [14.0, 25.0], [36.0, 47.0]]);
        assert_eq!(outputs[0].1, 2.0 * &sum);
        assert_eq!(outputs[1].1, sum);
        assert_eq!(outputs[2].1, arr2(&[[6.0, 6.0]]));
    }
}

#[test]
fn a_plan_rounds_named_inputs_and_has_the_outputs_shapes() {
    let plan = Plan::new(Arc::new(graph()), 3, DType::BF16).unwrap();
    let inputs: Vec<_> = plan
        .inputs()
        .iter()
        .map(|input| (&*input.shape, input.dtype))
        .collect();
    assert_eq!(
        inputs,
        [(&[3, 2, 2][..], DType::BF16), (&[1, 2, 2][..], DType::BF16)]
    );
    let shapes = plan
        .outputs()
        .iter()
        .map(|&(_, _, id)| plan.buffer(id).shape.as_slice());
    assert_eq!(shapes.collect::<Vec<_>>(), [&[3, 2, 2][..], &[3, 2, 2], &[2]]);
    // Only a small result is worth memory of its own.
    let own = plan
        .outputs()
        .iter()
        .map(|&(kind, value, _)| plan.has_own_storage(kind, value));
    assert_eq!(own.collect::<Vec<_>>(), [false, false, true]);
}

#[test]
fn a_fixed_first_input_has_one_shape() {
    let mut graph = Graph::of_fixed_values("fixed", "tokens", [7, 3], DType::I32).unwrap();
    let x = graph.input();
    let double = graph.push(Role::Other, "double", MulScalar(2.0), [x]).unwrap();
    graph.add_output("y", double).unwrap();
    graph.verify().unwrap();
    assert_eq!(graph.shapes(5).unwrap()[double.index()], [7, 3]);
    let plan = Plan::new(Arc::new(graph.clone()), 1, DType::F16).unwrap();
    assert_eq!(plan.inputs()[0].dtype, DType::I32);
    let error = graph.check_input(Input::Integers(&[0; 42]), 2).unwrap_err();
    assert_eq!(
        error.to_string(),
        "inputs: `tokens` has 42 elements, expected [7, 3]"
    );
}

#[test]
fn names_that_occur_twice_are_refused() {
    let mut graph = graph();
    let x = graph.input();
    for error in [
        graph.add_output("sum", x).unwrap_err(),
        graph.add_input("x", [1, 2], DType::F32).unwrap_err(),
        Graph::of_values("named", "x", [2, 3], DType::F32).unwrap_err(),
        Graph::of_values("named", "x", [1, 3], DType::F16).unwrap_err(),
    ] {
        assert!(matches!(error, Error::Graph { .. }), "{error}");
    }
    // The names of other graphs' first inputs are free.
    graph.add_input("pixels", [1, 2], DType::U8).unwrap();
}

#[test]
fn pixels_are_normalised_to_either_layout() {
    let normalize = Normalize {
        scale: [0.5, 0.25, 2.0],
        shift: [1.0, -2.0, 3.0],
    };
    let pixels: Vec<u8> = (0..2 * 2 * 3 * 3).map(|i| (7 * i % 251) as u8).collect();
    for channels_last in [false, true] {
        let shape: Vec<usize> = if channels_last {
            vec![1, 2, 3, 3]
        } else {
            vec![1, 3, 2, 3]
        };
        for per_image in [true, false] {
            let graph = if per_image {
                Graph::of_values("images", "x", shape.clone(), DType::F32)
            } else {
                Graph::of_fixed_values("images", "x", shape.clone(), DType::F32)
            };
            let mut graph = graph.unwrap();
            let x = graph.input();
            let y = graph.push(Role::Other, "normalize", MulScalar(1.0), [x]).unwrap();
            graph.add_output("y", y).unwrap();
            let graph = graph.with_pixels(normalize, channels_last).unwrap();
            graph.verify().unwrap();
            assert_eq!(graph.first_input_name(), "pixels");
            let batch = if per_image { 2 } else { 1 };
            let given = &pixels[..batch * 18];
            let outputs = interpret(&graph, batch, Input::Pixels(given)).unwrap();
            let values = outputs[0].1.iter().copied();
            let expected = (0..batch * 18).map(|i| {
                let (image, rest) = (i / 18, i % 18);
                let (pixel, channel) = if channels_last {
                    (rest / 3, rest % 3)
                } else {
                    (rest % 6, rest / 6)
                };
                let byte = given[image * 18 + pixel * 3 + channel];
                f64::from(byte) * f64::from(normalize.scale[channel]) + f64::from(normalize.shift[channel])
            });
            assert_eq!(values.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        }
    }
}
