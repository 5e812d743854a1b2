//! The f32 GEMM of the CPU kernels of [`linear`](super::linear), [`patch_conv`](super::patch_conv) and
//! [`attention`](super::attention): rten-gemm, which chooses its kernel (AVX-512, AVX2, NEON, portable) at run time.
//!
//! Every element is summed over k in one fixed order, independent of the other rows and columns and of the thread; the
//! executor's bitwise reproducibility relies on that.

use hipvit_graph::op::OpError;
pub(crate) use rten_gemm::PackedBMatrix;
use rten_gemm::{BiasVector, GemmExecutor, GemmInputA, GemmInputB, GemmOptions};
use rten_tensor::{Matrix, NdTensorView};

#[cfg(target_arch = "x86_64")]
use super::bf16;
use crate::tensor::DType;

/// What the CPU multiplies in linear layers and attention.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Products {
    /// Numbers in f32.
    F32,
    /// Numbers rounded to bf16.
    #[cfg(target_arch = "x86_64")]
    Bf16(bf16::Isa),
}

impl Products {
    /// With this compute precision: in bf16 where the processor has instructions for that.
    pub(crate) fn new(dtype: DType) -> Self {
        match dtype {
            #[cfg(target_arch = "x86_64")]
            DType::BF16 => bf16::Isa::best().map_or(Self::F32, Self::Bf16),
            _ => Self::F32,
        }
    }
}

/// Rows that the widest kernel computes at once; blocks of rows are multiples of it.
pub(crate) const ROW_TILE: usize = 6;

/// How rows are divided into blocks, which are tasks of threads.
pub(super) struct Blocks {
    /// The most rows of one.
    pub(super) most: usize,
    /// What one takes besides its rows, in rows.
    pub(super) overhead: usize,
}

impl Blocks {
    /// The rows of each of the equal blocks into which `rows` rows are divided, each of them for each of `parts`, and what the thread
    /// with the most work has to do, in rows: as little as can be, by larger blocks if smaller ones save nothing.
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

/// `x [.., K]` as a matrix whose rows begin `stride` elements apart.
pub(crate) fn strided(x: &[f32], rows: usize, columns: usize, stride: usize) -> Result<Matrix<'_>, OpError> {
    NdTensorView::from_slice_with_strides([rows, columns], x, [stride, 1]).map_err(OpError::memory)
}

/// Prepacks the right-hand side `b` for many GEMMs.
pub(crate) fn prepack(b: Matrix<'_>) -> PackedBMatrix<f32> {
    // Creating an executor selects the kernel, which is cheap.
    GemmExecutor::new().prepack_b(b)
}

/// What is applied to the result of a GEMM.
#[derive(Clone, Copy)]
pub(crate) struct Epilogue<'a> {
    /// Multiplies the result.
    pub(crate) scale: f32,
    /// Added to every row.
    pub(crate) bias: Option<&'a [f32]>,
}

/// `out = scale · a·b + bias`; `out` is `[M,N]`, contiguous.
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
