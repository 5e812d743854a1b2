use std::f64::consts::{FRAC_PI_2, PI};

use super::*;
use crate::cases::{AWKWARD, Scale};
use crate::pattern::Operator;
use crate::tensor::{Input, Tensor};
use crate::{Graph, OutputKind, Role, grad, interpret};

fn array(shape: &[usize], values: &[f64]) -> Array {
    Array::new(shape, values.to_vec()).unwrap()
}

fn unary<E: Into<Expression>>(function: impl FnOnce(Float) -> E, x: f64) -> f64 {
    let op = Elementwise::unary(function).unwrap();
    op.eval(&[&array(&[1], &[x])]).unwrap()[0].values()[0]
}

fn binary<E: Into<Expression>>(function: impl FnOnce(Float, Float) -> E, x: f64, y: f64) -> f64 {
    let op = Elementwise::binary(function).unwrap();
    op.eval(&[&array(&[1], &[x]), &array(&[1], &[y])]).unwrap()[0].values()[0]
}

fn assert_near(found: f64, expected: f64) {
    assert!(
        (found - expected).abs() <= 1e-7 * expected.abs().max(1e-3),
        "{found} instead of {expected}"
    );
}

/// Values of PyTorch 2.15 in f64.
#[test]
fn functions_are_those_of_pytorch() {
    for (found, expected) in [
        (
            unary(|x| x.selu(1.673_263_2, 1.050_701), -1.5),
            -1.365_814_353_367_252_7,
        ),
        (unary(|x| x.celu(1.25), -1.5), -0.873_507_235_109_747_5),
        (unary(|x| x.elu(0.75), -1.5), -0.582_652_379_888_677_7),
        (unary(|x| x.softplus(), -1.5), 0.201_413_277_982_752_4),
        (unary(|x| x.softplus(), 800.0), 800.0),
        (unary(|x| x.mish(), -1.5), -0.298_099_742_166_806_74),
        (unary(|x| x.hard_swish(), -1.5), -0.375),
        (unary(|x| x.softsign(), -1.5), -0.6),
        (unary(|x| x.gelu(), -1.5), -0.100_210_801_903_287_04),
        (unary(|x| x.swish(1.0), -1.5), -0.273_638_285_709_534_5),
        (unary(|x| x.asinh(), -1.5), -1.194_763_217_287_109_4),
        (unary(|x| x.acosh(), 1.5), 0.962_423_650_119_206_9),
        (unary(|x| x.atanh(), -0.5), -0.549_306_144_334_054_8),
        (unary(|x| x.asin(), -1.0), -FRAC_PI_2),
        (unary(|x| x.acos(), -1.0), PI),
        (unary(|x| x.acos(), 0.25), 1.318_116_071_652_818),
        (unary(|x| x.sinh(), -0.01), -0.010_000_166_667_500_003),
        (unary(|x| x.cosh(), -1.5), 2.352_409_615_243_247),
        (unary(|x| x.tan(), 1.5), 14.101_419_947_171_719),
        (unary(|x| x.round(), 2.5), 2.0),
        (unary(|x| x.round(), -3.5), -4.0),
        (unary(|x| x.sign(), -0.25), -1.0),
        (unary(|x| x.thresholded_relu(1.0), 1.0), 0.0),
        (binary(|x, y| x.modulo(y), -7.0, 3.0), 2.0),
        (binary(|x, y| x.modulo(y), 7.0, -3.0), -2.0),
        (binary(|x, y| x.modulo(y), -6.0, 3.0), 0.0),
        (binary(|x, y| x.remainder(y), -7.0, 3.0), -1.0),
        (binary(|x, y| x.pow(y), -2.0, 3.0), -8.0),
        (binary(|x, y| x.less(0.0).not_equal(&y.less(0.0)), -1.0, 2.0), 1.0),
        (unary(|x| x.is_nan(), f64::NAN), 1.0),
        (unary(|x| x.is_infinite(), f64::NEG_INFINITY), 1.0),
    ] {
        assert_near(found, expected);
    }
}

