//! Parameters of requests, inputs and outputs. Unknown parameters are ignored, as the protocol requires.
//! Parameters that Triton supports and this server does not are refused, and so are known parameters in the
//! wrong place.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::failure::{Failure, Kind};
use crate::priority::Priority;
use crate::proto::{InferParameter, infer_parameter::ParameterChoice};

/// Parameters by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Parameters(HashMap<String, Value>);

/// Names of the parameters that JSON is parsed for. Others are skipped, so that they take no memory.
const KNOWN: [&str; 27] = [
    "beams",
    "best_mask",
    "binary_data",
    "binary_data_output",
    "binary_data_size",
    "class",
    "classification",
    "k",
    "max_tokens",
    "method",
    "priority",
    "prompt",
    "seed",
    "sequence_end",
    "sequence_id",
    "sequence_start",
    "shared_memory_byte_size",
    "shared_memory_offset",
    "shared_memory_region",
    "speculate",
    "temperature",
    "template",
    "threshold",
    "timeout",
    "top_k",
    "top_p",
    "truncate",
];

impl<'de> Deserialize<'de> for Parameters {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ParametersVisitor;

        impl<'de> Visitor<'de> for ParametersVisitor {
            type Value = Parameters;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of parameters")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Parameters, A::Error> {
                let mut parameters = HashMap::new();
                while let Some(name) = map.next_key::<String>()? {
                    if KNOWN.contains(&name.as_str()) {
                        let Scalar(value) = map.next_value()?;
                        parameters.insert(name, value);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(Parameters(parameters))
            }
        }

        deserializer.deserialize_map(ParametersVisitor)
    }
}

