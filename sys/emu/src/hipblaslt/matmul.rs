//! Matmul: `D = activation(alpha·scaleA·scaleB·op(A)·op(B) + beta·scaleC·C + bias)·scaleD`, for each matrix of a batch.

use gcnrun::{FaultKind, Memory};
use hipvit_sys::hip::hipDataType;
use hipvit_sys::hipblaslt::{
    hipblasComputeType_t, hipblasLtMatmulDescAttributes_t as Desc, hipblasLtMatmulMatrixScale_t,
    hipblasLtMatrixLayoutAttribute_t as Attribute, hipblasLtOrder_t, hipblasLtPointerMode_t, hipblasStatus_t,
};
use rayon::prelude::*;

use super::algorithm::Algorithm;
use super::attributes::{Attributes, SAME_TYPE};
use super::enumerations::{element, is_transposed};
use super::epilogue::{Activation, BiasGradient, Epilogue};
use crate::compute::{Batch, Element, Factor, Matrix, Real, Scalar, Vector, gemm, read, write};

const INVALID: hipblasStatus_t = hipblasStatus_t::HIPBLAS_STATUS_INVALID_VALUE;
const NOT_SUPPORTED: hipblasStatus_t = hipblasStatus_t::HIPBLAS_STATUS_NOT_SUPPORTED;

/// A matrix's layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) element: Element,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) leading: usize,
    pub(super) order: hipblasLtOrder_t,
    pub(super) batch: usize,
    pub(super) stride: i64,
}

impl Layout {
    pub(super) fn new(attributes: &Attributes) -> Result<Self, hipblasStatus_t> {
        let value = |attribute: Attribute| attributes.value(attribute.0);
        let size = |attribute| usize::try_from(value(attribute)).map_err(|_| INVALID);
        let order = hipblasLtOrder_t(value(Attribute::HIPBLASLT_MATRIX_LAYOUT_ORDER) as u32);
        let layout = Self {
            element: element(hipDataType(value(Attribute::HIPBLASLT_MATRIX_LAYOUT_TYPE) as u32))?,
            rows: size(Attribute::HIPBLASLT_MATRIX_LAYOUT_ROWS)?,
            columns: size(Attribute::HIPBLASLT_MATRIX_LAYOUT_COLS)?,
            leading: size(Attribute::HIPBLASLT_MATRIX_LAYOUT_LD)?,
            order,
            batch: size(Attribute::HIPBLASLT_MATRIX_LAYOUT_BATCH_COUNT)?,
            stride: value(Attribute::HIPBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET).cast_signed(),
        };
        let least = match order {
            hipblasLtOrder_t::HIPBLASLT_ORDER_COL => layout.rows,
            hipblasLtOrder_t::HIPBLASLT_ORDER_ROW => layout.columns,
            // AMD's tiled orders for matrix cores.
            _ => return Err(NOT_SUPPORTED),
        };
        let batch = i32::try_from(layout.batch);
        if layout.leading < least || layout.leading > i64::MAX as usize || !batch.is_ok_and(|batch| batch > 0)
        {
            return Err(INVALID);
        }
        Ok(layout)
    }

    pub(super) fn batch(&self, address: u64) -> Batch {
        Batch::new(address, Some(self.stride))
    }
}

/// A matmul descriptor.
#[derive(Clone, Debug)]
pub(super) struct Descriptor {
    pub(super) compute: hipblasComputeType_t,
    pub(super) scale: hipDataType,
    pub(super) attributes: Attributes,
}

/// Addresses of the matrices and factors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operands {
    pub(super) alpha: Scalar,
    pub(super) a: u64,
    pub(super) b: u64,
    pub(super) beta: Scalar,
    pub(super) c: u64,
    pub(super) d: u64,
}

/// A validated matmul.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    transposed: [bool; 2],
    m: usize,
    n: usize,
    k: usize,
    a: Layout,
    b: Layout,
    c: Layout,
    d: Layout,
    /// In f64.
    wide: bool,
    epilogue: Epilogue,
    bias: Option<(u64, Element)>,
    aux: Option<(u64, Layout)>,
    scales: Scales,
    /// The address of the largest magnitude of the result before its scale, f32; 0 if it is not asked for.
    amax: u64,
    pub(super) scalars: Scalars,
}

/// Alpha and beta.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scalars {
    /// True if alpha is a vector of `m` elements on the device.
    alpha_vector: bool,
    pub(super) on_device: bool,
    pub(super) element: Element,
}

