//! The reference implementation's tensor.

use crate::tensor::Tensor;

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
    pub fn zeros(shape: Vec<usize>) -> Self {
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

    /// The elements in row-major order, to be changed.
    pub fn values_mut(&mut self) -> &mut [f64] {
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

/// The extents of an array whose rank the shape rules have checked.
pub(super) fn extents<const N: usize>(array: &Array) -> [usize; N] {
    let mut extents = [1; N];
    for (extent, &actual) in extents.iter_mut().zip(array.shape()) {
        *extent = actual;
    }
    extents
}

/// Eight partial sums, so that the compiler can vectorise.
pub(super) fn dot(x: &[f64], y: &[f64]) -> f64 {
    let (x, x_rest) = x.as_chunks::<8>();
    let (y, y_rest) = y.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for (x, y) in x.iter().zip(y) {
        for i in 0..8 {
            sums[i] += x[i] * y[i];
        }
    }
    let rest: f64 = x_rest.iter().zip(y_rest).map(|(x, y)| x * y).sum();
    sums.iter().sum::<f64>() + rest
}
