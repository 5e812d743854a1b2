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
pub(crate) use status::check;

/// Calls a function of the driver: `Ok(())`, or HIP's status for the driver's.
macro_rules! cu {
    ($function:ident($($argument:expr),* $(,)?)) => {
        $crate::hip::check($crate::library::call!(CUDA, driver, $function($($argument),*)))
    };
}
pub(crate) use cu;

/// Exports HIP functions that need a current context; a thread without one gets its device's.
macro_rules! hip {
    ($($functions:tt)*) => {
        hip_provider::export! { hip, hip::hipError_t, $crate::hip::context::in_context; $($functions)* }
    };
}
use hip;

/// Exports HIP functions that need no context.
macro_rules! hip_without_context {
    ($($functions:tt)*) => {
        hip_provider::export! { hip, hip::hipError_t, $crate::hip::status::run; $($functions)* }
    };
}
use hip_without_context;
