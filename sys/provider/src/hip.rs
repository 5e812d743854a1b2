//! The HIP runtime: errors, the memory that a copy names, links between devices.

use hipvit_sys::amd_smi::amdsmi_link_type_t;
use hipvit_sys::hip::{hipError_t, hipMemcpyKind};

/// Writes a result for the caller.
///
/// # Errors
/// `hipErrorInvalidValue` if the pointer is null.
///
/// # Safety
/// `to` is null or may be written.
pub unsafe fn put<T>(to: *mut T, value: T) -> Result<(), hipError_t> {
    // SAFETY: the caller says that `to` is null or may be written.
    unsafe { crate::export::put(to, value) }.ok_or(hipError_t::hipErrorInvalidValue)
}

/// The kind of memory that a copy's direction names for one of its sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryKind {
    /// Host memory, pinned or not.
    Host,
    /// Device memory.
    Device,
    /// Any memory: the runtime finds out which.
    Any,
}

/// Returns the memory that a copy of this kind writes and reads.
///
/// # Errors
/// `hipErrorInvalidMemcpyDirection` if HIP has no such kind.
pub fn copy_target_and_source(kind: hipMemcpyKind) -> Result<(MemoryKind, MemoryKind), hipError_t> {
    use MemoryKind::{Any, Device, Host};
    Ok(match kind {
        hipMemcpyKind::hipMemcpyHostToHost => (Host, Host),
        hipMemcpyKind::hipMemcpyHostToDevice => (Device, Host),
        hipMemcpyKind::hipMemcpyDeviceToHost => (Host, Device),
        hipMemcpyKind::hipMemcpyDeviceToDevice | hipMemcpyKind::hipMemcpyDeviceToDeviceNoCU => {
            (Device, Device)
        }
        hipMemcpyKind::hipMemcpyDefault => (Any, Any),
        _ => return Err(hipError_t::hipErrorInvalidMemcpyDirection),
    })
}

/// A link between two devices. The values are HSA's, which `hipExtGetLinkTypeAndHopCount` returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkType {
    /// PCI Express.
    Pcie = 2,
    /// AMD's Infinity Fabric, and NVIDIA's NVLink, which serves the same purpose.
    Xgmi = 4,
}

impl LinkType {
    /// Number of hops over the link: one by xGMI; two by PCIe, up to the root and down again.
    pub fn hops(self) -> u32 {
        match self {
            Self::Xgmi => 1,
            Self::Pcie => 2,
        }
    }
}

impl From<LinkType> for amdsmi_link_type_t {
    fn from(link: LinkType) -> Self {
        match link {
            LinkType::Xgmi => Self::AMDSMI_LINK_TYPE_XGMI,
            LinkType::Pcie => Self::AMDSMI_LINK_TYPE_PCIE,
        }
    }
}

/// Exports HIP's functions that all providers implement alike: the thread's last error and the errors' names. Exports virtual memory
/// management, which no provider offers, too.
///
/// The macro defines `run`, which runs the body of an exported function and records its error. The module that calls the macro exports
/// `hipGetErrorString`, which differs between providers.
#[macro_export]
macro_rules! shared_hip {
    () => {
        ::std::thread_local! {
            static LAST: ::std::cell::Cell<$crate::sys::hip::hipError_t> =
                const { ::std::cell::Cell::new($crate::sys::hip::hipError_t::hipSuccess) };
        }

        /// Runs an exported function and records its error for `hipGetLastError`. `hipErrorNotReady` is an answer, not
        /// an error.
        pub(super) fn run(
            body: impl FnOnce() -> Result<(), $crate::sys::hip::hipError_t>,
        ) -> $crate::sys::hip::hipError_t {
            use $crate::sys::hip::hipError_t;
            let status = $crate::export::caught(hipError_t::hipSuccess, hipError_t::hipErrorUnknown, body);
            if !$crate::sys::Status::is_success(status) && status != hipError_t::hipErrorNotReady {
                LAST.set(status);
            }
            status
        }

        #[unsafe(no_mangle)]
        extern "C" fn hipGetLastError() -> $crate::sys::hip::hipError_t {
            LAST.replace($crate::sys::hip::hipError_t::hipSuccess)
        }
        const _: $crate::sys::hip::prototypes::hipGetLastError = hipGetLastError;

        #[unsafe(no_mangle)]
        extern "C" fn hipExtGetLastError() -> $crate::sys::hip::hipError_t {
            LAST.replace($crate::sys::hip::hipError_t::hipSuccess)
        }
        const _: $crate::sys::hip::prototypes::hipExtGetLastError = hipExtGetLastError;

        #[unsafe(no_mangle)]
        extern "C" fn hipPeekAtLastError() -> $crate::sys::hip::hipError_t {
            LAST.get()
        }
        const _: $crate::sys::hip::prototypes::hipPeekAtLastError = hipPeekAtLastError;

        $crate::status_name! { hip, hipError_t, hipGetErrorName, "hipErrorUnknown" }

        $crate::export! { hip, $crate::sys::hip::hipError_t, run;
            fn hipDrvGetErrorName(
                error: $crate::sys::hip::hipError_t, text: *mut *const ::std::ffi::c_char,
            ) {
                if text.is_null() || $crate::sys::Status::name(error).is_none() {
                    return Err($crate::sys::hip::hipError_t::hipErrorInvalidValue);
                }
                text.write(hipGetErrorName(error));
                Ok(())
            }

            fn hipDrvGetErrorString(
                error: $crate::sys::hip::hipError_t, text: *mut *const ::std::ffi::c_char,
            ) {
                if text.is_null() || $crate::sys::Status::name(error).is_none() {
                    return Err($crate::sys::hip::hipError_t::hipErrorInvalidValue);
                }
                text.write(hipGetErrorString(error));
                Ok(())
            }
        }

        $crate::not_offered! {
            hip, $crate::sys::hip::hipError_t, $crate::sys::hip::hipError_t::hipErrorNotSupported;
            hipMemAddressFree
            hipMemAddressReserve
            hipMemCreate
            hipMemGetAccess
            hipMemGetAllocationGranularity
            hipMemMap
            hipMemRelease
            hipMemSetAccess
            hipMemUnmap
        }
    };
}

