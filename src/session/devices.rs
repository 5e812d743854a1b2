//! The devices of a session: one device, or several GPUs of this machine.

use std::fmt;
use std::str::FromStr;

use super::device::{Device, Place, split_gpu, unknown};
use crate::error::{Error, Result};
use crate::hip::{self, Runtime};

/// The devices of a session: one device, or several GPUs of this machine. Several GPUs share the work according to
/// [`Parallelism`](super::Parallelism).
///
/// As text, a set is a [`Device`], `hip:all` (all GPUs), or `hip:0,1` or `hip:0,hip:1` (some GPUs). `gpu`, `rocm` and `cuda` are other
/// names of `hip`.
///
/// ```
/// # fn main() -> hipvit::Result<()> {
/// use hipvit::{Device, DeviceSet};
///
/// assert_eq!("hip:0,2".parse::<DeviceSet>()?, DeviceSet::gpus([0, 2])?);
/// assert_eq!("hip:all".parse::<DeviceSet>()?, DeviceSet::all());
/// assert_eq!("cpu".parse::<DeviceSet>()?, Device::Cpu.into());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSet(Selected);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Selected {
    One(Device),
    AllGpus,
    /// At least two, all different.
    Gpus(Vec<usize>),
}

impl Default for DeviceSet {
    fn default() -> Self {
        Device::Auto.into()
    }
}

impl From<Device> for DeviceSet {
    fn from(device: Device) -> Self {
        Self(Selected::One(device))
    }
}

impl DeviceSet {
    /// Returns all visible GPUs of this machine, at least one.
    #[must_use]
    pub fn all() -> Self {
        Self(Selected::AllGpus)
    }

    /// Returns the GPUs with these ordinals, counted from 0.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for an empty list or a duplicate.
    pub fn gpus(ordinals: impl IntoIterator<Item = usize>) -> Result<Self> {
        let ordinals: Vec<usize> = ordinals.into_iter().collect();
        for (index, ordinal) in ordinals.iter().enumerate() {
            if ordinals[..index].contains(ordinal) {
                return Err(Error::argument("device", format!("hip:{ordinal} is named twice")));
            }
        }
        match ordinals.as_slice() {
            [] => Err(Error::argument("device", "no GPU is named")),
            [one] => Ok(Device::Hip(*one).into()),
            _ => Ok(Self(Selected::Gpus(ordinals))),
        }
    }

    /// Parses several sets, separated by commas. A number after a GPU adds a GPU to its set: `cpu,hip:0,1` is the CPU and a set of two
    /// GPUs, `hip:0,hip:1` are two sets of one GPU.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for an unknown device, or a GPU that is twice in a set.
    pub fn list(text: &str) -> Result<Vec<Self>> {
        let mut sets: Vec<Vec<Device>> = Vec::new();
        let mut all = Vec::new();
        for part in text.split(',') {
            match (part.parse::<usize>(), sets.last_mut()) {
                (Ok(ordinal), Some(set)) if matches!(set.last(), Some(Device::Hip(_))) => {
                    set.push(Device::Hip(ordinal));
                }
                _ if split_gpu(part)
                    .flatten()
                    .is_some_and(|rest| rest.eq_ignore_ascii_case("all")) =>
                {
                    all.push(sets.len());
                    sets.push(Vec::new());
                }
                _ => sets.push(vec![part.parse().map_err(|_| unknown(part, ALL))?]),
            }
        }
        let set = |(index, devices): (usize, Vec<Device>)| match devices.as_slice() {
            [one] => Ok((*one).into()),
            _ if all.contains(&index) => Ok(Self::all()),
            gpus => Self::gpus(gpus.iter().filter_map(ordinal)),
        };
        sets.into_iter().enumerate().map(set).collect()
    }

    /// Returns the device. `None` for a set of several.
    #[must_use]
    pub fn device(&self) -> Option<Device> {
        match self.0 {
            Selected::One(device) => Some(device),
            _ => None,
        }
    }

    /// Returns each device by its number. For [`all`](Self::all), queries the provider.
    ///
    /// # Errors
    ///
    /// There is no GPU, but the set is [`all`](Self::all).
    pub fn resolve(&self) -> Result<Vec<Device>> {
        Ok(match &self.0 {
            Selected::One(device) => vec![*device],
            Selected::Gpus(ordinals) => ordinals.iter().copied().map(Device::Hip).collect(),
            Selected::AllGpus => {
                let runtime = Runtime::open()?;
                // Returns the error if there is no GPU.
                runtime.device(0)?;
                (0..runtime.device_count()?).map(Device::Hip).collect()
            }
        })
    }

