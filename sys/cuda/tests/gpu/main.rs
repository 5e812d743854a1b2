//! Every library of a provider on this machine's first GPU, through hipvit-sys, as a program uses it. Results are compared with
//! plain loops on the CPU.
//!
//! The provider is the library that Cargo built for these tests, or the one that `HIPVIT_PROVIDER` names. Only hipRTC's
//! architecture names are specific to NVIDIA, so the tests run on AMD's own libraries too. Without a device they are skipped with
//! one line; `HIPVIT_REQUIRE_GPU` makes that a failure. `--nocapture` shows the measurements.

mod amd_smi;
mod device;
mod hipblaslt;
mod hiprtc;
mod kernels;
mod matrices;
mod memory;
mod miopen;
mod rccl;
mod rocblas;
mod streams;

/// Reason for which a test fails, as text.
type Outcome = Result<(), String>;