/// Exports HIP's copies of one row, through the provider's macro `$export` for HIP functions.
///
/// `$copy` takes the target, the source, the size and the kind. `$copy_async` takes a stream, too.
#[macro_export]
macro_rules! export_copies {
    ($export:ident, $copy:path, $copy_async:path) => {
        $export! {
            fn hipMemcpy(
                to: *mut ::std::ffi::c_void, from: *const ::std::ffi::c_void, size: usize,
                kind: $crate::sys::hip::hipMemcpyKind,
            ) {
                $copy(to, from, size, kind)
            }

            fn hipMemcpyAsync(
                to: *mut ::std::ffi::c_void, from: *const ::std::ffi::c_void, size: usize,
                kind: $crate::sys::hip::hipMemcpyKind, stream: $crate::sys::hip::hipStream_t,
            ) {
                $copy_async(to, from, size, kind, stream)
            }

            fn hipMemcpyHtoD(to: $crate::sys::hip::hipDeviceptr_t, from: *const ::std::ffi::c_void, size: usize) {
                $copy(to, from, size, $crate::sys::hip::hipMemcpyKind::hipMemcpyHostToDevice)
            }

            fn hipMemcpyDtoH(to: *mut ::std::ffi::c_void, from: $crate::sys::hip::hipDeviceptr_t, size: usize) {
                $copy(to, from, size, $crate::sys::hip::hipMemcpyKind::hipMemcpyDeviceToHost)
            }

            fn hipMemcpyDtoD(
                to: $crate::sys::hip::hipDeviceptr_t, from: $crate::sys::hip::hipDeviceptr_t, size: usize,
            ) {
                $copy(to, from, size, $crate::sys::hip::hipMemcpyKind::hipMemcpyDeviceToDevice)
            }

            fn hipMemcpyHtoDAsync(
                to: $crate::sys::hip::hipDeviceptr_t, from: *const ::std::ffi::c_void, size: usize,
                stream: $crate::sys::hip::hipStream_t,
            ) {
                $copy_async(to, from, size, $crate::sys::hip::hipMemcpyKind::hipMemcpyHostToDevice, stream)
            }

            fn hipMemcpyDtoHAsync(
                to: *mut ::std::ffi::c_void, from: $crate::sys::hip::hipDeviceptr_t, size: usize,
                stream: $crate::sys::hip::hipStream_t,
            ) {
                $copy_async(to, from, size, $crate::sys::hip::hipMemcpyKind::hipMemcpyDeviceToHost, stream)
            }

            fn hipMemcpyDtoDAsync(
                to: $crate::sys::hip::hipDeviceptr_t, from: $crate::sys::hip::hipDeviceptr_t, size: usize,
                stream: $crate::sys::hip::hipStream_t,
            ) {
                $copy_async(to, from, size, $crate::sys::hip::hipMemcpyKind::hipMemcpyDeviceToDevice, stream)
            }
        }
    };
}
