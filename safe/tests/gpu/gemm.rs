//! rocBLAS and hipBLASLt, against plain loops in f64.

use bytemuck::Pod;
use half::{bf16, f16};
use hip_safe::{Blas, BlasLt, DType, Device, Epilogue, Error, Gemm, MatmulOperands, Matrix, Scales, Scaling};

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
        let side = |turned: bool, rows: usize, columns: usize| {
            if !turned {
                Matrix::rows(columns + 8).every(rows * (columns + 8))
            } else {
                Matrix::transposed(rows + 8).every(columns * (rows + 8))
            }
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

/// Error bound of sums of `k` products of numbers up to 1, accumulated in f32. One rounding to the result's type at its largest
/// magnitude, some 6 standard deviations of √(k/9).
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
                aux: None,
                scales: Scales::default(),
                amax: None,
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

/// The epilogues of a layer in training: GELU that keeps its operand, and GELU's derivative at it.
pub(crate) fn blas_lt_aux(device: &Device) -> Check {
    let stream = device.stream()?;
    let mut lt = BlasLt::new(&stream)?;
    let (m, n, k) = (192, 256, 128);
    let [a, b, kept, bias] =
        [(m * k, 17), (n * k, 18), (m * n, 19), (n, 20)].map(|(len, seed)| values::<bf16>(len, seed));
    let [da, db, dbias] = [&a, &b, &bias].map(|values| stream.upload(values));
    let (da, db, dbias) = (da?, db?, dbias?);
    let mut d = stream.zeroed::<bf16>(m * n)?;
    let argument = |x: f64| (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
    let gelu = |x: f64| 0.5 * x * (1.0 + argument(x).tanh());
    let slope = |x: f64| {
        let (tanh, inner) = (
            argument(x).tanh(),
            (2.0 / std::f64::consts::PI).sqrt() * (1.0 + 3.0 * 0.044_715 * x * x),
        );
        0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * inner
    };
    let mut notes = Vec::new();
    for epilogue in [Epilogue::GeluAux, Epilogue::BiasGeluAux, Epilogue::GeluGradient] {
        let is_gradient = epilogue == Epilogue::GeluGradient;
        let has_bias = epilogue == Epilogue::BiasGeluAux;
        let sum = |index: usize| {
            let (i, j) = (index / n, index % n);
            let product: f64 = (0..k).map(|l| a[i * k + l].to() * b[j * k + l].to()).sum();
            product + if has_bias { bias[j].to() } else { 0.0 }
        };
        let sums: Vec<f64> = (0..m * n).map(sum).collect();
        let expected: Vec<f64> = if is_gradient {
            sums.iter()
                .zip(&kept)
                .map(|(sum, at)| sum * slope(at.to()))
                .collect()
        } else {
            sums.iter().map(|&sum| gelu(sum)).collect()
        };
        let mut matmul = lt.matmul(Gemm::linear(m, n, k, DType::BF16), epilogue)?;
        for algorithm in 0..matmul.algorithms() {
            matmul.select(algorithm)?;
            d.fill(0xff)?;
            let mut aux = stream.upload(&kept)?;
            let mut run = |aux| {
                let operands = MatmulOperands {
                    a: da.reading(),
                    b: db.reading(),
                    c: None,
                    d: d.writing(),
                    bias: has_bias.then(|| dbias.reading()),
                    aux,
                    scales: Scales::default(),
                    amax: None,
                };
                lt.run(&mut matmul, operands)
            };
            match run(None) {
                Err(Error::Argument { .. }) => {}
                done => return Err(format!("{epilogue:?} without its matrix: {done:?}").into()),
            }
            run(Some(aux.writing()))?;
            let at = |what| move |e| format!("{epilogue:?} {algorithm}, {what}: {e}");
            // The slope is up to 1.13.
            let error = worst(d.read()?.into_iter().map(Element::to), &expected);
            within(error, 2.0 * bound(DType::BF16, k)).map_err(at("result"))?;
            let before = if is_gradient {
                kept.iter().map(|x| x.to()).collect()
            } else {
                sums.clone()
            };
            let error = worst(aux.read()?.into_iter().map(Element::to), &before);
            within(error, 2.0 * bound(DType::BF16, k)).map_err(at("auxiliary matrix"))?;
        }
        notes.push(format!("{epilogue:?} by {} algorithms", matmul.algorithms()));
    }
    Ok(notes.join(", "))
}

/// A result of E4M3 with a factor, and its largest magnitude before that.
pub(crate) fn blas_lt_amax(device: &Device) -> Check {
    let Some(float8) = device.properties().float8() else {
        return Ok("the GPU does not multiply E4M3".into());
    };
    let stream = device.stream()?;
    let mut lt = BlasLt::new(&stream)?;
    let (m, n, k) = (32, 48, 64);
    // 1 in OCP's encoding, which is 1/2 in FNUZ; each row has as many as its number says.
    let a: Vec<u8> = (0..m * k)
        .map(|index| if index % k <= index / k { 0x38 } else { 0 })
        .collect();
    let unit = if float8 == DType::F8E4M3Fnuz { 0.25 } else { 1.0 };
    let gemm = Gemm {
        wide: DType::BF16,
        scaling: Scaling::Tensor,
        amax: true,
        ..Gemm::linear(m, n, k, float8)
    };
    let mut matmul = match lt.matmul(gemm, Epilogue::None) {
        Ok(matmul) => matmul,
        Err(error) => return Ok(format!("hipBLASLt has none: {error}")),
    };
    let (a, b) = (stream.upload(&a)?, stream.upload(&vec![0x38u8; n * k])?);
    let (one, factor) = (stream.upload(&[1f32])?, stream.upload(&[0.5f32])?);
    let mut amax = stream.zeroed::<f32>(1)?;
    let mut d = stream.zeroed::<u8>(m * n)?;
    for given in [false, true] {
        let operands = MatmulOperands {
            a: a.reading(),
            b: b.reading(),
            c: None,
            d: d.writing(),
            bias: None,
            aux: None,
            scales: Scales {
                a: Some(one.reading()),
                b: Some(one.reading()),
                d: Some(factor.reading()),
            },
            amax: given.then(|| amax.writing()),
        };
        match (lt.run(&mut matmul, operands), given) {
            (Ok(()), true) | (Err(Error::Argument { .. }), false) => {}
            (done, given) => return Err(format!("amax given: {given}: {done:?}").into()),
        }
    }
    let largest = f64::from(amax.read()?[0]);
    within((largest - m as f64 * unit).abs(), 0.0).map_err(|e| format!("{e}: {largest}").into())
}

/// E4M3 with scales of matrices, and of rows and columns; and without, where that is said.
pub(crate) fn blas_lt_float8(device: &Device) -> Check {
    let Some(float8) = device.properties().float8() else {
        return Ok("the GPU does not multiply E4M3".into());
    };
    let stream = device.stream()?;
    let mut lt = BlasLt::new(&stream)?;
    let (m, n, k) = (80, 48, 64);
    // ±1/2, ±1, ±2 and ±4 in OCP's encoding; in FNUZ the same bits are half as much.
    let bits = |len: usize, seed: u32| -> Vec<u8> {
        let bits = |x: f32| ((x < 0.0) as u8 * 0x80) | (0x30 + ((x.abs() * 4.0) as u8 & 3) * 8);
        numbers(len, seed).into_iter().map(bits).collect()
    };
    let unit = if float8 == DType::F8E4M3Fnuz { 0.5 } else { 1.0 };
    let value = |bits: u8| {
        let magnitude = 2f64.powi(i32::from(bits >> 3 & 15) - 7) * unit;
        if bits & 0x80 == 0 { magnitude } else { -magnitude }
    };
    let (a, b) = (bits(m * k, 11), bits(n * k, 12));
    let (rows, columns) = (values::<f32>(m, 13), values::<f32>(n, 14));
    let bias = values::<bf16>(n, 15);
    let (da, db, dbias) = (stream.upload(&a)?, stream.upload(&b)?, stream.upload(&bias)?);
    let (drows, dcolumns) = (stream.upload(&rows)?, stream.upload(&columns)?);
    let mut d = stream.zeroed::<bf16>(m * n)?;
    let mut notes = Vec::new();
    for scaling in [Scaling::None, Scaling::Tensor, Scaling::Outer] {
        let gemm = Gemm {
            wide: DType::BF16,
            output: DType::BF16,
            scaling,
            ..Gemm::linear(m, n, k, float8)
        };
        let mut matmul = match lt.matmul(gemm, Epilogue::Bias) {
            Err(error) if scaling == Scaling::Outer => {
                notes.push(format!("not {scaling:?}: {error}"));
                continue;
            }
            matmul => matmul?,
        };
        let scale = |i: usize, j: usize| match scaling {
            Scaling::None => 1.0,
            Scaling::Tensor => f64::from(rows[0]) * f64::from(columns[0]),
            Scaling::Outer => f64::from(rows[i]) * f64::from(columns[j]),
        };
        let expected: Vec<f64> = (0..m * n)
            .map(|index| {
                let (i, j) = (index / n, index % n);
                let sum: f64 = (0..k).map(|l| value(a[i * k + l]) * value(b[j * k + l])).sum();
                scale(i, j) * sum + bias[j].to()
            })
            .collect();
        let largest = expected.iter().fold(0f64, |largest, x| largest.max(x.abs()));
        let all = Scales {
            a: Some(drows.reading()),
            b: Some(dcolumns.reading()),
            d: None,
        };
        let (given, other) = match scaling {
            Scaling::None => (Scales::default(), all),
            _ => (all, Scales::default()),
        };
        for algorithm in 0..matmul.algorithms() {
            matmul.select(algorithm)?;
            d.fill(0xff)?;
            let mut run = |scales| {
                let operands = MatmulOperands {
                    a: da.reading(),
                    b: db.reading(),
                    c: None,
                    d: d.writing(),
                    bias: Some(dbias.reading()),
                    aux: None,
                    scales,
                    amax: None,
                };
                lt.run(&mut matmul, operands)
            };
            match run(other) {
                Err(Error::Argument { .. }) => {}
                done => return Err(format!("{scaling:?} with other scales: {done:?}").into()),
            }
            run(given)?;
            let error = worst(d.read()?.into_iter().map(bf16::to), &expected);
            // The sums are exact in f32; tensor cores of sm_90 keep 13 bits behind the largest product's first.
            within(error, largest * (2f64.powi(-8) + k as f64 * 2f64.powi(-13)))
                .map_err(|e| format!("{scaling:?} {algorithm}: {e}"))?;
        }
        notes.push(format!("{scaling:?} by {} algorithms", matmul.algorithms()));
    }
    Ok(notes.join(", "))
}
