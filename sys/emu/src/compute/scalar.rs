//! Factors such as alpha and beta.

use std::ffi::c_void;

use gcnrun::{FaultKind, Memory};

use super::{Element, Real as _, read};

/// A number from the caller, or in device memory, where it is read when the work runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scalar {
    Given(f64),
    InMemory { address: u64, element: Element },
}

impl Scalar {
    /// # Safety
    /// Unless it is `on_device`, `at` is a number of the type `element`.
    pub(crate) unsafe fn new(at: *const c_void, element: Element, on_device: bool) -> Self {
        if on_device {
            return Self::InMemory {
                address: at.expose_provenance() as u64,
                element,
            };
        }
        // SAFETY: the caller's number has this type.
        let bytes = unsafe { std::slice::from_raw_parts(at.cast::<u8>(), element.size()) };
        Self::Given(first(element, bytes))
    }

    pub(crate) fn value(self, memory: &Memory) -> Result<f64, FaultKind> {
        match self {
            Self::Given(value) => Ok(value),
            Self::InMemory { address, element } => {
                Ok(first(element, &read(memory, address, element.size())?))
            }
        }
    }

    /// True if it is known to be 0 before the work runs.
    pub(crate) fn is_zero(self) -> bool {
        matches!(self, Self::Given(0.0))
    }
}

fn first(element: Element, bytes: &[u8]) -> f64 {
    f64::decode(element, bytes).first().copied().unwrap_or_default()
}
