#![doc = include_str!("../README.md")]
//!
//! One module per library of ROCm. `library` opens NVIDIA's; `nvml`, which comes with the driver, is opened on its own.
#![allow(
    non_snake_case,
    reason = "exported functions and their arguments have the names of ROCm's headers"
)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("for 64-bit Linux only, as ROCm is");

mod amd_smi;
mod hip;
mod hipblaslt;
mod hiprtc;
mod hipsparselt;
mod library;
mod miopen;
mod nvml;
mod rccl;
mod rocblas;
mod roctx;
