//! Operators as functions of numbers.

use super::operator::Operator;
use crate::array::Real;

impl Operator {
    /// Returns the function of one float. `None` for other operators.
    pub(crate) fn of_float<T: Real>(self) -> Option<fn(T) -> T> {
        Some(match self {
            Self::Neg => |x| -x,
            Self::Abs => T::abs,
            Self::Exp => T::exp,
            Self::Log => T::ln,
            Self::Sqrt => T::sqrt,
            Self::Tanh => T::tanh,
            Self::ExpM1 => T::exp_m1,
            Self::Log1p => T::ln_1p,
            Self::Sin => T::sin,
            Self::Cos => T::cos,
            Self::Atan => T::atan,
            Self::Erf => T::erf,
            Self::Sigmoid => sigmoid,
            Self::Gelu => gelu,
            Self::Floor => T::floor,
            Self::Ceil => T::ceil,
            Self::Trunc => T::trunc,
            Self::Round => T::round_ties_even,
            _ => return None,
        })
    }

    /// Returns the function of two floats. `None` for other operators.
    pub(crate) fn of_floats<T: Real>(self) -> Option<fn(T, T) -> T> {
        Some(match self {
            Self::Add => |x, y| x + y,
            Self::Sub => |x, y| x - y,
            Self::Mul => |x, y| x * y,
            Self::Div => |x, y| x / y,
            Self::Min => |x, y| if y < x { y } else { x },
            Self::Max => T::max,
            Self::Pow => T::powf,
            Self::Remainder => T::remainder,
            _ => return None,
        })
    }

    /// Returns the comparison of two numbers. `None` for other operators.
    pub(crate) fn of_comparison<N: PartialOrd>(self) -> Option<fn(N, N) -> bool> {
        Some(match self {
            Self::Less => |x, y| x < y,
            Self::LessEqual => |x, y| x <= y,
            Self::Equal => |x, y| x == y,
            _ => return None,
        })
    }
}

fn sigmoid<T: Real>(x: T) -> T {
    T::ONE / (T::ONE + (-x).exp())
}

/// `x · Φ(x)`. erfc stays accurate where 1 + erf would cancel.
fn gelu<T: Real>(x: T) -> T {
    x * T::from_f64(0.5) * (-x * T::from_f64(std::f64::consts::FRAC_1_SQRT_2)).erfc()
}
