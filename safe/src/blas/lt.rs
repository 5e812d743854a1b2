//! hipBLASLt: GEMMs with fused bias, activation and scales. The algorithm is chosen by the library's heuristics or by measurement.

mod matmul;

use std::fmt;
use std::ptr;
use std::sync::Arc;

use hipvit_sys::Hipblaslt;
use hipvit_sys::hipblaslt::{
    hipblasLtHandle_t, hipblasLtMatmulDescAttributes_t as Attribute, hipblasLtMatmulHeuristicResult_t,
    hipblasLtMatmulPreference_t, hipblasLtMatmulPreferenceAttributes_t, hipblasStatus_t,
};

use self::matmul::AMAX;
pub use self::matmul::Matmul;
use super::{Epilogue, Gemm, WORKSPACE};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::libraries;
use crate::memory::buffer::DeviceBuffer;
use crate::memory::operand::Operand;
use crate::status::call;
use crate::stream::{Handle, Stream};

/// Number of algorithms requested from the heuristics. It is constant, so that an algorithm keeps its index.
const CANDIDATES: usize = 32;

/// A hipBLASLt handle on a stream.
pub struct BlasLt {
    stream: Stream,
    raw: hipblasLtHandle_t,
    handle: Arc<Handle>,
    workspace: DeviceBuffer<u8>,
}

// SAFETY: the handle may be used from any thread.
unsafe impl Send for BlasLt {}

/// Operands of a [`Matmul`].
#[derive(Clone, Copy, Debug)]
pub struct MatmulOperands<'a> {
    /// Left factor.
    pub a: Operand<'a>,
    /// Right factor.
    pub b: Operand<'a>,
    /// Residual, which is multiplied by `beta`. `None` uses `d`.
    pub c: Option<Operand<'a>>,
    /// Result, in the layout of `c`.
    pub d: Operand<'a>,
    /// Bias, if the epilogue has one.
    pub bias: Option<Operand<'a>>,
    /// Auxiliary matrix, if the epilogue has one.
    pub aux: Option<Operand<'a>>,
    /// Factors of the matrices.
    pub scales: Scales<'a>,
    /// Receives an f32. Required by [`Gemm::amax`].
    pub amax: Option<Operand<'a>>,
}

/// Factors in device memory, in f32, for matrices of narrow dtypes. Only those that [`Gemm::scaling`] requires may be set. cuBLASLt
/// requires an alignment of 16 bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scales<'a> {
    /// Factors of A.
    pub a: Option<Operand<'a>>,
    /// Factors of B.
    pub b: Option<Operand<'a>>,
    /// Factor of the result.
    pub d: Option<Operand<'a>>,
}

impl BlasLt {
    /// Creates a handle on `stream`, with a workspace of 32 MiB.
    ///
    /// # Errors
    ///
    /// [`Error::Provider`] if hipBLASLt cannot be opened; [`Error::Device`] if it fails.
    pub fn new(stream: &Stream) -> Result<Self> {
        Self::with_workspace(stream, WORKSPACE)
    }

    /// Creates a handle with a workspace of `bytes` bytes. Algorithms that need more are not used.
    ///
    /// # Errors
    ///
    /// [`Error::Provider`] if hipBLASLt cannot be opened; [`Error::Device`] if the GPU has too little memory or the library
    /// fails.
    pub fn with_workspace(stream: &Stream, bytes: usize) -> Result<Self> {
        let device = stream.device();
        let table = libraries::hipblaslt(device)?;
        let workspace = stream.allocate(bytes)?;
        let create = |device: &Device| {
            let mut raw = ptr::null_mut();
            // SAFETY: the call writes one handle. It ends the process if there is no GPU, but the device exists.
            unsafe { call!(device, table.hipblasLtCreate(&mut raw)) }?;
            Ok(raw)
        };
        let (raw, handle) = Handle::new(stream, create, |device, raw| {
            let table = libraries::hipblaslt(device)?;
            // SAFETY: destroyed once, when it is no longer used.
            unsafe { call!(device, table.hipblasLtDestroy(raw)) }
        })?;
        Ok(Self {
            stream: stream.clone(),
            raw,
            handle,
            workspace,
        })
    }