/// A JSON value without the contents of lists and objects: these are empty, so that they take no memory.
pub(crate) struct Scalar(pub(crate) Value);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ScalarVisitor;

        impl<'de> Visitor<'de> for ScalarVisitor {
            type Value = Scalar;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON value")
            }

            fn visit_bool<E>(self, value: bool) -> Result<Scalar, E> {
                Ok(Scalar(value.into()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Scalar, E> {
                Ok(Scalar(value.into()))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Scalar, E> {
                Ok(Scalar(value.into()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Scalar, E> {
                Ok(Scalar(value.into()))
            }

            fn visit_str<E>(self, value: &str) -> Result<Scalar, E> {
                Ok(Scalar(value.into()))
            }

            fn visit_unit<E>(self) -> Result<Scalar, E> {
                Ok(Scalar(Value::Null))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Scalar, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Scalar(Value::Array(Vec::new())))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Scalar, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Scalar(Value::Object(serde_json::Map::new())))
            }
        }

        deserializer.deserialize_any(ScalarVisitor)
    }
}

impl From<serde_json::Map<String, Value>> for Parameters {
    fn from(map: serde_json::Map<String, Value>) -> Self {
        Self(map.into_iter().collect())
    }
}

impl From<HashMap<String, InferParameter>> for Parameters {
    fn from(map: HashMap<String, InferParameter>) -> Self {
        let value = |parameter: InferParameter| match parameter.parameter_choice {
            Some(ParameterChoice::BoolParam(value)) => value.into(),
            Some(ParameterChoice::Int64Param(value)) => value.into(),
            Some(ParameterChoice::StringParam(value)) => value.into(),
            Some(ParameterChoice::DoubleParam(value)) => value.into(),
            Some(ParameterChoice::Uint64Param(value)) => value.into(),
            None => Value::Null,
        };
        Self(map.into_iter().map(|(name, p)| (name, value(p))).collect())
    }
}

/// Parameters of models that make texts of images.
pub(crate) const GENERATION: [&str; 8] = [
    "beams",
    "max_tokens",
    "prompt",
    "seed",
    "speculate",
    "temperature",
    "top_k",
    "top_p",
];

/// Parameters of models that find objects or masks.
pub(crate) const VISION: [&str; 2] = ["best_mask", "threshold"];

/// A refused parameter, the kind of failure, and the reason.
type Rule = (&'static str, Kind, &'static str);

const SEQUENCES: &str = "the server has no sequences: each request is run by itself. Leave the parameter out";
const SHARED_MEMORY: &str = "the server has no shared memory: send tensors in the request";
const OF_OUTPUTS: &str = "is a parameter of an output, not of the request";

/// Refused among the parameters of a request.
const OF_REQUEST: [Rule; 7] = [
    ("sequence_id", Kind::Unsupported, SEQUENCES),
    ("sequence_start", Kind::Unsupported, SEQUENCES),
    ("sequence_end", Kind::Unsupported, SEQUENCES),
    ("classification", Kind::InvalidArgument, OF_OUTPUTS),
    ("k", Kind::InvalidArgument, OF_OUTPUTS),
    (
        "binary_data",
        Kind::InvalidArgument,
        "is a parameter of an output; `binary_data_output` is the parameter of the request, for all outputs",
    ),
    (
        "binary_data_size",
        Kind::InvalidArgument,
        "is a parameter of an input, not of the request",
    ),
];

/// Refused among the parameters of tensors.
const OF_TENSOR: [Rule; 3] = [
    ("shared_memory_region", Kind::Unsupported, SHARED_MEMORY),
    ("shared_memory_byte_size", Kind::Unsupported, SHARED_MEMORY),
    ("shared_memory_offset", Kind::Unsupported, SHARED_MEMORY),
];

/// Returns true for values by which a client disables a parameter.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

fn wrong(name: &str, value: &Value, expected: &str) -> Failure {
    let shown: String = match value {
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
        value => value.to_string(),
    };
    Failure::invalid(format!("parameter `{name}`: {shown} is not {expected}"))
}

impl Parameters {
    fn get(&self, name: &str) -> Option<&Value> {
        debug_assert!(KNOWN.contains(&name), "`{name}` is not read from JSON");
        self.0.get(name)
    }

    fn refuse(&self, rules: &[Rule]) -> Result<(), Failure> {
        let given = |name: &str| self.get(name).is_some_and(|value| !is_nothing(value));
        match rules.iter().find(|(name, ..)| given(name)) {
            Some((name, kind, reason)) => Err(Failure::new(*kind, format!("parameter `{name}`: {reason}"))),
            None => Ok(()),
        }
    }

    /// Checks the parameters of a request.
    ///
    /// # Errors
    ///
    /// [`Failure`] for a parameter that Triton supports and this server does not, or that belongs to a
    /// tensor.
    pub(crate) fn check_request(&self) -> Result<(), Failure> {
        self.refuse(&OF_REQUEST)?;
        self.refuse(&OF_TENSOR)
    }

    /// Checks the parameters of an input or output.
    ///
    /// # Errors
    ///
    /// [`Failure`] for a parameter of shared memory.
    pub(crate) fn check_tensor(&self) -> Result<(), Failure> {
        self.refuse(&OF_TENSOR)
    }

    /// Refuses parameters that belong to another output.
    ///
    /// # Errors
    ///
    /// [`Failure`] if one of `names` is given.
    pub(crate) fn only_for(&self, names: &[&'static str], output: &str) -> Result<(), Failure> {
        let given = |name: &&&str| self.get(name).is_some_and(|value| !is_nothing(value));
        match names.iter().find(given) {
            Some(name) => Err(Failure::invalid(format!("parameter `{name}` is for {output}"))),
            None => Ok(()),
        }
    }

    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>, Failure> {
        match self.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(value) => Err(wrong(name, value, "a string")),
        }
    }

    /// Returns a parameter as an unsigned integer.
    pub(crate) fn unsigned(&self, name: &str) -> Result<Option<u64>, Failure> {
        match self.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_u64() {
                Some(number) => Ok(Some(number)),
                None => Err(wrong(name, value, "a whole number, at least 0")),
            },
        }
    }

    /// Returns a parameter as a number.
    pub(crate) fn number(&self, name: &str) -> Result<Option<f64>, Failure> {
        match self.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_f64() {
                Some(number) => Ok(Some(number)),
                None => Err(wrong(name, value, "a number")),
            },
        }
    }

    /// Returns the bits of a parameter that is an integer, negative or not.
    pub(crate) fn bits(&self, name: &str) -> Result<Option<u64>, Failure> {
        match self.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_u64().or(value.as_i64().map(i64::cast_unsigned)) {
                Some(bits) => Ok(Some(bits)),
                None => Err(wrong(name, value, "a whole number")),
            },
        }
    }

    /// Returns the index of a parameter's value in `choices`.
    pub(crate) fn choice(&self, name: &str, choices: &[&str]) -> Result<Option<usize>, Failure> {
        match self.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match choices.iter().position(|choice| value == choice) {
                Some(index) => Ok(Some(index)),
                None => Err(wrong(name, value, &format!("one of {}", choices.join(", ")))),
            },
        }
    }

    pub(crate) fn boolean(&self, name: &str) -> Result<Option<bool>, Failure> {
        match self.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(value) => Err(wrong(name, value, "true or false")),
        }
    }

    /// Returns `priority`: the name of a class, or Triton's number. 0 is the default and 1 the highest.
    pub(crate) fn priority(&self) -> Result<Priority, Failure> {
        let expected = "interactive, bulk, or a number (0 and 1: interactive, above: bulk)";
        match self.get("priority") {
            None | Some(Value::Null) => Ok(Priority::Interactive),
            Some(Value::String(text)) => match text.as_str() {
                "interactive" | "0" | "1" => Ok(Priority::Interactive),
                "bulk" => Ok(Priority::Bulk),
                other if other.parse::<u64>().is_ok() => Ok(Priority::Bulk),
                _ => Err(wrong("priority", &text.as_str().into(), expected)),
            },
            Some(value) => match value.as_u64() {
                Some(0 | 1) => Ok(Priority::Interactive),
                Some(_) => Ok(Priority::Bulk),
                None => Err(wrong("priority", value, expected)),
            },
        }
    }

    /// Returns `timeout`, which is in microseconds as in Triton. 0 is no timeout.
    pub(crate) fn timeout(&self) -> Result<Option<Duration>, Failure> {
        let microseconds = self.unsigned("timeout")?.filter(|&microseconds| microseconds > 0);
        Ok(microseconds.map(Duration::from_micros))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parameters(value: Value) -> Parameters {
        let Value::Object(map) = value else {
            panic!("{value}")
        };
        map.into()
    }

    #[test]
    fn priorities_are_names_or_tritons_numbers() {
        for (value, expected) in [
            (json!({}), Priority::Interactive),
            (json!({"priority": 0}), Priority::Interactive),
            (json!({"priority": 1}), Priority::Interactive),
            (json!({"priority": 2}), Priority::Bulk),
            (json!({"priority": "bulk"}), Priority::Bulk),
            (json!({"priority": "1"}), Priority::Interactive),
            (json!({"priority": "17"}), Priority::Bulk),
        ] {
            assert_eq!(parameters(value.clone()).priority(), Ok(expected), "{value}");
        }
        for value in [
            json!({"priority": "urgent"}),
            json!({"priority": -1}),
            json!({"priority": [1]}),
        ] {
            let error = parameters(value).priority().unwrap_err();
            assert!(error.message().starts_with("parameter `priority`: "), "{error}");
        }
    }

    #[test]
    fn parameters_that_would_be_ignored_are_refused_by_name() {
        for (value, kind) in [
            (json!({"sequence_id": 7}), Kind::Unsupported),
            (json!({"sequence_id": "a"}), Kind::Unsupported),
            (json!({"sequence_start": true}), Kind::Unsupported),
            (json!({"sequence_end": true}), Kind::Unsupported),
            (json!({"shared_memory_region": "r"}), Kind::Unsupported),
            (json!({"classification": 3}), Kind::InvalidArgument),
            (json!({"binary_data": true}), Kind::InvalidArgument),
            (json!({"binary_data_size": 3}), Kind::InvalidArgument),
            (json!({"k": 3}), Kind::InvalidArgument),
        ] {
            let name = value.as_object().unwrap().keys().next().unwrap().clone();
            let error = parameters(value).check_request().unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(
                error.message().starts_with(&format!("parameter `{name}`")),
                "{error}"
            );
        }
        // Values without an effect are accepted.
        for value in [
            json!({"sequence_id": 0, "sequence_start": false, "sequence_end": false}),
            json!({"sequence_id": "", "binary_data": null}),
            json!({"priority": 1, "timeout": 5, "binary_data_output": true, "class": 1, "my_own": [1]}),
        ] {
            assert_eq!(parameters(value.clone()).check_request(), Ok(()), "{value}");
        }
        assert!(
            parameters(json!({"shared_memory_byte_size": 3}))
                .check_tensor()
                .is_err()
        );
    }

    #[test]
    fn unknown_parameters_and_nested_values_are_not_kept() {
        let read = |json: Value| serde_json::from_value::<Parameters>(json).unwrap();
        let found = read(json!({"my_own": [[1], {"a": 2}], "k": 3, "other": "x"}));
        assert_eq!(found, parameters(json!({"k": 3})));
        let nested = read(json!({"priority": [1, [2]], "timeout": {"a": [1]}}));
        let error = nested.priority().unwrap_err();
        assert!(
            error
                .message()
                .starts_with("parameter `priority`: a list is not "),
            "{error}"
        );
        let error = nested.timeout().unwrap_err();
        assert!(
            error
                .message()
                .starts_with("parameter `timeout`: an object is not "),
            "{error}"
        );
    }

    #[test]
    fn a_timeout_is_in_microseconds() {
        let of = |value| parameters(json!({ "timeout": value })).timeout();
        assert_eq!(of(json!(1500)), Ok(Some(Duration::from_micros(1500))));
        assert_eq!(of(json!(0)), Ok(None));
        let error = of(json!(1.5)).unwrap_err();
        assert_eq!(
            error.message(),
            "parameter `timeout`: 1.5 is not a whole number, at least 0"
        );
    }
}
