//! hipBLASLt.

use std::ffi::c_void;
use std::ptr;

use hipvit_sys::Hipblaslt;
use hipvit_sys::hip::hipDataType;
use hipvit_sys::hipblaslt::{
    hipblasComputeType_t, hipblasLtEpilogue_t as Epilogue, hipblasLtHandle_t, hipblasLtMatmulAlgo_t,
    hipblasLtMatmulDesc_t, hipblasLtMatmulDescAttributes_t as Attribute, hipblasLtMatmulHeuristicResult_t,
    hipblasLtMatmulMatrixScale_t, hipblasLtMatmulPreferenceAttributes_t, hipblasLtMatrixLayout_t,
    hipblasLtMatrixLayoutAttribute_t, hipblasLtMatrixTransformDescAttributes_t, hipblasLtOrder_t,
    hipblasLtPointerMode_t, hipblasOperation_t, hipblasStatus_t as Status,
};

use crate::gpu::{Buffer, Kind, Shape, compare, numbers, ok, provider, refused};

const BATCH: usize = 2;
const M: usize = 65;
const N: usize = 33;
const K: usize = 63;

fn lt() -> &'static Hipblaslt {
    provider().hipblaslt().expect("hipBLASLt")
}

fn datatype(kind: Kind) -> hipDataType {
    match kind {
        Kind::F16 => hipDataType::HIP_R_16F,
        Kind::Bf16 => hipDataType::HIP_R_16BF,
        Kind::F32 => hipDataType::HIP_R_32F,
        Kind::F64 => hipDataType::HIP_R_64F,
        Kind::I8 => hipDataType::HIP_R_8I,
        Kind::I32 => hipDataType::HIP_R_32I,
    }
}

fn layout(kind: Kind, shape: Shape) -> hipblasLtMatrixLayout_t {
    use hipblasLtMatrixLayoutAttribute_t as Layout;
    let mut layout = ptr::null_mut();
    let (count, stride) = (shape.batch as i32, shape.stride as i64);
    unsafe {
        ok(lt().hipblasLtMatrixLayoutCreate(
            &mut layout,
            datatype(kind),
            shape.rows as u64,
            shape.columns as u64,
            shape.leading as i64,
        ));
        let attribute = Layout::HIPBLASLT_MATRIX_LAYOUT_BATCH_COUNT;
        ok(lt().hipblasLtMatrixLayoutSetAttribute(layout, attribute, (&raw const count).cast(), 4));
        let attribute = Layout::HIPBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET;
        ok(lt().hipblasLtMatrixLayoutSetAttribute(layout, attribute, (&raw const stride).cast(), 8));
    }
    layout
}

/// `D = epilogue(alpha·Aᵀ·B + beta·C)`: A is K×M in memory.
struct Matmul {
    handle: hipblasLtHandle_t,
    desc: hipblasLtMatmulDesc_t,
    output: Kind,
    shapes: [Shape; 3],
    values: [Vec<f64>; 3],
    buffers: [Buffer; 3],
    layouts: [hipblasLtMatrixLayout_t; 3],
    alpha: f32,
    beta: f32,
}

impl Matmul {
    fn new(input: Kind, output: Kind) -> Self {
        let (mut handle, mut desc) = (ptr::null_mut(), ptr::null_mut());
        let compute = hipblasComputeType_t::HIPBLAS_COMPUTE_32F;
        unsafe {
            ok(lt().hipblasLtCreate(&mut handle));
            ok(lt().hipblasLtMatmulDescCreate(&mut desc, compute, hipDataType::HIP_R_32F));
        }
        let shapes = [(K, M), (K, N), (M, N)].map(|(rows, columns)| Shape::with_gaps(rows, columns, BATCH));
        let kinds = [input, input, output];
        let values: [Vec<f64>; 3] =
            std::array::from_fn(|index| numbers(kinds[index], shapes[index].count(), index as u64));
        let matmul = Self {
            handle,
            desc,
            output,
            buffers: std::array::from_fn(|index| {
                Buffer::matrices(kinds[index], &values[index], shapes[index])
            }),
            layouts: std::array::from_fn(|index| layout(kinds[index], shapes[index])),
            shapes,
            values,
            alpha: 1.5,
            beta: -0.25,
        };
        matmul.set(
            Attribute::HIPBLASLT_MATMUL_DESC_TRANSA,
            &hipblasOperation_t::HIPBLAS_OP_T,
        );
        matmul
    }

