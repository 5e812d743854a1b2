//! hipSPARSELt, against plain loops in f64.

use half::{bf16, f16};
use hip_safe::{DType, Device, Epilogue, Error, SparseGemm, SparseLt, SparseOperands};

use super::gemm::{Element, bound, values};
use super::{Absent, Check, within, worst};

const N: usize = 48;
const K: usize = 64;

/// Rows that are multiples of 8, that are not, and fewer than 8; with and without a residual where the result goes.
pub(crate) fn sparse_lt(device: &Device) -> Check {
    let stream = device.stream()?;
    let mut lt = match SparseLt::new(&stream) {
        Err(Error::Device { advice, .. }) if advice.contains("architecture") => {
            return Err(Absent("hipSPARSELt is not for this GPU").into());
        }
        opened => opened?,
    };
    let version = lt.version()?;
    let bytes = lt.compressed_bytes([N, K], DType::F16)?;
    for m in [64, 197, 3] {
        of_rows::<f16>(&mut lt, device, DType::F16, m)?;
        of_rows::<bf16>(&mut lt, device, DType::BF16, m)?;
    }
    for [n, k] in [[12, 64], [48, 68]] {
        assert!(lt.compressed_bytes([n, k], DType::F16).is_err(), "[{n}, {k}]");
    }
    assert!(lt.compressed_bytes([N, K], DType::F32).is_err(), "f32");
    Ok(format!("version {version}, [{N}, {K}] in {bytes} bytes"))
}

fn of_rows<T: Element>(lt: &mut SparseLt, device: &Device, dtype: DType, m: usize) -> Check {
    let stream = lt.stream().clone();
    assert_eq!(stream.device(), device);
    let (a, bias, residual) = (values::<T>(m * K, 11), values::<T>(N, 12), values::<T>(m * N, 13));
    let mut weight = values::<T>(N * K, 14);
    for (index, four) in weight.chunks_exact_mut(4).enumerate() {
        four[index % 4] = T::from(0.0);
        four[(index + 1 + index / 4 % 3) % 4] = T::from(0.0);
    }
    let dense = stream.upload(&weight)?;
    let mut compressed = stream.zeroed::<u8>(lt.compressed_bytes([N, K], dtype)?)?;
    lt.compress([N, K], dtype, dense.reading(), compressed.writing())?;
    let (da, dbias) = (stream.upload(&a)?, stream.upload(&bias)?);
    for (epilogue, beta) in [
        (Epilogue::None, 0.0),
        (Epilogue::Bias, 0.0),
        (Epilogue::Bias, 1.0),
        (Epilogue::BiasGelu, 0.0),
        (Epilogue::BiasRelu, 0.0),
    ] {
        let has_bias = epilogue != Epilogue::None;
        let expected: Vec<f64> = (0..m * N)
            .map(|index| {
                let (i, j) = (index / N, index % N);
                let product: f64 = (0..K).map(|l| a[i * K + l].to() * weight[j * K + l].to()).sum();
                let bias = if has_bias { bias[j].to() } else { 0.0 };
                let x = product + bias + f64::from(beta) * residual[index].to();
                match epilogue {
                    Epilogue::BiasGelu => {
                        let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
                        0.5 * x * (1.0 + inner.tanh())
                    }
                    Epilogue::BiasRelu => x.max(0.0),
                    _ => x,
                }
            })
            .collect();
        let gemm = SparseGemm {
            m,
            n: N,
            k: K,
            dtype,
            beta,
        };
        let mut matmul = match lt.matmul(gemm, epilogue, dbias.address()) {
            // cuSPARSELt has no GELU for these types.
            Err(Error::Device { advice, .. })
                if epilogue == Epilogue::BiasGelu && advice.contains("does not offer") =>
            {
                continue;
            }
            matmul => matmul?,
        };
        // Each algorithm once: cuSPARSELt takes 0.1 s for a plan.
        let algorithms = match (m, epilogue) {
            (64, Epilogue::None) => matmul.algorithms(),
            _ => 1,
        };
        let mut computed = 0;
        for algorithm in 0..algorithms {
            // One that splits k may not compute this.
            if algorithms > 1 && matmul.select(lt, algorithm).is_err() {
                continue;
            }
            computed += 1;
            // The residual is in the memory of the result.
            let mut d = stream.upload(&residual)?;
            let operands = SparseOperands {
                a: da.reading(),
                b: compressed.reading(),
                c: None,
                d: d.writing(),
                bias: has_bias.then(|| dbias.reading()),
            };
            let named = |error: String| {
                format!("{m} rows, {dtype}, {epilogue:?}, beta {beta}, algorithm {algorithm}: {error}")
            };
            lt.run(&mut matmul, operands).map_err(|e| named(e.to_string()))?;
            let result = d.read().map_err(|e| named(e.to_string()))?;
            let error = worst(result.into_iter().map(Element::to), &expected);
            within(error, 2.0 * bound(dtype, K)).map_err(|e| named(e.to_string()))?;
        }
        assert!(computed > 0, "{m} rows, {epilogue:?}: no algorithm");
    }
    Ok(String::new())
}
