//! Exported functions, whose signatures the compiler checks against hipvit-sys's prototypes.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use hipvit_sys::Status;

/// Exports functions that return a status. Each body gives a `Result<(), Status>`, which `$run` turns into a status.
///
/// A function whose signature differs from the prototype of the same name does not compile.
/// A body is unsafe code: it may rely on the requirements of ROCm's documentation, which the caller meets, and on nothing else.
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
        const _: $crate::sys::$library::prototypes::$function = $function;
    )*};
}

/// Exports a library's unsupported functions. Each returns `$status`, whatever its arguments.
///
/// The functions are declared without arguments. The C calling conventions of 64-bit Linux allow that, because the caller both
/// places and removes the arguments.
#[macro_export]
macro_rules! not_offered {
    ($library:ident, $Status:ty, $status:expr; $($function:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $function() -> $Status {
            $status
        }
        const _: fn() = || {
            $crate::export::returns::<$Status, _>(None::<$crate::sys::$library::prototypes::$function>)
        };
    )*};
}

/// Exports a function that returns the name of a status as a C string, and `$unknown` for a number that has no name.
#[macro_export]
macro_rules! status_name {
    ($library:ident, $Status:ident, $function:ident, $unknown:literal) => {
        #[unsafe(no_mangle)]
        extern "C" fn $function(status: $crate::sys::$library::$Status) -> *const ::std::ffi::c_char {
            $crate::export::status_name(status, $unknown)
        }
        const _: $crate::sys::$library::prototypes::$function = $function;
    };
}

/// Defines `run` and `put` of a library's module.
macro_rules! status {
    ($Status:ident, success: $success:ident, panic: $panic:ident, null: $null:ident) => {
        /// Runs the body of an exported function. A panic becomes
        #[doc = concat!("`", stringify!($panic), "`.")]
        pub fn run(body: impl FnOnce() -> Result<(), $Status>) -> $Status {
            $crate::export::caught($Status::$success, $Status::$panic, body)
        }

        /// Writes a result for the caller.
        ///
        /// # Errors
        #[doc = concat!("`", stringify!($null), "` if the pointer is null.")]
        ///
        /// # Safety
        /// `to` is null or may be written.
        pub unsafe fn put<T>(to: *mut T, value: T) -> Result<(), $Status> {
            // SAFETY: the caller says that `to` is null or may be written.
            unsafe { $crate::export::put(to, value) }.ok_or($Status::$null)
        }
    };
}
pub(crate) use status;

/// Compiles only if a function of type `F` returns an `R`.
// Hidden, since it is public only for the expansion of `not_offered!` in other crates.
#[doc(hidden)]
pub fn returns<R, F: Returns<R>>(_: Option<F>) {}

/// C functions that return an `R`.
// Hidden for the same reason as `returns`.
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

/// Runs a body. A panic, which would be a bug of the provider, becomes `unknown`, because no panic may unwind into C.
pub fn caught<S>(success: S, unknown: S, body: impl FnOnce() -> Result<(), S>) -> S {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => success,
        Ok(Err(status)) => status,
        Err(_) => unknown,
    }
}

/// Returns the name as a static C string.
pub fn c_name(name: &'static str) -> *const c_char {
    static NAMES: Mutex<BTreeMap<&str, CString>> = Mutex::new(BTreeMap::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let entry = names
        .entry(name)
        .or_insert_with(|| CString::new(name).unwrap_or_default());
    // A CString's buffer does not move, and names are never removed.
    entry.as_ptr()
}

/// Returns a status's name as a static C string, and `unknown` for a number that has no name.
pub fn status_name(status: impl Status, unknown: &'static str) -> *const c_char {
    c_name(status.name().unwrap_or(unknown))
}

/// Writes a value through a caller's pointer. Returns `None` if the pointer is null.
///
/// # Safety
/// `to` is null or may be written.
pub unsafe fn put<T>(to: *mut T, value: T) -> Option<()> {
    if to.is_null() {
        return None;
    }
    // SAFETY: it is not null, so the caller says that it may be written.
    unsafe { to.write(value) };
    Some(())
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