    /// Opens the GPUs, if this selects some.
    pub(super) fn open(&self) -> Result<Places> {
        if let Some(device) = self.device() {
            return Ok(match device.open()? {
                Place::Cpu { no_gpu } => Places::Cpu { no_gpu },
                Place::Gpu(gpu) => Places::Gpus(vec![gpu]),
            });
        }
        let runtime = Runtime::open()?;
        let gpus = self.resolve()?;
        let gpus = gpus.iter().filter_map(ordinal).map(|n| runtime.device(n));
        Ok(Places::Gpus(gpus.collect::<hip::Result<_>>()?))
    }
}

/// The opened devices of a [`DeviceSet`].
pub(super) enum Places {
    Cpu {
        /// Reason why [`Device::Auto`] did not select a GPU.
        no_gpu: Option<Error>,
    },
    /// At least one.
    Gpus(Vec<hip::Device>),
}

impl Places {
    /// Returns the GPU, the first of several.
    pub(super) fn first(&self) -> Option<&hip::Device> {
        match self {
            Self::Cpu { .. } => None,
            Self::Gpus(gpus) => gpus.first(),
        }
    }
}

fn ordinal(device: &Device) -> Option<usize> {
    match device {
        Device::Hip(ordinal) => Some(*ordinal),
        _ => None,
    }
}

/// Forms of a set.
const ALL: &str = "auto, cpu, hip, hip:N, hip:all, hip:N,M";

impl FromStr for DeviceSet {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut sets = Self::list(text)?;
        if sets.len() == 1
            && let Some(set) = sets.pop()
        {
            return Ok(set);
        }
        let gpus = |set: &Self| match &set.0 {
            Selected::One(Device::Hip(ordinal)) => Some(vec![*ordinal]),
            Selected::Gpus(ordinals) => Some(ordinals.clone()),
            _ => None,
        };
        let ordinals: Option<Vec<Vec<usize>>> = sets.iter().map(gpus).collect();
        let ordinals = ordinals.ok_or_else(|| {
            let reason = format!("`{text}`: several devices are GPUs, each with its number, as in hip:0,1");
            Error::argument("device", reason)
        })?;
        Self::gpus(ordinals.concat())
    }
}

impl fmt::Display for DeviceSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Selected::One(device) => device.fmt(f),
            Selected::AllGpus => f.pad("hip:all"),
            Selected::Gpus(ordinals) => {
                let ordinals: Vec<String> = ordinals.iter().map(usize::to_string).collect();
                f.pad(&format!("hip:{}", ordinals.join(",")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<String> {
        text.parse::<DeviceSet>().ok().map(|set| set.to_string())
    }

    #[test]
    fn a_set_is_one_device_or_gpus() {
        for (text, shown) in [
            ("auto", "auto"),
            ("cpu", "cpu"),
            ("hip", "hip:0"),
            ("hip:3", "hip:3"),
            ("hip:all", "hip:all"),
            ("hip:0,1,3", "hip:0,1,3"),
            ("hip,1", "hip:0,1"),
            ("hip:2,hip:0", "hip:2,0"),
            ("cuda", "hip:0"),
            ("gpu:1", "hip:1"),
            ("ROCm:all", "hip:all"),
            ("CUDA:0,1", "hip:0,1"),
            ("Auto", "auto"),
            ("CPU", "cpu"),
        ] {
            assert_eq!(parsed(text).as_deref(), Some(shown), "{text}");
            assert_eq!(parsed(shown).as_deref(), Some(shown), "{text}");
        }
        for wrong in [
            "",
            "1",
            "gpus",
            "cuda:",
            "cuda0",
            "mps",
            "cpu:0",
            "hip:",
            "hip:0,",
            "hip:0,0",
            "cpu,1",
            "cpu,hip:0",
            "auto,1",
            "hip:all,1",
            "hip:all,hip:0",
        ] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_list_has_several_sets() {
        let list = |text| {
            DeviceSet::list(text).map(|sets| sets.iter().map(DeviceSet::to_string).collect::<Vec<_>>())
        };
        for (text, sets) in [
            ("auto", &["auto"][..]),
            ("hip:0,hip:1", &["hip:0", "hip:1"]),
            ("cpu,hip:0,1,hip:all", &["cpu", "hip:0,1", "hip:all"]),
        ] {
            assert_eq!(list(text).unwrap_or_default(), sets, "{text}");
        }
        for wrong in ["", "1", "cpu,1", "hip:all,1", "hip:0,1,1", "hip:0,"] {
            assert!(list(wrong).is_err(), "{wrong}");
        }
    }
}