#[test]
fn constant_exponents_become_products_and_roots() {
    for exponent in [-1.0, -0.5, 0.5, 1.0, 2.0, 3.0, 4.0] {
        let op = Elementwise::unary(|x| x.pow(exponent)).unwrap();
        let is_power = |step: &crate::pattern::Step| {
            matches!(
                step.instruction,
                crate::pattern::Instruction::Apply(Operator::Pow, _)
            )
        };
        assert!(!op.formula().steps().iter().any(is_power));
        assert_near(unary(|x| x.pow(exponent), 1.7), 1.7f64.powf(exponent.into()));
    }
}

#[test]
fn operands_are_broadcast() {
    let op = Elementwise::ternary(|x, y, z| x * y - z).unwrap();
    let [x, y, z] = [
        array(&[2, 1], &[1.0, 2.0]),
        array(&[3], &[1.0, 10.0, 100.0]),
        array(&[], &[1.0]),
    ];
    let result = &op.eval(&[&x, &y, &z]).unwrap()[0];
    assert_eq!(result.shape(), [2, 3]);
    assert_eq!(result.values(), [0.0, 9.0, 99.0, 1.0, 19.0, 199.0]);
    let error = op.shapes(&[&[2], &[3], &[]]).unwrap_err().to_string();
    assert_eq!(error, "cannot broadcast the shapes [[2], [3], []] to one");
    let error = op.shapes(&[&[2]]).unwrap_err().to_string();
    assert_eq!(error, "takes 3 operands, got 1");
}

#[test]
fn integers_are_truncated_and_keep_their_dtype() {
    let op = Elementwise::unary(|x| x * 0.5).unwrap().into_integers();
    let op = op.with_integer_operands(&[0, 9]);
    assert_eq!(
        op.eval(&[&array(&[2], &[7.0, -7.0])]).unwrap()[0].values(),
        [3.0, -3.0]
    );
    assert_eq!(op.result_dtype(0, DType::F16), DType::I32);
    assert_eq!(op.operand_dtype(0, DType::F16), DType::I32);
    assert_eq!(
        crate::op::Op::from(op).to_string(),
        "elementwise mul(x0, 0.5) → i32"
    );
}

#[test]
fn expressions_of_attention_are_refused() {
    use crate::pattern::{ints, scores};
    for (expression, expected) in [
        (
            scores::score(),
            "value: reads the scores of attention, a captured tensor or an integer. Use operands and floats",
        ),
        (
            ints::key().to_float(),
            "value: reads the scores of attention, a captured tensor or an integer. Use operands and floats",
        ),
        (
            floats::operand(1),
            "value: reads an operand that the op does not have",
        ),
    ] {
        assert_eq!(Elementwise::new(1, expression).unwrap_err().to_string(), expected);
    }
    let pattern = crate::pattern::Pattern::new().with_score(scores::score() * floats::operand(0));
    let error = pattern.compile().unwrap_err().to_string();
    assert_eq!(
        error,
        "score: reads an operand of an elementwise op. Use a scalar or a tensor"
    );
}

#[test]
fn truth_values_are_not_tested_twice() {
    let inner = Elementwise::binary(|x, y| x.less(y)).unwrap();
    let outer = Elementwise::unary(|x| !x.to_bool()).unwrap();
    let mut builder = Builder::default();
    let result = builder.formula(outer.formula(), |builder, _| {
        builder.formula(inner.formula(), Builder::operand)
    });
    let formula = builder.finish(result);
    assert_eq!(formula.to_string(), "select(not(less(x0, x1)), 1, 0)");
}

