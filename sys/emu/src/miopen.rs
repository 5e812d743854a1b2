//! MIOpen, computed on the CPU: tensors, forward convolution with find and immediate mode, attention, layer normalization,
//! softmax, activation, and arithmetic on tensors. Computed in f32 (f64 for f64 and integers), each result rounded once.
//!
//! A convolution by algorithm has to be found first by the same handle, as in MIOpen. Inconsistent descriptors, for which MIOpen
//! may silently write nothing, are errors.

mod attention;
mod convolution;
mod norm;
mod pointwise;
mod tensor;

use std::collections::HashSet;
use std::ffi::c_void;

use gcnrun::{FaultKind, Memory};
use hip_provider::miopen::{BAD_PARAMETER as BAD, put, run};
use hip_provider::{Objects, export};
use hipvit_sys::hip::{hipError_t, hipStream_t};
use hipvit_sys::miopen::{miopenAcceleratorQueue_t, miopenHandle_t, miopenStatus_t};

use self::convolution::Found;
use crate::compute::{Element, Scalar, submit};
use crate::hip;

/// The version of MIOpen whose interface is implemented.
const VERSION: [usize; 3] = [3, 5, 1];

/// The object behind a `miopenHandle_t`.
#[derive(Clone, Debug)]
struct Handle {
    /// The stream's handle.
    stream: usize,
    /// The convolutions that were found.
    found: HashSet<Found>,
}

static HANDLES: Objects<Handle> = Objects::new();

/// MIOpen's status for a status of HIP.
fn translate(status: hipError_t) -> miopenStatus_t {
    match status {
        hipError_t::hipErrorOutOfMemory => miopenStatus_t::miopenStatusAllocFailed,
        hipError_t::hipErrorInvalidValue | hipError_t::hipErrorInvalidHandle => BAD,
        _ => miopenStatus_t::miopenStatusUnknownError,
    }
}

fn stream(of: miopenHandle_t) -> Result<hipStream_t, miopenStatus_t> {
    let handle = HANDLES.get(of).ok_or(BAD)?;
    Ok(std::ptr::with_exposed_provenance_mut(handle.stream))
}

/// Submits work to the handle's stream.
fn submitted(
    of: miopenHandle_t,
    name: &str,
    work: impl Fn(&Memory) -> Result<(), FaultKind> + Send + Sync + 'static,
) -> Result<(), miopenStatus_t> {
    submit(stream(of)?, name, work).map_err(translate)
}

/// Alpha or beta: an f64 for tensors of f64, an f32 for all others.
///
/// # Safety
/// `at` is null or a number of this type.
unsafe fn scalar(at: *const c_void, of: Element) -> Result<f64, miopenStatus_t> {
    let element = if of == Element::F64 {
        Element::F64
    } else {
        Element::F32
    };
    if at.is_null() {
        return Err(BAD);
    }
    // SAFETY: as the caller says.
    match unsafe { Scalar::new(at, element, false) } {
        Scalar::Given(value) => Ok(value),
        Scalar::InMemory { .. } => Err(BAD),
    }
}

/// Creates a handle; without a device, as in MIOpen, `miopenStatusUnknownError`.
///
/// # Safety
/// `to` is null or may be written.
unsafe fn create(to: *mut miopenHandle_t, stream: miopenAcceleratorQueue_t) -> Result<(), miopenStatus_t> {
    hip::current().map_err(|_| miopenStatus_t::miopenStatusUnknownError)?;
    if to.is_null() {
        return Err(BAD);
    }
    let handle = HANDLES.add(Handle {
        stream: stream.expose_provenance(),
        found: HashSet::new(),
    });
    // SAFETY: as the caller says.
    unsafe { put(to, handle) }
}

hip_provider::shared_miopen!();

export! { miopen, miopenStatus_t, run;
    fn miopenCreate(to: *mut miopenHandle_t) {
        create(to, std::ptr::null_mut())
    }

    fn miopenCreateWithStream(to: *mut miopenHandle_t, stream: miopenAcceleratorQueue_t) {
        create(to, stream)
    }

    fn miopenDestroy(of: miopenHandle_t) {
        HANDLES.remove(of).map(drop).ok_or(BAD)
    }

    fn miopenSetStream(of: miopenHandle_t, stream: miopenAcceleratorQueue_t) {
        HANDLES.change(of, |handle| handle.stream = stream.expose_provenance()).ok_or(BAD)
    }

    fn miopenGetStream(of: miopenHandle_t, to: *mut miopenAcceleratorQueue_t) {
        put(to, stream(of)?.cast())
    }

    fn miopenGetVersion(major: *mut usize, minor: *mut usize, patch: *mut usize) {
        for (to, value) in [major, minor, patch].into_iter().zip(VERSION) {
            put(to, value)?;
        }
        Ok(())
    }
}
