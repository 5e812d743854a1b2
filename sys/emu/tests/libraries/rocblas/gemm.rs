//! GEMM.

use super::*;

/// A GEMM: its sizes, types, and the values of its matrices.
struct Case {
    sizes: [usize; 3],
    transposed: [bool; 2],
    input: Kind,
    output: Kind,
    compute: Kind,
    alpha: f64,
    beta: f64,
    batch: usize,
    shapes: [Shape; 3],
    values: [Vec<f64>; 3],
}

impl Case {
    fn new(
        sizes: [usize; 3],
        transposed: [bool; 2],
        [input, output, compute]: [Kind; 3],
        batch: usize,
    ) -> Self {
        let [m, n, k] = sizes;
        let turned = |rows, columns, transposed| {
            if transposed {
                Shape::with_gaps(columns, rows, batch)
            } else {
                Shape::with_gaps(rows, columns, batch)
            }
        };
        let shapes = [
            turned(m, k, transposed[0]),
            turned(k, n, transposed[1]),
            Shape::with_gaps(m, n, batch),
        ];
        let of = |index: usize, kind| numbers(kind, shapes[index].count(), (m * n + k + index) as u64);
        let factor = |value: f64| {
            if output == Kind::I32 {
                (value * 4.0).round()
            } else {
                value
            }
        };
        Self {
            sizes,
            transposed,
            input,
            output,
            compute,
            alpha: factor(1.25),
            beta: factor(-0.5),
            batch,
            shapes,
            values: [of(0, input), of(1, input), of(2, output)],
        }
    }

    /// Returns each result and its error bound. Adding k products, and C, takes k + 3 roundings, each of at most the sum of the
    /// terms' sizes.
    fn expected(&self) -> Vec<(f64, f64)> {
        let [m, n, k] = self.sizes;
        let [a, b, c] = self.shapes;
        let mut expected = Vec::new();
        for matrix in 0..self.batch {
            for column in 0..n {
                for row in 0..m {
                    let (mut sum, mut size) = (0.0, 0.0_f64);
                    for i in 0..k {
                        let left = if self.transposed[0] {
                            a.index(matrix, i, row)
                        } else {
                            a.index(matrix, row, i)
                        };
                        let right = if self.transposed[1] {
                            b.index(matrix, column, i)
                        } else {
                            b.index(matrix, i, column)
                        };
                        let term = self.values[0][left] * self.values[1][right];
                        sum += term;
                        size += term.abs();
                    }
                    let old = if self.beta == 0.0 {
                        0.0
                    } else {
                        self.beta * self.values[2][c.index(matrix, row, column)]
                    };
                    let size = self.alpha.abs() * size + old.abs();
                    let roundoff = self.input.accumulator().roundoff();
                    expected.push((self.alpha * sum + old, (k + 3) as f64 * roundoff * size));
                }
            }
        }
        expected
    }

    fn buffers(&self) -> [Buffer; 3] {
        let kinds = [self.input, self.input, self.output];
        std::array::from_fn(|index| Buffer::matrices(kinds[index], &self.values[index], self.shapes[index]))
    }

    /// `D = alpha·op(A)·op(B) + beta·C` into a D of its own.
    fn run(&self, handle: &Handle) -> Vec<f64> {
        let [a, b, c] = self.buffers();
        let d = Buffer::matrices(self.output, &vec![0.0; self.shapes[2].count()], self.shapes[2]);
        let [alpha, beta] = [self.alpha, self.beta].map(|factor| self.compute.encode(factor));
        ok(unsafe {
            self.call(
                handle,
                [&a, &b, &c, &d],
                alpha.as_ptr().cast(),
                beta.as_ptr().cast(),
            )
        });
        drop((alpha, beta));
        let result = d.download();
        assert_eq!(c.download(), self.values[2], "C is not written");
        result
    }