/// Bounds hold for results in f32, and are not far above their errors.
#[test]
fn bounds_cover_the_errors_in_single_precision() {
    let mut cases = Cases::new(Scale::Awkward, true);
    Elementwise::cases(&mut cases);
    let cases = cases.into_vec();
    // 15 ops for each size.
    assert_eq!(cases.len(), 16 * AWKWARD.len());
    let mut random = 1u64;
    let is_small = |case: &crate::cases::Case<_>| case.operands[0].shape.iter().product::<usize>() < 20_000;
    for case in cases.into_iter().filter(is_small) {
        let mut operands = Vec::new();
        for operand in &case.operands {
            let values = (0..operand.shape.iter().product::<usize>()).map(|index| {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                match operand.role {
                    crate::cases::Role::Integers { below } => (index % below as usize) as f64,
                    _ => f64::from(((random >> 40) as f32 / (1 << 23) as f32 - 1.0) * operand.spread),
                }
            });
            operands.push(array(&operand.shape, &values.collect::<Vec<_>>()));
        }
        let exact: Vec<&Array> = operands.iter().collect();
        let single: Vec<Array<f32>> = operands
            .iter()
            .map(|o| Array::new(o.shape(), o.to_f32()).unwrap())
            .collect();
        let expected = &case.op.eval(&exact).unwrap()[0];
        let found = &case.op.eval(&single.iter().collect::<Vec<_>>()).unwrap()[0];
        let tolerance = case.op.tolerance(0, &exact, DType::F32);
        assert!(tolerance < 2e-4, "{}: {tolerance}", case.op.formula());
        let found: Vec<f64> = found.values().iter().map(|&value| value.into()).collect();
        crate::reference::check_close(&found, expected.values(), tolerance)
            .unwrap_or_else(|error| panic!("{}: {error}", case.op.formula()));
    }
}

#[test]
fn derivatives_are_differences() {
    type Function = fn(Float, Float) -> Float;
    let functions: [Function; 12] = [
        |x, y| x.sin() * y.cos() - x.atan(),
        |x, y| x.sigmoid() / (y.exp_m1() + 3.0),
        |x, y| (x.abs() + 0.5).pow(y),
        |x, y| x.erf() + y.gelu(),
        |x, y| (x.abs() + 0.25).log_1p() * y,
        |x, y| x.mish() * y.softplus(),
        |x, y| x.hard_swish() + y.leaky_relu(0.1),
        |x, y| (x * 3.0).remainder(y.abs() + 0.7),
        |x, y| x.max(y.clone()) * y.min(0.25),
        |x, y| x.elu(1.5) - y.celu(0.5),
        |x, y| x.gelu_tanh() * y.asinh(),
        |x, y| Float::select(&x.less(y.clone()), x.clone() * y.clone(), x.sqrt().tanh()),
    ];
    // y is repeated over tokens, and z over channels.
    let values = [
        vec![0.31, 0.83, 1.21, 0.57, 0.11, 1.43],
        vec![-0.42, 0.77, 0.13],
        vec![0.25, -0.5],
    ];
    let shapes: [&[usize]; 3] = [&[1, 2, 3], &[3], &[2, 1]];
    for function in functions {
        let op = Elementwise::ternary(|x, y, z| function(x, y) * (z + 1.5)).unwrap();
        let mut graph = Graph::of_tokens("test", [2, 3]);
        let mut parameter = |index: usize| {
            let tensor = Tensor::from_f32(shapes[index], values[index].clone()).unwrap();
            graph.parameter(format!("operand {index}"), tensor)
        };
        let [y, z] = [parameter(1), parameter(2)];
        let operands = [graph.input(), y, z];
        let result = graph.push(Role::Other, "f", op.clone(), operands).unwrap();
        graph.set_output(OutputKind::Tokens, result);
        let graph = grad(&graph, result, &operands).unwrap();
        let gradients = interpret(&graph, 1, Input::Values(&values[0])).unwrap();
        let sum = |moved: usize, element: usize, step: f64| {
            let operands = [0, 1, 2].map(|index| {
                let mut values: Vec<f64> = values[index].iter().map(|&value| value.into()).collect();
                if index == moved {
                    values[element] += step;
                }
                array(shapes[index], &values)
            });
            let operands: Vec<&Array> = operands.iter().collect();
            op.eval(&operands).unwrap()[0].values().iter().sum::<f64>()
        };
        let mut count = 0;
        for (kind, gradient) in &gradients {
            let OutputKind::Gradient(operand) = *kind else {
                continue;
            };
            for (element, &found) in gradient.iter().enumerate() {
                let step = 1e-6;
                let difference = sum(operand, element, step) - sum(operand, element, -step);
                let expected = difference / (2.0 * step);
                // Constants of the derivative are in f32.
                assert!(
                    (found - expected).abs() < 3e-7 * expected.abs().max(1.0),
                    "{}, operand {operand}: {found} instead of {expected}",
                    op.formula()
                );
                count += 1;
            }
        }
        assert_eq!(count, 6 + 3 + 2);
    }
}
