//! Parsers of option values for clap.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::ErrorKind;

use super::Devices;
use crate::session::{Device, DtypeChoice, Parallelism};
use crate::tensor::DType;

/// Values of `--device` in the help. The parser also accepts other names and numbers.
static DEVICES: [(&str, &str); 6] = [
    ("auto", "The first GPU, or the CPU if there is none"),
    ("cpu", "The CPU"),
    ("hip", "The first GPU; also called gpu, rocm or cuda"),
    ("hip:N", "GPU N, counted from 0"),
    ("hip:N,M", "These GPUs together"),
    ("hip:all", "All GPUs together"),
];

/// Values of `--dtype` in help and completions. The parser also accepts other names.
static DTYPES: [(&str, &str); 4] = [
    ("auto", "The fastest that is accurate on the --calibrate images"),
    ("f32", "Also called float32, fp32 or float"),
    (
        "f16",
        "Also called float16, fp16 or half; weights only on the CPU",
    ),
    ("bf16", "Also called bfloat16"),
];

/// Returns a parser of one device.
pub fn device() -> impl TypedValueParser<Value = Device> {
    Parsed::new(&DEVICES[..4], text::<Device>)
}

/// Returns a parser of one device, for an option whose type is [`Devices`].
pub fn one_device() -> impl TypedValueParser<Value = Devices> {
    Parsed::new(&DEVICES[..4], |value| text::<Device>(value).map(Devices::from))
}

/// Returns a parser of a device or a set of GPUs.
pub fn devices() -> impl TypedValueParser<Value = Devices> {
    Parsed::new(&DEVICES, text::<Devices>)
}

/// Returns a parser of several devices and sets of GPUs. See [`Devices::list`].
pub fn device_sets() -> impl TypedValueParser<Value = Devices> {
    Parsed::new(&DEVICES, |text| {
        Devices::list(text).map_err(|error| error.to_string())
    })
}

/// Returns a parser of `f32`, `f16` and `bf16`. Accepts all names that [`DType`] parses.
pub fn dtype() -> impl TypedValueParser<Value = DType> {
    Parsed::new(&DTYPES[1..], text::<DType>)
}

/// Returns a parser of `auto` and the names that [`dtype`] parses.
pub fn dtype_choice() -> impl TypedValueParser<Value = DtypeChoice> {
    Parsed::new(&DTYPES, text::<DtypeChoice>)
}

/// Parses `data`, `tensor`, `pipeline` or degrees such as `tensor=2,data=2`.
///
/// # Errors
///
/// Returns a message if the text is not a [`Parallelism`].
pub fn parallelism(value: &str) -> Result<Parallelism, String> {
    text(value)
}

/// Parses a number of floating-point operations, such as `2e13`.
///
/// # Errors
///
/// Returns a message if the text is not a number of at least 1.
pub fn flops(text: &str) -> Result<u64, String> {
    match text.parse::<f64>() {
        // A cast to an integer saturates.
        Ok(n) if n >= 1.0 => Ok(n as u64),
        Ok(_) => Err("must be at least 1".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// Parses a whole number of at least 1.
///
/// # Errors
///
/// Returns a message if the text is not such a number.
pub fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".into()),
        Ok(n) => Ok(n),
        Err(error) => Err(format!("{error}")),
    }
}

/// Parses a number of seconds, up to a year.
///
/// # Errors
///
/// Returns a message if the text is not such a number.
pub fn seconds(text: &str) -> Result<Duration, String> {
    const YEAR: f64 = 86_400.0 * 365.0;
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=YEAR).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        Ok(_) => Err("must be from 0 to a year".into()),
        Err(error) => Err(error.to_string()),
    }
}

fn text<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse::<T>().map_err(|error| error.to_string())
}

/// Parser that accepts more values than help and completions list.
#[derive(Clone, Debug)]
struct Parsed<T> {
    /// Names and descriptions of the listed values.
    values: &'static [(&'static str, &'static str)],
    parse: fn(&str) -> Result<T, String>,
}

impl<T> Parsed<T> {
    fn new(values: &'static [(&'static str, &'static str)], parse: fn(&str) -> Result<T, String>) -> Self {
        Self { values, parse }
    }
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for Parsed<T> {
    type Value = T;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<T, clap::Error> {
        let parsed = value
            .to_str()
            .ok_or_else(|| "is not text".to_owned())
            .and_then(self.parse);
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
