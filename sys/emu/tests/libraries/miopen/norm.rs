//! Layer normalization.

use super::*;

#[test]
fn layer_normalisation() {
    let handle = Handle::new();
    let (rows, columns, epsilon) = (65, 197, 1e-5_f32);
    for kind in [Kind::F32, Kind::F16, Kind::Bf16] {
        let x = Tensor::random(kind, &[rows, columns], 1);
        let (weight, bias) = (
            Tensor::random(kind, &[columns], 2),
            Tensor::random(kind, &[columns], 3),
        );
        let (y, mean, factor) = (
            Tensor::zeroes(kind, &x.lengths),
            Tensor::zeroes(kind, &[rows]),
            Tensor::zeroes(kind, &[rows]),
        );
        let normalise = |mode: miopenNormMode_t, mean_at: *mut c_void, factor_at: *mut c_void| unsafe {
            miopen().miopenLayerNormForward(
                handle.0,
                mode,
                x.desc,
                x.at(),
                weight.desc,
                weight.at(),
                bias.desc,
                bias.at(),
                epsilon,
                1,
                y.desc,
                y.at(),
                mean.desc,
                mean_at,
                factor.desc,
                factor_at,
            )
        };
        for mode in [
            miopenNormMode_t::MIOPEN_WEIGHT_BIAS,
            miopenNormMode_t::MIOPEN_ELEMENTWISE_AFFINE,
        ] {
            ok(normalise(mode, mean.at(), factor.at()));
            let (mut expected, mut means, mut factors) = (Vec::new(), Vec::new(), Vec::new());
            for row in x.values.chunks(columns) {
                let mean = row.iter().sum::<f64>() / columns as f64;
                let variance = row.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / columns as f64;
                let factor = 1.0 / (variance + f64::from(epsilon)).sqrt();
                means.push((mean, 1e-12));
                factors.push((factor, 1e-12));
                for (index, value) in row.iter().enumerate() {
                    let normalised = (value - mean) * factor;
                    let result = match mode {
                        miopenNormMode_t::MIOPEN_WEIGHT_BIAS => {
                            normalised * weight.values[index] + bias.values[index]
                        }
                        _ => normalised,
                    };
                    // In f64: the error shows in none of these types.
                    expected.push((result, 1e-12));
                }
            }
            compare(
                &format!("{kind:?} {mode:?}"),
                kind,
                &y.buffer.download(),
                &expected,
            );
            compare("mean", kind, &mean.buffer.download(), &means);
            compare("factor", kind, &factor.buffer.download(), &factors);
        }
        // The statistics may be left out; another mode is another function's.
        ok(normalise(
            miopenNormMode_t::MIOPEN_WEIGHT_BIAS,
            ptr::null_mut(),
            ptr::null_mut(),
        ));
        refused(
            normalise(miopenNormMode_t::MIOPEN_WEIGHT_BIAS_T5, mean.at(), factor.at()),
            Status::miopenStatusBadParm,
        );
    }
}
