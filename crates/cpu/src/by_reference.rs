//! Ops of backward passes that have no kernel yet. They use the reference implementation in f32.

use hipvit_graph::op::{Definition, OpError};
use hipvit_graph::reference::Array;

use super::operands::Operands;
use super::rows::Source;

/// Computes the results of `op`.
///
/// # Errors
///
/// [`OpError`] if the shapes of the operands do not fit the op.
pub(super) fn by_reference(
    op: &impl Definition,
    operands: &Operands<'_>,
    results: &mut [&mut [f32]],
) -> Result<(), OpError> {
    let array = |index| {
        let shape = operands.batched_shape(index)?;
        let values = match operands.source(index)? {
            Source::InPlace => results[0].to_vec(),
            Source::At(values) => values.to_vec(),
        };
        let array = Array::new(shape, values);
        array.ok_or_else(|| OpError::from(format!("its operand {index} is not of shape {shape:?}")))
    };
    let operands = (0..operands.count())
        .map(array)
        .collect::<Result<Vec<Array<f32>>, OpError>>()?;
    let computed = op.eval(&operands.iter().collect::<Vec<_>>())?;
    for (result, computed) in results.iter_mut().zip(&computed) {
        result.copy_from_slice(computed.values());
    }
    Ok(())
}
