//! Values of a model while it is imported: numbers that are known, and values of the graph.

use std::sync::Arc;

use hipvit_graph::{DType, Provenance, ValueId, tensor::Tensor};

use crate::dim::{Dim, Linear};
use crate::element::ElementType;
use crate::error::{Refusal, refuse};
use crate::ramp::Ramp;
use crate::shape::{count, fixed, show};

/// Largest number of elements of a tensor of integers that is computed at import.
pub(crate) const MOST_INTEGERS: usize = 1 << 24;

/// Largest number of elements of a tensor of floats that is computed at import.
pub(crate) const MOST_FLOATS: usize = 1 << 28;

/// A tensor of the model.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub(crate) element: ElementType,
    pub(crate) dims: Vec<Dim>,
    pub(crate) data: Data,
}

/// Elements of a [`Value`].
#[derive(Clone, Debug)]
pub(crate) enum Data {
    /// Integers and booleans that are known, up to the batch size, in row-major order.
    Integers(Arc<[Linear]>),
    /// Integers that grow evenly, as many as the batch size.
    Ramp(Ramp),
    /// Indices whose last axis joins these columns, some of which grow evenly.
    Columns(Arc<[Value]>),
    /// Floating-point numbers that are known.
    Constant(Constant),
    /// A value of the graph.
    Computed(ValueId),
}

/// A constant tensor, and where its elements come from.
#[derive(Clone, Debug)]
pub(crate) struct Constant {
    pub(crate) tensor: Tensor,
    pub(crate) provenance: Provenance,
    /// Elements in int8, if they were dequantised.
    pub(crate) rows: Option<Rows>,
}

/// A dequantised weight in int8, with a scale for each index of one axis.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    /// The axis with scales.
    pub(crate) axis: usize,
    /// The elements with that axis first, and a scale for each row.
    pub(crate) tensor: Tensor,
}

impl Value {
    pub(crate) fn integers(
        element: ElementType,
        shape: &[usize],
        elements: impl Into<Arc<[Linear]>>,
    ) -> Result<Self, Refusal> {
        let elements = elements.into();
        if count(shape)? != elements.len() {
            refuse!("computes {} integers for the shape {shape:?}", elements.len());
        }
        Ok(Self {
            element,
            dims: fixed(shape),
            data: Data::Integers(elements),
        })
    }

    /// Returns a list of integers, as shapes are.
    pub(crate) fn list(elements: impl IntoIterator<Item = Linear>) -> Self {
        let elements: Arc<[Linear]> = elements.into_iter().collect();
        Self {
            element: ElementType::I64,
            dims: vec![Dim::Fixed(elements.len())],
            data: Data::Integers(elements),
        }
    }

    pub(crate) fn constant(element: ElementType, tensor: Tensor, provenance: impl Into<Provenance>) -> Self {
        Self {
            element,
            dims: fixed(tensor.shape()),
            data: Data::Constant(Constant {
                tensor,
                provenance: provenance.into(),
                rows: None,
            }),
        }
    }

    /// Returns one number in every element of a tensor without axes.
    pub(crate) fn scalar(element: ElementType, number: f32) -> Self {
        let tensor = Tensor::from_f32([], vec![number]).unwrap_or_else(empty);
        Self::constant(element, tensor, Provenance::Number(number))
    }

    /// Returns the constant with its elements in int8 too.
    pub(crate) fn with_rows(mut self, of_elements: Option<Rows>) -> Self {
        if let Data::Constant(constant) = &mut self.data {
            constant.rows = of_elements;
        }
        self
    }

    /// Returns the elements of a dequantised weight in int8, if each index of the first axis has one scale.
    pub(crate) fn int8_rows(&self) -> Option<&Tensor> {
        let rows = self.as_constant()?.rows.as_ref()?;
        (rows.axis == 0).then_some(&rows.tensor)
    }

    pub(crate) fn rank(&self) -> usize {
        self.dims.len()
    }

    /// Returns the extents at batch size 1.
    pub(crate) fn shape(&self) -> Vec<usize> {
        self.dims.iter().map(|dim| dim.at_one()).collect()
    }

    /// Returns the extents. Refuses extents that depend on the batch size.
    pub(crate) fn fixed_shape(&self) -> Result<Vec<usize>, Refusal> {
        let extents: Option<Vec<usize>> = self.dims.iter().map(|dim| dim.fixed()).collect();
        extents.ok_or_else(|| {
            format!(
                "has the shape {}, which depends on the batch size",
                show(&self.dims)
            )
            .into()
        })
    }

