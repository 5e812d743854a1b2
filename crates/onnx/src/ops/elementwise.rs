//! Operators that compute element by element.

use hipvit_graph::ValueId;
use hipvit_graph::op::{Activation, Add, Elementwise, Mul, MulScalar};
use hipvit_graph::pattern::{Bool, Float, PatternError, floats};

use super::Group;
use super::layout::expand_dims;
use crate::builder::Builder;
use crate::context::Context;
use crate::dim::{Dim, Linear};
use crate::element::ElementType;
use crate::error::{Refusal, refuse};
use crate::integers;
use crate::ops::broadcast;
use crate::ramp;
use crate::value::Value;

pub(super) const OPS: Group = &[
    ("Abs", |c| unary(c, |x| x.abs())),
    ("Acos", |c| unary(c, |x| x.acos())),
    ("Acosh", |c| unary(c, |x| x.acosh())),
    ("Add", add),
    ("And", |c| logical(c, |x, y| x & y, integers::and)),
    ("Asin", |c| unary(c, |x| x.asin())),
    ("Asinh", |c| unary(c, |x| x.asinh())),
    ("Atan", |c| unary(c, |x| x.atan())),
    ("Atanh", |c| unary(c, |x| x.atanh())),
    ("Ceil", |c| unary(c, |x| x.ceil())),
    ("Celu", celu),
    ("Clip", clip),
    ("Cos", |c| unary(c, |x| x.cos())),
    ("Cosh", |c| unary(c, |x| x.cosh())),
    ("Div", div),
    ("Elu", elu),
    ("Equal", |c| comparison(c, |x, y| x.equal(y), integers::equal)),
    ("Erf", |c| unary(c, |x| x.erf())),
    ("Exp", |c| unary(c, |x| x.exp())),
    ("Floor", |c| unary(c, |x| x.floor())),
    ("Gelu", gelu),
    ("Greater", |c| {
        comparison(c, |x, y| x.greater(y), integers::greater)
    }),
    ("GreaterOrEqual", |c| {
        comparison(c, |x, y| x.greater_equal(y), integers::greater_or_equal)
    }),
    ("HardSigmoid", hard_sigmoid),
    ("HardSwish", |c| unary(c, |x| x.hard_swish())),
    ("IsInf", is_infinite),
    ("IsNaN", |c| truth(c, |x| x.is_nan())),
    ("LeakyRelu", leaky_relu),
    ("Less", |c| comparison(c, |x, y| x.less(y), integers::less)),
    ("LessOrEqual", |c| {
        comparison(c, |x, y| x.less_equal(y), integers::less_or_equal)
    }),
    ("Log", |c| unary(c, |x| x.log())),
    ("Max", |c| variadic(c, |x, y| x.max(y), integers::max)),
    ("Mean", mean),
    ("Min", |c| variadic(c, |x, y| x.min(y), integers::min)),
    ("Mish", |c| unary(c, |x| x.mish())),
    ("Mod", modulo),
    ("Mul", mul),
    ("Neg", |c| unary(c, |x| -x)),
    ("Not", not),
    ("Or", |c| logical(c, |x, y| x | y, integers::or)),
    ("PRelu", prelu),
    ("Pow", pow),
    ("Reciprocal", |c| unary(c, |x| x.reciprocal())),
    ("Relu", |c| activation(c, Activation::Relu)),
    ("Round", |c| unary(c, |x| x.round())),
    ("Selu", selu),
    ("Sigmoid", |c| unary(c, |x| x.sigmoid())),
    ("Sign", |c| unary(c, |x| x.sign())),
    ("Sin", |c| unary(c, |x| x.sin())),
    ("Sinh", |c| unary(c, |x| x.sinh())),
    ("Softplus", |c| unary(c, |x| x.softplus())),
    ("Softsign", |c| unary(c, |x| x.softsign())),
    ("Sqrt", |c| unary(c, |x| x.sqrt())),
    ("Sub", sub),
    ("Sum", |c| variadic(c, |x, y| x + y, |[x, y]| x.checked_add(y))),
    ("Swish", swish),
    ("Tan", |c| unary(c, |x| x.tan())),
    ("Tanh", |c| activation(c, Activation::Tanh)),
    ("ThresholdedRelu", thresholded_relu),
    ("Where", select),
    ("Xor", |c| {
        logical(c, |x, y| x.not_equal(&y), integers::exclusive_or)
    }),
];

pub(super) const MICROSOFT: Group = &[
    ("BiasGelu", bias_gelu),
    ("FastGelu", fast_gelu),
    ("Gelu", |c| activation(c, Activation::GeluErf)),
    ("QuickGelu", quick_gelu),
];

