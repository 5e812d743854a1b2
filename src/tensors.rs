//! Tensors of a model's inputs and outputs, by name: see [`Session::run_tensors`](crate::Session::run_tensors).

use std::fmt;

pub use hipvit_onnx::{Counted, Dim, ElementType};
use ndarray::{ArrayD, ArrayRef, ArrayViewD, Axis, CowArray, Dimension, IxDyn, Slice};
use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::tensor::{DType, Input};

/// An input or output of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorInfo {
    /// Name in the model's file, such as `pixel_values`.
    pub name: String,
    /// Element type in the model's file.
    pub element: ElementType,
    /// Extents.
    pub dims: Vec<Dim>,
    /// The axis of an output whose extent depends on the data. [`dims`](Self::dims) has its largest extent.
    pub counted: Option<Counted>,
}

impl TensorInfo {
    pub(crate) fn new(name: impl Into<String>, element: ElementType, dims: impl Into<Vec<Dim>>) -> Self {
        Self {
            name: name.into(),
            element,
            dims: dims.into(),
            counted: None,
        }
    }

    /// Returns the extent of an axis, or `None` if it depends on the batch size or the data.
    pub fn extent(&self, axis: usize) -> Option<usize> {
        let is_counted = self.counted.as_ref().is_some_and(|counted| counted.axis == axis);
        self.dims.get(axis).filter(|_| !is_counted)?.fixed()
    }

    /// Returns the extent of an axis as text, such as `3`, `B` or `≤100`.
    pub fn extent_text(&self, axis: usize) -> String {
        let dim = self.dims.get(axis).map(ToString::to_string).unwrap_or_default();
        match &self.counted {
            Some(counted) if counted.axis == axis => format!("≤{dim}"),
            _ => dim,
        }
    }
}

/// Serialises as an object with `name`, `dtype` and `shape`. In the shape, the batch is `"B"`, and an extent that depends on the data is `"≤100"`.
impl Serialize for TensorInfo {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("TensorInfo", 3)?;
        object.serialize_field("name", &self.name)?;
        object.serialize_field("dtype", &self.element.to_string())?;
        let extent = |axis: usize| match self.extent(axis) {
            Some(extent) => Value::from(extent),
            None => Value::from(self.extent_text(axis)),
        };
        let shape: Vec<Value> = (0..self.dims.len()).map(extent).collect();
        object.serialize_field("shape", &shape)?;
        object.end()
    }
}

/// Writes `pixel_values: f32 [B, 3, 224, 224]`, or `boxes: f32 [≤100, 4]`.
impl fmt::Display for TensorInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<String> = (0..self.dims.len()).map(|axis| self.extent_text(axis)).collect();
        write!(f, "{}: {} [{}]", self.name, self.element, dims.join(", "))
    }
}

/// Elements of an input. References to arrays of ndarray convert into it.
#[derive(Clone, Debug)]
pub enum TensorView<'a> {
    /// Floating-point numbers, for inputs of any floating-point type.
    F32(ArrayViewD<'a, f32>),
    /// Integers of 32 bits.
    I32(ArrayViewD<'a, i32>),
    /// Integers of 64 bits, which must fit into 32 bits.
    I64(ArrayViewD<'a, i64>),
    /// Bytes, such as pixels.
    U8(ArrayViewD<'a, u8>),
    /// Truth values.
    Bool(ArrayViewD<'a, bool>),
}

/// Elements of an output.
#[derive(Clone, Debug, PartialEq)]
pub enum TensorArray {
    /// Floating-point numbers, of outputs of any floating-point type.
    F32(ArrayD<f32>),
    /// Integers of at most 32 bits, but not bytes.
    I32(ArrayD<i32>),
    /// Integers of 64 bits, and unsigned integers of 32 bits.
    I64(ArrayD<i64>),
    /// Bytes.
    U8(ArrayD<u8>),
    /// Truth values.
    Bool(ArrayD<bool>),
}

macro_rules! elements {
    ($($Variant:ident: $Element:ty,)*) => {
        $(
            impl<'a, D: Dimension> From<&'a ArrayRef<$Element, D>> for TensorView<'a> {
                fn from(array: &'a ArrayRef<$Element, D>) -> Self {
                    Self::$Variant(array.view().into_dyn())
                }
            }

            impl<'a, D: Dimension> From<&'a ndarray::Array<$Element, D>> for TensorView<'a> {
                fn from(array: &'a ndarray::Array<$Element, D>) -> Self {
                    Self::$Variant(array.view().into_dyn())
                }
            }

            impl<'a, D: Dimension> From<ndarray::ArrayView<'a, $Element, D>> for TensorView<'a> {
                fn from(array: ndarray::ArrayView<'a, $Element, D>) -> Self {
                    Self::$Variant(array.into_dyn())
                }
            }
        )*

        impl TensorView<'_> {
            /// Returns the extents, outermost first.
            pub fn shape(&self) -> &[usize] {
                match self {
                    $(Self::$Variant(array) => array.shape(),)*
                }
            }

            /// Returns the element type.
            pub fn element(&self) -> ElementType {
                match self {
                    $(Self::$Variant(_) => ElementType::$Variant,)*
                }
            }
        }

        impl TensorArray {
            /// Returns the extents, outermost first.
            pub fn shape(&self) -> &[usize] {
                match self {
                    $(Self::$Variant(array) => array.shape(),)*
                }
            }

            /// Returns the element type.
            pub fn element(&self) -> ElementType {
                match self {
                    $(Self::$Variant(_) => ElementType::$Variant,)*
                }
            }

            /// Returns a view, for instance to use an output as an input.
            pub fn view(&self) -> TensorView<'_> {
                match self {
                    $(Self::$Variant(array) => TensorView::$Variant(array.view()),)*
                }
            }

            /// Returns the first `extent` elements of an axis.
            pub(crate) fn cut(&self, axis: usize, extent: usize) -> Self {
                match self {
                    $(Self::$Variant(array) => {
                        let extent = extent.min(array.len_of(Axis(axis)));
                        Self::$Variant(array.slice_axis(Axis(axis), Slice::from(..extent)).to_owned())
                    })*
                }
            }

            /// Appends the rows of `other`, of the same element type.
            fn append(&mut self, other: &Self) -> Result<()> {
                match (self, other) {
                    $((Self::$Variant(all), Self::$Variant(more)) => all.append(Axis(0), more.view()),)*
                    _ => return Err(Error::internal("outputs", "differ in their element type")),
                }
                .map_err(|error| Error::internal("outputs", error))
            }
        }
    };
}

