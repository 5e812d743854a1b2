//! A GEMM that the library can run, and the objects that describe it.

use std::ptr;

use hipvit_sys::hip::hipDataType;
use hipvit_sys::hipsparselt::{
    hipsparseLtComputetype_t, hipsparseLtMatDescriptor_t, hipsparseLtMatmulAlg_t,
    hipsparseLtMatmulAlgAttribute_t as AlgorithmAttribute, hipsparseLtMatmulAlgSelection_t,
    hipsparseLtMatmulDescAttribute_t as Attribute, hipsparseLtMatmulDescriptor_t, hipsparseLtMatmulPlan_t,
    hipsparseLtSparsity_t, hipsparseOperation_t, hipsparseOrder_t,
};

use super::handle::{Object, SparseGemm, SparseLt};
use crate::address::DeviceAddress;
use crate::blas::{Epilogue, int};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::libraries;
use crate::status::call;

/// Alignment in bytes of the library's operands.
const ALIGNMENT: u32 = 16;

/// A call of the library, for a multiple of 8 rows.
pub(super) struct Plan {
    pub(super) device: Device,
    pub(super) gemm: SparseGemm,
    epilogue: Epilogue,
    pub(super) algorithms: usize,
    /// `None` for the library's default.
    algorithm: Option<usize>,
    /// Bytes of the compressed weight.
    pub(super) compressed: usize,
    /// Address of the bias.
    bias: DeviceAddress,
    objects: Box<Objects>,
    is_made: bool,
}

// SAFETY: descriptions are host memory of the library, used by one thread at a time.
unsafe impl Send for Plan {}

/// Objects that point to each other, so they must not move.
struct Objects {
    /// Descriptors of the weight, of A, and of C and D, from the view of the library.
    matrices: [Described; 3],
    description: Object<hipsparseLtMatmulDescriptor_t>,
    selection: Object<hipsparseLtMatmulAlgSelection_t>,
    plan: Object<hipsparseLtMatmulPlan_t>,
}

impl Plan {
    /// Creates a plan with the default algorithm.
    pub(super) fn new(
        lt: &SparseLt,
        gemm: SparseGemm,
        epilogue: Epilogue,
        bias: DeviceAddress,
    ) -> Result<Self> {
        // Any address shows whether the library supports the GEMM.
        let bias = if bias.is_null() {
            lt.workspace.address()
        } else {
            bias
        };
        Self::with(lt, gemm, epilogue, bias, None)
    }

