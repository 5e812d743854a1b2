//! Permutations that cancel, and those that stay.

use super::vit::{EXACT, Random, assert_same};
use crate::op::{
    Activation, Add, BatchMatMul, Concat, Elementwise, Expand, Gather, LayerNorm, Linear, Op, Pad, PadMode,
    Permute, Reduce, ReduceKind, Reshape, Slice, Softmax,
};
use crate::passes::cancel_permutes;
use crate::tensor::{DType, Tensor};
use crate::{Graph, OutputKind, Role, ValueId};

/// A graph of images `[B,C,H,W]` that ops are appended to.
struct Net {
    graph: Graph,
    random: Random,
}

impl Net {
    fn new(shape: [usize; 3]) -> Self {
        let [channels, height, width] = shape;
        Self {
            graph: Graph::new("test", [1, channels, height, width], DType::F32),
            random: Random(7),
        }
    }

    fn constant(&mut self, shape: &[usize]) -> ValueId {
        let values: Vec<f32> = (0..shape.iter().product()).map(|_| self.random.next()).collect();
        let name = format!("constant {}", self.graph.values().len());
        self.graph
            .constant(name, Tensor::from_f32(shape, values).unwrap())
    }

    fn push(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
        let name = format!("node {}", self.graph.nodes().len());
        self.graph.push(Role::Other, name, op, inputs).unwrap()
    }

    fn permute(&mut self, axes: &[usize], x: ValueId) -> ValueId {
        self.push(Permute { axes: axes.into() }, &[x])
    }

    /// A 1×1 convolution as importers make it.
    fn conv(&mut self, x: ValueId, channels: usize) -> ValueId {
        let inputs = self.graph.value(x).shape[1];
        let weight = self.constant(&[channels, inputs]);
        let last = self.permute(&[0, 2, 3, 1], x);
        let y = self.push(Linear::default(), &[last, weight]);
        self.permute(&[0, 3, 1, 2], y)
    }

    /// Declares the output, runs the pass, and compares the graphs. Returns the permutations that are left.
    fn left(mut self, output: ValueId) -> Vec<Permute> {
        self.graph.set_output(OutputKind::Logits, output);
        self.graph.verify().unwrap();
        let after = cancel_permutes::run(&self.graph).unwrap();
        after.graph.verify().unwrap();
        assert_same(&self.graph, &after.graph, EXACT);
        let again = cancel_permutes::run(&after.graph).unwrap();
        assert_eq!(again.changes, 0);
        let permutes = after.graph.nodes().iter().filter_map(|node| match &node.op {
            Op::Permute(permute) => Some(permute.clone()),
            _ => None,
        });
        permutes.collect()
    }
}

fn reduce(kind: ReduceKind, axes: &[usize], keep: bool) -> Reduce {
    Reduce {
        kind,
        axes: axes.into(),
        keep,
    }
}

#[test]
fn a_convolutional_network_keeps_that_of_its_input() {
    let mut net = Net::new([3, 4, 6]);
    let input = net.graph.input();
    let x = net.conv(input, 8);
    let x = net.push(Activation::Relu, &[x]);
    // A block with a residual and an affine of channels.
    let y = net.conv(x, 8);
    let factor = net.constant(&[8, 1, 1]);
    let shift = net.constant(&[1, 8, 1, 1]);
    let mul = Elementwise::binary(|x, y| x * y).unwrap();
    let add = Elementwise::binary(|x, y| x + y).unwrap();
    let y = net.push(mul.clone(), &[factor, y]);
    let y = net.push(add.clone(), &[y, shift]);
    let x = net.push(Add, &[x, y]);
    // Squeeze and excitation, with and without layers between.
    let pooled = net.push(reduce(ReduceKind::Mean, &[2, 3], true), &[x]);
    let gate = net.conv(pooled, 8);
    let x = net.push(mul.clone(), &[x, gate]);
    let pooled = net.push(reduce(ReduceKind::Max, &[2, 3], false), &[x]);
    let weight = net.constant(&[8, 8]);
    let gate = net.push(Linear::default(), &[pooled, weight]);
    let unsqueezed = Reshape {
        extents: vec![1, 8, 1, 1],
        batch: Some(0),
    };
    let gate = net.push(unsqueezed, &[gate]);
    let x = net.push(mul, &[x, gate]);
    // Branches.
    let first = net.push(Slice::new(1, 0, 3), &[x]);
    let second = net.push(Slice::new(1, 3, 5), &[x]);
    let second = net.conv(second, 2);
    let x = net.push(Concat { axis: 1 }, &[first, second]);
    let pad = Pad {
        before: vec![0, 1, 0, 2],
        after: vec![0, 0, 3, 0],
        mode: PadMode::Constant(0.5),
    };
    let x = net.push(pad, &[x]);
    let indices = net
        .graph
        .constant("indices", Tensor::from_i32([3], &[5, 0, 2]).unwrap());
    let x = net.push(Gather { axis: 1 }, &[x, indices]);
    let x = net.conv(x, 5);
    let pooled = net.push(reduce(ReduceKind::Mean, &[2, 3], true), &[x]);
    let flat = Reshape {
        extents: vec![1, 5],
        batch: Some(0),
    };
    let flat = net.push(flat, &[pooled]);
    let weight = net.constant(&[4, 5]);
    let logits = net.push(Linear::default(), &[flat, weight]);
    assert_eq!(
        net.left(logits),
        [Permute {
            axes: vec![0, 2, 3, 1]
        }]
    );
}