/// Returns the op of an expression.
pub(super) fn made(op: Result<Elementwise, PatternError>) -> Result<Elementwise, Refusal> {
    op.map_err(|error| error.to_string().into())
}

/// Applies an expression to operands that may be integers, with a result of type `element`.
pub(crate) fn apply(
    builder: &mut Builder,
    expression: Float,
    operands: &[&Value],
    element: ElementType,
) -> Result<Value, Refusal> {
    let integers: Vec<usize> = (0..operands.len())
        .filter(|&index| operands[index].element.is_integer())
        .collect();
    let op = made(Elementwise::new(operands.len(), expression))?.with_integer_operands(&integers);
    let op = if element.is_integer() {
        op.into_integers()
    } else {
        op
    };
    let result = builder.apply(op, operands)?;
    if result.is_known() && !element.is_float() {
        return super::cast::convert(builder, result, element);
    }
    Ok(Value { element, ..result })
}

/// Appends a node that copies a value of the graph. Returns its result.
pub(crate) fn copied(builder: &mut Builder, x: &Value) -> Result<ValueId, Refusal> {
    let copy = apply(builder, floats::operand(0), &[x], x.element)?;
    builder.id(&copy)
}

/// Applies a function of one operand.
fn unary(context: &mut Context<'_>, function: impl FnOnce(Float) -> Float) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    if let ("Neg", Some(_)) = (context.node.op.as_str(), x.as_integers()) {
        let negated = integers::apply(x.element, [&x], |[x]| Linear::default().checked_sub(x));
        return negated
            .unwrap_or_else(|| Err("is not an integer".into()))
            .map(|value| vec![value]);
    }
    let element = x.element;
    apply(context.builder, function(floats::operand(0)), &[&x], element).map(|value| vec![value])
}

/// Applies a function whose result is a truth value.
fn truth(context: &mut Context<'_>, function: impl FnOnce(Float) -> Bool) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    let expression = function(floats::operand(0)).to_float();
    apply(context.builder, expression, &[&x], ElementType::Bool).map(|value| vec![value])
}

fn activation(context: &mut Context<'_>, activation: Activation) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    if !x.element.is_float() {
        refuse!("has an operand of type {}, which is not supported", x.element);
    }
    context.builder.apply(activation, &[&x]).map(|value| vec![value])
}

/// Returns the two operands, which have one element type.
fn pair(context: &Context<'_>) -> Result<[Value; 2], Refusal> {
    let [x, y] = [context.input(0)?, context.input(1)?];
    broadcast(&x.dims, &y.dims)?;
    Ok([x, y])
}

/// A function of two integers that are known up to the batch size.
type OfIntegers = fn([Linear; 2]) -> Option<Linear>;

/// Applies a function of two operands.
fn binary(
    builder: &mut Builder,
    op: &str,
    [x, y]: [&Value; 2],
    function: impl FnOnce(Float, Float) -> Float,
    of_integers: OfIntegers,
) -> Result<Value, Refusal> {
    let known = ramp::combine(x, y, op, of_integers);
    if let Some(result) = known.or_else(|| integers::apply(x.element, [x, y], of_integers)) {
        return result;
    }
    let element = x.element;
    // A number that is known is part of the expression.
    let number = |value: &Value, other: &Value| {
        let keeps_shape = value.rank() <= other.rank();
        value.number().filter(|_| keeps_shape).map(|number| number as f32)
    };
    let operand = floats::operand;
    match (number(x, y), number(y, x)) {
        (_, Some(number)) => apply(builder, function(operand(0), number.into()), &[x], element),
        (Some(number), _) => apply(builder, function(number.into(), operand(0)), &[y], element),
        _ => apply(builder, function(operand(0), operand(1)), &[x, y], element),
    }
}

fn add(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let [x, y] = pair(context)?;
    sum(context.builder, &x, &y).map(|value| vec![value])
}

/// Adds two tensors: by the op that GEMMs fuse if the shapes are those of a residual.
pub(super) fn sum(builder: &mut Builder, x: &Value, y: &Value) -> Result<Value, Refusal> {
    if x.element.is_float() && !x.dims.is_empty() {
        for [x, y] in [[x, y], [y, x]] {
            let is_shared = y.dims.first() == Some(&Dim::Fixed(1)) && x.dims.get(1..) == y.dims.get(1..);
            if !x.is_known() && (x.dims == y.dims || is_shared) && x.dims[0].is_batch() {
                return builder.apply(Add, &[x, y]);
            }
        }
    }
    binary(builder, "Add", [x, y], |x, y| x + y, |[x, y]| x.checked_add(y))
}

