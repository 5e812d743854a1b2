//! The ops' CPU kernels, one file per op. [`hipvit_graph::ops`] says what each op computes.

pub mod activation;
pub mod add;
#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(all(test, target_arch = "x86_64", target_os = "linux"))]
mod amx_emulation;
pub mod attention;
#[cfg(target_arch = "x86_64")]
pub mod bf16;
pub(crate) mod gemm;
pub mod grid_mask;
pub mod grid_positions;
pub mod int8;
pub mod layer_norm;
pub mod linear;
mod packed;
pub mod patch_conv;
pub mod patch_extract;
pub mod pool;
#[cfg(test)]
mod random;
pub mod rope;
pub(crate) mod rows;
pub mod swiglu;
pub mod tokens;
pub mod transpose;

pub use hipvit_graph::ops::*;
