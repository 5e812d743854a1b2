//! Operators of expressions.

use super::types::Type;

/// Operand and result types of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signature {
    /// Numbers of one type → that type.
    Number(usize),
    /// Numbers of one type → a truth value.
    Compare,
    /// Floats → a float.
    Float(usize),
    /// Integers → an integer.
    Int(usize),
    /// Truth values → a truth value.
    Bool(usize),
    /// A truth value and two operands of one type → that type.
    Select,
    /// An integer → a float.
    ToFloat,
}

macro_rules! operators {
    ($($(#[$doc:meta])* $Op:ident $name:literal $signature:expr;)*) => {
        /// An operator of an [`Expression`](super::Expression).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Operator {
            $($(#[$doc])* $Op,)*
        }

        impl Operator {
            /// All operators.
            pub const ALL: &'static [Self] = &[$(Self::$Op,)*];

            /// Returns the name in JSON and in errors.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$Op => $name,)*
                }
            }

            pub(super) fn signature(self) -> Signature {
                use Signature::*;
                match self {
                    $(Self::$Op => $signature,)*
                }
            }
        }
    };
}
operators! {
    /// `x + y`. Integers wrap.
    Add "add" Number(2);
    /// `x − y`. Integers wrap.
    Sub "sub" Number(2);
    /// `x · y`. Integers wrap.
    Mul "mul" Number(2);
    /// Smaller of two numbers.
    Min "min" Number(2);
    /// Larger of two numbers.
    Max "max" Number(2);
    /// `−x`. Integers wrap.
    Neg "neg" Number(1);
    /// `|x|`. Integers wrap.
    Abs "abs" Number(1);
    /// `x / y` of floats.
    Div "div" Float(2);
    /// `⌊x / y⌋` of integers, as Python's `//`. 0 if `y` is 0.
    FloorDiv "floor_div" Int(2);
    /// `x − y · ⌊x / y⌋` of integers, as Python's `%`. 0 if `y` is 0.
    Mod "mod" Int(2);
    /// `e^x`.
    Exp "exp" Float(1);
    /// Natural logarithm.
    Log "log" Float(1);
    /// Square root.
    Sqrt "sqrt" Float(1);
    /// Hyperbolic tangent.
    Tanh "tanh" Float(1);
    /// `x^y`.
    Pow "pow" Float(2);
    /// `x − y · trunc(x / y)`, as C's `fmod`.
    Remainder "remainder" Float(2);
    /// `e^x − 1`, accurate near 0.
    ExpM1 "exp_m1" Float(1);
    /// `ln(1 + x)`, accurate near 0.
    Log1p "log_1p" Float(1);
    /// Sine.
    Sin "sin" Float(1);
    /// Cosine.
    Cos "cos" Float(1);
    /// Arc tangent.
    Atan "atan" Float(1);
    /// Error function.
    Erf "erf" Float(1);
    /// Logistic function, `1 / (1 + e^−x)`.
    Sigmoid "sigmoid" Float(1);
    /// `x · Φ(x)` with the error function.
    Gelu "gelu" Float(1);
    /// Largest integer that is not larger.
    Floor "floor" Float(1);
    /// Smallest integer that is not smaller.
    Ceil "ceil" Float(1);
    /// Integer part.
    Trunc "trunc" Float(1);
    /// Nearest integer, the even one of two.
    Round "round" Float(1);
    /// The float of an integer.
    ToFloat "to_float" ToFloat;
    /// `x < y`.
    Less "less" Compare;
    /// `x ≤ y`.
    LessEqual "less_equal" Compare;
    /// `x = y`.
    Equal "equal" Compare;
    /// Both are true.
    And "and" Bool(2);
    /// One is true, or both.
    Or "or" Bool(2);
    /// The operand is false.
    Not "not" Bool(1);
    /// The second operand if the first is true, otherwise the third.
    Select "select" Select;
}

impl Operator {
    /// Returns the operator of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|op| op.name() == name)
    }

    /// Returns the number of operands.
    pub fn operands(self) -> usize {
        match self.signature() {
            Signature::Number(count)
            | Signature::Float(count)
            | Signature::Int(count)
            | Signature::Bool(count) => count,
            Signature::Compare => 2,
            Signature::Select => 3,
            Signature::ToFloat => 1,
        }
    }

    /// Returns the type of the result for operands of these types, or the operand that does not fit with what is expected instead.
    pub(super) fn result(self, operands: &[Type]) -> Result<Type, (usize, &'static str)> {
        let all = |ty: Type, expected| match operands.iter().position(|&found| found != ty) {
            Some(index) => Err((index, expected)),
            None => Ok(ty),
        };
        let numbers = || match operands {
            [Type::Bool, ..] => Err((0, "a number")),
            [first, rest @ ..] => match rest.iter().position(|ty| ty != first) {
                Some(index) => Err((
                    index + 1,
                    "the type of the first operand. Convert integers with `to_float`",
                )),
                None => Ok(*first),
            },
            [] => Err((0, "a number")),
        };
        match self.signature() {
            Signature::Number(_) => numbers(),
            Signature::Compare => numbers().map(|_| Type::Bool),
            Signature::Float(_) => all(Type::Float, "a float. Convert integers with `to_float`"),
            Signature::Int(_) => all(Type::Int, "an integer"),
            Signature::Bool(_) => all(Type::Bool, "a truth value"),
            Signature::ToFloat => all(Type::Int, "an integer").map(|_| Type::Float),
            Signature::Select => match operands {
                [Type::Bool, x, y] if x == y => Ok(*x),
                [Type::Bool, ..] => Err((2, "the type of the second operand")),
                _ => Err((0, "a truth value")),
            },
        }
    }
}