    fn with(
        lt: &SparseLt,
        gemm: SparseGemm,
        epilogue: Epilogue,
        bias: DeviceAddress,
        algorithm: Option<usize>,
    ) -> Result<Self> {
        let device = lt.stream.device();
        let table = libraries::hipsparselt(device)?;
        let SparseGemm { m, n, k, dtype, .. } = gemm;
        // The library is column-major: the factors are exchanged, and each matrix is the transpose of its rows.
        let mut objects = Box::new(Objects {
            matrices: [
                Described::new(lt, [k, n], dtype, true)?,
                Described::new(lt, [k, m], dtype, false)?,
                Described::new(lt, [n, m], dtype, false)?,
            ],
            description: Object::new(),
            selection: Object::new(),
            plan: Object::new(),
        });
        let [compressed, _] = objects.matrices[0].sizes(lt)?;
        let Objects {
            matrices: [weight, dense, result],
            description,
            selection,
            ..
        } = &mut *objects;
        // SAFETY: the handle and the descriptors are alive; the call writes the description.
        unsafe {
            call!(
                device,
                table.hipsparseLtMatmulDescriptorInit(
                    lt.raw,
                    description.get(),
                    hipsparseOperation_t::HIPSPARSE_OPERATION_TRANSPOSE,
                    hipsparseOperation_t::HIPSPARSE_OPERATION_NON_TRANSPOSE,
                    weight.raw(),
                    dense.raw(),
                    result.raw(),
                    result.raw(),
                    hipsparseLtComputetype_t::HIPSPARSELT_COMPUTE_32F,
                )
            )
        }?;
        let activation = match epilogue {
            Epilogue::None | Epilogue::Bias => None,
            Epilogue::Gelu | Epilogue::BiasGelu => Some(Attribute::HIPSPARSELT_MATMUL_ACTIVATION_GELU),
            Epilogue::BiasRelu => Some(Attribute::HIPSPARSELT_MATMUL_ACTIVATION_RELU),
            Epilogue::GeluAux | Epilogue::BiasGeluAux | Epilogue::GeluGradient | Epilogue::BiasGradient => {
                return Err(Error::argument(
                    "epilogue",
                    "hipSPARSELt has none for the gradients of a layer",
                ));
            }
        };
        if let Some(attribute) = activation {
            set(lt, description, attribute, &1i32)?;
        }
        if epilogue.has_bias() {
            set(lt, description, Attribute::HIPSPARSELT_MATMUL_BIAS_POINTER, &bias)?;
        }
        let mut count = 0i32;
        let number = algorithm.unwrap_or(0) as i32;
        // SAFETY: handle and description are alive. The calls write the selection and its int, and read an int into it.
        unsafe {
            call!(
                device,
                table.hipsparseLtMatmulAlgSelectionInit(
                    lt.raw,
                    selection.get(),
                    description.get(),
                    hipsparseLtMatmulAlg_t::HIPSPARSELT_MATMUL_ALG_DEFAULT,
                )
            )?;
            call!(
                device,
                table.hipsparseLtMatmulAlgGetAttribute(
                    lt.raw,
                    selection.get(),
                    AlgorithmAttribute::HIPSPARSELT_MATMUL_ALG_CONFIG_MAX_ID,
                    ptr::from_mut(&mut count).cast(),
                    size_of_val(&count),
                )
            )?;
            if algorithm.is_some() {
                call!(
                    device,
                    table.hipsparseLtMatmulAlgSetAttribute(
                        lt.raw,
                        selection.get(),
                        AlgorithmAttribute::HIPSPARSELT_MATMUL_ALG_CONFIG_ID,
                        ptr::from_ref(&number).cast(),
                        size_of_val(&number),
                    )
                )?;
            }
        }
        let mut plan = Self {
            device: device.clone(),
            gemm,
            epilogue,
            algorithms: usize::try_from(count).unwrap_or(0).max(1),
            algorithm,
            compressed,
            bias,
            objects,
            is_made: false,
        };
        plan.make(lt)?;
        Ok(plan)
    }

    fn make(&mut self, lt: &SparseLt) -> Result<()> {
        let table = libraries::hipsparselt(&self.device)?;
        let Objects {
            description,
            selection,
            plan,
            ..
        } = &mut *self.objects;
        // SAFETY: handle, description and selection are alive; the call writes the plan.
        unsafe {
            call!(
                self.device,
                table.hipsparseLtMatmulPlanInit(lt.raw, plan.get(), description.get(), selection.get())
            )
        }?;
        self.is_made = true;
        let mut bytes = 0;
        // SAFETY: the plan is alive; the call writes one size.
        unsafe {
            call!(
                self.device,
                table.hipsparseLtMatmulGetWorkspace(lt.raw, self.objects.plan.get(), &mut bytes)
            )
        }?;
        if bytes <= lt.workspace.bytes() {
            Ok(())
        } else {
            Err(Error::argument(
                "algorithm",
                format!("needs {bytes} bytes of workspace, of {}", lt.workspace.bytes()),
            ))
        }
    }

    /// Recreates all objects with this bias, if there is one. cuSPARSELt 0.8 crashes if a selection is reused after its plan was destroyed.
    pub(super) fn set_bias(&mut self, lt: &SparseLt, bias: DeviceAddress) -> Result<()> {
        if self.epilogue.has_bias() && bias != self.bias {
            *self = Self::with(lt, self.gemm, self.epilogue, bias, self.algorithm)?;
        }
        Ok(())
    }

    pub(super) fn select(&mut self, lt: &SparseLt, algorithm: usize) -> Result<()> {
        if algorithm >= self.algorithms {
            let reason = format!("{algorithm}, of {}", self.algorithms);
            return Err(Error::argument("algorithm", reason));
        }
        *self = Self::with(lt, self.gemm, self.epilogue, self.bias, Some(algorithm))?;
        Ok(())
    }

