//! GEMM: rocBLAS ([`Blas`]), hipBLASLt with its epilogues ([`BlasLt`]), hipSPARSELt for 2:4 sparse weights ([`SparseLt`]). Matrices are row-major here; the
//! libraries' are column-major, which is the same GEMM with A and B exchanged and the result transposed.

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

/// Scratch that each library gets; what AMD recommends for its Instinct GPUs.
const WORKSPACE: usize = 32 << 20;

/// Layout of a matrix in memory: row-major, `stride` elements from row to row, `batch_stride` from matrix to matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Matrix {
    /// The stored matrix is the transpose of the one that is multiplied.
    pub transposed: bool,
    /// Elements from one stored row to the next.
    pub stride: usize,
    /// Elements from one matrix of a batch to the next; 0 for one that all share.
    pub batch_stride: usize,
}

impl Matrix {
    /// Stored as it is multiplied, in rows of `stride` elements.
    #[must_use]
    pub fn rows(stride: usize) -> Self {
        Self {
            transposed: false,
            stride,
            batch_stride: 0,
        }
    }

    /// Stored as the transpose, in rows of `stride` elements: a linear layer's weight.
    #[must_use]
    pub fn transposed(stride: usize) -> Self {
        Self {
            transposed: true,
            ..Self::rows(stride)
        }
    }

    /// One of a batch.
    #[must_use]
    pub fn every(self, batch_stride: usize) -> Self {
        Self { batch_stride, ..self }
    }
}

/// Granularity of the factors by which [`BlasLt`] multiplies matrices of narrow numbers. [`Scales`] holds the factors of A, of B,
/// and of an E4M3 result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scaling {
    /// None.
    #[default]
    None,
    /// One of each matrix.
    Tensor,
    /// One factor for each row of A and for each column of B (hipBLASLt's outer vectors). Not every GPU that multiplies E4M3
    /// supports this, and no result may be E4M3.
    Outer,
}

/// `C = alpha · A·B + beta · C` for each of a batch: A is m×k, B is k×n, C is m×n. Accumulated in f32, or of bytes in i32.
///
/// A and B are f32, f16, bf16, signed bytes, or E4M3 in the encoding that [the device has](crate::Properties::float8). Bytes give
/// i32. rocBLAS has no GEMM of E4M3. In [`BlasLt`] E4M3 gives f32, f16, bf16, or E4M3 if the bias or C has the type
/// [`wide`](Self::wide).
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
    /// The element type of A and B.
    pub inputs: DType,
    /// The element type of C, for [`BlasLt`] of D.
    pub output: DType,
    /// The element type of the bias, and of C if D is E4M3, for [`BlasLt`].
    pub wide: DType,
    /// Granularity of the factors by which [`BlasLt`] multiplies the matrices.
    pub scaling: Scaling,
    /// True if [`BlasLt`] writes the largest magnitude of an E4M3 result, before scaling, to [`MatmulOperands::amax`].
    pub amax: bool,
    /// Factor of A·B.
    pub alpha: f32,
    /// Factor of C before A·B is added; 0 ignores the contents of C.
    pub beta: f32,
}

impl Gemm {
    /// One GEMM of packed matrices, A `m`×`k`, B `k`×`n`, C `m`×`n`.
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
            output: dtype,
            wide: dtype,
            scaling: Scaling::None,
            amax: false,
            alpha: 1.0,
            beta: 0.0,
        }
    }

    /// A linear layer: `m` rows of `k` values times the transpose of a weight of `n` rows.
    #[must_use]
    pub fn linear(m: usize, n: usize, k: usize, dtype: DType) -> Self {
        Self {
            b: Matrix::transposed(k),
            ..Self::new(m, n, k, dtype)
        }
    }

    /// Rows and columns of A, B and C as they are stored.
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

    fn has_known_types(&self) -> bool {
        use DType::{BF16, F8E4M3, F8E4M3Fnuz, F16, F32, I8, I32};
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

    /// The element type of the bias.
    fn bias(&self) -> DType {
        match self.inputs.size() {
            1 => self.wide,
            _ => self.output,
        }
    }

    /// The element type of the matrix that beta scales.
    fn added(&self) -> DType {
        match self.output.size() {
            1 => self.wide,
            _ => self.output,
        }
    }

    /// # Errors
    ///
    /// [`Error::Argument`] if the description is at odds with itself or an operand is too small. Returns the bytes that C
    /// takes.
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
        if self.batch > 1 && self.c.batch_stride < (self.m - 1) * self.c.stride + self.n {
            return wrong("the results of a batch overlap");
        }
        a.expect("A", needed(&self.a, stored_a, self.inputs)?, false)?;
        b.expect("B", needed(&self.b, stored_b, self.inputs)?, false)?;
        let bytes = needed(&self.c, stored_c, self.output)?;
        c.expect("C", bytes, true)?;
        Ok(bytes)
    }
}

/// A size as the libraries' 32-bit ones.
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