    #[track_caller]
    fn set<T>(&self, attribute: Attribute, value: &T) {
        let value = ptr::from_ref(value).cast();
        ok(unsafe { lt().hipblasLtMatmulDescSetAttribute(self.desc, attribute, value, size_of::<T>()) });
    }

    fn heuristics(&self, workspace: usize) -> Vec<hipblasLtMatmulHeuristicResult_t> {
        let attribute = hipblasLtMatmulPreferenceAttributes_t::HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        let mut preference = ptr::null_mut();
        let mut found = [hipblasLtMatmulHeuristicResult_t::default(); 8];
        let mut count = 0;
        let [a, b, c] = self.layouts;
        unsafe {
            ok(lt().hipblasLtMatmulPreferenceCreate(&mut preference));
            let bytes = (&raw const workspace).cast();
            ok(lt().hipblasLtMatmulPreferenceSetAttribute(preference, attribute, bytes, 8));
            ok(lt().hipblasLtMatmulAlgoGetHeuristic(
                self.handle,
                self.desc,
                a,
                b,
                c,
                c,
                preference,
                8,
                found.as_mut_ptr(),
                &mut count,
            ));
            ok(lt().hipblasLtMatmulPreferenceDestroy(preference));
        }
        found[..count as usize].to_vec()
    }

    fn call(
        &self,
        alpha: *const c_void,
        d: &Buffer,
        algo: *const hipblasLtMatmulAlgo_t,
        (workspace, size): (*mut c_void, usize),
    ) -> Result<Status, hipvit_sys::Error> {
        let [a, b, c] = &self.buffers;
        let [a_layout, b_layout, c_layout] = self.layouts;
        unsafe {
            lt().hipblasLtMatmul(
                self.handle,
                self.desc,
                alpha,
                a.address(),
                a_layout,
                b.address(),
                b_layout,
                (&raw const self.beta).cast(),
                c.address(),
                c_layout,
                d.address(),
                c_layout,
                algo,
                workspace,
                size,
                ptr::null_mut(),
            )
        }
    }

    fn output(&self) -> Buffer {
        Buffer::matrices(self.output, &vec![0.0; self.shapes[2].count()], self.shapes[2])
    }

    #[track_caller]
    fn run(&self) -> Vec<f64> {
        let d = self.output();
        ok(self.call(
            (&raw const self.alpha).cast(),
            &d,
            ptr::null(),
            (ptr::null_mut(), 0),
        ));
        d.download()
    }

    /// Before the epilogue, with the error that K products and a few factors may cause in f32.
    fn expected(&self) -> Vec<(f64, f64)> {
        let [a, b, c] = self.shapes;
        let mut expected = Vec::new();
        for matrix in 0..BATCH {
            for column in 0..N {
                for row in 0..M {
                    let (mut sum, mut size) = (0.0, 0.0_f64);
                    for i in 0..K {
                        let term = self.values[0][a.index(matrix, i, row)]
                            * self.values[1][b.index(matrix, i, column)];
                        sum += term;
                        size += term.abs();
                    }
                    let old = f64::from(self.beta) * self.values[2][c.index(matrix, row, column)];
                    let alpha = f64::from(self.alpha);
                    let size = alpha.abs() * size + old.abs();
                    expected.push((alpha * sum + old, (K + 8) as f64 * Kind::F32.roundoff() * size));
                }
            }
        }
        expected
    }

    /// The row and column of a result in the order of `expected`.
    fn place(index: usize) -> (usize, usize) {
        (index % M, index / M % N)
    }
}

impl Drop for Matmul {
    fn drop(&mut self) {
        unsafe {
            for layout in self.layouts {
                ok(lt().hipblasLtMatrixLayoutDestroy(layout));
            }
            ok(lt().hipblasLtMatmulDescDestroy(self.desc));
            ok(lt().hipblasLtDestroy(self.handle));
        }
    }
}

fn address(buffer: &Buffer) -> u64 {
    buffer.address().expose_provenance() as u64
}

const TYPES: [(Kind, Kind); 5] = [
    (Kind::F32, Kind::F32),
    (Kind::F16, Kind::F16),
    (Kind::F16, Kind::F32),
    (Kind::Bf16, Kind::Bf16),
    (Kind::Bf16, Kind::F32),
];

