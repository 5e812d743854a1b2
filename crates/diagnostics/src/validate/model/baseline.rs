//! Baseline of a comparison.

use std::str::FromStr;

use serde::{Serialize, Serializer};

use hipvit::error::{Error, Result};

/// Baseline of a model's validation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Baseline {
    /// The CPU, in f32.
    Cpu,
    /// Same device and dtype with eager launches, without fusion, fused kernels, epilogues, reuse of memory
    /// and selection.
    Unoptimized,
    /// Same device and dtype with eager launches, while the model itself is replayed as a graph.
    Eager,
    /// First GPU of another provider in the same dtype. The value is that of `HIPVIT_PROVIDER`.
    Provider(String),
}

impl FromStr for Baseline {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "cpu" => Ok(Self::Cpu),
            "unoptimized" => Ok(Self::Unoptimized),
            "eager" => Ok(Self::Eager),
            // The spelling distinguishes the names of providers from paths.
            provider
                if provider.contains('/')
                    || provider.contains(".so")
                    || ["rocm", "cuda", "emu"].contains(&provider.split(':').next().unwrap_or("")) =>
            {
                Ok(Self::Provider(provider.to_owned()))
            }
            other => {
                let reason = format!(
                    "`{other}` is not one of cpu, unoptimized, eager, nor a provider: rocm, cuda, emu:ARCH, or the path of a library"
                );
                Err(Error::argument("against", reason))
            }
        }
    }
}

impl std::fmt::Display for Baseline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Cpu => "cpu",
            Self::Unoptimized => "unoptimized",
            Self::Eager => "eager",
            Self::Provider(name) => name,
        })
    }
}

impl Serialize for Baseline {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
