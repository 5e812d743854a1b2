//! The threads of the host that no session owns.

use std::error::Error as _;
use std::sync::OnceLock;

use rayon::ThreadPoolBuilder;

use crate::error::{Error, Result};

/// Starts the threads that all of the process share, once. Rayon does so at their first use, and panics if they cannot
/// start.
///
/// # Errors
///
/// [`Error::Argument`] if they cannot.
pub fn start_shared() -> Result<()> {
    static STARTED: OnceLock<Result<(), String>> = OnceLock::new();
    let started = STARTED.get_or_init(|| match ThreadPoolBuilder::new().build_global() {
        // Without a cause somebody else has started them.
        Err(error) if error.source().is_some() => Err(error.to_string()),
        _ => Ok(()),
    });
    started
        .clone()
        .map_err(|reason| Error::argument("threads", reason))
}
