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

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident $Op:ident;)*) => {
        impl Float {
            $($(#[$doc])*
            pub fn $name(&self) -> Self {
                Self(Expression::apply(Operator::$Op, [&self.0]))
            })*
        }
    };
}
functions! {
    /// `e^x`.
    exp Exp;
    /// Natural logarithm.
    log Log;
    /// Square root.
    sqrt Sqrt;
    /// Hyperbolic tangent.
    tanh Tanh;
    /// `e^x − 1`, accurate near 0.
    exp_m1 ExpM1;
    /// `ln(1 + x)`, accurate near 0.
    log_1p Log1p;
    /// Sine.
    sin Sin;
    /// Cosine.
    cos Cos;
    /// Arc tangent.
    atan Atan;
    /// Error function.
    erf Erf;
    /// Logistic function.
    sigmoid Sigmoid;
    /// `x · Φ(x)` with the error function.
    gelu Gelu;
    /// Largest integer that is not larger.
    floor Floor;
    /// Smallest integer that is not smaller.
    ceil Ceil;
    /// Integer part.
    trunc Trunc;
    /// Nearest integer, the even one of two.
    round Round;
}

impl Float {
    /// `x^y`. Constant exponents with a simple form become products, roots or reciprocals.
    pub fn pow(&self, exponent: impl Into<Self>) -> Self {
        let exponent = exponent.into();
        let x = || self.clone();
        match *exponent.0.0 {
            Node::Float(0.5) => self.sqrt(),
            Node::Float(-0.5) => Self::from(1.0) / self.sqrt(),
            Node::Float(-1.0) => Self::from(1.0) / x(),
            Node::Float(1.0) => x(),
            Node::Float(2.0) => x() * x(),
            Node::Float(3.0) => x() * x() * x(),
            Node::Float(4.0) => {
                let square = x() * x();
                square.clone() * square
            }
            _ => Self(self.with(Operator::Pow, exponent)),
        }
    }

    /// `x − y · trunc(x / y)`, as C's `fmod`.
    pub fn remainder(&self, divisor: impl Into<Self>) -> Self {
        Self(self.with(Operator::Remainder, divisor))
    }

    /// `x − y · ⌊x / y⌋`, as Python's `%`.
    pub fn modulo(&self, divisor: impl Into<Self>) -> Self {
        let divisor = divisor.into();
        let rest = self.remainder(divisor.clone());
        let has_sign_of_dividend = rest.less(0.0).not_equal(&divisor.less(0.0)) & !rest.equal(0.0);
        Self::select(&has_sign_of_dividend, rest.clone() + divisor, rest)
    }

    /// True if this is greater than `other`.
    pub fn greater(&self, other: impl Into<Self>) -> Bool {
        other.into().less(self.clone())
    }

    /// True if this is at least `other`.
    pub fn greater_equal(&self, other: impl Into<Self>) -> Bool {
        other.into().less_equal(self.clone())
    }

    /// True unless this is 0.
    pub fn to_bool(&self) -> Bool {
        !self.equal(0.0)
    }

    /// True for a value that is not a number.
    pub fn is_nan(&self) -> Bool {
        !self.equal(self.clone())
    }

    /// True for ±∞.
    pub fn is_infinite(&self) -> Bool {
        self.abs().equal(f32::INFINITY)
    }

    /// −1, 0 or 1.
    pub fn sign(&self) -> Self {
        let negative = Self::select(&self.less(0.0), -1.0, self.clone());
        Self::select(&self.greater(0.0), 1.0, negative)
    }

    /// `1 / x`.
    pub fn reciprocal(&self) -> Self {
        Self::from(1.0) / self.clone()
    }

    /// `1 / √x`.
    pub fn rsqrt(&self) -> Self {
        self.sqrt().reciprocal()
    }

    /// `min(max(x, low), high)`.
    pub fn clip(&self, low: impl Into<Self>, high: impl Into<Self>) -> Self {
        self.max(low).min(high)
    }

    /// Tangent.
    pub fn tan(&self) -> Self {
        self.sin() / self.cos()
    }

    /// Arc sine.
    pub fn asin(&self) -> Self {
        let cosine = ((Self::from(1.0) - self.clone()) * (self.clone() + 1.0)).sqrt();
        (self.clone() / cosine).atan()
    }

    /// Arc cosine.
    pub fn acos(&self) -> Self {
        let half_tangent = ((Self::from(1.0) - self.clone()) / (self.clone() + 1.0)).sqrt();
        half_tangent.atan() * 2.0
    }

