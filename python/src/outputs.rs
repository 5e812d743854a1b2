//! Results as numpy arrays.

use std::collections::BTreeMap;

use hipvit::ndarray::{Array, Array2, Array3, ArrayView2, Axis, Dimension};
use hipvit::{Error, ImageOutputs, Labels, Outputs as LibraryOutputs, Scores, ZeroShot};
use numpy::{IntoPyArray, PyArray, PyArray2, PyArray3, PyArrayMethods, ToPyArray};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyModule};

use crate::error::{convert, module};

/// Results as the library's arrays, with a row per image. Rows of failed images are NaN.
#[derive(Debug)]
pub struct Rows {
    pub labels: Labels,
    pub scores: Scores,
    pub embeddings: Array2<f32>,
    pub logits: Option<Array2<f32>>,
    pub tokens: Option<Array3<f32>>,
    pub prefix_tokens: Option<Array3<f32>>,
    pub hidden_layers: Vec<(usize, Array3<f32>)>,
    pub errors: BTreeMap<usize, Error>,
}

impl Rows {
    pub fn of(outputs: &LibraryOutputs, labels: Labels, scores: Scores) -> Self {
        let layers = outputs.hidden_layer_indices();
        Self {
            labels,
            scores,
            embeddings: outputs.embeddings().clone(),
            logits: outputs.logits().cloned(),
            tokens: outputs.tokens().map(|tokens| tokens.to_owned()),
            prefix_tokens: outputs.prefix_tokens().map(|tokens| tokens.to_owned()),
            hidden_layers: layers
                .filter_map(|block| Some((block, outputs.hidden_layer(block)?.to_owned())))
                .collect(),
            errors: BTreeMap::new(),
        }
    }

    /// Adds the logits, probabilities and names of the labels.
    pub fn classified(mut self, labels: &ZeroShot) -> Self {
        let mut logits = Array2::zeros((self.embeddings.nrows(), labels.labels().len()));
        for (mut row, embedding) in logits.rows_mut().into_iter().zip(self.embeddings.rows()) {
            row.assign(&labels.logits(embedding));
        }
        self.logits = Some(logits);
        self.labels = labels.labels().clone();
        self.scores = labels.scores();
        self
    }

    /// Allocates results for `images` images, in the shapes of `empty`, filled with NaN.
    pub fn missing(empty: &LibraryOutputs, images: usize, labels: Labels, scores: Scores) -> Self {
        let mut rows = Self::of(empty, labels, scores);
        let two = |array: &mut Array2<f32>| *array = Array2::from_elem((images, array.ncols()), f32::NAN);
        let three = |array: &mut Array3<f32>| {
            let (_, tokens, channels) = array.dim();
            *array = Array3::from_elem((images, tokens, channels), f32::NAN);
        };
        two(&mut rows.embeddings);
        rows.logits.iter_mut().for_each(two);
        rows.tokens.iter_mut().for_each(three);
        rows.prefix_tokens.iter_mut().for_each(three);
        rows.hidden_layers.iter_mut().for_each(|(_, layer)| three(layer));
        rows
    }

    /// Copies the results of image `index`.
    pub fn set(&mut self, index: usize, image: ImageOutputs<'_>) {
        self.embeddings.row_mut(index).assign(&image.embedding());
        if let (Some(rows), Some(row)) = (&mut self.logits, image.logits()) {
            rows.row_mut(index).assign(&row);
        }
        let assign = |rows: &mut Array3<f32>, row: ArrayView2<'_, f32>| {
            rows.index_axis_mut(Axis(0), index).assign(&row);
        };
        if let (Some(rows), Some(row)) = (&mut self.tokens, image.tokens()) {
            assign(rows, row);
        }
        if let (Some(rows), Some(row)) = (&mut self.prefix_tokens, image.prefix_tokens()) {
            assign(rows, row);
        }
        for (block, rows) in &mut self.hidden_layers {
            if let Some(row) = image.hidden_layer(*block) {
                assign(rows, row);
            }
        }
    }
}

/// Results for a number of images, in order.
#[derive(Debug)]
#[pyclass(frozen, module = "hipvit")]
pub struct Outputs {
    pub labels: Labels,
    pub scores: Scores,
    pub embeddings: Py<PyArray2<f32>>,
    pub logits: Option<Py<PyArray2<f32>>>,
    pub tokens: Option<Py<PyArray3<f32>>>,
    pub prefix_tokens: Option<Py<PyArray3<f32>>>,
    pub hidden_layers: Vec<(usize, Py<PyArray3<f32>>)>,
    errors: Vec<(usize, Py<PyAny>)>,
}

