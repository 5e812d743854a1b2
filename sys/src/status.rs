//! The libraries' status codes, with their names.

use std::fmt::{Debug, Display};

/// Status that a library's function returns. Any value is allowed, because a newer library may return one that these bindings do
/// not know. Shown as `hipErrorNoDevice (100)`.
pub trait Status: Copy + Eq + Debug + Display + std::error::Error {
    /// The constant's name in the library's header, if the bindings know the value.
    fn name(self) -> Option<&'static str>;

    /// The value.
    fn code(self) -> i64;

    /// True if the call succeeded. RCCL's `ncclInProgress` is not success.
    fn is_success(self) -> bool;

    /// The status as a `Result`, for `?`.
    ///
    /// # Errors
    /// The status itself, unless it is success.
    fn ok(self) -> Result<(), Self> {
        if self.is_success() { Ok(()) } else { Err(self) }
    }
}

/// Implements [`Status`] for a newtype of bindgen's; the generated files end with this.
macro_rules! status {
    ($Status:ident, success: $success:ident; $($name:ident,)*) => {
        impl $crate::Status for $Status {
            fn name(self) -> Option<&'static str> {
                // Headers have synonyms: the first name wins.
                const NAMES: &[($Status, &str)] = &[$(($Status::$name, stringify!($name))),*];
                NAMES.iter().find(|(status, _)| *status == self).map(|(_, name)| *name)
            }

            fn code(self) -> i64 {
                i64::from(self.0)
            }

            fn is_success(self) -> bool {
                self == $Status::$success
            }
        }

        impl ::std::fmt::Display for $Status {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                match $crate::Status::name(*self) {
                    Some(name) => write!(f, "{name} ({})", self.0),
                    None => write!(f, "unknown {} {}", stringify!($Status), self.0),
                }
            }
        }

        impl ::std::error::Error for $Status {}
    };
}
pub(crate) use status;
