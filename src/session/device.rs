//! The device that a model runs on, and where its images are resized.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::hip::{self, Runtime, World};

/// The device that a model runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Device {
    /// The first GPU, or the CPU if there is none.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The GPU with this ordinal, counted from 0.
    Hip(usize),
}

/// Names of a GPU. PyTorch uses `cuda` for AMD's GPUs too. `HIPVIT_PROVIDER` decides between the libraries of ROCm and CUDA.
const GPU_NAMES: [&str; 4] = ["hip", "gpu", "rocm", "cuda"];

/// Splits the name of a GPU, in any case, into `hip` and the text after a colon: `CUDA:1` gives `Some("1")`, `gpu` gives `None`. Returns
/// `None` for other devices.
pub(super) fn split_gpu(text: &str) -> Option<Option<&str>> {
    let (name, rest) = match text.split_once(':') {
        Some((name, rest)) => (name, Some(rest)),
        None => (text, None),
    };
    let is_gpu = GPU_NAMES.iter().any(|gpu| gpu.eq_ignore_ascii_case(name));
    is_gpu.then_some(rest)
}

/// Returns the error for a text that is not one of the devices `known`.
pub(super) fn unknown(text: &str, known: &str) -> Error {
    let [hip, others @ ..] = GPU_NAMES;
    let others = others.join(", ");
    Error::argument(
        "device",
        format!("`{text}` is not one of {known} ({others} are other names of {hip})"),
    )
}

/// Parses `auto`, `cpu`, `hip` and `hip:N`, in any case. `gpu`, `rocm` and `cuda` are other names of `hip`.
impl FromStr for Device {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let device = match split_gpu(text) {
            Some(None) => Some(Self::Hip(0)),
            Some(Some(ordinal)) => ordinal.parse().ok().map(Self::Hip),
            None if text.eq_ignore_ascii_case("auto") => Some(Self::Auto),
            None if text.eq_ignore_ascii_case("cpu") => Some(Self::Cpu),
            None => None,
        };
        device.ok_or_else(|| unknown(text, "auto, cpu, hip, hip:N"))
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Cpu => f.pad("cpu"),
            Self::Hip(ordinal) => f.pad(&format!("hip:{ordinal}")),
        }
    }
}

impl Device {
    /// Returns the GPU of a process that a launcher has started. It has the process's local rank, or is the only visible one.
    ///
    /// # Errors
    ///
    /// The GPU does not exist.
    pub fn of_process(world: &World) -> Result<Self> {
        let runtime = Runtime::open()?;
        let ordinal = match runtime.device_count()? {
            1 => 0,
            _ => world.local_rank(),
        };
        Ok(Self::Hip(runtime.device(ordinal)?.ordinal()))
    }

    /// Opens the GPU, if this selects one.
    pub fn open(self) -> Result<Place> {
        let gpu = |ordinal| Runtime::open()?.device(ordinal);
        match self {
            Self::Cpu => Ok(Place::Cpu { no_gpu: None }),
            Self::Hip(ordinal) => Ok(Place::Gpu(gpu(ordinal)?)),
            Self::Auto => Ok(gpu(0).map_or_else(
                |error| Place::Cpu {
                    no_gpu: Some(error.into()),
                },
                Place::Gpu,
            )),
        }
    }
}

/// The opened place of a [`Device`].
#[derive(Debug)]
pub enum Place {
    /// The CPU.
    Cpu {
        /// Reason why [`Device::Auto`] did not select a GPU.
        no_gpu: Option<Error>,
    },
    /// A GPU.
    Gpu(hip::Device),
}

/// Where images are resized and cropped to the model's size. The resulting bytes are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResizeOn {
    /// On the host's threads, so that fewer bytes are copied.
    #[default]
    Host,
    /// On the model's GPU, so that the host has more time to decode. The GPU also computes the pixels of grey, YCbCr and RGB JPEGs from
    /// their coefficients, unless they are rotated by their EXIF orientation.
    Device,
}
