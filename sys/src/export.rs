//! For providers, which implement ROCm's C ABI: declares exported functions, which the compiler checks against this crate's
//! prototypes.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::{Mutex, PoisonError};

/// Exports functions that return a status, with bodies that give a `Result<(), Status>`; `$run` turns one into a status.
/// Each is checked against the prototype of the same name, so that a signature that differs does not compile.
///
/// A body is unsafe code: its caller meets the requirements of ROCm's documentation, and it relies on no others.
#[macro_export]
macro_rules! export {
    ($library:ident, $Status:ty, $run:path; $(
        $(#[$doc:meta])*
        fn $function:ident($($argument:ident: $type:ty),* $(,)?) $body:block
    )*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "as in the header")]
        unsafe extern "C" fn $function($($argument: $type),*) -> $Status {
            // SAFETY: the caller meets the requirements of ROCm's documentation on these arguments; the body uses them
            // as that documentation describes.
            #[allow(unused_unsafe, reason = "some bodies call nothing")]
            $run(|| unsafe { $body })
        }
        const _: $crate::$library::prototypes::$function = $function;
    )*};
}

/// Exports a library's unsupported functions: each returns `$status`, whatever its arguments.
///
/// They are declared without arguments, which the C calling conventions of 64-bit Linux allow: the caller both places and
/// removes the arguments.
#[macro_export]
macro_rules! not_offered {
    ($library:ident, $Status:ty, $status:expr; $($function:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $function() -> $Status {
            $status
        }
        const _: fn() = || $crate::export::returns::<$Status, _>(None::<$crate::$library::prototypes::$function>);
    )*};
}

/// Exports the thread's last HIP error and the errors' names. Defines `run`, which runs the body of an exported function and
/// records its error.
#[macro_export]
macro_rules! last_error {
    () => {
        ::std::thread_local! {
            static LAST: ::std::cell::Cell<$crate::hip::hipError_t> =
                const { ::std::cell::Cell::new($crate::hip::hipError_t::hipSuccess) };
        }

        /// Runs an exported function and records its error for `hipGetLastError`. `hipErrorNotReady` is an answer, not
        /// an error.
        pub(super) fn run(
            body: impl FnOnce() -> Result<(), $crate::hip::hipError_t>,
        ) -> $crate::hip::hipError_t {
            use $crate::hip::hipError_t;
            let status = $crate::export::caught(hipError_t::hipSuccess, hipError_t::hipErrorUnknown, body);
            if !$crate::Status::is_success(status) && status != hipError_t::hipErrorNotReady {
                LAST.set(status);
            }
            status
        }

        #[unsafe(no_mangle)]
        extern "C" fn hipGetLastError() -> $crate::hip::hipError_t {
            LAST.replace($crate::hip::hipError_t::hipSuccess)
        }
        const _: $crate::hip::prototypes::hipGetLastError = hipGetLastError;

        #[unsafe(no_mangle)]
        extern "C" fn hipExtGetLastError() -> $crate::hip::hipError_t {
            LAST.replace($crate::hip::hipError_t::hipSuccess)
        }
        const _: $crate::hip::prototypes::hipExtGetLastError = hipExtGetLastError;

        #[unsafe(no_mangle)]
        extern "C" fn hipPeekAtLastError() -> $crate::hip::hipError_t {
            LAST.get()
        }
        const _: $crate::hip::prototypes::hipPeekAtLastError = hipPeekAtLastError;

        #[unsafe(no_mangle)]
        extern "C" fn hipGetErrorName(error: $crate::hip::hipError_t) -> *const ::std::ffi::c_char {
            let name = $crate::Status::name(error).unwrap_or("hipErrorUnknown");
            $crate::export::c_name(name)
        }
        const _: $crate::hip::prototypes::hipGetErrorName = hipGetErrorName;
    };
}

/// Compiles only if a function of type `F` returns an `R`.
#[doc(hidden)]
pub fn returns<R, F: Returns<R>>(_: Option<F>) {}

#[doc(hidden)]
pub trait Returns<R> {}

macro_rules! returns {
    () => { returns! { @ } };
    ($first:ident $($rest:ident)*) => {
        returns! { @ $first $($rest)* }
        returns! { $($rest)* }
    };
    (@ $($argument:ident)*) => {
        impl<R, $($argument),*> Returns<R> for unsafe extern "C" fn($($argument),*) -> R {}
    };
}
returns! { A B C D E F G H I J K L M N O P Q S T U V W X Y Z A1 B1 C1 D1 E1 F1 G1 }

/// Runs a body. A panic, which would be a bug in the library, becomes `unknown`: none may unwind into C.
pub fn caught<S>(success: S, unknown: S, body: impl FnOnce() -> Result<(), S>) -> S {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => success,
        Ok(Err(status)) => status,
        Err(_) => unknown,
    }
}

/// The name as a static C string.
pub fn c_name(name: &'static str) -> *const c_char {
    static NAMES: Mutex<BTreeMap<&str, CString>> = Mutex::new(BTreeMap::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let entry = names
        .entry(name)
        .or_insert_with(|| CString::new(name).unwrap_or_default());
    // A CString's buffer stays where it is, and names are never removed.
    entry.as_ptr()
}

/// Copies a text into a caller's buffer, truncated to fit and always terminated by a zero.
///
/// # Safety
/// `buffer` has `len` bytes that may be written.
pub unsafe fn copy_text(text: &[u8], buffer: *mut c_char, len: usize) {
    let Some(most) = len.checked_sub(1) else { return };
    let count = text.len().min(most);
    // SAFETY: at most `len` bytes of the caller's buffer are written.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr().cast(), buffer, count);
        buffer.add(count).write(0);
    }
}
