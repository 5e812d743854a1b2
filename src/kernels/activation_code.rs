//! Codes of activations in the arguments of kernels.

use super::bindings::ActivationCode;
use crate::ops::Activation;

/// Returns the code of an activation.
pub(super) fn activation_code(activation: Option<Activation>) -> ActivationCode {
    match activation {
        None => ActivationCode::None,
        Some(Activation::GeluErf) => ActivationCode::GeluErf,
        Some(Activation::GeluTanh) => ActivationCode::GeluTanh,
        Some(Activation::QuickGelu) => ActivationCode::QuickGelu,
        Some(Activation::Silu) => ActivationCode::Silu,
        Some(Activation::Relu) => ActivationCode::Relu,
        Some(Activation::Tanh) => ActivationCode::Tanh,
    }
}