#[test]
fn every_algorithm_multiplies_every_type() {
    for (input, output) in TYPES {
        let matmul = Matmul::new(input, output);
        let found = matmul.heuristics(32 << 20);
        assert!(found.len() > 1, "several algorithms");
        for algorithm in &found {
            let bytes = algorithm.workspaceSize;
            let workspace = Buffer::new(Kind::F32, &vec![f64::NAN; bytes / 4]);
            let d = matmul.output();
            ok(matmul.call(
                (&raw const matmul.alpha).cast(),
                &d,
                &algorithm.algo,
                (workspace.address(), bytes),
            ));
            compare(
                &format!("{input:?} {output:?}"),
                output,
                &d.download(),
                &matmul.expected(),
            );
            // Downloading also detects writes beyond the workspace.
            workspace.download();
        }
    }
}

#[test]
fn workspace_sizes_are_checked() {
    let matmul = Matmul::new(Kind::F32, Kind::F32);
    let small = matmul.heuristics(0);
    assert!(!small.is_empty() && small.iter().all(|result| result.workspaceSize == 0));
    let found = matmul.heuristics(32 << 20);
    let large = found
        .iter()
        .find(|result| result.workspaceSize > 0)
        .expect("an algorithm with a workspace");
    let d = matmul.output();
    let alpha = (&raw const matmul.alpha).cast();
    let workspace = Buffer::new(Kind::F32, &[0.0; 64]);
    refused(
        matmul.call(alpha, &d, &large.algo, (workspace.address(), 256)),
        Status::HIPBLAS_STATUS_INVALID_VALUE,
    );
    refused(
        matmul.call(alpha, &d, &large.algo, (ptr::null_mut(), 0)),
        Status::HIPBLAS_STATUS_INVALID_VALUE,
    );
    let foreign = hipblasLtMatmulAlgo_t::default();
    refused(
        matmul.call(alpha, &d, &foreign, (ptr::null_mut(), 0)),
        Status::HIPBLAS_STATUS_INVALID_VALUE,
    );
    assert_eq!(d.download(), vec![0.0; BATCH * M * N]);
}

/// GELU in the tanh form.
fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh())
}

type Function = fn(f64) -> f64;

#[test]
fn epilogues() {
    // The slope of none exceeds 1.13, which GELU and swish reach.
    const STEEPEST: f64 = 1.13;
    let cases: [(Epilogue, bool, bool, Function); 9] = [
        (Epilogue::HIPBLASLT_EPILOGUE_BIAS, true, false, |x| x),
        (Epilogue::HIPBLASLT_EPILOGUE_RELU, false, false, |x| x.max(0.0)),
        (Epilogue::HIPBLASLT_EPILOGUE_RELU_BIAS, true, false, |x| {
            x.max(0.0)
        }),
        (Epilogue::HIPBLASLT_EPILOGUE_GELU, false, false, gelu),
        (Epilogue::HIPBLASLT_EPILOGUE_GELU_BIAS, true, false, gelu),
        (Epilogue::HIPBLASLT_EPILOGUE_GELU_AUX_BIAS, true, true, gelu),
        (Epilogue::HIPBLASLT_EPILOGUE_RELU_AUX, false, true, |x| x.max(0.0)),
        (Epilogue::HIPBLASLT_EPILOGUE_SWISH_BIAS_EXT, true, false, |x| {
            x / (1.0 + (-x).exp())
        }),
        (Epilogue::HIPBLASLT_EPILOGUE_CLAMP_BIAS_EXT, true, false, |x| {
            x.clamp(-0.5, 1.0)
        }),
    ];
    for (input, output) in TYPES {
        let matmul = Matmul::new(input, output);
        let values = numbers(output, M, 9);
        let bias = Buffer::new(output, &values);
        let shape = Shape::with_gaps(M, N, BATCH);
        matmul.set(Attribute::HIPBLASLT_MATMUL_DESC_BIAS_POINTER, &address(&bias));
        matmul.set(
            Attribute::HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
            &(shape.leading as i64),
        );
        matmul.set(
            Attribute::HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE,
            &(shape.stride as i64),
        );
        matmul.set(Attribute::HIPBLASLT_MATMUL_DESC_EPILOGUE_ACT_ARG0_EXT, &-0.5_f32);
        matmul.set(Attribute::HIPBLASLT_MATMUL_DESC_EPILOGUE_ACT_ARG1_EXT, &1.0_f32);
        for (epilogue, has_bias, has_aux, activation) in cases {
            let what = format!("{input:?} {output:?} {epilogue:?}");
            matmul.set(Attribute::HIPBLASLT_MATMUL_DESC_EPILOGUE, &epilogue);
            let aux = Buffer::matrices(output, &vec![0.0; shape.count()], shape);
            matmul.set(
                Attribute::HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                &address(&aux),
            );
            let sums: Vec<_> = matmul
                .expected()
                .into_iter()
                .enumerate()
                .map(|(index, (sum, error))| {
                    let bias = if has_bias {
                        values[Matmul::place(index).0]
                    } else {
                        0.0
                    };
                    (sum + bias, error + Kind::F32.roundoff() * (sum + bias).abs())
                })
                .collect();
            let rounded = |x: f64| Kind::F32.roundoff() * activation(x).abs();
            let expected: Vec<_> = sums
                .iter()
                .map(|(x, error)| (activation(*x), STEEPEST * error + rounded(*x)))
                .collect();
            compare(&what, output, &matmul.run(), &expected);
            if has_aux {
                compare(
                    &format!("auxiliary output of {what}"),
                    output,
                    &aux.download(),
                    &sums,
                );
            } else {
                assert_eq!(aux.download(), vec![0.0; shape.count()]);
            }
        }
    }
}

