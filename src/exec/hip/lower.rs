//! Lowering of a plan's steps to calls; see [`crate::kernels`].

pub(super) use crate::kernels::lower::*;