    /// Returns the library's object.
    pub(super) fn raw(&mut self) -> *const hipsparseLtMatmulPlan_t {
        self.objects.plan.get()
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        let Ok(table) = libraries::hipsparselt(&self.device) else {
            return;
        };
        if self.is_made {
            // SAFETY: destroyed once, by its owner.
            let result = unsafe {
                call!(
                    self.device,
                    table.hipsparseLtMatmulPlanDestroy(self.objects.plan.get())
                )
            };
            self.device.park(result);
        }
    }
}

/// Descriptor of a matrix.
pub(super) struct Described {
    device: Device,
    object: Box<Object<hipsparseLtMatDescriptor_t>>,
}

impl Described {
    /// Creates a descriptor of a matrix with unpadded columns.
    pub(super) fn new(
        lt: &SparseLt,
        [rows, columns]: [usize; 2],
        dtype: DType,
        sparse: bool,
    ) -> Result<Self> {
        let device = lt.stream.device();
        let table = libraries::hipsparselt(device)?;
        let mut object = Box::new(Object::new());
        let kind = match dtype {
            DType::F16 => hipDataType::HIP_R_16F,
            _ => hipDataType::HIP_R_16BF,
        };
        let order = hipsparseOrder_t::HIPSPARSE_ORDER_COL;
        let (rows, columns) = (int(rows)?.into(), int(columns)?.into());
        // SAFETY: the handle is alive; the calls write the descriptor.
        unsafe {
            if sparse {
                call!(
                    device,
                    table.hipsparseLtStructuredDescriptorInit(
                        lt.raw,
                        object.get(),
                        rows,
                        columns,
                        rows,
                        ALIGNMENT,
                        kind,
                        order,
                        hipsparseLtSparsity_t::HIPSPARSELT_SPARSITY_50_PERCENT,
                    )
                )
            } else {
                call!(
                    device,
                    table.hipsparseLtDenseDescriptorInit(
                        lt.raw,
                        object.get(),
                        rows,
                        columns,
                        rows,
                        ALIGNMENT,
                        kind,
                        order,
                    )
                )
            }
        }?;
        Ok(Self {
            device: device.clone(),
            object,
        })
    }

    /// Returns the bytes of the compressed weight, and the bytes of memory for compressing it.
    pub(super) fn sizes(&self, lt: &SparseLt) -> Result<[usize; 2]> {
        let device = lt.stream.device();
        let table = libraries::hipsparselt(device)?;
        let [mut bytes, mut buffer] = [0; 2];
        // SAFETY: handle and descriptor are alive; the call writes two sizes.
        unsafe {
            call!(
                device,
                table.hipsparseLtSpMMACompressedSize2(lt.raw, self.read(), &mut bytes, &mut buffer)
            )
        }?;
        Ok([bytes, buffer])
    }

    pub(super) fn raw(&mut self) -> *mut hipsparseLtMatDescriptor_t {
        self.object.get()
    }

    pub(super) fn read(&self) -> *const hipsparseLtMatDescriptor_t {
        self.object.read()
    }
}

impl Drop for Described {
    fn drop(&mut self) {
        let Ok(table) = libraries::hipsparselt(&self.device) else {
            return;
        };
        // SAFETY: destroyed once, by its owner.
        let result = unsafe {
            call!(
                self.device,
                table.hipsparseLtMatDescriptorDestroy(self.object.get())
            )
        };
        self.device.park(result);
    }
}

fn set<T: Copy>(
    lt: &SparseLt,
    description: &mut Object<hipsparseLtMatmulDescriptor_t>,
    attribute: Attribute,
    value: &T,
) -> Result<()> {
    let device = lt.stream.device();
    let table = libraries::hipsparselt(device)?;
    // SAFETY: the description is alive. The call copies as many bytes as the value has, which is the attribute's type.
    unsafe {
        call!(
            device,
            table.hipsparseLtMatmulDescSetAttribute(
                lt.raw,
                description.get(),
                attribute,
                ptr::from_ref(value).cast(),
                size_of::<T>(),
            )
        )
    }
}