    unsafe fn call(
        &self,
        handle: &Handle,
        [a, b, c, d]: [&Buffer; 4],
        alpha: *const std::ffi::c_void,
        beta: *const std::ffi::c_void,
    ) -> Result<Status, hipvit_sys::Error> {
        let [m, n, k] = self.sizes.map(|size| size as i32);
        let [lda, ldb, ldc] = self.shapes.map(|shape| shape.leading as i32);
        let [stride_a, stride_b, stride_c] = self.shapes.map(|shape| shape.stride as i64);
        let (input, output, compute) = (
            datatype(self.input),
            datatype(self.output),
            datatype(self.compute),
        );
        let (op_a, op_b) = (operation(self.transposed[0]), operation(self.transposed[1]));
        let algorithm = rocblas_gemm_algo_::rocblas_gemm_algo_standard;
        unsafe {
            if self.batch == 1 {
                blas().rocblas_gemm_ex(
                    handle.0,
                    op_a,
                    op_b,
                    m,
                    n,
                    k,
                    alpha,
                    a.address(),
                    input,
                    lda,
                    b.address(),
                    input,
                    ldb,
                    beta,
                    c.address(),
                    output,
                    ldc,
                    d.address(),
                    output,
                    ldc,
                    compute,
                    algorithm,
                    0,
                    0,
                )
            } else {
                blas().rocblas_gemm_strided_batched_ex(
                    handle.0,
                    op_a,
                    op_b,
                    m,
                    n,
                    k,
                    alpha,
                    a.address(),
                    input,
                    lda,
                    stride_a,
                    b.address(),
                    input,
                    ldb,
                    stride_b,
                    beta,
                    c.address(),
                    output,
                    ldc,
                    stride_c,
                    d.address(),
                    output,
                    ldc,
                    stride_c,
                    self.batch as i32,
                    compute,
                    algorithm,
                    0,
                    0,
                )
            }
        }
    }
}

const TYPES: [[Kind; 3]; 8] = [
    [Kind::F32, Kind::F32, Kind::F32],
    [Kind::F16, Kind::F16, Kind::F32],
    [Kind::F16, Kind::F16, Kind::F16],
    [Kind::F16, Kind::F32, Kind::F32],
    [Kind::Bf16, Kind::Bf16, Kind::F32],
    [Kind::Bf16, Kind::F32, Kind::F32],
    [Kind::F64, Kind::F64, Kind::F64],
    [Kind::I8, Kind::I32, Kind::I32],
];

#[test]
fn gemm_of_every_type_and_transposition() {
    let handle = Handle::new();
    for types in TYPES {
        for transposed in [[false, false], [false, true], [true, false], [true, true]] {
            for sizes in [[1, 1, 1], [63, 65, 64], [5, 197, 3], [65, 1, 257]] {
                let case = Case::new(sizes, transposed, types, 1);
                let what = format!("{types:?} {transposed:?} {sizes:?}");
                compare(&what, types[1], &case.run(&handle), &case.expected());
            }
        }
    }
}

#[test]
fn batches_with_strides() {
    let handle = Handle::new();
    for types in TYPES {
        let case = Case::new([33, 17, 65], [true, false], types, 3);
        compare(
            &format!("{types:?}"),
            types[1],
            &case.run(&handle),
            &case.expected(),
        );
    }
}

#[test]
fn nothing_is_read_where_its_factor_is_zero() {
    let handle = Handle::new();
    let mut case = Case::new([7, 9, 11], [false, false], TYPES[0], 1);
    (case.beta, case.values[2]) = (0.0, vec![f64::NAN; 63]);
    let [a, b, c] = case.buffers();
    let (alpha, beta) = (case.alpha as f32, 0.0_f32);
    ok(unsafe {
        case.call(
            &handle,
            [&a, &b, &c, &c],
            (&raw const alpha).cast(),
            (&raw const beta).cast(),
        )
    });
    compare("beta of 0", Kind::F32, &c.download(), &case.expected());

    case.values = [vec![f64::NAN; 77], vec![f64::NAN; 99], numbers(Kind::F32, 63, 5)];
    let [a, b, c] = case.buffers();
    let (alpha, beta) = (0.0_f32, 2.0_f32);
    ok(unsafe {
        case.call(
            &handle,
            [&a, &b, &c, &c],
            (&raw const alpha).cast(),
            (&raw const beta).cast(),
        )
    });
    let expected: Vec<_> = case.values[2].iter().map(|c| (2.0 * c, 0.0)).collect();
    compare("alpha of 0", Kind::F32, &c.download(), &expected);
}

#[test]
fn host_scalars_are_read_at_the_call_and_device_scalars_when_the_work_runs() {
    let case = Case::new([31, 29, 37], [false, true], TYPES[0], 1);
    let [a, b, c] = case.buffers();
    let handle = Handle::new();
    let (mut alpha, mut beta) = (case.alpha as f32, case.beta as f32);
    ok(unsafe {
        case.call(
            &handle,
            [&a, &b, &c, &c],
            (&raw const alpha).cast(),
            (&raw const beta).cast(),
        )
    });
    (alpha, beta) = (f32::NAN, f32::NAN);
    compare("host", Kind::F32, &c.download(), &case.expected());
    assert!(alpha.is_nan() && beta.is_nan());

    let handle = Handle::new().scalars_on_device();
    let c = Buffer::matrices(Kind::F32, &case.values[2], case.shapes[2]);
    let factors = Buffer::new(Kind::F32, &[f64::NAN, f64::NAN]);
    let right = Buffer::new(Kind::F32, &[case.alpha, case.beta]);
    // The copy is submitted before the GEMM, and both run later.
    let kind = hipvit_sys::hip::hipMemcpyKind::hipMemcpyDeviceToDevice;
    ok(unsafe { hip().hipMemcpyAsync(factors.address(), right.address(), 8, kind, ptr::null_mut()) });
    let beta = factors.address().wrapping_byte_add(4);
    ok(unsafe { case.call(&handle, [&a, &b, &c, &c], factors.address(), beta) });
    compare("device", Kind::F32, &c.download(), &case.expected());
}