/// Addresses of factors in f32, 0 for 1; of A for each row and of B for each column, if they are `outer`.
#[derive(Clone, Copy, Debug)]
struct Scales {
    a: u64,
    a_outer: bool,
    b: u64,
    b_outer: bool,
    c: u64,
    d: u64,
    aux: u64,
}

impl Descriptor {
    fn value(&self, attribute: Desc) -> u64 {
        self.attributes.value(attribute.0)
    }

    fn operation(&self, attribute: Desc) -> Result<bool, hipblasStatus_t> {
        is_transposed(self.value(attribute) as u32)
    }

    fn element(&self, attribute: Desc, of_result: Element) -> Result<Element, hipblasStatus_t> {
        match self.value(attribute) {
            SAME_TYPE => Ok(of_result),
            number => element(hipDataType(number as u32)),
        }
    }

    fn activation_argument(&self, attribute: Desc) -> f32 {
        f32::from_bits(self.value(attribute) as u32)
    }

    fn is_outer(&self, attribute: Desc) -> Result<bool, hipblasStatus_t> {
        use hipblasLtMatmulMatrixScale_t as Scale;
        match Scale(self.value(attribute) as u32) {
            Scale::HIPBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F => Ok(false),
            Scale::HIPBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F => Ok(true),
            // Blockwise scales, for types that are not supported.
            _ => Err(NOT_SUPPORTED),
        }
    }

    /// Returns true for types that are computed in f64, and the type of alpha and beta. An error if the types cannot be
    /// multiplied.
    fn arithmetic(&self, [a, b, c, d]: [Element; 4]) -> Result<(bool, Element), hipblasStatus_t> {
        use Element::{Bf16, F8, F16, F32, F64, I8, I32};
        use hipblasComputeType_t as Compute;
        // A result of E4M3 is what becomes of a wider one.
        let narrowed = matches!((a, c), (F8(_), F16 | Bf16)) && d == a;
        // E4M3 and E5M2 can be multiplied.
        let differ = a != b && !matches!((a, b), (F8(_), F8(_)));
        if differ || c != d && !narrowed {
            return Err(NOT_SUPPORTED);
        }
        let scalar = element(self.scale)?;
        let wide = match self.compute {
            // The fast modes may round f32 operands; this is not necessary.
            Compute::HIPBLAS_COMPUTE_32F
            | Compute::HIPBLAS_COMPUTE_32F_PEDANTIC
            | Compute::HIPBLAS_COMPUTE_32F_FAST_16F
            | Compute::HIPBLAS_COMPUTE_32F_FAST_16BF
            | Compute::HIPBLAS_COMPUTE_32F_FAST_TF32
                if scalar == F32
                    && matches!(
                        (a, c),
                        (F32, F32) | (F16, F16 | F32) | (Bf16, Bf16 | F32) | (F8(_), F16 | Bf16 | F32)
                    ) =>
            {
                false
            }
            Compute::HIPBLAS_COMPUTE_64F | Compute::HIPBLAS_COMPUTE_64F_PEDANTIC
                if (a, c, scalar) == (F64, F64, F64) =>
            {
                true
            }
            Compute::HIPBLAS_COMPUTE_32I | Compute::HIPBLAS_COMPUTE_32I_PEDANTIC
                if (a, c, scalar) == (I8, I32, I32) =>
            {
                true
            }
            _ => return Err(NOT_SUPPORTED),
        };
        Ok((wide, scalar))
    }
}

