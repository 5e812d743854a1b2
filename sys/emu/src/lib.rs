#![doc = include_str!("../README.md")]
//!
//! One module per library of ROCm. `hip` holds the machine, whose streams all of them submit work to; `faults` says what
//! went wrong.
#![allow(
    non_snake_case,
    reason = "exported functions and their arguments have the names of ROCm's headers"
)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("for 64-bit Linux only, as ROCm is");

mod compute;
mod faults;
mod hip;
mod hipblaslt;
mod hiprtc;
mod miopen;
mod parts;
mod rccl;
mod rocblas;
mod rocm_smi;
mod settings;
