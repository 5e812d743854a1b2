//! Column-major matrices in device memory, and GEMM.

use std::ops::Range;

use gcnrun::{FaultKind, Memory};

use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayView2, ArrayViewMut2, ShapeBuilder as _};
use rayon::prelude::*;

use super::element::{Element, Real};
use super::{read, taint, write};

/// Columns that one thread multiplies at a time.
const BLOCK_COLUMNS: usize = 64;

/// A matrix: column after column, `leading` elements apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix {
    pub(crate) address: u64,
    pub(crate) element: Element,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) leading: usize,
}

impl Matrix {
    /// Loads the matrix's numbers, without the gaps between columns, which may hold anything.
    pub(crate) fn load<T: Real>(&self, memory: &Memory) -> Result<Vec<T>, FaultKind> {
        let bytes = self.rows * self.element.size();
        if self.is_packed() {
            return Ok(T::decode(
                self.element,
                &read(memory, self.address, bytes * self.columns)?,
            ));
        }
        let mut packed = Vec::with_capacity(bytes * self.columns);
        for column in 0..self.columns {
            packed.extend(read(memory, self.column(column), bytes)?);
        }
        Ok(T::decode(self.element, &packed))
    }

    /// Writes numbers, and nothing between the columns.
    pub(crate) fn store<T: Real>(&self, memory: &Memory, values: &[T]) -> Result<(), FaultKind> {
        if taint::is_probe() {
            for (column, values) in values.chunks(self.rows.max(1)).enumerate() {
                taint::keep(self.column(column), self.element, values);
            }
            return Ok(());
        }
        let bytes = T::encode(self.element, values);
        if self.is_packed() {
            return write(memory, self.address, &bytes);
        }
        let size = self.rows * self.element.size();
        bytes
            .chunks(size.max(1))
            .enumerate()
            .try_for_each(|(column, bytes)| write(memory, self.column(column), bytes))
    }

    fn is_packed(&self) -> bool {
        self.leading == self.rows || self.columns <= 1
    }

    fn column(&self, column: usize) -> u64 {
        self.address
            .wrapping_add((column * self.leading * self.element.size()) as u64)
    }
}

/// An operand of a GEMM: a matrix, or the transpose of the one in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Factor {
    pub(crate) stored: Matrix,
    pub(crate) transposed: bool,
}

impl Factor {
    /// The factor with `rows` and `columns`, which are swapped in memory if it is `transposed`.
    pub(crate) fn new(
        address: u64,
        element: Element,
        [rows, columns]: [usize; 2],
        leading: usize,
        transposed: bool,
    ) -> Self {
        let [rows, columns] = if transposed {
            [columns, rows]
        } else {
            [rows, columns]
        };
        Self {
            stored: Matrix {
                address,
                element,
                rows,
                columns,
                leading,
            },
            transposed,
        }
    }

    /// Loads the numbers, packed in columns of the factor, not of the memory.
    pub(crate) fn values<T: Real>(&self, memory: &Memory) -> Result<Vec<T>, FaultKind> {
        let stored = self.stored.load::<T>(memory)?;
        let Matrix { rows, columns, .. } = self.stored;
        Ok(if self.transposed {
            transposed_copy(&stored, rows, columns)
        } else {
            stored
        })
    }

    /// Writes numbers packed in columns of the factor.
    pub(crate) fn store<T: Real>(&self, memory: &Memory, values: &[T]) -> Result<(), FaultKind> {
        if !self.transposed {
            return self.stored.store(memory, values);
        }
        let Matrix { rows, columns, .. } = self.stored;
        self.stored.store(memory, &transposed_copy(values, columns, rows))
    }

    /// GEMV: the operand times a vector.
    pub(crate) fn times<T: Real>(&self, memory: &Memory, vector: &[T]) -> Result<Vec<T>, FaultKind> {
        let values = self.stored.load::<T>(memory)?;
        let [rows, columns] = self.shape();
        let vector_view = ArrayView2::from_shape((vector.len(), 1), vector).ok();
        let result = self
            .view(&values)
            .zip(vector_view)
            .and_then(|(left, right)| multiply(&left, &right, rows, 1));
        result.ok_or_else(|| shape_mismatch([rows, columns], [vector.len(), 1]))
    }

    /// Some of its columns.
    pub(crate) fn columns(&self, of: Range<usize>) -> Self {
        self.part(of, self.transposed)
    }

    /// Some of its rows.
    pub(crate) fn rows(&self, of: Range<usize>) -> Self {
        self.part(of, !self.transposed)
    }

    /// Rows or columns of the matrix in memory.
    fn part(&self, of: Range<usize>, rows: bool) -> Self {
        let Matrix {
            address,
            element,
            leading,
            ..
        } = self.stored;
        let skipped = if rows { of.start } else { of.start * leading };
        let address = address.wrapping_add((skipped * element.size()) as u64);
        let stored = if rows {
            Matrix {
                address,
                rows: of.len(),
                ..self.stored
            }
        } else {
            Matrix {
                address,
                columns: of.len(),
                ..self.stored
            }
        };
        Self { stored, ..*self }
    }

    /// The shape after transposition.
    pub(crate) fn shape(&self) -> [usize; 2] {
        if self.transposed {
            [self.stored.columns, self.stored.rows]
        } else {
            [self.stored.rows, self.stored.columns]
        }
    }

