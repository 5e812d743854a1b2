//! Expressions with types that rustc checks.

use std::ops::{Add, BitAnd, BitOr, Div, Mul, Neg, Not, Sub};
use std::sync::Arc;

use super::expression::{Expression, Index, Node, Table};
use super::operator::Operator;
use super::types::Type;

macro_rules! typed {
    ($(#[$doc:meta])* $Name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        #[must_use]
        pub struct $Name(pub(super) Expression);

        impl From<$Name> for Expression {
            fn from(typed: $Name) -> Self {
                typed.0
            }
        }

        impl $Name {
            /// Returns this if `condition` is true, otherwise `other`.
            pub fn select(condition: &Bool, this: impl Into<Self>, other: impl Into<Self>) -> Self {
                Self(Expression::apply(Operator::Select, [&condition.0, &this.into().0, &other.into().0]))
            }
        }
    };
}
typed! {
    /// A floating-point expression.
    Float
}
typed! {
    /// An integer expression.
    Int
}
typed! {
    /// A truth value.
    Bool
}

impl From<f32> for Float {
    fn from(value: f32) -> Self {
        Self(Expression::new(Node::Float(value)))
    }
}

impl From<i32> for Int {
    fn from(value: i32) -> Self {
        Self(Expression::new(Node::Int(value)))
    }
}

impl From<Index> for Int {
    fn from(index: Index) -> Self {
        Self(Expression::new(Node::Index(index)))
    }
}

impl From<bool> for Bool {
    fn from(value: bool) -> Self {
        Self(Expression::new(Node::Bool(value)))
    }
}

macro_rules! binary {
    ($Name:ident: $($Trait:ident $method:ident $Op:ident),*) => {
        $(impl<R: Into<$Name>> $Trait<R> for $Name {
            type Output = Self;

            fn $method(self, other: R) -> Self {
                Self(Expression::apply(Operator::$Op, [&self.0, &other.into().0]))
            }
        })*
    };
}
binary!(Float: Add add Add, Sub sub Sub, Mul mul Mul, Div div Div);
binary!(Int: Add add Add, Sub sub Sub, Mul mul Mul);
binary!(Bool: BitAnd bitand And, BitOr bitor Or);

macro_rules! numbers {
    ($Name:ident) => {
        impl Neg for $Name {
            type Output = Self;

            fn neg(self) -> Self {
                Self(Expression::apply(Operator::Neg, [&self.0]))
            }
        }

        impl $Name {
            fn with(&self, op: Operator, other: impl Into<Self>) -> Expression {
                Expression::apply(op, [&self.0, &other.into().0])
            }

            /// Smaller of two numbers.
            pub fn min(&self, other: impl Into<Self>) -> Self {
                Self(self.with(Operator::Min, other))
            }

            /// Larger of two numbers.
            pub fn max(&self, other: impl Into<Self>) -> Self {
                Self(self.with(Operator::Max, other))
            }

            /// Absolute value.
            pub fn abs(&self) -> Self {
                Self(Expression::apply(Operator::Abs, [&self.0]))
            }

            /// True if this is less than `other`.
            pub fn less(&self, other: impl Into<Self>) -> Bool {
                Bool(self.with(Operator::Less, other))
            }

            /// True if this is at most `other`.
            pub fn less_equal(&self, other: impl Into<Self>) -> Bool {
                Bool(self.with(Operator::LessEqual, other))
            }

            /// True if both are equal.
            pub fn equal(&self, other: impl Into<Self>) -> Bool {
                Bool(self.with(Operator::Equal, other))
            }
        }
    };
}
numbers!(Float);
numbers!(Int);

impl Float {
    fn unary(&self, op: Operator) -> Self {
        Self(Expression::apply(op, [&self.0]))
    }

    /// `e^x`.
    pub fn exp(&self) -> Self {
        self.unary(Operator::Exp)
    }

    /// Natural logarithm.
    pub fn log(&self) -> Self {
        self.unary(Operator::Log)
    }

    /// Square root.
    pub fn sqrt(&self) -> Self {
        self.unary(Operator::Sqrt)
    }

    /// Hyperbolic tangent.
    pub fn tanh(&self) -> Self {
        self.unary(Operator::Tanh)
    }
}

impl Int {
    /// `⌊x / y⌋`, as Python's `//`. 0 if `y` is 0.
    pub fn floor_div(&self, divisor: impl Into<Self>) -> Self {
        Self(self.with(Operator::FloorDiv, divisor))
    }

    /// `x − y · ⌊x / y⌋`, as Python's `%`. 0 if `y` is 0.
    pub fn modulo(&self, divisor: impl Into<Self>) -> Self {
        Self(self.with(Operator::Mod, divisor))
    }

    /// The nearest float.
    pub fn to_float(&self) -> Float {
        Float(Expression::apply(Operator::ToFloat, [&self.0]))
    }
}

impl Not for Bool {
    type Output = Self;

    fn not(self) -> Self {
        Self(Expression::apply(Operator::Not, [&self.0]))
    }
}

fn scalar(name: &str, ty: Type) -> Expression {
    Expression::new(Node::Scalar {
        name: name.into(),
        ty,
    })
}

fn load<const N: usize>(tensor: &str, ty: Type, index: [Int; N]) -> Expression {
    Expression::new(Node::Load {
        tensor: tensor.into(),
        ty,
        index: index.into_iter().map(Expression::from).collect(),
    })
}

fn table(values: Table, index: Int) -> Expression {
    Expression::new(Node::Table {
        values,
        index: index.into(),
    })
}

/// Floats that each run provides, and constant tables of floats.
pub mod floats {
    use super::*;

    /// A float that each run provides.
    pub fn scalar(name: &str) -> Float {
        Float(super::scalar(name, Type::Float))
    }

    /// An element of the captured tensor `name`. Indices outside the tensor are clamped.
    pub fn load<const N: usize>(name: &str, index: [Int; N]) -> Float {
        Float(super::load(name, Type::Float, index))
    }

    /// An element of a constant table. An index outside the table is clamped.
    pub fn table(values: impl Into<Arc<[f32]>>, index: Int) -> Float {
        Float(super::table(Table::Float(values.into()), index))
    }
}

/// Indices, integers that each run provides, and constant tables of integers.
pub mod ints {
    use super::*;

    /// Index of the image in the batch.
    pub fn batch() -> Int {
        Index::Batch.into()
    }

    /// Index of the head.
    pub fn head() -> Int {
        Index::Head.into()
    }

    /// Index of the query.
    pub fn query() -> Int {
        Index::Query.into()
    }

    /// Index of the key.
    pub fn key() -> Int {
        Index::Key.into()
    }

    /// Number of heads.
    pub fn heads() -> Int {
        Index::Heads.into()
    }

    /// Number of queries.
    pub fn queries() -> Int {
        Index::Queries.into()
    }

    /// Number of keys.
    pub fn keys() -> Int {
        Index::Keys.into()
    }

    /// An integer that each run provides.
    pub fn scalar(name: &str) -> Int {
        Int(super::scalar(name, Type::Int))
    }

    /// An element of the captured tensor `name`. Indices outside the tensor are clamped.
    pub fn load<const N: usize>(name: &str, index: [Int; N]) -> Int {
        Int(super::load(name, Type::Int, index))
    }

    /// An element of a constant table. An index outside the table is clamped.
    pub fn table(values: impl Into<Arc<[i32]>>, index: Int) -> Int {
        Int(super::table(Table::Int(values.into()), index))
    }
}

/// Truth values that each run provides.
pub mod bools {
    use super::*;

    /// True where the captured tensor `name` is not 0. Indices outside the tensor are clamped.
    pub fn load<const N: usize>(name: &str, index: [Int; N]) -> Bool {
        !ints::load(name, index).equal(0)
    }
}
