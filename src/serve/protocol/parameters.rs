//! The parameters of requests and outputs. Unknown ones are ignored, as the protocol wants it.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::Value;

use crate::serve::failure::Failure;
use crate::serve::proto::{InferParameter, infer_parameter::ParameterChoice};
use crate::serve::scheduler::Priority;

/// Parameters by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::serve) struct Parameters(HashMap<String, Value>);

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

fn wrong(name: &str, value: &Value, expected: &str) -> Failure {
    Failure::invalid(format!("parameter `{name}`: {value} is not {expected}"))
}

impl Parameters {
    /// A whole number that is not negative.
    pub(in crate::serve) fn unsigned(&self, name: &str) -> Result<Option<u64>, Failure> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_u64() {
                Some(number) => Ok(Some(number)),
                None => Err(wrong(name, value, "a whole number, at least 0")),
            },
        }
    }

    /// One of these names: its index.
    pub(in crate::serve) fn choice(&self, name: &str, choices: &[&str]) -> Result<Option<usize>, Failure> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match choices.iter().position(|choice| value == choice) {
                Some(index) => Ok(Some(index)),
                None => Err(wrong(name, value, &format!("one of {}", choices.join(", ")))),
            },
        }
    }

    pub(in crate::serve) fn boolean(&self, name: &str) -> Result<Option<bool>, Failure> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(value) => Err(wrong(name, value, "true or false")),
        }
    }

    /// `priority`: the name of a class, or Triton's number, of which 0 is the default and 1 the highest.
    pub(in crate::serve) fn priority(&self) -> Result<Priority, Failure> {
        let expected = "interactive, bulk, or a number (0 and 1: interactive, above: bulk)";
        match self.0.get("priority") {
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

    /// `timeout`, in microseconds as in Triton; 0 is none.
    pub(in crate::serve) fn timeout(&self) -> Result<Option<Duration>, Failure> {
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
