//! Integers that grow evenly along each axis, as many as the batch size: the indices of a view of a tensor.

use crate::dim::{Dim, Linear};

/// Integers `start + Σ strides[axis] · index[axis]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ramp {
    pub(crate) start: Linear,
    /// A stride for each axis.
    pub(crate) strides: Vec<Linear>,
}

impl Ramp {
    /// Returns the elements of a tensor as a ramp. `None` if they do not grow evenly.
    pub(crate) fn of(elements: &[Linear], shape: &[usize]) -> Option<Self> {
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
    pub(crate) fn position(columns: impl IntoIterator<Item = Option<Self>>, extents: &[Dim]) -> Option<Self> {
        let mut position: Option<Self> = None;
        for (column, &extent) in columns.into_iter().zip(extents) {
            let own = column?;
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
    pub(crate) fn padded(&self, rank: usize) -> Vec<Linear> {
        let missing = rank.saturating_sub(self.strides.len());
        let mut strides = vec![Linear::default(); missing];
        strides.extend(&self.strides);
        strides
    }
}
