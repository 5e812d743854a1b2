//! Declares the exported functions.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::{Mutex, PoisonError};

/// Exports functions that return a status, with bodies that give a `Result<(), Status>`; `$run` turns one into a status.
/// Each is held against hipvit-sys's type of the same name, so that a signature that drifts does not compile.
macro_rules! export {
    ($library:ident, $Status:ty, $run:path; $(
        $(#[$doc:meta])*
        fn $function:ident($($argument:ident: $type:ty),* $(,)?) $body:block
    )*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "as in the header")]
        unsafe extern "C" fn $function($($argument: $type),*) -> $Status {
            // SAFETY: the caller keeps to what ROCm's documentation demands of these arguments, and the body hands them
            // to the function of CUDA that is documented to do the same, with the same demands.
            #[allow(unused_unsafe, reason = "some bodies call nothing")]
            $run(|| unsafe { $body })
        }
        const _: hipvit_sys::$library::prototypes::$function = $function;
    )*};
}
pub(crate) use export;

/// Exports functions of a library that are not offered: each returns `$status`, whatever it is given.
///
/// They are declared without arguments, which the C calling conventions of 64-bit Linux allow: it is the caller who puts
/// arguments in place and takes them away.
macro_rules! not_offered {
    ($library:ident, $Status:ty, $status:expr; $($function:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $function() -> $Status {
            $status
        }
        const _: fn() = || $crate::export::returns::<$Status, _>(None::<hipvit_sys::$library::prototypes::$function>);
    )*};
}
pub(crate) use not_offered;

/// Compiles only if a function of type `F` returns an `R`.
pub(crate) fn returns<R, F: Returns<R>>(_: Option<F>) {}

pub(crate) trait Returns<R> {}

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

/// Runs a body. A panic, which would be a mistake in this crate, becomes `unknown`: none may cross into C.
pub(crate) fn caught<S>(success: S, unknown: S, body: impl FnOnce() -> Result<(), S>) -> S {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => success,
        Ok(Err(status)) => status,
        Err(_) => unknown,
    }
}

/// The name as a C string that stays.
pub(crate) fn c_name(name: &'static str) -> *const c_char {
    static NAMES: Mutex<BTreeMap<&str, CString>> = Mutex::new(BTreeMap::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let entry = names
        .entry(name)
        .or_insert_with(|| CString::new(name).unwrap_or_default());
    // A CString's buffer stays where it is, and names are never removed.
    entry.as_ptr()
}

/// Copies a text into a caller's buffer, cut to fit, always ended by a zero.
///
/// # Safety
/// `buffer` has `len` bytes that may be written.
pub(crate) unsafe fn copy_text(text: &[u8], buffer: *mut c_char, len: usize) {
    let Some(room) = len.checked_sub(1) else { return };
    let count = text.len().min(room);
    // SAFETY: at most `len` bytes of the caller's buffer are written.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr().cast(), buffer, count);
        buffer.add(count).write(0);
    }
}