elements! {
    F32: f32,
    I32: i32,
    I64: i64,
    U8: u8,
    Bool: bool,
}

impl TensorArray {
    /// Converts the results of a graph. Integers up to 2²⁴ are exact.
    pub(crate) fn new(element: ElementType, shape: &[usize], values: Vec<f32>) -> Result<Self> {
        let array = ArrayD::from_shape_vec(IxDyn(shape), values);
        let array = array.map_err(|error| Error::internal("outputs", error))?;
        Ok(match element {
            ElementType::I8 | ElementType::I16 | ElementType::I32 | ElementType::U16 => {
                Self::I32(array.mapv(|value| value as i32))
            }
            ElementType::I64 | ElementType::U32 | ElementType::U64 => {
                Self::I64(array.mapv(|value| value as i64))
            }
            ElementType::U8 => Self::U8(array.mapv(|value| value as u8)),
            ElementType::Bool => Self::Bool(array.mapv(|value| value != 0.0)),
            _ => Self::F32(array),
        })
    }

    /// Returns floating-point elements. `None` for other element types.
    pub fn as_f32(&self) -> Option<ArrayViewD<'_, f32>> {
        match self {
            Self::F32(array) => Some(array.view()),
            _ => None,
        }
    }
}

/// The outputs of a run, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamedTensors(Vec<(String, TensorArray)>);

impl NamedTensors {
    /// Returns the output of this name.
    pub fn get(&self, name: &str) -> Option<&TensorArray> {
        self.0
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, array)| array)
    }

    /// Returns names and outputs, in the order of the model.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &TensorArray)> {
        self.0.iter().map(|(name, array)| (name.as_str(), array))
    }

    /// Returns the number of outputs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there are no outputs.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends the rows of each output of a later run.
    pub(crate) fn append(&mut self, other: &Self) -> Result<()> {
        if self.len() != other.len() {
            return Err(Error::internal("outputs", "differ in their number"));
        }
        let mut pairs = self.0.iter_mut().zip(&other.0);
        pairs.try_for_each(|((_, all), (_, more))| all.append(more))
    }
}

impl FromIterator<(String, TensorArray)> for NamedTensors {
    fn from_iter<I: IntoIterator<Item = (String, TensorArray)>>(outputs: I) -> Self {
        Self(outputs.into_iter().collect())
    }
}

impl IntoIterator for NamedTensors {
    type Item = (String, TensorArray);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// Elements of an input as the graph reads them.
pub(crate) enum Elements<'a> {
    F32(CowArray<'a, f32, IxDyn>),
    I32(CowArray<'a, i32, IxDyn>),
    U8(CowArray<'a, u8, IxDyn>),
}

impl<'a> Elements<'a> {
    /// Converts the input `name` to the dtype of the graph's input.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`], naming the input, if it has another element type, or an integer that does not fit into 32 bits.
    pub(crate) fn new(name: &str, view: &'a TensorView<'_>, dtype: DType) -> Result<Self> {
        Ok(match (dtype, view) {
            (DType::F32, TensorView::F32(array)) => Self::F32(standard(array)),
            (DType::F32, TensorView::Bool(array)) => {
                Self::F32(array.mapv(|value| f32::from(u8::from(value))).into())
            }
            (DType::I32, TensorView::I32(array)) => Self::I32(standard(array)),
            (DType::I32, TensorView::U8(array)) => Self::I32(array.mapv(i32::from).into()),
            (DType::I32, TensorView::I64(array)) => Self::I32(narrowed(name, array)?.into()),
            (DType::U8, TensorView::U8(array)) => Self::U8(standard(array)),
            (DType::U8, TensorView::Bool(array)) => Self::U8(array.mapv(u8::from).into()),
            (dtype, view) => {
                let reason = format!("`{name}` is {}, expected {dtype}", view.element());
                return Err(Error::argument("inputs", reason));
            }
        })
    }

    /// Returns the elements in row-major order.
    pub(crate) fn input(&self) -> Result<Input<'_>> {
        let elements = match self {
            Self::F32(array) => array.as_slice().map(Input::Values),
            Self::I32(array) => array.as_slice().map(Input::Integers),
            Self::U8(array) => array.as_slice().map(Input::Pixels),
        };
        elements.ok_or_else(|| Error::internal("inputs", "are not contiguous"))
    }
}

/// Returns the array in row-major order, borrowed if it is.
fn standard<'a, T: Clone>(array: &'a ArrayViewD<'_, T>) -> CowArray<'a, T, IxDyn> {
    array.as_standard_layout()
}

fn narrowed(name: &str, array: &ArrayViewD<'_, i64>) -> Result<ArrayD<i32>> {
    if let Some(value) = array.iter().find(|&&value| i32::try_from(value).is_err()) {
        let reason = format!("`{name}` has the integer {value}, which does not fit into 32 bits");
        return Err(Error::argument("inputs", reason));
    }
    Ok(array.mapv(|value| value as i32))
}
