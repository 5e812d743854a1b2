//! Every library of a provider on this machine's first GPU, through hipvit-sys, as any program uses it; results are
//! compared with plain loops on the CPU.
//!
//! The provider is the library that Cargo built for these tests, or what `HIPVIT_PROVIDER` names: nothing here knows of
//! NVIDIA but what is said of hipRTC's architecture names, so the tests run on AMD's own libraries too. Without a device
//! they are skipped with one line; `HIPVIT_REQUIRE_GPU` makes that a failure. `--nocapture` shows what they measure.

mod device;
mod hipblaslt;
mod hiprtc;
mod kernels;
mod matrices;
mod memory;
mod miopen;
mod rccl;
mod rocblas;
mod rocm_smi;
mod streams;

/// Why a test fails, as text.
type Outcome = Result<(), String>;
