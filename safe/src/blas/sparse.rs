//! hipSPARSELt: linear layers whose weight is 2:4 sparse and stored compressed.
//!
//! The library only supports extents that are multiples of 8. The rows beyond the last multiple are copied to scratch memory with
//! [`MULTIPLE`] rows, multiplied there, and copied back.

mod handle;
mod plan;

use std::fmt;
use std::ptr;

use hipvit_sys::hipsparselt::hipsparseOperation_t;

use self::handle::MULTIPLE;
pub use self::handle::{SparseGemm, SparseLt};
use self::plan::{Described, Plan};
use super::Epilogue;
use crate::address::DeviceAddress;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::libraries;
use crate::memory::buffer::DeviceBuffer;
use crate::memory::operand::Operand;
use crate::status::call;

/// Operands of a [`SparseMatmul`].
#[derive(Clone, Copy, Debug)]
pub struct SparseOperands<'a> {
    /// Dense factor.
    pub a: Operand<'a>,
    /// [Compressed](SparseLt::compress) weight.
    pub b: Operand<'a>,
    /// Residual, which is multiplied by `beta`. `None` uses `d`.
    pub c: Option<Operand<'a>>,
    /// Result.
    pub d: Operand<'a>,
    /// Bias, if the epilogue has one.
    pub bias: Option<Operand<'a>>,
}

impl SparseLt {
    /// Returns the library's version, in the format of `hipsparseLtGetVersion`.
    ///
    /// # Errors
    ///
    /// [`Error::Provider`] if the library lacks the call; [`Error::Device`] if it fails.
    pub fn version(&self) -> Result<i32> {
        let device = self.stream.device();
        let table = libraries::hipsparselt(device)?;
        let mut version = 0;
        // SAFETY: the handle is alive; the call writes one integer.
        unsafe { call!(device, table.hipsparseLtGetVersion(self.raw, &mut version)) }?;
        Ok(version)
    }

    /// Returns the bytes of a compressed weight `[n, k]`.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the library does not support the weight; [`Error::Device`] if it fails.
    pub fn compressed_bytes(&self, [n, k]: [usize; 2], dtype: DType) -> Result<usize> {
        Ok(self.weight([n, k], dtype)?.sizes(self)?[0])
    }

    /// Compresses a dense weight `[n, k]`. Along `k`, two of each four elements must be 0; otherwise the result is undefined.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the library does not support the weight or an operand is too small; [`Error::Device`] if the library fails.
    pub fn compress(
        &self,
        [n, k]: [usize; 2],
        dtype: DType,
        dense: Operand<'_>,
        compressed: Operand<'_>,
    ) -> Result<()> {
        let mut matrix = self.weight([n, k], dtype)?;
        let [bytes, buffer] = matrix.sizes(self)?;
        dense.expect("dense", n * k * dtype.size(), false)?;
        compressed.expect("compressed", bytes, true)?;
        let mut buffer: DeviceBuffer<u8> = self.stream.allocate(buffer.max(1))?;
        let buffer = buffer.writing();
        let device = self.stream.device();
        let table = libraries::hipsparselt(device)?;
        self.stream.keep(|| self.handle.clone());
        self.stream.submit(&[dense, compressed, buffer], |_| {
            // SAFETY: handle and descriptor are alive. `expect` ensured the sizes that the descriptor and the library
            // require.
            unsafe {
                call!(
                    device,
                    table.hipsparseLtSpMMACompress2(
                        self.raw,
                        matrix.raw(),
                        1,
                        hipsparseOperation_t::HIPSPARSE_OPERATION_TRANSPOSE,
                        dense.pointer(),
                        compressed.pointer(),
                        buffer.pointer(),
                        self.stream.raw(),
                    )
                )
            }
        })
    }

    /// Describes a weight for the library, whose matrices are column-major: a transposed `k`×`n` matrix.
    fn weight(&self, [n, k]: [usize; 2], dtype: DType) -> Result<Described> {
        SparseGemm::weight(n, k, dtype).check()?;
        Described::new(self, [k, n], dtype, true)
    }

    /// Prepares a GEMM with the library's default algorithm. `bias` is the address of the bias, or null if it is not known yet.
    /// The library plans for this address, so [`run`](Self::run) with a different bias plans again, which is slow.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the library does not support the weight; [`Error::Device`] if it has no algorithm for it.
    pub fn matmul(&self, gemm: SparseGemm, epilogue: Epilogue, bias: DeviceAddress) -> Result<SparseMatmul> {
        gemm.check()?;
        self.stream.device().enter()?;
        let SparseGemm { m, n, k, dtype, .. } = gemm;
        let rest = m % MULTIPLE;
        let whole = match m - rest {
            0 => None,
            rows => Some(Plan::new(self, SparseGemm { m: rows, ..gemm }, epilogue, bias)?),
        };
        let rest = match rest {
            0 => None,
            rows => Some(Rest {
                rows,
                plan: Plan::new(self, SparseGemm { m: MULTIPLE, ..gemm }, epilogue, bias)?,
                scratch: self.stream.zeroed(MULTIPLE * (k + n) * dtype.size())?,
            }),
        };
        Ok(SparseMatmul {
            gemm,
            epilogue,
            whole,
            rest,
        })
    }

