//! Epilogues of a matmul.

use hipvit_sys::hipblaslt::{hipblasLtEpilogue_t, hipblasStatus_t};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Activation {
    None,
    Relu,
    /// The tanh form, as in the real library.
    Gelu,
    /// The derivative of the tanh form at the auxiliary matrix, times the sum.
    GeluGradient,
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
    /// Returns the epilogue of a number. GELU is the only activation with a gradient, without the sums of a bias.
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
            Hip::HIPBLASLT_EPILOGUE_DGELU => (false, true, Activation::GeluGradient),
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

/// Returns √(2/π) · (x + 0.044715 x³), of which GELU takes the tanh. Hendrycks and Gimpel, arXiv:1606.08415.
fn gelu_argument(x: f64) -> f64 {
    (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))
}

impl Activation {
    /// Returns the factor of the sum, which depends on the auxiliary matrix. `None` if the activation is a function of the sum.
    pub(super) fn slope(self, aux: f64) -> Option<f64> {
        if self != Self::GeluGradient {
            return None;
        }
        let tanh = gelu_argument(aux).tanh();
        let slope = (2.0 / std::f64::consts::PI).sqrt() * (1.0 + 3.0 * 0.044_715 * aux.powi(2));
        Some(0.5 * (1.0 + tanh) + 0.5 * aux * (1.0 - tanh * tanh) * slope)
    }

    /// Returns the activation of the sum `x`.
    pub(crate) fn of(self, x: f64) -> f64 {
        let sigmoid = || 1.0 / (1.0 + (-x).exp());
        match self {
            Self::None | Self::GeluGradient => x,
            // Keeps NaN, which `f64::max` would not.
            Self::Relu => {
                if x < 0.0 {
                    0.0
                } else {
                    x
                }
            }
            Self::Gelu => 0.5 * x * (1.0 + gelu_argument(x).tanh()),
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
    fn the_slope_of_gelu_is_its_difference_quotient() {
        for x in [-3.0, -0.7, 0.0, 0.3, 2.0, 6.0] {
            let step = 1e-5;
            let quotient = (Activation::Gelu.of(x + step) - Activation::Gelu.of(x - step)) / (2.0 * step);
            let slope = Activation::GeluGradient.slope(x).unwrap();
            assert!((slope - quotient).abs() < 1e-9, "{x}: {slope} {quotient}");
        }
        assert_eq!(Activation::Gelu.slope(1.0), None);
    }

    #[test]
    fn the_gradient_of_gelu_with_that_of_a_bias_is_refused() {
        let epilogue = hipblasLtEpilogue_t::HIPBLASLT_EPILOGUE_DGELU_BGRAD;
        assert_eq!(
            Epilogue::new(epilogue.0, [0.0; 2]),
            Err(hipblasStatus_t::HIPBLAS_STATUS_NOT_SUPPORTED)
        );
    }
}
