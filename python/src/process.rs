//! Check for forks. A forked child has no threads of its parent and cannot use its GPU. A library that was initialised before the fork
//! raises an error there instead of hanging.

use std::sync::OnceLock;

use pyo3::prelude::*;

use crate::error::{Kind, raise};

/// Id of the process that initialised the library. Forked children inherit it.
static INITIALISED: OnceLock<u32> = OnceLock::new();

/// Records that this process uses the library.
///
/// # Errors
///
/// `ForkError` if this was recorded before a fork.
pub fn check(py: Python<'_>) -> PyResult<()> {
    let (here, there) = (std::process::id(), *INITIALISED.get_or_init(std::process::id));
    if here == there {
        return Ok(());
    }
    let message = format!(
        "hipvit was initialised in process {there}, of which this one, {here}, is a fork: its threads and GPUs do not survive a \
         fork; load the model in the child alone, or start processes by \"spawn\" or \"forkserver\", as \
         multiprocessing.get_context(\"spawn\") or DataLoader(multiprocessing_context=\"spawn\") do"
    );
    Err(raise(py, Kind::Fork, &message))
}