    /// A view of its loaded numbers.
    fn view<'a, T>(&self, values: &'a [T]) -> Option<ArrayView2<'a, T>> {
        let Matrix { rows, columns, .. } = self.stored;
        let stored = ArrayView2::from_shape((rows, columns).f(), values).ok()?;
        Some(if self.transposed {
            stored.reversed_axes()
        } else {
            stored
        })
    }
}

/// The transpose of a matrix packed in columns.
fn transposed_copy<T: Copy>(values: &[T], rows: usize, columns: usize) -> Vec<T> {
    let of_row = |row| (0..columns).map(move |column| values[column * rows + row]);
    (0..rows).flat_map(of_row).collect()
}

/// The addresses of a batch's matrices.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Batch {
    /// `stride` elements apart.
    Strided { first: u64, stride: i64 },
    /// Listed in an array in device memory.
    Listed { array: u64 },
}

impl Batch {
    /// Makes a batch. With a stride, `address` is that of the first matrix; without, that of the array of addresses.
    pub(crate) fn new(address: u64, stride: Option<i64>) -> Self {
        match stride {
            Some(stride) => Self::Strided {
                first: address,
                stride,
            },
            None => Self::Listed { array: address },
        }
    }

    pub(crate) fn address(&self, memory: &Memory, index: usize, element: Element) -> Result<u64, FaultKind> {
        match self {
            Self::Strided { first, stride } => {
                let bytes = (index as i64)
                    .wrapping_mul(*stride)
                    .wrapping_mul(element.size() as i64);
                Ok(first.wrapping_add_signed(bytes))
            }
            Self::Listed { array } => {
                let bytes = read(memory, array.wrapping_add(8 * index as u64), 8)?;
                Ok(bytes.try_into().map(u64::from_le_bytes).unwrap_or_default())
            }
        }
    }
}

/// `A·B`, packed in columns.
pub(crate) fn gemm<T: Real>(memory: &Memory, a: &Factor, b: &Factor) -> Result<Vec<T>, FaultKind> {
    let (left, right) = (a.stored.load::<T>(memory)?, b.stored.load::<T>(memory)?);
    let ([m, k], [also_k, n]) = (a.shape(), b.shape());
    let result = match (a.view(&left), b.view(&right)) {
        (Some(left), Some(right)) if k == also_k => multiply(&left, &right, m, n),
        _ => None,
    };
    result.ok_or_else(|| shape_mismatch([m, k], [also_k, n]))
}

fn shape_mismatch(left: [usize; 2], right: [usize; 2]) -> FaultKind {
    FaultKind::Configuration {
        what: format!("a GEMM of shapes {left:?} and {right:?}"),
    }
}

/// `left·right`, packed in columns, computed on all cores by blocks of columns. The order of summation does not depend on the
/// blocks, so that the result is the same from run to run. `None` if the shapes do not match.
pub(crate) fn multiply<T: Real>(
    left: &ArrayView2<'_, T>,
    right: &ArrayView2<'_, T>,
    m: usize,
    n: usize,
) -> Option<Vec<T>> {
    if left.dim() != (m, right.nrows()) || right.ncols() != n {
        return None;
    }
    let mut result = vec![T::zero(); m * n];
    if m * n == 0 || right.nrows() == 0 {
        return Some(result);
    }
    result
        .par_chunks_mut(m * BLOCK_COLUMNS)
        .enumerate()
        .try_for_each(|(block, result)| {
            let columns = result.len() / m;
            let first = block * BLOCK_COLUMNS;
            let right = right.slice(ndarray::s![.., first..first + columns]);
            let mut result = ArrayViewMut2::from_shape((m, columns).f(), result).ok()?;
            general_mat_mul(T::one(), left, &right, T::zero(), &mut result);
            Some(())
        })?;
    Some(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn column_blocks_do_not_change_the_result() {
        let (m, n, k) = (63, 257, 65);
        let number = |seed: usize| move |i: usize| ((i * 7919 + seed) % 1013) as f32 / 507.0 - 1.0;
        let a: Vec<f32> = (0..m * k).map(number(1)).collect();
        let b: Vec<f32> = (0..k * n).map(number(2)).collect();
        let (left, right) = (
            ArrayView2::from_shape((m, k).f(), &a).unwrap(),
            ArrayView2::from_shape((k, n).f(), &b).unwrap(),
        );
        let whole = multiply(&left, &right, m, n).unwrap();
        for column in [0, 63, 64, 65, 256] {
            let one = multiply(&left, &right.slice(ndarray::s![.., column..=column]), m, 1).unwrap();
            for (row, value) in one.iter().enumerate() {
                let sum: f64 = (0..k)
                    .map(|i| f64::from(a[i * m + row]) * f64::from(b[column * k + i]))
                    .sum();
                // k roundings of sums below k.
                let tolerance = f64::from(f32::EPSILON) * (k * k) as f64;
                assert!((f64::from(*value) - sum).abs() <= tolerance);
                assert_eq!(value.to_bits(), whole[column * m + row].to_bits());
            }
        }
    }

    #[test]
    fn mismatched_shapes_are_refused() {
        let values = [1.0_f32; 6];
        let left = ArrayView2::from_shape((2, 3).f(), &values).unwrap();
        assert_eq!(multiply(&left, &left, 2, 3), None);
    }
}
