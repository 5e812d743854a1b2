//! MIOpen on cuDNN: tensors, forward convolution, softmax, activation and arithmetic on tensors.
//!
//! A handle is cuDNN's. Descriptors are hip-provider's: cuDNN's are created from them for each call, because cuDNN
//! distinguishes filters from other tensors and MIOpen does not.

mod convolution;
mod not_offered;
mod pointwise;
mod tensor;

use hip_provider::export;
use hip_provider::miopen::run;
use hipvit_sys::miopen::{miopenAcceleratorQueue_t, miopenHandle_t, miopenStatus_t};

use crate::hip::bound;
use crate::library::{Missing, call};

/// cuDNN's handle type.
type Handle = cudarc::cudnn::sys::cudnnHandle_t;

fn check(called: Result<u32, Missing>) -> Result<(), miopenStatus_t> {
    Err(match called {
        Ok(0) => return Ok(()),
        Ok(1001 | 1008) | Err(Missing::Library) => miopenStatus_t::miopenStatusNotInitialized,
        Ok(1002 | 1003) => miopenStatus_t::miopenStatusVersionMismatch,
        Ok(2001) => miopenStatus_t::miopenStatusInvalidValue,
        Ok(2000..3000) => miopenStatus_t::miopenStatusBadParm,
        Ok(3000..4000) | Err(Missing::Function) => miopenStatus_t::miopenStatusUnsupportedOp,
        Ok(4003 | 4004) => miopenStatus_t::miopenStatusAllocFailed,
        Ok(4000..5000) => miopenStatus_t::miopenStatusInternalError,
        Ok(_) => miopenStatus_t::miopenStatusUnknownError,
    })
}

/// Runs an exported function that works on the thread's device.
fn on_device(body: impl FnOnce() -> Result<(), miopenStatus_t>) -> miopenStatus_t {
    run(|| {
        bound().map_err(|_| miopenStatus_t::miopenStatusNotInitialized)?;
        body()
    })
}

/// Calls a function of cuDNN: `Ok(())`, or MIOpen's status for cuDNN's. Use it inside an unsafe block.
macro_rules! cudnn {
    ($function:ident($($argument:expr),* $(,)?)) => {
        $crate::miopen::check($crate::library::call!(CUDNN, cudnn, $function($($argument),*)))
    };
}
use cudnn;

/// A handle, unless it is null.
fn handle(handle: miopenHandle_t) -> Result<Handle, miopenStatus_t> {
    if handle.is_null() {
        Err(miopenStatus_t::miopenStatusBadParm)
    } else {
        Ok(handle.cast())
    }
}

hip_provider::shared_miopen!();

export! { miopen, miopenStatus_t, on_device;
    fn miopenCreate(to: *mut miopenHandle_t) {
        cudnn!(cudnnCreate(to.cast()))
    }

    fn miopenCreateWithStream(to: *mut miopenHandle_t, stream: miopenAcceleratorQueue_t) {
        cudnn!(cudnnCreate(to.cast()))?;
        let set = cudnn!(cudnnSetStream((*to).cast(), stream.cast()));
        if set.is_err() {
            cudnn!(cudnnDestroy((*to).cast()))?;
        }
        set
    }

    fn miopenDestroy(of: miopenHandle_t) {
        cudnn!(cudnnDestroy(handle(of)?))
    }

    fn miopenSetStream(of: miopenHandle_t, stream: miopenAcceleratorQueue_t) {
        cudnn!(cudnnSetStream(handle(of)?, stream.cast()))
    }

    fn miopenGetStream(of: miopenHandle_t, stream: *mut miopenAcceleratorQueue_t) {
        cudnn!(cudnnGetStream(handle(of)?, stream.cast()))
    }
}

export! { miopen, miopenStatus_t, run;
    /// cuDNN's version.
    fn miopenGetVersion(major: *mut usize, minor: *mut usize, patch: *mut usize) {
        let Ok(version) = call!(CUDNN, cudnn, cudnnGetVersion()) else {
            return Err(miopenStatus_t::miopenStatusNotInitialized);
        };
        // 91002 is 9.10.2.
        major.write(version / 10_000);
        minor.write(version / 100 % 100);
        patch.write(version % 100);
        Ok(())
    }
}
