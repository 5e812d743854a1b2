//! Host threads that are shared by the whole process.

use std::error::Error as _;
use std::sync::OnceLock;

use rayon::{ThreadPoolBuildError, ThreadPoolBuilder};

use crate::error::{Error, Result};

/// Starts the thread pool that the whole process shares. Further calls have no effect.
///
/// Rayon would otherwise start it at its first use, and panic on failure.
///
/// # Errors
///
/// Returns [`Error::Resource`] if the threads cannot be started.
pub fn start_shared() -> Result<()> {
    static STARTED: OnceLock<Result<(), ThreadPoolBuildError>> = OnceLock::new();
    let started = STARTED.get_or_init(|| match ThreadPoolBuilder::new().build_global() {
        // An error without a cause means that the pool has been started before.
        Err(error) if error.source().is_some() => Err(error),
        _ => Ok(()),
    });
    started.as_ref().copied().map_err(|error| Error::Resource {
        what: "threads",
        reason: error.to_string(),
    })
}
