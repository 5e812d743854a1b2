//! Option values as text: names, parsing, and descriptions of enumerated values.

use std::fmt::{self, Display};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, Result, named};
use crate::exec::GraphMode;
use crate::exec::select::{AllReduceKind, Sparse};
use crate::session::{Device, DeviceSet, Parallelism, ResizeOn};

/// Implements serde for types that are stored as JSON strings.
macro_rules! as_text {
    ($($type:ty),+) => {
        $(
            impl Serialize for $type {
                fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
                    text::serialize(self, serializer)
                }
            }

            impl<'de> Deserialize<'de> for $type {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
                    text::deserialize(deserializer)
                }
            }
        )+
    };
}

/// Defines the names, former names and descriptions of an option's variants.
macro_rules! option_values {
    ($type:ty, $option:literal, $($variant:ident = $name:literal $(| $alias:literal)*: $help:literal,)+) => {
        impl FromStr for $type {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self> {
                $($(
                    if text == $alias {
                        return Ok(Self::$variant);
                    }
                )*)+
                named($option, text, &[$(($name, Self::$variant)),+])
            }
        }

        impl Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self {
                    $(Self::$variant => $name,)+
                })
            }
        }

        as_text!($type);

        #[cfg(feature = "clap")]
        impl clap::ValueEnum for $type {
            fn value_variants<'a>() -> &'a [Self] {
                &[$(Self::$variant),+]
            }

            fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
                Some(match self {
                    $(Self::$variant => clap::builder::PossibleValue::new($name)$(.alias($alias))*.help($help),)+
                })
            }
        }
    };
}

/// A number for each of the channels red, green and blue, as text: `0.485,0.456,0.406`, or one number for all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChannelValues(pub [f64; 3]);

impl FromStr for ChannelValues {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let numbers: Vec<f64> = text
            .split(',')
            .filter_map(|number| number.trim().parse().ok())
            .collect();
        match *numbers {
            [all] if !text.contains(',') => Ok(Self([all; 3])),
            [red, green, blue] if text.matches(',').count() == 2 => Ok(Self([red, green, blue])),
            _ => {
                let reason =
                    format!("`{text}` is neither a number nor three numbers, such as 0.485,0.456,0.406");
                Err(Error::argument("channels", reason))
            }
        }
    }
}

impl Display for ChannelValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [red, green, blue] = self.0;
        write!(f, "{red},{green},{blue}")
    }
}

/// A number for an extent that an ONNX file leaves open, as text: `height=224`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedExtent {
    /// Name of the extent in the file, or `INPUT.AXIS` if it has none.
    pub name: String,
    /// Number.
    pub number: usize,
}

impl FromStr for NamedExtent {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts = text
            .rsplit_once('=')
            .and_then(|(name, number)| Some((name, number.parse().ok()?)));
        match parts {
            Some((name, number)) if !name.is_empty() && number > 0 => Ok(Self {
                name: name.to_owned(),
                number,
            }),
            _ => {
                let reason = format!("`{text}` is not NAME=N, such as height=224");
                Err(Error::argument("extent", reason))
            }
        }
    }
}

impl Display for NamedExtent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.number)
    }
}

as_text!(ChannelValues, NamedExtent);

option_values! { GraphMode, "graph",
    Auto = "auto": "Where possible, unless steps are timed",
    On = "on": "Where possible",
    Off = "off": "Never; steps are launched one by one",
}

option_values! { AllReduceKind, "all-reduce",
    Auto = "auto": "The built-in kernel for small messages, the library for others",
    Direct = "direct": "The built-in kernel, over peer memory",
    Library = "library": "RCCL or NCCL",
}

option_values! { Sparse, "sparse",
    Auto = "auto": "Where `hipvit tune` measured a speed-up",
    On = "on": "Always; by hipSPARSELt or cuSPARSELt if installed, or the built-in kernel",
    Builtin = "builtin" | "own": "Always, by the built-in kernel",
    Off = "off": "Never",
}

option_values! { ResizeOn, "resize",
    Host = "host": "On the host's threads",
    Device = "device": "On the GPU, which also computes the pixels of JPEGs",
}

as_text!(Parallelism, Devices, ImageSize);

/// Serde functions for types that are stored as JSON strings.
pub(super) mod text {
    use super::{Deserialize, Deserializer, Display, FromStr, Serializer};
    use serde::de::Error as _;

    pub(in super::super) fn serialize<T: Display, S: Serializer>(
        value: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(in super::super) fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

/// Serde functions for durations, stored as a number of seconds.
pub(super) mod seconds {
    use std::time::Duration;

    use super::{Deserialize, Deserializer, Serialize, Serializer};
    use serde::de::Error as _;

    pub(in super::super) fn serialize<S: Serializer>(
        time: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        time.as_secs_f64().serialize(serializer)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// Value of a device option: one set of devices, or several if the command supports them.
///
/// ```
/// # fn main() -> hipvit::Result<()> {
/// use hipvit::run_config::Devices;
///
/// assert_eq!("hip:0,1".parse::<Devices>()?.sets().len(), 1);
/// assert_eq!(Devices::list("hip:0,hip:1")?.sets().len(), 2);
/// assert!("hip".parse::<Devices>()?.is_any_gpu());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Devices {
    /// At least one set.
    sets: Vec<DeviceSet>,
    any_gpu: bool,
}

impl Devices {
    /// Parses several sets. See [`DeviceSet::list`].
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] for an unknown device, and for a GPU that occurs twice in a set.
    pub fn list(text: &str) -> Result<Self> {
        let sets = DeviceSet::list(text)?;
        let any_gpu = is_any_gpu(text, &sets);
        Ok(Self { sets, any_gpu })
    }

    /// Returns the first set.
    pub fn set(&self) -> &DeviceSet {
        &self.sets[0]
    }

    /// Returns all sets.
    pub fn sets(&self) -> &[DeviceSet] {
        &self.sets
    }

    /// Returns true for `hip` without a number: the first GPU, or with several processes each process's own GPU.
    pub fn is_any_gpu(&self) -> bool {
        self.any_gpu
    }
}

fn is_any_gpu(text: &str, sets: &[DeviceSet]) -> bool {
    let is_gpu = |set: &DeviceSet| matches!(set.device(), Some(Device::Hip(_)));
    !text.contains([':', ',']) && sets.first().is_some_and(is_gpu)
}

impl<T: Into<DeviceSet>> From<T> for Devices {
    fn from(set: T) -> Self {
        Self {
            sets: vec![set.into()],
            any_gpu: false,
        }
    }
}

impl FromStr for Devices {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let sets = vec![text.parse()?];
        let any_gpu = is_any_gpu(text, &sets);
        Ok(Self { sets, any_gpu })
    }
}

impl Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.any_gpu {
            return f.pad("hip");
        }
        let sets: Vec<String> = self.sets.iter().map(ToString::to_string).collect();
        f.pad(&sets.join(","))
    }
}

/// Height and width of images. Parsed from `224` or `224x160`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageSize(pub [usize; 2]);

impl FromStr for ImageSize {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (height, width) = text.split_once(['x', '×']).unwrap_or((text, text));
        let side = |text: &str| match text.parse::<usize>() {
            Ok(0) => Err(Error::argument("image size", "must be at least 1")),
            Ok(side) => Ok(side),
            Err(error) => Err(Error::argument("image size", error)),
        };
        Ok(Self([side(height)?, side(width)?]))
    }
}

impl Display for ImageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [height, width] = self.0;
        write!(f, "{height}x{width}")
    }
}
