//! Reference values: of the whole result if they are computed quickly, otherwise of sampled rows. Each
//! sampled row is computed from only those rows of the operands that it depends on.

use std::ops::Range;

use super::cases::pillow;
use super::cases::{Case, Work, attention_parts, patch_part};
use super::operands::random;
use super::part::{Part, by_image, gather, gather_array, image_of};
use hipvit::error::{Error, Result};
use hipvit::ops::{Locality, Op, OpError};
use hipvit::reference::Array;
use hipvit::tensor::{DType, Tensor};

/// Maximum cost of the reference per case in floating-point operations: about a second on one core.
const WORK: u64 = 1 << 29;
/// Cost of converting and comparing an element, in floating-point operations.
const ELEMENT: u64 = 16;
/// Maximum number of compared elements of operands and result, without parameters, if rows are sampled.
pub(super) const MOST_ELEMENTS: usize = (WORK / ELEMENT) as usize * 2;
/// Minimum number of sampled rows.
const FEWEST: usize = 16;

/// Reference values of some rows of a result.
#[derive(Debug)]
pub(super) struct Expected {
    /// Indices of the rows, ascending. A row extends along the last dimension.
    pub(super) rows: Vec<usize>,
    /// Values of the rows, one row after the other.
    pub(super) values: Vec<f64>,
    pub(super) tolerance: f64,
}

/// Selects the rows of a result of this shape that are checked.
pub(super) fn sample(case: &Case, shape: &[usize]) -> Vec<usize> {
    let channels = shape.last().copied().unwrap_or(1).max(1);
    let rows = shape.iter().product::<usize>() / channels;
    let operands = case.operands.iter().map(|o| o.shape.iter().product::<usize>());
    let elements = (rows * channels + operands.sum::<usize>()) as u64;
    let whole = case.flops(shape).max(ELEMENT * elements);
    if whole <= WORK || rows <= FEWEST {
        return (0..rows).collect();
    }
    let count = (rows as f64 * WORK as f64 / whole as f64) as usize;
    let by_image = |op: &Op| op.locality(case.result) == Locality::Images;
    // Rows of the first and the last image, if the op computes whole images.
    let image = match &case.work {
        Work::Op(op) if by_image(op) && shape[0] > 2 => rows / shape[0],
        _ => rows.div_ceil(2),
    };
    let choices = rows.min(2 * image);
    let mut sampled: Vec<usize> = (0..count.clamp(FEWEST, rows))
        .map(|i| match i {
            0 => 0,
            1 => choices - 1,
            _ => (random(rows, i) % choices as u64) as usize,
        })
        .map(|row| if row < image { row } else { rows - choices + row })
        .collect();
    sampled.sort_unstable();
    sampled.dedup();
    sampled
}

/// Returns the reference values of these rows of the result.
///
/// # Errors
///
/// [`Error::Graph`] if the op does not take the operands.
pub(super) fn expect(case: &Case, operands: &[Tensor], rows: Vec<usize>, dtype: DType) -> Result<Expected> {
    let parts = match &case.work {
        Work::Op(op) => parts(op, case.result, operands, &rows, dtype),
        Work::Kernel(form) => form.expect(operands, &rows, dtype),
        Work::Resize(resize) => pillow::resize(&Array::from(&operands[0]), resize.output, resize.filter)
            .and_then(|whole| {
                let some = gather_array(&whole, &rows)?;
                Ok(vec![Part::new(&some, &rows, 0.0)])
            }),
    };
    let parts = parts.map_err(|reason| Error::graph(case.op_name(), reason))?;
    let mut expected = Expected {
        rows: Vec::with_capacity(rows.len()),
        values: Vec::new(),
        tolerance: 0.0,
    };
    for part in parts {
        expected.rows.extend(part.rows);
        expected.values.extend(part.values);
        expected.tolerance = expected.tolerance.max(part.tolerance);
    }
    Ok(expected)
}

fn parts(
    op: &Op,
    result: usize,
    operands: &[Tensor],
    rows: &[usize],
    dtype: DType,
) -> Result<Vec<Part>, OpError> {
    match (op.locality(result), op) {
        (Locality::Queries, Op::Attention(spec)) => attention_parts(spec, None, operands, rows, dtype),
        (Locality::Patches { patch, layout }, _) => patch_part(op, patch, layout, operands, rows, dtype),
        (Locality::Images, _) => image_parts(op, result, operands, rows, dtype),
        (Locality::Rows { parameters }, _) => row_part(op, result, parameters, operands, rows, dtype),
        (Locality::Whole | Locality::Queries, _) => Ok(vec![whole(op, result, operands, rows, dtype)?]),
    }
}

/// Computes all images together.
fn whole(op: &Op, result: usize, operands: &[Tensor], rows: &[usize], dtype: DType) -> Result<Part, OpError> {
    let arrays: Vec<Array> = operands.iter().map(Array::from).collect();
    let arrays: Vec<&Array> = arrays.iter().collect();
    let values = op.eval(&arrays)?.swap_remove(result);
    let tolerance = op.tolerance(result, &arrays, dtype);
    Ok(Part::new(&gather_array(&values, rows)?, rows, tolerance))
}

/// Computes ops where row i of the result depends on row i of the activations, which have as many rows, and
/// on all parameters.
fn row_part(
    op: &Op,
    result: usize,
    parameters: Range<usize>,
    operands: &[Tensor],
    rows: &[usize],
    dtype: DType,
) -> Result<Vec<Part>, OpError> {
    let operand = |(index, tensor): (usize, &Tensor)| {
        if parameters.contains(&index) {
            Ok(Array::from(tensor))
        } else {
            gather(tensor, rows)
        }
    };
    let operands: Vec<Array> = operands
        .iter()
        .enumerate()
        .map(operand)
        .collect::<Result<_, _>>()?;
    Ok(vec![Part::eval_result(op, result, &operands, rows, dtype)?])
}

/// Computes whole images one after the other. They share vectors, and operands with another outermost
/// dimension.
fn image_parts(
    op: &Op,
    result: usize,
    operands: &[Tensor],
    rows: &[usize],
    dtype: DType,
) -> Result<Vec<Part>, OpError> {
    let shapes: Vec<&[usize]> = operands.iter().map(Tensor::shape).collect();
    let shape = op.shapes(&shapes)?.swap_remove(result);
    let per_image = shape[1..shape.len() - 1].iter().product();
    by_image(rows, per_image)
        .into_iter()
        .map(|(image, rows)| {
            let operand = |tensor: &Tensor| {
                if tensor.shape().len() > 1 && tensor.shape()[0] == shape[0] {
                    image_of(tensor, image)
                } else {
                    Ok(Array::from(tensor))
                }
            };
            let operands: Vec<Array> = operands.iter().map(operand).collect::<Result<_, OpError>>()?;
            let operands: Vec<&Array> = operands.iter().collect();
            let whole = op.eval(&operands)?.swap_remove(result);
            let (rows, within): (Vec<usize>, Vec<usize>) = rows.into_iter().unzip();
            let tolerance = op.tolerance(result, &operands, dtype);
            Ok(Part::new(&gather_array(&whole, &within)?, &rows, tolerance))
        })
        .collect()
}
