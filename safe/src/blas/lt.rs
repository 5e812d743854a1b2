//! hipBLASLt: GEMMs with a fused bias, activation and scales, by the algorithm that its heuristics or a measurement
//! prefer.

use std::fmt;
use std::ptr;
use std::sync::Arc;

use hipvit_sys::Hipblaslt;
use hipvit_sys::hip::hipDataType;
use hipvit_sys::hipblaslt::{
    hipblasComputeType_t, hipblasLtEpilogue_t, hipblasLtHandle_t, hipblasLtMatmulDesc_t,
    hipblasLtMatmulDescAttributes_t as Attribute, hipblasLtMatmulHeuristicResult_t,
    hipblasLtMatmulMatrixScale_t, hipblasLtMatmulPreference_t, hipblasLtMatmulPreferenceAttributes_t,
    hipblasLtMatrixLayout_t, hipblasLtMatrixLayoutAttribute_t, hipblasOperation_t, hipblasStatus_t,
};

use super::{Gemm, Matrix, Scaling, WORKSPACE, int};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::memory::buffer::DeviceBuffer;
use crate::memory::operand::Operand;
use crate::status::{call, missing};
use crate::stream::{Handle, Stream};

/// How many algorithms the heuristics are asked for. Always as many, so that an algorithm's number stays its own.
const CANDIDATES: usize = 32;

/// Of factors before there are any: the library reads them when it runs. As aligned as cuBLASLt wants them.
const SOME_POINTER: u64 = 256;

const AMAX: Attribute = Attribute::HIPBLASLT_MATMUL_DESC_AMAX_D_POINTER;

/// hipBLASLt on one stream.
pub struct BlasLt {
    stream: Stream,
    raw: hipblasLtHandle_t,
    handle: Arc<Handle>,
    workspace: DeviceBuffer<u8>,
}

// SAFETY: the handle may be used from any thread.
unsafe impl Send for BlasLt {}

/// What is done to the result of a GEMM before it is written. The bias is a vector of `n`, of the output's element type, or
/// [`Gemm::wide`] where A and B are E4M3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Epilogue {
    /// Nothing.
    None,
    /// The bias is added.
    Bias,
    /// GELU, in the tanh form.
    Gelu,
    /// The bias is added, then GELU in the tanh form.
    BiasGelu,
    /// The bias is added, then ReLU.
    BiasRelu,
}

impl Epilogue {
    pub(super) fn has_bias(self) -> bool {
        matches!(self, Self::Bias | Self::BiasGelu | Self::BiasRelu)
    }

    fn raw(self) -> hipblasLtEpilogue_t {
        match self {
            Self::None => hipblasLtEpilogue_t::HIPBLASLT_EPILOGUE_DEFAULT,
            Self::Bias => hipblasLtEpilogue_t::HIPBLASLT_EPILOGUE_BIAS,
            Self::Gelu => hipblasLtEpilogue_t::HIPBLASLT_EPILOGUE_GELU,
            Self::BiasGelu => hipblasLtEpilogue_t::HIPBLASLT_EPILOGUE_GELU_BIAS,
            Self::BiasRelu => hipblasLtEpilogue_t::HIPBLASLT_EPILOGUE_RELU_BIAS,
        }
    }
}

/// What a [`Matmul`] works on.
#[derive(Clone, Copy, Debug)]
pub struct MatmulOperands<'a> {
    /// The left factor.
    pub a: Operand<'a>,
    /// The right factor.
    pub b: Operand<'a>,
    /// What `beta` scales: the residual. `None` takes `d`.
    pub c: Option<Operand<'a>>,
    /// The result; lies as `c` does.
    pub d: Operand<'a>,
    /// The bias, if the epilogue has one.
    pub bias: Option<Operand<'a>>,
    /// What the matrices are multiplied by.
    pub scales: Scales<'a>,
    /// Receives an f32, if [`Gemm::amax`] asks for it.
    pub amax: Option<Operand<'a>>,
}

/// Factors in device memory, f32, for matrices of narrow types: those of [`Gemm::scaling`], and no others. cuBLASLt wants them aligned
/// to 16 bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scales<'a> {
    /// Of A.
    pub a: Option<Operand<'a>>,
    /// Of B.
    pub b: Option<Operand<'a>>,
    /// Of the result.
    pub d: Option<Operand<'a>>,
}

