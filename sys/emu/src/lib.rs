#![doc = include_str!("../README.md")]
//!
//! One module per library of ROCm. `hip` has the emulated devices, to whose streams all libraries submit work; `faults`
//! reports failures.
#![allow(
    non_snake_case,
    reason = "exported functions and their arguments have the names of ROCm's headers"
)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("hip-emu supports only 64-bit Linux, as ROCm does");

mod amd_smi;
mod compute;
mod faults;
mod hip;
mod hipblaslt;
mod hiprtc;
mod hipsparselt;
mod miopen;
mod parts;
mod rccl;
mod rocblas;
mod settings;