#[test]
fn patches_become_tokens_without_a_permutation() {
    let mut net = Net::new([3, 4, 6]);
    let input = net.graph.input();
    let x = net.conv(input, 8);
    let tokens = Reshape {
        extents: vec![1, 8, 24],
        batch: Some(0),
    };
    let x = net.push(tokens, &[x]);
    let x = net.permute(&[0, 2, 1], x);
    let [weight, bias] = [net.constant(&[8]), net.constant(&[8])];
    let x = net.push(LayerNorm { epsilon: 1e-6 }, &[x, weight, bias]);
    // And back to pixels.
    let x = net.permute(&[0, 2, 1], x);
    let pixels = Reshape {
        extents: vec![1, 8, 4, 6],
        batch: Some(0),
    };
    let x = net.push(pixels, &[x]);
    let x = net.conv(x, 2);
    let x = net.push(reduce(ReduceKind::Sum, &[2, 3], false), &[x]);
    assert_eq!(
        net.left(x),
        [Permute {
            axes: vec![0, 2, 3, 1]
        }]
    );
}

#[test]
fn keys_are_multiplied_as_they_are_stored() {
    // [B,N,3,H,D] as the projections of two heads.
    let mut net = Net::new([50, 3, 128]);
    let split = Reshape {
        extents: vec![1, 50, 3, 2, 64],
        batch: Some(0),
    };
    let input = net.graph.input();
    let x = net.push(split, &[input]);
    let x = net.permute(&[2, 0, 3, 1, 4], x);
    let head = Reshape {
        extents: vec![1, 2, 50, 64],
        batch: Some(0),
    };
    let [q, k, v] = [0, 1, 2].map(|index| {
        let part = net.push(Slice::new(0, index, 1), &[x]);
        net.push(head.clone(), &[part])
    });
    let k = net.permute(&[0, 1, 3, 2], k);
    let scores = net.push(BatchMatMul::default(), &[q, k]);
    let weights = net.push(Softmax::default(), &[scores]);
    let x = net.push(BatchMatMul::default(), &[weights, v]);
    let x = net.permute(&[0, 2, 1, 3], x);
    let joined = Reshape {
        extents: vec![1, 50, 128],
        batch: Some(0),
    };
    let x = net.push(joined, &[x]);
    let left = net.left(x);
    let heads = Permute {
        axes: vec![0, 2, 1, 3],
    };
    assert_eq!(left, vec![heads; 4]);
}

#[test]
fn an_axis_beside_the_batch_may_be_first() {
    let mut net = Net::new([3, 4, 6]);
    let input = net.graph.input();
    let x = net.permute(&[1, 2, 0, 3], input);
    let x = net.push(Activation::Tanh, &[x]);
    let weights = net.constant(&[4, 1, 6]);
    let x = net.push(Elementwise::binary(|x, y| x * y).unwrap(), &[x, weights]);
    let expand = Expand {
        extents: vec![3, 4, 1, 6],
        batch: Some(2),
        like: None,
    };
    let x = net.push(expand, &[x]);
    let x = net.push(reduce(ReduceKind::Sum, &[0], false), &[x]);
    let x = net.permute(&[1, 0, 2], x);
    assert_eq!(net.left(x), []);
}

#[test]
fn a_permutation_stays_where_nothing_cancels_it() {
    let mut net = Net::new([3, 4, 6]);
    let input = net.graph.input();
    let x = net.permute(&[0, 3, 1, 2], input);
    let weight = net.constant(&[2, 4]);
    let x = net.push(Linear::default(), &[x, weight]);
    assert_eq!(
        net.left(x),
        [Permute {
            axes: vec![0, 3, 1, 2]
        }]
    );
}
