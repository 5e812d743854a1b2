//! rocBLAS and hipBLASLt, against plain loops in f64.

use bytemuck::Pod;
use half::{bf16, f16};
use hip_safe::{Blas, BlasLt, DType, Device, Epilogue, Gemm, MatmulOperands, Matrix, Scales};

use super::{Check, numbers, within, worst};

/// An element type of the products.
pub(crate) trait Element: Pod + Send + Sync {
    fn from(value: f32) -> Self;
    fn to(self) -> f64;
}
impl Element for f32 {
    fn from(value: f32) -> Self {
        value
    }
    fn to(self) -> f64 {
        self.into()
    }
}
impl Element for f16 {
    fn from(value: f32) -> Self {
        Self::from_f32(value)
    }
    fn to(self) -> f64 {
        self.into()
    }
}
impl Element for bf16 {
    fn from(value: f32) -> Self {
        Self::from_f32(value)
    }
    fn to(self) -> f64 {
        self.into()
    }
}

pub(crate) fn values<T: Element>(len: usize, seed: u32) -> Vec<T> {
    numbers(len, seed).into_iter().map(T::from).collect()
}

/// Every transposition, strided and batched, f32 and narrow results.
pub(crate) fn blas<T: Element>(device: &Device, dtype: DType) -> Check {
    let stream = device.stream()?;
    let mut blas = Blas::new(&stream)?;
    let mut notes = Vec::new();
    for (turned, batch, (m, n, k)) in [
        (0, 1, (64, 48, 80)),
        (2, 1, (197, 768, 192)),
        (1, 3, (40, 24, 56)),
        (3, 2, (33, 17, 65)),
        (2, 4, (49, 49, 64)),
    ] {
        let side = |turned: bool, rows: usize, columns: usize| match turned {
            false => Matrix::rows(columns + 8).every(rows * (columns + 8)),
            true => Matrix::transposed(rows + 8).every(columns * (rows + 8)),
        };
        let gemm = Gemm {
            batch,
            a: side(turned & 1 != 0, m, k),
            b: side(turned & 2 != 0, k, n),
            c: Matrix::rows(n).every(m * n),
            alpha: 0.5,
            ..Gemm::new(m, n, k, dtype)
        };
        let (a, b) = (
            values::<T>(batch * gemm.a.batch_stride, 5),
            values::<T>(batch * gemm.b.batch_stride, 6),
        );
        let mut expected = vec![0.0; batch * m * n];
        let at = |matrix: &Matrix, values: &[T], z: usize, row: usize, column: usize| {
            let (row, column) = if matrix.transposed {
                (column, row)
            } else {
                (row, column)
            };
            values[z * matrix.batch_stride + row * matrix.stride + column].to()
        };
        for (index, out) in expected.iter_mut().enumerate() {
            let (z, i, j) = (index / (m * n), index / n % m, index % n);
            *out = 0.5
                * (0..k)
                    .map(|l| at(&gemm.a, &a, z, i, l) * at(&gemm.b, &b, z, l, j))
                    .sum::<f64>();
        }
        let (a, b) = (stream.upload(&a)?, stream.upload(&b)?);
        let mut c = stream.zeroed::<T>(expected.len())?;
        blas.gemm(&gemm, a.reading(), b.reading(), c.writing())?;
        let error = worst(c.read()?.into_iter().map(T::to), &expected);
        notes.push(within(error, bound(dtype, k)).map_err(|e| format!("{e}: {gemm:?}"))?);
    }
    Ok(notes.join("; "))
}

/// Sums of `k` products of numbers up to 1: accumulated in f32, and
/// one rounding to the result's type at its largest magnitude, some 6 standard deviations of √(k/9).
pub(crate) fn bound(dtype: DType, k: usize) -> f64 {
    let largest = 2.0 * (k as f64).sqrt() + 1.0;
    let epsilon = match dtype {
        DType::F16 => 2f64.powi(-11),
        DType::BF16 => 2f64.powi(-8),
        _ => k as f64 * 2f64.powi(-24),
    };
    largest * epsilon
}

pub(crate) fn blas_lt(device: &Device) -> Check {
    let stream = device.stream()?;
    let mut lt = BlasLt::new(&stream)?;
    let (m, n, k) = (192, 256, 128);
    let (a, b, c, bias) = (
        values::<f16>(m * k, 7),
        values::<f16>(n * k, 8),
        values::<f16>(m * n, 9),
        values::<f16>(n, 10),
    );
    let [da, db, dc, dbias] = [&a, &b, &c, &bias].map(|values| stream.upload(values));
    let (da, db, dc, dbias) = (da?, db?, dc?, dbias?);
    let mut d = stream.zeroed::<f16>(m * n)?;
    let mut notes = Vec::new();
    for epilogue in [
        Epilogue::None,
        Epilogue::Bias,
        Epilogue::Gelu,
        Epilogue::BiasGelu,
        Epilogue::BiasRelu,
    ] {
        let has_bias = !matches!(epilogue, Epilogue::None | Epilogue::Gelu);
        let gemm = Gemm {
            beta: 1.0,
            ..Gemm::linear(m, n, k, DType::F16)
        };
        let expected: Vec<f64> = (0..m * n)
            .map(|index| {
                let (i, j) = (index / n, index % n);
                let product: f64 = (0..k).map(|l| a[i * k + l].to() * b[j * k + l].to()).sum();
                let x = product + c[index].to() + if has_bias { bias[j].to() } else { 0.0 };
                match epilogue {
                    Epilogue::Gelu | Epilogue::BiasGelu => {
                        let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
                        0.5 * x * (1.0 + inner.tanh())
                    }
                    Epilogue::BiasRelu => x.max(0.0),
                    _ => x,
                }
            })
            .collect();
        let mut matmul = lt.matmul(gemm, epilogue)?;
        for algorithm in 0..matmul.algorithms() {
            matmul.select(algorithm)?;
            d.fill(0xff)?;
            let operands = MatmulOperands {
                a: da.reading(),
                b: db.reading(),
                c: Some(dc.reading()),
                d: d.writing(),
                bias: has_bias.then(|| dbias.reading()),
                scales: Scales::default(),
            };
            lt.run(&mut matmul, operands)?;
            let error = worst(d.read()?.into_iter().map(Element::to), &expected);
            within(error, 2.0 * bound(DType::F16, k))
                .map_err(|e| format!("{epilogue:?} {algorithm}: {e}"))?;
        }
        notes.push(format!("{epilogue:?} by {} algorithms", matmul.algorithms()));
    }
    Ok(notes.join(", "))
}
