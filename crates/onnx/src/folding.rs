//! Computes the results of ops whose operands are known.

use hipvit_graph::op::{Definition, Op, OpError, Shape};
use hipvit_graph::reference::{Array, Real};
use hipvit_graph::{Provenance, tensor::Tensor};

use crate::dim::Linear;
use crate::element::ElementType;
use crate::error::{Refusal, refuse};
use crate::shape::count;
use crate::value::{MOST_FLOATS, Value};

/// Most floating-point operations of a node that is computed at import.
const MOST_OPERATIONS: u64 = 1 << 36;

/// Computes the results of known operands.
pub(crate) fn compute(op: &Op, operands: &[&Value], element: ElementType) -> Result<Vec<Value>, Refusal> {
    let shapes: Vec<Shape> = operands.iter().map(|x| x.shape()).collect();
    let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
    let results = op.shapes(&shapes).map_err(|source| format!("{op} {source}"))?;
    for shape in &results {
        if count(shape)? > MOST_FLOATS {
            refuse!("computes {shape:?} elements that do not depend on the input, which is too many");
        }
    }
    if op.flops(&shapes, &results) > MOST_OPERATIONS {
        refuse!("computes too much that does not depend on the input");
    }
    let moves_integers = op.keeps_dtype_of() == Some(0) && operands[0].as_integers().is_some();
    if moves_integers {
        return move_integers(op, operands, element);
    }
    let results = match op {
        // Large weights are turned. This needs no precision.
        Op::Permute(permute) => {
            let x = Array::<f32>::from(&operands[0].to_constant()?.tensor);
            floats(permute.eval(&[&x]), op)?
        }
        _ => {
            let arrays = operands.iter().map(|x| array(x)).collect::<Result<Vec<_>, _>>()?;
            floats(op.eval(&arrays.iter().collect::<Vec<_>>()), op)?
        }
    };
    let of: Vec<Provenance> = operands
        .iter()
        .filter_map(|x| x.as_constant().map(|constant| constant.provenance.clone()))
        .collect();
    let name = op.name();
    let mut values = Vec::with_capacity(results.len());
    for (shape, result) in results {
        let tensor = Tensor::from_f32(shape, result).ok_or("computes another number of elements")?;
        values.push(Value::constant(
            element,
            tensor,
            Provenance::computed(name, of.clone()),
        ));
    }
    Ok(values)
}

/// Returns the shapes and elements of results.
fn floats<T: Real>(
    results: Result<Vec<Array<T>>, OpError>,
    op: &Op,
) -> Result<Vec<(Shape, Vec<f32>)>, Refusal> {
    let results = results.map_err(|source| format!("{op} {source}"))?;
    let floats = results
        .iter()
        .map(|result| (result.shape().to_vec(), result.to_f32()));
    Ok(floats.collect())
}

fn array(value: &Value) -> Result<Array, Refusal> {
    let constant = value.to_constant()?;
    Ok(Array::from(&constant.tensor))
}

/// Moves integers, which may depend on the batch size, by an op that only moves elements: it moves their indices.
fn move_integers(op: &Op, operands: &[&Value], element: ElementType) -> Result<Vec<Value>, Refusal> {
    let mut elements: Vec<Linear> = Vec::new();
    let mut arrays = Vec::with_capacity(operands.len());
    for (index, operand) in operands.iter().enumerate() {
        let is_moved = index == 0 || matches!(op, Op::Concat(_));
        match operand.as_integers().filter(|_| is_moved) {
            Some(integers) => {
                // Index 0 is for elements that the op makes up.
                let start = elements.len() + 1;
                let indices = (start..start + integers.len())
                    .map(|index| index as f64)
                    .collect();
                elements.extend(integers);
                arrays.push(
                    Array::new(operand.shape(), indices).ok_or("has operands that do not fit their shape")?,
                );
            }
            None => arrays.push(array(operand)?),
        }
    }
    let references: Vec<&Array> = arrays.iter().collect();
    let results = op.eval(&references).map_err(|source| format!("{op} {source}"))?;
    let mut values = Vec::with_capacity(results.len());
    for result in results {
        let source = |&index: &f64| {
            (index as usize)
                .checked_sub(1)
                .and_then(|index| elements.get(index).copied())
        };
        let moved: Vec<Linear> = result
            .values()
            .iter()
            .map(|index| source(index).unwrap_or_default())
            .collect();
        values.push(Value::integers(element, result.shape(), moved)?);
    }
    Ok(values)
}
