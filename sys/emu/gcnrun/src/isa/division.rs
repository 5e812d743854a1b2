//! V_DIV_SCALE and V_DIV_FMAS: the first and the last step of a division, which scale its operands and its result.

use super::compare::three_operands;
use super::element::{Element, F32, F64};
use super::rows::{destination, sources};
use crate::code::{Context, Handler, Instruction, Outcome};
use crate::line::Line;
use crate::operands::{Place, Source, Type};
use crate::wave::VCC;

/// Defines the two instructions for a float type. The parameters are the power of two of the scaling, the shift and mask of the
/// exponent, and the exponent of 1. Then follow the largest difference of the operands' exponents and the smallest exponent of
/// the numerator without scaling.
macro_rules! of_float {
    ($name:ident, $float:ty, 2^$power:literal, $shift:literal, $mask:literal, $one:literal, $apart:literal, $small:literal) => {
        mod $name {
            fn power() -> $float {
                (2.0 as $float).powi($power)
            }

            fn exponent(a: $float) -> i32 {
                (a.to_bits() >> $shift & $mask) as i32
            }

            /// Scales `a`, the denominator `b` or the numerator `c`, so that no step of the division overflows or underflows. The
            /// flag says that only one of the two is scaled.
            pub(super) fn scale(a: $float, b: $float, c: $float) -> ($float, bool) {
                let is = |other: $float| a.to_bits() == other.to_bits();
                let reciprocal_denormal = (1.0 / b).is_subnormal();
                let quotient_denormal = (c / b).is_subnormal() || (c / b == 0.0);
                if b == 0.0 || c == 0.0 {
                    (<$float>::NAN, false)
                } else if exponent(c) - exponent(b) >= $apart {
                    (if is(b) { a * power() } else { a }, true)
                } else if b.is_subnormal() {
                    (a * power(), false)
                } else if reciprocal_denormal && quotient_denormal {
                    (if is(b) { a / power() } else { a }, true)
                } else if reciprocal_denormal {
                    (a / power(), false)
                } else if quotient_denormal {
                    (if is(c) { a * power() } else { a }, true)
                } else if exponent(c) <= $small {
                    (a * power(), false)
                } else {
                    (a, false)
                }
            }

            /// Does the last step, which undoes the scaling of one operand if the flag is set. It scales up if the quotient is
            /// large, and down if it is small.
            pub(super) fn finish(a: $float, b: $float, quotient: $float, flag: bool) -> $float {
                let value = a.mul_add(b, quotient);
                if !flag {
                    value
                } else if exponent(quotient) > $one {
                    value * power()
                } else {
                    value / power()
                }
            }
        }
    };
}

of_float!(single, f32, 2 ^ 64, 23, 255, 127, 96, 23);
of_float!(double, f64, 2 ^ 128, 52, 2047, 1023, 768, 53);

/// `None` if another file decodes the mnemonic.
pub(super) fn decode(line: &mut Line<'_>, base: &str) -> Option<Result<Instruction, String>> {
    let (ty, run): (Type, Handler) = match base {
        "v_div_scale_f32" => (Type::F32, |c, i| {
            on::<F32>(c, i, |[a, b, numerator], _| single::scale(a, b, numerator))
        }),
        "v_div_scale_f64" => (Type::F64, |c, i| {
            on::<F64>(c, i, |[a, b, numerator], _| double::scale(a, b, numerator))
        }),
        "v_div_fmas_f32" => (Type::F32, |c, i| {
            on::<F32>(c, i, |[a, b, quotient], flag| {
                (single::finish(a, b, quotient, flag), false)
            })
        }),
        "v_div_fmas_f64" => (Type::F64, |c, i| {
            on::<F64>(c, i, |[a, b, quotient], flag| {
                (double::finish(a, b, quotient, flag), false)
            })
        }),
        _ => return None,
    };
    Some(decode_operands(line, ty, run))
}

fn decode_operands(line: &mut Line<'_>, ty: Type, run: Handler) -> Result<Instruction, String> {
    let mut instruction = Instruction::new(run);
    let first = if line.base().starts_with("v_div_scale") {
        instruction.sdst = line.sgpr(1)?;
        2
    } else {
        instruction.src[3][0] = Source::plain(Place::Sgpr(VCC as u8));
        1
    };
    sources(line, &mut instruction, first, &[ty; 3], [false; 4])?;
    instruction.dst = destination(line, "", ty, false)?;
    Ok(instruction)
}

/// Three floats and a flag in, a float and a flag out.
fn on<L: Element>(
    context: &mut Context<'_, '_>,
    instruction: &Instruction,
    f: impl Fn([L::Value; 3], bool) -> (L::Value, bool),
) -> Outcome {
    three_operands(context, instruction, [L::TYPE; 3], L::TYPE, |operands, flag| {
        let (value, flag) = f(operands.map(|[low, high]| L::get(low, high)), flag);
        (L::put(value).into(), flag)
    })
}