#[test]
fn scales_of_matrices_and_of_rows_and_columns() {
    let outer = hipblasLtMatmulMatrixScale_t::HIPBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    let mut matmul = Matmul::new(Kind::Bf16, Kind::F32);
    matmul.beta = 0.0;
    let (of_rows, of_columns) = (numbers(Kind::F32, M, 21), numbers(Kind::F32, N, 22));
    let (rows, columns) = (
        Buffer::new(Kind::F32, &of_rows),
        Buffer::new(Kind::F32, &of_columns),
    );
    let d = Buffer::new(Kind::F32, &[2.0]);
    matmul.set(Attribute::HIPBLASLT_MATMUL_DESC_A_SCALE_POINTER, &address(&rows));
    matmul.set(
        Attribute::HIPBLASLT_MATMUL_DESC_B_SCALE_POINTER,
        &address(&columns),
    );
    matmul.set(Attribute::HIPBLASLT_MATMUL_DESC_D_SCALE_POINTER, &address(&d));
    let scaled = |of_row: &dyn Fn(usize) -> f64, of_column: &dyn Fn(usize) -> f64| -> Vec<_> {
        let scale = |(index, (sum, error)): (usize, (f64, f64))| {
            let (row, column) = Matmul::place(index);
            let scale = of_row(row) * of_column(column) * 2.0;
            (scale * sum, scale.abs() * error)
        };
        matmul.expected().into_iter().enumerate().map(scale).collect()
    };
    compare(
        "scalars",
        Kind::F32,
        &matmul.run(),
        &scaled(&|_| of_rows[0], &|_| of_columns[0]),
    );
    matmul.set(Attribute::HIPBLASLT_MATMUL_DESC_A_SCALE_MODE, &outer);
    matmul.set(Attribute::HIPBLASLT_MATMUL_DESC_B_SCALE_MODE, &outer);
    compare(
        "vectors",
        Kind::F32,
        &matmul.run(),
        &scaled(&|row| of_rows[row], &|column| of_columns[column]),
    );
}

#[test]
fn alpha_may_be_a_vector_on_the_device() {
    let mut matmul = Matmul::new(Kind::F32, Kind::F32);
    (matmul.alpha, matmul.beta) = (1.0, 0.0);
    let mode = hipblasLtPointerMode_t::HIPBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST;
    matmul.set(Attribute::HIPBLASLT_MATMUL_DESC_POINTER_MODE, &mode);
    let values = numbers(Kind::F32, M, 31);
    let (alphas, d) = (Buffer::new(Kind::F32, &values), matmul.output());
    ok(matmul.call(alphas.address(), &d, ptr::null(), (ptr::null_mut(), 0)));
    let scale = |(index, (sum, error)): (usize, (f64, f64))| {
        let alpha = values[Matmul::place(index).0];
        (alpha * sum, alpha.abs() * error)
    };
    let expected: Vec<_> = matmul.expected().into_iter().enumerate().map(scale).collect();
    compare("alpha", Kind::F32, &d.download(), &expected);
}