fn sub(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let [x, y] = pair(context)?;
    binary(
        context.builder,
        "Sub",
        [&x, &y],
        |x, y| x - y,
        |[x, y]| x.checked_sub(y),
    )
    .map(|value| vec![value])
}

fn mul(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let [x, y] = pair(context)?;
    product(context.builder, &x, &y).map(|value| vec![value])
}

/// Multiplies two tensors: by the ops that GEMMs fuse if the shapes allow it.
pub(super) fn product(builder: &mut Builder, x: &Value, y: &Value) -> Result<Value, Refusal> {
    for [x, y] in [[x, y], [y, x]] {
        if x.is_known() || !x.element.is_float() {
            continue;
        }
        if y.rank() <= x.rank()
            && let Some(number) = y.number()
        {
            return builder.apply(MulScalar(number as f32), &[x]);
        }
        if x.dims == y.dims {
            return builder.apply(Mul, &[x, y]);
        }
    }
    binary(builder, "Mul", [x, y], |x, y| x * y, |[x, y]| x.checked_mul(y))
}

fn div(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let [x, y] = pair(context)?;
    let result = if x.element.is_integer() {
        let quotient = |x: Float, y: Float| (x / y).trunc();
        binary(context.builder, &context.node.op, [&x, &y], quotient, |[x, y]| {
            x.checked_div(y)
        })
    } else {
        binary(
            context.builder,
            &context.node.op,
            [&x, &y],
            |x, y| x / y,
            |[x, y]| x.checked_div(y),
        )
    };
    result.map(|value| vec![value])
}

fn modulo(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let truncates = context.flag("fmod", false);
    let [x, y] = pair(context)?;
    let result = if truncates {
        binary(
            context.builder,
            &context.node.op,
            [&x, &y],
            |x, y| x.remainder(y),
            integers::remainder,
        )
    } else {
        binary(
            context.builder,
            &context.node.op,
            [&x, &y],
            |x, y| x.modulo(y),
            integers::modulo,
        )
    };
    result.map(|value| vec![value])
}

fn pow(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let [x, y] = pair(context)?;
    binary(
        context.builder,
        &context.node.op,
        [&x, &y],
        |x, y| x.pow(y),
        integers::power,
    )
    .map(|value| vec![value])
}

fn comparison(
    context: &mut Context<'_>,
    function: impl FnOnce(Float, Float) -> Bool,
    of_integers: OfIntegers,
) -> Result<Vec<Value>, Refusal> {
    let [x, y] = pair(context)?;
    if let Some(result) = integers::apply(ElementType::Bool, [&x, &y], of_integers) {
        return result.map(|value| vec![value]);
    }
    let expression = function(floats::operand(0), floats::operand(1)).to_float();
    apply(context.builder, expression, &[&x, &y], ElementType::Bool).map(|value| vec![value])
}

fn logical(
    context: &mut Context<'_>,
    function: impl FnOnce(Bool, Bool) -> Bool,
    of_integers: OfIntegers,
) -> Result<Vec<Value>, Refusal> {
    let [x, y] = pair(context)?;
    if let Some(result) = integers::apply(ElementType::Bool, [&x, &y], of_integers) {
        return result.map(|value| vec![value]);
    }
    let expression = function(floats::operand(0).to_bool(), floats::operand(1).to_bool()).to_float();
    apply(context.builder, expression, &[&x, &y], ElementType::Bool).map(|value| vec![value])
}

fn not(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    let known = integers::apply(ElementType::Bool, [&x], |[x]| {
        Some(Linear::new((x.known()? == 0).into()))
    });
    match known {
        Some(result) => result.map(|value| vec![value]),
        None => truth(context, |x| !x.to_bool()),
    }
}

fn variadic(
    context: &mut Context<'_>,
    function: impl Fn(Float, Float) -> Float,
    of_integers: OfIntegers,
) -> Result<Vec<Value>, Refusal> {
    let mut result = context.input(0)?;
    for index in 1..context.inputs.len() {
        let operand = context.input(index)?;
        broadcast(&result.dims, &operand.dims)?;
        result = binary(
            context.builder,
            &context.node.op,
            [&result, &operand],
            &function,
            of_integers,
        )?;
    }
    Ok(vec![result])
}

fn mean(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let sum = variadic(context, |x, y| x + y, |_| None)?.swap_remove(0);
    let count = context.inputs.len().max(1) as f32;
    product(context.builder, &sum, &Value::scalar(sum.element, 1.0 / count)).map(|value| vec![value])
}

