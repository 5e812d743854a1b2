//! Integers that grow evenly along each axis, as many as the batch size: the indices of a view of a tensor.

use std::sync::Arc;

use crate::dim::{Dim, Linear};
use crate::error::{Refusal, refuse};
use crate::ops::broadcast;
use crate::value::{Data, MOST_INTEGERS, Value, count};

/// Integers `start + Σ strides[axis] · index[axis]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ramp {
    pub(crate) start: Linear,
    /// A stride for each axis.
    pub(crate) strides: Vec<Linear>,
}

impl Ramp {
    /// Returns the integers of a value as a ramp. `None` if they are computed from the input, or do not grow evenly.
    pub(crate) fn of(value: &Value) -> Option<Self> {
        let elements = match &value.data {
            Data::Ramp(ramp) => return Some(ramp.clone()),
            _ => value.as_integers()?,
        };
        let shape = value.shape();
        let start = *elements.first()?;
        let mut strides = vec![Linear::default(); shape.len()];
        let mut distance = 1;
        for axis in (0..shape.len()).rev() {
            if shape[axis] > 1 {
                strides[axis] = elements.get(distance)?.checked_sub(start)?;
            }
            distance *= shape[axis];
        }
        let mut index = vec![0; shape.len()];
        for &element in elements {
            let mut expected = start;
            for (&index, &stride) in index.iter().zip(&strides) {
                expected = expected.checked_add(stride.checked_mul(Linear::new(index))?)?;
            }
            if element != expected {
                return None;
            }
            for axis in (0..shape.len()).rev() {
                index[axis] += 1;
                if index[axis] < shape[axis] as i64 {
                    break;
                }
                index[axis] = 0;
            }
        }
        Some(Self { start, strides })
    }

    /// Returns true if these are the indices 0, 1 … of a tensor of extents `dims`, in order.
    pub(crate) fn is_every_index(&self, dims: &[Dim]) -> bool {
        let mut stride = Some(Linear::new(1));
        for (&dim, &own) in dims.iter().zip(&self.strides).rev() {
            if dim != Dim::Fixed(1) && stride != Some(own) {
                return false;
            }
            stride = stride.and_then(|stride| stride.checked_mul(dim.into()));
        }
        self.start == Linear::default()
    }

    /// Returns the strides for another shape that differs in extents of 1 only.
    pub(crate) fn reshaped(&self, from: &[Dim], to: &[Dim]) -> Result<Self, Refusal> {
        if self.strides.iter().all(|&stride| stride == Linear::default()) {
            return Ok(Self {
                start: self.start,
                strides: vec![Linear::default(); to.len()],
            });
        }
        let moved = from
            .iter()
            .zip(&self.strides)
            .filter(|(dim, _)| **dim != Dim::Fixed(1));
        let mut moved = moved.peekable();
        let mut strides = Vec::with_capacity(to.len());
        for &dim in to {
            strides.push(match moved.peek() {
                Some(&(&own, &stride)) if own == dim => {
                    moved.next();
                    stride
                }
                _ if dim == Dim::Fixed(1) => Linear::default(),
                _ => refuse!("reshapes indices that depend on the batch size, which is not supported"),
            });
        }
        if moved.next().is_some() {
            refuse!("reshapes indices that depend on the batch size, which is not supported");
        }
        Ok(Self {
            start: self.start,
            strides,
        })
    }

    /// Returns the ramp repeated along axes before its own, and along those in which it has one element.
    pub(crate) fn expanded(&self, rank: usize) -> Self {
        Self {
            start: self.start,
            strides: self.padded(rank),
        }
    }

    /// Returns the integers for one image, with an extent of 1 for each axis that grows with the batch. `None` if they differ along
    /// these axes.
    pub(crate) fn for_one(&self, value: &Value) -> Option<Result<Value, Refusal>> {
        let mut shape = Vec::with_capacity(value.rank());
        for (dim, stride) in value.dims.iter().zip(&self.strides) {
            shape.push(match dim.fixed() {
                Some(extent) => extent,
                None if *stride == Linear::default() => 1,
                None => return None,
            });
        }
        Some(self.integers(value, &shape))
    }