    /// Returns the stream that work is submitted to.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Returns the library's version, in the format of `hipblasLtGetVersion`.
    ///
    /// # Errors
    ///
    /// [`Error::Provider`] if the library lacks the call; [`Error::Device`] if it fails.
    pub fn version(&self) -> Result<i32> {
        let device = self.stream.device();
        let table = libraries::hipblaslt(device)?;
        let mut version = 0;
        // SAFETY: the handle is alive; the call writes one integer.
        unsafe { call!(device, table.hipblasLtGetVersion(self.raw, &mut version)) }?;
        Ok(version)
    }

    /// Prepares a GEMM: requests the algorithms that support it, sorted by expected speed.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if the library has no algorithm for the GEMM.
    pub fn matmul(&self, gemm: Gemm, epilogue: Epilogue) -> Result<Matmul> {
        let device = self.stream.device();
        let table = libraries::hipblaslt(device)?;
        device.enter()?;
        if gemm.output == DType::I32 {
            return Err(Error::argument("gemm", "sums of bytes are rocBLAS's here"));
        }
        let mut matmul = Matmul::new(device, table, gemm, epilogue)?;
        matmul.algorithms = self.candidates(table, &matmul)?;
        if matmul.algorithms.is_empty() {
            return Err(Error::Device {
                device: device.name().to_owned(),
                call: "hipblasLtMatmulAlgoGetHeuristic",
                status: format!("no algorithm for {gemm:?} with {epilogue:?}"),
                advice: String::new(),
            });
        }
        Ok(matmul)
    }

    fn candidates(
        &self,
        table: &Hipblaslt,
        matmul: &Matmul,
    ) -> Result<Vec<hipblasLtMatmulHeuristicResult_t>> {
        let device = self.stream.device();
        let mut preference = Preference {
            device,
            table,
            raw: ptr::null_mut(),
        };
        let workspace = self.workspace.bytes();
        let mut results = [hipblasLtMatmulHeuristicResult_t::default(); CANDIDATES];
        let mut count = 0;
        let [first, second, added, result] = matmul.layouts;
        // SAFETY: the calls write one handle, read one size, and write at most the requested number of results and their count.
        unsafe {
            call!(device, table.hipblasLtMatmulPreferenceCreate(&mut preference.raw))?;
            call!(
                device,
                table.hipblasLtMatmulPreferenceSetAttribute(
                    preference.raw,
                    hipblasLtMatmulPreferenceAttributes_t::HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                    ptr::from_ref(&workspace).cast(),
                    size_of_val(&workspace),
                )
            )?;
            call!(
                device,
                table.hipblasLtMatmulAlgoGetHeuristic(
                    self.raw,
                    matmul.description,
                    first,
                    second,
                    added,
                    result,
                    preference.raw,
                    CANDIDATES as i32,
                    results.as_mut_ptr(),
                    &mut count,
                )
            )?;
        }
        let count = usize::try_from(count).unwrap_or(0);
        let usable = |r: &&hipblasLtMatmulHeuristicResult_t| {
            r.state == hipblasStatus_t::HIPBLAS_STATUS_SUCCESS && r.workspaceSize <= workspace
        };
        Ok(results.iter().take(count).filter(usable).copied().collect())
    }