impl Problem {
    pub(super) fn new(of: &Descriptor, [a, b, c, d]: [Layout; 4]) -> Result<Self, hipblasStatus_t> {
        use hipblasLtPointerMode_t as Mode;
        let transposed = [
            of.operation(Desc::HIPBLASLT_MATMUL_DESC_TRANSA)?,
            of.operation(Desc::HIPBLASLT_MATMUL_DESC_TRANSB)?,
        ];
        let shape_of = |layout: Layout, transposed| {
            if transposed {
                (layout.columns, layout.rows)
            } else {
                (layout.rows, layout.columns)
            }
        };
        let ((m, k), (also_k, n)) = (shape_of(a, transposed[0]), shape_of(b, transposed[1]));
        let shapes = [(c.rows, c.columns), (d.rows, d.columns)];
        let layouts = [a, b, c, d];
        if k != also_k || shapes != [(m, n); 2] || layouts.iter().any(|layout| layout.batch != a.batch) {
            return Err(INVALID);
        }
        // The real library supports only column-major matrices.
        if layouts
            .iter()
            .any(|layout| layout.order != hipblasLtOrder_t::HIPBLASLT_ORDER_COL)
        {
            return Err(NOT_SUPPORTED);
        }
        let (wide, scalar) = of.arithmetic(layouts.map(|layout| layout.element))?;
        let epilogue = Epilogue::new(
            of.value(Desc::HIPBLASLT_MATMUL_DESC_EPILOGUE) as u32,
            [
                of.activation_argument(Desc::HIPBLASLT_MATMUL_DESC_EPILOGUE_ACT_ARG0_EXT),
                of.activation_argument(Desc::HIPBLASLT_MATMUL_DESC_EPILOGUE_ACT_ARG1_EXT),
            ],
        )?;
        let bias = if epilogue.has_bias || epilogue.gradient.is_some() {
            Some((
                of.value(Desc::HIPBLASLT_MATMUL_DESC_BIAS_POINTER),
                of.element(Desc::HIPBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, d.element)?,
            ))
        } else {
            None
        };
        let aux = if epilogue.has_aux {
            let address = of.value(Desc::HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER);
            let leading = of.value(Desc::HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD) as usize;
            if leading < m {
                return Err(INVALID);
            }
            let element = of.element(Desc::HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, d.element)?;
            let stride = of
                .value(Desc::HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE)
                .cast_signed();
            Some((
                address,
                Layout {
                    element,
                    leading,
                    stride,
                    ..d
                },
            ))
        } else {
            None
        };
        let amax = of.value(Desc::HIPBLASLT_MATMUL_DESC_AMAX_D_POINTER);
        if amax != 0 && (!matches!(d.element, Element::F8(_)) || d.batch > 1) {
            return Err(NOT_SUPPORTED);
        }
        let (scalars_on_device, alpha_vector) =
            match Mode(of.value(Desc::HIPBLASLT_MATMUL_DESC_POINTER_MODE) as u32) {
                Mode::HIPBLASLT_POINTER_MODE_HOST => (false, false),
                Mode::HIPBLASLT_POINTER_MODE_DEVICE => (true, false),
                Mode::HIPBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST => (false, true),
                _ => return Err(INVALID),
            };
        Ok(Self {
            transposed,
            m,
            n,
            k,
            a,
            b,
            c,
            d,
            wide,
            epilogue,
            bias,
            aux,
            scales: Scales {
                a: of.value(Desc::HIPBLASLT_MATMUL_DESC_A_SCALE_POINTER),
                a_outer: of.is_outer(Desc::HIPBLASLT_MATMUL_DESC_A_SCALE_MODE)?,
                b: of.value(Desc::HIPBLASLT_MATMUL_DESC_B_SCALE_POINTER),
                b_outer: of.is_outer(Desc::HIPBLASLT_MATMUL_DESC_B_SCALE_MODE)?,
                c: of.value(Desc::HIPBLASLT_MATMUL_DESC_C_SCALE_POINTER),
                d: of.value(Desc::HIPBLASLT_MATMUL_DESC_D_SCALE_POINTER),
                aux: of.value(Desc::HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_SCALE_POINTER),
            },
            amax,
            scalars: Scalars {
                alpha_vector,
                on_device: scalars_on_device,
                element: scalar,
            },
        })
    }

