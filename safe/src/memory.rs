//! Device memory that belongs to streams, and host memory for copies.

pub(crate) mod block;
pub(crate) mod buffer;
mod copy;
pub(crate) mod foreign;
mod host_memory;
pub(crate) mod lent;
pub(crate) mod operand;
mod peer;
pub(crate) mod pending;
pub(crate) mod pinned;
mod submit;
pub(crate) mod symmetric;
pub(crate) mod uploads;