fn select(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let [condition, x, y] = [context.input(0)?, context.input(1)?, context.input(2)?];
    if let Some(result) = integers::apply(x.element, [&condition, &x, &y], integers::select) {
        return result.map(|value| vec![value]);
    }
    let dims = broadcast(&condition.dims, &broadcast(&x.dims, &y.dims)?)?;
    // A condition that is the same everywhere selects one operand.
    if let Some(known) = condition.as_integers() {
        for (is_selected, operand) in [(true, &x), (false, &y)] {
            let selects = |known: &Linear| known.known().is_some_and(|known| (known != 0) == is_selected);
            if known.iter().all(selects) {
                return expand_dims(context.builder, operand, &dims).map(|value| vec![value]);
            }
        }
    }
    let [this, other] = [floats::operand(1), floats::operand(2)];
    let expression = Float::select(&floats::operand(0).to_bool(), this, other);
    let element = x.element;
    apply(context.builder, expression, &[&condition, &x, &y], element).map(|value| vec![value])
}

fn clip(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let limits = [context.float("min"), context.float("max")];
    let mut x = context.input(0)?;
    for (index, limit) in limits.into_iter().enumerate() {
        let limit = match (limit, context.optional(index + 1)) {
            (Some(limit), _) => Value::scalar(x.element, limit),
            (None, Some(limit)) => limit,
            (None, None) => continue,
        };
        let is_low = index == 0;
        // Of two limits in the wrong order, the upper one counts, as the last one here.
        let function = |x: Float, limit: Float| if is_low { x.max(limit) } else { x.min(limit) };
        let of_integers = if is_low { integers::max } else { integers::min };
        x = binary(
            context.builder,
            &context.node.op,
            [&x, &limit],
            function,
            of_integers,
        )?;
    }
    Ok(vec![x])
}

fn gelu(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    match context.string_or("approximate", "none").as_str() {
        "none" => activation(context, Activation::GeluErf),
        "tanh" => activation(context, Activation::GeluTanh),
        other => refuse!("has the approximation `{other}`, which is not supported"),
    }
}

fn bias_gelu(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let [x, bias] = pair(context)?;
    let x = sum(context.builder, &x, &bias)?;
    context
        .builder
        .apply(Activation::GeluErf, &[&x])
        .map(|value| vec![value])
}

fn fast_gelu(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let mut x = context.input(0)?;
    if let Some(bias) = context.optional(1) {
        x = sum(context.builder, &x, &bias)?;
    }
    context
        .builder
        .apply(Activation::GeluTanh, &[&x])
        .map(|value| vec![value])
}

fn quick_gelu(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let factor = context.float_or("alpha", 1.702);
    gated_sigmoid(context, factor)
}

fn swish(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let factor = context.float_or("alpha", 1.0);
    gated_sigmoid(context, factor)
}

fn gated_sigmoid(context: &mut Context<'_>, factor: f32) -> Result<Vec<Value>, Refusal> {
    if factor == 1.0 {
        activation(context, Activation::Silu)
    } else if factor == 1.702 {
        activation(context, Activation::QuickGelu)
    } else {
        unary(context, |x| x.swish(factor))
    }
}

fn celu(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let alpha = context.float_or("alpha", 1.0);
    unary(context, |x| x.celu(alpha))
}

fn elu(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let alpha = context.float_or("alpha", 1.0);
    unary(context, |x| x.elu(alpha))
}

fn selu(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let alpha = context.float_or("alpha", 1.673_263_2);
    let gamma = context.float_or("gamma", 1.050_701);
    unary(context, |x| x.selu(alpha, gamma))
}

fn hard_sigmoid(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let alpha = context.float_or("alpha", 0.2);
    let beta = context.float_or("beta", 0.5);
    unary(context, |x| x.hard_sigmoid(alpha, beta))
}

fn leaky_relu(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let alpha = context.float_or("alpha", 0.01);
    unary(context, |x| x.leaky_relu(alpha))
}

fn thresholded_relu(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let alpha = context.float_or("alpha", 1.0);
    unary(context, |x| x.thresholded_relu(alpha))
}

fn prelu(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let [x, slope] = pair(context)?;
    let expression = floats::operand(0).leaky_relu(floats::operand(1));
    let element = x.element;
    apply(context.builder, expression, &[&x, &slope], element).map(|value| vec![value])
}

fn is_infinite(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let signs = [
        context.flag("detect_negative", true),
        context.flag("detect_positive", true),
    ];
    match signs {
        [true, true] => truth(context, |x| x.is_infinite()),
        [false, true] => truth(context, |x| x.equal(f32::INFINITY)),
        [true, false] => truth(context, |x| x.equal(f32::NEG_INFINITY)),
        [false, false] => refuse!("detects no infinity"),
    }
}
