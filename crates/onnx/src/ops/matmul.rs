//! Products of matrices.

use hipvit_graph::op::{BatchMatMul, Linear as LinearOp, Rounding};

use super::Group;
use super::conv::activated;
use super::elementwise::{product, sum};
use super::layout::{permute, reshape_to};
use crate::builder::Builder;
use crate::context::Context;
use crate::dim::Dim;
use crate::error::{Refusal, refuse};
use crate::value::{Value, show};

pub(super) const OPS: Group = &[
    ("Einsum", super::einsum::einsum),
    ("Gemm", gemm),
    ("MatMul", mat_mul),
];

pub(super) const MICROSOFT: Group = &[("FusedGemm", fused_gemm), ("FusedMatMul", fused_mat_mul)];

fn mat_mul(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let [a, b] = [context.input(0)?, context.input(1)?];
    multiply(context.builder, &a, &b).map(|value| vec![value])
}

/// Multiplies matrices with NumPy's rules. A vector is a row on the left, and a column on the right.
pub(super) fn multiply(builder: &mut Builder, a: &Value, b: &Value) -> Result<Value, Refusal> {
    let one = Dim::Fixed(1);
    match (&a.dims[..], &b.dims[..]) {
        ([], _) | (_, []) => refuse!("multiplies {} and {}", show(&a.dims), show(&b.dims)),
        (&[k], _) => {
            let row = reshape_to(builder, a, &[one, k])?;
            let result = multiply(builder, &row, b)?;
            let mut dims = result.dims.clone();
            let removed = if b.rank() == 1 {
                dims.len() - 1
            } else {
                dims.len() - 2
            };
            dims.remove(removed);
            reshape_to(builder, &result, &dims)
        }
        (_, &[k]) => {
            let column = reshape_to(builder, b, &[k, one])?;
            let result = multiply(builder, a, &column)?;
            let dims = result.dims[..result.rank() - 1].to_vec();
            reshape_to(builder, &result, &dims)
        }
        (_, [_, _]) if b.as_constant().is_some() && !a.is_known() => {
            let weight = permute(builder, b, &[1, 0])?;
            linear(builder, a, &weight, None)
        }
        _ => builder.apply(BatchMatMul::default(), &[a, b]),
    }
}

/// Multiplies by a weight `[N, K]` and adds a bias: in int8 if both operands are dequantised.
pub(super) fn linear(
    builder: &mut Builder,
    x: &Value,
    weight: &Value,
    bias: Option<&Value>,
) -> Result<Value, Refusal> {
    let mut op = LinearOp {
        bias: bias.is_some(),
        ..LinearOp::default()
    };
    let int8 = match weight.int8_rows() {
        Some(rows) => builder.before_rounding(x).transpose()?.map(|found| (rows, found)),
        None => None,
    };
    let (x, weight) = match int8 {
        Some((rows, (x, levels))) => {
            op.rounding = Some(Rounding::Int8(levels));
            let provenance = weight.to_constant()?.provenance;
            (x, Value::constant(weight.element, rows.clone(), provenance))
        }
        None => (x.clone(), weight.clone()),
    };
    let mut operands = vec![&x, &weight];
    operands.extend(bias);
    builder.apply(op, &operands)
}

/// Returns a number times `x`.
fn scaled(builder: &mut Builder, x: &Value, factor: f32) -> Result<Value, Refusal> {
    if factor == 1.0 {
        return Ok(x.clone());
    }
    product(builder, x, &Value::scalar(x.element, factor))
}

fn gemm(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let [alpha, beta] = [context.float_or("alpha", 1.0), context.float_or("beta", 1.0)];
    let [transpose_a, transpose_b] = [context.flag("transA", false), context.flag("transB", false)];
    let [mut a, b] = [context.input(0)?, context.input(1)?];
    let c = context.optional(2).filter(|_| beta != 0.0);
    if a.rank() != 2 || b.rank() != 2 {
        refuse!(
            "multiplies {} and {}, which are not matrices",
            show(&a.dims),
            show(&b.dims)
        );
    }
    let builder = &mut *context.builder;
    if transpose_a {
        a = permute(builder, &a, &[1, 0])?;
    }
    let weight = if transpose_b {
        b
    } else {
        permute(builder, &b, &[1, 0])?
    };
    if !weight.is_known() || a.is_known() {
        let op = BatchMatMul {
            transpose_b: true,
            ..BatchMatMul::default()
        };
        let result = builder.apply(op, &[&a, &weight])?;
        let result = scaled(builder, &result, alpha)?;
        return add_scaled(builder, result, c, beta).map(|value| vec![value]);
    }
    let weight = scaled(builder, &weight, alpha)?;
    let outputs = weight.dims[0];
    // A bias of one row has a number for each column.
    let is_row = |c: &Value| {
        c.is_known()
            && c.dims.last() == Some(&outputs)
            && c.dims[..c.rank() - 1].iter().all(|&dim| dim == Dim::Fixed(1))
    };
    if let Some(c) = c.as_ref().filter(|c| is_row(c)) {
        let bias = reshape_to(builder, c, &[outputs])?;
        let bias = scaled(builder, &bias, beta)?;
        return linear(builder, &a, &weight, Some(&bias)).map(|value| vec![value]);
    }
    let result = linear(builder, &a, &weight, None)?;
    add_scaled(builder, result, c, beta).map(|value| vec![value])
}

fn add_scaled(builder: &mut Builder, result: Value, c: Option<Value>, beta: f32) -> Result<Value, Refusal> {
    match c {
        None => Ok(result),
        Some(c) => {
            let c = scaled(builder, &c, beta)?;
            sum(builder, &result, &c)
        }
    }
}

/// Computes a Gemm and an activation.
fn fused_gemm(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let name = context.string_or("activation", "");
    let parameters = ["activation_alpha", "activation_beta"].map(|name| context.float(name));
    let parameters: Vec<f32> = parameters.into_iter().flatten().collect();
    context.ignore(&["activation_gamma"]);
    let y = gemm(context)?.swap_remove(0);
    activated(context.builder, y, &name, &parameters).map(|value| vec![value])
}

fn fused_mat_mul(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let alpha = context.float_or("alpha", 1.0);
    let [mut a, mut b] = [context.input(0)?, context.input(1)?];
    if context.flag("transBatchA", false) || context.flag("transBatchB", false) {
        refuse!("transposes the batch, which is not supported");
    }
    for (value, name) in [(&mut a, "transA"), (&mut b, "transB")] {
        if context.flag(name, false) && value.rank() > 1 {
            let mut order: Vec<usize> = (0..value.rank()).collect();
            order.swap(value.rank() - 2, value.rank() - 1);
            *value = permute(context.builder, value, &order)?;
        }
    }
    let result = multiply(context.builder, &a, &b)?;
    scaled(context.builder, &result, alpha).map(|value| vec![value])
}
