//! The f32 GEMM of [`prepacked`](super::prepacked), [`patch_conv`](super::patch_conv) and [`attention`](super::attention). It is rten-gemm, which
//! chooses its kernel (AVX-512, AVX2, NEON, portable) at run time.
//!
//! Every element is summed over k in one fixed order, independent of other rows and columns and of the thread. The executor's bitwise
//! reproducibility relies on this.

use hipvit_graph::op::OpError;
pub(crate) use rten_gemm::PackedBMatrix;
use rten_gemm::{BiasVector, GemmExecutor, GemmInputA, GemmInputB, GemmOptions};
use rten_tensor::{Matrix, NdTensorView};

/// Rows that the widest kernel computes at once. Blocks are multiples of it.
pub(crate) const ROW_TILE: usize = 6;

/// Maximum rows of a block. Few enough for the result, with a panel's channels, to stay in the L2 cache; enough to amortise each read of
/// the weight.
pub(super) const BLOCK_ROWS: usize = 204;

/// Division of rows into blocks, which are tasks of threads.
pub(super) struct Blocks {
    /// Maximum rows of a block.
    pub(super) most: usize,
    /// Cost of a block besides its rows, in rows.
    pub(super) overhead: usize,
}

impl Blocks {
    /// Divides `rows` rows into equal blocks, which are processed for each of `parts` parts. Returns the rows of a block and the cost of
    /// the busiest thread, in rows. Minimises this cost, and prefers larger blocks if smaller ones save nothing.
    pub(super) fn divide(&self, rows: usize, parts: usize, threads: usize) -> (usize, usize) {
        let fewest = rows.div_ceil(self.most).max(1);
        let of = |blocks: usize| {
            let block = rows.div_ceil(blocks).max(1).next_multiple_of(ROW_TILE);
            let tasks = rows.div_ceil(block) * parts;
            (block, tasks.div_ceil(threads) * (block + self.overhead))
        };
        let further = (fewest + 1..=fewest + threads).map(of);
        further.fold(of(fewest), |best, next| if next.1 < best.1 { next } else { best })
    }
}

/// Views `x [.., K]` as a matrix with rows `stride` elements apart.
pub(crate) fn strided(x: &[f32], rows: usize, columns: usize, stride: usize) -> Result<Matrix<'_>, OpError> {
    NdTensorView::from_slice_with_strides([rows, columns], x, [stride, 1]).map_err(OpError::memory)
}

/// Prepacks the right-hand side `b` for many GEMMs.
pub(crate) fn prepack(b: Matrix<'_>) -> PackedBMatrix<f32> {
    // Creating an executor selects the kernel, which is cheap.
    GemmExecutor::new().prepack_b(b)
}

/// Operation on the result of a GEMM.
#[derive(Clone, Copy)]
pub(crate) struct Epilogue<'a> {
    /// Factor of the result.
    pub(crate) scale: f32,
    /// Added to every row.
    pub(crate) bias: Option<&'a [f32]>,
}

/// Computes `out = scale · a·b + bias`. `out` is `[M,N]`, contiguous.
pub(crate) fn multiply(
    a: Matrix<'_>,
    b: &PackedBMatrix<f32>,
    epilogue: Epilogue<'_>,
    out: &mut [f32],
) -> Result<(), OpError> {
    let options = GemmOptions {
        alpha: epilogue.scale,
        bias: epilogue.bias.map(BiasVector::Row),
        ..GemmOptions::default()
    };
    GemmExecutor::new()
        .gemm(out, GemmInputA::Unpacked(a), GemmInputB::Packed(b), options)
        .map_err(OpError::memory)
}
