//! Integers that grow evenly along each axis, as many as the batch size: the indices of a view of a tensor.

use hipvit_graph::op::CumSum;
use hipvit_graph::pattern::floats;

use crate::builder::Builder;
use crate::dim::{Dim, Linear};
use crate::error::{Refusal, refuse};
use crate::ops::{apply, broadcast, expand_computed, expand_dims, reshape_to};
use crate::value::{Data, Value, show};

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

    /// Returns the ramp in another shape that differs in extents of 1 only, or of equal integers. `None` for other shapes.
    pub(crate) fn reshaped(&self, from: &[Dim], to: &[Dim]) -> Option<Self> {
        if self.strides.iter().all(|&stride| stride == Linear::default()) {
            return Some(Self {
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
                _ => return None,
            });
        }
        if moved.next().is_some() {
            return None;
        }
        Some(Self {
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

/// A function that keeps ramps even: a sum, a difference, or a product with one number.
type Function = fn([Linear; 2]) -> Option<Linear>;

/// Combines two ramps. `None` if neither depends on the batch size in its extents, or if the result is not a ramp.
pub(crate) fn combine(x: &Value, y: &Value, op: &str, function: Function) -> Option<Result<Value, Refusal>> {
    let is_ramp = |value: &Value| matches!(value.data, Data::Ramp(_));
    if is_ramp(x) || is_ramp(y) {
        combined(x, y, op, function).ok().map(Ok)
    } else {
        None
    }
}

/// Appends the nodes that compute the integers of a ramp: running sums of ones count the images.
pub(crate) fn compute(builder: &mut Builder, value: &Value) -> Result<Value, Refusal> {
    let Data::Ramp(ramp) = &value.data else {
        return Ok(value.clone());
    };
    let unsupported = || {
        format!(
            "computes indices {} of several batches, which is not supported",
            show(&value.dims)
        )
    };
    let known = |number: Linear| number.known().map(|number| number as f32).ok_or_else(unsupported);
    let one = Value::integers(value.element, &[1], vec![Linear::new(1)])?;
    let mut sum = None;
    for (axis, (&dim, &stride)) in value.dims.iter().zip(&ramp.strides).enumerate() {
        if dim == Dim::Fixed(1) || stride == Linear::default() {
            continue;
        }
        let mut shape = vec![Dim::Fixed(1); value.rank()];
        shape[axis] = dim;
        let numbers = match dim.fixed() {
            Some(extent) => {
                let numbers: Vec<Linear> = (0..extent as i64).map(Linear::new).collect();
                Value::integers(value.element, &[extent], numbers)?
            }
            None => {
                let ones = expand_computed(builder, &one, &[dim])?;
                let op = CumSum {
                    axis: 0,
                    exclusive: true,
                    reverse: false,
                };
                builder.apply(op, &[&ones])?
            }
        };
        let numbers = reshape_to(builder, &numbers, &shape)?;
        let scaled = floats::operand(0) * known(stride)?;
        sum = Some(match sum {
            None => apply(builder, scaled + known(ramp.start)?, &[&numbers], value.element)?,
            Some(sum) => apply(
                builder,
                scaled + floats::operand(1),
                &[&numbers, &sum],
                value.element,
            )?,
        });
    }
    match sum {
        Some(sum) => expand_dims(builder, &sum, &value.dims),
        None => {
            let start = Value::integers(value.element, &vec![1; value.rank()], vec![ramp.start])?;
            expand_computed(builder, &start, &value.dims)
        }
    }
}

fn combined(x: &Value, y: &Value, op: &str, function: Function) -> Result<Value, Refusal> {
    let unsupported =
        || format!("computes {op} of indices that depend on the batch size, which is not supported");
    let (Some(a), Some(b)) = (Ramp::of(x), Ramp::of(y)) else {
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
