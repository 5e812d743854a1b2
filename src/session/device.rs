//! Where a model runs and where its images are resized.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result, named};
use crate::hip::{self, Runtime, World};

/// Where a model runs.
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

impl FromStr for Device {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let ordinal = text.strip_prefix("hip:").and_then(|n| n.parse().ok());
        match (text, ordinal) {
            ("auto", _) => Ok(Self::Auto),
            ("cpu", _) => Ok(Self::Cpu),
            ("hip", _) => Ok(Self::Hip(0)),
            (_, Some(ordinal)) => Ok(Self::Hip(ordinal)),
            _ => Err(Error::argument(
                "device",
                format!("`{text}` is not one of auto, cpu, hip, hip:N"),
            )),
        }
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
    /// The GPU of a process that a launcher has started: that of its number on its host, or the only one that it is shown.
    ///
    /// # Errors
    ///
    /// There is no such GPU.
    pub fn of_process(world: &World) -> Result<Self> {
        let runtime = Runtime::open()?;
        let ordinal = match runtime.device_count()? {
            1 => 0,
            _ => world.local_rank(),
        };
        Ok(Self::Hip(runtime.device(ordinal)?.ordinal()))
    }

    /// Opens the GPU that this selects, if it selects one.
    pub(crate) fn open(self) -> Result<Place> {
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

/// Where a [`Device`] turned out to be.
pub(crate) enum Place {
    Cpu {
        /// Why [`Device::Auto`] did not select a GPU.
        no_gpu: Option<Error>,
    },
    Gpu(hip::Device),
}

/// Where images are resized and cropped to the model's size; the resulting bytes are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResizeOn {
    /// On the host's threads, which leaves fewer bytes to copy.
    #[default]
    Host,
    /// On the GPU that the model runs on, which leaves the host more time to decode.
    Device,
}

impl FromStr for ResizeOn {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        named("resize", text, &[("host", Self::Host), ("device", Self::Device)])
    }
}
