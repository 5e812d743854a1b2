//! GEMM: rocBLAS ([`Blas`]), hipBLASLt with its epilogues ([`BlasLt`]), hipSPARSELt for 2:4 sparse weights ([`SparseLt`]).
//!
//! Matrices are row-major here, but column-major in the libraries. A row-major GEMM is the column-major GEMM with A and B exchanged and the
//! result transposed.

mod epilogue;
mod lt;
mod rocblas;
mod sparse;
mod tensile;

pub use self::epilogue::Epilogue;
pub use self::lt::{BlasLt, Matmul, MatmulOperands, Scales};
pub use self::rocblas::Blas;
pub use self::sparse::{SparseGemm, SparseLt, SparseMatmul, SparseOperands};

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::memory::operand::Operand;

/// Bytes of workspace of each library, as AMD recommends for its Instinct GPUs.
const WORKSPACE: usize = 32 << 20;

/// Layout of a matrix in memory: row-major, `stride` elements from row to row, `batch_stride` from matrix to matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Matrix {
    /// True if the stored matrix is the transpose of the factor.
    pub transposed: bool,
    /// Stride of stored rows in elements.
    pub stride: usize,
    /// Stride of the matrices of a batch in elements. 0 if all share one matrix.
    pub batch_stride: usize,
}

impl Matrix {
    /// Describes a matrix that is not transposed, in rows of `stride` elements.
    #[must_use]
    pub fn rows(stride: usize) -> Self {
        Self {
            transposed: false,
            stride,
            batch_stride: 0,
        }
    }

    /// Describes a transposed matrix, in rows of `stride` elements, such as a linear layer's weight.
    #[must_use]
    pub fn transposed(stride: usize) -> Self {
        Self {
            transposed: true,
            ..Self::rows(stride)
        }
    }

    /// Sets the stride of the matrices of a batch.
    #[must_use]
    pub fn every(self, batch_stride: usize) -> Self {
        Self { batch_stride, ..self }
    }
}

/// Granularity of the factors by which [`BlasLt`] multiplies matrices of narrow dtypes. [`Scales`] has the factors of A, of B, and of an
/// E4M3 result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scaling {
    /// No factors.
    #[default]
    None,
    /// One factor per matrix.
    Tensor,
    /// A factor per row of A and per column of B (hipBLASLt's outer vectors). Not every GPU with E4M3 GEMMs supports this. The result
    /// cannot be E4M3.
    Outer,
}

/// `C = alpha · A·B + beta · C` for each matrix of a batch: A is m×k, B is k×n, C is m×n. Accumulates in f32, or in i32 for int8.
///
/// | A and B | C |
/// | --- | --- |
/// | f32, f16, bf16 | the same dtypes |
/// | int8 | i32 |
/// | E4M3 in the encoding of [the device](crate::Properties::float8), [`BlasLt`] only | f32, f16, bf16, or E4M3 if bias or C has the dtype [`wide`](Self::wide) |
/// | E5M2 and E4M3 in this encoding, [`BlasLt`] only, see [`left`](Self::left) | f32, f16, bf16 |
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gemm {
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Columns of A, rows of B.
    pub k: usize,
    /// Number of matrices in the batch.
    pub batch: usize,
    /// Layout of A.
    pub a: Matrix,
    /// Layout of B.
    pub b: Matrix,
    /// Layout of C, which is never transposed.
    pub c: Matrix,
    /// Dtype of A and B.
    pub inputs: DType,
    /// Dtype of A if it differs from that of B: E5M2, for gradients that are multiplied by E4M3.
    pub left: Option<DType>,
    /// Dtype of C. For [`BlasLt`], dtype of D.
    pub output: DType,
    /// Dtype of the bias, and of C if D is E4M3. Only for [`BlasLt`].
    pub wide: DType,
    /// Granularity of the factors by which [`BlasLt`] multiplies the matrices.
    pub scaling: Scaling,
    /// True if [`BlasLt`] writes the largest magnitude of an E4M3 result, before scaling, to [`MatmulOperands::amax`].
    pub amax: bool,
    /// Factor of A·B.
    pub alpha: f32,
    /// Factor of C before A·B is added. With 0 the contents of C are ignored.
    pub beta: f32,
}

impl Gemm {
    /// Describes one GEMM of packed matrices, A `m`×`k`, B `k`×`n`, C `m`×`n`.
    #[must_use]
    pub fn new(m: usize, n: usize, k: usize, dtype: DType) -> Self {
        Self {
            m,
            n,
            k,
            batch: 1,
            a: Matrix::rows(k),
            b: Matrix::rows(n),
            c: Matrix::rows(n),
            inputs: dtype,
            left: None,
            output: dtype,
            wide: dtype,
            scaling: Scaling::None,
            amax: false,
            alpha: 1.0,
            beta: 0.0,
        }
    }

