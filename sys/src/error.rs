//! Errors of libraries and functions that are not available.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::provider::system::SEARCH;

/// Error of a provider, a library or a function that cannot be used. Cheap to clone, one line when shown.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// `HIPVIT_PROVIDER`, or what [`Provider::named`](crate::Provider::named) was given, is not a provider.
    #[error("provider `{value}`: {cause}")]
    Provider {
        /// The given value.
        value: String,
        /// The fault in the value.
        cause: String,
    },

    /// None of the library's files could be opened.
    #[error("{}{}", self.brief(), Tried(tried))]
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
    /// Reason for which it could not be opened.
    pub cause: String,
}

impl Attempt {
    /// The cause where a folder does not have the file.
    pub(crate) const NO_SUCH_FILE: &'static str = "no such file";

    /// Returns true if there is no such file; false if the file cannot be loaded, or needs a library that is missing.
    fn is_missing(&self) -> bool {
        /// The loader's message. The name of a missing dependency would precede it.
        const NOT_FOUND: &str = "cannot open shared object file: No such file or directory";
        [Self::NO_SUCH_FILE, NOT_FOUND].contains(&self.cause.as_str())
    }
}

impl Error {
    /// Returns the message without the list of files that were tried: `the HIP runtime (libamdhip64.so.7) was not found`.
    #[must_use]
    pub fn brief(&self) -> String {
        let Self::Library { library, tried } = self else {
            return self.to_string();
        };
        if tried.is_empty() {
            return format!("{library} does not exist on {}", std::env::consts::OS);
        }
        let name = tried.first().and_then(|attempt| attempt.path.file_name());
        match name.filter(|_| tried.iter().all(Attempt::is_missing)) {
            Some(name) => format!("{library} ({}) was not found", name.display()),
            None => format!("{library} cannot be opened"),
        }
    }

    /// Returns the files that were tried and why each of them was not opened; empty if the error is not about finding a library.
    #[must_use]
    pub fn tried(&self) -> String {
        match self {
            Self::Library { tried, .. } => Listed(tried).to_string(),
            _ => String::new(),
        }
    }
}

/// The end of a message: the files that were tried, if there are any.
struct Tried<'a>(&'a [Attempt]);

impl fmt::Display for Tried<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => Ok(()),
            tried => write!(f, "; tried {}", Listed(tried)),
        }
    }
}

struct Listed<'a>(&'a [Attempt]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Attempt { path, cause }) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{}", path.display())?;
            // A bare name is the loader's to find.
            match path.components().count() {
                1 => write!(f, " ({SEARCH}: {cause})")?,
                _ => write!(f, " ({cause})")?,
            }
        }
        Ok(())
    }
}
