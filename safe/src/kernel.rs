//! Loaded device code: modules, their globals, and kernels with several kinds of arguments and one way to launch.

pub(crate) mod arguments;
pub(crate) mod attributes;
pub(crate) mod builder;
pub(crate) mod function;
pub(crate) mod global;
pub(crate) mod launch;
pub(crate) mod module;
pub(crate) mod typed;
