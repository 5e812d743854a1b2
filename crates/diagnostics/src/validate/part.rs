//! Reference values of some rows of a result, and the rows and images of operands that they need.

use std::collections::BTreeMap;

use hipvit::ops::{Op, OpError};
use hipvit::reference::Array;
use hipvit::tensor::{DType, Tensor};

/// Some rows of a result, computed together.
pub(super) struct Part {
    pub(super) rows: Vec<usize>,
    pub(super) values: Vec<f64>,
    pub(super) tolerance: f64,
}

impl Part {
    /// Creates a part from `result`, which has the rows `rows` of the whole result.
    pub(super) fn new(result: &Array, rows: &[usize], tolerance: f64) -> Self {
        Self {
            rows: rows.to_vec(),
            values: result.values().to_vec(),
            tolerance,
        }
    }

    /// Increases the tolerance by `by`.
    pub(super) fn loosened(self, by: f64) -> Self {
        Self {
            tolerance: self.tolerance + by,
            ..self
        }
    }

    /// Evaluates the op on operands whose first result has exactly these rows.
    pub(super) fn eval(op: &Op, operands: &[Array], rows: &[usize], dtype: DType) -> Result<Self, OpError> {
        Self::eval_result(op, 0, operands, rows, dtype)
    }

    /// Evaluates the op on operands whose result `result` has exactly these rows.
    pub(super) fn eval_result(
        op: &Op,
        result: usize,
        operands: &[Array],
        rows: &[usize],
        dtype: DType,
    ) -> Result<Self, OpError> {
        let operands: Vec<&Array> = operands.iter().collect();
        let values = op.eval(&operands)?.swap_remove(result);
        Ok(Self::new(&values, rows, op.tolerance(result, &operands, dtype)))
    }
}

/// Returns these rows of a tensor, modulo its number of rows: `[rows, channels]`.
pub(super) fn gather(tensor: &Tensor, rows: &[usize]) -> Result<Array, OpError> {
    let channels = tensor.shape().last().copied().unwrap_or(1).max(1);
    let values = tensor.to_f32();
    let count = (values.len() / channels).max(1);
    let row = |row: &usize| values[row % count * channels..][..channels].iter();
    let gathered = rows.iter().flat_map(row).map(|&v| f64::from(v)).collect();
    Array::new([rows.len(), channels], gathered).ok_or_else(|| "an operand of another size".into())
}

pub(super) fn gather_array(array: &Array, rows: &[usize]) -> Result<Array, OpError> {
    let channels = array.shape().last().copied().unwrap_or(1).max(1);
    let row = |row: &usize| array.values().chunks(channels).nth(*row).unwrap_or_default();
    let gathered = rows.iter().flat_map(row).copied().collect();
    Array::new([rows.len(), channels], gathered).ok_or_else(|| "a result of another size".into())
}

/// Returns the rows by image, with their positions in it.
pub(super) fn by_image(rows: &[usize], per_image: usize) -> BTreeMap<usize, Vec<(usize, usize)>> {
    let mut images: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
    for &row in rows {
        let image = images.entry(row / per_image).or_default();
        image.push((row, row % per_image));
    }
    images
}

/// Returns `[1, …]` of this image, or of the shared image if there is one for all.
pub(super) fn image_of(tensor: &Tensor, image: usize) -> Result<Array, OpError> {
    let mut shape = tensor.shape().to_vec();
    let image = if shape[0] == 1 { 0 } else { image };
    shape[0] = 1;
    let len: usize = shape.iter().product();
    let values = tensor.to_f32();
    let values = values[image * len..(image + 1) * len].iter();
    Array::new(shape, values.map(|&v| f64::from(v)).collect())
        .ok_or_else(|| "an operand of another size".into())
}
