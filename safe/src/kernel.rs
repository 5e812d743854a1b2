//! Loaded device code: modules, their global variables, and kernels with several ways to pass arguments.

pub(crate) mod arguments;
pub(crate) mod attributes;
pub(crate) mod builder;
pub(crate) mod function;
pub(crate) mod global;
pub(crate) mod launch;
pub(crate) mod module;
pub(crate) mod typed;
