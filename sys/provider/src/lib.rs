#![doc = include_str!("../README.md")]
#![allow(
    non_snake_case,
    reason = "exported functions have the names of ROCm's headers"
)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("hip-provider supports only 64-bit Linux, as ROCm does");

pub mod amd_smi;
pub mod export;
mod handles;
pub mod hip;
pub mod hipblaslt;
pub mod hiprtc;
pub mod hipsparselt;
pub mod miopen;
mod objects;
pub mod rccl;
pub mod rocblas;

pub use handles::Handles;
pub use hipvit_sys as sys;
pub use objects::Objects;
