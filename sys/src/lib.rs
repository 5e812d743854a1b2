#![doc = include_str!("../README.md")]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("ROCm is 64-bit only");

pub mod allocator;
mod error;
mod provider;
pub mod rocprofiler;
pub mod roctx;
mod status;
mod table;

pub use error::{Attempt, Error};
pub use provider::{Place, Provider};
pub use rocprofiler::Rocprofiler;
pub use roctx::Roctx;
pub use status::Status;
pub use table::Table;

/// Declares a library's module around its generated file. `$sonames` and `$dlls` are the files of its ABIs on Linux and on Windows,
/// newest first. A `*` is the number of a release.
macro_rules! library {
    ($(#[$doc:meta])* $module:ident: $Table:ident, $library:literal, $sonames:expr, $dlls:expr) => {
        $(#[$doc])*
        #[allow(
            missing_debug_implementations,
            missing_docs,
            unused_imports,
            non_camel_case_types,
            non_snake_case,
            non_upper_case_globals,
            clippy::too_many_arguments,
            clippy::undocumented_unsafe_blocks,
            reason = "C names and bindgen's output"
        )]
        pub mod $module {
            const LIBRARY: &str = $library;
            const SONAMES: &[&str] = if cfg!(windows) { &$dlls } else { &$sonames };
            include!(concat!(env!("HIPVIT_SYS_BINDINGS"), "/", stringify!($module), ".rs"));
        }
        pub use $module::$Table;
    };
}

library! {
    /// The HIP runtime: devices, streams, events, memory, modules, graphs.
    hip: Hip, "the HIP runtime", ["libamdhip64.so.7", "libamdhip64.so.6"], ["amdhip64_7.dll", "amdhip64_6.dll", "amdhip64.dll"]
}
library! {
    /// hipRTC: compiles HIP C++ at run time.
    hiprtc: Hiprtc, "hipRTC", ["libhiprtc.so.7", "libhiprtc.so.6"], ["hiprtc07*.dll", "hiprtc06*.dll"]
}
library! {
    /// rocBLAS: dense linear algebra.
    rocblas: Rocblas, "rocBLAS", ["librocblas.so.5", "librocblas.so.4"], ["rocblas.dll"]
}
library! {
    /// hipBLASLt: GEMMs with fused epilogues.
    hipblaslt: Hipblaslt, "hipBLASLt", ["libhipblaslt.so.1", "libhipblaslt.so.0"], ["libhipblaslt.dll", "hipblaslt.dll"]
}
library! {
    /// hipSPARSELt: GEMMs with a 2:4 sparse factor.
    hipsparselt: Hipsparselt, "hipSPARSELt", ["libhipsparselt.so.0"], []
}
library! {
    /// MIOpen: convolution, normalisation, softmax, attention; with the functions that its header calls beta.
    miopen: Miopen, "MIOpen", ["libMIOpen.so.1"], ["MIOpen.dll"]
}
library! {
    /// RCCL: collectives between devices.
    rccl: Rccl, "RCCL", ["librccl.so.1"], []
}
library! {
    /// AMD SMI: power, temperature, clocks, memory, and the links between devices.
    amd_smi: AmdSmi, "AMD SMI", ["libamd_smi.so.27", "libamd_smi.so.26"], []
}
