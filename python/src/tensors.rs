//! Tensors by name: a dictionary of numpy arrays in, a dictionary of numpy arrays out.

use hipvit::ndarray::{ArrayD, ArrayViewD};
use hipvit::{TensorArray, TensorInfo, TensorView};
use numpy::{Element, IntoPyArray, PyArrayDyn, PyReadonlyArrayDyn};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyModule};

use crate::error::{argument, convert, module};
use crate::loaded_model::LoadedModel;

/// An array of Python's that is borrowed while the model runs.
enum Borrowed<'py> {
    F32(PyReadonlyArrayDyn<'py, f32>),
    I32(PyReadonlyArrayDyn<'py, i32>),
    I64(PyReadonlyArrayDyn<'py, i64>),
    U8(PyReadonlyArrayDyn<'py, u8>),
    Bool(PyReadonlyArrayDyn<'py, bool>),
}

impl<'py> Borrowed<'py> {
    /// Borrows an array, or converts what numpy makes an array of. Floating-point numbers become float32, and other integers int64.
    fn new(name: &str, value: &Bound<'py, PyAny>) -> PyResult<Self> {
        static NUMPY: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
        let py = value.py();
        let array = module(py, &NUMPY, "numpy")?.call_method1("asarray", (value,))?;
        if let Ok(array) = array.extract() {
            return Ok(Self::F32(array));
        }
        if let Ok(array) = array.extract() {
            return Ok(Self::I64(array));
        }
        if let Ok(array) = array.extract() {
            return Ok(Self::I32(array));
        }
        if let Ok(array) = array.extract() {
            return Ok(Self::U8(array));
        }
        if let Ok(array) = array.extract() {
            return Ok(Self::Bool(array));
        }
        let dtype = array.getattr("dtype")?;
        let kind: String = dtype.getattr("kind")?.extract()?;
        match kind.as_str() {
            "f" => Ok(Self::F32(array.call_method1("astype", ("float32",))?.extract()?)),
            "i" | "u" => Ok(Self::I64(array.call_method1("astype", ("int64",))?.extract()?)),
            _ => Err(argument(
                py,
                format!("inputs: `{name}` has the dtype {dtype}, which no model takes"),
            )),
        }
    }

    fn view(&self) -> TensorView<'_> {
        fn view<'a, T: Element>(array: &'a PyReadonlyArrayDyn<'_, T>) -> ArrayViewD<'a, T> {
            array.as_array()
        }
        match self {
            Self::F32(array) => TensorView::F32(view(array)),
            Self::I32(array) => TensorView::I32(view(array)),
            Self::I64(array) => TensorView::I64(view(array)),
            Self::U8(array) => TensorView::U8(view(array)),
            Self::Bool(array) => TensorView::Bool(view(array)),
        }
    }
}

/// Runs the model on named arrays.
pub fn run<'py>(model: &LoadedModel, inputs: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
    let py = inputs.py();
    let session = model.session(py)?;
    let mut borrowed: Vec<(String, Borrowed<'py>)> = Vec::with_capacity(inputs.len());
    for (name, value) in inputs {
        let name: String = name.extract()?;
        let array = Borrowed::new(&name, &value)?;
        borrowed.push((name, array));
    }
    let views: Vec<(&str, TensorView<'_>)> = borrowed
        .iter()
        .map(|(name, array)| (name.as_str(), array.view()))
        .collect();
    let outputs = py.detach(|| session.run_tensors(views));
    let outputs = outputs.map_err(|error| convert(py, &error, None))?;
    let arrays = PyDict::new(py);
    for (name, array) in outputs {
        arrays.set_item(name, owned(py, array))?;
    }
    Ok(arrays)
}

fn owned(py: Python<'_>, array: TensorArray) -> Bound<'_, PyAny> {
    fn any<T: Element>(py: Python<'_>, array: ArrayD<T>) -> Bound<'_, PyAny> {
        let array: Bound<'_, PyArrayDyn<T>> = array.into_pyarray(py);
        array.into_any()
    }
    match array {
        TensorArray::F32(array) => any(py, array),
        TensorArray::I32(array) => any(py, array),
        TensorArray::I64(array) => any(py, array),
        TensorArray::U8(array) => any(py, array),
        TensorArray::Bool(array) => any(py, array),
    }
}

/// Returns inputs or outputs by name: dtype and shape of each. An extent that is a multiple of the batch, or depends on
/// the data, is a text, such as `"B"` or `"≤100"`.
pub fn describe<'py>(py: Python<'py>, tensors: &[TensorInfo]) -> PyResult<Bound<'py, PyDict>> {
    let described = PyDict::new(py);
    for tensor in tensors {
        let extent = |axis: usize| match tensor.extent(axis) {
            Some(extent) => extent.into_pyobject(py).map(Bound::into_any).map_err(PyErr::from),
            None => Ok(tensor.extent_text(axis).into_pyobject(py)?.into_any()),
        };
        let shape = (0..tensor.dims.len()).map(extent).collect::<PyResult<Vec<_>>>()?;
        described.set_item(&tensor.name, (tensor.element.to_string(), shape))?;
    }
    Ok(described)
}
