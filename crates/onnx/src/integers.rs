//! Arithmetic of integers that are known at import, up to the batch size.

use crate::dim::{Dim, Linear};
use crate::element::ElementType;
use crate::error::{Refusal, refuse};
use crate::ramp::Ramp;
use crate::shape::{broadcast, count};
use crate::value::{Data, MOST_INTEGERS, Value};

/// A function of integers.
type Function<const N: usize> = fn([Linear; N]) -> Option<Linear>;

/// Applies `function` element by element. `None` if an operand is not known at import, or is not of integers.
pub(crate) fn apply<const N: usize>(
    element: ElementType,
    operands: [&Value; N],
    function: Function<N>,
) -> Option<Result<Value, Refusal>> {
    let mut elements: [&[Linear]; N] = [&[]; N];
    for (elements, operand) in elements.iter_mut().zip(operands) {
        *elements = operand.as_integers()?;
    }
    Some(combine(element, operands, elements, function))
}

fn combine<const N: usize>(
    element: ElementType,
    operands: [&Value; N],
    elements: [&[Linear]; N],
    function: Function<N>,
) -> Result<Value, Refusal> {
    let mut dims = Vec::new();
    for operand in operands {
        dims = broadcast(&dims, &operand.dims)?;
    }
    let shape: Vec<usize> = dims.iter().map(|dim| dim.at_one()).collect();
    let total = count(&shape)?;
    if total > MOST_INTEGERS {
        refuse!("computes {total} integers, but at most {MOST_INTEGERS} are supported");
    }
    let strides = operands.map(|operand| strides(&operand.shape(), &shape));
    let mut index = vec![0usize; shape.len()];
    let mut at = [0usize; N];
    let mut results = Vec::with_capacity(total);
    for _ in 0..total {
        let mut arguments = [Linear::default(); N];
        for (argument, (elements, &at)) in arguments.iter_mut().zip(elements.iter().zip(&at)) {
            *argument = elements[at];
        }
        match function(arguments) {
            Some(result) => results.push(result),
            None => refuse!(
                "computes integers that overflow, or that depend on the batch size in a way that is not linear: {}",
                show(&arguments)
            ),
        }
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            at.iter_mut()
                .zip(&strides)
                .for_each(|(at, strides)| *at += strides[axis]);
            if index[axis] < shape[axis] {
                break;
            }
            index[axis] = 0;
            at.iter_mut()
                .zip(&strides)
                .for_each(|(at, strides)| *at -= strides[axis] * shape[axis]);
        }
    }
    Value::integers(element, &shape, results)
}

/// Combines two ramps. `None` if neither depends on the batch size in its extents, or if the result is not a ramp.
pub(crate) fn combine_ramps(
    x: &Value,
    y: &Value,
    op: &str,
    function: Function<2>,
) -> Option<Result<Value, Refusal>> {
    let is_ramp = |value: &Value| matches!(value.data, Data::Ramp(_));
    if is_ramp(x) || is_ramp(y) {
        combined_ramps(x, y, op, function).ok().map(Ok)
    } else {
        None
    }
}

fn combined_ramps(x: &Value, y: &Value, op: &str, function: Function<2>) -> Result<Value, Refusal> {
    let unsupported =
        || format!("computes {op} of indices that depend on the batch size, which is not supported");
    let (Some(a), Some(b)) = (x.as_ramp(), y.as_ramp()) else {
        refuse!("{}", unsupported());
    };
    let dims = broadcast(&x.dims, &y.dims)?;
    let is_one = |value: &Value| value.dims.iter().all(|&dim| dim == Dim::Fixed(1));
    let is_even = match op {
        "Add" | "Sub" => true,
        "Mul" => is_one(x) || is_one(y),
        _ => false,
    };
    if !is_even {
        refuse!("{}", unsupported());
    }
    let apply = |a: Linear, b: Linear| function([a, b]).ok_or_else(unsupported);
    let (of_a, of_b) = (a.padded(dims.len()), b.padded(dims.len()));
    let mut strides = Vec::with_capacity(dims.len());
    for (&of_a, &of_b) in of_a.iter().zip(&of_b) {
        strides.push(match op {
            "Mul" if is_one(y) => apply(of_a, b.start)?,
            "Mul" => apply(a.start, of_b)?,
            _ => apply(of_a, of_b)?,
        });
    }
    let start = apply(a.start, b.start)?;
    Ok(Value {
        element: x.element,
        dims,
        data: Data::Ramp(Ramp { start, strides }),
    })
}

