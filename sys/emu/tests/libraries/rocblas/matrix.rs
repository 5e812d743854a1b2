//! Sums and transfers of matrices.

use super::*;

#[test]
fn sums_of_matrices() {
    let handle = Handle::new();
    let (m, n) = (17, 9);
    let (of_a, of_b) = (Shape::with_gaps(n, m, 1), Shape::with_gaps(m, n, 1));
    let (a, b) = (numbers(Kind::F32, m * n, 1), numbers(Kind::F32, m * n, 2));
    let (a_device, b_device) = (
        Buffer::matrices(Kind::F32, &a, of_a),
        Buffer::matrices(Kind::F32, &b, of_b),
    );
    let (alpha, beta) = (2.0_f32, -0.5_f32);
    ok(unsafe {
        blas().rocblas_sgeam(
            handle.0,
            operation(true),
            operation(false),
            m as i32,
            n as i32,
            &alpha,
            a_device.address().cast(),
            of_a.leading as i32,
            &beta,
            b_device.address().cast(),
            of_b.leading as i32,
            b_device.address().cast(),
            of_b.leading as i32,
        )
    });
    let mut expected = Vec::new();
    for column in 0..n {
        for row in 0..m {
            let value = 2.0 * a[of_a.index(0, column, row)] - 0.5 * b[of_b.index(0, row, column)];
            expected.push((value, 3.0 * Kind::F32.roundoff()));
        }
    }
    compare("geam", Kind::F32, &b_device.download(), &expected);
}

#[test]
fn transfers_of_vectors_and_matrices() {
    let values: Vec<f32> = (0..12_u8).map(f32::from).collect();
    let wide: Vec<_> = values.iter().map(|value| f64::from(*value)).collect();
    let on_device = Buffer::matrices(Kind::F32, &[0.0; 12], Shape::with_gaps(3, 4, 1));
    let mut back = [0.0_f32; 12];
    unsafe {
        ok(blas().rocblas_set_matrix(3, 4, 4, values.as_ptr().cast(), 3, on_device.address(), 6));
        assert_eq!(on_device.download(), wide);
        ok(blas().rocblas_get_matrix(3, 4, 4, on_device.address(), 6, back.as_mut_ptr().cast(), 3));
        assert_eq!(back[..], values);
        // Every sixth element is the first of a column.
        ok(blas().rocblas_get_vector(4, 4, on_device.address(), 6, back.as_mut_ptr().cast(), 2));
        assert_eq!([back[0], back[2], back[4], back[6]], [0.0, 3.0, 6.0, 9.0]);
        refused(
            blas().rocblas_get_matrix(3, 4, 4, on_device.address(), 2, back.as_mut_ptr().cast(), 3),
            Status::rocblas_status_invalid_size,
        );
    }
}