    pub(crate) fn is_known(&self) -> bool {
        !matches!(self.data, Data::Computed(_))
    }

    pub(crate) fn as_integers(&self) -> Option<&[Linear]> {
        match &self.data {
            Data::Integers(elements) => Some(elements),
            _ => None,
        }
    }

    /// Returns the integers as a ramp. `None` if they are computed from the input, or do not grow evenly.
    pub(crate) fn as_ramp(&self) -> Option<Ramp> {
        match &self.data {
            Data::Ramp(ramp) => Some(ramp.clone()),
            _ => Ramp::of(self.as_integers()?, &self.shape()),
        }
    }

    pub(crate) fn as_constant(&self) -> Option<&Constant> {
        match &self.data {
            Data::Constant(constant) => Some(constant),
            _ => None,
        }
    }

    /// Returns the elements of a small tensor of known numbers. `None` if they are not known.
    pub(crate) fn numbers(&self) -> Option<Vec<f64>> {
        match &self.data {
            Data::Integers(elements) => elements
                .iter()
                .map(|element| element.known().map(|number| number as f64))
                .collect(),
            Data::Constant(constant) => Some(constant.tensor.to_f32().iter().map(|&x| x.into()).collect()),
            _ => None,
        }
    }

    /// Returns the number of a tensor of one element. `None` if it is not known.
    pub(crate) fn number(&self) -> Option<f64> {
        let is_one = self.dims.iter().all(|&dim| dim == Dim::Fixed(1));
        self.numbers()
            .filter(|_| is_one)
            .and_then(|numbers| numbers.first().copied())
    }

    /// Returns the known integers. Refuses values that a run computes, and those that depend on the batch size.
    pub(crate) fn known_integers(&self, what: &str) -> Result<Vec<i64>, Refusal> {
        let elements = self.linear_integers(what)?;
        let known: Option<Vec<i64>> = elements.iter().map(|element| element.known()).collect();
        known.ok_or_else(|| format!("has {what} that depend on the batch size").into())
    }

    /// Returns the integers, which may depend on the batch size. Refuses values that a run computes.
    pub(crate) fn linear_integers(&self, what: &str) -> Result<Arc<[Linear]>, Refusal> {
        match &self.data {
            Data::Integers(elements) => Ok(elements.clone()),
            _ => refuse!("has {what} that are computed from the input, not fixed"),
        }
    }

    /// Returns the known elements as a tensor of the graph: integers in i32, all else in a floating-point dtype.
    pub(crate) fn to_constant(&self) -> Result<Constant, Refusal> {
        match &self.data {
            Data::Constant(constant) => Ok(constant.clone()),
            Data::Integers(elements) => integers_as_tensor(self.element, &self.fixed_shape()?, elements),

            Data::Ramp(_) | Data::Columns(_) => {
                refuse!("has an operand with an index for each image, which is not supported")
            }
            Data::Computed(_) => refuse!("has an operand that is computed from the input, not fixed"),
        }
    }
}

/// Returns the integers as a tensor of the graph: i32, or f32 for booleans.
fn integers_as_tensor(
    element: ElementType,
    shape: &[usize],
    elements: &[Linear],
) -> Result<Constant, Refusal> {
    let known = elements.iter().map(|element| element.known());
    let tensor = if element == ElementType::Bool {
        let values: Option<Vec<f32>> = known.map(|known| known.map(|number| number as f32)).collect();
        values.and_then(|values| Tensor::from_f32(shape, values))
    } else {
        // The limits of 64 bits stand for the end of an axis, and those of 32 bits do too.
        let narrow = |number: i64| number.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
        let bytes: Option<Vec<u8>> = known
            .map(|known| known.map(|number| narrow(number).to_le_bytes()))
            .collect::<Option<Vec<_>>>()
            .map(|all| all.concat());
        bytes.and_then(|bytes| {
            let len = bytes.len();
            Tensor::view(shape, DType::I32, Arc::new(bytes), 0..len).map(Tensor::computed)
        })
    };
    let Some(tensor) = tensor else {
        refuse!("has integers that depend on the batch size as an operand");
    };
    let provenance = match elements {
        [one] => Provenance::Number(one.constant as f32),
        _ => Provenance::computed("integers", []),
    };
    Ok(Constant {
        tensor,
        provenance,
        rows: None,
    })
}

fn empty() -> Tensor {
    // A tensor of no elements always fits its shape; the recursion ends at once.
    Tensor::from_f32([0], Vec::new()).unwrap_or_else(empty)
}
