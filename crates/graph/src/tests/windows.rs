//! Convolutions, pools and interpolation against results of ONNX Runtime, which `scripts/golden_convolutions.py` writes.

use serde::Deserialize;

use super::vit::{Random, assert_same};
use crate::array::Array;
use crate::op::{
    Activation, Add, AveragePool, Conv, ConvTranspose, Coordinates, Interpolate, InterpolationKernel,
    MaxPool, NearestRounding, Op,
};

use crate::tensor::{DType, Tensor};
use crate::{Graph, Passes, Role, optimize};

const CASES: &str = include_str!("../../../../tests/golden/convolutions.json");

/// Results are stored with six decimals.
const TOLERANCE: f64 = 2e-6;

#[derive(Deserialize)]
struct Case {
    op: String,
    x: Vec<usize>,
    shape: Vec<usize>,
    y: Vec<f64>,
    #[serde(flatten)]
    windows: Option<WindowSpec>,
    #[serde(flatten)]
    resize: Option<ResizeSpec>,
    weight: Option<Vec<usize>>,
    groups: Option<usize>,
    bias: Option<bool>,
    output_padding: Option<[usize; 2]>,
    ceil: Option<bool>,
    count_padding: Option<bool>,
}

#[derive(Deserialize)]
struct WindowSpec {
    kernel: [usize; 2],
    stride: [usize; 2],
    dilation: [usize; 2],
    padding: [[usize; 2]; 2],
}

#[derive(Deserialize)]
struct ResizeSpec {
    mode: String,
    coordinates: String,
    scale: Option<[f32; 2]>,
    rounding: String,
    coefficient: f32,
    antialias: bool,
    exclude_outside: bool,
}

impl ResizeSpec {
    fn op(&self, shape: &[usize]) -> Interpolate {
        let rounding = match self.rounding.as_str() {
            "floor" => NearestRounding::Floor,
            "ceil" => NearestRounding::Ceil,
            "round_prefer_ceil" => NearestRounding::PreferCeil,
            _ => NearestRounding::PreferFloor,
        };
        Interpolate {
            size: [shape[1], shape[2]],
            scale: self.scale,
            kernel: match self.mode.as_str() {
                "nearest" => InterpolationKernel::Nearest(rounding),
                "linear" => InterpolationKernel::Linear,
                _ => InterpolationKernel::Cubic(self.coefficient),
            },
            coordinates: match self.coordinates.as_str() {
                "half_pixel" => Coordinates::HalfPixel,
                "half_pixel_symmetric" => Coordinates::HalfPixelSymmetric,
                "pytorch_half_pixel" => Coordinates::PytorchHalfPixel,
                "align_corners" => Coordinates::AlignCorners,
                _ => Coordinates::Asymmetric,
            },
            antialias: self.antialias,
            exclude_outside: self.exclude_outside,
        }
    }
}

impl Case {
    fn op(&self) -> Op {
        if let Some(resize) = &self.resize {
            return resize.op(&self.shape).into();
        }
        let &WindowSpec {
            kernel,
            stride,
            dilation,
            padding,
        } = self.windows.as_ref().unwrap();
        let (groups, bias) = (self.groups.unwrap_or(1), self.bias == Some(true));
        let (ceil, count_padding) = (self.ceil == Some(true), self.count_padding == Some(true));
        match self.op.as_str() {
            "Conv" => Op::Conv(Conv {
                stride,
                dilation,
                padding,
                groups,
                bias,
                ..Conv::new(kernel)
            }),
            "ConvTranspose" => Op::ConvTranspose(ConvTranspose {
                kernel,
                stride,
                dilation,
                padding,
                output_padding: self.output_padding.unwrap(),
                groups,
                bias,
            }),
            "MaxPool" => Op::MaxPool(MaxPool {
                kernel,
                stride,
                dilation,
                padding,
                ceil,
            }),
            _ => Op::AveragePool(AveragePool {
                kernel,
                stride,
                dilation,
                padding,
                ceil,
                count_padding,
            }),
        }
    }
}

/// The formula of the script.
fn values(shape: &[usize], seed: u64) -> Array {
    let count: usize = shape.iter().product();
    let value = |index: u64| {
        let mixed = (index * 40503 + seed * 30011) % 65521;
        ((mixed * mixed % 65521 % 129) as f64 - 64.0) / 64.0
    };
    Array::new(shape, (0..count as u64).map(value).collect()).unwrap()
}

