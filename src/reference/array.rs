//! The oracle's tensor.

use crate::graph::Tensor;

/// A row-major tensor in double precision.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    shape: Vec<usize>,
    values: Vec<f64>,
}

impl Array {
    /// `values` in row-major order, or `None` if their number is not the product of `shape`.
    pub fn new(shape: impl Into<Vec<usize>>, values: Vec<f64>) -> Option<Self> {
        let shape = shape.into();
        (values.len() == shape.iter().product::<usize>()).then_some(Self { shape, values })
    }

    /// A tensor of zeros.
    pub(super) fn zeros(shape: Vec<usize>) -> Self {
        let len = shape.iter().product();
        Self {
            shape,
            values: vec![0.0; len],
        }
    }

    /// The extents, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements in row-major order.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    pub(super) fn values_mut(&mut self) -> &mut [f64] {
        &mut self.values
    }

    /// The elements in row-major order.
    pub fn into_values(self) -> Vec<f64> {
        self.values
    }

    /// The elements rounded to single precision.
    pub fn to_f32(&self) -> Vec<f32> {
        self.values.iter().map(|&v| v as f32).collect()
    }
}

impl From<&Tensor> for Array {
    fn from(tensor: &Tensor) -> Self {
        Self {
            shape: tensor.shape().to_vec(),
            values: tensor.to_f32().iter().map(|&v| f64::from(v)).collect(),
        }
    }
}
