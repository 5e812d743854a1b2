//! Epilogues of a matmul.

use hipvit_sys::hipblaslt::{hipblasLtEpilogue_t, hipblasStatus_t};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Activation {
    None,
    Relu,
    /// The tanh form, as in the real library.
    Gelu,
    /// `x·sigmoid(x)`
    Swish,
    Sigmoid,
    Clamp {
        least: f64,
        most: f64,
    },
}

/// Adds the bias, stores the sum for the gradient, applies the activation. Or sums the rows of A, or the columns of B, to the bias.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Epilogue {
    pub(super) has_bias: bool,
    pub(super) gradient: Option<BiasGradient>,
    pub(super) has_aux: bool,
    pub(super) activation: Activation,
}

/// The operand whose sums over k are the gradient of a bias.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum BiasGradient {
    A,
    B,
}

impl Epilogue {
    /// Returns the epilogue of a number. Those with the gradient of an activation are not supported.
    pub(super) fn new(number: u32, [least, most]: [f32; 2]) -> Result<Self, hipblasStatus_t> {
        use hipblasLtEpilogue_t as Hip;
        let (least, most) = (least.into(), most.into());
        let clamp = Activation::Clamp { least, most };
        let gradient = match hipblasLtEpilogue_t(number) {
            Hip::HIPBLASLT_EPILOGUE_BGRADA => Some(BiasGradient::A),
            Hip::HIPBLASLT_EPILOGUE_BGRADB => Some(BiasGradient::B),
            _ => None,
        };
        let (has_bias, has_aux, activation) = match hipblasLtEpilogue_t(number) {
            Hip::HIPBLASLT_EPILOGUE_DEFAULT
            | Hip::HIPBLASLT_EPILOGUE_BGRADA
            | Hip::HIPBLASLT_EPILOGUE_BGRADB => (false, false, Activation::None),
            Hip::HIPBLASLT_EPILOGUE_BIAS => (true, false, Activation::None),
            Hip::HIPBLASLT_EPILOGUE_RELU => (false, false, Activation::Relu),
            Hip::HIPBLASLT_EPILOGUE_RELU_BIAS => (true, false, Activation::Relu),
            Hip::HIPBLASLT_EPILOGUE_RELU_AUX => (false, true, Activation::Relu),
            Hip::HIPBLASLT_EPILOGUE_RELU_AUX_BIAS => (true, true, Activation::Relu),
            Hip::HIPBLASLT_EPILOGUE_GELU => (false, false, Activation::Gelu),
            Hip::HIPBLASLT_EPILOGUE_GELU_BIAS => (true, false, Activation::Gelu),
            Hip::HIPBLASLT_EPILOGUE_GELU_AUX => (false, true, Activation::Gelu),
            Hip::HIPBLASLT_EPILOGUE_GELU_AUX_BIAS => (true, true, Activation::Gelu),
            Hip::HIPBLASLT_EPILOGUE_SWISH_EXT => (false, false, Activation::Swish),
            Hip::HIPBLASLT_EPILOGUE_SWISH_BIAS_EXT => (true, false, Activation::Swish),
            Hip::HIPBLASLT_EPILOGUE_SIGMOID_EXT => (false, false, Activation::Sigmoid),
            Hip::HIPBLASLT_EPILOGUE_SIGMOID_BIAS_EXT => (true, false, Activation::Sigmoid),
            Hip::HIPBLASLT_EPILOGUE_CLAMP_EXT => (false, false, clamp),
            Hip::HIPBLASLT_EPILOGUE_CLAMP_BIAS_EXT => (true, false, clamp),
            Hip::HIPBLASLT_EPILOGUE_CLAMP_AUX_EXT => (false, true, clamp),
            Hip::HIPBLASLT_EPILOGUE_CLAMP_AUX_BIAS_EXT => (true, true, clamp),
            _ => return Err(hipblasStatus_t::HIPBLAS_STATUS_NOT_SUPPORTED),
        };
        Ok(Self {
            has_bias,
            gradient,
            has_aux,
            activation,
        })
    }
}

impl Activation {
    pub(crate) fn of(self, x: f64) -> f64 {
        let sigmoid = || 1.0 / (1.0 + (-x).exp());
        match self {
            Self::None => x,
            // Keeps NaN, which `f64::max` would not.
            Self::Relu => {
                if x < 0.0 {
                    0.0
                } else {
                    x
                }
            }
            Self::Gelu => {
                // Hendrycks and Gimpel, arXiv:1606.08415.
                let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
                0.5 * x * (1.0 + inner.tanh())
            }
            Self::Swish => x * sigmoid(),
            Self::Sigmoid => sigmoid(),
            Self::Clamp { least, most } => {
                if x < least {
                    least
                } else if x > most {
                    most
                } else {
                    x
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activations_have_their_known_values() {
        let close = |got: f64, expected: f64| assert!((got - expected).abs() < 1e-9, "{got} {expected}");
        // The tanh form at 1, from PyTorch's gelu(approximate='tanh'); the exact one is 0.841345.
        close(Activation::Gelu.of(1.0), 0.841_191_990_607_954);
        close(Activation::Swish.of(2.0), 2.0 / (1.0 + (-2.0_f64).exp()));
        close(Activation::Sigmoid.of(0.0), 0.5);
        close(Activation::Relu.of(-3.0), 0.0);
        close(
            Activation::Clamp {
                least: -1.0,
                most: 2.0,
            }
            .of(5.0),
            2.0,
        );
        assert!(Activation::Relu.of(f64::NAN).is_nan());
        assert!(Activation::Gelu.of(f64::NAN).is_nan());
    }

    #[test]
    fn gradients_of_activations_are_refused() {
        for epilogue in [
            hipblasLtEpilogue_t::HIPBLASLT_EPILOGUE_DGELU,
            hipblasLtEpilogue_t::HIPBLASLT_EPILOGUE_DGELU_BGRAD,
        ] {
            assert_eq!(
                Epilogue::new(epilogue.0, [0.0; 2]),
                Err(hipblasStatus_t::HIPBLAS_STATUS_NOT_SUPPORTED)
            );
        }
    }
}
