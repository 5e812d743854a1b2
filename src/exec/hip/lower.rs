//! From steps of a plan to the calls that compute them, see [`crate::kernels`].

pub(super) use crate::kernels::lower::*;