    /// The algorithms for it, the likely fastest first. Partial sums in the workspace are f32.
    pub(super) fn algorithms(&self) -> &'static [Algorithm] {
        if self.wide {
            &Algorithm::ALL[..1]
        } else {
            &Algorithm::ALL
        }
    }

    /// Returns a code for the scales that the real library's kernels depend on. They are those of A and B, as vectors or not, and
    /// those of C or D.
    pub(super) fn scaling(&self) -> u64 {
        let of = &self.scales;
        let factors = of.a != 0 || of.b != 0;
        u64::from(factors)
            | u64::from(factors && (of.a_outer || of.b_outer)) << 1
            | u64::from(of.c != 0 || of.d != 0) << 2
            | u64::from(self.amax != 0) << 3
    }

    /// Elements of the results of the whole batch.
    pub(super) fn count(&self) -> usize {
        self.m * self.n * self.a.batch
    }

    /// True if alpha is on the device.
    pub(super) fn alpha_on_device(&self) -> bool {
        self.scalars.on_device || self.scalars.alpha_vector
    }

    /// Checks that all necessary pointers are given. `false` if there is nothing to do.
    pub(super) fn check(&self, operands: &Operands) -> Result<bool, hipblasStatus_t> {
        if self.m == 0 || self.n == 0 {
            return Ok(false);
        }
        let needed = [
            operands.d != 0,
            operands.c != 0 || operands.beta.is_zero(),
            operands.a != 0 && operands.b != 0 || self.k == 0 || operands.alpha.is_zero(),
            self.bias.is_none_or(|(address, _)| address != 0),
            self.aux.is_none_or(|(address, _)| address != 0),
        ];
        if needed.contains(&false) {
            Err(INVALID)
        } else {
            Ok(true)
        }
    }

    /// Computes it. The workspace is large enough for the algorithm.
    pub(super) fn run(
        &self,
        memory: &Memory,
        operands: &Operands,
        algorithm: Algorithm,
        workspace: u64,
    ) -> Result<(), FaultKind> {
        let one = |index| {
            let workspace = workspace.wrapping_add(algorithm.workspace(self.m * self.n * index) as u64);
            if self.wide {
                self.run_one::<f64>(memory, operands, algorithm, workspace, index)
            } else {
                self.run_one::<f32>(memory, operands, algorithm, workspace, index)
            }
        };
        (0..self.a.batch).into_par_iter().try_for_each(one)
    }

    fn run_one<T: Real>(
        &self,
        memory: &Memory,
        operands: &Operands,
        algorithm: Algorithm,
        workspace: u64,
        index: usize,
    ) -> Result<(), FaultKind> {
        let (m, n, k) = (self.m, self.n, self.k);
        let matrix = |layout: Layout, address: u64| {
            let address = layout.batch(address).address(memory, index, layout.element)?;
            Ok(Matrix {
                address,
                element: layout.element,
                rows: m,
                columns: n,
                leading: layout.leading,
            })
        };
        // A factor for each row, and one for each column.
        let (alpha, beta) = (self.alphas(memory, operands)?, operands.beta.value(memory)?);
        let rows = factors(memory, self.scales.a, self.scales.a_outer.then_some(m))?;
        let columns = factors(memory, self.scales.b, self.scales.b_outer.then_some(n))?;
        let beta = beta * factor(memory, self.scales.c)?;
        let (scale, aux_scale) = (factor(memory, self.scales.d)?, factor(memory, self.scales.aux)?);

        let mut result = if k == 0 || alpha.iter().all(|alpha| *alpha == 0.0) {
            vec![T::zero(); m * n]
        } else {
            let factor = |layout: Layout, address, shape, transposed| {
                let address = layout.batch(address).address(memory, index, layout.element)?;
                Ok(Factor::new(
                    address,
                    layout.element,
                    shape,
                    layout.leading,
                    transposed,
                ))
            };
            let a = factor(self.a, operands.a, [m, k], self.transposed[0])?;
            let b = factor(self.b, operands.b, [k, n], self.transposed[1])?;
            multiply(memory, &a, &b, algorithm, workspace)?
        };
        let old = if beta == 0.0 {
            None
        } else {
            Some(matrix(self.c, operands.c)?.load::<T>(memory)?)
        };
        let bias = match self.bias {
            Some(bias) if let Some(of) = self.epilogue.gradient => {
                self.write_bias_gradient::<T>(memory, operands, of, bias, index)?;
                None
            }
            Some((address, element)) => Some(
                Vector {
                    address,
                    element,
                    len: m,
                    increment: 1,
                }
                .load::<T>(memory)?,
            ),
            None => None,
        };
        let at = |factors: &[f64], index: usize| factors[if factors.len() == 1 { 0 } else { index }];
        let beta = T::of(beta);
        result.par_chunks_mut(m).enumerate().for_each(|(column, values)| {
            for (row, value) in values.iter_mut().enumerate() {
                let scale = at(&alpha, row) * at(&rows, row) * at(&columns, column);
                *value = T::of(scale) * *value;
                if let Some(old) = &old {
                    *value = *value + beta * old[column * m + row];
                }
                if let Some(bias) = &bias {
                    *value = *value + bias[row];
                }
            }
        });
        let activation = self.epilogue.activation;
        if let Some((address, layout)) = self.aux.filter(|_| activation == Activation::GeluGradient) {
            let at = matrix(layout, address)?.load::<T>(memory)?;
            for (value, at) in result.iter_mut().zip(at) {
                let slope = activation.slope((at * T::of(aux_scale)).wide());
                *value = *value * T::of(slope.unwrap_or(1.0));
            }
        } else if let Some((address, layout)) = self.aux {
            let kept: Vec<T> = result.iter().map(|value| *value * T::of(aux_scale)).collect();
            matrix(layout, address)?.store(memory, &kept)?;
        }
        if activation != Activation::None {
            result
                .par_iter_mut()
                .for_each(|value| *value = T::of(activation.of(value.wide())));
        }
        if self.amax != 0 {
            let largest = result
                .iter()
                .fold(0f64, |largest, value| largest.max(value.wide().abs()));
            write(memory, self.amax, &(largest as f32).to_ne_bytes())?;
        }
        if scale != 1.0 {
            let scale = T::of(scale);
            result.par_iter_mut().for_each(|value| *value = *value * scale);
        }
        matrix(self.d, operands.d)?.store(memory, &result)
    }

    /// Writes the sums of an operand over k.
    fn write_bias_gradient<T: Real>(
        &self,
        memory: &Memory,
        operands: &Operands,
        of: BiasGradient,
        (to, element): (u64, Element),
        index: usize,
    ) -> Result<(), FaultKind> {
        let (layout, address, len, is_first) = match of {
            BiasGradient::A => (self.a, operands.a, self.m, !self.transposed[0]),
            BiasGradient::B => (self.b, operands.b, self.n, self.transposed[1]),
        };
        let (rows, columns) = if is_first { (len, self.k) } else { (self.k, len) };
        let stored = Matrix {
            address: layout.batch(address).address(memory, index, layout.element)?,
            element: layout.element,
            rows,
            columns,
            leading: layout.leading,
        };
        let mut sums = vec![0.0; len];
        for (at, value) in stored.load::<T>(memory)?.iter().enumerate() {
            sums[if is_first { at % rows } else { at / rows }] += value.wide();
        }
        let sums: Vec<T> = sums.into_iter().map(T::of).collect();
        let vector = Vector {
            address: to,
            element,
            len,
            increment: 1,
        };
        vector.store(memory, &sums)
    }

    /// Alpha: one, or one for each row.
    fn alphas(&self, memory: &Memory, operands: &Operands) -> Result<Vec<f64>, FaultKind> {
        match operands.alpha {
            Scalar::InMemory { address, element } if self.scalars.alpha_vector => Vector {
                address,
                element,
                len: self.m,
                increment: 1,
            }
            .load(memory),
            alpha => Ok(vec![alpha.value(memory)?]),
        }
    }
}