    /// Describes a linear layer: `m` rows of `k` values, times the transpose of a weight with `n` rows.
    #[must_use]
    pub fn linear(m: usize, n: usize, k: usize, dtype: DType) -> Self {
        Self {
            b: Matrix::transposed(k),
            ..Self::new(m, n, k, dtype)
        }
    }

    /// Returns rows and columns of A, B and C as stored.
    fn stored(&self) -> [(usize, usize); 3] {
        let turned = |matrix: &Matrix, rows, columns| {
            if !matrix.transposed {
                (rows, columns)
            } else {
                (columns, rows)
            }
        };
        [
            turned(&self.a, self.m, self.k),
            turned(&self.b, self.k, self.n),
            (self.m, self.n),
        ]
    }

    /// Returns the dtype of A.
    fn a_dtype(&self) -> DType {
        self.left.unwrap_or(self.inputs)
    }

    fn has_known_types(&self) -> bool {
        use DType::{BF16, F8E4M3, F8E4M3Fnuz, F16, F32, I8, I32};
        if self.left.is_some() {
            return self.left == self.inputs.e5m2() && matches!(self.output, F32 | F16 | BF16);
        }
        match self.inputs {
            F32 | F16 | BF16 => self.output == self.inputs || self.output == F32,
            I8 => self.output == I32,
            F8E4M3 | F8E4M3Fnuz => {
                let narrow = matches!(self.wide, F16 | BF16);
                matches!(self.output, F32 | F16 | BF16) || self.output == self.inputs && narrow
            }
            _ => false,
        }
    }

    /// Returns the dtype of the bias.
    fn bias(&self) -> DType {
        match self.inputs.size() {
            1 => self.wide,
            _ => self.output,
        }
    }

    /// Returns the dtype of the matrix that beta multiplies.
    fn added(&self) -> DType {
        match self.output.size() {
            1 => self.wide,
            _ => self.output,
        }
    }

    /// Returns true if the results of a batch follow each other, or are side by side in the rows of one matrix.
    fn results_are_disjoint(&self) -> bool {
        let Matrix {
            stride, batch_stride, ..
        } = self.c;
        let behind = |count: usize, stride: usize| (count - 1).saturating_mul(stride).saturating_add(self.n);
        let follow = batch_stride >= behind(self.m, stride);
        let side_by_side = batch_stride >= self.n && stride >= behind(self.batch, batch_stride);
        follow || side_by_side
    }

    /// Checks the description and the operands. Returns the bytes of C.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the description is inconsistent or an operand is too small.
    fn check(&self, a: &Operand<'_>, b: &Operand<'_>, c: &Operand<'_>) -> Result<usize> {
        let wrong = |reason: &str| Err(Error::argument("gemm", format!("{reason}: {self:?}")));
        if [self.m, self.n, self.k, self.batch].contains(&0) {
            return wrong("a size is 0");
        }
        if !self.has_known_types() {
            return wrong("there is no GEMM of these types");
        }
        if self.c.transposed {
            return wrong("C cannot be transposed");
        }
        let [stored_a, stored_b, stored_c] = self.stored();
        let bytes = |matrix: &Matrix, (rows, columns): (usize, usize), dtype: DType| {
            let last = (self.batch - 1)
                .checked_mul(matrix.batch_stride)?
                .checked_add((rows - 1).checked_mul(matrix.stride)?)?;
            last.checked_add(columns)?.checked_mul(dtype.size())
        };
        let needed = |matrix, stored, dtype| match bytes(matrix, stored, dtype) {
            Some(bytes) if matrix.stride >= stored.1 => Ok(bytes),
            _ => Err(Error::argument(
                "gemm",
                format!("a stride is too small or large: {self:?}"),
            )),
        };
        if self.batch > 1 && !self.results_are_disjoint() {
            return wrong("the results of a batch overlap");
        }
        a.expect("A", needed(&self.a, stored_a, self.a_dtype())?, false)?;
        b.expect("B", needed(&self.b, stored_b, self.inputs)?, false)?;
        let bytes = needed(&self.c, stored_c, self.output)?;
        c.expect("C", bytes, true)?;
        Ok(bytes)
    }
}

/// Converts a size to the libraries' 32-bit integers.
fn int(size: usize) -> Result<i32> {
    i32::try_from(size).map_err(|_| Error::argument("gemm", format!("{size} is too large for the library")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_shapes_follow_the_transposition() {
        let gemm = Gemm::linear(5, 7, 3, DType::F32);
        assert_eq!(gemm.stored(), [(5, 3), (7, 3), (5, 7)]);
        let gemm = Gemm {
            a: Matrix::transposed(5),
            b: Matrix::rows(7),
            ..gemm
        };
        assert_eq!(gemm.stored(), [(3, 5), (3, 7), (5, 7)]);
    }
}
