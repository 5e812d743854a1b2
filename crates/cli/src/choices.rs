//! The values of options that take one of a few, for help and parsing.

use std::fmt::Display;
use std::marker::PhantomData;
use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use hipvit::{AllReduceKind, DType, Device, DeviceSet, GraphMode, Parallelism, ResizeOn, Sparse};

/// Values of `--device` for help; other names and numbers are parsed too.
static DEVICES: [(&str, &str); 6] = [
    ("auto", "the first GPU, or the CPU if there is none"),
    ("cpu", "the CPU"),
    ("hip", "the first GPU; also called gpu, rocm or cuda"),
    ("hip:N", "GPU N, counted from 0"),
    ("hip:N,M", "these GPUs together"),
    ("hip:all", "all GPUs together"),
];

/// Values of `--dtype` for help and completions; other names are parsed too.
static DTYPES: [(&str, &str); 3] = [
    ("f32", "also called float32, fp32 or float"),
    ("f16", "also called float16, fp16 or half"),
    ("bf16", "also called bfloat16"),
];

/// Returns a parser of `auto`, `cpu`, `hip`, and `hip:N` for any N.
pub fn device() -> impl TypedValueParser<Value = Device> {
    Parsed::<Device>::new(&DEVICES[..4])
}

/// Returns a parser of a device or a set of GPUs: `hip:all`, `hip:0,1`.
pub fn devices() -> impl TypedValueParser<Value = Devices> {
    Parsed::<Devices>::new(&DEVICES)
}

/// Returns a parser of several devices and sets of GPUs: see [`DeviceSet::list`].
pub fn device_sets() -> impl TypedValueParser<Value = DeviceSets> {
    Parsed::<DeviceSets>::new(&DEVICES)
}

/// The value of an option that names a device or a set of GPUs.
#[derive(Clone, Debug)]
pub struct Devices {
    set: DeviceSet,
    any_gpu: bool,
}

impl Devices {
    /// What it names.
    pub fn set(&self) -> &DeviceSet {
        &self.set
    }

    /// Whether it is `hip`, without a number: the first GPU, but of several processes each has its own.
    pub fn is_any_gpu(&self) -> bool {
        self.any_gpu
    }
}

impl From<DeviceSet> for Devices {
    fn from(set: DeviceSet) -> Self {
        Self { set, any_gpu: false }
    }
}

impl FromStr for Devices {
    type Err = hipvit::Error;

    fn from_str(text: &str) -> hipvit::Result<Self> {
        let set: DeviceSet = text.parse()?;
        let any_gpu = !text.contains([':', ',']) && matches!(set.device(), Some(Device::Hip(_)));
        Ok(Self { set, any_gpu })
    }
}

/// The value of an option that names several sets of devices.
#[derive(Clone, Debug)]
pub struct DeviceSets(pub Vec<DeviceSet>);

impl FromStr for DeviceSets {
    type Err = hipvit::Error;

    fn from_str(text: &str) -> hipvit::Result<Self> {
        DeviceSet::list(text).map(Self)
    }
}

/// `data`, `tensor`, `pipeline`, `tensor=2,data=2`.
pub fn parallelism(text: &str) -> Result<Parallelism, String> {
    text.parse().map_err(|error: hipvit::Error| error.to_string())
}

/// Returns a parser of `f32`, `f16` and `bf16`, by any name that [`DType`] parses.
pub fn dtype() -> impl TypedValueParser<Value = DType> {
    Parsed::<DType>::new(&DTYPES)
}

/// `auto`, `on`, `off`.
pub fn hip_graphs() -> impl TypedValueParser<Value = GraphMode> {
    PossibleValuesParser::new(["auto", "on", "off"]).try_map(|text| GraphMode::from_str(&text))
}

/// `auto`, `direct`, `library`.
pub fn all_reduce() -> impl TypedValueParser<Value = AllReduceKind> {
    PossibleValuesParser::new(["auto", "direct", "library"]).try_map(|text| AllReduceKind::from_str(&text))
}

/// `auto`, `on`, `off`.
pub fn sparse() -> impl TypedValueParser<Value = Sparse> {
    PossibleValuesParser::new(["auto", "on", "builtin", "off"]).try_map(|text| Sparse::from_str(&text))
}

/// `host`, `device`.
pub fn resize() -> impl TypedValueParser<Value = ResizeOn> {
    PossibleValuesParser::new(["host", "device"]).try_map(|text| ResizeOn::from_str(&text))
}

/// Parses what the library parses; the values are for help and completions.
#[derive(Clone, Debug)]
struct Parsed<T> {
    /// Names and what they mean.
    values: &'static [(&'static str, &'static str)],
    parsed: PhantomData<T>,
}

impl<T> Parsed<T> {
    fn new(values: &'static [(&'static str, &'static str)]) -> Self {
        Self {
            values,
            parsed: PhantomData,
        }
    }
}

impl<T> TypedValueParser for Parsed<T>
where
    T: FromStr<Err: Display> + Clone + Send + Sync + 'static,
{
    type Value = T;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<T, clap::Error> {
        let parse = |text: &str| text.parse::<T>().map_err(|error| error.to_string());
        let parsed = value
            .to_str()
            .ok_or_else(|| "is not text".to_owned())
            .and_then(parse);
        parsed.map_err(|reason| {
            let name = argument.map(ToString::to_string).unwrap_or_default();
            let message = format!("invalid value for '{name}': {reason}\n");
            clap::Error::raw(ErrorKind::ValueValidation, message).with_cmd(command)
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let values = self.values.iter();
        Some(Box::new(
            values.map(|&(name, help)| PossibleValue::new(name).help(help)),
        ))
    }
}