/// `A·B`; with split k, the partial sums of the first half are kept in the workspace.
fn multiply<T: Real>(
    memory: &Memory,
    a: &Factor,
    b: &Factor,
    algorithm: Algorithm,
    workspace: u64,
) -> Result<Vec<T>, FaultKind> {
    let [_, k] = a.shape();
    if algorithm == Algorithm::Whole || k < 2 {
        return gemm(memory, a, b);
    }
    let (left, right) = (a.columns(0..k / 2), b.rows(0..k / 2));
    let first = gemm::<T>(memory, &left, &right)?;
    write(memory, workspace, &T::encode(Element::F32, &first))?;
    let (left, right) = (a.columns(k / 2..k), b.rows(k / 2..k));
    let mut sum = gemm::<T>(memory, &left, &right)?;
    let first = T::decode(
        Element::F32,
        &read(memory, workspace, size_of::<f32>() * sum.len())?,
    );
    sum.iter_mut()
        .zip(first)
        .for_each(|(sum, first)| *sum = *sum + first);
    Ok(sum)
}

/// The factor in f32 at an address, 1 at none.
fn factor(memory: &Memory, address: u64) -> Result<f64, FaultKind> {
    Ok(factors(memory, address, None)?[0])
}

/// One factor, or as many as said; 1 at no address.
fn factors(memory: &Memory, address: u64, count: Option<usize>) -> Result<Vec<f64>, FaultKind> {
    if address == 0 {
        return Ok(vec![1.0]);
    }
    Vector {
        address,
        element: Element::F32,
        len: count.unwrap_or(1),
        increment: 1,
    }
    .load(memory)
}