#[test]
fn results_are_those_of_onnx_runtime() {
    let cases: Vec<Case> = serde_json::from_str(CASES).unwrap();
    assert_eq!(cases.len(), 32);
    for (index, case) in cases.iter().enumerate() {
        let op = case.op();
        let mut operands = vec![values(&case.x, 1)];
        if let Some(weight) = &case.weight {
            operands.push(values(weight, 2));
        }
        if case.bias == Some(true) {
            operands.push(values(&[case.weight.as_ref().unwrap()[0]], 3));
        }
        let operands: Vec<&Array> = operands.iter().collect();
        let results = op.eval(&operands).unwrap_or_else(|e| panic!("{index} {op}: {e}"));
        assert_eq!(results[0].shape(), case.shape, "{index} {op}");
        for (at, (found, expected)) in results[0].values().iter().zip(&case.y).enumerate() {
            let error = (found - expected).abs();
            assert!(
                error <= TOLERANCE * expected.abs().max(1.0),
                "{index} {op}, element {at}: {found}, not {expected}"
            );
        }
    }
}

#[test]
fn attributes_that_make_no_result_are_refused() {
    let x: &[usize] = &[1, 4, 5, 6];
    let error = |op: Op, operands: &[&[usize]]| op.shapes(operands).unwrap_err().to_string();
    let conv = Conv::new([3, 3]);
    let weight: &[usize] = &[8, 3, 3, 6];
    let of = |conv: Conv| error(conv.into(), &[x, weight]);
    let zero = of(Conv {
        stride: [0, 1],
        ..conv
    });
    assert_eq!(
        zero,
        "has a kernel of 3, a stride of 0, a dilation of 1. Each must be at least 1"
    );
    let large = of(Conv {
        dilation: [2, 1],
        ..conv
    });
    assert_eq!(large, "has windows of 5, but only 4 elements with padding");
    let groups = of(Conv { groups: 4, ..conv });
    assert_eq!(groups, "has 4 groups, which do not divide 6 channels into 8");
    let most = usize::MAX;
    let overflow = of(Conv {
        padding: [[most, 1], [0, 0]],
        ..conv
    });
    assert_eq!(overflow, "has extents that overflow");
    let overflow = of(Conv {
        dilation: [most, 1],
        ..conv
    });
    assert_eq!(overflow, "has extents that overflow");
    let transpose = ConvTranspose {
        stride: [most, 1],
        ..ConvTranspose::new([3, 3])
    };
    assert_eq!(error(transpose.into(), &[x, weight]), "has extents that overflow");
    let all = ConvTranspose {
        padding: [[3, 3], [0, 0]],
        ..ConvTranspose::new([3, 3])
    };
    assert_eq!(
        error(all.into(), &[x, weight]),
        "pads 3 and 3 elements of a result of 6"
    );
    let pool = MaxPool {
        kernel: [2; 2],
        stride: [2; 2],
        dilation: [1; 2],
        padding: [[2, 0], [0, 0]],
        ceil: false,
    };
    assert_eq!(
        error(pool.into(), &[x]),
        "has a padding of 2 and windows of only 2"
    );
    let resize = Interpolate {
        size: [2, 2],
        scale: Some([f32::NAN, 1.0]),
        kernel: InterpolationKernel::Linear,
        coordinates: Coordinates::HalfPixel,
        antialias: false,
        exclude_outside: false,
    };
    assert_eq!(
        error(resize.into(), &[x]),
        "has a scale of Some([NaN, 1.0]) from 4×5"
    );
}

/// Returns a residual block of two convolutions, as builders and importers write it.
fn residual_block() -> Graph {
    let mut graph = Graph::of_values("block", "x", [1, 6, 5, 4], DType::F32).unwrap();
    let mut random = Random(3);
    let mut constant = |graph: &mut Graph, shape: &[usize]| {
        let values: Vec<f32> = (0..shape.iter().product()).map(|_| random.next()).collect();
        let name = format!("weight{}", graph.values().len());
        graph.constant(name, Tensor::from_f32(shape, values).unwrap())
    };
    let x = graph.input();
    let conv = Conv {
        padding: [[1; 2]; 2],
        ..Conv::new([3, 3])
    };
    let (w1, b1) = (constant(&mut graph, &[8, 3, 3, 4]), constant(&mut graph, &[8]));
    let w2 = constant(&mut graph, &[4, 3, 3, 8]);
    let first = Conv { bias: true, ..conv };
    let hidden = graph.push(Role::Other, "conv1", first, [x, w1, b1]).unwrap();
    let active = graph
        .push(Role::Other, "relu", Activation::Relu, [hidden])
        .unwrap();
    let branch = graph.push(Role::Other, "conv2", conv, [active, w2]).unwrap();
    let sum = graph.push(Role::Other, "add", Add, [x, branch]).unwrap();
    graph.add_output("y", sum).unwrap();
    graph
}

#[test]
fn activations_and_residuals_become_part_of_a_convolution() {
    let graph = residual_block();
    let (fused, _) = optimize(graph.clone(), &Passes::default()).unwrap();
    let ops: Vec<String> = fused.nodes().iter().map(|node| node.op.to_string()).collect();
    assert_eq!(ops, ["conv 3×3+bias+relu", "conv 3×3+residual"]);
    assert_same(&graph, &fused, 1e-12);
}
