//! The f32 matrix product behind the CPU kernels of [`linear`](super::linear), [`patch`](super::patch) and
//! [`attention`](super::attention): rten-gemm, which chooses its kernel (AVX-512, AVX2, NEON, portable) at run time.
//!
//! Every element of a product is summed over k in one fixed order, whatever the other rows and columns are and
//! whichever thread computes it; the executor's promise of equal bits rests on that.

pub(crate) use rten_gemm::PackedBMatrix;
use rten_gemm::{BiasVector, GemmExecutor, GemmInputA, GemmInputB, GemmOptions};
use rten_tensor::{Matrix, NdTensorView};

/// Rows that the widest kernel computes at once; blocks of rows are multiples of it.
pub(crate) const ROW_TILE: usize = 6;

/// `x [.., K]` as a matrix whose rows begin `stride` elements apart.
pub(crate) fn strided(x: &[f32], rows: usize, columns: usize, stride: usize) -> Result<Matrix<'_>, String> {
    NdTensorView::from_slice_with_strides([rows, columns], x, [stride, 1]).map_err(|e| e.to_string())
}

/// Rearranges the right-hand side `b` once for many products.
pub(crate) fn pack(b: Matrix<'_>) -> PackedBMatrix<f32> {
    // Making an executor chooses the kernel and costs nothing else.
    GemmExecutor::new().prepack_b(b)
}

/// What is done to a product on its way out.
#[derive(Clone, Copy)]
pub(crate) struct Epilogue<'a> {
    /// Multiplies the product.
    pub(crate) scale: f32,
    /// Added to every row.
    pub(crate) bias: Option<&'a [f32]>,
}

/// `out = scale · a·b + bias`; `out` is `[M,N]` without gaps.
pub(crate) fn multiply(
    a: Matrix<'_>,
    b: &PackedBMatrix<f32>,
    epilogue: Epilogue<'_>,
    out: &mut [f32],
) -> Result<(), String> {
    let options = GemmOptions {
        alpha: epilogue.scale,
        bias: epilogue.bias.map(BiasVector::Row),
        ..GemmOptions::default()
    };
    GemmExecutor::new()
        .gemm(out, GemmInputA::Unpacked(a), GemmInputB::Packed(b), options)
        .map_err(|e| e.to_string())
}
