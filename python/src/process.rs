//! A forked child has none of its parent's threads and cannot use its GPU, so what was initialised before the fork is an
//! error there instead of a hang.

use std::sync::OnceLock;

use pyo3::prelude::*;

use crate::error::{Kind, raise};

/// The process that the library was initialised in, inherited by forked children.
static INITIALISED: OnceLock<u32> = OnceLock::new();

/// Notes that this process uses the library.
///
/// # Errors
///
/// `ForkError` if that was noted before a fork.
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