    /// Submits a GEMM.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the operands do not fit the prepared GEMM; [`Error::Device`] if hipBLASLt fails.
    pub fn run(&mut self, matmul: &mut Matmul, operands: MatmulOperands<'_>) -> Result<()> {
        let stream = self.stream.clone();
        let device = stream.device();
        if *device != matmul.device {
            return Err(Error::argument("matmul", "was prepared for a different device"));
        }
        let MatmulOperands {
            a,
            b,
            c,
            d,
            bias,
            aux,
            scales,
            amax,
        } = operands;
        let c = c.unwrap_or(d);
        let bytes = matmul.gemm.check(&a, &b, &d)?;
        // With beta 0, C is not read.
        if matmul.gemm.beta != 0.0 {
            let (added, output) = (matmul.gemm.added(), matmul.gemm.output);
            c.expect("C", bytes / output.size() * added.size(), false)?;
        }
        let workspace = self.workspace.writing();
        let mut used = vec![a, b, c, d, workspace];
        if matmul.epilogue.has_bias() {
            let bias = bias.ok_or_else(|| Error::argument("bias", "is needed by the epilogue"))?;
            let elements = matmul.epilogue.bias_elements(&matmul.gemm);
            bias.expect("bias", elements * matmul.gemm.bias().size(), false)?;
            matmul.set(Attribute::HIPBLASLT_MATMUL_DESC_BIAS_POINTER, &bias.address())?;
            used.push(bias);
        }
        if matmul.epilogue.has_aux() {
            let aux = aux.ok_or_else(|| Error::argument("aux", "is needed by the epilogue"))?;
            aux.expect("aux", bytes, matmul.epilogue.writes_aux())?;
            matmul.set(
                Attribute::HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                &aux.address(),
            )?;
            used.push(aux);
        }
        for ((attribute, count), scale) in matmul
            .scale_pointers()
            .into_iter()
            .zip([scales.b, scales.a, scales.d])
        {
            match scale {
                Some(scale) if count > 0 => {
                    scale.expect("scale", count * size_of::<f32>(), false)?;
                    matmul.set(attribute, &scale.address())?;
                    used.push(scale);
                }
                None if count == 0 => {}
                _ => {
                    let reason = format!("are not those of {:?} scaling", matmul.gemm.scaling);
                    return Err(Error::argument("scales", reason));
                }
            }
        }
        match amax {
            Some(amax) if matmul.gemm.amax => {
                amax.expect("amax", size_of::<f32>(), true)?;
                matmul.set(AMAX, &amax.address())?;
                used.push(amax);
            }
            None if !matmul.gemm.amax => {}
            _ => {
                return Err(Error::argument(
                    "amax",
                    "is what the GEMM asks for, and nothing else",
                ));
            }
        }
        let table = libraries::hipblaslt(device)?;
        let [first, second, added, result] = matmul.layouts;
        let chosen = &matmul.algorithms[matmul.selected];
        let (raw, gemm) = (self.raw, &matmul.gemm);
        stream.keep(|| self.handle.clone());
        stream.submit(&used, |_| {
            // SAFETY: all handles are alive. `check` ensured that the matrices are within the operands, the checks above that the vectors
            // are. The algorithm was chosen for this description and this workspace. The scalars are read before the call returns.
            unsafe {
                call!(
                    device,
                    table.hipblasLtMatmul(
                        raw,
                        matmul.description,
                        ptr::from_ref(&gemm.alpha).cast(),
                        b.pointer(),
                        first,
                        a.pointer(),
                        second,
                        ptr::from_ref(&gemm.beta).cast(),
                        c.pointer(),
                        added,
                        d.pointer(),
                        result,
                        &chosen.algo,
                        workspace.pointer(),
                        workspace.bytes(),
                        stream.raw(),
                    )
                )
            }
        })
    }
}

struct Preference<'a> {
    device: &'a Device,
    table: &'a Hipblaslt,
    raw: hipblasLtMatmulPreference_t,
}

impl Drop for Preference<'_> {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            let Self { device, table, raw } = *self;
            // SAFETY: destroyed once, by its owner.
            device.park(unsafe { call!(device, table.hipblasLtMatmulPreferenceDestroy(raw)) });
        }
    }
}

impl fmt::Debug for BlasLt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BlasLt").field(&self.stream).finish()
    }
}
