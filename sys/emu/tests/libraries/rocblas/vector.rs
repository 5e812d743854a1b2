//! Vectors, and matrices times vectors.

use super::*;

#[test]
fn vectors() {
    let handle = Handle::new();
    let count = 257;
    let (x, y) = (numbers(Kind::F32, count, 1), numbers(Kind::F32, count, 2));
    let spread = |values: &[f64], step: usize| {
        Buffer::at(
            Kind::F32,
            values,
            (0..values.len()).map(|index| index * step).collect(),
        )
    };
    let (x_device, y_device) = (spread(&x, 2), spread(&y, 3));
    let (n, alpha) = (count as i32, 1.5_f32);
    let (px, py) = (x_device.address().cast::<f32>(), y_device.address().cast::<f32>());
    let (mut dot, mut norm, mut sum, mut largest) = (0.0_f32, 0.0_f32, 0.0_f32, 0);
    unsafe {
        ok(blas().rocblas_sdot(handle.0, n, px, 2, py, 3, &mut dot));
        ok(blas().rocblas_snrm2(handle.0, n, px, 2, &mut norm));
        ok(blas().rocblas_sasum(handle.0, n, px, 2, &mut sum));
        ok(blas().rocblas_isamax(handle.0, n, px, 2, &mut largest));
    }
    let products: f64 = x.iter().zip(&y).map(|(x, y)| x * y).sum();
    let squares: f64 = x.iter().map(|x| x * x).sum();
    let sizes: f64 = x.iter().map(|x| x.abs()).sum();
    // Summed in f64: one rounding to f32 is all that shows.
    compare("dot", Kind::F32, &[dot.into()], &[(products, 1e-12)]);
    compare("nrm2", Kind::F32, &[norm.into()], &[(squares.sqrt(), 1e-12)]);
    compare("asum", Kind::F32, &[sum.into()], &[(sizes, 1e-12)]);
    let position = x
        .iter()
        .position(|value| x.iter().all(|other| other.abs() <= value.abs()));
    assert_eq!(Some(largest as usize - 1), position);

    unsafe {
        ok(blas().rocblas_saxpy(handle.0, n, &alpha, px, 2, py, 3));
        ok(blas().rocblas_sscal(handle.0, n, &alpha, px, 2));
    }
    let scaled: Vec<_> = x.iter().map(|x| (1.5 * x, 0.0)).collect();
    compare("scal", Kind::F32, &x_device.download(), &scaled);
    let added: Vec<_> = x.iter().zip(&y).map(|(x, y)| (1.5 * x + y, 0.0)).collect();
    compare("axpy", Kind::F32, &y_device.download(), &added);
    // From the end to the beginning.
    let reversed = spread(&y, 1);
    ok(unsafe { blas().rocblas_scopy(handle.0, n, px, 2, reversed.address().cast(), -1) });
    let mut copied = x_device.download();
    copied.reverse();
    assert_eq!(reversed.download(), copied);
}

#[test]
fn a_matrix_times_a_vector() {
    let handle = Handle::new();
    for (transposed, rows, columns) in [(false, 65, 33), (true, 63, 197)] {
        let shape = Shape::with_gaps(rows, columns, 1);
        let (out, sum) = if transposed {
            (columns, rows)
        } else {
            (rows, columns)
        };
        let (a, x, y) = (
            numbers(Kind::F32, shape.count(), 1),
            numbers(Kind::F32, sum, 2),
            numbers(Kind::F32, out, 3),
        );
        let (a_device, x_device, y_device) = (
            Buffer::matrices(Kind::F32, &a, shape),
            Buffer::new(Kind::F32, &x),
            Buffer::new(Kind::F32, &y),
        );
        let (alpha, beta) = (0.75_f32, 2.0_f32);
        ok(unsafe {
            blas().rocblas_sgemv(
                handle.0,
                operation(transposed),
                rows as i32,
                columns as i32,
                &alpha,
                a_device.address().cast(),
                shape.leading as i32,
                x_device.address().cast(),
                1,
                &beta,
                y_device.address().cast(),
                1,
            )
        });
        let one = |row: usize| {
            let at = |i| {
                if transposed {
                    shape.index(0, i, row)
                } else {
                    shape.index(0, row, i)
                }
            };
            let sum: f64 = (0..sum).map(|i| a[at(i)] * x[i]).sum();
            // In f64: the error shows in no f32.
            (0.75 * sum + 2.0 * y[row], 1e-12)
        };
        let expected: Vec<_> = (0..out).map(one).collect();
        compare("gemv", Kind::F32, &y_device.download(), &expected);
    }
}
