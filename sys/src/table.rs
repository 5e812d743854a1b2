//! A library's functions, as pointers that are looked up when the library is opened.

use std::ffi::c_void;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use crate::Error;

/// The functions of one opened library. Calling one that the library lacks is an [`Error::Symbol`](crate::Error), so a
/// table opens as long as it has any.
///
/// A table is a set of pointers into a library that is never unloaded.
pub trait Table: Sized {
    /// The library's usual name.
    const LIBRARY: &'static str;

    /// The file names of the ABIs that the bindings fit, newest first.
    const SONAMES: &'static [&'static str];

    /// Every function of the table.
    const FUNCTIONS: &'static [&'static str];

    /// The file that was opened, or the bare name that the system's loader was given.
    fn path(&self) -> &Path;

    /// The functions that the library lacks.
    fn missing(&self) -> Vec<&'static str>;

    /// Looks every function up.
    fn load(library: &'static libloading::Library, path: &Path) -> Self;
}

/// Returns the address of a symbol whose name ends with a zero byte, or null. Its type is the caller's business, so that it is compiled once.
pub(crate) fn address(library: &libloading::Library, symbol: &str) -> *mut c_void {
    // SAFETY: the symbol is only looked up here.
    unsafe { library.get::<*mut c_void>(symbol) }.map_or(ptr::null_mut(), |symbol| *symbol)
}

#[cold]
pub(crate) fn absent(library: &'static str, symbol: &'static str, path: &Arc<Path>) -> Error {
    Error::Symbol {
        library,
        symbol,
        path: path.clone(),
    }
}

/// Declares a table type from C prototypes: the contents of bindgen's extern block.
macro_rules! table {
    ($Table:ident; $(pub fn $function:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        /// The functions' types, each under its function's name: what a provider has to export.
        pub mod prototypes {
            use super::*;
            $(pub type $function = unsafe extern "C" fn($($type),*) $(-> $result)?;)*
        }

        /// The functions, each under its C name; see [`Table`](crate::Table).
        #[derive(Clone)]
        pub struct $Table {
            path: ::std::sync::Arc<::std::path::Path>,
            $($function: Option<prototypes::$function>,)*
        }

        impl $Table {
            $(
                #[doc = concat!("Calls `", stringify!($function), "`.")]
                ///
                /// # Safety
                /// The requirements of the library's documentation on the arguments and on the state they refer to.
                ///
                /// # Errors
                /// The library lacks the function.
                pub unsafe fn $function(
                    &self,
                    $($argument: $type),*
                ) -> Result<$crate::table::returned!($($result)?), $crate::Error> {
                    match self.$function {
                        // SAFETY: the pointer was looked up under this prototype's name in a library that stays
                        // loaded; the caller is responsible for the arguments.
                        Some(function) => Ok(unsafe { function($($argument),*) }),
                        None => Err($crate::table::absent(LIBRARY, stringify!($function), &self.path)),
                    }
                }
            )*
        }

        impl $crate::Table for $Table {
            const LIBRARY: &'static str = LIBRARY;
            const SONAMES: &'static [&'static str] = SONAMES;
            const FUNCTIONS: &'static [&'static str] = &[$(stringify!($function)),*];

            fn path(&self) -> &::std::path::Path {
                &self.path
            }

            fn missing(&self) -> Vec<&'static str> {
                [$((stringify!($function), self.$function.is_none())),*]
                    .into_iter()
                    .filter_map(|(name, missing)| missing.then_some(name))
                    .collect()
            }

            fn load(library: &'static ::libloading::Library, path: &::std::path::Path) -> Self {
                Self {
                    path: path.into(),
                    $($function: {
                        let address = $crate::table::address(library, concat!(stringify!($function), "\0"));
                        // SAFETY: the prototype is the one of the library's own header. A null pointer is `None`.
                        unsafe { ::std::mem::transmute::<*mut ::std::ffi::c_void, Option<prototypes::$function>>(address) }
                    },)*
                }
            }
        }

        impl ::std::fmt::Debug for $Table {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_struct(stringify!($Table))
                    .field("path", &self.path)
                    .field("missing", &$crate::Table::missing(self))
                    .finish()
            }
        }
    };
}
pub(crate) use table;

/// A C function's return type, in Rust.
macro_rules! returned {
    () => {
        ()
    };
    ($type:ty) => {
        $type
    };
}
pub(crate) use returned;
