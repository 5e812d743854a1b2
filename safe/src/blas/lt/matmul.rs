//! Description of a GEMM for hipBLASLt: operation, matrices, and algorithms to select from.

use std::fmt;
use std::ptr;

use hipvit_sys::Hipblaslt;
use hipvit_sys::hip::hipDataType;
use hipvit_sys::hipblaslt::{
    hipblasComputeType_t, hipblasLtMatmulDesc_t, hipblasLtMatmulDescAttributes_t as Attribute,
    hipblasLtMatmulHeuristicResult_t, hipblasLtMatmulMatrixScale_t, hipblasLtMatrixLayout_t,
    hipblasLtMatrixLayoutAttribute_t, hipblasOperation_t,
};

use crate::address::DeviceAddress;
use crate::blas::{Epilogue, Gemm, Matrix, Scaling, int};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::libraries;
use crate::status::call;

/// Placeholder address for factors and the auxiliary matrix until the GEMM runs, with the alignment that cuBLASLt requires.
const PLACEHOLDER_ADDRESS: DeviceAddress = DeviceAddress::from_raw(256);

pub(super) const AMAX: Attribute = Attribute::HIPBLASLT_MATMUL_DESC_AMAX_D_POINTER;

/// A prepared GEMM of hipBLASLt.
pub struct Matmul {
    pub(super) device: Device,
    pub(super) gemm: Gemm,
    pub(super) epilogue: Epilogue,
    pub(super) description: hipblasLtMatmulDesc_t,
    /// Layouts of B, A, C and D. The library calls the first two A and B.
    pub(super) layouts: [hipblasLtMatrixLayout_t; 4],
    pub(super) algorithms: Vec<hipblasLtMatmulHeuristicResult_t>,
    pub(super) selected: usize,
}

// SAFETY: descriptions are host memory of the library, used by one thread at a time.
unsafe impl Send for Matmul {}

impl Matmul {
    /// Creates the description and the layouts, without an algorithm.
    pub(super) fn new(device: &Device, table: &Hipblaslt, gemm: Gemm, epilogue: Epilogue) -> Result<Self> {
        let [stored_a, stored_b, stored_c] = gemm.stored();
        let mut matmul = Self {
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
        // The library is column-major, so the factors are exchanged.
        matmul.set(Attribute::HIPBLASLT_MATMUL_DESC_TRANSA, &operation(&gemm.b))?;
        matmul.set(Attribute::HIPBLASLT_MATMUL_DESC_TRANSB, &operation(&gemm.a))?;
        matmul.set(Attribute::HIPBLASLT_MATMUL_DESC_EPILOGUE, &epilogue.raw())?;
        if epilogue.has_bias() {
            matmul.set(
                Attribute::HIPBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
                &datatype(gemm.bias()),
            )?;
        }
        if epilogue.has_aux() {
            if gemm.batch > 1 {
                return Err(Error::argument(
                    "epilogue",
                    "has an auxiliary matrix, which a batch does not",
                ));
            }
            let stride = i64::from(int(gemm.c.stride)?);
            matmul.set(Attribute::HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &stride)?;
            matmul.set(
                Attribute::HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                &PLACEHOLDER_ADDRESS,
            )?;
        }
        let matrices = [
            (&gemm.b, stored_b, gemm.inputs),
            (&gemm.a, stored_a, gemm.a_dtype()),
            (&gemm.c, stored_c, gemm.added()),
            (&gemm.c, stored_c, gemm.output),
        ];
        // The library selects kernels with or without factors by whether the pointers are set.
        for (attribute, count) in matmul.scale_pointers() {
            if count > 0 {
                matmul.set(attribute, &PLACEHOLDER_ADDRESS)?;
            }
        }
        if gemm.amax {
            matmul.set(AMAX, &PLACEHOLDER_ADDRESS)?;
        }
        if gemm.scaling == Scaling::Outer {
            let outer = hipblasLtMatmulMatrixScale_t::HIPBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
            matmul.set(Attribute::HIPBLASLT_MATMUL_DESC_A_SCALE_MODE, &outer)?;
            matmul.set(Attribute::HIPBLASLT_MATMUL_DESC_B_SCALE_MODE, &outer)?;
        }
        for (slot, (matrix, stored, dtype)) in matrices.into_iter().enumerate() {
            matmul.layouts[slot] = layout(device, table, matrix, stored, gemm.batch, dtype)?;
        }
        Ok(matmul)
    }

    /// Returns the number of algorithms to [select](Matmul::select) from, at least one.
    #[must_use]
    pub fn algorithms(&self) -> usize {
        self.algorithms.len()
    }

    /// Selects an algorithm. The first one is the default.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if there is no algorithm with this index.
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

    /// Sets the factor of C before A·B is added.
    pub fn set_beta(&mut self, beta: f32) {
        self.gemm.beta = beta;
    }

    /// Returns the bytes of workspace of the [selected](Matmul::select) algorithm.
    #[must_use]
    pub fn workspace(&self) -> usize {
        self.algorithms[self.selected].workspaceSize
    }

    /// Selects the algorithm of `other`, which was prepared for another number of rows. A row's result then does not depend on the number
    /// of rows, unless the algorithm divides the sum over `k` differently. Stream-K algorithms do, because they distribute the work by the
    /// number of tiles.
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

    /// Returns the attributes of the factors of B, A and the result, with the number of factors of each.
    pub(super) fn scale_pointers(&self) -> [(Attribute, usize); 3] {
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

    pub(super) fn set<T: Copy>(&mut self, attribute: Attribute, value: &T) -> Result<()> {
        let table = libraries::hipblaslt(&self.device)?;
        // SAFETY: the description is alive. The call copies as many bytes as the value has, which is the attribute's type.
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
        let Ok(table) = libraries::hipblaslt(&self.device) else {
            return;
        };
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

/// Describes a row-major matrix for the column-major library: rows and columns are exchanged.
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
        // SAFETY: the layout is alive; the calls copy an int and a 64-bit integer.
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
            // SAFETY: destroyed once, by its creator.
            device.park(unsafe { call!(device, table.hipblasLtMatrixLayoutDestroy(raw)) });
            return Err(error);
        }
    }
    Ok(raw)
}

fn operation(matrix: &Matrix) -> hipblasOperation_t {
    if !matrix.transposed {
        hipblasOperation_t::HIPBLAS_OP_N
    } else {
        hipblasOperation_t::HIPBLAS_OP_T
    }
}

fn datatype(dtype: DType) -> hipDataType {
    match dtype {
        DType::U8 => hipDataType::HIP_R_8U,
        DType::I8 => hipDataType::HIP_R_8I,
        DType::F8E4M3 => hipDataType::HIP_R_8F_E4M3,
        DType::F8E4M3Fnuz => hipDataType::HIP_R_8F_E4M3_FNUZ,
        DType::F8E5M2 => hipDataType::HIP_R_8F_E5M2,
        DType::F8E5M2Fnuz => hipDataType::HIP_R_8F_E5M2_FNUZ,
        DType::I32 => hipDataType::HIP_R_32I,
        DType::F32 => hipDataType::HIP_R_32F,
        DType::F16 => hipDataType::HIP_R_16F,
        DType::BF16 => hipDataType::HIP_R_16BF,
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