fn own<D: Dimension>(py: Python<'_>, array: Array<f32, D>) -> Py<PyArray<f32, D>> {
    // The library's views may not be row-major, but C code expects that of an array.
    if array.is_standard_layout() {
        array.into_pyarray(py).unbind()
    } else {
        array.as_standard_layout().to_pyarray(py).unbind()
    }
}

impl Outputs {
    pub fn new(py: Python<'_>, rows: Rows) -> Self {
        let errors = rows.errors.iter();
        Self {
            errors: errors
                .map(|(&index, error)| (index, convert(py, error, Some(index)).into_value(py).into_any()))
                .collect(),
            labels: rows.labels,
            scores: rows.scores,
            embeddings: own(py, rows.embeddings),
            logits: rows.logits.map(|array| own(py, array)),
            tokens: rows.tokens.map(|array| own(py, array)),
            prefix_tokens: rows.prefix_tokens.map(|array| own(py, array)),
            hidden_layers: rows
                .hidden_layers
                .into_iter()
                .map(|(block, array)| (block, own(py, array)))
                .collect(),
        }
    }
}

#[pymethods]
impl Outputs {
    fn __len__(&self, py: Python<'_>) -> usize {
        use numpy::PyUntypedArrayMethods;
        self.embeddings.bind(py).shape()[0]
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let failed = match self.errors.len() {
            0 => String::new(),
            n => format!(", {n} failed"),
        };
        format!("<hipvit.Outputs for {} images{failed}>", self.__len__(py))
    }

    /// `[B, classes]`, before softmax or sigmoid. `None` if the model has no classification head.
    #[getter]
    pub fn logits(&self, py: Python<'_>) -> Option<Py<PyArray2<f32>>> {
        self.logits.as_ref().map(|array| array.clone_ref(py))
    }

    /// `[B, D]`: the input of the classification head, or the model's result if it has no head.
    #[getter]
    pub fn embeddings(&self, py: Python<'_>) -> Py<PyArray2<f32>> {
        self.embeddings.clone_ref(py)
    }

    /// `[B, patches, D]`. Requires `tokens=True` when the model is loaded.
    #[getter]
    pub fn tokens(&self, py: Python<'_>) -> Option<Py<PyArray3<f32>>> {
        self.tokens.as_ref().map(|array| array.clone_ref(py))
    }

    /// `[B, prefix tokens, D]`: class, distillation and register tokens.
    #[getter]
    fn prefix_tokens(&self, py: Python<'_>) -> Option<Py<PyArray3<f32>>> {
        self.prefix_tokens.as_ref().map(|array| array.clone_ref(py))
    }

    /// `[B, tokens, D]` by block, for the blocks requested when the model is loaded.
    #[getter]
    fn hidden_layers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let layers = PyDict::new(py);
        for (block, array) in &self.hidden_layers {
            layers.set_item(block, array.bind(py))?;
        }
        Ok(layers)
    }

    /// Errors of failed images, by position.
    #[getter]
    fn errors<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let errors = PyDict::new(py);
        for (index, error) in &self.errors {
            errors.set_item(index, error)?;
        }
        Ok(errors)
    }

    /// `[B, classes]`, after softmax or sigmoid.
    #[getter]
    fn probabilities<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyArray2<f32>>>> {
        let Some(logits) = &self.logits else {
            return Ok(None);
        };
        let logits = logits.bind(py).readonly();
        let mut probabilities = logits.as_array().to_owned();
        for mut row in probabilities.rows_mut() {
            let values = self.scores.probabilities(row.view());
            row.iter_mut().zip(values).for_each(|(to, value)| *to = value);
        }
        Ok(Some(probabilities.into_pyarray(py)))
    }

    /// Returns the `k` most likely classes of each image, best first. Empty for a failed image.
    #[pyo3(signature = (k = 5))]
    pub fn top<'py>(&self, py: Python<'py>, k: usize) -> PyResult<Vec<Vec<Bound<'py, PyAny>>>> {
        static RESULTS: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
        let class = module(py, &RESULTS, "hipvit._results")?.getattr("Prediction")?;
        let Some(logits) = &self.logits else {
            return Ok(vec![Vec::new(); self.__len__(py)]);
        };
        let logits = logits.bind(py).readonly();
        let logits = logits.as_array();
        let failed: Vec<usize> = self.errors.iter().map(|(index, _)| *index).collect();
        let rows = logits.rows().into_iter().enumerate().map(|(index, row)| {
            let k = if failed.contains(&index) { 0 } else { k };
            let top = self.scores.top(row, k, &self.labels);
            top.into_iter()
                .map(|p| class.call1((p.index, p.label, p.logit, p.probability)))
                .collect()
        });
        rows.collect()
    }
}