fn show(arguments: &[Linear]) -> String {
    let one = |argument: &Linear| match argument.known() {
        Some(number) => number.to_string(),
        None => format!("{} + {}·B", argument.constant, argument.batch),
    };
    arguments.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Returns the distances between elements along the axes of `shape`: 0 where the operand repeats.
fn strides(operand: &[usize], shape: &[usize]) -> Vec<usize> {
    let missing = shape.len() - operand.len();
    let mut strides = vec![0; shape.len()];
    let mut stride = 1;
    for (axis, &extent) in operand.iter().enumerate().rev() {
        if extent != 1 {
            strides[missing + axis] = stride;
        }
        stride *= extent;
    }
    strides
}

/// Returns true if a number is at least 0 for every batch size. `None` if that differs among batch sizes.
fn is_nonnegative(number: Linear) -> Option<bool> {
    // The number is smallest, or largest, for one image.
    let at_one = number.constant.checked_add(number.batch)?;
    if at_one >= 0 {
        (number.batch >= 0).then_some(true)
    } else {
        (number.batch <= 0).then_some(false)
    }
}

fn truth(holds: bool) -> Linear {
    Linear::new(holds.into())
}

pub(crate) fn equal([x, y]: [Linear; 2]) -> Option<Linear> {
    let difference = x.checked_sub(y)?;
    if let Some(difference) = difference.known() {
        return Some(truth(difference == 0));
    }
    // Neither is larger or smaller for every batch size only if they may be equal.
    let is_larger = is_nonnegative(difference.checked_sub(Linear::new(1))?) == Some(true);
    let is_smaller = is_nonnegative(difference) == Some(false);
    (is_larger || is_smaller).then(|| truth(false))
}

pub(crate) fn greater_or_equal([x, y]: [Linear; 2]) -> Option<Linear> {
    is_nonnegative(x.checked_sub(y)?).map(truth)
}

pub(crate) fn less([x, y]: [Linear; 2]) -> Option<Linear> {
    is_nonnegative(x.checked_sub(y)?).map(|holds| truth(!holds))
}

pub(crate) fn less_or_equal([x, y]: [Linear; 2]) -> Option<Linear> {
    greater_or_equal([y, x])
}

pub(crate) fn greater([x, y]: [Linear; 2]) -> Option<Linear> {
    less([y, x])
}

pub(crate) fn max([x, y]: [Linear; 2]) -> Option<Linear> {
    let difference = x.checked_sub(y)?;
    if is_nonnegative(difference) == Some(true) {
        return Some(x);
    }
    (is_nonnegative(y.checked_sub(x)?) == Some(true)).then_some(y)
}

pub(crate) fn min([x, y]: [Linear; 2]) -> Option<Linear> {
    let larger = max([x, y])?;
    Some(if larger == x { y } else { x })
}

/// The remainder with the sign of the divisor, as Python's.
pub(crate) fn modulo([x, y]: [Linear; 2]) -> Option<Linear> {
    match (x.known(), y.known()) {
        (Some(x), Some(y)) => {
            let remainder = x.checked_rem(y)?;
            let is_other_sign = remainder != 0 && (remainder < 0) != (y < 0);
            Some(Linear::new(if is_other_sign { remainder + y } else { remainder }))
        }
        // A multiple of the divisor leaves nothing.
        (None, _) => x
            .checked_div(y)
            .and_then(|quotient| (quotient.checked_mul(y) == Some(x)).then(Linear::default)),
        _ => None,
    }
}

/// The remainder with the sign of the dividend, as C's.
pub(crate) fn remainder([x, y]: [Linear; 2]) -> Option<Linear> {
    match (x.known(), y.known()) {
        (Some(x), Some(y)) => x.checked_rem(y).map(Linear::new),
        _ => modulo([x, y]),
    }
}

pub(crate) fn power([x, y]: [Linear; 2]) -> Option<Linear> {
    let exponent = u32::try_from(y.known()?).ok()?;
    match x.known() {
        Some(x) => x.checked_pow(exponent).map(Linear::new),
        None => (exponent == 1).then_some(x),
    }
}

pub(crate) fn select([condition, x, y]: [Linear; 3]) -> Option<Linear> {
    Some(if condition.known()? != 0 { x } else { y })
}

fn truths(operands: [Linear; 2]) -> Option<[bool; 2]> {
    let [x, y] = operands.map(|operand| operand.known().map(|known| known != 0));
    Some([x?, y?])
}

pub(crate) fn and(operands: [Linear; 2]) -> Option<Linear> {
    truths(operands).map(|[x, y]| truth(x && y))
}

pub(crate) fn or(operands: [Linear; 2]) -> Option<Linear> {
    truths(operands).map(|[x, y]| truth(x || y))
}

pub(crate) fn exclusive_or(operands: [Linear; 2]) -> Option<Linear> {
    truths(operands).map(|[x, y]| truth(x != y))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;
    use crate::value::Value;

    #[test]
    fn elements_are_combined_with_broadcasting() {
        let known = |numbers: &[i64]| numbers.iter().copied().map(Linear::new).collect::<Vec<_>>();
        let x = Value::integers(ElementType::I64, &[2, 1], known(&[10, 20])).unwrap();
        let y = Value::list(known(&[1, 2, 3]));
        let sum = apply(ElementType::I64, [&x, &y], |[x, y]| x.checked_add(y))
            .unwrap()
            .unwrap();
        assert_eq!(sum.known_integers("sums").unwrap(), [11, 12, 13, 21, 22, 23]);
        assert_eq!(sum.shape(), [2, 3]);
    }

    #[test]
    fn comparisons_hold_for_every_batch_size_or_are_refused() {
        let batch = Linear {
            constant: 0,
            batch: 1,
        };
        let one = Linear::new(1);
        assert_eq!(equal([batch, Linear::new(-1)]), Some(Linear::new(0)));
        assert_eq!(equal([batch, one]), None);
        assert_eq!(greater([batch, Linear::new(0)]), Some(one));
        assert_eq!(less([batch, Linear::new(2)]), None);
        assert_eq!((max([batch, one]), min([batch, one])), (Some(batch), Some(one)));
        assert_eq!(max([batch, Linear::new(2)]), None);
        assert_eq!(modulo([Linear::new(-7), Linear::new(3)]), Some(Linear::new(2)));
        assert_eq!(
            remainder([Linear::new(-7), Linear::new(3)]),
            Some(Linear::new(-1))
        );
        assert_eq!(
            modulo([
                Linear {
                    constant: 0,
                    batch: 4
                },
                Linear::new(2)
            ]),
            Some(Linear::new(0))
        );
    }
}