    /// Hyperbolic sine.
    pub fn sinh(&self) -> Self {
        let grown = self.abs().exp_m1();
        let sine = (grown.clone() + grown.clone() / (grown + 1.0)) * 0.5;
        Self::select(&self.less(0.0), -sine.clone(), sine)
    }

    /// Hyperbolic cosine.
    pub fn cosh(&self) -> Self {
        let grown = self.abs().exp();
        (grown.clone() + grown.reciprocal()) * 0.5
    }

    /// Inverse hyperbolic sine.
    pub fn asinh(&self) -> Self {
        let square = self.clone() * self.clone();
        let sine = (self.abs() + square.clone() / ((square + 1.0).sqrt() + 1.0)).log_1p();
        Self::select(&self.less(0.0), -sine.clone(), sine)
    }

    /// Inverse hyperbolic cosine.
    pub fn acosh(&self) -> Self {
        let above = self.clone() - 1.0;
        (above.clone() + (above.clone() * (above + 2.0)).sqrt()).log_1p()
    }

    /// Inverse hyperbolic tangent.
    pub fn atanh(&self) -> Self {
        (self.clone() * 2.0 / (Self::from(1.0) - self.clone())).log_1p() * 0.5
    }

    /// `max(x, 0)`.
    pub fn relu(&self) -> Self {
        self.max(0.0)
    }

    /// `x`, and `slope · x` if it is negative.
    pub fn leaky_relu(&self, slope: impl Into<Self>) -> Self {
        Self::select(&self.less(0.0), self.clone() * slope, self.clone())
    }

    /// `x`, and `alpha · (e^x − 1)` if it is negative.
    pub fn elu(&self, alpha: f32) -> Self {
        Self::select(&self.less(0.0), self.exp_m1() * alpha, self.clone())
    }

    /// `gamma · x`, and `gamma · alpha · (e^x − 1)` if it is negative.
    pub fn selu(&self, alpha: f32, gamma: f32) -> Self {
        self.elu(alpha) * gamma
    }

    /// `max(x, 0) + min(alpha · (e^(x/alpha) − 1), 0)`.
    pub fn celu(&self, alpha: f32) -> Self {
        Self::select(
            &self.less(0.0),
            (self.clone() * (1.0 / alpha)).exp_m1() * alpha,
            self.clone(),
        )
    }

    /// `ln(1 + e^x)`.
    pub fn softplus(&self) -> Self {
        self.max(0.0) + (-self.abs()).exp().log_1p()
    }

    /// `x / (1 + |x|)`.
    pub fn softsign(&self) -> Self {
        self.clone() / (self.abs() + 1.0)
    }

    /// `max(0, min(1, alpha · x + beta))`.
    pub fn hard_sigmoid(&self, alpha: f32, beta: f32) -> Self {
        (self.clone() * alpha + beta).clip(0.0, 1.0)
    }

    /// `x · max(0, min(1, x/6 + 1/2))`.
    pub fn hard_swish(&self) -> Self {
        self.clone() * self.hard_sigmoid(1.0 / 6.0, 0.5)
    }

    /// `x · σ(factor · x)`.
    pub fn swish(&self, factor: f32) -> Self {
        let scaled = if factor == 1.0 {
            self.clone()
        } else {
            self.clone() * factor
        };
        self.clone() * scaled.sigmoid()
    }

    /// Tanh approximation of GELU, `x · σ(2·√(2/π) · (x + 0.044715·x³))`.
    pub fn gelu_tanh(&self) -> Self {
        const FACTOR: f32 = 1.595_769_2;
        let cubic = self.clone() * self.clone() * (0.044_715 * FACTOR) + FACTOR;
        self.clone() * (self.clone() * cubic).sigmoid()
    }

    /// `x · tanh(softplus(x))`.
    pub fn mish(&self) -> Self {
        self.clone() * self.softplus().tanh()
    }

    /// `x` if it is greater than `alpha`, otherwise 0.
    pub fn thresholded_relu(&self, alpha: f32) -> Self {
        Self::select(&self.greater(alpha), self.clone(), 0.0)
    }
}

impl Bool {
    /// True if one of both is true.
    pub fn not_equal(&self, other: &Self) -> Self {
        (self.clone() & !other.clone()) | (!self.clone() & other.clone())
    }

    /// 1 for true, 0 for false.
    pub fn to_float(&self) -> Float {
        Float::select(self, 1.0, 0.0)
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

    /// An operand of an [`Elementwise`](crate::op::Elementwise), by its index. Patterns have none.
    pub fn operand(index: u32) -> Float {
        Float(Expression::new(Node::Operand(index)))
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
