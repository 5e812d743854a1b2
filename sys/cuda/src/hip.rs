//! The HIP runtime on the CUDA driver.
//!
//! HIP's handles are the driver's handles, cast, so nothing is allocated here and nothing has to be freed. As in CUDA's
//! runtime, a thread uses a device through its primary context, which is retained at the first call that needs it
//! (`context`).

mod attributes;
mod context;
mod copy;
mod device;
mod event;
mod graph;
mod graph_nodes;
mod memory;
mod module;
mod not_offered;
mod peer;
mod pointer;
mod properties;
mod status;
mod stream;

pub(crate) use context::{bound, init};
pub(crate) use properties::device_arch;
pub(crate) use status::{check, cu};

use context::hip;
use status::hip_without_context;
