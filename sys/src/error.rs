//! Why a library or one of its functions is not available.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a provider, a library or a function cannot be used. Cheap to clone, one line when shown.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// `HIPVIT_PROVIDER`, or what [`Provider::named`](crate::Provider::named) was given, is not a provider.
    #[error("provider `{value}`: {cause}")]
    Provider {
        /// What was given.
        value: String,
        /// What is wrong with it.
        cause: String,
    },

    /// None of the library's files could be opened.
    #[error("{library} cannot be opened; tried {}", Listed(tried))]
    Library {
        /// The library's usual name.
        library: &'static str,
        /// Every file tried, in order.
        tried: Arc<[Attempt]>,
    },

    /// A file was opened, and has none of the library's functions.
    #[error("{library} is not in {}: it exports none of the functions", path.display())]
    Foreign {
        /// The library's usual name.
        library: &'static str,
        /// The file.
        path: Arc<Path>,
    },

    /// The library was opened, but lacks this function: its version is too old or too new, or its provider does not
    /// offer it.
    #[error("{library} has no function {symbol} in {}", path.display())]
    Symbol {
        /// The library's usual name.
        library: &'static str,
        /// The function.
        symbol: &'static str,
        /// The library's file.
        path: Arc<Path>,
    },
}

/// A file that could not be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attempt {
    /// The file, or the bare name that the system's loader was given.
    pub path: PathBuf,
    /// Why it could not be opened.
    pub cause: String,
}

struct Listed<'a>(&'a [Attempt]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Attempt { path, cause }) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{}", path.display())?;
            // A bare name is the loader's to find.
            match path.components().count() {
                1 => write!(
                    f,
                    " (by the system's loader: LD_LIBRARY_PATH, its cache, its default folders; {cause})"
                )?,
                _ => write!(f, " ({cause})")?,
            }
        }
        Ok(())
    }
}
