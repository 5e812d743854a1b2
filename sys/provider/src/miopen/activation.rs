//! Activation descriptors.

use hipvit_sys::miopen::{miopenActivationDescriptor_t, miopenActivationMode_t, miopenStatus_t};

use super::status::{BAD_PARAMETER as BAD, put};
use crate::Objects;

static ACTIVATIONS: Objects<Activation> = Objects::new();

/// The object behind a `miopenActivationDescriptor_t`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Activation {
    /// The function.
    pub mode: miopenActivationMode_t,
    /// The function's first parameter.
    pub alpha: f64,
    /// The function's second parameter.
    pub beta: f64,
    /// The function's third parameter.
    pub gamma: f64,
}

/// Returns a copy of an activation descriptor.
///
/// # Errors
/// `miopenStatusBadParm` if the handle is invalid.
pub fn activation(of: miopenActivationDescriptor_t) -> Result<Activation, miopenStatus_t> {
    ACTIVATIONS.get(of).ok_or(BAD)
}

/// Creates an activation descriptor, which passes its input through.
///
/// # Errors
/// `miopenStatusBadParm` if `to` is null.
///
/// # Safety
/// `to` is null or may be written.
pub unsafe fn create_activation(to: *mut miopenActivationDescriptor_t) -> Result<(), miopenStatus_t> {
    if to.is_null() {
        return Err(BAD);
    }
    let mode = miopenActivationMode_t::miopenActivationPASTHRU;
    let identity = Activation {
        mode,
        alpha: 0.0,
        beta: 0.0,
        gamma: 0.0,
    };
    // SAFETY: the caller says that `to` may be written.
    unsafe { put(to, ACTIVATIONS.add(identity)) }
}

/// Destroys an activation descriptor.
///
/// # Errors
/// `miopenStatusBadParm` if the handle is invalid.
pub fn destroy_activation(of: miopenActivationDescriptor_t) -> Result<(), miopenStatus_t> {
    ACTIVATIONS.remove(of).map(drop).ok_or(BAD)
}

/// Sets an activation descriptor.
///
/// # Errors
/// `miopenStatusBadParm` if the handle is invalid.
pub fn set_activation(
    of: miopenActivationDescriptor_t,
    activation: Activation,
) -> Result<(), miopenStatus_t> {
    ACTIVATIONS.change(of, |old| *old = activation).ok_or(BAD)
}