#[test]
fn inconsistent_calls_are_refused() {
    let matmul = Matmul::new(Kind::F32, Kind::F32);
    let alpha: *const c_void = (&raw const matmul.alpha).cast();
    let d = matmul.output();
    let call = |matmul: &Matmul| matmul.call(alpha, &d, ptr::null(), (ptr::null_mut(), 0));
    // Without transposition A's inner dimension differs from B's.
    matmul.set(
        Attribute::HIPBLASLT_MATMUL_DESC_TRANSA,
        &hipblasOperation_t::HIPBLAS_OP_N,
    );
    refused(call(&matmul), Status::HIPBLAS_STATUS_INVALID_VALUE);
    matmul.set(
        Attribute::HIPBLASLT_MATMUL_DESC_TRANSA,
        &hipblasOperation_t::HIPBLAS_OP_T,
    );
    // The bias is not given.
    matmul.set(
        Attribute::HIPBLASLT_MATMUL_DESC_EPILOGUE,
        &Epilogue::HIPBLASLT_EPILOGUE_BIAS,
    );
    refused(call(&matmul), Status::HIPBLAS_STATUS_INVALID_VALUE);
    matmul.set(
        Attribute::HIPBLASLT_MATMUL_DESC_EPILOGUE,
        &Epilogue::HIPBLASLT_EPILOGUE_DGELU_BGRAD,
    );
    refused(call(&matmul), Status::HIPBLAS_STATUS_NOT_SUPPORTED);
    matmul.set(
        Attribute::HIPBLASLT_MATMUL_DESC_EPILOGUE,
        &Epilogue::HIPBLASLT_EPILOGUE_DEFAULT,
    );
    refused(
        matmul.call(ptr::null(), &d, ptr::null(), (ptr::null_mut(), 0)),
        Status::HIPBLAS_STATUS_INVALID_VALUE,
    );
    let half = Matmul::new(Kind::F64, Kind::F64);
    refused(call(&half), Status::HIPBLAS_STATUS_NOT_SUPPORTED);
    assert_eq!(d.download(), vec![0.0; BATCH * M * N]);
}

#[test]
fn conversions_change_order_and_type() {
    use hipblasLtMatrixLayoutAttribute_t as Layout;
    use hipblasLtMatrixTransformDescAttributes_t as Transform;
    let (rows, columns) = (19, 7);
    let (a, b) = (
        numbers(Kind::F16, rows * columns, 1),
        numbers(Kind::F32, rows * columns, 2),
    );
    // A in rows, B transposed in columns.
    let (of_a, of_b, of_c) = (
        Shape::with_gaps(columns, rows, 1),
        Shape::with_gaps(columns, rows, 1),
        Shape::with_gaps(rows, columns, 1),
    );
    let (a_device, b_device) = (
        Buffer::matrices(Kind::F16, &a, of_a),
        Buffer::matrices(Kind::F32, &b, of_b),
    );
    let c_device = Buffer::matrices(Kind::Bf16, &vec![0.0; rows * columns], of_c);
    let a_shape = Shape {
        rows,
        columns,
        ..of_a
    };
    let layouts = [
        layout(Kind::F16, a_shape),
        layout(Kind::F32, of_b),
        layout(Kind::Bf16, of_c),
    ];
    let (order, transposed) = (
        hipblasLtOrder_t::HIPBLASLT_ORDER_ROW,
        hipblasOperation_t::HIPBLAS_OP_T,
    );
    let (alpha, beta) = (2.0_f32, -1.0_f32);
    let (mut handle, mut desc) = (ptr::null_mut(), ptr::null_mut());
    unsafe {
        ok(lt().hipblasLtCreate(&mut handle));
        ok(lt().hipblasLtMatrixTransformDescCreate(&mut desc, hipDataType::HIP_R_32F));
        let attribute = Transform::HIPBLASLT_MATRIX_TRANSFORM_DESC_TRANSB;
        ok(lt().hipblasLtMatrixTransformDescSetAttribute(desc, attribute, (&raw const transposed).cast(), 4));
        let attribute = Layout::HIPBLASLT_MATRIX_LAYOUT_ORDER;
        ok(lt().hipblasLtMatrixLayoutSetAttribute(layouts[0], attribute, (&raw const order).cast(), 4));
        ok(lt().hipblasLtMatrixTransform(
            handle,
            desc,
            (&raw const alpha).cast(),
            a_device.address(),
            layouts[0],
            (&raw const beta).cast(),
            b_device.address(),
            layouts[1],
            c_device.address(),
            layouts[2],
            ptr::null_mut(),
        ));
    }
    let mut expected = Vec::new();
    for column in 0..columns {
        for row in 0..rows {
            let at = of_a.index(0, column, row);
            expected.push((2.0 * a[at] - b[at], 3.0 * Kind::F32.roundoff() * 3.0));
        }
    }
    compare("transform", Kind::Bf16, &c_device.download(), &expected);
    unsafe {
        for layout in layouts {
            ok(lt().hipblasLtMatrixLayoutDestroy(layout));
        }
        ok(lt().hipblasLtMatrixTransformDescDestroy(desc));
        ok(lt().hipblasLtDestroy(handle));
    }
}
