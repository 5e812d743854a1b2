//! The interpreter on whole graphs in double precision.

use crate::error::Error;
use crate::op::{Add, Normalize, Op, PatchConv, Pool};
use crate::tensor::{DType, Input, Tensor};
use crate::{Graph, OutputKind, Role, interpret};

#[test]
fn a_graph_runs_and_a_wrong_input_is_refused() {
    let mut graph = Graph::new("tiny", [1, 2, 2, 3], DType::U8);
    let normalize = Normalize {
        scale: [1.0; 3],
        shift: [0.0; 3],
    };
    let x = graph
        .push(
            Role::Patch,
            "normalize",
            Op::Normalize(normalize),
            [graph.input()],
        )
        .unwrap();
    let weight = graph.constant(
        "weight",
        Tensor::from_f32([2, 3, 1, 1], [1.0, 1.0, 1.0, 0.0, 0.0, 1.0]).unwrap(),
    );
    let patch = PatchConv {
        patch: [1, 1],
        bias: false,
    };
    let x = graph
        .push(Role::Patch, "patches", Op::PatchConv(patch), [x, weight])
        .unwrap();
    let doubled = graph.push(Role::Other, "double", Op::Add(Add), [x, x]).unwrap();
    let pooled = graph
        .push(Role::Other, "pool", Op::Pool(Pool::Mean { skip: 0 }), [doubled])
        .unwrap();
    graph.set_output(OutputKind::Embedding, pooled);
    let pixels: Vec<u8> = (0..24).collect();
    let outputs = interpret(&graph, 2, Input::Pixels(&pixels)).unwrap();
    let [(OutputKind::Embedding, embedding)] = outputs.as_slice() else {
        panic!("{outputs:?}");
    };
    // Pixel i has channels 3i, 3i+1, 3i+2, with sum 9i+3, for i in 0..4 and 4..8. Means of sums and last channels, doubled.
    assert_eq!(embedding, &ndarray::arr2(&[[33.0, 13.0], [105.0, 37.0]]));

    for (batch, input) in [
        (1, Input::Pixels(&pixels)),
        (0, Input::Pixels(&[])),
        (2, Input::Values(&[0.0; 24])),
    ] {
        assert!(matches!(
            interpret(&graph, batch, input),
            Err(Error::Argument { what: "input", .. })
        ));
    }
}
