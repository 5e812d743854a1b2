//! Expressions in JSON and other self-describing formats.
//!
//! | JSON | expression |
//! | --- | --- |
//! | `"score"`, `"batch"`, `"head"`, `"query"`, `"key"`, `"heads"`, `"queries"`, `"keys"` | score, index or extent |
//! | `true`, `3`, `0.5` | constant: a truth value, an integer, a float (with a decimal point) |
//! | `{"add": [x, y]}` | operator with its operands, by the names of [`Operator::name`] |
//! | `{"operand": 0}` | operand of an elementwise op |
//! | `{"scalar": {"name": "cap", "type": "float"}}` | scalar of a run |
//! | `{"load": {"tensor": "bias", "type": "float", "index": ["head", "query", "key"]}}` | element of a captured tensor |
//! | `{"table": {"values": [0.5, 0.25], "index": "head"}}` | element of a constant table |

use std::fmt;
use std::sync::Arc;

use serde::de::{Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::expression::{Expression, Index, Node, Table};
use super::operator::Operator;
use super::types::Type;

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum NumberType {
    Int,
    Float,
}

impl From<NumberType> for Type {
    fn from(ty: NumberType) -> Self {
        match ty {
            NumberType::Int => Self::Int,
            NumberType::Float => Self::Float,
        }
    }
}

impl From<Type> for NumberType {
    fn from(ty: Type) -> Self {
        match ty {
            Type::Float => Self::Float,
            Type::Int | Type::Bool => Self::Int,
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScalarJson {
    name: Arc<str>,
    #[serde(rename = "type")]
    ty: NumberType,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LoadJson {
    tensor: Arc<str>,
    #[serde(rename = "type")]
    ty: NumberType,
    index: Vec<Expression>,
}

/// Integers are tried first, so that a table of floats needs one element with a decimal point.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum ValuesJson {
    Int(Arc<[i32]>),
    Float(Arc<[f32]>),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TableJson {
    values: ValuesJson,
    index: Expression,
}

impl Serialize for Expression {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let entry = |serializer: S| serializer.serialize_map(Some(1));
        match &*self.0 {
            Node::Score => serializer.serialize_str("score"),
            Node::Operand(index) => {
                let mut map = entry(serializer)?;
                map.serialize_entry("operand", index)?;
                map.end()
            }
            Node::Index(index) => serializer.serialize_str(index.name()),
            Node::Bool(value) => serializer.serialize_bool(*value),
            Node::Int(value) => serializer.serialize_i32(*value),
            Node::Float(value) => serializer.serialize_f32(*value),
            Node::Scalar { name, ty } => {
                let scalar = ScalarJson {
                    name: name.clone(),
                    ty: (*ty).into(),
                };
                let mut map = entry(serializer)?;
                map.serialize_entry("scalar", &scalar)?;
                map.end()
            }
            Node::Load { tensor, ty, index } => {
                let load = LoadJson {
                    tensor: tensor.clone(),
                    ty: (*ty).into(),
                    index: index.clone(),
                };
                let mut map = entry(serializer)?;
                map.serialize_entry("load", &load)?;
                map.end()
            }
            Node::Table { values, index } => {
                let table = TableJson {
                    values: match values {
                        Table::Int(values) => ValuesJson::Int(values.clone()),
                        Table::Float(values) => ValuesJson::Float(values.clone()),
                    },
                    index: index.clone(),
                };
                let mut map = entry(serializer)?;
                map.serialize_entry("table", &table)?;
                map.end()
            }
            Node::Apply(op, operands) => {
                let mut map = entry(serializer)?;
                map.serialize_entry(op.name(), operands)?;
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Expression {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ExpressionVisitor)
    }
}

struct ExpressionVisitor;

impl<'de> Visitor<'de> for ExpressionVisitor {
    type Value = Expression;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "an expression: a name such as \"score\", a constant, or an object such as {\"add\": [x, y]}",
        )
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Expression, E> {
        Ok(Expression::new(Node::Bool(value)))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Expression, E> {
        let value = i32::try_from(value);
        let value = value.map_err(|_| E::custom("an integer of an expression has more than 32 bits"))?;
        Ok(Expression::new(Node::Int(value)))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Expression, E> {
        self.visit_i64(i64::try_from(value).unwrap_or(i64::MAX))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Expression, E> {
        Ok(Expression::new(Node::Float(value as f32)))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Expression, E> {
        if name == "score" {
            return Ok(Expression::new(Node::Score));
        }
        let index = Index::ALL.into_iter().find(|index| index.name() == name);
        let index = index.ok_or_else(|| E::custom(format!("unknown name `{name}` in an expression")))?;
        Ok(Expression::new(Node::Index(index)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Expression, A::Error> {
        let Some(key) = map.next_key::<String>()? else {
            return Err(A::Error::custom("an expression is an empty object"));
        };
        let node = match key.as_str() {
            "operand" => Node::Operand(map.next_value()?),
            "scalar" => {
                let ScalarJson { name, ty } = map.next_value()?;
                Node::Scalar { name, ty: ty.into() }
            }
            "load" => {
                let LoadJson { tensor, ty, index } = map.next_value()?;
                Node::Load {
                    tensor,
                    ty: ty.into(),
                    index,
                }
            }
            "table" => {
                let TableJson { values, index } = map.next_value()?;
                let values = match values {
                    ValuesJson::Int(values) => Table::Int(values),
                    ValuesJson::Float(values) => Table::Float(values),
                };
                Node::Table { values, index }
            }
            name => {
                let op = Operator::of_name(name);
                let op = op
                    .ok_or_else(|| A::Error::custom(format!("unknown operator `{name}` in an expression")))?;
                Node::Apply(op, map.next_value()?)
            }
        };
        if let Some(second) = map.next_key::<String>()? {
            return Err(A::Error::custom(format!(
                "an expression has the operators `{key}` and `{second}`. Nest them"
            )));
        }
        Ok(Expression::new(node))
    }
}
