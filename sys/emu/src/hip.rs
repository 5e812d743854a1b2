//! The HIP runtime: devices, streams, memory, modules, graphs.
//!
//! `machine` holds the devices and their memory. `queue` runs the operations of streams, as late as possible. A call becomes
//! a `task`, which goes to a stream's queue or, while the stream is captured, into a `graph`. The other libraries use
//! [`submit`]. Modules named `*_calls` export HIP's functions for what the module without that suffix describes.

mod capture;
mod capture_calls;
mod capture_mode;
mod copy;
mod copy_calls;
mod device;
mod event;
mod graph;
mod graph_calls;
mod graph_nodes;
mod image;
mod launch;
mod launch_calls;
pub(crate) mod machine;
mod memory;
mod module;
mod not_offered;
mod occupancy;
mod peer;
mod pointer;
mod profile;
mod properties;
mod queue;
mod recording;
mod records;
mod residency;
mod status;
mod stream;
mod taint;
mod task;

pub(crate) use machine::{current, memory, on_loss};
pub(crate) use peer::link;
pub(crate) use properties::bus;
pub(crate) use stream::{device_of, submit, submit_joint, synchronize};
pub(crate) use taint::Follower;
pub(crate) use task::Joint;

use status::hip;