#[test]
fn arrays_of_addresses_are_read_on_the_device() {
    let case = Case::new([19, 23, 21], [true, true], TYPES[1], 3);
    let handle = Handle::new();
    let [a, b, c] = case.buffers();
    let list = |buffer: &Buffer, shape: &Shape, kind: Kind| {
        let address = |matrix: usize| {
            let at = buffer
                .address()
                .wrapping_byte_add(matrix * shape.stride * kind.size());
            f64::from_bits(at.expose_provenance() as u64)
        };
        // Addresses, stored as f64 bits.
        Buffer::new(Kind::F64, &[address(0), address(1), address(2)])
    };
    let [lists_a, lists_b, lists_c] = [
        list(&a, &case.shapes[0], case.input),
        list(&b, &case.shapes[1], case.input),
        list(&c, &case.shapes[2], case.output),
    ];
    let (alpha, beta) = (case.alpha as f32, case.beta as f32);
    let half = Datatype::rocblas_datatype_f16_r;
    let [lda, ldb, ldc] = case.shapes.map(|shape| shape.leading as i32);
    ok(unsafe {
        blas().rocblas_gemm_batched_ex(
            handle.0,
            operation(true),
            operation(true),
            19,
            23,
            21,
            (&raw const alpha).cast(),
            lists_a.address(),
            half,
            lda,
            lists_b.address(),
            half,
            ldb,
            (&raw const beta).cast(),
            lists_c.address(),
            half,
            ldc,
            lists_c.address(),
            half,
            ldc,
            3,
            Datatype::rocblas_datatype_f32_r,
            rocblas_gemm_algo_::rocblas_gemm_algo_standard,
            0,
            0,
        )
    });
    compare("batched", Kind::F16, &c.download(), &case.expected());
}

#[test]
fn arguments_are_checked_as_rocblas_does() {
    let handle = Handle::new();
    let case = Case::new([4, 5, 6], [false, false], TYPES[0], 1);
    let [a, b, c] = case.buffers();
    let call = |[m, n, k]: [i32; 3],
                lda: i32,
                ldc: i32,
                op: Operation,
                d: *mut std::ffi::c_void,
                kind: Datatype| unsafe {
        let one = 1.0_f32;
        let one = (&raw const one).cast();
        blas().rocblas_gemm_ex(
            handle.0,
            op,
            operation(false),
            m,
            n,
            k,
            one,
            a.address(),
            kind,
            lda,
            b.address(),
            kind,
            9,
            one,
            c.address(),
            kind,
            7,
            d,
            kind,
            ldc,
            kind,
            rocblas_gemm_algo_::rocblas_gemm_algo_standard,
            0,
            0,
        )
    };
    let (f32, none) = (Datatype::rocblas_datatype_f32_r, operation(false));
    refused(
        call([-1, 5, 6], 7, 7, none, c.address(), f32),
        Status::rocblas_status_invalid_size,
    );
    refused(
        call([4, 5, 6], 3, 7, none, c.address(), f32),
        Status::rocblas_status_invalid_size,
    );
    refused(
        call([4, 5, 6], 7, 8, none, c.address(), f32),
        Status::rocblas_status_invalid_size,
    );
    refused(
        call([4, 5, 6], 7, 7, Operation(7), c.address(), f32),
        Status::rocblas_status_invalid_value,
    );
    refused(
        call([4, 5, 6], 7, 7, none, ptr::null_mut(), f32),
        Status::rocblas_status_invalid_pointer,
    );
    let complex = Datatype::rocblas_datatype_f32_c;
    refused(
        call([4, 5, 6], 7, 7, none, c.address(), complex),
        Status::rocblas_status_not_implemented,
    );
    ok(call([0, 5, 6], 7, 7, none, ptr::null_mut(), f32));
    let mut stream = ptr::null_mut();
    refused(
        unsafe { blas().rocblas_get_stream(ptr::null_mut(), &mut stream) },
        Status::rocblas_status_invalid_handle,
    );
    synchronize();
    assert_eq!(c.download(), case.values[2], "nothing was done");
}