impl BlasLt {
    /// hipBLASLt on `stream`, with a workspace of 32 MiB there.
    ///
    /// # Errors
    ///
    /// [`Error::Provider`] if hipBLASLt cannot be opened; what it says otherwise.
    pub fn new(stream: &Stream) -> Result<Self> {
        Self::with_workspace(stream, WORKSPACE)
    }

    /// The same with a workspace of `bytes`; algorithms that need more are left out.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_workspace(stream: &Stream, bytes: usize) -> Result<Self> {
        let device = stream.device();
        let table = table(device)?;
        let workspace = stream.allocate(bytes)?;
        let create = |device: &Device| {
            let mut raw = ptr::null_mut();
            // SAFETY: the call writes one handle. It ends the process where there is no GPU, and there is one.
            unsafe { call!(device, table.hipblasLtCreate(&mut raw)) }?;
            Ok(raw)
        };
        let (raw, handle) = Handle::new(stream, create, |device, raw| {
            let table = self::table(device)?;
            // SAFETY: destroyed once, when nothing uses it any more.
            unsafe { call!(device, table.hipblasLtDestroy(raw)) }
        })?;
        Ok(Self {
            stream: stream.clone(),
            raw,
            handle,
            workspace,
        })
    }

    /// The stream that it submits to.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The library's version, as `hipblasLtGetVersion` counts it.
    ///
    /// # Errors
    ///
    /// [`Error::Provider`] if the library lacks the call; what it says otherwise.
    pub fn version(&self) -> Result<i32> {
        let device = self.stream.device();
        let table = table(device)?;
        let mut version = 0;
        // SAFETY: the handle lives; the call writes one integer.
        unsafe { call!(device, table.hipblasLtGetVersion(self.raw, &mut version)) }?;
        Ok(version)
    }

    /// Prepares a GEMM: asks for the algorithms that fit, the likely fastest first.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if the library has no algorithm for it.
    pub fn matmul(&self, gemm: Gemm, epilogue: Epilogue) -> Result<Matmul> {
        let device = self.stream.device();
        let table = table(device)?;
        device.enter()?;
        if gemm.output == DType::I32 {
            return Err(Error::argument("gemm", "sums of bytes are rocBLAS's here"));
        }
        let [stored_a, stored_b, stored_c] = gemm.stored();
        let mut matmul = Matmul {
            device: device.clone(),
            gemm,
            epilogue,
            description: ptr::null_mut(),
            layouts: [ptr::null_mut(); 4],
            algorithms: Vec::new(),
            selected: 0,
        };
        let compute = hipblasComputeType_t::HIPBLAS_COMPUTE_32F;
        // SAFETY: the call writes one handle.
        unsafe {
            call!(
                device,
                table.hipblasLtMatmulDescCreate(&mut matmul.description, compute, hipDataType::HIP_R_32F)
            )
        }?;
        // Column-major, the factors swap.
        matmul.set(Attribute::HIPBLASLT_MATMUL_DESC_TRANSA, &operation(&gemm.b))?;
        matmul.set(Attribute::HIPBLASLT_MATMUL_DESC_TRANSB, &operation(&gemm.a))?;
        matmul.set(Attribute::HIPBLASLT_MATMUL_DESC_EPILOGUE, &epilogue.raw())?;
        if epilogue.has_bias() {
            matmul.set(
                Attribute::HIPBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
                &datatype(gemm.bias()),
            )?;
        }
        let matrices = [
            (&gemm.b, stored_b, gemm.inputs),
            (&gemm.a, stored_a, gemm.inputs),
            (&gemm.c, stored_c, gemm.added()),
            (&gemm.c, stored_c, gemm.output),
        ];
        // The library has kernels with and without factors, and chooses by whether there are pointers.
        for (attribute, count) in matmul.scale_pointers() {
            if count > 0 {
                matmul.set(attribute, &SOME_POINTER)?;
            }
        }
        if gemm.amax {
            matmul.set(AMAX, &SOME_POINTER)?;
        }
        if gemm.scaling == Scaling::Outer {
            let outer = hipblasLtMatmulMatrixScale_t::HIPBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
            matmul.set(Attribute::HIPBLASLT_MATMUL_DESC_A_SCALE_MODE, &outer)?;
            matmul.set(Attribute::HIPBLASLT_MATMUL_DESC_B_SCALE_MODE, &outer)?;
        }
        for (slot, (matrix, stored, dtype)) in matrices.into_iter().enumerate() {
            matmul.layouts[slot] = layout(device, table, matrix, stored, gemm.batch, dtype)?;
        }
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
        // SAFETY: the calls write one handle, read one size, and write as many results as they are told and their count.
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
    /// [`Error::Argument`] if the operands do not fit what it was prepared for; what hipBLASLt says.
    pub fn run(&mut self, matmul: &mut Matmul, operands: MatmulOperands<'_>) -> Result<()> {
        let stream = self.stream.clone();
        let device = stream.device();
        if *device != matmul.device {
            return Err(Error::argument("matmul", "was prepared for another device"));
        }
        let MatmulOperands {
            a,
            b,
            c,
            d,
            bias,
            scales,
            amax,
        } = operands;
        let c = c.unwrap_or(d);
        let bytes = matmul.gemm.check(&a, &b, &d)?;
        // With beta 0 C is not read.
        if matmul.gemm.beta != 0.0 {
            let (added, output) = (matmul.gemm.added(), matmul.gemm.output);
            c.expect("C", bytes / output.size() * added.size(), false)?;
        }
        let workspace = self.workspace.writing();
        let mut used = vec![a, b, c, d, workspace];
        if matmul.epilogue.has_bias() {
            let bias = bias.ok_or_else(|| Error::argument("bias", "is needed by the epilogue"))?;
            bias.expect("bias", matmul.gemm.n * matmul.gemm.bias().size(), false)?;
            matmul.set(Attribute::HIPBLASLT_MATMUL_DESC_BIAS_POINTER, &bias.address())?;
            used.push(bias);
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
        let table = table(device)?;
        let [first, second, added, result] = matmul.layouts;
        let chosen = &matmul.algorithms[matmul.selected];
        let (raw, gemm) = (self.raw, &matmul.gemm);
        stream.keep(|| self.handle.clone());
        stream.submit(&used, |_| {
            // SAFETY: all handles live; `check` saw that the matrices lie in the operands, the checks above that the
            // vectors do; the algorithm was chosen for this description and this much workspace; the scalars are read
            // before the call returns.
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

/// A prepared GEMM of hipBLASLt.
pub struct Matmul {
    device: Device,
    gemm: Gemm,
    epilogue: Epilogue,
    description: hipblasLtMatmulDesc_t,
    /// Of B, A, C and D, the first two of which are the library's A and B.
    layouts: [hipblasLtMatrixLayout_t; 4],
    algorithms: Vec<hipblasLtMatmulHeuristicResult_t>,
    selected: usize,
}

// SAFETY: descriptions are plain host memory of the library's, used by one thread at a time.
unsafe impl Send for Matmul {}

impl Matmul {
    /// How many algorithms there are to [select](Matmul::select) from; at least one.
    #[must_use]
    pub fn algorithms(&self) -> usize {
        self.algorithms.len()
    }

    /// Takes another algorithm than the first.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if there are not so many.
    pub fn select(&mut self, algorithm: usize) -> Result<()> {
        if algorithm >= self.algorithms.len() {
            return Err(Error::argument(
                "algorithm",
                format!("{algorithm}, of {}", self.algorithms.len()),
            ));
        }
        self.selected = algorithm;
        Ok(())
    }

    /// Sets what C is multiplied by before A·B is added.
    pub fn set_beta(&mut self, beta: f32) {
        self.gemm.beta = beta;
    }

    /// The workspace of the [selected](Matmul::select) algorithm, in bytes.
    #[must_use]
    pub fn workspace(&self) -> usize {
        self.algorithms[self.selected].workspaceSize
    }

    /// Computes by the selected algorithm of `other`, which was prepared for another number of rows. Where the algorithm
    /// divides the sum over `k` the same way for any number of rows, a row's result does not depend on how many there are;
    /// one that distributes the work by the number of tiles (Stream-K) does not.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the two differ in more than `m`.
    pub fn pin(&mut self, other: &Self) -> Result<()> {
        let alike = Gemm {
            m: self.gemm.m,
            ..other.gemm
        };
        if alike != self.gemm || other.epilogue != self.epilogue || other.device != self.device {
            return Err(Error::argument(
                "matmul",
                "differs in more than the number of rows",
            ));
        }
        self.algorithms = vec![other.algorithms[other.selected]];
        self.selected = 0;
        Ok(())
    }

    /// The attributes of the factors of B, A and the result, and how many factors each has.
    fn scale_pointers(&self) -> [(Attribute, usize); 3] {
        let Gemm { m, n, output, .. } = self.gemm;
        let [columns, rows, result] = match self.gemm.scaling {
            Scaling::None => [0; 3],
            Scaling::Tensor => [1, 1, usize::from(output.size() == 1)],
            Scaling::Outer => [n, m, 0],
        };
        [
            (Attribute::HIPBLASLT_MATMUL_DESC_A_SCALE_POINTER, columns),
            (Attribute::HIPBLASLT_MATMUL_DESC_B_SCALE_POINTER, rows),
            (Attribute::HIPBLASLT_MATMUL_DESC_D_SCALE_POINTER, result),
        ]
    }

    fn set<T: Copy>(&mut self, attribute: Attribute, value: &T) -> Result<()> {
        let table = table(&self.device)?;
        // SAFETY: the description lives; the call copies as many bytes as the value has, which is the attribute's type.
        unsafe {
            call!(
                self.device,
                table.hipblasLtMatmulDescSetAttribute(
                    self.description,
                    attribute,
                    ptr::from_ref(value).cast(),
                    size_of::<T>(),
                )
            )
        }
    }
}

impl Drop for Matmul {
    fn drop(&mut self) {
        let Ok(table) = table(&self.device) else { return };
        for layout in self.layouts.into_iter().filter(|layout| !layout.is_null()) {
            // SAFETY: destroyed once, by its owner.
            let result = unsafe { call!(self.device, table.hipblasLtMatrixLayoutDestroy(layout)) };
            self.device.park(result);
        }
        if !self.description.is_null() {
            // SAFETY: destroyed once, by its owner.
            let result = unsafe { call!(self.device, table.hipblasLtMatmulDescDestroy(self.description)) };
            self.device.park(result);
        }
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

fn table(device: &Device) -> Result<&Hipblaslt> {
    device
        .runtime()
        .provider()
        .hipblaslt()
        .map_err(|error| missing(&error))
}

/// A row-major matrix as the library sees it: column-major, so rows and columns swap.
fn layout(
    device: &Device,
    table: &Hipblaslt,
    matrix: &Matrix,
    (rows, columns): (usize, usize),
    batch: usize,
    dtype: DType,
) -> Result<hipblasLtMatrixLayout_t> {
    let mut raw = ptr::null_mut();
    let stride = i64::from(int(matrix.stride)?);
    // SAFETY: the call writes one handle.
    unsafe {
        call!(
            device,
            table.hipblasLtMatrixLayoutCreate(&mut raw, datatype(dtype), columns as u64, rows as u64, stride)
        )
    }?;
    if batch > 1 {
        let (count, offset) = (int(batch)?, matrix.batch_stride as i64);
        // SAFETY: the layout lives; the calls copy an int and a 64-bit integer.
        let set = unsafe {
            call!(
                device,
                table.hipblasLtMatrixLayoutSetAttribute(
                    raw,
                    hipblasLtMatrixLayoutAttribute_t::HIPBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                    ptr::from_ref(&count).cast(),
                    size_of_val(&count),
                )
            )
            .and(call!(
                device,
                table.hipblasLtMatrixLayoutSetAttribute(
                    raw,
                    hipblasLtMatrixLayoutAttribute_t::HIPBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                    ptr::from_ref(&offset).cast(),
                    size_of_val(&offset),
                )
            ))
        };
        if let Err(error) = set {
            // SAFETY: destroyed once, by its maker.
            device.park(unsafe { call!(device, table.hipblasLtMatrixLayoutDestroy(raw)) });
            return Err(error);
        }
    }
    Ok(raw)
}

fn operation(matrix: &Matrix) -> hipblasOperation_t {
    match matrix.transposed {
        false => hipblasOperation_t::HIPBLAS_OP_N,
        true => hipblasOperation_t::HIPBLAS_OP_T,
    }
}

fn datatype(dtype: DType) -> hipDataType {
    match dtype {
        DType::U8 => hipDataType::HIP_R_8U,
        DType::I8 => hipDataType::HIP_R_8I,
        DType::F8E4M3 => hipDataType::HIP_R_8F_E4M3,
        DType::F8E4M3Fnuz => hipDataType::HIP_R_8F_E4M3_FNUZ,
        DType::I32 => hipDataType::HIP_R_32I,
        DType::F32 => hipDataType::HIP_R_32F,
        DType::F16 => hipDataType::HIP_R_16F,
        DType::BF16 => hipDataType::HIP_R_16BF,
    }
}

impl fmt::Debug for BlasLt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BlasLt").field(&self.stream).finish()
    }
}

impl fmt::Debug for Matmul {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Matmul")
            .field("gemm", &self.gemm)
            .field("epilogue", &self.epilogue)
            .field("algorithms", &self.algorithms.len())
            .field("selected", &self.selected)
            .finish()
    }
}