    fn integers(&self, value: &Value, shape: &[usize]) -> Result<Value, Refusal> {
        let len = count(shape)?;
        if len > MOST_INTEGERS {
            refuse!("computes {len} integers, but at most {MOST_INTEGERS} are supported");
        }
        let mut elements = Vec::with_capacity(len);
        for index in 0..len {
            let (mut rest, mut element) = (index, Some(self.start));
            for (&extent, &stride) in shape.iter().zip(&self.strides).rev() {
                let step = stride.checked_mul(Linear::new((rest % extent) as i64));
                element = element
                    .zip(step)
                    .and_then(|(element, step)| element.checked_add(step));
                rest /= extent;
            }
            elements.push(element.ok_or("computes an integer that overflows")?);
        }
        Value::integers(value.element, shape, elements)
    }

    /// Returns the index of a slice for the indices that columns name in axes of these extents.
    pub(crate) fn position(columns: &[Value], extents: &[Dim]) -> Option<Self> {
        let mut position: Option<Self> = None;
        for (column, &extent) in columns.iter().zip(extents) {
            let own = Self::of(column)?;
            position = Some(match position {
                None => own,
                Some(outer) => {
                    let join =
                        |outer: Linear, own: Linear| outer.checked_mul(extent.into())?.checked_add(own);
                    let pairs = outer.strides.iter().zip(&own.strides);
                    Self {
                        start: join(outer.start, own.start)?,
                        strides: pairs
                            .map(|(&outer, &own)| join(outer, own))
                            .collect::<Option<_>>()?,
                    }
                }
            });
        }
        position
    }

    /// Returns the ramp with its strides along the last axes of `rank` axes.
    fn padded(&self, rank: usize) -> Vec<Linear> {
        let missing = rank.saturating_sub(self.strides.len());
        let mut strides = vec![Linear::default(); missing];
        strides.extend(&self.strides);
        strides
    }
}

/// Returns the sum of a ramp and integers of the graph of the same shape. `None` for another function.
fn offset(ramp: &Ramp, of_ramp: &Value, other: &Value, op: &str) -> Option<Value> {
    let is_sum = op == "Add" && of_ramp.dims == other.dims && matches!(other.data, Data::Computed(_));
    is_sum.then(|| Value {
        element: other.element,
        dims: other.dims.clone(),
        data: Data::Offset(Arc::new((ramp.clone(), other.clone()))),
    })
}

/// A function that keeps ramps even: a sum, a difference, or a product with one number.
type Function = fn([Linear; 2]) -> Option<Linear>;

/// Combines two ramps. `None` if neither depends on the batch size in its extents.
pub(crate) fn combine(x: &Value, y: &Value, op: &str, function: Function) -> Option<Result<Value, Refusal>> {
    let is_ramp = |value: &Value| matches!(value.data, Data::Ramp(_));
    // Other integers are combined element by element.
    if !is_ramp(x) && !is_ramp(y) {
        return None;
    }
    match (Ramp::of(x), Ramp::of(y)) {
        (Some(a), Some(b)) => Some(combined([x, y], [&a, &b], op, function)),
        (Some(ramp), None) => offset(&ramp, x, y, op).map(Ok),
        (None, Some(ramp)) => offset(&ramp, y, x, op).map(Ok),
        (None, None) => None,
    }
}

fn combined([x, y]: [&Value; 2], [a, b]: [&Ramp; 2], op: &str, function: Function) -> Result<Value, Refusal> {
    let unsupported = || format!("{op} of indices that depend on the batch size");
    let dims = broadcast(&x.dims, &y.dims)?;
    let is_one = |value: &Value| value.dims.iter().all(|&dim| dim == Dim::Fixed(1));
    let is_even = match op {
        "Add" | "Sub" => true,
        "Mul" => is_one(x) || is_one(y),
        _ => false,
    };
    if !is_even {
        return Ok(Value {
            element: x.element,
            dims,
            data: Data::Unknown(unsupported().into()),
        });
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