    /// Submits a GEMM.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the operands do not fit the prepared GEMM; [`Error::Device`] if hipSPARSELt fails.
    pub fn run(&mut self, matmul: &mut SparseMatmul, operands: SparseOperands<'_>) -> Result<()> {
        let SparseMatmul {
            gemm,
            epilogue,
            whole,
            rest,
        } = matmul;
        let SparseGemm { m, n, k, dtype, .. } = *gemm;
        let size = dtype.size();
        operands.a.expect("A", m * k * size, false)?;
        operands.d.expect("C", m * n * size, true)?;
        let c = operands.c.unwrap_or(operands.d);
        if gemm.beta != 0.0 {
            c.expect("C", m * n * size, false)?;
        }
        let bias = if epilogue.has_bias() {
            let bias = operands
                .bias
                .ok_or_else(|| Error::argument("bias", "is needed by the epilogue"))?;
            bias.expect("bias", n * size, false)?;
            Some(bias)
        } else {
            None
        };
        let stream = self.stream.clone();
        if let Some(Rest { rows, plan, scratch }) = rest {
            // The remaining rows run first, because the result may overwrite the residual.
            let (first, rows) = (m - *rows, *rows);
            let scratch = scratch.writing();
            let result_at = MULTIPLE * k * size;
            let (a, d) = (
                scratch.part(0..result_at)?,
                scratch.part(result_at..scratch.bytes())?,
            );
            let last = |width: usize| first * width * size..m * width * size;
            let copy = |to, from: Operand<'_>, width: usize| {
                let bytes = width * size;
                stream.copy_rows((to, bytes), (from, bytes), bytes, rows)
            };
            copy(a, operands.a.part(last(k))?, k)?;
            if gemm.beta != 0.0 {
                copy(d, c.part(last(n))?, n)?;
            }
            self.submit(plan, [a, operands.b, d, d], bias)?;
            copy(operands.d.part(last(n))?, d, n)?;
        }
        match whole {
            Some(plan) => self.submit(plan, [operands.a, operands.b, c, operands.d], bias),
            None => Ok(()),
        }
    }

    /// Submits a plan on A, B, C and D. Sizes other than that of B were checked.
    fn submit(
        &mut self,
        plan: &mut Plan,
        [a, b, c, d]: [Operand<'_>; 4],
        bias: Option<Operand<'_>>,
    ) -> Result<()> {
        let stream = self.stream.clone();
        let device = stream.device();
        if *device != plan.device {
            return Err(Error::argument("matmul", "was prepared for a different device"));
        }
        b.expect("B", plan.compressed, false)?;
        plan.set_bias(self, bias.map_or(DeviceAddress::NULL, |bias| bias.address()))?;
        let table = libraries::hipsparselt(device)?;
        let workspace = self.workspace.writing();
        let used: Vec<Operand<'_>> = [a, b, c, d, workspace].into_iter().chain(bias).collect();
        stream.keep(|| self.handle.clone());
        let (raw, gemm) = (self.raw, plan.gemm);
        let mut streams = [stream.raw()];
        stream.submit(&used, |_| {
            // SAFETY: handle and plan are alive. The caller checked the sizes of the dense matrices, `expect` above that of the compressed
            // one. The plan's algorithm needs at most the given workspace. The scalars and the stream are read before the call returns.
            unsafe {
                call!(
                    device,
                    table.hipsparseLtMatmul(
                        raw,
                        plan.raw(),
                        ptr::from_ref(&1.0f32).cast(),
                        b.pointer(),
                        a.pointer(),
                        ptr::from_ref(&gemm.beta).cast(),
                        c.pointer(),
                        d.pointer(),
                        workspace.pointer(),
                        streams.as_mut_ptr(),
                        1,
                    )
                )
            }
        })
    }
}

/// A prepared GEMM of hipSPARSELt.
pub struct SparseMatmul {
    gemm: SparseGemm,
    epilogue: Epilogue,
    /// The plan for the rows up to the last multiple of [`MULTIPLE`].
    whole: Option<Plan>,
    rest: Option<Rest>,
}

/// Rows beyond the last multiple of [`MULTIPLE`].
struct Rest {
    rows: usize,
    plan: Plan,
    /// Memory of [`MULTIPLE`] rows of A, then of D.
    scratch: DeviceBuffer<u8>,
}

impl SparseMatmul {
    /// Returns the number of algorithms to [select](Self::select) from, at least one.
    #[must_use]
    pub fn algorithms(&self) -> usize {
        self.plans().map(|plan| plan.algorithms).min().unwrap_or(1)
    }

    /// Selects an algorithm. The remaining rows keep the default.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if there is no algorithm with this index or it needs more workspace than `lt` has; [`Error::Device`]
    /// if hipSPARSELt does not support it.
    pub fn select(&mut self, lt: &SparseLt, algorithm: usize) -> Result<()> {
        let plan = self
            .whole
            .as_mut()
            .or(self.rest.as_mut().map(|rest| &mut rest.plan));
        plan.map_or(Ok(()), |plan| plan.select(lt, algorithm))
    }

    /// Sets the factor of C before A·Bᵀ is added.
    pub fn set_beta(&mut self, beta: f32) {
        self.gemm.beta = beta;
        let rest = self.rest.as_mut().map(|rest| &mut rest.plan);
        for plan in self.whole.as_mut().into_iter().chain(rest) {
            plan.gemm.beta = beta;
        }
    }

    fn plans(&self) -> impl Iterator<Item = &Plan> {
        self.whole.iter().chain(self.rest.as_ref().map(|rest| &rest.plan))
    }
}

impl fmt::Debug for SparseMatmul {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SparseMatmul")
            .field("gemm", &self.gemm)
            .field("epilogue", &self.epilogue)
            .field("algorithms", &self.algorithms())
            .finish_non_exhaustive()
    }
}
