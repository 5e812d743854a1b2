//! `hipvit.ZeroShot`: classification of images by texts.

use std::sync::Arc;

use hipvit::{ZeroShot as LibraryZeroShot, ZeroShotOptions};
use numpy::{PyArray2, ToPyArray};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::error::{argument, convert};
use crate::loaded_model::{LoadedModel, OnError, parse_on_error};
use crate::outputs::{Outputs, Rows};

/// Labels with embedded texts, to classify images without a trained classifier.
#[derive(Debug)]
#[pyclass(frozen, module = "hipvit")]
pub struct ZeroShot {
    model: Arc<LoadedModel>,
    labels: LibraryZeroShot,
}

/// Returns one text or several as a list.
pub fn texts(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Vec<String>> {
    if let Ok(text) = object.cast::<PyString>() {
        return Ok(vec![text.extract()?]);
    }
    object.extract().map_err(|_| {
        let class = object.get_type();
        PyTypeError::new_err(format!("{name}: {class} is neither a str nor a sequence of str"))
    })
}

impl ZeroShot {
    pub fn new(
        model: &Arc<LoadedModel>,
        labels: &Bound<'_, PyAny>,
        templates: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let py = labels.py();
        let session = model.session(py)?;
        let labels = texts(labels, "labels")?;
        let options = match templates {
            Some(templates) => ZeroShotOptions::new().templates(texts(templates, "templates")?),
            None => ZeroShotOptions::new(),
        };
        let labels = py.detach(|| session.zero_shot_with(&labels, &options));
        Ok(Self {
            model: model.clone(),
            labels: labels.map_err(|error| convert(py, &error, None))?,
        })
    }

    fn rows(&self, images: &Bound<'_, PyAny>, resize: bool, on_error: OnError) -> PyResult<Rows> {
        let rows = self.model.rows(images, resize, on_error)?;
        Ok(rows.classified(&self.labels))
    }
}

#[pymethods]
impl ZeroShot {
    /// Returns the logits of the labels, `[B, labels]`.
    #[pyo3(signature = (images, *, resize = true))]
    fn __call__(&self, images: &Bound<'_, PyAny>, resize: bool) -> PyResult<Py<PyArray2<f32>>> {
        let py = images.py();
        let outputs = Outputs::new(py, self.rows(images, resize, OnError::Raise)?);
        outputs
            .logits(py)
            .ok_or_else(|| argument(py, "the labels gave no logits"))
    }

    /// Returns all results for the images, with the logits of the labels.
    #[pyo3(signature = (images, *, resize = true, on_error = "raise"))]
    fn run(&self, images: &Bound<'_, PyAny>, resize: bool, on_error: &str) -> PyResult<Outputs> {
        let py = images.py();
        let on_error = parse_on_error(py, on_error)?;
        Ok(Outputs::new(py, self.rows(images, resize, on_error)?))
    }

    /// Returns the `k` most likely labels of each image, best first.
    #[pyo3(signature = (images, k = 5, *, resize = true))]
    fn top<'py>(
        &self,
        images: &Bound<'py, PyAny>,
        k: usize,
        resize: bool,
    ) -> PyResult<Vec<Vec<Bound<'py, PyAny>>>> {
        let py = images.py();
        Outputs::new(py, self.rows(images, resize, OnError::Raise)?).top(py, k)
    }

    fn __repr__(&self) -> String {
        format!("<hipvit.ZeroShot: {} labels>", self.labels.labels().len())
    }

    /// The labels, in the order of the logits.
    #[getter]
    fn labels(&self) -> Vec<String> {
        self.labels.labels().iter().map(str::to_owned).collect()
    }

    /// Embeddings of the labels, `[labels, D]`, each of length 1.
    #[getter]
    fn embeddings<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray2<f32>> {
        self.labels.embeddings().to_pyarray(py)
    }

    /// Texts that were truncated to the text tower's context length.
    #[getter]
    fn truncated(&self) -> Vec<String> {
        self.labels.truncated().to_vec()
    }
}
