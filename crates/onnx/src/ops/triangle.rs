//! Triangles of matrices.

use hipvit_graph::Provenance;
use hipvit_graph::pattern::{Float, floats};
use hipvit_graph::tensor::Tensor;

use super::Group;
use super::elementwise::apply;
use crate::context::Context;
use crate::element::ElementType;
use crate::error::{Refusal, refuse};
use crate::value::{MOST_INTEGERS, Value, count, show};

pub(super) const OPS: Group = &[("Trilu", triangle)];

/// Keeps the elements on one side of a diagonal, and sets the others to zero.
fn triangle(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    let is_upper = context.flag("upper", true);
    let diagonal = match context.optional(1) {
        None => 0,
        Some(diagonal) => match diagonal.known_integers("a diagonal")?[..] {
            [diagonal] => diagonal,
            _ => refuse!("has several diagonals"),
        },
    };
    let &[.., rows, columns] = &x.dims[..] else {
        refuse!("takes matrices, got {}", show(&x.dims));
    };
    let [Some(rows), Some(columns)] = [rows.fixed(), columns.fixed()] else {
        refuse!("takes matrices {}, which grow with the batch", show(&x.dims));
    };
    if count(&[rows, columns])? > MOST_INTEGERS {
        refuse!("takes matrices {}, which are too large", show(&x.dims));
    }
    let is_kept = |row: usize, column: usize| {
        let distance = column as i64 - row as i64;
        if is_upper {
            distance >= diagonal
        } else {
            distance <= diagonal
        }
    };
    let places = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
    let kept: Vec<f32> = places
        .map(|(row, column)| f32::from(is_kept(row, column)))
        .collect();
    let kept = Tensor::from_f32([rows, columns], kept).ok_or("is too large")?;
    let kept = Value::constant(ElementType::F32, kept, Provenance::computed("triangle", []));
    // A product would keep NaN and infinities.
    let selected = Float::select(&floats::operand(1).to_bool(), floats::operand(0), 0.0);
    apply(context.builder, selected, &[&x, &kept], x.element).map(|value| vec![value])
}
